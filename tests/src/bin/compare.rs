//! `compare`: plays the case files of `tests/compare` against a real etcd and another server and
//! shows every difference in what clients see.
//!
//! ```text
//!   cargo run --release -p tests --bin compare -- --ours target/release/ringbolt
//!   cargo run --release -p tests --bin compare -- --ours ETCD      etcd against itself
//! ```
//!
//! Exit code 0: no difference; 1: differences; 2: it could not be played.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use comfy_table::{ContentArrangement, Table};
use tests::compare::Outcome;
use tests::compare::play::Player;
use tests::compare::script::{self, Act, Step};
use tests::compare::server::{ARGS, Server};

/// Characters of a text that the table shows at most.
const SHOWN_CHARS_MAX: usize = 1200;

#[derive(Debug, Parser)]
#[command(about = "Plays the same commands against a real etcd and another server")]
struct Options {
    /// The server to compare.
    #[arg(long)]
    ours: PathBuf,
    /// Its start line, if etcd's flags do not do; {data}, {tcp}, {unix} and {peer} are filled in.
    #[arg(long, default_value = ARGS)]
    ours_args: String,
    /// Where the real etcd and etcdctl are.
    #[arg(long, default_value_os_t = peers())]
    peers: PathBuf,
    /// An etcdctl 3.4, with which everything is played once more.
    #[arg(long)]
    etcdctl34: Option<PathBuf>,
    /// The case files, all of `tests/compare` if none is named.
    cases: Vec<PathBuf>,
    /// Also play the long checks.
    #[arg(long)]
    long: bool,
    /// Show every step and its outcome.
    #[arg(long)]
    verbose: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Plays everything; gives the number of differences.
fn run(options: &Options) -> Result<usize, String> {
    let start = Instant::now();
    let mut clients = vec![options.peers.join("etcdctl")];
    clients.extend(options.etcdctl34.clone());
    let mut differences = 0;
    let mut steps_count = 0;
    for (index, client) in clients.iter().enumerate() {
        for case in cases(options)? {
            let steps = script::read(&case)?;
            steps_count += steps.len();
            let is_old = index > 0;
            differences += compare(options, &case, &steps, client, is_old)?;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{steps_count} steps, {differences} differences, {seconds:.1} s");
    Ok(differences)
}

fn cases(options: &Options) -> Result<Vec<PathBuf>, String> {
    if !options.cases.is_empty() {
        return Ok(options.cases.clone());
    }
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("compare");
    let entries = std::fs::read_dir(&directory).map_err(|error| error.to_string())?;
    let mut cases: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let is_long = |path: &PathBuf| path.to_string_lossy().contains("long");
    cases.retain(|path| {
        path.extension().is_some_and(|e| e == "txt") && (options.long || !is_long(path))
    });
    cases.sort();
    Ok(cases)
}

/// Plays one file on two fresh servers at the same time and shows where they differ.
fn compare(
    options: &Options,
    case: &Path,
    steps: &[Step],
    client: &Path,
    is_old: bool,
) -> Result<usize, String> {
    let start = Instant::now();
    let name = case.file_stem().unwrap_or_default().to_string_lossy();
    let directory = std::env::temp_dir().join(format!("compare-{}-{name}", std::process::id()));
    let etcd = options.peers.join("etcd");
    let (theirs, ours) = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| play("etcd", &etcd, ARGS, &directory, client, steps));
        let ours = play("ours", &options.ours, &options.ours_args, &directory, client, steps);
        (theirs.join().expect("the player does not panic"), ours)
    });
    let _ = std::fs::remove_dir_all(&directory);
    let (theirs, ours) = (theirs?, ours?);
    let mut table = Table::new();
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["where", "step", "what", "etcd", "ours"]);
    let mut differences = 0;
    for ((step, theirs), ours) in steps.iter().zip(&theirs).zip(&ours) {
        if options.verbose {
            println!("{}:{} {}\n{theirs:#?}", name, step.line, step.text);
        }
        let rows = differing(theirs, ours);
        differences += usize::from(!rows.is_empty());
        for (what, theirs, ours) in rows {
            let place = format!("{name}:{}\n{}", step.line, step.section);
            table.add_row([place, step.text.clone(), what.to_owned(), cut(theirs), cut(ours)]);
        }
    }
    if differences > 0 {
        println!("{table}");
    }
    let old = if is_old { " (etcdctl 3.4)" } else { "" };
    let played = steps.iter().filter(|step| !matches!(step.act, Act::Pause(_) | Act::Over(_)));
    println!(
        "{name}{old}: {} steps, {differences} differences, {:.1} s",
        played.count(),
        start.elapsed().as_secs_f64(),
    );
    Ok(differences)
}

fn play(
    name: &str,
    binary: &Path,
    args: &str,
    directory: &Path,
    client: &Path,
    steps: &[Step],
) -> Result<Vec<Outcome>, String> {
    let mut server = Server::start(name, binary, args, directory)?;
    // The version of etcd's store comes seconds late: waited for where it is shown.
    let shows = |step: &Step| ["endpoint status", "/Status"].iter().any(|w| step.text.contains(w));
    let shows_version = steps.iter().any(shows);
    let outcomes = Player::new(&mut server, client, shows_version)?.play(steps);
    Ok(outcomes)
}

fn differing<'a>(theirs: &'a Outcome, ours: &'a Outcome) -> Vec<(&'static str, &'a str, &'a str)> {
    let all = [
        ("stdout", &theirs.stdout, &ours.stdout),
        ("stderr", &theirs.stderr, &ours.stderr),
        ("exit", &theirs.exit, &ours.exit),
    ];
    let differs = |(what, theirs, ours): (&'static str, &'a String, &'a String)| {
        (theirs != ours).then_some((what, theirs.as_str(), ours.as_str()))
    };
    all.into_iter().filter_map(differs).collect()
}

fn cut(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

fn peers() -> PathBuf {
    if let Some(directory) = std::env::var_os("PEERS_DIR") {
        return Path::new(&directory).join("bin");
    }
    let home = std::env::var_os("HOME").unwrap_or_default();
    Path::new(&home).join(".cache/ringbolt-peers/bin")
}

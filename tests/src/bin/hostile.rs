//! `hostile`: attacks a server from outside while a quiet client puts, and tells what came back,
//! what the server grew by, and what the quiet client noticed.
//!
//! ```text
//!   cargo run --release -p tests --bin hostile -- --server target/release/ringbolt
//!   cargo run --release -p tests --bin hostile -- --server … rapid-reset hpack-bomb
//! ```
//! Exit code 0: every attack was held off and every quiet put answered; 1: not; 2: it could not be
//! tried.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use clap::Parser;
use comfy_table::Table;
use tests::hostile::quiet::{Quiet, Sight};
use tests::hostile::server::{Server, resident_bytes};
use tests::hostile::{Attack, attacks};

/// How long the quiet client is alone first.
const QUIET_TIME: Duration = Duration::from_secs(2);
/// How long the quiet client goes on after an attack.
const AFTER_TIME: Duration = Duration::from_millis(300);
/// No quiet put may take longer, whatever else the machine does.
const PUT_US_MAX: u64 = 2_000_000;

#[derive(Debug, Parser)]
#[command(about = "Attacks a server from outside while a quiet client puts")]
struct Options {
    /// The server.
    #[arg(long)]
    server: PathBuf,
    /// Flags for it.
    #[arg(long, allow_hyphen_values = true, default_value = "--io-engine=auto")]
    flags: String,
    /// Where it may put its data.
    #[arg(long)]
    directory: PathBuf,
    /// The attacks; all of them if none is named.
    attacks: Vec<String>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<bool, String> {
    ringbolt_io::process::raise_open_files_limit();
    let flags: Vec<String> = options.flags.split_whitespace().map(str::to_owned).collect();
    let mut server = Server::start(&options.server, &options.directory, &flags)?;
    let mut table = Table::new();
    table.set_header([
        "attack", "limit", "answer", "grew MiB", "puts", "refused", "p50 µs", "p99 µs", "slowest",
    ]);
    let quiet = Quiet::start(&server)?;
    sleep(QUIET_TIME);
    let alone = quiet.stop()?;
    table.add_row(row("(none)", "", "", 0, &alone));
    let mut failures: Vec<String> = alone.failure.into_iter().collect();
    let chosen = |attack: &Attack| {
        options.attacks.is_empty() || options.attacks.iter().any(|name| name == attack.name)
    };
    for attack in attacks().iter().filter(|attack| chosen(attack)) {
        let before = resident_bytes(server.id());
        let quiet = Quiet::start(&server)?;
        let outcome = (attack.run)(&server);
        // What an attack leaves behind may be felt after it.
        sleep(AFTER_TIME);
        let sight = quiet.stop()?;
        let grown = sight.resident_bytes_max.saturating_sub(before);
        let answer = outcome.as_ref().unwrap_or_else(|error| error);
        table.add_row(row(attack.name, attack.limit, answer, grown, &sight));
        println!("{}: {answer}", attack.name);
        failures.extend(judge(attack, &outcome, grown, &sight));
        if !server.is_alive() {
            failures.push(format!("{}: the server has ended:\n{}", attack.name, server.log()));
            break;
        }
    }
    println!("{table}");
    for failure in &failures {
        println!("FAILED {failure}");
    }
    Ok(failures.is_empty())
}

/// What was not as it must be.
fn judge(
    attack: &Attack,
    outcome: &Result<String, String>,
    grown: u64,
    sight: &Sight,
) -> Vec<String> {
    let name = attack.name;
    let mut failures = Vec::new();
    if let Err(error) = outcome {
        failures.push(format!("{name}: {error}"));
    }
    if grown > attack.growth_bytes_max {
        let (grown, most) = (grown >> 20, attack.growth_bytes_max >> 20);
        failures.push(format!("{name}: the server grew by {grown} MiB, {most} are allowed"));
    }
    if sight.turned_away > 0 && !attack.fills_budget {
        failures.push(format!("{name}: {} quiet puts were turned away", sight.turned_away));
    }
    if let Some(failure) = &sight.failure {
        failures.push(format!("{name}: the quiet client failed: {failure}"));
    }
    let slowest = sight.times_us.last().copied().unwrap_or(0);
    if slowest > PUT_US_MAX {
        failures.push(format!("{name}: a quiet put took {slowest} µs"));
    }
    failures
}

fn row(name: &str, limit: &str, answer: &str, grown: u64, sight: &Sight) -> Vec<String> {
    let slowest = sight.times_us.last().copied().unwrap_or(0);
    vec![
        name.to_owned(),
        limit.to_owned(),
        answer.chars().take(90).collect(),
        (grown >> 20).to_string(),
        sight.times_us.len().to_string(),
        sight.turned_away.to_string(),
        sight.percentile(0.5).to_string(),
        sight.percentile(0.99).to_string(),
        slowest.to_string(),
    ]
}

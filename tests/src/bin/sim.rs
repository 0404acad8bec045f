//! `sim`: seeded runs of the whole engine in a simulated world, and crashes at every operation.
//!
//! ```text
//! sim --seed 7                     one run
//! sim --seeds 1..200 --minutes 3   many runs, as many as begin within three minutes
//! sim --seed 7 --twice             and again, to see the same trace
//! sim --seed 7 --faults power,slow only with these kinds of faults
//! sim --hours 500                  runs until so many simulated hours have passed
//! sim --crash-points 20000         a crash at every operation, until there were so many
//! sim --seed 12 --crash-at 31 --kind power --mode safe   one crash point again
//! ```

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use ringbolt_io::sim::CrashKind;
use tests::sim::faults::{Coverage, FaultSet};
use tests::sim::pace::Pace;
use tests::sim::points::{Point, crash_at};
use tests::sim::replica::Ours;
use tests::sim::run::{Options, Report, simulate};
use tests::sim::shrink::shrink;
use tests::sim::store::Mode;

/// The worlds live on what they allocate.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What replays a run, before its arguments.
const COMMAND: &str = "cargo run -p tests --release --bin sim --";

/// Simulates the engine under crashes and faults, and judges what it promises.
#[derive(Parser, Clone)]
struct Arguments {
    /// One seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Seeds from A up to and without B.
    #[arg(long, value_parser = range)]
    seeds: Option<(u64, u64)>,
    /// Begins no run after so many minutes.
    #[arg(long)]
    minutes: Option<u64>,
    /// Virtual seconds of crashing and restarting in each run.
    #[arg(long, default_value_t = 30)]
    span_s: u64,
    /// Runs each seed again and compares the traces.
    #[arg(long)]
    twice: bool,
    /// Begins no run after so many simulated hours, and shows how far it is.
    #[arg(long)]
    hours: Option<u64>,
    /// Kinds of faults, with commas, or `none`; without it each seed draws its own.
    #[arg(long, value_parser = FaultSet::parse)]
    faults: Option<FaultSet>,
    /// Only runs of this pace, dense or sparse; without it each seed draws its own. A sparse run
    /// has few requests in 120 times the span.
    #[arg(long, value_parser = pace)]
    pace: Option<Pace>,
    /// Reports a failure as it is, without looking for a smaller run that fails.
    #[arg(long)]
    no_shrink: bool,
    /// Enumerates crashes at every operation until there were so many.
    #[arg(long)]
    crash_points: Option<u64>,
    /// With a seed: crashes at this operation only.
    #[arg(long)]
    crash_at: Option<u64>,
    /// With --crash-at: process or power.
    #[arg(long, default_value = "power")]
    kind: String,
    /// Only this mode: safe, no-fsync or memory.
    #[arg(long)]
    mode: Option<String>,
    /// Worlds at once; each has a thread of its own.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Goes on after a failure and counts them.
    #[arg(long)]
    keep_going: bool,
}

fn pace(text: &str) -> Result<Pace, String> {
    match text {
        "dense" => Ok(Pace::Dense),
        "sparse" => Ok(Pace::Sparse),
        _ => Err("dense or sparse".into()),
    }
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let (from, to) = text.split_once("..").ok_or("A..B")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    Ok((number(from)?, number(to)?))
}

/// What all threads add up.
#[derive(Default)]
struct Total {
    runs: AtomicU64,
    failures: AtomicU64,
    stop: AtomicBool,
    sum: Mutex<Report>,
}

impl Total {
    fn add(&self, report: &Report, replay: &str, keep_going: bool) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let mut sum = self.sum.lock().unwrap_or_else(PoisonError::into_inner);
        sum.span += report.span;
        sum.ops += report.ops;
        sum.requests += report.requests;
        sum.events += report.events;
        sum.checks += report.checks;
        sum.crashes += report.crashes;
        sum.coverage.add(&report.coverage);
        sum.trace_hash ^= report.trace_hash;
        if let Some(failure) = &report.failure {
            self.failures.fetch_add(1, Ordering::Relaxed);
            println!("FAILED: {failure}\nreplay: {COMMAND} {replay}\n");
            self.stop.store(!keep_going, Ordering::Relaxed);
        }
    }
}

impl Total {
    /// Whole simulated hours so far.
    fn hours(&self) -> u64 {
        self.sum.lock().unwrap_or_else(PoisonError::into_inner).span.as_secs() / 3600
    }
}

/// A bar on a terminal, elsewhere a line now and then, until the hours have passed.
fn show_progress(total: &Total, hours: u64) {
    let bar = ProgressBar::new(hours * 3600);
    let style = "{bar:40} {msg} simulated hours, {elapsed} passed, {eta} left";
    bar.set_style(ProgressStyle::with_template(style).unwrap_or(ProgressStyle::default_bar()));
    let mut waits = 0u64;
    loop {
        let (runs, span) = {
            let sum = total.sum.lock().unwrap_or_else(PoisonError::into_inner);
            (total.runs.load(Ordering::Relaxed), sum.span)
        };
        let tenths = span.as_secs() / 360;
        if span.as_secs() >= hours * 3600 || total.stop.load(Ordering::Relaxed) {
            bar.finish_and_clear();
            return;
        }
        bar.set_position(span.as_secs());
        bar.set_message(format!("{}.{} of {hours}", tenths / 10, tenths % 10));
        if bar.is_hidden() && waits.is_multiple_of(60) {
            println!("{}.{} of {hours} simulated hours, {runs} runs", tenths / 10, tenths % 10);
        }
        waits += 1;
        thread::sleep(Duration::from_secs(1));
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let begin = Instant::now();
    let total = Total::default();
    let (from, to) = match (arguments.seed, arguments.seeds) {
        (Some(seed), _) => (seed, seed + 1),
        (None, Some(seeds)) => seeds,
        (None, None) if arguments.crash_points.is_some() || arguments.hours.is_some() => {
            (1, u64::MAX)
        }
        (None, None) => (1, 2),
    };
    let end = arguments.minutes.map(|minutes| begin + Duration::from_secs(60 * minutes));
    let next = AtomicU64::new(from);
    thread::scope(|scope| {
        if let Some(hours) = arguments.hours {
            let total = &total;
            scope.spawn(move || show_progress(total, hours));
        }
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(|| {
                while !total.stop.load(Ordering::Relaxed) {
                    let late = end.is_some_and(|end| Instant::now() >= end);
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let done = arguments.hours.is_some_and(|hours| total.hours() >= hours);
                    if late || done || seed >= to || !one_seed(seed, &arguments, &total) {
                        return;
                    }
                }
            });
        }
    });
    report(&total, begin.elapsed());
    match total.failures.load(Ordering::Relaxed) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// False when there is no need for more seeds.
fn one_seed(seed: u64, arguments: &Arguments, total: &Total) -> bool {
    match (arguments.crash_at, arguments.crash_points) {
        (Some(at), _) => {
            let kind =
                if arguments.kind == "power" { CrashKind::Power } else { CrashKind::Process };
            let mode = modes(arguments).map_or(Mode::Safe, |modes| modes[0]);
            point(Point { seed, at, kind, mode }, arguments, total);
            true
        }
        (None, Some(wanted)) => enumerate(seed, wanted, arguments, total),
        (None, None) => {
            random(seed, arguments, total);
            true
        }
    }
}

fn modes(arguments: &Arguments) -> Option<Vec<Mode>> {
    let mode = match arguments.mode.as_deref()? {
        "no-fsync" => Mode::NoFsync,
        "memory" => Mode::Memory,
        _ => Mode::Safe,
    };
    Some(vec![mode])
}

fn random(seed: u64, arguments: &Arguments, total: &Total) {
    let options = Options {
        seed,
        span: Duration::from_secs(arguments.span_s),
        modes: modes(arguments),
        faults: arguments.faults,
        pace: arguments.pace,
    };
    let mut report = simulate::<Ours>(&options);
    if arguments.twice && report.failure.is_none() {
        let again = simulate::<Ours>(&options).trace_hash;
        if again != report.trace_hash {
            let first = report.trace_hash;
            report.failure = Some(format!("two runs, two traces: {first:016x}, {again:016x}"));
        }
    }
    let mut replay = replay_of(&options);
    if report.failure.is_some() && !arguments.no_shrink && !arguments.twice {
        let small = shrink(&options, |smaller| simulate::<Ours>(smaller).failure.is_some());
        let failure = simulate::<Ours>(&small).failure.unwrap_or_default();
        replay = format!("{replay}\nshrunk: {} {}\n  {failure}", COMMAND, replay_of(&small));
    }
    total.add(&report, &replay, arguments.keep_going);
    if arguments.seed.is_some() {
        println!("seed {seed}: trace {:016x}, faults {}", report.trace_hash, options.faults());
    }
}

/// The arguments of a run.
fn replay_of(options: &Options) -> String {
    let mode = match options.modes.as_ref().and_then(|modes| modes.first()) {
        Some(mode) => format!(" --mode {}", name_of(*mode)),
        None => String::new(),
    };
    let faults = options.faults.map(|faults| format!(" --faults {faults}")).unwrap_or_default();
    let pace = match options.pace {
        Some(Pace::Dense) => " --pace dense",
        Some(Pace::Sparse) => " --pace sparse",
        None => "",
    };
    format!("--seed {} --span-s {}{mode}{faults}{pace}", options.seed, options.span.as_secs())
}

fn name_of(mode: Mode) -> &'static str {
    match mode {
        Mode::Safe => "safe",
        Mode::NoFsync => "no-fsync",
        Mode::Memory => "memory",
    }
}

/// Every crash point of one seed's life.
fn enumerate(seed: u64, wanted: u64, arguments: &Arguments, total: &Total) -> bool {
    let all = [Mode::Safe, Mode::NoFsync, Mode::Safe, Mode::NoFsync, Mode::Safe, Mode::Memory];
    let drawn = all[usize::try_from(seed % 6).unwrap_or(0)];
    let mode = modes(arguments).map_or(drawn, |modes| modes[0]);
    for at in 1.. {
        for kind in [CrashKind::Power, CrashKind::Process] {
            if total.stop.load(Ordering::Relaxed) || total.runs.load(Ordering::Relaxed) >= wanted {
                return false;
            }
            if !point(Point { seed, at, kind, mode }, arguments, total) {
                return true;
            }
        }
    }
    true
}

/// False when the life ended before the point.
fn point(point: Point, arguments: &Arguments, total: &Total) -> bool {
    let (report, reached) = crash_at::<Ours>(point);
    let Point { seed, at, kind, mode } = point;
    let kind = if kind == CrashKind::Power { "power" } else { "process" };
    let mode = name_of(mode);
    let replay = format!("--seed {seed} --crash-at {at} --kind {kind} --mode {mode}");
    total.add(&report, &replay, arguments.keep_going);
    reached && report.failure.is_none()
}

fn report(total: &Total, took: Duration) {
    let sum = total.sum.lock().unwrap_or_else(PoisonError::into_inner);
    let runs = total.runs.load(Ordering::Relaxed);
    let failures = total.failures.load(Ordering::Relaxed);
    let seconds = took.as_secs_f64();
    println!(
        "{runs} runs ({failures} failed) in {seconds:.1} s: {:.1} virtual minutes, {} crashes, \
         {} operations, {} requests, {} answers judged, {} watch events",
        sum.span.as_secs_f64() / 60.0,
        sum.crashes,
        sum.ops,
        sum.requests,
        sum.checks,
        sum.events,
    );
    let hours = sum.span.as_secs_f64() / 3600.0;
    println!(
        "{:.1} runs/s, {:.2} virtual hours per minute, trace {:016x}",
        f64::from(u32::try_from(runs).unwrap_or(u32::MAX)) / seconds,
        hours / (seconds / 60.0),
        sum.trace_hash
    );
    if sum.coverage != Coverage::default() {
        print!("{}", sum.coverage);
    }
}

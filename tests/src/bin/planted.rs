//! `planted`: plants each known mistake in the engine and looks for it with the simulation.
//!
//! ```text
//! planted                            all of them, in at most 200 seeds each
//! planted --only 3 --from 17         the fourth alone, from this seed on
//! ```
//!
//! The same runs and checkers as `sim`; what they find in the engine without a mistake is nothing.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use ringbolt_io::planted::{NAMES, Planted, plant};
use tests::sim::replica::Ours;
use tests::sim::run::{Options, simulate};

/// The worlds live on what they allocate.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Letters of what a checker said that the table shows.
const SAID_MAX: usize = 110;

/// Looks for each planted mistake and shows which checker found it, and after how many seeds.
#[derive(Parser)]
struct Arguments {
    /// Seeds for each mistake, at most.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Virtual seconds of crashing and restarting in each run.
    #[arg(long, default_value_t = 5)]
    span_s: u64,
    /// Only the mistake of this number, from 0.
    #[arg(long)]
    only: Option<usize>,
    /// Mistakes looked for at once.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// A mistake that was found.
#[derive(Clone)]
struct Found {
    seeds: u64,
    took: Duration,
    said: String,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let chosen = |at: &usize| arguments.only.is_none_or(|only| only == *at);
    let chosen: Vec<usize> = (0..NAMES.len()).filter(chosen).collect();
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(vec![None; NAMES.len()]);
    thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(|| {
                while let Some(at) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = look_for(NAMES[*at].0, &arguments);
                    rows.lock().unwrap_or_else(PoisonError::into_inner)[*at] = found;
                }
            });
        }
    });
    let rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut table = comfy_table::Table::new();
    table.set_header(["planted", "seeds", "seconds", "what the checker said"]);
    for at in &chosen {
        let name = NAMES[*at].1;
        match &rows[*at] {
            Some(Found { seeds, took, said }) => {
                let seconds = format!("{:.1}", took.as_secs_f64());
                table.add_row([name, &seeds.to_string(), &seconds, said])
            }
            None => table.add_row([name, "-", "-", "NOT FOUND"]),
        };
    }
    println!("{table}");
    match chosen.iter().all(|at| rows[*at].is_some()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Runs one seed after the other with the mistake until something is wrong.
fn look_for(mistake: Planted, arguments: &Arguments) -> Option<Found> {
    assert!(plant(Some(mistake)), "this program is built with the feature");
    let (begin, from) = (Instant::now(), arguments.from);
    let found = (from..from + arguments.seeds).find_map(|seed| {
        let span = Duration::from_secs(arguments.span_s);
        let options = Options { seed, span, modes: None, faults: None, pace: None };
        let failure = simulate::<Ours>(&options).failure?;
        let line = failure.lines().next().unwrap_or_default();
        let said = line.chars().take(SAID_MAX).collect();
        Some(Found { seeds: seed - from + 1, took: begin.elapsed(), said })
    });
    plant(None);
    found
}

//! `corrupt`: random damage to the files of a stopped member, and what a start says of it.
//!
//! ```text
//! corrupt --count 100000            so many damages, from seed 1 on
//! corrupt --seed 17 --case 3        one of them again
//! ```

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use clap::Parser;
use tests::corrupt::base::Base;
use tests::corrupt::damage::Place;
use tests::corrupt::judge::{Verdict, judge, way_out};
use tests::corrupt::rng::Rng;

/// Damages done to the files of one life.
const CASES_PER_BASE: u64 = 100;
/// One in so many refused logs is also given up knowingly.
const WAYS_OUT_ONE_IN: u64 = 10;

/// Damages files of a stopped member and judges what a start says of it.
#[derive(Parser, Clone)]
struct Arguments {
    /// Damages in all.
    #[arg(long, default_value_t = 1000)]
    count: u64,
    /// The first seed, or with --case the only one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// This damage of the seed only.
    #[arg(long)]
    case: Option<u64>,
    /// Worlds at once; each has a thread of its own.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Goes on after a failure and counts them.
    #[arg(long)]
    keep_going: bool,
}

#[derive(Default)]
struct Total {
    stop: AtomicBool,
    failures: AtomicU64,
    counts: Mutex<BTreeMap<String, u64>>,
}

impl Total {
    fn count(&self, what: String) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(what).or_default() += 1;
    }

    fn fail(&self, seed: u64, case: u64, text: &str, keep_going: bool) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.stop.store(!keep_going, Ordering::Relaxed);
        println!(
            "FAILED: {text}\nreplay: cargo run -p tests --release --bin corrupt -- --seed {seed} \
             --case {case}\n"
        );
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let begin = Instant::now();
    let total = Total::default();
    let next = AtomicU64::new(arguments.seed);
    let end = match arguments.case {
        Some(_) => arguments.seed + 1,
        None => arguments.seed + arguments.count.div_ceil(CASES_PER_BASE),
    };
    thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || total.stop.load(Ordering::Relaxed) {
                        return;
                    }
                    one_base(seed, &arguments, &total);
                }
            });
        }
    });
    let counts = total.counts.lock().unwrap_or_else(PoisonError::into_inner);
    let done = |what: &str| what.starts_with("start") && !what.starts_with("start Nothing");
    let sum: u64 = counts.iter().filter(|(what, _)| done(what)).map(|(_, count)| count).sum();
    for (what, count) in counts.iter() {
        println!("{count:>8}  {what}");
    }
    println!("{sum} damages in {:.0?}", begin.elapsed());
    if total.failures.load(Ordering::Relaxed) > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn one_base(seed: u64, arguments: &Arguments, total: &Total) {
    let base = Base::new(seed);
    let cases = match arguments.case {
        Some(case) => case..case + 1,
        None => 0..CASES_PER_BASE,
    };
    for case in cases {
        let mut rng = Rng::new(seed << 20 | case);
        let place = Place::draw(&base.files, &mut rng);
        let what = kind_of(&place);
        if arguments.case.is_some() {
            println!("{:?}, {place}", base.end);
        }
        match judge(&base, &place) {
            Ok(verdict) => {
                total.count(format!("start {verdict:?}: {what}"));
                if verdict == Verdict::Refused && rng.below(WAYS_OUT_ONE_IN) == 0 {
                    match way_out(&base, &place) {
                        Ok(way) => total.count(format!("loss accepted, {way:?}: {what}")),
                        Err(text) => {
                            let text = format!("{place}: {text}");
                            total.fail(seed, case, &text, arguments.keep_going);
                        }
                    }
                }
            }
            Err(text) => {
                let text = format!("{:?}, {place}: {text}", base.end);
                total.fail(seed, case, &text, arguments.keep_going);
            }
        }
        if total.stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Which file, and what was done.
fn kind_of(place: &Place) -> String {
    let file = match place.file.rsplit('.').next() {
        Some("wal") => "segment",
        Some("checkpoint") => "checkpoint",
        Some("mark") => "mark",
        _ => "leftover",
    };
    let damage = format!("{:?}", place.damage);
    let damage = damage.split([' ', '{']).next().unwrap_or_default().to_owned();
    format!("{file} {damage}")
}

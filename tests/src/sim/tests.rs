//! The checkers under test: a right store passes, each wrong one is caught.

use std::time::Duration;

use ringbolt_io::sim::CrashKind;

use super::faults::FaultSet;
use super::pace::Pace;
use super::plain::{Plain, WRONGS};

use super::points::{Point, crash_at};
use super::replica::Ours;
use super::run::{Options, Report, simulate};
use super::store::Mode;

/// Everything but the faults of a disk: a plain store keeps nothing there.
fn faults() -> FaultSet {
    let names = "kill,power,crash-at-operation,crash-in-recovery,clock-jump,wall-jump,drift,pause,\
                 cancelled-calls,half-closed-streams,slow-readers,reconnect-storm";
    FaultSet::parse(names).expect("names of faults")
}

fn options(seed: u64, modes: &[Mode]) -> Options {
    let span = Duration::from_secs(3);
    Options {
        seed,
        span,
        modes: Some(modes.to_vec()),
        faults: Some(faults()),
        pace: Some(Pace::Dense),
    }
}

/// The right store passes in every mode, and a seed repeats exactly.
#[test]
fn a_right_store_passes_and_repeats() {
    let mut whole = Report::default();
    for seed in 0..8 {
        let other = if seed % 2 == 0 { Mode::NoFsync } else { Mode::Memory };
        let options = options(seed, &[Mode::Safe, other]);
        let report = simulate::<Plain<0>>(&options);
        assert_eq!(report.failure, None, "seed {seed}");
        assert_eq!(report.trace_hash, simulate::<Plain<0>>(&options).trace_hash, "seed {seed}");
        whole.checks += report.checks;
        whole.events += report.events;
        whole.crashes += report.crashes;
    }
    assert!(whole.checks > 3_000 && whole.events > 500 && whole.crashes > 30, "{whole:?}");
}

fn caught<const WRONG: usize>() {
    let modes = [Mode::Safe, Mode::NoFsync];
    let found = (0..60).find_map(|seed| simulate::<Plain<WRONG>>(&options(seed, &modes)).failure);
    let wrong = WRONGS[WRONG];
    let text = found.unwrap_or_else(|| panic!("{wrong:?} was never caught"));
    assert!(!text.starts_with("panic"), "{wrong:?} was caught by a panic only: {text}");
    println!("{wrong:?}: {}", text.lines().next().unwrap_or_default());
}

macro_rules! catches {
    ($($name:ident $number:literal,)*) => {
        $(
            /// The store that is wrong in this way is caught.
            #[test]
            fn $name() {
                caught::<$number>();
            }
        )*
        /// Every way to be wrong has a test.
        #[test]
        fn every_wrong_store_has_a_test() {
            let numbers = [0usize, $($number),*];
            assert!(numbers.iter().copied().eq(0..WRONGS.len()));
        }
    };
}

catches! {
    catches_lost_acknowledged_writes 1,
    catches_stale_reads 2,
    catches_wrong_counts 3,
    catches_torn_transactions 4,
    catches_double_applies 5,
    catches_missing_previous_values 6,
    catches_watch_gaps 7,
    catches_watch_repeats 8,
    catches_split_revisions 9,
    catches_wrong_previous_values_of_watches 10,
    catches_silence_after_compaction 11,
    catches_progress_that_runs_ahead 12,
    catches_short_leases 13,
    catches_endless_leases 14,
    catches_lost_leases 15,
    catches_risen_leases 16,
    catches_missing_fences 17,
    catches_forgotten_compactions 18,
    catches_refusals_without_reason 19,
    catches_wrong_hashes 20,
    catches_missing_keys_of_leases 21,
    catches_silent_watches 22,
}

/// The enumeration comes to an end, and a store that loses writes is caught by it.
#[test]
fn enumeration_ends_and_catches() {
    let point = |at| Point { seed: 3, at, kind: CrashKind::Power, mode: Mode::Safe };
    let mut at = 1;
    while let (report, true) = crash_at::<Plain<0>>(point(at)) {
        assert_eq!(report.failure, None, "point {at}");
        at += 1;
    }
    assert!(at > 2);
    let lost = (1..at).any(|at| crash_at::<Plain<1>>(point(at)).0.failure.is_some());
    assert!(lost);
}

/// The engine's own store gets through a short run, twice the same, and through some crash points.
#[test]
fn the_engine_passes_a_short_run() {
    for seed in 1..3 {
        let options = Options {
            seed,
            span: Duration::from_secs(2),
            modes: Some(vec![Mode::Safe, Mode::NoFsync]),
            faults: None,
            pace: None,
        };
        let report = simulate::<Ours>(&options);
        assert_eq!(report.failure, None, "seed {seed}");
        assert_eq!(report.trace_hash, simulate::<Ours>(&options).trace_hash, "seed {seed}");
    }
    for at in (1..200).step_by(20) {
        let point = Point { seed: 2, at, kind: CrashKind::Power, mode: Mode::Safe };
        let (report, _) = crash_at::<Ours>(point);
        assert_eq!(report.failure, None, "{point:?}");
    }
}

//! A crash at every operation: n = 1, 2, 3 … until the life gets through without one.
//!
//! The life is short: open, a handful of requests, close. After each crash the store is opened
//! again, judged, used once more, closed, opened again and judged again.

use std::time::Duration;

use ringbolt_io::sim::CrashKind;

use super::faults::FaultSet;
use super::pace::Pace;
use super::run::{Options, Report, Run, guarded};
use super::site::{Load, Stage};
use super::store::{Mode, Store};
use super::workload::Mix;

/// One point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Seed of the life.
    pub seed: u64,
    /// The operation at which it ends, from 1.
    pub at: u64,
    /// How it ends.
    pub kind: CrashKind,
    /// Mode of its one keyspace.
    pub mode: Mode,
}

/// Crashes at one point. The flag is false when the life was over before it came to the point.
#[must_use]
pub fn crash_at<S: Store>(point: Point) -> (Report, bool) {
    let mut reached = true;
    let report = guarded(|| {
        let load = Load {
            clients: 2,
            watchers: 1,
            think_us: 1_000,
            requests: Some(14),
            mix: Mix::SMALL,
            cancels: true,
            slow_readers: false,
            mute_watchers: 0,
        };
        let options = Options {
            seed: point.seed,
            span: Duration::ZERO,
            modes: Some(vec![point.mode]),
            faults: Some(FaultSet::NONE),
            pace: Some(Pace::Dense),
        };
        let mut run = Run::<S>::new(&options, Some(load));
        let outcome = through(&mut run, point, &mut reached);
        let outcome = outcome.and_then(|()| run.failure().map_or(Ok(()), Err));
        run.report(outcome)
    });
    (report, reached)
}

fn through<S: Store>(run: &mut Run<S>, point: Point, reached: &mut bool) -> Result<(), String> {
    // A first life that ends well, so that the second one has something to recover; every other
    // seed goes without it, so that the creation of a store is covered too.
    if point.seed.is_multiple_of(2) {
        run.start();
        run.run_to(&[Stage::Idle])?;
        run.end(CrashKind::Process);
    }
    run.start();
    run.world.crash_after_ops(run.machine, point.at, point.kind);
    run.run_to(&[Stage::Idle])?;
    if run.world.is_running(run.machine) {
        run.sites.iter().for_each(|site| site.stop());
        run.run_to(&[Stage::Closed])?;
    }
    *reached = !run.world.is_running(run.machine);
    run.no_refusal()?;
    run.end(point.kind);
    run.start();
    run.run_to(&[Stage::Serving, Stage::Idle])?;
    run.no_refusal()?;
    run.world.run_for(Duration::from_millis(20));
    run.close()?;
    run.no_refusal()?;
    run.end(CrashKind::Power);
    run.start();
    run.close()?;
    run.no_refusal()
}

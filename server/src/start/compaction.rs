//! Automatic compaction. Source: etcd 3.7, rule 12.11 of the contract.
//!
//! - `periodic`: the revision is noted every tenth of min(period, 1 h). When a period has passed
//!   since the last compaction (the first time: since the start), history up to the revision noted
//!   a period ago goes; from then on every min(period, 1 h).
//! - `revision`: every five minutes all but the last N revisions go.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use ringbolt_engine::replica::Replica;
use ringbolt_engine::state::Command;
use ringbolt_engine::{Error, Reason};
use ringbolt_io::{Io, MonoTime};
use ringbolt_proto::etcdserverpb::CompactionRequest;

use crate::config::number::GoDuration;
use crate::log;

const HOUR: Duration = Duration::from_secs(3600);
const REVISION_INTERVAL: Duration = Duration::from_secs(300);
const NOTES_PER_INTERVAL: u32 = 10;
/// Revisions noted at most: a year of periodic retention.
const NOTES_MAX: usize = 100_000;

/// When to compact to which revision. Pure: time and revision are arguments.
#[derive(Debug)]
pub enum Schedule {
    /// By time.
    Periodic {
        /// How long history is kept.
        period: Duration,
        /// Revisions noted, oldest first.
        notes: VecDeque<i64>,
        /// The last compaction, or the start.
        last: MonoTime,
        /// Time until the next compaction, counted from `last`.
        wait: Duration,
        /// The revision of the last compaction.
        done: i64,
    },
    /// By count.
    Revision {
        /// How many revisions are kept.
        kept: i64,
        /// The revision of the last compaction.
        done: i64,
    },
}

impl Schedule {
    /// The schedule of a mode and its retention (nanoseconds or revisions); none when it is 0.
    #[must_use]
    pub fn new(mode: &str, retention: i64, now: MonoTime) -> Option<Schedule> {
        if retention <= 0 {
            return None;
        }
        Some(match mode {
            "revision" => Schedule::Revision { kept: retention, done: 0 },
            _ => {
                let period = GoDuration(retention).to_std();
                let notes = VecDeque::new();
                Schedule::Periodic { period, notes, last: now, wait: period, done: 0 }
            }
        })
    }

    /// Time between two looks.
    #[must_use]
    pub fn interval(&self) -> Duration {
        match self {
            Schedule::Periodic { period, .. } => (*period).min(HOUR) / NOTES_PER_INTERVAL,
            Schedule::Revision { .. } => REVISION_INTERVAL,
        }
    }

    /// Notes the revision as it is when an interval begins.
    pub fn note(&mut self, revision: i64) {
        let interval = self.interval();
        if let Schedule::Periodic { period, notes, .. } = self {
            notes.push_back(revision);
            let kept = period.as_nanos() / interval.as_nanos().max(1) + 1;
            let kept = usize::try_from(kept).unwrap_or(NOTES_MAX).min(NOTES_MAX);
            while notes.len() > kept {
                notes.pop_front();
            }
        }
    }

    /// The revision to compact to now, if any.
    #[must_use]
    pub fn due(&self, now: MonoTime, revision: i64) -> Option<i64> {
        match self {
            Schedule::Periodic { notes, last, wait, done, .. } => {
                let target = notes.front().copied().filter(|target| target != done)?;
                (now.since(*last) >= *wait).then_some(target)
            }
            Schedule::Revision { kept, done } => {
                let target = revision - kept;
                (target > 0 && target != *done).then_some(target)
            }
        }
    }

    /// History up to `revision` is gone.
    pub fn finished(&mut self, now: MonoTime, revision: i64) {
        match self {
            Schedule::Periodic { period, last, wait, done, .. } => {
                *last = now;
                *wait = (*period).min(HOUR);
                *done = revision;
            }
            Schedule::Revision { done, .. } => *done = revision,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Schedule::Periodic { .. } => "periodic",
            Schedule::Revision { .. } => "revision",
        }
    }

    fn retention(&self) -> (&'static str, serde_json::Value) {
        match self {
            Schedule::Periodic { period, .. } => {
                ("compact-period", GoDuration::of(*period).to_string().into())
            }
            Schedule::Revision { kept, .. } => ("revision-compaction-retention", (*kept).into()),
        }
    }
}

/// Compacts by the schedule, for ever. Only the leader does.
pub async fn run(io: Io, replica: Rc<Replica>, mut schedule: Schedule) {
    let revision = || replica.state().mvcc.revision().0;
    loop {
        schedule.note(revision());
        io.sleep(schedule.interval()).await;
        if !replica.status().leads {
            continue;
        }
        let Some(target) = schedule.due(io.now(), revision()) else { continue };
        let kind = schedule.kind();
        let fields = || vec![("revision", target.into()), schedule.retention()];
        log::info(&format!("starting auto {kind} compaction"), fields());
        let began = io.now();
        let request = CompactionRequest { revision: target, physical: false };
        // Receipt: the compaction is applied.
        let outcome = replica.propose(Command::Compact(request)).await;
        let took = ("took", GoDuration::of(io.now().since(began)).to_string().into());
        match outcome {
            Ok(_) | Err(Error::Refuse(Reason::Compacted)) => {
                let fields = [fields(), vec![took]].concat();
                log::info(&format!("completed auto {kind} compaction"), fields);
                schedule.finished(io.now(), target);
            }
            Err(error) => {
                let text = crate::error::status(&error).message.into_owned();
                let fields = [fields(), vec![("error", text.into())]].concat();
                log::warn(&format!("failed auto {kind} compaction"), fields);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000_000;

    /// Runs a schedule for some intervals, one revision written in each, and notes (minute,
    /// target) of every compaction.
    fn play(mut schedule: Schedule, intervals: u64) -> Vec<(u64, i64)> {
        let mut compactions = Vec::new();
        let mut revision = 1;
        let mut now = MonoTime(0);
        for _ in 0..intervals {
            schedule.note(revision);
            now = now + schedule.interval();
            revision += 1;
            if let Some(target) = schedule.due(now, revision) {
                compactions.push((now.0 / MINUTE, target));
                schedule.finished(now, target);
            }
        }
        compactions
    }

    /// The first compaction comes after a whole period, the others every hour.
    #[test]
    fn periodic() {
        let long = Schedule::new("periodic", 3 * 3_600_000_000_000, MonoTime(0)).expect("on");
        assert_eq!(long.interval(), Duration::from_secs(360));
        let compactions = play(long, 52);
        assert_eq!(compactions, [(180, 1), (240, 10), (300, 20)]);
        let short = Schedule::new("periodic", 600_000_000_000, MonoTime(0)).expect("on");
        assert_eq!(short.interval(), Duration::from_secs(60));
        assert_eq!(play(short, 30), [(10, 1), (20, 10), (30, 20)]);
    }

    /// Nothing goes before there is more than is kept, and nothing twice.
    #[test]
    fn by_revision() {
        let schedule = Schedule::new("revision", 3, MonoTime(0)).expect("on");
        assert_eq!(play(schedule, 5), [(15, 1), (20, 2), (25, 3)]);
        let mut schedule = Schedule::new("revision", 3, MonoTime(0)).expect("on");
        assert_eq!(schedule.due(MonoTime(0), 10), Some(7));
        schedule.finished(MonoTime(0), 7);
        assert_eq!(schedule.due(MonoTime(0), 10), None);
        assert!(Schedule::new("periodic", 0, MonoTime(0)).is_none());
    }
}

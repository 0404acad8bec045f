//! What a store shows when it is opened, judged in two steps.
//!
//! ```text
//! open ─► what the log had (`stored`) ─► fence, if history may be shorter ─► serving (`recovered`)
//! ```
//!
//! - What was shown to anybody and is older than the mode may lose is there, at its revision, with
//!   the same events.
//! - What is missing is a tail: everything before it is there.
//! - What nobody was told about and is there all the same follows in the order of the revisions the
//!   store gave it; each belongs to one unanswered request (or the end of a lease), whole and once.
//! - Where something shown is missing, the revision jumps above all that was shown, and the
//!   compacted revision with it. Where nothing can be missing, nothing jumps.

use ringbolt_io::MonoTime;
use ringbolt_proto::mvccpb::event::EventType;
use ringbolt_proto::mvccpb::{Event, KeyValue};

use super::oracle::{Oracle, Sight, Verdict};
use super::store::Mode;

/// What a store found when it was opened, before it did anything of its own.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// Itself.
    pub sight: Sight,
    /// Events from its compacted revision on.
    pub events: Vec<(i64, Vec<Event>)>,
    /// Every live key.
    pub state: Vec<KeyValue>,
}

/// What a store shows when it begins to serve.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// Itself.
    pub sight: Sight,
    /// When it was asked to open.
    pub asked_at: MonoTime,
    /// Every live key.
    pub state: Vec<KeyValue>,
    /// Every lease.
    pub leases: Vec<(i64, i64)>,
}

/// How the life before ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// There was none.
    Fresh,
    /// In good order.
    Closed,
    /// kill -9.
    Killed,
    /// Loss of power.
    PowerLost,
}

/// Whether the revision may or must jump before the store serves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fence {
    allowed: bool,
    required: bool,
}

impl Oracle {
    /// The store shows what it found. The life before ended in this way, at `ended` of its clock.
    ///
    /// # Errors
    /// What cannot be.
    pub fn stored(&mut self, shown: &Stored, before: Ending, ended: MonoTime) -> Verdict {
        // What was shown before the crash has its owners; only the rest may have come after.
        self.settle()?;
        let lossless = Oracle::is_lossless(self.mode, before);
        self.fence.allowed |= !lossless;
        if self.is_fenced(&shown.sight) {
            // A life before this one fenced and died before it served.
            self.jump(&shown.sight)?;
        } else if lossless {
            self.extend(shown, self.model.revision(), ended)?;
            if shown.sight.compacted < self.compacted_floor {
                return Err(format!("compacted went back to {}", shown.sight.compacted));
            }
        } else {
            self.shorten(shown, ended)?;
        }
        let state = self.model.state(self.model.revision());
        if state != shown.state {
            return Err(difference(&state, &shown.state));
        }
        self.compacted_floor = shown.sight.compacted;
        self.see_compaction(shown.sight.compacted)?;
        self.settle()?;
        self.unknown.clear();
        // What a recovery shows, it has made durable.
        self.published.clear();
        self.published.push((MonoTime(0), shown.sight.revision));
        self.stopped = None;
        Ok(())
    }

    /// The store begins to serve.
    ///
    /// # Errors
    /// What cannot be.
    pub fn recovered(&mut self, shown: &Recovery, before: Ending) -> Verdict {
        let Sight { revision, compacted, .. } = shown.sight;
        let known = self.model.revision();
        if self.is_fenced(&shown.sight) {
            self.jump(&shown.sight)?;
        } else if self.fence.required {
            return Err(format!("history is shorter, yet {revision} follows {known}"));
        } else if revision != known {
            return Err(format!("it serves at {revision} and opened at {known}"));
        }
        self.fence = Fence::default();
        self.opened = true;
        self.see_compaction(compacted)?;
        self.compacted_floor = compacted;
        let state = self.model.state(revision);
        if state != shown.state {
            return Err(difference(&state, &shown.state));
        }
        self.floor = self.floor.max(revision);
        let lossless = Oracle::is_lossless(self.mode, before);
        self.leases.recovered(&shown.leases, shown.asked_at, lossless, self.election)?;
        // A fence is a write like any other: lost, it is made again.
        self.published.push((shown.sight.now, revision));
        match state.iter().find(|kv| kv.lease != 0 && self.leases.is_dead(kv.lease)) {
            Some(kv) => Err(format!("{kv:?} hangs on a lease that is not there")),
            None => Ok(()),
        }
    }

    /// Whether nothing acknowledged may be missing after a life that ended so.
    pub(super) fn is_lossless(mode: Mode, before: Ending) -> bool {
        match (before, mode) {
            (Ending::Fresh, _) | (_, Mode::Safe) => true,
            (Ending::Closed | Ending::Killed, Mode::NoFsync) => true,
            (Ending::PowerLost, Mode::NoFsync) | (_, Mode::Memory) => false,
        }
    }

    /// A tail may be missing: not what is older than a flush may take.
    fn shorten(&mut self, shown: &Stored, ended: MonoTime) -> Verdict {
        let kept = match self.mode {
            Mode::Memory => 1,
            _ => {
                let alive_until = self.stopped.map_or(ended, |stopped| stopped.min(ended));
                let old = |at: &MonoTime| at.0 == 0 || *at + self.flush_bound <= alive_until;
                let safe = self.published.iter().filter(|(at, _)| old(at));
                safe.map(|(_, revision)| *revision).max().unwrap_or(1)
            }
        };
        let revision = shown.sight.revision;
        if revision < kept {
            let lost = self.published.iter().find(|(_, at)| *at > revision);
            return Err(format!(
                "revision {revision} after {kept} was flushed; power lost at {ended:?}, first lost \
                 at {lost:?}"
            ));
        }
        if revision < self.model.revision() {
            self.fence.required = true;
            self.unclaimed.split_off(&(revision + 1));
            self.model.truncate(revision);
        }
        self.fence.required |= self.mode == Mode::Memory && self.opened;
        self.extend(shown, self.model.revision(), ended)
    }

    /// Everything up to `known` is there as it was; what follows becomes known.
    fn extend(&mut self, shown: &Stored, known: i64, ended: MonoTime) -> Verdict {
        let Sight { revision, compacted, .. } = shown.sight;
        if revision < known {
            return Err(format!("revision {revision} after {known} was shown"));
        }
        let right = visible(self.model.log(compacted), compacted, known);
        let given = shown.events.iter().map(|(at, events)| (*at, events.as_slice()));
        let given = visible(given, compacted, known);
        if right != given {
            let lost = right.iter().find(|due| !given.contains(due));
            let extra = given.iter().find(|due| !right.contains(due));
            return Err(format!("first event lost: {lost:?}, first one too many: {extra:?}"));
        }
        for (at, events) in shown.events.iter().filter(|(at, _)| *at > known) {
            self.model.push(*at, events.clone())?;
            self.unclaimed.insert(*at, ended);
        }
        let known = self.model.revision();
        if known != revision {
            return Err(format!("events up to {known}, but the revision is {revision}"));
        }
        Ok(())
    }

    /// Whether history ends at a revision that nobody asked to compact at.
    fn is_fenced(&self, sight: &Sight) -> bool {
        sight.compacted == sight.revision && !self.compactions.contains(&sight.compacted)
    }

    fn jump(&mut self, sight: &Sight) -> Verdict {
        let Sight { revision, compacted, .. } = *sight;
        let highest = self.highest.max(self.floor);
        if !self.fence.allowed {
            return Err(format!("a fence to {revision}, and nothing can be missing"));
        }
        if revision <= highest {
            return Err(format!("a fence to {revision}, and {highest} was shown"));
        }
        self.fence.required = false;
        self.model.jump(revision);
        self.compactions.insert(compacted);
        Ok(())
    }
}

/// The events from the compacted revision on up to `known`. At the compacted revision itself a
/// deletion may be gone.
fn visible<'a>(
    log: impl Iterator<Item = (i64, &'a [Event])>,
    compacted: i64,
    known: i64,
) -> Vec<(i64, &'a Event)> {
    let events = log.flat_map(|(at, events)| events.iter().map(move |event| (at, event)));
    let kept = |at: i64, event: &Event| {
        at > compacted || (at == compacted && event.r#type() == EventType::Put)
    };
    events.filter(|(at, event)| *at <= known && kept(*at, event)).collect()
}

/// The first way in which two states differ.
pub(super) fn difference(right: &[KeyValue], given: &[KeyValue]) -> String {
    let missing = right.iter().find(|kv| !given.contains(kv));
    let extra = given.iter().find(|kv| !right.contains(kv));
    format!(
        "{} keys instead of {}; first missing {missing:?}, first wrong {extra:?}",
        given.len(),
        right.len()
    )
}

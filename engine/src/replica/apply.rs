//! The apply stage of a turn.

use ringbolt_consensus::{Entry, EntryKind};
use ringbolt_io::MonoTime;
use ringbolt_io::local::Promise;

use super::queue::{Answer, InFlight};
use super::stage::Observation;
use super::{Core, Replica};
use crate::error::Error;
use crate::limits::{TURN_CLOCK_ENTRIES, TURN_TIME_MAX};
use crate::state::{Command, Reply, State};
use crate::types::{RaftIndex, Revision, Term};

/// What a turn's apply stage leaves for publish and reply.
pub(super) struct Outcome {
    pub(super) from: Revision,
    pub(super) to: Revision,
    compacted: bool,
    pub(super) answers: Vec<(Promise<Answer>, Answer)>,
}

impl Outcome {
    /// Whether watchers have something to see.
    pub(super) fn changed(&self) -> bool {
        self.from != self.to || self.compacted
    }
}

/// When the turn began to apply, and when its last entry was done.
struct Clock {
    turn: MonoTime,
    entry: MonoTime,
}

/// What depends on the state at a stored command's turn. What does not was checked before the log
/// was taken over.
fn check_stored(state: &State, command: &Command) -> Result<(), String> {
    let now = state.mvcc.revision();
    match command {
        Command::Fence { revision, .. } if *revision < now => {
            Err(format!("a fence to {revision} at {now}"))
        }
        _ => Ok(()),
    }
}

impl Replica {
    /// Applies committed entries in index order, for at most the time of a turn. The rest comes
    /// with the next one.
    pub(super) fn apply(&self, core: &mut Core, now: MonoTime) -> Outcome {
        let mut state = self.state.borrow_mut();
        let (from, compacted) = (state.mvcc.revision(), state.mvcc.compacted());
        let mut answers = Vec::new();
        let mut count = 0;
        let mut clock = Clock { turn: now, entry: self.io.now() };
        while let Some(entry) = core.to_apply.pop_front() {
            assert_eq!(entry.index, core.applied + 1, "R2: in index order, each once");
            let flying = self.queue.borrow_mut().take(entry.index, entry.term);
            match self.apply_entry(core, &mut state, &entry, flying, &mut clock) {
                Ok(Some(answer)) => answers.push(answer),
                Ok(None) => {}
                Err(found) => {
                    self.life.refuse_entry(RaftIndex(entry.index), found);
                    break;
                }
            }
            core.applied = entry.index;
            core.applied_term = entry.term;
            count += 1;
            if count % TURN_CLOCK_ENTRIES == 0 && self.io.now().since(now) > TURN_TIME_MAX {
                break;
            }
        }
        if !core.to_apply.is_empty() {
            self.bell.ring();
        }
        if count > 0 {
            self.observe(&Observation::Applied { count, took: self.io.now().since(now) });
        }
        let compacted = compacted != state.mvcc.compacted();
        if compacted {
            self.compaction.start();
        }
        Outcome { from, to: state.mvcc.revision(), compacted, answers }
    }

    fn apply_entry(
        &self,
        core: &mut Core,
        state: &mut State,
        entry: &Entry,
        flying: Option<InFlight>,
        clock: &mut Clock,
    ) -> Result<Option<(Promise<Answer>, Answer)>, String> {
        if entry.kind == EntryKind::Membership {
            core.node.apply_membership(entry)?;
            return Ok(None);
        }
        let decoded;
        let command = match &flying {
            Some(flying) => &flying.command,
            None => {
                decoded = Command::decode(entry.data.clone())?;
                check_stored(state, &decoded)?;
                &decoded
            }
        };
        let result = state.apply(RaftIndex(entry.index), Term(entry.term), command);
        let applied = self.io.now();
        let took = applied.since(std::mem::replace(&mut clock.entry, applied));
        if let Some(name) = command.apply_name() {
            self.observe(&Observation::Entry { name, success: result.is_ok(), took });
        }
        if let Ok(reply) = &result {
            self.note_applied(command, reply);
        }
        let Some(InFlight { promise: Some(promise), mut times, .. }) = flying else {
            return Ok(None);
        };
        times.durable = clock.turn;
        times.applied = applied;
        self.observe(&Observation::Proposal(times));
        Ok(Some((promise, result.map_err(Error::from))))
    }

    fn note_applied(&self, command: &Command, reply: &Reply) {
        if matches!(command, Command::LeaseGrant(_) | Command::LeaseRevoke(_)) {
            self.note_lease(command, reply);
        }
    }
}

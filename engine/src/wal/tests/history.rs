//! The model: what was asked of a log, in order, and what it may look like after a crash.
//!
//! A log keeps a prefix of what was asked, at least as long as what it acknowledged.

use std::collections::BTreeMap;

use crate::wal::{Checkpoint, Entry, HardState, Recovered, Ticket};

/// One thing asked of a log.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Entry(Entry),
    State(HardState),
    Checkpoint(Checkpoint),
}

/// What a prefix of the acts amounts to.
#[derive(Clone, Default)]
pub(super) struct Model {
    pub state: HardState,
    pub entries: BTreeMap<u64, Entry>,
    pub checkpoint: Option<Checkpoint>,
}

#[derive(Default)]
pub(super) struct History {
    acts: Vec<Act>,
    /// How many acts are acknowledged, and how many by an append that asked for a flush.
    pub acknowledged: usize,
    pub flushed: usize,
    tickets: Vec<(Ticket, usize, bool)>,
    /// Torn tails and logs without their first entries that were met.
    pub cuts: usize,
    pub released: usize,
    /// The state after every act.
    pub model: Model,
}

impl Model {
    fn act(&mut self, act: &Act) {
        match act {
            Act::Entry(entry) => {
                self.entries.split_off(&entry.index.0);
                self.entries.insert(entry.index.0, entry.clone());
            }
            Act::State(state) => self.state = *state,
            Act::Checkpoint(checkpoint) => self.checkpoint = Some(checkpoint.clone()),
        }
    }

    pub fn last_index(&self) -> u64 {
        self.entries.last_key_value().map_or(0, |(index, _)| *index)
    }

    /// Entries below the checkpoint may be gone; nothing else may differ but a commit that rose
    /// without a write.
    fn matches(&self, found: &Recovered) -> bool {
        let named = self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.index.0);
        let first = found.entries.first().map_or(named + 1, |entry| entry.index.0);
        let last = found.entries.last().map_or(named, |entry| entry.index.0);
        let state = found.hard_state;
        (state.term, state.vote) == (self.state.term, self.state.vote)
            && found.checkpoint == self.checkpoint
            && first <= named + 1
            && last == self.last_index()
            && found.entries.iter().zip(first..).all(|(entry, index)| entry.index.0 == index)
            && found.entries.iter().all(|entry| self.entries.get(&entry.index.0) == Some(entry))
            && state.commit.0 <= last
    }
}

impl History {
    /// Notes acts that are about to be appended.
    pub fn ask(&mut self, acts: Vec<Act>) {
        for act in acts {
            self.model.act(&act);
            self.acts.push(act);
        }
    }

    /// Notes the ticket of everything asked so far.
    pub fn note(&mut self, ticket: Ticket, must_sync: bool) {
        self.tickets.push((ticket, self.acts.len(), must_sync));
    }

    /// Notes that a log acknowledged up to `ticket`.
    pub fn acknowledge(&mut self, ticket: Ticket) {
        for (_, acts, must_sync) in self.tickets.iter().filter(|(noted, ..)| *noted <= ticket) {
            self.acknowledged = self.acknowledged.max(*acts);
            if *must_sync {
                self.flushed = self.flushed.max(*acts);
            }
        }
    }

    /// What was acknowledged and not flushed may be gone from now on.
    pub fn lose_unflushed(&mut self) {
        self.acknowledged = self.flushed;
    }

    /// Checks what an open found, and goes on from there.
    pub fn recover(&mut self, found: &Recovered) {
        let mut model = Model::default();
        let mut best = None;
        for count in 0..=self.acts.len() {
            if count > 0 {
                model.act(&self.acts[count - 1]);
            }
            if count >= self.acknowledged && model.matches(found) {
                best = Some((count, model.clone()));
            }
        }
        let Some((count, model)) = best else {
            let indexes: Vec<u64> = found.entries.iter().map(|entry| entry.index.0).collect();
            panic!(
                "no prefix of {} acts from {} on is what was found: {:?}, entries {indexes:?}, \
                 checkpoint {:?}, cut {:?}; the model ends at {:?}, {:?}, {:?}",
                self.acts.len(),
                self.acknowledged,
                found.hard_state,
                found.checkpoint,
                found.cut,
                self.model.state,
                self.model.last_index(),
                self.model.checkpoint
            );
        };
        self.cuts += usize::from(found.cut.is_some());
        self.released += usize::from(found.entries.first().is_some_and(|entry| entry.index.0 > 1));
        self.acts.truncate(count);
        self.acknowledged = count;
        self.flushed = count;
        self.tickets.clear();
        self.model = model;
    }
}

//! The log behind a replica: a write-ahead log, or nothing at all in memory mode.

use ringbolt_consensus::{Entry, HardState};

use crate::types::Revision;

/// Names a write; later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(pub(super) u64);

/// Where entries go before they count.
pub(super) enum Log {
    /// Nothing is kept: an entry counts at once.
    Memory {
        /// Writes so far.
        appended: Ticket,
    },
}

impl Log {
    /// A log that keeps nothing.
    pub(super) fn memory() -> Log {
        Log::Memory { appended: Ticket::default() }
    }

    /// Hands a write over.
    pub(super) fn append(&mut self, _entries: &[Entry], _hard_state: HardState) -> Ticket {
        match self {
            Log::Memory { appended } => {
                appended.0 += 1;
                *appended
            }
        }
    }

    /// Every write up to this one counts.
    pub(super) fn durable(&self) -> Ticket {
        match self {
            Log::Memory { appended } => *appended,
        }
    }

    /// Whether writes that add data may be taken.
    pub(super) fn has_room(&self) -> bool {
        match self {
            Log::Memory { .. } => true,
        }
    }

    /// No revision above this one may be given out yet.
    pub(super) fn revision_ceiling(&self) -> Revision {
        match self {
            Log::Memory { .. } => Revision(i64::MAX),
        }
    }

    /// Why it stopped.
    pub(super) fn failure(&self) -> Option<String> {
        match self {
            Log::Memory { .. } => None,
        }
    }

    /// Closes it in order: a later open finds everything and knows that nothing is missing.
    pub(super) async fn close(self) {
        match self {
            Log::Memory { .. } => {}
        }
    }
}

//! The one clock of the stages a request passes. Taken at stage borders, read by whoever wants
//! histograms.
//!
//! ```text
//! queued ──► proposed ──► durable ──► applied
//!    drained by a turn  log says so   state changed, reply given
//! ```

use std::time::Duration;

use ringbolt_io::MonoTime;

/// When one proposal passed each border.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTimes {
    /// It entered the queue.
    pub queued: MonoTime,
    /// A turn took it and gave it to consensus and to the log.
    pub proposed: MonoTime,
    /// It was committed: durable here, and on a quorum.
    pub durable: MonoTime,
    /// It changed the state.
    pub applied: MonoTime,
}

/// What the replica reports to the observer it was given. Times are of the shard's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A proposal was applied and answered.
    Proposal(StageTimes),
    /// One entry changed the state, or was refused by it.
    Entry {
        /// What it asked for, as [`crate::state::Command::apply_name`] has it.
        name: &'static str,
        /// Whether it was done.
        success: bool,
        /// Time.
        took: Duration,
    },
    /// A write of the log became durable this long after it was handed over.
    Durable(Duration),
    /// A turn applied this many entries in this time.
    Applied {
        /// Entries.
        count: usize,
        /// Time.
        took: Duration,
    },
    /// A checkpoint of this many bytes was written in this time.
    Checkpoint {
        /// Bytes of the file.
        bytes: u64,
        /// Time from start to named in the log.
        took: Duration,
    },
}

//! Proposals on their way: waiting for a turn, then in the log, then answered.
//!
//! ```text
//! submit ──► waiting ──turn: drain──► in flight ──apply──► answered
//!               └── deadline passed: dropped, nothing happened
//! ```
//!
//! Q1: at most `PROPOSALS_WAITING_MAX` proposals of `PROPOSALS_BYTES_MAX` bytes are anywhere on
//! this way, plus a reserve for what the replica itself proposes (lease ends, alarms): clients
//! never starve it.

use std::collections::VecDeque;

use bytes::Bytes;
use ringbolt_io::MonoTime;
use ringbolt_io::local::Promise;

use super::stage::StageTimes;
use crate::error::Error;
use crate::state::{Command, Reply};

/// A moment no clock reaches: the deadline of what the replica proposes for itself.
pub(super) const NEVER: MonoTime = MonoTime(u64::MAX);

/// The answer to a proposal.
pub type Answer = Result<Reply, Error>;

/// A proposal nobody has given to consensus yet.
pub(super) struct Waiting {
    pub(super) command: Command,
    pub(super) encoded: Bytes,
    /// Size of the encoded command.
    pub(super) bytes: usize,
    pub(super) promise: Promise<Answer>,
    pub(super) queued: MonoTime,
    /// After this moment it is dropped instead of proposed.
    pub(super) deadline: MonoTime,
}

/// A proposal at its place in the log.
pub(super) struct InFlight {
    pub(super) index: u64,
    pub(super) term: u64,
    pub(super) command: Command,
    /// Size of the encoded command.
    pub(super) bytes: usize,
    pub(super) deadline: MonoTime,
    /// `None` once the proposer was told that it takes too long.
    pub(super) promise: Option<Promise<Answer>>,
    pub(super) times: StageTimes,
}

/// All proposals of a replica.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    /// Bytes of the commands that wait.
    pub(super) waiting_bytes: usize,
    in_flight: VecDeque<InFlight>,
    in_flight_bytes: usize,
}

impl Queue {
    /// Proposals anywhere on the way.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.in_flight.len()
    }

    /// Takes a proposal in, behind all others.
    pub(super) fn push(&mut self, waiting: Waiting) {
        self.waiting_bytes += waiting.bytes;
        self.waiting.push_back(waiting);
    }

    /// The proposal that waits longest.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.waiting.pop_front()?;
        self.waiting_bytes -= waiting.bytes;
        Some(waiting)
    }

    /// Whether any proposal waits for a turn.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Bytes of the commands anywhere on the way.
    pub(super) fn bytes(&self) -> usize {
        self.waiting_bytes + self.in_flight_bytes
    }

    /// Proposals that have their place in the log.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// A proposal has its place in the log, behind all others.
    pub(super) fn fly(&mut self, flying: InFlight) {
        self.in_flight_bytes += flying.bytes;
        self.in_flight.push_back(flying);
    }

    /// The in-flight proposal of the entry (index, term); proposals whose place another leader's
    /// entry took are told so.
    pub(super) fn take(&mut self, index: u64, term: u64) -> Option<InFlight> {
        while let Some(first) = self.in_flight.front() {
            if first.index > index {
                return None;
            }
            let first = self.in_flight.pop_front().expect("there is a front");
            self.in_flight_bytes -= first.bytes;
            if first.index == index && first.term == term {
                return Some(first);
            }
            if let Some(promise) = first.promise {
                promise.fulfil(Err(crate::Reason::LeaderChanged.into()));
            }
        }
        None
    }

    /// Answers everything with `error` and forgets it.
    pub(super) fn fail_all(&mut self, error: &Error) {
        (self.waiting_bytes, self.in_flight_bytes) = (0, 0);
        for waiting in self.waiting.drain(..) {
            waiting.promise.fulfil(Err(error.clone()));
        }
        for flying in self.in_flight.drain(..) {
            if let Some(promise) = flying.promise {
                promise.fulfil(Err(error.clone()));
            }
        }
    }

    /// Drops what waits beyond its deadline, and tells proposers in flight since `since` or longer
    /// that it takes too long. The entries themselves stay proposed. What the replica proposed for
    /// itself is left alone.
    pub(super) fn expire(&mut self, now: MonoTime, since: MonoTime) {
        for waiting in std::mem::take(&mut self.waiting) {
            if waiting.deadline > now {
                self.waiting.push_back(waiting);
            } else {
                self.waiting_bytes -= waiting.bytes;
                waiting.promise.fulfil(Err(crate::Reason::DeadlineExceeded.into()));
            }
        }
        for flying in &mut self.in_flight {
            if flying.times.proposed > since {
                return;
            }
            if flying.deadline != NEVER
                && let Some(promise) = flying.promise.take()
            {
                promise.fulfil(Err(crate::Reason::Timeout.into()));
            }
        }
    }
}

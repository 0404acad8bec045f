//! Linearizable reads on their way to a read point.
//!
//! ```text
//! wait ──► new ──turn: ask──► asked ──read_ready──► pointed(index) ──applied──► answered
//! ```

use std::collections::BTreeMap;

use ringbolt_io::MonoTime;
use ringbolt_io::local::{Promise, Receipt, receipt};

use crate::error::{Error, Reason};
use crate::limits::READS_WAITING_MAX;

type Point = Result<(), Error>;

/// Reads of a replica that wait.
#[derive(Default)]
pub(super) struct Reads {
    last_name: u64,
    new: Vec<u64>,
    /// Reads without a read point, by name: oldest first.
    open: BTreeMap<u64, Open>,
    /// Reads with a read point, by (index, name).
    pointed: BTreeMap<(u64, u64), Promise<Point>>,
    /// Names up to here need no read point any more.
    forgotten: u64,
}

struct Open {
    promise: Promise<Point>,
    since: MonoTime,
}

impl Reads {
    /// Takes a read in.
    pub(super) fn wait(&mut self, now: MonoTime) -> Result<Receipt<Point>, Error> {
        if self.open.len() + self.pointed.len() >= READS_WAITING_MAX {
            return Err(Reason::TooManyRequests.into());
        }
        self.last_name += 1;
        let (promise, receipt) = receipt();
        self.new.push(self.last_name);
        self.open.insert(self.last_name, Open { promise, since: now });
        Ok(receipt)
    }

    /// The names that consensus has not been asked about, and the greatest name that expired.
    pub(super) fn ask(&mut self) -> (Vec<u64>, u64) {
        (std::mem::take(&mut self.new), self.forgotten)
    }

    /// Consensus gave read points.
    pub(super) fn ready(&mut self, points: &[(u64, u64)]) {
        for (name, index) in points {
            if let Some(open) = self.open.remove(name) {
                self.pointed.insert((*index, *name), open.promise);
            }
        }
    }

    /// Reads whose point is applied, in order.
    pub(super) fn take_applied(&mut self, applied: u64) -> Vec<Promise<Point>> {
        if self.pointed.is_empty() {
            return Vec::new();
        }
        let later = self.pointed.split_off(&(applied + 1, 0));
        std::mem::replace(&mut self.pointed, later).into_values().collect()
    }

    /// Tells reads older than `since` that it takes too long.
    pub(super) fn expire(&mut self, since: MonoTime) {
        while let Some(first) = self.open.first_entry() {
            if first.get().since > since {
                return;
            }
            let (name, open) = first.remove_entry();
            self.forgotten = name;
            open.promise.fulfil(Err(Reason::Timeout.into()));
        }
    }

    /// Answers every read with `error`.
    pub(super) fn fail_all(&mut self, error: &Error) {
        self.new.clear();
        let open = std::mem::take(&mut self.open).into_values().map(|open| open.promise);
        let pointed = std::mem::take(&mut self.pointed).into_values();
        for promise in open.chain(pointed).collect::<Vec<_>>() {
            promise.fulfil(Err(error.clone()));
        }
    }
}

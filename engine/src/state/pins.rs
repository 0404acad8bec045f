//! Revisions that unfinished reads still need.
//!
//! ```text
//! pin(at, until) ─► live ──► dropped: the read ended
//!                     └────► expired: removal goes on and the read ends as compacted
//! ```
//! A compaction's removal begins only when no live pin is below its revision. Reads that come later
//! are never below it, so removal waits for the reads that were there and for no others.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ringbolt_io::MonoTime;

use crate::types::Revision;

/// The live pins of one keyspace. Lives on its home shard; clones name the same pins.
#[derive(Clone, Debug, Default)]
pub(super) struct Pins(Rc<RefCell<Table>>);

#[derive(Debug, Default)]
struct Table {
    live: BTreeMap<(Revision, u64), MonoTime>,
    next: u64,
}

/// Keeps the versions of its revision in place while it is live.
#[derive(Debug)]
pub struct Pin {
    pins: Pins,
    key: (Revision, u64),
}

impl Pins {
    pub(super) fn pin(&self, at: Revision, until: MonoTime) -> Pin {
        let mut table = self.0.borrow_mut();
        let key = (at, table.next);
        table.next += 1;
        table.live.insert(key, until);
        Pin { pins: self.clone(), key }
    }

    /// The lowest revision that is pinned. What has expired is no longer.
    pub(super) fn lowest(&self, now: MonoTime) -> Option<Revision> {
        let live = &mut self.0.borrow_mut().live;
        live.retain(|_, until| *until > now);
        live.first_key_value().map(|((at, _), _)| *at)
    }
}

impl Pin {
    /// The revision.
    #[must_use]
    pub fn at(&self) -> Revision {
        self.key.0
    }

    /// Gives the revision up before the read has ended.
    pub fn release(&self) {
        self.pins.0.borrow_mut().live.remove(&self.key);
    }

    /// Whether its revision can still be read, compacted or not.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.pins.0.borrow().live.contains_key(&self.key)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lowest live one counts; a dropped and an expired one do not.
    #[test]
    fn which_revision_is_held() {
        let pins = Pins::default();
        assert_eq!(pins.lowest(MonoTime(0)), None);
        let first = pins.pin(Revision(7), MonoTime(100));
        let second = pins.pin(Revision(5), MonoTime(50));
        let third = pins.pin(Revision(5), MonoTime(60));
        assert_eq!(pins.lowest(MonoTime(0)), Some(Revision(5)));
        drop(second);
        assert_eq!(pins.lowest(MonoTime(59)), Some(Revision(5)));
        assert!(third.is_live());
        assert_eq!(pins.lowest(MonoTime(60)), Some(Revision(7)));
        assert!(!third.is_live() && first.is_live());
        drop(third);
        drop(first);
        assert_eq!(pins.lowest(MonoTime(0)), None);
    }
}

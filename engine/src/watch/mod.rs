//! Watchers as cursors into the revision log.
//!
//! A watcher never owns a queue of events. It is a position ([`Watcher::next`]: the first revision
//! it has not been given) and a place in a group of watchers with the same range and filters. Each
//! event is matched once per group when it is published and kept, encoded, in the group's short
//! ring; a watcher that is behind its ring reads the revision log instead. A slow client is an old
//! cursor, nothing more.
//!
//! Invariants, each asserted in `check` or tested by its number:
//! - V1 Events of one revision that match a watcher leave in one batch, unless it asked for
//!   fragments.
//! - V2 A watcher's batches are strictly increasing in revision, without gap or repeat, and none is
//!   below its start.
//! - V3 A watcher that is not dirty has been given every matching event up to the published
//!   revision: a progress answer taken then is true.
//! - V4 A group's ring holds every matching event from `ring_from` to the published revision.
//! - V5 A watcher whose next revision was compacted away before it got there is told and dropped.
//!
//! ```text
//! created ──► behind (next < ring_from: pulls history) ──► live (pulls the ring) ──► idle
//!    │               │ compacted passes next                      ▲  publish marks dirty │
//!    │               ▼                                            └──────────────────────┘
//!    └─────────► cancelled
//! ```

mod encode;
mod index;
mod ranges;
#[cfg(test)]
mod tests;

use ringbolt_io::planted::{self, Planted};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use hashbrown::HashMap;
use ringbolt_io::local::Bell;
use slab::Slab;

use crate::limits::{
    WATCH_HISTORY_EVENTS_MAX, WATCH_HISTORY_SCAN_MAX, WATCH_RING_BATCHES_MAX, WATCH_RING_BYTES_MAX,
    WATCH_RINGS_BYTES_MAX,
};
use crate::mvcc::{KeyRange, Kind, Mvcc};
use crate::types::Revision;

use index::Index;

/// What a watcher wants to see. Watchers with equal specs share a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// The keys.
    pub range: KeyRange,
    /// Drops PUT events.
    pub no_put: bool,
    /// Drops DELETE events.
    pub no_delete: bool,
    /// Adds the previous key-value to events that are not creations.
    pub prev_kv: bool,
}

/// Names a watcher of a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatcherKey(usize);

/// What a stream of watchers shares with the hub: which of its watchers have something to pull, and
/// a bell that rings when one does.
#[derive(Default)]
pub struct StreamEnd {
    dirty: RefCell<VecDeque<WatcherKey>>,
    /// Rings when a watcher of the stream became dirty.
    pub bell: Bell,
}

impl StreamEnd {
    /// The next watcher that has something to pull, in the order they became dirty.
    pub fn next_dirty(&self) -> Option<WatcherKey> {
        self.dirty.borrow_mut().pop_front()
    }

    /// Nobody pulls any more.
    pub fn clear(&self) {
        self.dirty.borrow_mut().clear();
    }

    /// Whether some watcher has something to pull.
    #[must_use]
    pub fn has_dirty(&self) -> bool {
        !self.dirty.borrow().is_empty()
    }
}

/// Encoded events of one or more whole revisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The last revision in it.
    pub last: Revision,
    /// Events as `WatchResponse.events` fields, ready to be appended to a response.
    pub events: Bytes,
    /// Where each event ends in `events`.
    pub ends: Vec<u32>,
}

/// What a watcher got.
#[derive(Debug, PartialEq, Eq)]
pub enum Pull {
    /// Events; `header` is the revision for the response's header. More may follow.
    Events {
        /// Revision for the header: not below the last event, never above what was published.
        header: Revision,
        /// The events, shared by all watchers of the group.
        batch: Rc<Batch>,
    },
    /// Nothing now; the watcher has moved on and is dirty no more, or is asked again when it is.
    Nothing,
    /// Its history was compacted at this revision; the watcher is gone.
    Compacted(Revision),
}

struct Watcher {
    group: usize,
    /// Its place among the watchers of the group.
    place: usize,
    next: Revision,
    /// What the client asked for; 0 when it asked for the present.
    start: Revision,
    dirty: bool,
    end: Rc<StreamEnd>,
}

struct Group {
    spec: Spec,
    watchers: Vec<WatcherKey>,
    ring: VecDeque<Rc<Batch>>,
    ring_from: Revision,
    ring_bytes: usize,
    /// The revision that is being published.
    growing: Option<Growing>,
    /// It has events of the revisions that are being published.
    touched: bool,
}

/// A batch to which events of its revision are still added.
struct Growing {
    revision: Revision,
    /// The only event, shared with other groups.
    first: Bytes,
    /// All events, once there are several.
    joined: Vec<u8>,
    ends: Vec<u32>,
}

/// All watchers of one keyspace on one shard.
pub struct Hub {
    groups: Slab<Group>,
    by_spec: HashMap<Spec, usize, crate::types::FixedHasher>,
    index: Index,
    watchers: Slab<Watcher>,
    published: Revision,
    events_sent: u64,
}

impl Hub {
    /// A hub over a store that stands at `revision`.
    #[must_use]
    pub fn new(revision: Revision) -> Hub {
        Hub {
            groups: Slab::new(),
            by_spec: HashMap::default(),
            index: Index::default(),
            watchers: Slab::new(),
            published: revision,
            events_sent: 0,
        }
    }

    /// The revision up to which events have been shown.
    #[must_use]
    pub fn published(&self) -> Revision {
        self.published
    }

    /// How many watchers there are.
    #[must_use]
    pub fn watchers_count(&self) -> usize {
        self.watchers.len()
    }

    /// How many watchers have something to pull.
    #[must_use]
    pub fn dirty_count(&self) -> usize {
        self.watchers.iter().filter(|(_, watcher)| watcher.dirty).count()
    }

    /// How many events have been handed to watchers.
    #[must_use]
    pub fn events_sent(&self) -> u64 {
        self.events_sent
    }

    /// Adds a watcher that wants events from `start` on; `None` means from the next revision.
    /// It is dirty at once when there may be history for it.
    pub fn create(
        &mut self,
        end: &Rc<StreamEnd>,
        spec: Spec,
        start: Option<Revision>,
    ) -> WatcherKey {
        let next = start.unwrap_or_else(|| self.published.next());
        let again = i64::from(planted::is(Planted::EventTwiceAtResume) && next.0 > 1);
        let next = Revision(next.0 - again);
        let group = match self.by_spec.get(&spec) {
            Some(group) => *group,
            None => self.add_group(spec),
        };
        let key = WatcherKey(self.watchers.insert(Watcher {
            group,
            place: self.groups[group].watchers.len(),
            next,
            start: start.unwrap_or(Revision(0)),
            dirty: false,
            end: end.clone(),
        }));
        self.groups[group].watchers.push(key);
        if next <= self.published {
            self.mark(key);
        }
        key
    }

    fn add_group(&mut self, spec: Spec) -> usize {
        let group = self.groups.insert(Group {
            spec: spec.clone(),
            watchers: Vec::new(),
            ring: VecDeque::new(),
            ring_from: self.published.next(),
            ring_bytes: 0,
            growing: None,
            touched: false,
        });
        self.index.insert(&spec.range, group);
        self.by_spec.insert(spec, group);
        group
    }

    /// Removes a watcher. Nothing of it is pulled afterwards.
    pub fn cancel(&mut self, key: WatcherKey) {
        let Some(watcher) = self.watchers.try_remove(key.0) else { return };
        if watcher.dirty {
            watcher.end.dirty.borrow_mut().retain(|dirty| *dirty != key);
        }
        let group = &mut self.groups[watcher.group];
        group.watchers.swap_remove(watcher.place);
        if let Some(moved) = group.watchers.get(watcher.place) {
            self.watchers[moved.0].place = watcher.place;
        }
        if group.watchers.is_empty() {
            let group = self.groups.remove(watcher.group);
            self.index.remove(&group.spec.range, watcher.group);
            self.by_spec.remove(&group.spec);
        }
    }

    /// Whether a watcher has been given everything up to the published revision and is not waiting
    /// for a revision to come (rule V3).
    #[must_use]
    pub fn is_synced(&self, key: WatcherKey) -> bool {
        self.watchers
            .get(key.0)
            .is_some_and(|watcher| !watcher.dirty && watcher.start <= self.published)
    }

    /// Shows every event after the published revision up to the store's own. Each event is matched
    /// and encoded once; watchers are only told to look.
    pub fn publish(&mut self, mvcc: &Mvcc) {
        let from = self.published.next();
        self.published = mvcc.revision();
        if self.watchers.is_empty() || from > self.published {
            return;
        }
        let mut touched: Vec<usize> = Vec::new();
        let mut matched: Vec<usize> = Vec::new();
        for event in mvcc.events(from) {
            matched.clear();
            self.index.matching(event.key, &mut matched);
            if matched.is_empty() {
                continue;
            }
            let mut plain: Option<Bytes> = None;
            let mut with_previous: Option<Bytes> = None;
            for group_id in &matched {
                let group = &mut self.groups[*group_id];
                if !group.spec.wants(event.kind) {
                    continue;
                }
                let slot = if group.spec.prev_kv { &mut with_previous } else { &mut plain };
                let prev_kv = group.spec.prev_kv;
                let encoded = slot.get_or_insert_with(|| {
                    let previous = if prev_kv { mvcc.previous(&event) } else { None };
                    encode::event(event.kind, event.kv(), previous)
                });
                group.add(event.main, encoded);
                if !std::mem::replace(&mut group.touched, true) {
                    touched.push(*group_id);
                }
            }
        }
        for group in touched {
            self.groups[group].touched = false;
            self.groups[group].seal();
            self.trim(group);
            self.wake_group(group);
        }
    }

    fn wake_group(&mut self, group: usize) {
        for place in 0..self.groups[group].watchers.len() {
            let key = self.groups[group].watchers[place];
            self.mark(key);
        }
    }

    fn mark(&mut self, key: WatcherKey) {
        let watcher = &mut self.watchers[key.0];
        if !watcher.dirty {
            watcher.dirty = true;
            watcher.end.dirty.borrow_mut().push_back(key);
            watcher.end.bell.ring();
        }
    }

    /// Drops what the ring of a group holds above its share of the budget.
    fn trim(&mut self, group: usize) {
        let share = (WATCH_RINGS_BYTES_MAX / self.groups.len().max(1)).min(WATCH_RING_BYTES_MAX);
        let group = &mut self.groups[group];
        while group.ring.len() > 1
            && (group.ring.len() > WATCH_RING_BATCHES_MAX || group.ring_bytes > share)
        {
            let old = group.ring.pop_front().expect("a ring longer than one has a front");
            group.ring_bytes -= old.events.len();
            group.ring_from = old.last.next();
        }
    }

    /// Gives a watcher that came from `StreamEnd::next_dirty` its next events, of whole revisions,
    /// about `bytes_max` of them (one revision may be larger). The caller pulls until `Nothing`.
    /// A watcher that still has more afterwards goes to the back of its stream's dirty line.
    pub fn pull(&mut self, key: WatcherKey, mvcc: &Mvcc, bytes_max: usize) -> Pull {
        let Some(watcher) = self.watchers.get_mut(key.0) else { return Pull::Nothing };
        watcher.dirty = false;
        let group = &self.groups[watcher.group];
        if watcher.next > self.published {
            return Pull::Nothing;
        }
        if watcher.next < group.ring_from {
            if watcher.next < mvcc.compacted() {
                let compacted = mvcc.compacted();
                self.cancel(key);
                return Pull::Compacted(compacted);
            }
            return self.pull_history(key, mvcc, bytes_max);
        }
        let Some(batch) = group.take(watcher.next, bytes_max) else {
            watcher.next = self.published.next();
            return Pull::Nothing;
        };
        assert!(batch.last >= watcher.next, "a ring gave revision {} again", batch.last);
        watcher.next = batch.last.next();
        let more = group.ring.back().is_some_and(|newest| newest.last >= watcher.next);
        if more {
            self.mark(key);
        }
        self.events_sent += batch.ends.len() as u64;
        Pull::Events { header: batch.last, batch }
    }

    fn pull_history(&mut self, key: WatcherKey, mvcc: &Mvcc, bytes_max: usize) -> Pull {
        let watcher = &self.watchers[key.0];
        let group = &self.groups[watcher.group];
        let mut batch = Batch { last: watcher.next, events: Bytes::new(), ends: Vec::new() };
        let mut bytes = Vec::new();
        let mut reached = group.ring_from;
        let mut revision = watcher.next;
        for (scanned, event) in mvcc.events(watcher.next).enumerate() {
            if event.main >= group.ring_from {
                break;
            }
            if event.main != revision {
                let full = bytes.len() >= bytes_max || batch.ends.len() >= WATCH_HISTORY_EVENTS_MAX;
                if full || scanned >= WATCH_HISTORY_SCAN_MAX {
                    reached = event.main;
                    break;
                }
                revision = event.main;
            }
            if !group.spec.wants(event.kind) || !group.spec.range.contains(event.key) {
                continue;
            }
            let previous = if group.spec.prev_kv { mvcc.previous(&event) } else { None };
            bytes.extend_from_slice(&encode::event(event.kind, event.kv(), previous));
            batch.ends.push(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
            batch.last = event.main;
        }
        assert!(reached > watcher.next, "history gave no progress at {}", watcher.next);
        let skipped = i64::from(planted::is(Planted::WatchGapOnCatchUp));
        self.watchers[key.0].next = Revision(reached.0 + skipped);
        if reached <= self.published {
            self.mark(key);
        }
        if batch.ends.is_empty() {
            return Pull::Nothing;
        }
        batch.events = Bytes::from(bytes);
        self.events_sent += batch.ends.len() as u64;
        Pull::Events { header: self.published, batch: Rc::new(batch) }
    }

    /// Checks V2, V3 and V4 over the whole structure.
    pub fn check(&self) {
        for (id, group) in &self.groups {
            let mut last = Revision(i64::MIN);
            for batch in &group.ring {
                assert!(batch.last > last, "ring of group {id} is not increasing");
                assert!(batch.last >= group.ring_from, "ring of group {id} starts too late");
                last = batch.last;
            }
            assert!(last <= self.published, "group {id} is ahead of what was published");
            assert!(group.growing.is_none(), "group {id} holds back a revision");
            for (place, key) in group.watchers.iter().enumerate() {
                let watcher = &self.watchers[key.0];
                assert_eq!((watcher.group, watcher.place), (id, place));
                if !watcher.dirty && watcher.start <= self.published {
                    assert!(watcher.next > last, "idle watcher {key:?} has not seen {last}");
                }
            }
        }
    }
}

impl Spec {
    fn wants(&self, kind: Kind) -> bool {
        match kind {
            Kind::Put => !self.no_put,
            Kind::Delete => !self.no_delete,
        }
    }
}

impl Group {
    /// Appends an event to the batch of its revision. However many a revision has, each is copied
    /// once.
    fn add(&mut self, revision: Revision, event: &Bytes) {
        self.ring_bytes += event.len();
        if let Some(growing) = self.growing.as_mut().filter(|batch| batch.revision == revision) {
            if growing.joined.is_empty() {
                growing.joined.extend_from_slice(&growing.first);
            }
            growing.joined.extend_from_slice(event);
            growing.ends.push(u32::try_from(growing.joined.len()).unwrap_or(u32::MAX));
            return;
        }
        self.seal();
        let ends = vec![u32::try_from(event.len()).unwrap_or(u32::MAX)];
        let first = event.clone();
        self.growing = Some(Growing { revision, first, joined: Vec::new(), ends });
    }

    /// The revision that was published last is whole.
    fn seal(&mut self) {
        let Some(Growing { revision, first, joined, ends }) = self.growing.take() else { return };
        let events = if joined.is_empty() { first } else { Bytes::from(joined) };
        self.ring.push_back(Rc::new(Batch { last: revision, events, ends }));
    }

    /// The batches from `next` on, joined up to about `bytes_max`; `None` when there are none.
    fn take(&self, next: Revision, bytes_max: usize) -> Option<Rc<Batch>> {
        let first = self.ring.partition_point(|batch| batch.last < next);
        let mut batches = self.ring.range(first..);
        let oldest = batches.next()?;
        if oldest.events.len() >= bytes_max || first + 1 == self.ring.len() {
            return Some(oldest.clone());
        }
        let mut joined = Batch::clone(oldest);
        let mut bytes = joined.events.to_vec();
        for batch in batches {
            if bytes.len() + batch.events.len() > bytes_max {
                break;
            }
            let base = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&batch.events);
            joined.ends.extend(batch.ends.iter().map(|end| base.saturating_add(*end)));
            joined.last = batch.last;
        }
        joined.events = Bytes::from(bytes);
        Some(Rc::new(joined))
    }
}

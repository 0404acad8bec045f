//! The store: key table, tree and revision log joined.
//!
//! Invariants, checked by [`Mvcc::check`]:
//! M1 a key is in table and tree exactly while it has a record in the log;
//! M2 a key's bit in the tree is set exactly when its newest record is a put;
//! M3 every record's revision is at most REV, or that of the change in progress;
//! M4 the accounted sizes are the sums over keys and records;
//! M5 a put continues its predecessor: same create, version one more; after none or a deletion it
//!    creates.

use std::ops::ControlFlow;

use bytes::Bytes;
use ringbolt_proto::mvccpb::KeyValue;

use super::compaction::Compaction;
use super::format::RECORD_HEAD_BYTES;
use super::keys::{Key, KeyId, Keys};
use super::log::{Entry, Log, NO_RECORD, RecordId, Version};
use super::owned::owned;
use super::range::KeyRange;
use super::tree::Tree;
use super::view::{EventRef, Kind, Values, VersionRef, live};
use crate::{Reason, Revision};

/// Bytes accounted for each record beside its value: the record and its share of the allocator.
const RECORD_BYTES: u64 = 80;
/// Bytes accounted for each key beside its name: table, tree and allocator.
const KEY_BYTES: u64 = 80;

/// A store without clock and disk: keys, their versions, and the revision log.
///
/// It lives on one core and has one writer. Reads are pinned to a revision by their caller and may
/// be cut into pieces between writes.
#[derive(Debug)]
pub struct Mvcc {
    pub(super) revision: Revision,
    pub(super) compacted: Revision,
    pub(super) keys: Keys,
    pub(super) tree: Tree,
    pub(super) log: Log,
    pub(super) size: u64,
    /// Bytes of all records in a checkpoint stream.
    pub(super) stream_bytes: u64,
    pub(super) compaction: Compaction,
    /// Main revision of the last record, which a change in progress has already above REV.
    pub(super) written: Revision,
}

impl Default for Mvcc {
    fn default() -> Mvcc {
        Mvcc::new()
    }
}

impl Mvcc {
    /// An empty store at revision 1, never compacted.
    #[must_use]
    pub fn new() -> Mvcc {
        Mvcc {
            revision: Revision::FIRST,
            compacted: Revision::NEVER,
            keys: Keys::default(),
            tree: Tree::new(),
            log: Log::default(),
            size: 0,
            stream_bytes: 0,
            compaction: Compaction::default(),
            written: Revision(0),
        }
    }

    /// The current revision.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The compacted revision; -1 for never.
    #[must_use]
    pub fn compacted(&self) -> Revision {
        self.compacted
    }

    /// Accounted bytes of keys, values and history. Falls as removal proceeds, so members may
    /// differ for a while: nothing that is applied may depend on it.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size
    }

    /// Bytes of an export that begins now, at most: what removal has not reached yet counts too.
    #[must_use]
    pub fn export_bytes_max(&self) -> u64 {
        self.stream_bytes
    }

    /// Keys that are live now.
    #[must_use]
    pub fn keys_count(&self) -> u64 {
        self.tree.live().into()
    }

    /// The revision a read that asked for `requested` reads at.
    ///
    /// Errors: `FutureRevision`, `Compacted`. Source: contract 2.3.
    pub fn check_revision(&self, requested: i64) -> Result<Revision, Reason> {
        match Revision(requested) {
            at if at.0 <= 0 => Ok(self.revision),
            at if at > self.revision => Err(Reason::FutureRevision),
            at if at < self.compacted => Err(Reason::Compacted),
            at => Ok(at),
        }
    }

    /// The version of `key` that was live at revision `at`. Key and value are shared, not copied.
    #[must_use]
    pub fn get(&self, key: &[u8], at: Revision) -> Option<KeyValue> {
        let id = self.tree.find(&self.keys, key)?;
        Some(self.live_at(self.keys.get(id), at)?.to_kv(Values::Full))
    }

    /// How many keys of `range` were live at revision `at`.
    ///
    /// At the current revision the tree knows. At an older one the events since then correct that
    /// number, unless the range is the shorter walk.
    #[must_use]
    pub fn count(&self, range: &KeyRange, at: Revision) -> u64 {
        let now = self.tree.count(&self.keys, range);
        if at >= self.written {
            return now;
        }
        let mut live = 0;
        let since = self.log.count_from(at.next());
        for (walked, (id, _)) in self.tree.walk(&self.keys, range).enumerate() {
            if walked as u64 > since || now > since {
                return self.corrected_count(range, at, now);
            }
            live += u64::from(self.live_at(self.keys.get(id), at).is_some());
        }
        live
    }

    /// The keys of `range` live at revision `at` in key order, `limit` at most; 0 is no limit.
    #[must_use]
    pub fn range(
        &self,
        range: &KeyRange,
        at: Revision,
        limit: usize,
        values: Values,
    ) -> Vec<KeyValue> {
        let mut found = Vec::new();
        self.visit(range, at, &mut |version| {
            found.push(version.to_kv(values));
            if found.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        found
    }

    /// Shows the keys of `range` live at revision `at` in key order, until told to break. A read
    /// in pieces goes on with a range that starts at the last key and a zero byte.
    pub fn visit(
        &self,
        range: &KeyRange,
        at: Revision,
        visitor: &mut dyn FnMut(VersionRef<'_>) -> ControlFlow<()>,
    ) {
        let mut walk = self.tree.walk(&self.keys, range);
        if at >= self.written {
            walk = walk.live_only();
        }
        for (id, _) in walk {
            let Some(version) = self.live_at(self.keys.get(id), at) else { continue };
            if visitor(version).is_break() {
                return;
            }
        }
    }

    /// The changes from revision `from` on, ordered by (main, sub).
    pub fn events(&self, from: Revision) -> impl Iterator<Item = EventRef<'_>> {
        self.events_at((from, 0))
    }

    /// What the event's key held just before the event's revision; nothing for a creation, or when
    /// that revision is compacted. Source: contract 7.8.
    #[must_use]
    pub fn previous(&self, event: &EventRef<'_>) -> Option<KeyValue> {
        let before = Revision(event.main.0 - 1);
        if event.is_creation() || before < self.compacted {
            return None;
        }
        let version = self.log.at(self.log.get(event.record).prev, before)?;
        Some(self.live(&version)?.to_kv(Values::Full))
    }

    /// Jumps to `revision` with everything below `compacted` compacted. Removal is the usual one.
    pub fn fence(&mut self, revision: Revision, compacted: Revision) {
        assert!(revision >= self.revision, "{revision} behind {}", self.revision);
        assert!(compacted <= revision, "{compacted} above {revision}");
        self.revision = revision;
        if compacted > self.compacted {
            self.compacted = compacted;
            self.compaction.schedule(compacted);
        }
    }

    /// Checks the whole structure, O(n); panics at the first flaw.
    pub fn check(&self) {
        assert!(self.compacted <= self.revision);
        self.log.check(&self.keys);
        let mut keys = 0;
        let mut size = 0;
        self.tree.check(&self.keys, &mut |id, live| {
            keys += 1;
            size += KEY_BYTES + self.keys.get(id).bytes.len() as u64;
            size += self.check_chain(id, live);
        });
        assert_eq!(keys, self.keys.len(), "M1");
        assert_eq!(size, self.size, "M4");
        let records = self.events(Revision(0));
        let stream = records.map(|event| stream_bytes(event.key, event.value)).sum::<u64>();
        assert_eq!(stream, self.stream_bytes, "M4");
    }

    /// The changes from (main, sub) on.
    pub(super) fn events_at(&self, from: (Revision, u32)) -> impl Iterator<Item = EventRef<'_>> {
        self.log.from(from.0, from.1).map(|id| self.event(id))
    }

    /// The event that is record `id`.
    pub(super) fn event(&self, id: RecordId) -> EventRef<'_> {
        let version = self.log.get(id);
        EventRef {
            main: version.main,
            sub: version.sub.into(),
            kind: version.kind,
            key: &self.keys.get(version.key).bytes,
            create: version.create,
            version: version.version,
            lease: version.lease,
            value: version.value,
            record: id,
        }
    }

    /// Whether a compaction at `at` keeps this event: contract 6.2.
    pub(super) fn is_kept(&self, event: &EventRef<'_>, at: Revision) -> bool {
        let stays = event.kind == Kind::Put || event.main == at;
        event.main > at || (stays && self.is_last_at(event, at))
    }

    /// Whether no later change of the event's key is at or below `at`.
    pub(super) fn is_last_at(&self, event: &EventRef<'_>, at: Revision) -> bool {
        let next = self.log.get(event.record).next;
        event.main <= at && (next == NO_RECORD || self.log.main(next) > at)
    }

    /// Appends a version of a key that is in the table.
    pub(super) fn append(&mut self, entry: Entry) {
        assert!(entry.main >= self.written, "{} behind {}", entry.main, self.written);
        self.written = entry.main;
        self.size += RECORD_BYTES + entry.value.len() as u64;
        self.stream_bytes += stream_bytes(&self.keys.get(entry.key).bytes, &entry.value);
        self.log.append(&mut self.keys, entry);
    }

    /// Adds a key to the table. It has no version yet.
    pub(super) fn add_key(&mut self, key: &[u8]) -> KeyId {
        self.size += KEY_BYTES + key.len() as u64;
        self.keys.insert(Key { bytes: owned(key), head: NO_RECORD })
    }

    /// Removes a record, and its key with the last one. True when the key went.
    pub(super) fn remove_record(&mut self, id: RecordId) -> bool {
        let key = self.log.get(id).key;
        let value = self.log.remove(&mut self.keys, id);
        self.size -= RECORD_BYTES + value.len() as u64;
        self.stream_bytes -= stream_bytes(&self.keys.get(key).bytes, &value);
        let last = self.keys.get(key).head == NO_RECORD;
        if last {
            let bytes: Bytes = self.keys.get(key).bytes.clone();
            self.tree.remove(&self.keys, &bytes);
            self.keys.remove(key);
            self.size -= KEY_BYTES + bytes.len() as u64;
        }
        last
    }

    fn live_at<'a>(&'a self, key: &'a Key, at: Revision) -> Option<VersionRef<'a>> {
        let version = self.log.at(key.head, at)?;
        live(key, &version)
    }

    fn live<'a>(&'a self, version: &Version<'a>) -> Option<VersionRef<'a>> {
        live(self.keys.get(version.key), version)
    }

    /// Undoes, in the number of live keys, what happened after `at`: each key counts at its first
    /// change behind `at`.
    fn corrected_count(&self, range: &KeyRange, at: Revision, now: u64) -> u64 {
        let mut count = now;
        for id in self.log.from(at.next(), 0) {
            let version = self.log.get(id);
            let before = match version.prev {
                NO_RECORD => None,
                prev => Some(self.log.get(prev)),
            };
            let key = self.keys.get(version.key);
            let first = before.as_ref().is_none_or(|before| before.main <= at);
            if !first || !range.contains(&key.bytes) {
                continue;
            }
            let was_live = before.is_some_and(|before| before.kind == Kind::Put);
            let is_live = self.log.get(key.head).kind == Kind::Put;
            count = count + u64::from(was_live) - u64::from(is_live);
        }
        count
    }

    /// Checks M2, M3 and M5 for one key. Returns the accounted bytes of its records.
    fn check_chain(&self, key: KeyId, live: bool) -> u64 {
        let mut size = 0;
        let mut id = self.keys.get(key).head;
        assert!(id != NO_RECORD, "M1");
        assert_eq!(live, self.log.get(id).kind == Kind::Put, "M2");
        while id != NO_RECORD {
            let version = self.log.get(id);
            assert!(version.main <= self.written, "M3");
            size += RECORD_BYTES + version.value.len() as u64;
            id = version.prev;
            let older = if id == NO_RECORD { None } else { Some(self.log.get(id)) };
            match older {
                Some(older) if older.kind == Kind::Put && version.kind == Kind::Put => {
                    assert_eq!(version.create, older.create, "M5");
                    assert_eq!(version.version, older.version + 1, "M5");
                }
                Some(_) if version.kind == Kind::Put => {
                    assert_eq!((version.create, version.version), (version.main, 1), "M5");
                }
                _ => {}
            }
        }
        size
    }
}

/// Bytes of a record in a checkpoint stream.
fn stream_bytes(key: &[u8], value: &[u8]) -> u64 {
    (RECORD_HEAD_BYTES + key.len() + value.len()) as u64
}

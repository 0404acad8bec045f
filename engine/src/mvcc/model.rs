//! The store as plainly as it can be written: each key's versions in a vector, the log in another.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use bytes::Bytes;
use ringbolt_proto::mvccpb::KeyValue;

use super::hash::{Hasher, Remembered};
use super::range::{End, KeyRange};
use super::stream::check_follows;
use super::view::{EventRef, Kind, Values, VersionRef};
use crate::{LeaseId, Reason, Revision};

/// Bytes accounted for each version beside its value.
const VERSION_BYTES: usize = 64;
/// Bytes accounted for each key beside its name.
const KEY_BYTES: usize = 64;

#[derive(Clone, Debug)]
struct Version {
    main: Revision,
    sub: u32,
    kind: Kind,
    create: Revision,
    version: i64,
    lease: LeaseId,
    value: Bytes,
}

/// A store without clock and disk: keys, their versions, and the revision log.
///
/// It lives on one core and has one writer.
#[derive(Debug)]
pub struct Mvcc {
    revision: Revision,
    compacted: Revision,
    keys: BTreeMap<Bytes, Vec<Version>>,
    log: BTreeMap<(Revision, u32), Bytes>,
    removed_to: Revision,
    removal_paused: bool,
    size: usize,
    remembered: Remembered,
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
            keys: BTreeMap::new(),
            log: BTreeMap::new(),
            removed_to: Revision::NEVER,
            removal_paused: false,
            size: 0,
            remembered: Remembered::default(),
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
        self.size as u64
    }

    /// Keys that are live now.
    #[must_use]
    pub fn keys_count(&self) -> u64 {
        self.count(&KeyRange::everything(), self.revision)
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

    /// The version of `key` that was live at revision `at`.
    #[must_use]
    pub fn get(&self, key: &[u8], at: Revision) -> Option<KeyValue> {
        let (key, versions) = self.keys.get_key_value(key)?;
        Some(live_at(key, versions, at)?.to_kv(Values::Full))
    }

    /// How many keys of `range` were live at revision `at`.
    #[must_use]
    pub fn count(&self, range: &KeyRange, at: Revision) -> u64 {
        let mut count = 0;
        self.visit(range, at, &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        });
        count
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

    /// Shows the keys of `range` live at revision `at` in key order, until told to break.
    pub fn visit(
        &self,
        range: &KeyRange,
        at: Revision,
        visitor: &mut dyn FnMut(VersionRef<'_>) -> ControlFlow<()>,
    ) {
        if range.is_empty_interval() {
            return;
        }
        let upper = match &range.end {
            End::Single => Bound::Included(range.start.as_ref()),
            End::Before(end) => Bound::Excluded(end.as_ref()),
            End::Unbounded => Bound::Unbounded,
        };
        let bounds = (Bound::Included(range.start.as_ref()), upper);
        for (key, versions) in self.keys.range::<[u8], _>(bounds) {
            let Some(version) = live_at(key, versions, at) else { continue };
            if visitor(version).is_break() {
                return;
            }
        }
    }

    /// Begins the change that becomes revision `revision() + 1`.
    pub fn begin(&mut self) -> Write<'_> {
        Write { main: self.revision.next(), sub: 0, mvcc: self }
    }

    /// The changes from revision `from` on, ordered by (main, sub).
    pub fn events(&self, from: Revision) -> impl Iterator<Item = EventRef<'_>> {
        self.log.range((from, 0)..).map(|(&(main, sub), key)| self.event(key, main, sub))
    }

    /// What the event's key held just before the event's revision; nothing for a creation, or when
    /// that revision is compacted. Source: contract 7.8.
    #[must_use]
    pub fn previous(&self, event: &EventRef<'_>) -> Option<KeyValue> {
        let before = Revision(event.main.0 - 1);
        if event.is_creation() || before < self.compacted {
            return None;
        }
        self.get(event.key, before)
    }

    /// Makes `at` the compacted revision: reads below it fail from now on.
    ///
    /// Errors: `Compacted`, `FutureRevision`. Source: contract 6.1.
    pub fn compact(&mut self, at: Revision) -> Result<(), Reason> {
        if at <= self.compacted {
            return Err(Reason::Compacted);
        }
        if at > self.revision {
            return Err(Reason::FutureRevision);
        }
        self.remember_hash(at);
        self.compacted = at;
        Ok(())
    }

    /// Removes what compaction left without a reader, about `steps` records at a time.
    /// True when there is more to do.
    pub fn compact_slice(&mut self, steps: usize) -> bool {
        if self.removal_paused || self.removed_to == self.compacted || steps == 0 {
            return !self.removal_paused && self.removed_to != self.compacted;
        }
        let at = self.compacted;
        let doomed: Vec<_> = self
            .log
            .range(..=(at, u32::MAX))
            .filter(|&(&(main, sub), key)| !self.is_kept(&self.event(key, main, sub), at))
            .map(|(&place, key)| (place, key.clone()))
            .collect();
        for (place, key) in doomed {
            self.remove_record(place, &key);
        }
        self.removed_to = at;
        false
    }

    /// Holds back removal while a checkpoint streams.
    pub fn pause_removal(&mut self, paused: bool) {
        self.removal_paused = paused;
    }

    /// Jumps to `revision` with everything below `compacted` compacted.
    pub fn fence(&mut self, revision: Revision, compacted: Revision) {
        assert!(revision >= self.revision, "{revision} behind {}", self.revision);
        assert!(compacted <= revision, "{compacted} above {revision}");
        self.revision = revision;
        self.compacted = self.compacted.max(compacted);
    }

    /// Checks the whole structure; panics at the first flaw.
    pub fn check(&self) {
        let versions: usize = self.keys.values().map(Vec::len).sum();
        assert_eq!(versions, self.log.len());
        assert!(self.log.last_key_value().is_none_or(|(&(main, _), _)| main <= self.revision));
    }

    /// The changes from (main, sub) on.
    pub(super) fn events_at(&self, from: (Revision, u32)) -> impl Iterator<Item = EventRef<'_>> {
        self.log.range(from..).map(|(&(main, sub), key)| self.event(key, main, sub))
    }

    /// Whether a compaction at `at` keeps this event: contract 6.2.
    pub(super) fn is_kept(&self, event: &EventRef<'_>, at: Revision) -> bool {
        let stays = event.kind == Kind::Put || event.main == at;
        event.main > at || (stays && self.is_last_at(event, at))
    }

    /// Whether no later change of the event's key is at or below `at`.
    pub(super) fn is_last_at(&self, event: &EventRef<'_>, at: Revision) -> bool {
        let versions = &self.keys[event.key];
        let last = versions.iter().rev().find(|version| version.main <= at);
        last.is_some_and(|last| (last.main, i64::from(last.sub)) == place(event))
    }

    /// The hashes of the last compactions.
    pub(super) fn remembered(&self) -> &Remembered {
        &self.remembered
    }

    /// Whether the record may follow what is loaded already.
    pub(super) fn check_follows(
        &self,
        record: &super::format::Record<'_>,
        compacted: Revision,
    ) -> Result<(), &'static str> {
        let last = self.keys.get(record.key).and_then(|versions| versions.last());
        check_follows(record, compacted, last.map(|last| (last.kind, last.create, last.version)))
    }

    fn remember_hash(&mut self, at: Revision) {
        let tombstones = |event: EventRef<'_>| event.main == at && event.kind == Kind::Delete;
        let keeps_any =
            self.count(&KeyRange::everything(), at) > 0 || self.events(at).any(tombstones);
        let mut hasher = Hasher::new(self.compacted, at, keeps_any);
        for event in self.events(Revision(0)).take_while(|event| event.main <= at) {
            if self.is_kept(&event, self.compacted) {
                hasher.feed(&event, self.is_kept(&event, at));
            }
        }
        self.remembered.push(hasher.finish());
    }

    /// Sets the revisions of a store that is being loaded.
    pub(super) fn load_revisions(&mut self, revision: Revision, compacted: Revision) {
        self.revision = revision;
        self.compacted = compacted;
        self.removed_to = compacted;
    }

    /// Adds a record to a store that is being loaded.
    pub(super) fn load(&mut self, record: &super::format::Record<'_>) {
        let version = Version {
            main: record.main,
            sub: record.sub,
            kind: record.kind,
            create: record.create,
            version: record.version,
            lease: record.lease,
            value: Bytes::copy_from_slice(record.value),
        };
        self.push(record.key, version);
    }

    fn event<'a>(&'a self, key: &'a Bytes, main: Revision, sub: u32) -> EventRef<'a> {
        let versions = &self.keys[key];
        let found = versions.binary_search_by_key(&(main, sub), |found| (found.main, found.sub));
        let version = &versions[found.expect("the log names versions that exist")];
        EventRef {
            main,
            sub: i64::from(sub),
            kind: version.kind,
            key,
            create: version.create,
            version: version.version,
            lease: version.lease,
            value: &version.value,
            record: 0,
        }
    }

    fn push(&mut self, key: &[u8], version: Version) {
        let place = (version.main, version.sub);
        self.size += VERSION_BYTES + version.value.len();
        if let Some(versions) = self.keys.get_mut(key) {
            versions.push(version);
            let (key, _) = self.keys.get_key_value(key).expect("it was just found");
            self.log.insert(place, key.clone());
            return;
        }
        let key = Bytes::copy_from_slice(key);
        self.size += KEY_BYTES + key.len();
        self.keys.insert(key.clone(), vec![version]);
        self.log.insert(place, key);
    }

    fn remove_record(&mut self, place: (Revision, u32), key: &Bytes) {
        self.log.remove(&place);
        let versions = self.keys.get_mut(key).expect("the log names keys that exist");
        versions.retain(|version| {
            let goes = (version.main, version.sub) == place;
            self.size -= if goes { VERSION_BYTES + version.value.len() } else { 0 };
            !goes
        });
        if versions.is_empty() {
            self.keys.remove(key);
            self.size -= KEY_BYTES + key.len();
        }
    }
}

/// A change in progress. Its reads see what it did so far.
#[derive(Debug)]
pub struct Write<'a> {
    mvcc: &'a mut Mvcc,
    main: Revision,
    sub: u32,
}

impl Write<'_> {
    /// The revision the change gets if it changes anything.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.main
    }

    /// Whether it changed anything so far.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.sub > 0
    }

    /// The store, for reads at older revisions from inside the change.
    #[must_use]
    pub fn mvcc(&self) -> &Mvcc {
        self.mvcc
    }

    /// The live version of `key` as the change left it.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<KeyValue> {
        self.mvcc.get(key, self.main)
    }

    /// As [`Mvcc::count`], of the state inside the change.
    #[must_use]
    pub fn count(&self, range: &KeyRange) -> u64 {
        self.mvcc.count(range, self.main)
    }

    /// As [`Mvcc::range`], of the state inside the change.
    #[must_use]
    pub fn range(&self, range: &KeyRange, limit: usize, values: Values) -> Vec<KeyValue> {
        self.mvcc.range(range, self.main, limit, values)
    }

    /// Gives `key` a version with these bytes, copied. Returns the version it replaces.
    pub fn put(&mut self, key: &[u8], value: &[u8], lease: LeaseId) -> Option<KeyValue> {
        let previous = self.get(key);
        let (create, version) = match &previous {
            Some(kv) => (Revision(kv.create_revision), kv.version + 1),
            None => (self.main, 1),
        };
        let value = Bytes::copy_from_slice(value);
        let (main, sub, kind) = (self.main, self.next_sub(), Kind::Put);
        let version = Version { main, sub, kind, create, version, lease, value };
        self.mvcc.push(key, version);
        previous
    }

    /// Deletes `key`. Returns the version that was live; nothing changes when there was none.
    pub fn delete(&mut self, key: &[u8]) -> Option<KeyValue> {
        let previous = self.get(key)?;
        let version = Version {
            main: self.main,
            sub: self.next_sub(),
            kind: Kind::Delete,
            create: Revision(0),
            version: 0,
            lease: LeaseId(0),
            value: Bytes::new(),
        };
        self.mvcc.push(key, version);
        Some(previous)
    }

    /// Ends the change. Returns the store's revision: one more if anything changed.
    pub fn finish(self) -> Revision {
        if self.changed() {
            self.mvcc.revision = self.main;
        }
        self.mvcc.revision
    }

    fn next_sub(&mut self) -> u32 {
        self.sub += 1;
        self.sub - 1
    }
}

fn live_at<'a>(key: &'a Bytes, versions: &'a [Version], at: Revision) -> Option<VersionRef<'a>> {
    let version = versions.iter().rev().find(|version| version.main <= at)?;
    (version.kind == Kind::Put).then_some(VersionRef {
        key,
        create: version.create,
        mod_: version.main,
        version: version.version,
        lease: version.lease,
        value: &version.value,
    })
}

fn place(event: &EventRef<'_>) -> (Revision, i64) {
    (event.main, event.sub)
}

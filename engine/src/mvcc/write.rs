//! A change of the store: puts and deletes that share a revision.

use bytes::Bytes;
use ringbolt_proto::mvccpb::KeyValue;

use super::Mvcc;
use super::format::Record;
use super::keys::KeyId;
use super::log::{Entry, NO_RECORD};
use super::owned::owned;
use super::range::KeyRange;
use super::stream::check_follows;
use super::view::{Kind, Values};
use crate::{LeaseId, Revision};

/// A change in progress. Its reads see what it did so far; nobody else can look meanwhile.
///
/// It must be finished: what it did cannot be undone.
#[derive(Debug)]
pub struct Write<'a> {
    mvcc: &'a mut Mvcc,
    main: Revision,
    sub: u32,
    finished: bool,
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        let sound = self.finished || self.sub == 0 || std::thread::panicking();
        assert!(sound, "a change that was never finished");
    }
}

impl Mvcc {
    /// Begins the change that becomes revision `revision() + 1`.
    pub fn begin(&mut self) -> Write<'_> {
        Write { main: self.revision.next(), sub: 0, finished: false, mvcc: self }
    }

    /// Sets the revisions of a store that is being loaded.
    pub(super) fn load_revisions(&mut self, revision: Revision, compacted: Revision) {
        self.revision = revision;
        self.compacted = compacted;
        self.compaction.loaded(compacted);
    }

    /// Adds a record to a store that is being loaded.
    ///
    /// Errors: in words, why the record cannot follow what was loaded before it.
    pub(super) fn load(
        &mut self,
        record: &Record<'_>,
        compacted: Revision,
    ) -> Result<(), &'static str> {
        let spot = self.tree.locate(&self.keys, record.key);
        let known = self.tree.at(&spot);
        let last = known.map(|id| self.log.get(self.keys.get(id).head));
        check_follows(record, compacted, last.map(|last| (last.kind, last.create, last.version)))?;
        let live = record.kind == Kind::Put;
        let id = match known {
            Some(id) => {
                self.tree.set_live(&spot, live);
                id
            }
            None => {
                let id = self.add_key(record.key);
                self.tree.insert(&self.keys, spot, id);
                if !live {
                    let spot = self.tree.locate(&self.keys, record.key);
                    self.tree.set_live(&spot, false);
                }
                id
            }
        };
        self.append(Entry {
            main: record.main,
            sub: record.sub,
            key: id,
            kind: record.kind,
            create: record.create,
            version: record.version,
            lease: record.lease,
            value: owned(record.value),
        });
        Ok(())
    }
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
        assert!(!key.is_empty(), "an empty key is refused before it is proposed");
        let spot = self.mvcc.tree.locate(&self.mvcc.keys, key);
        let previous = self.mvcc.tree.at(&spot).and_then(|id| self.newest(id));
        let id = match self.mvcc.tree.at(&spot) {
            Some(id) => {
                if previous.is_none() {
                    self.mvcc.tree.set_live(&spot, true);
                }
                id
            }
            None => {
                let id = self.mvcc.add_key(key);
                self.mvcc.tree.insert(&self.mvcc.keys, spot, id);
                id
            }
        };
        let (create, version) = match &previous {
            Some(kv) => (Revision(kv.create_revision), kv.version + 1),
            None => (self.main, 1),
        };
        let value = owned(value);
        let (main, sub, kind) = (self.main, self.next_sub(), Kind::Put);
        self.mvcc.append(Entry { main, sub, key: id, kind, create, version, lease, value });
        previous
    }

    /// Deletes `key`. Returns the version that was live; nothing changes when there was none.
    pub fn delete(&mut self, key: &[u8]) -> Option<KeyValue> {
        let spot = self.mvcc.tree.locate(&self.mvcc.keys, key);
        let id = self.mvcc.tree.at(&spot)?;
        let previous = self.newest(id)?;
        self.mvcc.tree.set_live(&spot, false);
        let entry = Entry {
            main: self.main,
            sub: self.next_sub(),
            key: id,
            kind: Kind::Delete,
            create: Revision(0),
            version: 0,
            lease: LeaseId(0),
            value: Bytes::new(),
        };
        self.mvcc.append(entry);
        Some(previous)
    }

    /// Ends the change. Returns the store's revision: one more if anything changed.
    pub fn finish(mut self) -> Revision {
        self.finished = true;
        if self.changed() {
            self.mvcc.revision = self.main;
        }
        self.mvcc.revision
    }

    /// The key's newest version, if that is a put.
    fn newest(&self, id: KeyId) -> Option<KeyValue> {
        let key = self.mvcc.keys.get(id);
        assert!(key.head != NO_RECORD, "M1");
        let version = self.mvcc.log.get(key.head);
        (version.kind == Kind::Put).then(|| KeyValue {
            key: key.bytes.clone(),
            create_revision: version.create.0,
            mod_revision: version.main.0,
            version: version.version,
            value: version.value.clone(),
            lease: version.lease.0,
        })
    }

    fn next_sub(&mut self) -> u32 {
        let sub = self.sub;
        self.sub = sub.checked_add(1).expect("a request holds fewer than 2^32 changes");
        sub
    }
}

//! The store as plainly as it can be written: a list of changes that is never shortened, replayed
//! for every question.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use ringbolt_proto::mvccpb::KeyValue;

use super::range::KeyRange;
use super::view::{HashKv, Kind};
use crate::{LeaseId, Reason, Revision};

/// One change. The key-value is as [`super::EventRef::kv`] gives it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    pub(super) sub: u32,
    pub(super) kind: Kind,
    pub(super) kv: KeyValue,
}

impl Change {
    pub(super) fn main(&self) -> Revision {
        Revision(self.kv.mod_revision)
    }
}

/// The model.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) revision: Revision,
    pub(super) compacted: Revision,
    pub(super) log: Vec<Change>,
    pub(super) remembered: Vec<HashKv>,
}

impl Model {
    pub(super) fn new() -> Model {
        Model {
            revision: Revision(1),
            compacted: Revision(-1),
            log: Vec::new(),
            remembered: Vec::new(),
        }
    }

    /// Every key live at `at`.
    pub(super) fn state(&self, at: Revision) -> BTreeMap<Bytes, KeyValue> {
        let mut state = BTreeMap::new();
        for change in self.log.iter().take_while(|change| change.main() <= at) {
            match change.kind {
                Kind::Put => state.insert(change.kv.key.clone(), change.kv.clone()),
                Kind::Delete => state.remove(&change.kv.key),
            };
        }
        state
    }

    /// The keys of `range` live at `at`, in order.
    pub(super) fn range(&self, range: &KeyRange, at: Revision) -> Vec<KeyValue> {
        self.state(at).into_values().filter(|kv| range.contains(&kv.key)).collect()
    }

    /// Adds a put to the change of revision `revision + 1`. Returns what it replaces.
    pub(super) fn put(&mut self, key: &[u8], value: &[u8], lease: LeaseId) -> Option<KeyValue> {
        let main = self.revision.next();
        let key = Bytes::copy_from_slice(key);
        let previous = self.state(main).remove(&key);
        let (create, version) =
            previous.as_ref().map_or((main.0, 1), |kv| (kv.create_revision, kv.version + 1));
        let kv = KeyValue {
            key,
            create_revision: create,
            mod_revision: main.0,
            version,
            value: Bytes::copy_from_slice(value),
            lease: lease.0,
        };
        self.push(Kind::Put, kv);
        previous
    }

    /// Adds a deletion to the change of revision `revision + 1`. Returns what it removes.
    pub(super) fn delete(&mut self, key: &[u8]) -> Option<KeyValue> {
        let main = self.revision.next();
        let previous = self.state(main).remove(key)?;
        let key = previous.key.clone();
        let kv = KeyValue { key, mod_revision: main.0, ..KeyValue::default() };
        self.push(Kind::Delete, kv);
        Some(previous)
    }

    /// Ends the change.
    pub(super) fn finish(&mut self) -> Revision {
        if self.log.last().is_some_and(|change| change.main() > self.revision) {
            self.revision = self.revision.next();
        }
        self.revision
    }

    pub(super) fn compact(&mut self, at: Revision) -> Result<(), Reason> {
        if at <= self.compacted {
            return Err(Reason::Compacted);
        }
        if at > self.revision {
            return Err(Reason::FutureRevision);
        }
        let keeps = |change: &&Change| change.main() <= at && self.is_kept(change, at);
        let keep: Vec<&Change> = self.log.iter().filter(keeps).collect();
        self.remembered.push(self.hash_of(at, &keep));
        self.compacted = at;
        Ok(())
    }

    pub(super) fn fence(&mut self, revision: Revision, compacted: Revision) {
        self.revision = revision;
        let _ = self.compact(compacted);
    }

    /// The changes a store holds whose removal is complete.
    pub(super) fn stored(&self) -> Vec<&Change> {
        self.log.iter().filter(|change| self.is_kept(change, self.compacted)).collect()
    }

    pub(super) fn hash_kv(&self, revision: i64) -> Result<HashKv, Reason> {
        let last = self.remembered.iter().rev().take(10);
        if let Some(hash) = last.into_iter().find(|hash| hash.hash_revision == revision) {
            return Ok(*hash);
        }
        if revision > self.revision.0 {
            return Err(Reason::FutureRevision);
        }
        if 0 < revision && revision < self.compacted.0 {
            return Err(Reason::Compacted);
        }
        let at = if revision == 0 { self.revision } else { Revision(revision) };
        let keeps = |change: &&Change| {
            change.kind == Kind::Put && change.main() <= at && self.is_kept(change, at)
        };
        let keep: Vec<&Change> = self.log.iter().filter(keeps).collect();
        Ok(self.hash_of(at, &keep))
    }

    fn hash_of(&self, at: Revision, keep: &[&Change]) -> HashKv {
        let mut bytes = b"key".to_vec();
        for change in self.stored().into_iter().filter(|change| change.main() <= at) {
            let main = change.main();
            let deletion = change.kind == Kind::Delete;
            if main <= self.compacted && !keep.is_empty() && !keep.contains(&change) {
                continue;
            }
            if main == self.compacted && deletion {
                continue;
            }
            bytes.extend(main.0.to_be_bytes());
            bytes.push(b'_');
            bytes.extend(u64::from(change.sub).to_be_bytes());
            if deletion {
                bytes.push(b't');
                let key = change.kv.key.clone();
                bytes.extend(KeyValue { key, ..KeyValue::default() }.encode_to_vec());
            } else {
                bytes.extend(change.kv.encode_to_vec());
            }
        }
        HashKv {
            hash: crc32c::crc32c(&bytes),
            compact_revision: self.compacted.0,
            hash_revision: at.0,
        }
    }

    /// Contract 6.2.
    fn is_kept(&self, change: &Change, at: Revision) -> bool {
        let place = (change.main(), change.sub);
        let newer = self.log.iter().any(|other| {
            other.kv.key == change.kv.key && (other.main(), other.sub) > place && other.main() <= at
        });
        change.main() > at || (!newer && (change.kind == Kind::Put || change.main() == at))
    }

    fn push(&mut self, kind: Kind, kv: KeyValue) {
        let sub = match self.log.last() {
            Some(last) if last.main().0 == kv.mod_revision => last.sub + 1,
            _ => 0,
        };
        self.log.push(Change { sub, kind, kv });
    }
}

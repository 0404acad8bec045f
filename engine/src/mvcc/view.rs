//! What reads of the store hand out: versions, events, hashes.

use bytes::Bytes;
use ringbolt_proto::mvccpb::KeyValue;

use super::keys::Key;
use super::log::Version;
use crate::{LeaseId, Revision};

/// Whether a read hands out values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Key-values whole.
    Full,
    /// Key-values with an empty value. The lease is still filled: contract 2.9, where it is 0, is
    /// the caller's, because it depends on the sort target.
    KeysOnly,
}

/// One live version of a key, borrowed from the store.
#[derive(Clone, Copy, Debug)]
pub struct VersionRef<'a> {
    /// The key; a clone shares the store's bytes.
    pub key: &'a Bytes,
    /// Revision of the put that created the key.
    pub create: Revision,
    /// Revision of this version.
    pub mod_: Revision,
    /// 1 at creation, one more with every put.
    pub version: i64,
    /// The attached lease, 0 for none.
    pub lease: LeaseId,
    /// The value; a clone shares the store's bytes.
    pub value: &'a Bytes,
}

impl VersionRef<'_> {
    /// This version as the API's message; key and value are shared, not copied.
    #[must_use]
    pub fn to_kv(&self, values: Values) -> KeyValue {
        KeyValue {
            key: self.key.clone(),
            create_revision: self.create.0,
            mod_revision: self.mod_.0,
            version: self.version,
            value: match values {
                Values::Full => self.value.clone(),
                Values::KeysOnly => Bytes::new(),
            },
            lease: self.lease.0,
        }
    }
}

/// What an event did to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The key has a value from here on.
    Put,
    /// The key is gone from here on.
    Delete,
}

/// One change, borrowed from the revision log.
#[derive(Clone, Copy, Debug)]
pub struct EventRef<'a> {
    /// Revision of the change.
    pub main: Revision,
    /// Position inside the revision, from 0.
    pub sub: i64,
    /// Put or delete.
    pub kind: Kind,
    /// The key; a clone shares the store's bytes.
    pub key: &'a Bytes,
    /// Revision of the put that created the key; 0 for a delete.
    pub create: Revision,
    /// Version of the key; 0 for a delete.
    pub version: i64,
    /// The attached lease; 0 for a delete.
    pub lease: LeaseId,
    /// The value; empty for a delete.
    pub value: &'a Bytes,
    /// Where the record lies in the revision log.
    pub(super) record: u32,
}

impl EventRef<'_> {
    /// The event's key-value: whole for a put (contract 7.11), key and `mod_revision` alone for a
    /// delete (7.10).
    #[must_use]
    pub fn kv(&self) -> KeyValue {
        KeyValue {
            key: self.key.clone(),
            create_revision: self.create.0,
            mod_revision: self.main.0,
            version: self.version,
            value: self.value.clone(),
            lease: self.lease.0,
        }
    }

    /// Whether this put created its key.
    #[must_use]
    pub fn is_creation(&self) -> bool {
        self.kind == Kind::Put && self.create == self.main
    }
}

/// The answer to `HashKV`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKv {
    /// CRC-32C over the revision records.
    pub hash: u32,
    /// The compacted revision the hash was taken with; -1 for never.
    pub compact_revision: i64,
    /// The revision up to which records were taken.
    pub hash_revision: i64,
}

/// The version as a reader sees it; nothing for a deletion.
pub(super) fn live<'a>(key: &'a Key, version: &Version<'a>) -> Option<VersionRef<'a>> {
    (version.kind == Kind::Put).then_some(VersionRef {
        key: &key.bytes,
        create: version.create,
        mod_: version.main,
        version: version.version,
        lease: version.lease,
        value: version.value,
    })
}

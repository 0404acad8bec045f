//! The key table: each key once, with the newest version of its chain.

use bytes::Bytes;

use super::arena::Arena;
use super::log::NO_RECORD;

/// A key's number. Numbers of keys that are gone are used again.
pub(super) type KeyId = u32;

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) bytes: Bytes,
    /// The newest version, a deletion too; [`NO_RECORD`] only between two steps of the writer.
    pub(super) head: u32,
}

impl Default for Key {
    fn default() -> Key {
        Key { bytes: Bytes::new(), head: NO_RECORD }
    }
}

/// Every key that has a version.
pub(super) type Keys = Arena<Key>;

//! `HashKV`, byte for byte as etcd computes it.
//!
//! The hash is CRC-32C over the bucket name, then over the stored records in (main, sub) order:
//! first the record's key in etcd's file, then its value there.
//!
//! ```text
//! key    u64 main (big-endian) | '_' | u64 sub (big-endian) | 't' for a deletion
//! value  mvccpb.KeyValue, fields in order, zero fields left out; a deletion has the key alone
//! ```
//!
//! Source: contract 12.5 and 12.6.

use std::collections::VecDeque;

use crate::limits::COMPACTION_HASHES_KEPT;
use crate::{Reason, Revision};

use super::Mvcc;
use super::range::KeyRange;
use super::view::{EventRef, HashKv, Kind};
use super::visit::Rest;

/// The name of etcd's bucket of versions; it seeds the hash.
const BUCKET: &[u8] = b"key";

/// A `HashKV` that is being taken in steps.
#[derive(Clone, Debug)]
pub struct HashWalk {
    asked: i64,
    hasher: Hasher,
    /// Whether anything is live at the hash's revision is still being found out.
    looking: Option<Rest>,
    next: (Revision, u32),
}

/// The hashes of the last compactions, oldest first.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    hashes: VecDeque<HashKv>,
}

impl Remembered {
    pub(super) fn push(&mut self, hash: HashKv) {
        if self.hashes.len() == COMPACTION_HASHES_KEPT {
            self.hashes.pop_front();
        }
        self.hashes.push_back(hash);
    }

    fn find(&self, revision: i64) -> Option<HashKv> {
        self.hashes.iter().find(|hash| hash.hash_revision == revision).copied()
    }
}

/// A hash in the making.
#[derive(Clone, Debug)]
pub(super) struct Hasher {
    crc: u32,
    compacted: Revision,
    revision: Revision,
    /// Whether anything is kept at `revision`; with nothing kept etcd skips nothing.
    pub(super) keeps_any: bool,
    scratch: Vec<u8>,
}

impl Hasher {
    /// `keeps_any` is set before the first record is fed.
    pub(super) fn new(compacted: Revision, revision: Revision) -> Hasher {
        let crc = crc32c::crc32c(BUCKET);
        Hasher { crc, compacted, revision, keeps_any: false, scratch: Vec::with_capacity(64) }
    }

    /// Takes the next stored record. `kept` tells whether a compaction at the hash's revision
    /// keeps it.
    pub(super) fn feed(&mut self, event: &EventRef<'_>, kept: bool) {
        if event.main > self.revision
            || (event.main <= self.compacted && self.keeps_any && !kept)
            || (event.main == self.compacted && event.kind == Kind::Delete)
        {
            return;
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(&event.main.0.to_be_bytes());
        self.scratch.push(b'_');
        self.scratch.extend_from_slice(&event.sub.to_be_bytes());
        if event.kind == Kind::Delete {
            self.scratch.push(b't');
        }
        put_bytes_field(&mut self.scratch, 0x0a, event.key);
        put_number_field(&mut self.scratch, 0x10, event.create.0);
        if event.kind == Kind::Put {
            put_number_field(&mut self.scratch, 0x18, event.main.0);
        }
        put_number_field(&mut self.scratch, 0x20, event.version);
        if !event.value.is_empty() {
            self.scratch.push(0x2a);
            put_varint(&mut self.scratch, event.value.len() as u64);
            self.crc = crc32c::crc32c_append(self.crc, &self.scratch);
            self.crc = crc32c::crc32c_append(self.crc, event.value);
            self.scratch.clear();
        }
        put_number_field(&mut self.scratch, 0x30, event.lease.0);
        self.crc = crc32c::crc32c_append(self.crc, &self.scratch);
    }

    pub(super) fn finish(&self) -> HashKv {
        HashKv {
            hash: self.crc,
            compact_revision: self.compacted.0,
            hash_revision: self.revision.0,
        }
    }
}

impl Mvcc {
    /// The hash of the store's records up to `revision`; 0 is the current revision.
    ///
    /// Errors: `FutureRevision`, `Compacted`. Source: contract 12.5, 12.6.
    pub fn hash_kv(&self, revision: i64) -> Result<HashKv, Reason> {
        let mut walk = self.hash_walk(revision)?;
        loop {
            if let Some(hash) = self.hash_step(&mut walk, usize::MAX)? {
                return Ok(hash);
            }
        }
    }

    /// Begins to take the hash of [`Mvcc::hash_kv`] in steps, between which writes may go on.
    ///
    /// Errors: as [`Mvcc::hash_kv`].
    pub fn hash_walk(&self, revision: i64) -> Result<HashWalk, Reason> {
        let compacted = self.compacted();
        let at = match revision {
            // The first step answers it.
            asked if self.compaction.remembered.find(asked).is_some() => Revision(asked),
            0 => self.revision(),
            asked if asked > self.revision().0 => return Err(Reason::FutureRevision),
            asked if asked > 0 && asked < compacted.0 => return Err(Reason::Compacted),
            asked => Revision(asked),
        };
        let hasher = Hasher::new(compacted, at);
        let looking = Some(KeyRange::everything().into());
        Ok(HashWalk { asked: revision, hasher, looking, next: (Revision(0), 0) })
    }

    /// Goes on by `records`; the hash when it is complete. A compaction between two steps makes
    /// the walk begin again.
    ///
    /// Errors: `Compacted`, when the revision was compacted meanwhile.
    pub fn hash_step(&self, walk: &mut HashWalk, records: usize) -> Result<Option<HashKv>, Reason> {
        if let Some(hash) = self.compaction.remembered.find(walk.asked) {
            return Ok(Some(hash));
        }
        if walk.hasher.compacted != self.compacted() {
            *walk = self.hash_walk(walk.asked)?;
        }
        let HashWalk { hasher, next, looking, .. } = walk;
        let (compacted, at) = (hasher.compacted, hasher.revision);
        if let Some(rest) = looking {
            let Some(any) = self.any_live_on(rest, at, records) else { return Ok(None) };
            hasher.keeps_any = any;
            *looking = None;
        }
        for (taken, event) in self.events_at(*next).enumerate() {
            if event.main > at {
                break;
            }
            if taken == records {
                let sub = u32::try_from(event.sub).expect("the writer counts subs in u32");
                *next = (event.main, sub);
                return Ok(None);
            }
            if self.is_kept(&event, compacted) {
                let kept = event.kind == Kind::Put && self.is_last_at(&event, at);
                hasher.feed(&event, kept);
            }
        }
        Ok(Some(hasher.finish()))
    }
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

fn put_number_field(out: &mut Vec<u8>, tag: u8, number: i64) {
    if number != 0 {
        out.push(tag);
        put_varint(out, number.cast_unsigned());
    }
}

fn put_bytes_field(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    //! The hashes the contract names; those taken from a real etcd are in `tests/hash_vectors.rs`.
    use super::*;

    #[test]
    fn fresh_store() {
        let want = HashKv { hash: 1_084_519_789, compact_revision: -1, hash_revision: 1 };
        assert_eq!(Mvcc::new().hash_kv(0), Ok(want));
        assert_eq!(Mvcc::new().hash_kv(-7), Ok(HashKv { hash_revision: -7, ..want }));
        assert_eq!(Mvcc::new().hash_kv(2), Err(Reason::FutureRevision));
    }
}

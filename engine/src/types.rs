//! Numbers with a meaning. None of them converts to another by itself.

use std::fmt;

/// A store revision (main). A fresh store is at 1; -1 stands for "never compacted".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub i64);

/// The id of a lease. Any 64-bit number a client chose; 0 means no lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

/// A position in the raft log, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RaftIndex(pub u64);

/// A raft term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// A member of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

/// A cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u64);

impl Revision {
    /// The revision of a store nobody has written to.
    pub const FIRST: Revision = Revision(1);
    /// The compacted revision of a store that was never compacted.
    pub const NEVER: Revision = Revision(-1);

    /// The revision after this one.
    #[must_use]
    pub fn next(self) -> Revision {
        Revision(self.0 + 1)
    }
}

impl RaftIndex {
    /// The index after this one.
    #[must_use]
    pub fn next(self) -> RaftIndex {
        RaftIndex(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for MemberId {
    /// As etcd prints it: lower-case hex without leading zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// Builds the hashers of every map below `server/`: with a fixed seed, so that iteration repeats.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedHasher;

impl std::hash::BuildHasher for FixedHasher {
    type Hasher = FixedHash;
    fn build_hasher(&self) -> FixedHash {
        FixedHash(0xcbf2_9ce4_8422_2325)
    }
}

/// A multiply-and-fold hash over 8-byte words. Not for hostile input that must not collide: maps
/// keyed by client bytes are bounded or ordered.
#[derive(Clone, Copy, Debug)]
pub struct FixedHash(u64);

impl FixedHash {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        let bytes = product.to_le_bytes();
        let low = u64::from_le_bytes(bytes[..8].try_into().expect("half of sixteen bytes"));
        let high = u64::from_le_bytes(bytes[8..].try_into().expect("half of sixteen bytes"));
        self.0 = low ^ high;
    }
}

impl std::hash::Hasher for FixedHash {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word) ^ ((chunk.len() as u64) << 56));
        }
    }
}

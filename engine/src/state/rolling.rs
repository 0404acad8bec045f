//! The rolling hash: one number for everything that was ever applied.
//!
//! Each applied index mixes its number and its effects into the hash, so two members that applied
//! the same log to the same effect have the same hash at the same index, and members that differ
//! once differ from then on. It is compared between members and kept in checkpoints. It guards
//! against our own mistakes and broken memory, not against an adversary.

use crate::types::{LeaseId, RaftIndex, Revision};

/// The hash up to some index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rolling(u64);

/// What an effect begins with, so that different effects with equal numbers differ.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Effect {
    Index = 1,
    Put = 2,
    Delete = 3,
    Compact = 4,
    Grant = 5,
    Revoke = 6,
    Record = 7,
}

impl Rolling {
    /// The hash of a checkpoint.
    #[must_use]
    pub fn resume(value: u64) -> Rolling {
        Rolling(value)
    }

    /// The hash as a number.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }

    pub(super) fn index(&mut self, index: RaftIndex) {
        self.effect(Effect::Index, &[index.0]);
    }

    pub(super) fn put(&mut self, revision: Revision, key: &[u8], value: &[u8], lease: LeaseId) {
        let bytes = [sum(key), sum(value)];
        self.effect(Effect::Put, &[word(revision.0), bytes[0], bytes[1], word(lease.0)]);
    }

    pub(super) fn delete(&mut self, revision: Revision, key: &[u8]) {
        self.effect(Effect::Delete, &[word(revision.0), sum(key)]);
    }

    pub(super) fn compact(&mut self, revision: Revision, compacted: Revision) {
        self.effect(Effect::Compact, &[word(revision.0), word(compacted.0)]);
    }

    pub(super) fn grant(&mut self, lease: LeaseId, ttl_s: i64) {
        self.effect(Effect::Grant, &[word(lease.0), word(ttl_s)]);
    }

    pub(super) fn revoke(&mut self, lease: LeaseId) {
        self.effect(Effect::Revoke, &[word(lease.0)]);
    }

    /// Alarms, members and versions change rarely: their command's bytes stand for the effect.
    pub(super) fn record(&mut self, bytes: &[u8]) {
        self.effect(Effect::Record, &[sum(bytes)]);
    }

    fn effect(&mut self, effect: Effect, words: &[u64]) {
        self.mix(effect as u64);
        for word in words {
            self.mix(*word);
        }
    }

    /// Multiplying by an odd number and folding the high half down moves every input bit into
    /// every bit of the hash after two rounds.
    fn mix(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = (mixed ^ (mixed >> 29)).rotate_left(17);
    }
}

fn word(number: i64) -> u64 {
    number.cast_unsigned()
}

/// Length and checksum of some bytes in one number.
fn sum(bytes: &[u8]) -> u64 {
    (bytes.len() as u64) << 32 | u64::from(crc32fast::hash(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number of an effect matters, and so does the order of effects.
    #[test]
    fn every_number_counts() {
        let put = |revision, key: &[u8], value: &[u8], lease| {
            let mut rolling = Rolling::default();
            rolling.put(Revision(revision), key, value, LeaseId(lease));
            rolling.value()
        };
        let first = put(2, b"a", b"1", 0);
        for other in [
            put(3, b"a", b"1", 0),
            put(2, b"b", b"1", 0),
            put(2, b"a", b"2", 0),
            put(2, b"a", b"1", 1),
            put(2, b"a1", b"", 0),
        ] {
            assert_ne!(first, other);
        }
        let mut there = Rolling::default();
        there.delete(Revision(2), b"a");
        there.delete(Revision(3), b"b");
        let mut back = Rolling::default();
        back.delete(Revision(3), b"b");
        back.delete(Revision(2), b"a");
        assert_ne!(there, back);
    }
}

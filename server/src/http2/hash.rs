//! Hashing of stream ids: fixed, so that nothing depends on a random state.

use std::hash::{BuildHasher, Hasher};

/// Multiplies by an odd constant. Ids of one connection are odd and rise by two, so a client that
/// chooses them badly gains nothing but the collisions of its own map.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedHash;

/// See [`FixedHash`].
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedHasher(u64);

impl BuildHasher for FixedHash {
    type Hasher = FixedHasher;
    fn build_hasher(&self) -> FixedHasher {
        FixedHasher(0)
    }
}

impl Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

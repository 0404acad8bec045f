//! Bytes the store owns, in one allocation each.
//!
//! `Bytes` made from a vector allocates its count at the first clone: a second allocation of 32
//! bytes for each value that was ever read. An owner that holds the bytes beside the count needs
//! none, and the allocator's sizes are met exactly: 16 n bytes, 8 for the count, 8 for malloc.

use bytes::Bytes;

/// Above this a second, small allocation no longer matters.
const INLINE_BYTES_MAX: usize = 512;

/// A copy of `bytes` that shares its memory with nothing but its own clones.
pub(super) fn owned(bytes: &[u8]) -> Bytes {
    macro_rules! by_size {
        ($($units:literal)*) => {
            match bytes.len().div_ceil(16) {
                0 => Bytes::new(),
                $($units => inline::<{ $units * 16 }>(bytes),)*
                _ => Bytes::copy_from_slice(bytes),
            }
        };
    }
    by_size!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32)
}

fn inline<const N: usize>(bytes: &[u8]) -> Bytes {
    const { assert!(N <= INLINE_BYTES_MAX) };
    let mut owner = [0u8; N];
    owner[..bytes.len()].copy_from_slice(bytes);
    let mut held = Bytes::from_owner(owner);
    held.truncate(bytes.len());
    held
}

#[cfg(test)]
mod tests {
    //! Proves that a copy holds the bytes at and around every size class.
    use super::*;

    #[test]
    fn copies_every_size() {
        let source: Vec<u8> = (0..=255u8).cycle().take(1100).collect();
        for size in 0..source.len() {
            let held = owned(&source[..size]);
            assert_eq!(held, &source[..size], "{size}");
            assert_eq!(held.clone(), held);
        }
    }
}

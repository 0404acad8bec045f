//! Bytes the store owns, in as little memory as the allocator gives.
//!
//! `Bytes` made from a vector allocates its count at the first clone: a second allocation of 32
//! bytes for each value that was ever read. An owner that holds the bytes beside the count needs
//! none, but its 16 bytes of head may push a value into the next size class. The cheaper one of the
//! two is taken: a 240-byte value is held inline (256), one of 256 bytes is not (256 + 32, not
//! 320).

use bytes::Bytes;

/// Above this a second, small allocation no longer matters.
const INLINE_BYTES_MAX: usize = 512;
/// What an owner costs beside its bytes: the count and how to drop it.
const INLINE_HEAD_BYTES: usize = 16;
/// The count of bytes that are held apart from it, once they were cloned.
const COUNT_BYTES: usize = 32;
/// Up to here size classes are 16 bytes apart; above, there are four to a doubling.
const FINE_CLASS_BYTES_MAX: usize = 64;

/// A copy of `bytes` that shares its memory with nothing but its own clones.
pub(super) fn owned(bytes: &[u8]) -> Bytes {
    macro_rules! by_size {
        ($($units:literal)*) => {
            match bytes.len().div_ceil(16) {
                0 => Bytes::new(),
                $($units if is_cheaper_inline(bytes.len()) => inline::<{ $units * 16 }>(bytes),)*
                _ => Bytes::from(Box::<[u8]>::from(bytes)),
            }
        };
    }
    by_size!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32)
}

/// Whether one allocation with the count costs no more than two.
fn is_cheaper_inline(size: usize) -> bool {
    let one = class_bytes(size.next_multiple_of(16) + INLINE_HEAD_BYTES);
    one <= class_bytes(size) + COUNT_BYTES
}

/// The size class of an allocation. Source: the bins of mimalloc, which jemalloc's equal.
fn class_bytes(size: usize) -> usize {
    if size <= FINE_CLASS_BYTES_MAX {
        return size.next_multiple_of(16);
    }
    let step = size.next_power_of_two() / 8;
    size.next_multiple_of(step)
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

    /// Sizes just below, at and above a class, and which way is cheaper there.
    #[test]
    fn takes_the_cheaper_way() {
        assert_eq!([48, 64, 65, 128, 129, 272].map(class_bytes), [48, 64, 80, 128, 160, 320]);
        assert_eq!([20, 240, 256].map(is_cheaper_inline), [true, true, false]);
    }
}

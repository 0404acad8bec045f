//! A leaf: up to 128 keys, one bit each for "live".

use super::super::keys::{KeyId, Keys};
use super::heads::{Heads, common};

/// Keys of a leaf at most: one bit each in a `u128`. Few in tests, so that small ones split too.
pub(super) const LEAF_KEYS_MAX: usize = if cfg!(test) { 8 } else { 128 };
/// Below this a leaf joins a neighbour if both fit well into one.
pub(super) const LEAF_KEYS_LOW: usize = LEAF_KEYS_MAX / 4;
/// Keys of two leaves that may be joined, at most: room for growth stays.
pub(super) const LEAF_KEYS_JOINED_MAX: usize = LEAF_KEYS_MAX / 4 * 3;

const _: () = assert!(LEAF_KEYS_MAX <= u128::BITS as usize);
const _: () = assert!(LEAF_KEYS_LOW < LEAF_KEYS_JOINED_MAX);
const _: () = assert!(LEAF_KEYS_JOINED_MAX < LEAF_KEYS_MAX);

/// A leaf of the tree.
#[derive(Debug, Default)]
pub(super) struct Leaf {
    heads: Heads,
    ids: Vec<KeyId>,
    live: u128,
}

impl Leaf {
    pub(super) fn new() -> Leaf {
        Leaf {
            heads: Heads::with_capacity(LEAF_KEYS_MAX),
            ids: Vec::with_capacity(LEAF_KEYS_MAX),
            live: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn id(&self, index: usize) -> KeyId {
        self.ids[index]
    }

    pub(super) fn is_live(&self, index: usize) -> bool {
        self.live >> index & 1 == 1
    }

    /// Live keys of the leaf.
    pub(super) fn live(&self) -> u32 {
        self.live.count_ones()
    }

    /// Live keys before `index`.
    pub(super) fn live_before(&self, index: usize) -> u32 {
        (self.live & low_bits(index)).count_ones()
    }

    /// The first live key at or behind `index`; past the last key if there is none.
    pub(super) fn next_live(&self, index: usize) -> usize {
        let ahead = self.live & !low_bits(index);
        ahead.trailing_zeros() as usize
    }

    pub(super) fn search(&self, keys: &Keys, key: &[u8]) -> Result<usize, usize> {
        self.heads.search(key, |index| &keys.get(self.ids[index]).bytes)
    }

    pub(super) fn insert(&mut self, keys: &Keys, index: usize, id: KeyId) {
        assert!(self.len() < LEAF_KEYS_MAX, "a full leaf is split first");
        self.ids.insert(index, id);
        let ids = &self.ids;
        self.heads.insert(index, |index| &keys.get(ids[index]).bytes);
        let low = self.live & low_bits(index);
        self.live = low | (self.live ^ low) << 1 | 1 << index;
    }

    pub(super) fn remove(&mut self, index: usize) {
        self.ids.remove(index);
        self.heads.remove(index);
        let low = self.live & low_bits(index);
        self.live = low | (self.live >> index >> 1) << index;
    }

    /// Whether the bit changed.
    pub(super) fn set_live(&mut self, index: usize, live: bool) -> bool {
        let was = self.is_live(index);
        let bit = 1 << index;
        self.live = if live { self.live | bit } else { self.live & !bit };
        was != live
    }

    /// Moves the keys from `index` on into a leaf of their own. Returns it and the shortest key
    /// that parts the two.
    pub(super) fn split(&mut self, keys: &Keys, index: usize) -> (Leaf, Box<[u8]>) {
        let mut right = Leaf::new();
        right.ids.extend_from_slice(&self.ids[index..]);
        right.live = self.live >> index;
        right.rebuild(keys);
        self.ids.truncate(index);
        self.live &= low_bits(index);
        self.heads.truncate(index);
        self.rebuild(keys);
        let last = &keys.get(self.ids[index - 1]).bytes;
        let first = &keys.get(right.ids[0]).bytes;
        let parting = first[..=common(last, first)].into();
        (right, parting)
    }

    /// Takes over the keys of the leaf to the right.
    pub(super) fn join(&mut self, keys: &Keys, right: &Leaf) {
        self.live |= right.live << self.len();
        self.ids.extend_from_slice(&right.ids);
        self.rebuild(keys);
    }

    pub(super) fn check(&self, keys: &Keys, low: Option<&[u8]>, high: Option<&[u8]>) {
        self.heads.check(self.len(), |index| &keys.get(self.ids[index]).bytes);
        assert_eq!(self.live & !low_bits(self.len()), 0, "a live bit without a key");
        for &id in &self.ids {
            let key = keys.get(id).bytes.as_ref();
            assert!(low.is_none_or(|low| low <= key), "key below its leaf");
            assert!(high.is_none_or(|high| key < high), "key above its leaf");
        }
    }

    fn rebuild(&mut self, keys: &Keys) {
        let ids = &self.ids;
        self.heads.rebuild(ids.len(), |index| &keys.get(ids[index]).bytes);
    }
}

/// A mask of the lowest `count` bits.
fn low_bits(count: usize) -> u128 {
    if count == 128 { u128::MAX } else { (1 << count) - 1 }
}

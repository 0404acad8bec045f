//! The sorted keys of a node, cut to what tells them apart: the prefix all of them share is kept
//! once, and the eight bytes behind it as one number. A search compares numbers; only keys whose
//! numbers are equal are compared in full.
//!
//! ```text
//! keys    /registry/pods/a  /registry/pods/bb  /registry/pods/bbbbbbbbbb
//! prefix  "/registry/pods/"
//! heads   0x61000000_00000000  0x62620000_00000000  0x62626262_62626262
//! ```

use std::cmp::Ordering;

/// Prefix and heads of the keys of a node. The keys themselves are the node's.
#[derive(Debug, Default)]
pub(super) struct Heads {
    prefix: Box<[u8]>,
    heads: Vec<u64>,
}

impl Heads {
    pub(super) fn with_capacity(count: usize) -> Heads {
        Heads { prefix: Box::default(), heads: Vec::with_capacity(count) }
    }

    /// Heads of `count` sorted keys.
    pub(super) fn rebuild<'a>(&mut self, count: usize, full: impl Fn(usize) -> &'a [u8]) {
        let shared = if count < 2 { 0 } else { common(full(0), full(count - 1)) };
        self.prefix = if shared == 0 { Box::default() } else { full(0)[..shared].into() };
        self.refill(count, full);
    }

    /// Where `key` is, or where it would be.
    pub(super) fn search<'a>(
        &self,
        key: &[u8],
        full: impl Fn(usize) -> &'a [u8],
    ) -> Result<usize, usize> {
        let shared = self.prefix.len();
        if key.len() < shared || key[..shared] != *self.prefix {
            let before = key < &self.prefix[..];
            return Err(if before { 0 } else { self.heads.len() });
        }
        let head = head_of(key, shared);
        let mut low = self.heads.partition_point(|&other| other < head);
        let mut high = low + self.heads[low..].partition_point(|&other| other == head);
        let tail = &key[shared..];
        while low < high {
            let middle = low.midpoint(high);
            match full(middle)[shared..].cmp(tail) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Notes that the key at `index`, already among the node's keys, is new.
    pub(super) fn insert<'a>(&mut self, index: usize, full: impl Fn(usize) -> &'a [u8]) {
        let key = full(index);
        let shared = common(&self.prefix, key);
        if shared == self.prefix.len() {
            self.heads.insert(index, head_of(key, shared));
            return;
        }
        self.prefix = key[..shared].into();
        self.refill(self.heads.len() + 1, full);
    }

    pub(super) fn remove(&mut self, index: usize) {
        self.heads.remove(index);
    }

    /// Forgets the keys from `count` on.
    pub(super) fn truncate(&mut self, count: usize) {
        self.heads.truncate(count);
    }

    /// Checks that prefix and heads are those of the node's keys.
    pub(super) fn check<'a>(&self, count: usize, full: impl Fn(usize) -> &'a [u8]) {
        assert_eq!(self.heads.len(), count);
        for index in 0..count {
            let key = full(index);
            assert!(key.starts_with(&self.prefix), "key outside its node's prefix");
            assert_eq!(self.heads[index], head_of(key, self.prefix.len()));
            assert!(index == 0 || full(index - 1) < key, "keys out of order");
        }
    }

    fn refill<'a>(&mut self, count: usize, full: impl Fn(usize) -> &'a [u8]) {
        let shared = self.prefix.len();
        self.heads.clear();
        self.heads.extend((0..count).map(|index| head_of(full(index), shared)));
    }
}

/// How many leading bytes two keys share.
pub(super) fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// The eight bytes of `key` behind `skip`, the first the most significant; zeros where it ends.
fn head_of(key: &[u8], skip: usize) -> u64 {
    let tail = &key[skip..];
    if let Some(bytes) = tail.first_chunk::<8>() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 8];
    bytes[..tail.len()].copy_from_slice(tail);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    //! Proves the search on keys whose heads tie: zero bytes, prefixes of one another.
    use super::*;

    #[test]
    fn ties_are_told_apart() {
        let keys: [&[u8]; 8] = [
            b"p",
            b"p\0",
            b"p\0\0",
            b"p\0\0\0\0\0\0\0\0",
            b"p\0\0\0\0\0\0\0\0\0",
            b"paaaaaaaa",
            b"paaaaaaaab",
            b"p\xff",
        ];
        let mut heads = Heads::default();
        heads.rebuild(keys.len(), |index| keys[index]);
        heads.check(keys.len(), |index| keys[index]);
        for (index, key) in keys.iter().enumerate() {
            assert_eq!(heads.search(key, |index| keys[index]), Ok(index));
            let behind = [key, b"\0\0\0\0\0\0\0\0\0\0\0\0".as_slice()].concat();
            let want = keys.partition_point(|&other| other < behind.as_slice());
            assert_eq!(heads.search(&behind, |index| keys[index]), Err(want));
        }
        assert_eq!(heads.search(b"", |index| keys[index]), Err(0));
        assert_eq!(heads.search(b"o", |index| keys[index]), Err(0));
        assert_eq!(heads.search(b"q", |index| keys[index]), Err(keys.len()));
    }
}

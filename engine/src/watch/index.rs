//! Which groups a key belongs to: exact keys by hash, prefixes by hash of each length in use, other
//! ranges by an interval tree.

use std::collections::BTreeMap;

use bytes::Bytes;
use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::mvcc::{End, KeyRange};
use crate::types::FixedHasher;
use crate::watch::ranges::Ranges;

type Groups = SmallVec<[usize; 2]>;

/// The index over the ranges of all groups of a hub.
#[derive(Default)]
pub(super) struct Index {
    exact: HashMap<Bytes, Groups, FixedHasher>,
    prefixes: HashMap<Bytes, Groups, FixedHasher>,
    /// How many prefixes there are of each length.
    prefix_lengths: BTreeMap<usize, usize>,
    ranges: Ranges,
}

enum Shape {
    Exact,
    Prefix,
    Range,
}

fn shape(range: &KeyRange) -> Shape {
    match &range.end {
        End::Single => Shape::Exact,
        End::Before(end) if is_prefix(&range.start, end) => Shape::Prefix,
        _ => Shape::Range,
    }
}

/// Whether `end` is `start` with its last byte that is not 0xff raised by one and the rest cut.
fn is_prefix(start: &[u8], end: &[u8]) -> bool {
    let Some(last) = start.iter().rposition(|byte| *byte != 0xff) else { return false };
    // A trailing 0xff is cut from the end, so the range holds more than the prefix itself.
    last + 1 == start.len()
        && end.len() == start.len()
        && end[..last] == start[..last]
        && end[last] == start[last] + 1
}

impl Index {
    pub(super) fn insert(&mut self, range: &KeyRange, group: usize) {
        match shape(range) {
            Shape::Exact => self.exact.entry(range.start.clone()).or_default().push(group),
            Shape::Prefix => {
                let groups = self.prefixes.entry(range.start.clone()).or_default();
                if groups.is_empty() {
                    *self.prefix_lengths.entry(range.start.len()).or_insert(0) += 1;
                }
                groups.push(group);
            }
            Shape::Range => self.ranges.insert(range.start.clone(), range.end.clone(), group),
        }
    }

    pub(super) fn remove(&mut self, range: &KeyRange, group: usize) {
        match shape(range) {
            Shape::Exact => {
                let groups = self.exact.get_mut(&range.start).expect("a group is indexed");
                groups.retain(|member| *member != group);
                if groups.is_empty() {
                    self.exact.remove(&range.start);
                }
            }
            Shape::Prefix => {
                let groups = self.prefixes.get_mut(&range.start).expect("a group is indexed");
                groups.retain(|member| *member != group);
                if groups.is_empty() {
                    self.prefixes.remove(&range.start);
                    let length = range.start.len();
                    let count = self.prefix_lengths.get_mut(&length).expect("lengths are counted");
                    *count -= 1;
                    if *count == 0 {
                        self.prefix_lengths.remove(&length);
                    }
                }
            }
            Shape::Range => self.ranges.remove(&range.start, group),
        }
    }

    /// Appends the groups that `key` belongs to.
    pub(super) fn matching(&self, key: &[u8], out: &mut Vec<usize>) {
        if let Some(groups) = self.exact.get(key) {
            out.extend_from_slice(groups);
        }
        for length in self.prefix_lengths.range(..=key.len()).map(|(length, _)| *length) {
            if let Some(groups) = self.prefixes.get(&key[..length]) {
                out.extend_from_slice(groups);
            }
        }
        self.ranges.matching(key, out);
    }
}

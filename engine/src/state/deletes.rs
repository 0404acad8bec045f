//! The keys that a list of deletes names, in a form that answers "is this key one of them?".

use std::collections::{BTreeMap, BTreeSet};

/// Points and disjoint intervals of keys, borrowed from a request. Every question costs a logarithm
/// of its size.
#[derive(Debug, Default)]
pub(super) struct Deletes<'a> {
    points: BTreeSet<&'a [u8]>,
    /// Start to end of intervals that do not touch each other.
    intervals: BTreeMap<&'a [u8], &'a [u8]>,
    /// Every key from here on.
    open: Option<&'a [u8]>,
}

impl<'a> Deletes<'a> {
    /// How many pieces it has.
    pub(super) fn len(&self) -> usize {
        self.points.len() + self.intervals.len() + usize::from(self.open.is_some())
    }

    /// Adds what a delete names: an empty `end` is the single key, an inverted interval nothing. An
    /// `end` of one zero byte is taken literally, so it is nothing as well.
    pub(super) fn insert(&mut self, start: &'a [u8], end: &'a [u8]) {
        if end.is_empty() {
            self.points.insert(start);
            return;
        }
        if end <= start {
            return;
        }
        // Merge with every interval that touches [start, end).
        let (mut start, mut end) = (start, end);
        while let Some((&found_start, &found_end)) = self.intervals.range(..=end).next_back() {
            if found_end < start {
                break;
            }
            start = start.min(found_start);
            end = end.max(found_end);
            self.intervals.remove(found_start);
        }
        self.intervals.insert(start, end);
    }

    /// As [`Deletes::insert`], but an `end` of one zero byte means every key from `start` on, as it
    /// does when the delete runs.
    pub(super) fn insert_as_run(&mut self, start: &'a [u8], end: &'a [u8]) {
        if end == [0] {
            self.open = Some(self.open.map_or(start, |open| open.min(start)));
        } else {
            self.insert(start, end);
        }
    }

    /// Adds everything of another one. Walks `other`.
    pub(super) fn extend(&mut self, other: Deletes<'a>) {
        self.points.extend(other.points);
        for (start, end) in other.intervals {
            self.insert(start, end);
        }
        if let Some(start) = other.open {
            self.insert_as_run(start, &[0]);
        }
    }

    /// Whether the key is named.
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.points.contains(key)
            || self.intervals.range(..=key).next_back().is_some_and(|(_, end)| key < *end)
            || self.open.is_some_and(|start| start <= key)
    }

    /// Whether any of these keys is named. Walks the smaller of the two.
    pub(super) fn meet(&self, keys: &BTreeSet<&[u8]>) -> bool {
        if keys.len() <= self.len() {
            return keys.iter().any(|key| self.contains(key));
        }
        self.points.iter().any(|point| keys.contains(point))
            || self.intervals.iter().any(|(&start, &end)| keys.range(start..end).next().is_some())
            || self.open.is_some_and(|start| keys.range(start..).next().is_some())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn word() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(0_u8..4, 0..3)
    }

    proptest! {
        /// Whatever was added in whatever order, a key is named exactly if one piece names it.
        #[test]
        fn agrees_with_a_list(
            pieces in prop::collection::vec((word(), word()), 0..8),
            split in 0_usize..8,
            keys in prop::collection::btree_set(word(), 0..12),
        ) {
            let mut deletes = Deletes::default();
            let mut other = Deletes::default();
            for (index, (start, end)) in pieces.iter().enumerate() {
                if index < split { &mut deletes } else { &mut other }.insert_as_run(start, end);
            }
            deletes.extend(other);
            let names = |key: &[u8]| pieces.iter().any(|(start, end)| match end.as_slice() {
                [] => start == key,
                [0] => start.as_slice() <= key,
                end => start.as_slice() <= key && key < end,
            });
            for key in &keys {
                prop_assert_eq!(deletes.contains(key), names(key));
            }
            let keys: BTreeSet<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            prop_assert_eq!(deletes.meet(&keys), keys.iter().any(|key| names(key)));
        }
    }
}

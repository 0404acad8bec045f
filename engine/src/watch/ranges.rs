//! The ranges that are neither a key nor a prefix, as an interval tree.
//!
//! ```text
//! insert ─► fresh (looked through) ──(many)──► order (by start: a balanced tree by position)
//! remove ─► a hole ──(half of them)──► gone with the next sort
//! ```
//! - N1 A node's `furthest` is the greatest end of the nodes below it, holes included.

use std::cmp::Ordering;

use bytes::Bytes;

use crate::limits::WATCH_RANGES_FRESH_MIN;
use crate::mvcc::End;

/// Fresh ranges are sorted in once they are more than this part of all.
const FRESH_PART: usize = 16;

/// Every range with its group.
#[derive(Default)]
pub(super) struct Ranges {
    order: Vec<Node>,
    fresh: Vec<Node>,
    holes: usize,
}

struct Node {
    start: Bytes,
    end: End,
    group: usize,
    hole: bool,
    furthest: End,
}

impl Ranges {
    pub(super) fn insert(&mut self, start: Bytes, end: End, group: usize) {
        assert!(end != End::Single, "single keys are in the exact map");
        let furthest = end.clone();
        self.fresh.push(Node { start, end, group, hole: false, furthest });
        if self.fresh.len() > WATCH_RANGES_FRESH_MIN + self.order.len() / FRESH_PART {
            self.sort();
        }
    }

    pub(super) fn remove(&mut self, start: &[u8], group: usize) {
        if let Some(at) = self.fresh.iter().position(|node| node.group == group) {
            self.fresh.swap_remove(at);
            return;
        }
        let place =
            |node: &Node| (&node.start[..], node.group, node.hole).cmp(&(start, group, false));
        let at = self.order.binary_search_by(place).expect("a group is indexed");
        self.order[at].hole = true;
        self.holes += 1;
        if self.holes > self.order.len() / 2 {
            self.sort();
        }
    }

    /// Appends the groups whose range has `key`.
    pub(super) fn matching(&self, key: &[u8], out: &mut Vec<usize>) {
        let fresh = self.fresh.iter().filter(|node| node.start <= key && is_before(key, &node.end));
        out.extend(fresh.map(|node| node.group));
        matching(&self.order, key, out);
    }

    fn sort(&mut self) {
        self.order.retain(|node| !node.hole);
        self.holes = 0;
        self.order.append(&mut self.fresh);
        self.order.sort_by(|a, b| (&a.start, a.group).cmp(&(&b.start, b.group)));
        furthest(&mut self.order);
    }
}

/// The middle one of some nodes is their root.
fn matching(nodes: &[Node], key: &[u8], out: &mut Vec<usize>) {
    let Some(root) = nodes.get(nodes.len() / 2) else { return };
    if !is_before(key, &root.furthest) {
        return;
    }
    matching(&nodes[..nodes.len() / 2], key, out);
    if root.start <= key {
        if !root.hole && is_before(key, &root.end) {
            out.push(root.group);
        }
        matching(&nodes[nodes.len() / 2 + 1..], key, out);
    }
}

/// Makes N1 true of some nodes; gives the greatest end.
fn furthest(nodes: &mut [Node]) -> Option<End> {
    let middle = nodes.len() / 2;
    let (before, rest) = nodes.split_at_mut(middle);
    let (root, behind) = rest.split_first_mut()?;
    let below = furthest(before).into_iter().chain(furthest(behind));
    root.furthest = below.fold(root.end.clone(), |a, b| if is_less(&a, &b) { b } else { a });
    Some(root.furthest.clone())
}

fn is_before(key: &[u8], end: &End) -> bool {
    match end {
        End::Before(end) => key < &end[..],
        End::Unbounded => true,
        End::Single => false,
    }
}

fn is_less(a: &End, b: &End) -> bool {
    match (a, b) {
        (End::Before(a), End::Before(b)) => a.cmp(b) == Ordering::Less,
        (End::Before(_), _) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(number: u8) -> Bytes {
        Bytes::from(vec![b'a' + number / 16, b'a' + number % 16])
    }

    proptest! {
        /// The tree finds what a look at every range finds, whatever came and went.
        #[test]
        fn the_tree_finds_what_a_look_at_all_finds(
            steps in prop::collection::vec((any::<u8>(), any::<u8>(), any::<bool>()), 1..400),
            keys in prop::collection::vec(any::<u8>(), 20),
        ) {
            let mut ranges = Ranges::default();
            let mut plain: Vec<(Bytes, End, usize)> = Vec::new();
            for (group, (start, end, goes)) in steps.into_iter().enumerate() {
                if goes && !plain.is_empty() {
                    let (start, _, group) = plain.swap_remove(usize::from(end) % plain.len());
                    ranges.remove(&start, group);
                    continue;
                }
                let to = if end < 8 { End::Unbounded } else { End::Before(bytes(end)) };
                ranges.insert(bytes(start), to.clone(), group);
                plain.push((bytes(start), to, group));
            }
            for key in keys.into_iter().map(bytes) {
                let mut found = Vec::new();
                ranges.matching(&key, &mut found);
                found.sort_unstable();
                let mut expected = Vec::new();
                for (from, to, group) in &plain {
                    if *from <= key && is_before(&key, to) {
                        expected.push(*group);
                    }
                }
                expected.sort_unstable();
                prop_assert_eq!(found, expected);
            }
        }
    }

    /// Thousands of ranges that do not have the key are passed over, not looked at one by one: of
    /// the nodes, only those on one way down are.
    #[test]
    fn ranges_without_the_key_are_passed_over() {
        let mut ranges = Ranges::default();
        for group in 0..10_000_usize {
            let start = Bytes::from(format!("k/{group:05}/b"));
            ranges.insert(start, End::Before(Bytes::from(format!("k/{group:05}/d"))), group);
        }
        ranges.sort();
        let mut found = Vec::new();
        ranges.matching(b"k/07000/c", &mut found);
        assert_eq!(found, [7000]);
        let below = |nodes: &[Node]| {
            nodes.iter().filter(|node| is_before(b"k/09000", &node.furthest)).count()
        };
        // A node is looked at when something below it ends behind the key: a tenth, and the ways.
        assert!(below(&ranges.order) < 1100);
    }
}

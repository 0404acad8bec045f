//! An inner node: children, the keys that part them, and the live keys below each.
//!
//! Parting key `i` is above every key of child `i` and at or below every key of child `i + 1`.

use super::heads::Heads;
use ringbolt_io::planted::{self, Planted};

/// Children of an inner node at most. Few in tests, so that small trees grow high.
pub(super) const CHILDREN_MAX: usize = if cfg!(test) { 6 } else { 64 };
/// Below this an inner node joins a neighbour if both fit into one.
pub(super) const CHILDREN_LOW: usize = CHILDREN_MAX / 3;

const _: () = assert!(CHILDREN_LOW < CHILDREN_MAX / 2);

/// An inner node of the tree.
#[derive(Debug, Default)]
pub(super) struct Inner {
    heads: Heads,
    partings: Vec<Box<[u8]>>,
    children: Vec<u32>,
    counts: Vec<u32>,
}

impl Inner {
    /// A node with one child.
    pub(super) fn new(child: u32, count: u32) -> Inner {
        Inner { children: vec![child], counts: vec![count], ..Inner::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.children.len()
    }

    pub(super) fn child(&self, index: usize) -> u32 {
        self.children[index]
    }

    /// The child below which `key` belongs.
    pub(super) fn search(&self, key: &[u8]) -> usize {
        match self.heads.search(key, |index| &self.partings[index]) {
            Ok(index) => index + 1,
            Err(index) => index,
        }
    }

    /// Live keys below the node.
    pub(super) fn live(&self) -> u32 {
        self.counts.iter().sum()
    }

    /// Live keys below the children before `index`.
    pub(super) fn live_before(&self, index: usize) -> u32 {
        self.counts[..index].iter().sum()
    }

    pub(super) fn count(&self, index: usize) -> u32 {
        self.counts[index]
    }

    pub(super) fn set_count(&mut self, index: usize, count: u32) {
        if planted::is(Planted::SubtreeCountWrong) && count < self.counts[index] {
            return;
        }
        self.counts[index] = count;
    }

    /// Puts a child to the right of child `left`.
    pub(super) fn insert(&mut self, left: usize, parting: Box<[u8]>, child: u32, count: u32) {
        assert!(self.len() < CHILDREN_MAX, "a full node is split first");
        self.partings.insert(left, parting);
        let partings = &self.partings;
        self.heads.insert(left, |index| &partings[index]);
        self.children.insert(left + 1, child);
        self.counts.insert(left + 1, count);
    }

    /// Removes a child; its neighbour's keys may then lie where its own did.
    pub(super) fn remove(&mut self, index: usize) {
        self.children.remove(index);
        self.counts.remove(index);
        if !self.partings.is_empty() {
            let parting = index.saturating_sub(1);
            self.partings.remove(parting);
            self.heads.remove(parting);
        }
    }

    /// Moves the children from `index` on into a node of their own. Returns it and the key that
    /// parts the two.
    pub(super) fn split(&mut self, index: usize) -> (Inner, Box<[u8]>) {
        let mut right = Inner {
            heads: Heads::default(),
            partings: self.partings.split_off(index),
            children: self.children.split_off(index),
            counts: self.counts.split_off(index),
        };
        right.rebuild();
        let parting = self.partings.pop().expect("a split leaves a child on the left");
        self.rebuild();
        (right, parting)
    }

    /// Takes over the children of the node to the right, parted from ours by `parting`.
    pub(super) fn join(&mut self, parting: Box<[u8]>, right: Inner) {
        self.partings.push(parting);
        self.partings.extend(right.partings);
        self.children.extend(right.children);
        self.counts.extend(right.counts);
        self.rebuild();
    }

    /// The key that parts child `left` from the next one.
    pub(super) fn parting(&self, left: usize) -> &[u8] {
        &self.partings[left]
    }

    pub(super) fn check(&self) {
        assert_eq!(self.partings.len() + 1, self.children.len());
        assert_eq!(self.counts.len(), self.children.len());
        assert!(self.children.len() <= CHILDREN_MAX);
        self.heads.check(self.partings.len(), |index| &self.partings[index]);
    }

    fn rebuild(&mut self) {
        let partings = &self.partings;
        self.heads.rebuild(partings.len(), |index| &partings[index]);
    }
}

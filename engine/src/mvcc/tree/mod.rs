//! The index: a B+tree over the key table, which counts the live keys below each node.
//!
//! Invariants, checked by [`Tree::check`]:
//! T1 every key of the table is in exactly one leaf, leaves in key order;
//! T2 a key's bit is set exactly when its newest version is a put (checked by the store);
//! T3 the count beside a child is the number of set bits below it;
//! T4 prefix and heads of a node are those of its keys.
//!
//! One writer, no locks; nodes lie in arenas and name each other by number.

mod heads;
mod inner;
mod leaf;
mod walk;

use smallvec::SmallVec;

use super::arena::Arena;
use super::keys::{KeyId, Keys};
use super::range::{End, KeyRange};

use inner::{CHILDREN_LOW, CHILDREN_MAX, Inner};
use leaf::{LEAF_KEYS_JOINED_MAX, LEAF_KEYS_LOW, LEAF_KEYS_MAX, Leaf};
pub(super) use walk::Walk;

/// The steps from the root to a leaf: inner node and the child taken.
type Path = SmallVec<[(u32, usize); 8]>;

/// The index of keys.
#[derive(Debug)]
pub(super) struct Tree {
    leaves: Arena<Leaf>,
    inners: Arena<Inner>,
    root: u32,
    /// Levels of inner nodes above the leaves.
    height: usize,
}

/// Where a key is, or where it would be.
#[derive(Debug)]
pub(super) struct Spot {
    path: Path,
    leaf: u32,
    found: Result<usize, usize>,
}

impl Tree {
    pub(super) fn new() -> Tree {
        let mut leaves = Arena::default();
        let root = leaves.insert(Leaf::new());
        Tree { leaves, inners: Arena::default(), root, height: 0 }
    }

    /// The number of `key`, if it is in the tree.
    pub(super) fn find(&self, keys: &Keys, key: &[u8]) -> Option<KeyId> {
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = self.inners.get(node);
            node = inner.child(inner.search(key));
        }
        let leaf = self.leaves.get(node);
        leaf.search(keys, key).ok().map(|index| leaf.id(index))
    }

    /// Where `key` is, for a change there.
    pub(super) fn locate(&self, keys: &Keys, key: &[u8]) -> Spot {
        let mut path = Path::new();
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = self.inners.get(node);
            let index = inner.search(key);
            path.push((node, index));
            node = inner.child(index);
        }
        Spot { path, leaf: node, found: self.leaves.get(node).search(keys, key) }
    }

    /// The key at a spot.
    pub(super) fn at(&self, spot: &Spot) -> Option<KeyId> {
        spot.found.ok().map(|index| self.leaves.get(spot.leaf).id(index))
    }

    /// Inserts `id`, a live key, at the spot that was located for it.
    pub(super) fn insert(&mut self, keys: &Keys, spot: Spot, id: KeyId) {
        let Spot { path, leaf, found } = spot;
        let index = found.expect_err("a key is inserted once");
        if self.leaves.get(leaf).len() < LEAF_KEYS_MAX {
            self.leaves.get_mut(leaf).insert(keys, index, id);
            self.recount(&path, 1);
            return;
        }
        // Keys that arrive in order fill their leaves: the split is at the new key then.
        let ascending = index == LEAF_KEYS_MAX;
        let middle = if ascending { LEAF_KEYS_MAX - 1 } else { LEAF_KEYS_MAX / 2 };
        let (right, parting) = self.leaves.get_mut(leaf).split(keys, middle);
        let right = self.leaves.insert(right);
        // Between the halves the parting key decides: it is shorter than the key it was cut from.
        let left_half = index < middle || keys.get(id).bytes.as_ref() < parting.as_ref();
        if left_half {
            self.leaves.get_mut(leaf).insert(keys, index, id);
        } else {
            self.leaves.get_mut(right).insert(keys, index - middle, id);
        }
        self.grow(path, parting, leaf, right);
    }

    /// Sets whether the key found at a spot is live.
    pub(super) fn set_live(&mut self, spot: &Spot, live: bool) {
        let index = spot.found.expect("only a key of the tree lives or dies");
        if self.leaves.get_mut(spot.leaf).set_live(index, live) {
            self.recount(&spot.path, if live { 1 } else { -1 });
        }
    }

    /// Removes a key.
    pub(super) fn remove(&mut self, keys: &Keys, key: &[u8]) {
        let Spot { path, leaf, found } = self.locate(keys, key);
        let index = found.expect("a key is removed once");
        let node = self.leaves.get_mut(leaf);
        if node.is_live(index) {
            node.set_live(index, false);
            self.recount(&path, -1);
        }
        let node = self.leaves.get_mut(leaf);
        node.remove(index);
        if node.len() < LEAF_KEYS_LOW {
            self.shrink(keys, path);
        }
    }

    /// Live keys in `range`.
    pub(super) fn count(&self, keys: &Keys, range: &KeyRange) -> u64 {
        let total = match &range.end {
            End::Single => {
                let Spot { leaf, found, .. } = self.locate(keys, &range.start);
                return found.map_or(0, |index| self.leaves.get(leaf).is_live(index).into());
            }
            End::Before(end) => self.rank(keys, end),
            End::Unbounded => self.live(),
        };
        // An inverted range has its end's rank at or below its start's.
        total.saturating_sub(self.rank(keys, &range.start)).into()
    }

    /// The keys of `range` in order, dead ones too.
    pub(super) fn walk(&self, keys: &Keys, range: &KeyRange) -> Walk<'_> {
        Walk::new(self, keys, range)
    }

    /// Live keys.
    pub(super) fn live(&self) -> u32 {
        self.live_below(self.root, self.height)
    }

    /// Live keys below `key`.
    fn rank(&self, keys: &Keys, key: &[u8]) -> u32 {
        let mut rank = 0;
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = self.inners.get(node);
            let index = inner.search(key);
            rank += inner.live_before(index);
            node = inner.child(index);
        }
        let leaf = self.leaves.get(node);
        let (Ok(index) | Err(index)) = leaf.search(keys, key);
        rank + leaf.live_before(index)
    }

    fn live_below(&self, node: u32, height: usize) -> u32 {
        if height == 0 { self.leaves.get(node).live() } else { self.inners.get(node).live() }
    }

    /// Adds to the counts on the way to a leaf.
    fn recount(&mut self, path: &[(u32, usize)], change: i32) {
        for &(node, index) in path {
            let inner = self.inners.get_mut(node);
            let count = inner.count(index).checked_add_signed(change);
            inner.set_count(index, count.expect("counts stay between 0 and the number of keys"));
        }
    }

    /// Hangs `right` beside `left` after a split, splitting upwards as long as nodes are full, and
    /// brings the counts on the way up to date.
    fn grow(&mut self, mut path: Path, parting: Box<[u8]>, left: u32, right: u32) {
        let mut pending = Some((parting, right));
        let mut left = left;
        let mut below = 0;
        while let Some((node, index)) = path.pop() {
            let left_count = self.live_below(left, below);
            self.inners.get_mut(node).set_count(index, left_count);
            if let Some((parting, right)) = pending.take() {
                let count = self.live_below(right, below);
                pending = self.insert_child(node, index, (parting, right, count));
            }
            left = node;
            below += 1;
        }
        let Some((parting, right)) = pending else { return };
        let mut root = Inner::new(left, self.live_below(left, below));
        root.insert(0, parting, right, self.live_below(right, below));
        self.root = self.inners.insert(root);
        self.height += 1;
    }

    /// Inserts a child to the right of child `left` of `node`. Returns what a split of `node`
    /// leaves to be hung beside it.
    fn insert_child(
        &mut self,
        node: u32,
        left: usize,
        (parting, child, count): (Box<[u8]>, u32, u32),
    ) -> Option<(Box<[u8]>, u32)> {
        let inner = self.inners.get_mut(node);
        if inner.len() < CHILDREN_MAX {
            inner.insert(left, parting, child, count);
            return None;
        }
        let ascending = left == CHILDREN_MAX - 1;
        let middle = if ascending { CHILDREN_MAX - 1 } else { CHILDREN_MAX / 2 };
        let (mut right, up) = inner.split(middle);
        if left < middle {
            inner.insert(left, parting, child, count);
        } else {
            right.insert(left - middle, parting, child, count);
        }
        Some((up, self.inners.insert(right)))
    }

    /// Joins nodes on the way that became small with a neighbour, removes empty ones.
    fn shrink(&mut self, keys: &Keys, mut path: Path) {
        let mut below = 0;
        while let Some((node, index)) = path.pop() {
            let inner = self.inners.get(node);
            let child = inner.child(index);
            if self.len_of(child, below) == 0 {
                self.inners.get_mut(node).remove(index);
                self.free(child, below);
            } else if index + 1 < inner.len() && self.fit(child, inner.child(index + 1), below) {
                self.join(keys, node, index, below);
            } else if index > 0 && self.fit(inner.child(index - 1), child, below) {
                self.join(keys, node, index - 1, below);
            }
            if self.inners.get(node).len() >= CHILDREN_LOW {
                return;
            }
            below += 1;
        }
        while self.height > 0 && self.inners.get(self.root).len() == 1 {
            let child = self.inners.remove(self.root).child(0);
            self.root = child;
            self.height -= 1;
        }
        if self.height > 0 && self.inners.get(self.root).len() == 0 {
            self.inners.remove(self.root);
            self.root = self.leaves.insert(Leaf::new());
            self.height = 0;
        }
    }

    /// Whether two neighbours would make one good node.
    fn fit(&self, left: u32, right: u32, below: usize) -> bool {
        let together = self.len_of(left, below) + self.len_of(right, below);
        together <= if below == 0 { LEAF_KEYS_JOINED_MAX } else { CHILDREN_MAX }
    }

    /// Joins child `left` of `node` and the one to its right.
    fn join(&mut self, keys: &Keys, node: u32, left: usize, below: usize) {
        let inner = self.inners.get_mut(node);
        let count = inner.count(left) + inner.count(left + 1);
        let (one, other) = (inner.child(left), inner.child(left + 1));
        let parting: Box<[u8]> = inner.parting(left).into();
        inner.remove(left + 1);
        inner.set_count(left, count);
        if below == 0 {
            let right = self.leaves.remove(other);
            self.leaves.get_mut(one).join(keys, &right);
        } else {
            let right = self.inners.remove(other);
            self.inners.get_mut(one).join(parting, right);
        }
    }

    fn free(&mut self, node: u32, below: usize) {
        if below == 0 {
            self.leaves.remove(node);
        } else {
            self.inners.remove(node);
        }
    }

    fn len_of(&self, node: u32, below: usize) -> usize {
        if below == 0 { self.leaves.get(node).len() } else { self.inners.get(node).len() }
    }

    /// Checks T1, T3 and T4; `seen` is called with each key and its bit, in order.
    pub(super) fn check(&self, keys: &Keys, seen: &mut dyn FnMut(KeyId, bool)) {
        let mut nodes = (0, 0);
        self.check_below(keys, (self.root, self.height), (None, None), &mut nodes, seen);
        assert_eq!(nodes, (self.leaves.len(), self.inners.len()), "nodes without a parent");
    }

    fn check_below(
        &self,
        keys: &Keys,
        (node, height): (u32, usize),
        (low, high): (Option<&[u8]>, Option<&[u8]>),
        nodes: &mut (usize, usize),
        seen: &mut dyn FnMut(KeyId, bool),
    ) {
        if height == 0 {
            nodes.0 += 1;
            let leaf = self.leaves.get(node);
            leaf.check(keys, low, high);
            assert!(leaf.len() > 0 || self.height == 0, "empty leaf below a parent");
            (0..leaf.len()).for_each(|index| seen(leaf.id(index), leaf.is_live(index)));
            return;
        }
        nodes.1 += 1;
        let inner = self.inners.get(node);
        inner.check();
        for index in 0..inner.len() {
            let from = if index == 0 { low } else { Some(inner.parting(index - 1)) };
            let to = if index + 1 == inner.len() { high } else { Some(inner.parting(index)) };
            let child = inner.child(index);
            self.check_below(keys, (child, height - 1), (from, to), nodes, seen);
            assert_eq!(inner.count(index), self.live_below(child, height - 1), "T3");
        }
    }
}

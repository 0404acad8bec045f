//! Walking the keys of a range in order.

use super::super::keys::{KeyId, Keys};
use super::super::range::{End, KeyRange};
use super::{Path, Spot, Tree};

/// The keys of a range, each with its live bit. The end is found once, so that a step compares no
/// keys.
#[derive(Debug)]
pub(in crate::mvcc) struct Walk<'a> {
    tree: &'a Tree,
    path: Path,
    leaf: u32,
    index: usize,
    /// Where the walk ends: way to the leaf, and index there. The end of the tree if there is none.
    end: Option<(Path, usize)>,
    /// Where it ends in this leaf.
    stop: usize,
    done: bool,
    live_only: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn new(tree: &'a Tree, keys: &Keys, range: &KeyRange) -> Walk<'a> {
        let Spot { path, leaf, found } = tree.locate(keys, &range.start);
        let (Ok(index) | Err(index)) = found;
        let (end, done) = match &range.end {
            End::Single => (Some((path.clone(), index + 1)), found.is_err()),
            End::Before(end) => {
                let Spot { path, found: Ok(index) | Err(index), .. } = tree.locate(keys, end);
                (Some((path, index)), range.is_empty_interval())
            }
            End::Unbounded => (None, false),
        };
        let mut walk = Walk { tree, path, leaf, index, end, stop: 0, done, live_only: false };
        walk.set_stop();
        walk
    }

    /// Passes over dead keys, whole subtrees of them at a time.
    pub(in crate::mvcc) fn live_only(self) -> Walk<'a> {
        Walk { live_only: true, ..self }
    }

    /// Goes on to the first key of the next leaf.
    fn next_leaf(&mut self) {
        let levels = self.path.len();
        while let Some((node, index)) = self.path.pop() {
            let Some(index) = self.next_child(node, index + 1) else { continue };
            self.path.push((node, index));
            let mut child = self.tree.inners.get(node).child(index);
            while self.path.len() < levels {
                let first = self.next_child(child, 0).expect("a counted child has live keys");
                self.path.push((child, first));
                child = self.tree.inners.get(child).child(first);
            }
            self.leaf = child;
            self.index = 0;
            self.set_stop();
            return;
        }
        self.done = true;
    }

    /// The first child of `node` from `index` on that the walk goes into.
    fn next_child(&self, node: u32, index: usize) -> Option<usize> {
        let inner = self.tree.inners.get(node);
        (index..inner.len()).find(|&index| !self.live_only || inner.count(index) > 0)
    }

    /// Finds where the walk ends in the leaf it came to; a walk that passes over dead leaves may
    /// have passed the end.
    fn set_stop(&mut self) {
        self.stop = self.tree.leaves.get(self.leaf).len();
        let Some((end, index)) = &self.end else { return };
        let steps = |path: &Path| path.iter().map(|&(_, index)| index).collect::<Steps>();
        match steps(&self.path).cmp(&steps(end)) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => self.stop = *index,
            std::cmp::Ordering::Greater => self.done = true,
        }
    }

    fn is_last_leaf(&self) -> bool {
        self.end.as_ref().is_some_and(|(end, _)| *end == self.path)
    }
}

/// The children taken from the root on.
type Steps = smallvec::SmallVec<[usize; 8]>;

impl Iterator for Walk<'_> {
    type Item = (KeyId, bool);

    fn next(&mut self) -> Option<(KeyId, bool)> {
        while !self.done {
            let leaf = self.tree.leaves.get(self.leaf);
            if self.live_only {
                self.index = leaf.next_live(self.index);
            }
            if self.index < self.stop {
                let item = (leaf.id(self.index), leaf.is_live(self.index));
                self.index += 1;
                return Some(item);
            }
            if self.is_last_leaf() {
                self.done = true;
            } else {
                self.next_leaf();
            }
        }
        None
    }
}

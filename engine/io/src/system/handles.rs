//! The table of what is open on a shard.

use slab::Slab;

use crate::driver::HandleId;

const INDEX_BITS: u32 = 32;

/// Entries under handles that are never used twice: the upper half of a handle counts insertions,
/// so that a late event for a closed handle finds nothing.
pub(crate) struct Handles<T> {
    entries: Slab<(u64, T)>,
    generation: u64,
}

impl<T> Handles<T> {
    pub(crate) fn new() -> Handles<T> {
        Handles { entries: Slab::new(), generation: 0 }
    }

    pub(crate) fn insert(&mut self, value: T) -> HandleId {
        self.generation = (self.generation + 1) & u64::from(u32::MAX);
        let generation = self.generation;
        let index = self.entries.insert((generation, value));
        let index = u32::try_from(index).expect("fewer than 2^32 handles are open");
        HandleId((generation << INDEX_BITS) | u64::from(index))
    }

    pub(crate) fn get(&self, handle: HandleId) -> Option<&T> {
        let (index, generation) = split(handle);
        self.entries.get(index).filter(|entry| entry.0 == generation).map(|entry| &entry.1)
    }

    pub(crate) fn get_mut(&mut self, handle: HandleId) -> Option<&mut T> {
        let (index, generation) = split(handle);
        self.entries.get_mut(index).filter(|entry| entry.0 == generation).map(|entry| &mut entry.1)
    }

    pub(crate) fn remove(&mut self, handle: HandleId) -> Option<T> {
        self.get(handle)?;
        Some(self.entries.remove(split(handle).0).1)
    }
}

fn split(handle: HandleId) -> (usize, u64) {
    let index = handle.0 & u64::from(u32::MAX);
    (usize::try_from(index).expect("32 bits fit an index"), handle.0 >> INDEX_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A handle that was removed finds nothing, even when its place is taken again.
    #[test]
    fn handles_are_not_reused() {
        let mut handles = Handles::new();
        let first = handles.insert('a');
        assert_eq!(handles.remove(first), Some('a'));
        let second = handles.insert('b');
        assert_ne!(first, second);
        assert!(handles.get(first).is_none());
        assert!(handles.remove(first).is_none());
        assert_eq!(handles.get_mut(second), Some(&mut 'b'));
    }
}

//! Slots numbered in u32, in pages, so that growth never copies what is there already.

const PAGE_SLOTS: usize = 1024;

/// A table whose freed slots are used again, the last freed first.
#[derive(Debug)]
pub(super) struct Arena<T> {
    pages: Vec<Vec<T>>,
    free: Vec<u32>,
    /// Slots ever used; the next one when none is free.
    used: u32,
}

impl<T> Default for Arena<T> {
    fn default() -> Arena<T> {
        Arena { pages: Vec::new(), free: Vec::new(), used: 0 }
    }
}

impl<T: Default> Arena<T> {
    pub(super) fn insert(&mut self, item: T) -> u32 {
        if let Some(index) = self.free.pop() {
            *self.get_mut(index) = item;
            return index;
        }
        let index = self.used;
        self.used = index.checked_add(1).expect("memory ends before 2^32 slots do");
        if (index as usize).is_multiple_of(PAGE_SLOTS) {
            self.pages.push(Vec::with_capacity(PAGE_SLOTS));
        }
        self.pages[index as usize / PAGE_SLOTS].push(item);
        index
    }

    /// Frees a slot and hands out what it held.
    pub(super) fn remove(&mut self, index: u32) -> T {
        self.free.push(index);
        std::mem::take(self.get_mut(index))
    }

    pub(super) fn get(&self, index: u32) -> &T {
        &self.pages[index as usize / PAGE_SLOTS][index as usize % PAGE_SLOTS]
    }

    pub(super) fn get_mut(&mut self, index: u32) -> &mut T {
        &mut self.pages[index as usize / PAGE_SLOTS][index as usize % PAGE_SLOTS]
    }

    /// How many slots are in use.
    pub(super) fn len(&self) -> usize {
        self.used as usize - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    //! Proves that slots are reused and pages join without a gap.
    use super::*;

    #[test]
    fn slots_are_reused() {
        let mut arena = Arena::default();
        let count = u32::try_from(PAGE_SLOTS * 2 + 3).expect("small");
        for number in 0..count {
            assert_eq!(arena.insert(number), number);
        }
        assert_eq!(arena.remove(1024), 1024);
        assert_eq!(arena.remove(7), 7);
        assert_eq!(arena.len(), PAGE_SLOTS * 2 + 1);
        assert_eq!(arena.insert(99), 7);
        assert_eq!(*arena.get(7), 99);
        assert_eq!(arena.insert(98), 1024);
        assert_eq!(arena.insert(97), count);
    }
}

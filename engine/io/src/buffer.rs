//! Memory for direct I/O.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::limits::DIRECT_ALIGN_BYTES;

/// A zeroed, block-aligned byte buffer with a fixed capacity that is a multiple of the block.
///
/// Shape: owned bytes, `len <= capacity`. It may cross threads. Source: `open(2)` O_DIRECT.
pub struct AlignedBuffer {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
}

impl AlignedBuffer {
    /// A buffer of `len` zero bytes. The capacity is `len` rounded up to whole blocks.
    #[must_use]
    pub fn zeroed(len: usize) -> AlignedBuffer {
        let capacity = len.max(1).next_multiple_of(DIRECT_ALIGN_BYTES);
        let layout = Self::layout(capacity);
        // SAFETY: the layout has a size of at least one block, so it is not zero-sized.
        // JUSTIFICATION: `Vec<u8>` cannot promise an alignment of 4096.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        AlignedBuffer { start, len, capacity }
    }

    /// How many bytes may be used without a new allocation.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Sets the length. Bytes between the old and the new length keep what they were (zero at
    /// first).
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "length {len} over capacity {}", self.capacity);
        self.len = len;
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, DIRECT_ALIGN_BYTES).expect("a block-aligned layout")
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `capacity` initialised bytes owned by self, `len <= capacity`.
        // JUSTIFICATION: the memory comes from the allocator, no safe type holds it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the access exclusive.
        // JUSTIFICATION: as in `deref`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with the same layout and not freed before.
        // JUSTIFICATION: as in `deref`.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.capacity)) }
    }
}

// SAFETY: the buffer owns its memory alone; there is no interior mutability.
// JUSTIFICATION: `NonNull` opts out of Send, yet buffers travel to helper threads.
unsafe impl Send for AlignedBuffer {}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer({} of {} bytes)", self.len, self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A buffer is aligned, zero, and keeps what is written into it.
    #[test]
    fn aligned_zeroed_and_writable() {
        let mut buffer = AlignedBuffer::zeroed(5000);
        assert_eq!(buffer.as_ptr().align_offset(DIRECT_ALIGN_BYTES), 0);
        assert_eq!((buffer.len(), buffer.capacity()), (5000, 8192));
        assert!(buffer.iter().all(|byte| *byte == 0));
        buffer[4999] = 7;
        buffer.set_len(8192);
        assert_eq!((buffer[4999], buffer[8191]), (7, 0));
    }
}

//! Buffers lent to the kernel for reads of streams (`io_uring_register_buf_ring(3)`).
//!
//! ```text
//! ours ──lend──► ring entry ──publish──► kernel ──CQE with buffer id──► ours (`bytes`) ──lend──► …
//! ```
//! An idle connection holds none of them.

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

use crate::buffer::AlignedBuffer;
use crate::limits::{RING_BUFFER_BYTES, RING_BUFFERS};

/// The group our receives name.
pub(super) const GROUP: u16 = 0;

const RING_BYTES: usize = RING_BUFFERS as usize * size_of::<BufRingEntry>();

/// The lent buffers. Dropped after the ring they are registered with.
pub(super) struct Buffers {
    ring: AlignedBuffer,
    memory: AlignedBuffer,
    tail: u16,
}

impl Buffers {
    /// Registers the buffers and lends them all.
    pub(super) fn register(uring: &IoUring) -> io::Result<Buffers> {
        let ring = AlignedBuffer::zeroed(RING_BYTES);
        let memory = AlignedBuffer::zeroed(RING_BUFFERS as usize * RING_BUFFER_BYTES);
        let address = ring.as_ptr() as u64;
        // SAFETY: `ring` is page-aligned, holds RING_BUFFERS entries and outlives the registration,
        // since the owner drops the ring of completions first.
        // JUSTIFICATION: memory shared with the kernel has no safe form.
        unsafe {
            uring.submitter().register_buf_ring_with_flags(address, RING_BUFFERS, GROUP, 0)?;
        }
        let mut buffers = Buffers { ring, memory, tail: 0 };
        for id in 0..RING_BUFFERS {
            buffers.lend(id);
        }
        buffers.publish();
        Ok(buffers)
    }

    /// What the kernel has put into a buffer.
    pub(super) fn bytes(&self, id: u16, count: usize) -> &[u8] {
        assert!(count <= RING_BUFFER_BYTES, "{count} bytes in a lent buffer");
        let start = usize::from(id) * RING_BUFFER_BYTES;
        &self.memory[start..start + count]
    }

    /// Lends a buffer again. The kernel sees it after `publish`.
    pub(super) fn lend(&mut self, id: u16) {
        assert!(id < RING_BUFFERS, "buffer {id} is none of ours");
        let place = usize::from(self.tail & (RING_BUFFERS - 1));
        let start = usize::from(id) * RING_BUFFER_BYTES;
        let address = self.memory[start..].as_mut_ptr() as u64;
        // SAFETY: `place` is below RING_BUFFERS, so the entry lies inside `ring`, which is aligned
        // to a page; the kernel does not read an entry at or past the published tail.
        // JUSTIFICATION: as in `register`.
        let entry = unsafe { &mut *self.ring.as_mut_ptr().cast::<BufRingEntry>().add(place) };
        entry.set_addr(address);
        entry.set_len(u32::try_from(RING_BUFFER_BYTES).expect("a few KiB"));
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel every buffer lent so far.
    pub(super) fn publish(&mut self) {
        let start = self.ring.as_mut_ptr().cast::<BufRingEntry>();
        // SAFETY: the tail lies in the unused field of the first entry; it is two-byte aligned and
        // only this thread writes it.
        // JUSTIFICATION: the kernel reads it at any time, so it must be an atomic store.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(start).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

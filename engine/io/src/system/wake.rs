//! How other threads reach a shard that may be parked.
//!
//! ```text
//! shard:   asleep = true ─► look at `rung` once more ─► wait on the eventfd ─► asleep = false
//! others:  rung = true   ─► asleep? then false, and write the eventfd
//! ```
//! Both sides store, fence and then load (sequentially consistent), so that at least one of them
//! sees the other: a ring is never lost. While the shard is awake a ring is two atomics and no
//! system call.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// The line between one shard and all other threads.
pub(crate) struct WakeLine {
    rung: AtomicBool,
    asleep: AtomicBool,
    event: OwnedFd,
}

impl WakeLine {
    /// A line that nobody has rung. Its eventfd is never read: each write is an edge.
    pub(crate) fn new() -> io::Result<Arc<WakeLine>> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(WakeLine {
            rung: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            event,
        }))
    }

    /// The eventfd that becomes readable.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Wakes the shard: remembers the ring, and interrupts its sleep. From any thread.
    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        self.interrupt();
    }

    /// Ends the shard's sleep without a ring: something else waits for it.
    pub(crate) fn interrupt(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            // A full counter (EAGAIN) is readable already, which is all that is wanted.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Takes the ring, if there was one. On the shard.
    pub(crate) fn take(&self) -> bool {
        self.rung.load(Ordering::SeqCst) && self.rung.swap(false, Ordering::SeqCst)
    }

    /// Whether there is a ring to take. On the shard.
    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::SeqCst)
    }

    /// Says that the shard is about to wait. It must look at everything a waker may have left
    /// after this, and must not wait when it finds something.
    pub(crate) fn fall_asleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Says that the shard runs again.
    pub(crate) fn awaken(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }
}

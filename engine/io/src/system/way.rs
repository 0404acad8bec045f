//! Giving way: a shard with a long job lets other threads have its core.
//!
//! A thread that never sleeps is put aside only at a scheduler tick, up to 4 ms later; a client, or
//! the kernel's worker that ends a write, waits so long. `sched_yield` lets it run at once. Some
//! kernels take it for a renunciation of the whole time slice, though: beside a thread that never
//! sleeps either, a shard that yields after each piece would get a hundredth of the core. Such a
//! neighbour shows in how long a yield takes; then no more is given than a small part of the time.

use std::cell::Cell;
use std::time::Duration;

use crate::limits::{WAY_LONG, WAY_PAUSE_MAX, WAY_PAUSE_TIMES};
use crate::system::clock;
use crate::time::MonoTime;

/// When a shard gives way next.
pub(crate) struct Way {
    not_before: Cell<MonoTime>,
}

impl Way {
    pub(crate) fn new() -> Way {
        Way { not_before: Cell::new(MonoTime(0)) }
    }

    /// Lets another thread have this core, if one waits for it and it is not too soon.
    pub(crate) fn give(&self) {
        let before = clock::now();
        if before >= self.not_before.get() {
            rustix::thread::sched_yield();
            let after = clock::now();
            self.not_before.set(after + pause_after(after.since(before)));
        }
    }
}

/// How long to keep the core once it was away for `away`.
fn pause_after(away: Duration) -> Duration {
    if away < WAY_LONG { Duration::ZERO } else { (away * WAY_PAUSE_TIMES).min(WAY_PAUSE_MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those who use the core for a moment have it whenever they want; one who never sleeps gets a
    /// small part by yields, and even a stopped machine's time is no reason to keep it for ever.
    #[test]
    fn a_neighbour_that_never_sleeps_gets_a_small_part_by_yields() {
        assert_eq!(pause_after(Duration::from_micros(200)), Duration::ZERO);
        let slice = Duration::from_millis(3);
        assert!(pause_after(slice) >= slice * 10);
        assert_eq!(pause_after(Duration::from_secs(3600)), WAY_PAUSE_MAX);
    }
}

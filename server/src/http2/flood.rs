//! Frames that cost us work and a client nothing, counted in two leaking buckets.

use ringbolt_io::MonoTime;

use crate::limits::{
    IDLE_FRAMES_BURST, IDLE_FRAMES_PER_S, IDLE_FRAMES_PER_SENT_FRAME, RESETS_BURST, RESETS_PER_S,
};

/// What a client may still do before it is told to calm down.
#[derive(Debug)]
pub struct Flood {
    resets: Bucket,
    idle_frames: Bucket,
}

impl Flood {
    /// Full buckets.
    #[must_use]
    pub fn new(now: MonoTime) -> Flood {
        Flood {
            resets: Bucket { left: RESETS_BURST, filled: now },
            idle_frames: Bucket { left: IDLE_FRAMES_BURST, filled: now },
        }
    }

    /// The client reset a stream, or made us reset it. False: once too often.
    #[must_use]
    pub fn reset(&mut self, now: MonoTime) -> bool {
        self.resets.take(now, RESETS_BURST, RESETS_PER_S)
    }

    /// The client sent a frame that moves no request. False: once too often.
    #[must_use]
    pub fn idle_frame(&mut self, now: MonoTime) -> bool {
        self.idle_frames.take(now, IDLE_FRAMES_BURST, IDLE_FRAMES_PER_S)
    }

    /// We sent a frame, to which window updates and bandwidth pings are a fair answer.
    pub fn sent_frame(&mut self) {
        let left = self.idle_frames.left + IDLE_FRAMES_PER_SENT_FRAME;
        self.idle_frames.left = left.min(IDLE_FRAMES_BURST);
    }
}

#[derive(Debug)]
struct Bucket {
    left: u32,
    filled: MonoTime,
}

impl Bucket {
    /// The clock is looked at only when the bucket is empty.
    fn take(&mut self, now: MonoTime, burst: u32, per_s: u32) -> bool {
        if self.left == 0 {
            let ns = (now - self.filled).as_nanos();
            let earned = ns.saturating_mul(u128::from(per_s)) / 1_000_000_000;
            self.left = u32::try_from(earned).unwrap_or(u32::MAX).min(burst);
            if self.left == 0 {
                return false;
            }
            self.filled = now;
        }
        self.left -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A burst passes, the next one does not, and time forgives.
    #[test]
    fn burst_then_rate() {
        let start = MonoTime(5);
        let mut flood = Flood::new(start);
        for _ in 0..RESETS_BURST {
            assert!(flood.reset(start));
        }
        assert!(!flood.reset(start));
        let later = start + Duration::from_secs(1);
        for _ in 0..RESETS_PER_S {
            assert!(flood.reset(later));
        }
        assert!(!flood.reset(later));
    }

    /// Frames we send pay for frames that answer them.
    #[test]
    fn answers_are_free() {
        let start = MonoTime(0);
        let mut flood = Flood::new(start);
        for _ in 0..3 * IDLE_FRAMES_BURST {
            flood.sent_frame();
            for _ in 0..IDLE_FRAMES_PER_SENT_FRAME {
                assert!(flood.idle_frame(start));
            }
        }
    }
}

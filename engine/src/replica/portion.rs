//! How much of its shard's time a long job takes.
//!
//! ```text
//!   begin ─► piece, piece, … is_over? ─► others run ─► begin
//! ```
//! One piece where the others hardly ran since the last, so that nobody waits for more; a part of
//! the time they took where they took long: a saturated shard would else let the job starve while
//! it makes more work for it.

use std::time::Duration;

use ringbolt_io::MonoTime;

use crate::limits::{JOB_TIME_MAX, JOB_TIME_MIN, JOB_TIME_OTHERS};

/// The turns of one job.
pub(super) struct Portion {
    until: MonoTime,
    ended: MonoTime,
    pieces: usize,
    pieces_max: usize,
}

impl Portion {
    /// The job begins; a turn of it has at most so many pieces.
    pub(super) fn new(now: MonoTime, pieces_max: usize) -> Portion {
        Portion { until: now + JOB_TIME_MIN, ended: now, pieces: 0, pieces_max }
    }

    /// Others have run: the next turn begins.
    pub(super) fn begin(&mut self, now: MonoTime) {
        self.until = now + time_after(now.since(self.ended));
        self.pieces = 0;
    }

    /// A piece is done: whether others run before the next.
    pub(super) fn is_over(&mut self, now: MonoTime) -> bool {
        self.pieces += 1;
        self.ended = now;
        self.pieces >= self.pieces_max || now >= self.until
    }
}

/// What a job may take after the others took `others`.
fn time_after(others: Duration) -> Duration {
    (others / JOB_TIME_OTHERS).clamp(JOB_TIME_MIN, JOB_TIME_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: Duration = Duration::from_micros(10);

    /// How many pieces a turn has after the others took `others`.
    fn pieces(others: Duration, pieces_max: usize) -> usize {
        let mut now = MonoTime(1_000_000);
        let mut portion = Portion::new(now, pieces_max);
        now = now + others;
        portion.begin(now);
        for count in 1.. {
            now = now + PIECE;
            if portion.is_over(now) {
                return count;
            }
        }
        unreachable!("a turn ends")
    }

    /// A shard that is always busy gives a job its part, an idle one gives it little at a time.
    #[test]
    fn a_job_does_not_starve_on_a_saturated_shard() {
        assert_eq!(pieces(Duration::from_micros(5), 1000), 2);
        assert_eq!(pieces(Duration::from_millis(2), 1000), 200);
        assert_eq!(pieces(Duration::from_secs(2), 1000), 400, "nobody waits for more than 4 ms");
        assert_eq!(pieces(Duration::from_secs(2), 16), 16);
    }
}

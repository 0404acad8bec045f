//! When the next call is due. Pure: moments are times since the start of the run.

use std::time::Duration;

use crate::limits::SOAK_CATCH_UP;

/// Calls at an even rate, whatever became of those before.
///
/// A run that falls behind catches up as fast as it can, but only with the calls that are not due
/// for longer than [`SOAK_CATCH_UP`]; those before are skipped and counted.
///
/// ```text
///   rate 10/s, catch-up 250 ms, nothing sent until 1 s:
///   due   0  .1  .2  .3  .4  .5  .6  .7 | .8  .9  1.0
///         └────────── skipped ─────────┘ └ sent at once
/// ```
pub struct Pacer {
    per_second: f64,
    /// Number of the next call.
    next: u64,
    skipped: u64,
}

impl Pacer {
    /// A pacer for this many calls each second, the first of them due at once.
    pub fn new(per_second: f64) -> Pacer {
        assert!(per_second > 0.0, "a rate of {per_second}");
        Pacer { per_second, next: 0, skipped: 0 }
    }

    /// Takes the next call when it is due by `now`, and gives the moment it was due.
    pub fn take(&mut self, now: Duration) -> Option<Duration> {
        if self.next_due() + SOAK_CATCH_UP < now {
            let first = self.number_at(now.saturating_sub(SOAK_CATCH_UP)).max(self.next);
            self.skipped += first - self.next;
            self.next = first;
        }
        let due = self.next_due();
        if due > now {
            return None;
        }
        self.next += 1;
        Some(due)
    }

    /// When the next call is due.
    pub fn next_due(&self) -> Duration {
        Duration::from_secs_f64(count(self.next) / self.per_second)
    }

    /// Calls that were due and never taken.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The first call that is due at `moment` or later.
    fn number_at(&self, moment: Duration) -> u64 {
        let mut number = self.next;
        // Bit by bit: a float is not turned into a count.
        let mut step = 1u64 << 40;
        while step > 0 {
            let due = Duration::from_secs_f64(count(number + step - 1) / self.per_second);
            if due < moment {
                number += step;
            }
            step /= 2;
        }
        number
    }
}

/// A count of calls as a number; exact below 2⁵³.
fn count(calls: u64) -> f64 {
    let (high, low) = (calls >> 32, calls & u64::from(u32::MAX));
    let part = |half: u64| u32::try_from(half).map_or(f64::MAX, f64::from);
    part(high) * 4_294_967_296.0 + part(low)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Pacer;

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    fn taken(pacer: &mut Pacer, now: Duration) -> Vec<Duration> {
        std::iter::from_fn(|| pacer.take(now)).collect()
    }

    /// On time, a second has as many calls as the rate says, each at its moment.
    #[test]
    fn calls_are_due_at_an_even_rate() {
        let mut pacer = Pacer::new(1000.0);
        let mut all = Vec::new();
        for at in 0..1000 {
            all.extend(taken(&mut pacer, ms(at)));
        }
        assert_eq!(all.len(), 1000);
        assert_eq!((all[0], all[1], all[999]), (ms(0), ms(1), ms(999)));
        assert_eq!(pacer.next_due(), ms(1000));
        assert_eq!(pacer.skipped(), 0);
    }

    /// Nothing is due before its moment.
    #[test]
    fn a_call_is_not_taken_early() {
        let mut pacer = Pacer::new(10.0);
        assert_eq!(pacer.take(ms(0)), Some(ms(0)));
        assert_eq!(pacer.take(ms(99)), None);
        assert_eq!(pacer.take(ms(100)), Some(ms(100)));
    }

    /// A short pause is caught up in full, and each call keeps the moment it was due.
    #[test]
    fn a_short_pause_is_caught_up() {
        let mut pacer = Pacer::new(10.0);
        assert_eq!(taken(&mut pacer, ms(0)).len(), 1);
        assert_eq!(taken(&mut pacer, ms(300)), [ms(100), ms(200), ms(300)]);
        assert_eq!(pacer.skipped(), 0);
    }

    /// The example at the type: of a long pause only the newest calls are caught up.
    #[test]
    fn a_long_pause_is_not_caught_up_in_full() {
        let mut pacer = Pacer::new(10.0);
        assert_eq!(taken(&mut pacer, ms(1000)), [ms(800), ms(900), ms(1000)]);
        assert_eq!(pacer.skipped(), 8);
        assert_eq!(pacer.take(ms(1099)), None);
        assert_eq!(pacer.take(ms(1100)), Some(ms(1100)));
    }

    /// Calls skipped and calls taken are together those that were due, over hours too.
    #[test]
    fn no_call_is_lost_over_hours() {
        let mut pacer = Pacer::new(12_345.678);
        let mut all = 0;
        for step in 0..200u64 {
            all += u64::try_from(taken(&mut pacer, ms(step * 60_000)).len()).unwrap();
        }
        let (end, due) = (199.0 * 60.0, 12_345.678);
        let expected = end * due;
        let seen = super::count(all + pacer.skipped());
        assert!((seen - expected).abs() <= 1.0, "{seen} calls, {expected} expected");
    }
}

//! The clocks of one machine: they drift, jump and stop, the world's time does not.

use crate::time::{MonoTime, WallTime};

/// Where the wall clock of every machine starts: 2025-01-01 00:00:00 UTC.
const WALL_START_NS: u64 = 1_735_689_600_000_000_000;
const MILLION: i128 = 1_000_000;

/// Monotonic time is a line through (`at`, `mono`) with a slope; it stands still until
/// `frozen_until`.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    at: u64,
    mono: u64,
    drift_ppm: i64,
    frozen_until: u64,
    /// Wall time minus monotonic time.
    wall_offset: i128,
}

impl Clock {
    /// A right clock, started at world time `now`.
    pub(super) fn new(now: u64) -> Clock {
        let wall_offset = i128::from(WALL_START_NS + now) - 1;
        Clock { at: now, mono: 1, drift_ppm: 0, frozen_until: 0, wall_offset }
    }

    pub(super) fn mono(&self, now: u64) -> MonoTime {
        let start = self.at.max(self.frozen_until);
        let passed = i128::from(now.saturating_sub(start));
        let scaled = passed * (MILLION + i128::from(self.drift_ppm)) / MILLION;
        MonoTime(self.mono + u64::try_from(scaled).expect("a clock never runs backwards"))
    }

    pub(super) fn wall(&self, now: u64) -> WallTime {
        let wall = i128::from(self.mono(now).0) + self.wall_offset;
        WallTime(u64::try_from(wall.max(0)).unwrap_or(u64::MAX))
    }

    /// The earliest world time, `now` or later, at which this clock shows `when`.
    pub(super) fn world(&self, when: MonoTime, now: u64) -> u64 {
        let start = self.at.max(self.frozen_until);
        let left = i128::from(when.0.saturating_sub(self.mono));
        let rate = MILLION + i128::from(self.drift_ppm);
        // Rounded up: at the answer the clock shows `when`, never a nanosecond less.
        let scaled = (left * MILLION + rate - 1) / rate;
        if when.0 <= self.mono {
            return now;
        }
        start.saturating_add(u64::try_from(scaled).unwrap_or(u64::MAX)).max(now)
    }

    /// Parts per million by which it runs fast (or slow) from now on.
    pub(super) fn set_drift(&mut self, now: u64, drift_ppm: i64) {
        assert!(drift_ppm > -1_000_000, "a clock never runs backwards");
        self.rebase(now);
        self.drift_ppm = drift_ppm;
    }

    /// Monotonic and wall time go forward at once.
    pub(super) fn jump_mono(&mut self, now: u64, by: u64) {
        self.rebase(now);
        self.mono += by;
    }

    /// Only the wall clock moves, either way.
    pub(super) fn jump_wall(&mut self, by: i64) {
        self.wall_offset += i128::from(by);
    }

    /// Both clocks stand still for `time`.
    pub(super) fn freeze(&mut self, now: u64, time: u64) {
        self.rebase(now);
        self.frozen_until = self.frozen_until.max(now + time);
    }

    /// The machine was switched on again: monotonic time starts over, the wall clock runs on.
    pub(super) fn reboot(&mut self, now: u64) {
        let wall = i128::from(self.wall(now).0);
        *self = Clock { wall_offset: wall - 1, drift_ppm: self.drift_ppm, ..Clock::new(now) };
    }

    fn rebase(&mut self, now: u64) {
        self.mono = self.mono(now).0;
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The world time of a timer is the first at which the clock shows it, whatever the drift.
    #[test]
    fn world_is_the_inverse_of_mono() {
        for drift in [-300_000, -500, 0, 1, 777, 250_000] {
            let mut clock = Clock::new(5_000);
            clock.set_drift(9_000, drift);
            for when in [4_002, 4_010, 1_000_000, 77_777_777] {
                let world = clock.world(MonoTime(when), 9_000);
                assert!(clock.mono(world).0 >= when);
                assert!(world == 9_000 || clock.mono(world - 1).0 < when);
            }
        }
    }

    /// Jumps and pauses do what they say, and monotonic time never goes back.
    #[test]
    fn jumps_and_freezes() {
        let mut clock = Clock::new(0);
        assert_eq!((clock.mono(10).0, clock.wall(10).as_secs()), (11, 1_735_689_600));
        clock.jump_mono(10, 100);
        assert_eq!(clock.mono(10).0, 111);
        clock.freeze(20, 50);
        assert_eq!([clock.mono(20).0, clock.mono(69).0, clock.mono(75).0], [121, 121, 126]);
        assert_eq!(clock.world(MonoTime(122), 30), 71);
        let before = clock.wall(80);
        clock.jump_wall(-1_000_000_000);
        assert_eq!(clock.wall(80).as_secs(), before.as_secs() - 1);
        let wall = clock.wall(90);
        clock.reboot(90);
        assert_eq!((clock.mono(90).0, clock.wall(90)), (1, wall));
    }
}

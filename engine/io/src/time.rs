//! Points in time as the seam gives them.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A monotonic instant of one shard's clock. Unit: nanoseconds since an arbitrary start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonoTime(pub u64);

/// Wall-clock time. Unit: nanoseconds since the Unix epoch. It may jump in either direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(pub u64);

impl MonoTime {
    /// Time since `earlier`; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: MonoTime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for MonoTime {
    type Output = MonoTime;
    fn add(self, wait: Duration) -> MonoTime {
        MonoTime(self.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for MonoTime {
    type Output = Duration;
    fn sub(self, earlier: MonoTime) -> Duration {
        self.since(earlier)
    }
}

impl WallTime {
    /// Whole seconds since the Unix epoch.
    #[must_use]
    pub fn as_secs(self) -> u64 {
        self.0 / 1_000_000_000
    }
}

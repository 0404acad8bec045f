//! How fast a run's clients are, and how long its time is.
//!
//! Swarm testing of time itself: a dense run has hundreds of requests a second for seconds, so that
//! clients meet and many things are in flight; a sparse one has a few to tens a second for many
//! minutes, so that leases run out, clocks drift apart, logs turn over and checkpoints follow each
//! other while little happens.

use std::time::Duration;

use ringbolt_io::sim::Rng;

/// The pace of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Hundreds of requests a second.
    Dense,
    /// Tens of requests a second and fewer, over a hundred times the time.
    Sparse,
}

/// How much longer a sparse run is.
const SPARSE_SPANS: u32 = 120;

impl Pace {
    /// Drawn from the seed: one or the other, evenly.
    #[must_use]
    pub fn draw(seed: u64) -> Pace {
        if Rng::new(seed ^ 0x7061_6365).coin() { Pace::Sparse } else { Pace::Dense }
    }

    /// The virtual time of a run whose dense form has `span`.
    #[must_use]
    pub fn stretch(self, span: Duration) -> Duration {
        match self {
            Pace::Dense => span,
            Pace::Sparse => SPARSE_SPANS * span,
        }
    }

    /// How long a life is before it is disturbed or ended. Most are short: beginnings and ends are
    /// where things go wrong.
    #[must_use]
    pub fn life(self, rng: &mut Rng, busy: bool) -> Duration {
        let span = match self {
            Pace::Dense => Duration::from_millis(5 << rng.below(if busy { 9 } else { 13 })),
            Pace::Sparse => Duration::from_millis(500 << rng.below(10)),
        };
        span + Duration::from_millis(rng.below(5))
    }

    /// How far a clock jumps or how long a process is stopped: seconds, in a sparse run minutes.
    #[must_use]
    pub fn jump(self, rng: &mut Rng) -> Duration {
        let by = Duration::from_millis(rng.between((1, 3_000)));
        match self {
            Pace::Sparse if rng.coin() => 60 * by,
            _ => by,
        }
    }

    /// How long to wait for something that comes with the load.
    #[must_use]
    pub fn patience(self) -> Duration {
        match self {
            Pace::Dense => Duration::from_secs(2),
            Pace::Sparse => Duration::from_secs(60),
        }
    }

    /// Microseconds a client thinks between two requests, at most.
    #[must_use]
    pub fn think_us(self, rng: &mut Rng) -> u64 {
        match self {
            Pace::Dense => [1_000, 10_000, 50_000, 100_000, 400_000, 1_000_000][rng.index(6)],
            Pace::Sparse => [400_000, 2_000_000, 10_000_000][rng.index(3)],
        }
    }

    /// Clients of a keyspace.
    #[must_use]
    pub fn clients(self, rng: &mut Rng) -> u64 {
        match self {
            Pace::Dense => rng.between((1, 8)),
            Pace::Sparse => rng.between((1, 4)),
        }
    }

    /// Seconds that leases are granted for, from and to.
    #[must_use]
    pub fn lease_ttl_s(self, rng: &mut Rng) -> (u64, u64) {
        match self {
            Pace::Sparse if rng.coin() => (5, 90),
            _ => (2, 6),
        }
    }
}

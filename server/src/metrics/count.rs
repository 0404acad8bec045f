//! Counters and histograms of one shard: plain cells, read when somebody scrapes.

use std::cell::{Cell, RefCell};
use std::time::Duration;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(Cell<u64>);

impl Counter {
    /// One more.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Some more.
    pub fn add(&self, count: u64) {
        self.0.set(self.0.get().saturating_add(count));
    }

    /// The number now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.get()
    }

    /// Back to zero, after the number was taken elsewhere.
    pub fn reset(&self) {
        self.0.set(0);
    }
}

/// Observations in buckets.
#[derive(Debug)]
pub struct Histogram {
    bounds: Vec<f64>,
    counts: RefCell<Vec<u64>>,
    sum: Cell<f64>,
}

impl Histogram {
    /// Buckets with these upper bounds, and one above them.
    #[must_use]
    pub fn new(bounds: Vec<f64>) -> Histogram {
        assert!(bounds.is_sorted(), "bounds grow: {bounds:?}");
        let counts = RefCell::new(vec![0; bounds.len() + 1]);
        Histogram { bounds, counts, sum: Cell::new(0.0) }
    }

    /// Prometheus' `ExponentialBuckets`: the first bound, the factor, how many.
    #[must_use]
    pub fn exponential(first: f64, factor: f64, count: usize) -> Histogram {
        let bounds = std::iter::successors(Some(first), |bound| Some(bound * factor));
        Histogram::new(bounds.take(count).collect())
    }

    /// One observation.
    pub fn observe(&self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts.borrow_mut()[bucket] += 1;
        self.sum.set(self.sum.get() + value);
    }

    /// One duration, in seconds.
    pub fn observe_time(&self, time: Duration) {
        self.observe(time.as_secs_f64());
    }

    /// Adds the observations of a histogram with the same bounds.
    pub fn absorb(&self, other: &Histogram) {
        assert_eq!(self.bounds.len(), other.bounds.len(), "only equal histograms add up");
        for (own, other) in self.counts.borrow_mut().iter_mut().zip(other.counts.borrow().iter()) {
            *own += other;
        }
        self.sum.set(self.sum.get() + other.sum.get());
    }

    /// Back to no observations, after they were taken elsewhere.
    pub fn reset(&self) {
        self.counts.borrow_mut().fill(0);
        self.sum.set(0.0);
    }

    /// Bounds, counts per bucket, sum.
    #[must_use]
    pub fn snapshot(&self) -> (&[f64], Vec<u64>, f64) {
        (&self.bounds, self.counts.borrow().clone(), self.sum.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value on a bound belongs to the bucket below it, as `le` says.
    #[test]
    fn buckets() {
        let histogram = Histogram::exponential(0.001, 2.0, 3);
        for value in [0.001, 0.0015, 0.004, 1.0] {
            histogram.observe(value);
        }
        let (bounds, counts, sum) = histogram.snapshot();
        assert_eq!(bounds, [0.001, 0.002, 0.004]);
        assert_eq!(counts, [1, 1, 1, 1]);
        assert!((sum - 1.0065).abs() < 1e-12);
    }
}

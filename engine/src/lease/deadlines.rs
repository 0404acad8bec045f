//! The leader's half: when each lease ends by its own clock.
//!
//! A deadline exists for each lease of the table while this member leads. Its life:
//!
//! ```text
//!              grant, lead                    due                      forget (revoke applied)
//!   (nothing) ────────────► Running ───────────────────► Revoking ────────────────────► (nothing)
//!                            │   ▲                        │    ▲
//!                            └───┘ renew                  └────┘ due again after the retry time
//! ```
//!
//! A lease that was handed out for revocation is never renewed: its holder may have been told
//! already that it is over. If the proposal was lost, the lease comes due again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ringbolt_io::time::MonoTime;

use crate::types::LeaseId;

/// Ends of leases in the order (end, id). Lives on the keyspace's home shard; never crosses.
#[derive(Clone, Debug, Default)]
pub struct Deadlines {
    /// Every deadline once, by the moment at which something has to be done about it.
    order: BTreeSet<(MonoTime, LeaseId)>,
    by_id: BTreeMap<LeaseId, Deadline>,
    retry: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Deadline {
    /// Where this deadline stands in `order`.
    at: MonoTime,
    /// The end of the lease. Differs from `at` only while revoking.
    end: MonoTime,
    ttl: Duration,
    revoking: bool,
}

/// What became of a keep-alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The lease has its full time to live again. Unit: seconds.
    Renewed {
        /// The granted time to live.
        ttl_s: i64,
    },
    /// Its time has passed: it is being revoked. The caller waits until it is gone, then answers
    /// a time to live of 0.
    Ended,
    /// There is no such lease.
    Unknown,
}

impl Deadlines {
    /// No deadlines yet. A lease that came due comes due again after `retry` unless it was
    /// forgotten by then.
    #[must_use]
    pub fn new(retry: Duration) -> Deadlines {
        Deadlines { retry, ..Deadlines::default() }
    }

    /// Starts over as a leader: each lease gets its full time to live plus `grace`, which is one
    /// election timeout. Ends may so come later than the holder expects, never earlier.
    ///
    /// Source: etcd, leases after a leader change or a restart.
    pub fn lead(
        &mut self,
        leases: impl Iterator<Item = (LeaseId, i64)>,
        now: MonoTime,
        grace: Duration,
    ) {
        self.clear();
        for (id, ttl_s) in leases {
            self.set(id, seconds(ttl_s), now + seconds(ttl_s) + grace);
        }
    }

    /// Forgets everything: this member does not lead.
    pub fn clear(&mut self) {
        self.order.clear();
        self.by_id.clear();
    }

    /// A lease was granted. Unit: seconds from `now`.
    pub fn grant(&mut self, id: LeaseId, ttl_s: i64, now: MonoTime) {
        self.set(id, seconds(ttl_s), now + seconds(ttl_s));
    }

    /// A holder asked to keep its lease. Nothing is written: only this clock changes.
    ///
    /// Source: etcd `LeaseKeepAlive`.
    pub fn renew(&mut self, id: LeaseId, now: MonoTime) -> Renewal {
        let Some(deadline) = self.by_id.get(&id).copied() else {
            return Renewal::Unknown;
        };
        if deadline.revoking || deadline.end <= now {
            return Renewal::Ended;
        }
        self.set(id, deadline.ttl, now + deadline.ttl);
        Renewal::Renewed { ttl_s: i64::try_from(deadline.ttl.as_secs()).unwrap_or(i64::MAX) }
    }

    /// The lease is gone from the table.
    pub fn forget(&mut self, id: LeaseId) {
        if let Some(deadline) = self.by_id.remove(&id) {
            let was_ordered = self.order.remove(&(deadline.at, id));
            assert!(was_ordered, "each deadline is in the order once");
        }
    }

    /// Leases whose time has passed, in the order (end, id), at most `count_max`. The caller
    /// proposes to revoke them. What is left over comes with the next call.
    ///
    /// Cost: O(log n) for each lease handed out, nothing for those that are not due.
    pub fn due(&mut self, now: MonoTime, count_max: usize) -> Vec<LeaseId> {
        let mut due = Vec::new();
        while due.len() < count_max {
            let Some((at, id)) = self.order.first().copied() else { break };
            if at > now {
                break;
            }
            self.order.pop_first();
            let deadline = self.by_id.get_mut(&id).expect("each ordered id has a deadline");
            assert_eq!(deadline.at, at, "an id stands in the order where it says");
            deadline.revoking = true;
            deadline.at = now + self.retry.max(Duration::from_nanos(1));
            self.order.insert((deadline.at, id));
            due.push(id);
        }
        due
    }

    /// When [`Deadlines::due`] will have something at the earliest.
    #[must_use]
    pub fn next(&self) -> Option<MonoTime> {
        self.order.first().map(|(at, _)| *at)
    }

    /// How long the lease still has; zero when its time has passed. `None` when it is unknown.
    #[must_use]
    pub fn remaining(&self, id: LeaseId, now: MonoTime) -> Option<Duration> {
        self.by_id.get(&id).map(|deadline| deadline.end.since(now))
    }

    /// The ids in the order of their ends, as `LeaseLeases` lists them.
    pub fn ids(&self) -> impl Iterator<Item = LeaseId> {
        self.order.iter().map(|(_, id)| *id)
    }

    /// How many leases are watched over.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Checks the whole structure: both indexes hold the same. O(n).
    pub fn check(&self) {
        assert_eq!(self.order.len(), self.by_id.len(), "both indexes hold the same leases");
        for (id, deadline) in &self.by_id {
            assert!(self.order.contains(&(deadline.at, *id)), "{id:?} is ordered at its time");
            assert!(deadline.at >= deadline.end, "{id:?} is not handled before its end");
            assert!(
                deadline.revoking || deadline.at == deadline.end,
                "{id:?} is handled at its end"
            );
        }
    }

    fn set(&mut self, id: LeaseId, ttl: Duration, end: MonoTime) {
        self.forget(id);
        self.by_id.insert(id, Deadline { at: end, end, ttl, revoking: false });
        self.order.insert((end, id));
    }
}

fn seconds(ttl_s: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl_s).unwrap_or(0))
}

#[cfg(test)]
mod tests;

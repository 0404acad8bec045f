//! What is certain about each lease: how long it must live, and when it is surely gone.
//!
//! Times are the machine's monotonic clock, which starts over with each boot; a moment of another
//! boot says nothing about this one, but the opening of the store in this life does: from there
//! every lease has its full time and one election timeout.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ringbolt_io::MonoTime;

/// What is known of one lease.
#[derive(Clone, Debug, Default)]
struct Lease {
    ttl_s: i64,
    /// A grant was acknowledged, or the store showed it at a restart.
    certain: bool,
    /// It was there when this life began.
    carried: bool,
    /// Somebody asked to renew it in this life: the extra time of a restart may be gone.
    renew_called: bool,
    /// Somebody asked to revoke it: it may go at any time.
    revoke_called: bool,
    /// It is gone for good.
    dead: bool,
    /// Grants and renewals that were acknowledged in this boot: called and returned.
    renewals: Vec<(MonoTime, MonoTime)>,
}

/// Every lease of one keyspace.
#[derive(Clone, Debug, Default)]
pub struct LeaseBook {
    leases: BTreeMap<i64, Lease>,
    /// Those that may be there.
    alive: BTreeSet<i64>,
    opened: Option<MonoTime>,
    election: Duration,
}

impl LeaseBook {
    /// A grant was asked for: from now on the lease may be there.
    pub fn grant_called(&mut self, id: i64, ttl_s: i64) {
        let fresh = Lease { ttl_s, ..Lease::default() };
        self.leases.entry(id).or_insert(fresh);
        self.alive.insert(id);
    }

    /// A grant was acknowledged.
    pub fn granted(&mut self, id: i64, called: MonoTime, now: MonoTime) {
        let lease = self.leases.entry(id).or_default();
        lease.certain = true;
        lease.renewals.push((called, now));
    }

    /// Somebody asks to renew it.
    pub fn renew_called(&mut self, id: i64) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.renew_called = true;
        }
    }

    /// A renewal was answered with `ttl_s` seconds.
    ///
    /// # Errors
    /// What cannot be.
    pub fn renewed(
        &mut self,
        id: i64,
        ttl_s: i64,
        called: MonoTime,
        now: MonoTime,
    ) -> Result<(), String> {
        if ttl_s == 0 {
            if self.surely_alive(id, now) {
                return Err(format!("lease {id} was called gone within its time"));
            }
            return Ok(());
        }
        let Some(lease) = self.leases.get_mut(&id) else {
            return Err(format!("lease {id} was renewed and never granted"));
        };
        if lease.ttl_s != ttl_s {
            return Err(format!("lease {id} of {} s was renewed to {ttl_s} s", lease.ttl_s));
        }
        if lease.dead {
            return Err(format!("lease {id} rose from the dead"));
        }
        lease.renewals.push((called, now));
        Ok(())
    }

    /// Somebody asks to revoke it.
    pub fn revoke_called(&mut self, id: i64) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.revoke_called = true;
        }
    }

    /// It was revoked, or the store said that it is gone.
    pub fn died(&mut self, id: i64) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.dead = true;
            self.alive.remove(&id);
        }
    }

    /// Whether a grant of it was ever asked for.
    #[must_use]
    pub fn is_known(&self, id: i64) -> bool {
        self.leases.contains_key(&id)
    }

    /// Whether it is gone for good.
    #[must_use]
    pub fn is_dead(&self, id: i64) -> bool {
        self.leases.get(&id).is_none_or(|lease| lease.dead)
    }

    /// Whether it must be there at `now` and must have been since its last renewal.
    #[must_use]
    pub fn surely_alive(&self, id: i64, now: MonoTime) -> bool {
        let Some(lease) = self.leases.get(&id) else { return false };
        lease.certain && !lease.revoke_called && !lease.dead && now < self.guaranteed(lease, now)
    }

    /// Until when it must live, as far as was acknowledged before `now`.
    fn guaranteed(&self, lease: &Lease, now: MonoTime) -> MonoTime {
        let ttl = Duration::from_secs(u64::try_from(lease.ttl_s).unwrap_or(0));
        let answered = lease.renewals.iter().filter(|(_, returned)| *returned <= now);
        let renewed = answered.map(|(called, _)| *called + ttl).max().unwrap_or_default();
        let opened = self.opened.filter(|_| lease.carried).map(|opened| opened + ttl);
        let extra = if lease.renew_called { Duration::ZERO } else { self.election };
        renewed.max(opened.map(|until| until + extra).unwrap_or_default())
    }

    /// It ended by itself, seen at `now`.
    ///
    /// # Errors
    /// When that was too early.
    pub fn expired(&self, id: i64, now: MonoTime) -> Result<(), String> {
        let Some(lease) = self.leases.get(&id) else {
            return Err(format!("lease {id} ended and never began"));
        };
        let until = self.guaranteed(lease, now);
        if now < until && lease.certain {
            let early = until.since(now);
            return Err(format!("lease {id} of {} s ended {early:?} too early", lease.ttl_s));
        }
        Ok(())
    }

    /// The store, asked to open at `now`, shows these leases. `lossless`: nothing acknowledged may
    /// be missing.
    ///
    /// # Errors
    /// A lease that is missing, back from the dead, or changed.
    pub fn recovered(
        &mut self,
        shown: &[(i64, i64)],
        now: MonoTime,
        lossless: bool,
        election: Duration,
    ) -> Result<(), String> {
        let shown: BTreeMap<i64, i64> = shown.iter().copied().collect();
        for (id, ttl_s) in &shown {
            let Some(lease) = self.leases.get(id) else {
                return Err(format!("lease {id} is there and was never asked for"));
            };
            if lease.ttl_s != *ttl_s {
                return Err(format!("lease {id} of {} s came back with {ttl_s} s", lease.ttl_s));
            }
            if lossless && lease.dead {
                return Err(format!("lease {id} was revoked and came back"));
            }
        }
        for (id, lease) in &mut self.leases {
            let there = shown.contains_key(id);
            // Without a renewal after its end nobody knows whether it ended before the crash.
            if lossless && lease.certain && !there && !lease.revoke_called && !lease.dead {
                let ended_before = lease.renewals.is_empty();
                if !ended_before {
                    return Err(format!("lease {id} is lost"));
                }
            }
            lease.dead = !there;
            match there {
                true => self.alive.insert(*id),
                false => self.alive.remove(id),
            };
            lease.certain = there;
            lease.carried = there;
            // Whoever asked to revoke it died with the process.
            lease.revoke_called = false;
            lease.renew_called = false;
            lease.renewals.clear();
        }
        self.opened = Some(now);
        self.election = election;
        Ok(())
    }

    /// What may have ended by itself before a crash at `now` is not missed after it.
    pub fn crashed(&mut self, now: MonoTime) {
        let certain: Vec<i64> = self.leases.keys().copied().collect();
        for id in certain {
            let alive = self.surely_alive(id, now);
            let lease = self.leases.get_mut(&id).expect("it is a key");
            lease.renewals.clear();
            if alive {
                lease.renewals.push((now, now));
            }
        }
    }

    /// Ids of the leases that may be there.
    pub fn maybe_alive(&self) -> impl Iterator<Item = i64> {
        self.alive.iter().copied()
    }
}

//! What is certain about each lease: how long it must live, and when it is surely gone.
//!
//! An id may be granted again once its lease is gone, always with the same time to live. A
//! generation counts the moments from which an answer may be about another lease of the same id:
//! what was asked in one generation and answered in another proves nothing.
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
    /// Requests to revoke it whose end nobody knows: it may go at any time.
    revokes_open: u64,
    /// Requests to grant it whose end nobody knows: it may come at any time.
    grants_open: u64,
    /// It was revoked while a grant was open: nobody knows which came last.
    unclear: bool,
    /// It is gone, and nobody asked for it since.
    dead: bool,
    generation: u64,
    /// Grants and renewals that were acknowledged in this boot, in that order: when each returned,
    /// and the latest call of all so far.
    renewals: Vec<(MonoTime, MonoTime)>,
}

impl Lease {
    /// Called at one moment and acknowledged at another, no earlier than those before.
    fn renew(&mut self, called: MonoTime, returned: MonoTime) {
        let (before, latest) = self.renewals.last().copied().unwrap_or_default();
        assert!(returned >= before, "a clock never runs backwards");
        self.renewals.push((returned, latest.max(called)));
    }

    /// The latest call that was acknowledged by `now`.
    fn renewed(&self, now: MonoTime) -> Option<MonoTime> {
        let count = self.renewals.partition_point(|(returned, _)| *returned <= now);
        self.renewals[..count].last().map(|(_, latest)| *latest)
    }
}

/// What was certain of a lease when a request about it was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    generation: u64,
    sure: bool,
    dead: bool,
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
    /// What is certain of `id` at `now`.
    #[must_use]
    pub fn known(&self, id: i64, now: MonoTime) -> Known {
        let generation = self.leases.get(&id).map_or(0, |lease| lease.generation);
        Known { generation, sure: self.surely_alive(id, now), dead: self.is_dead(id) }
    }

    /// Whether it was there from a call made when `known` was known until `now`.
    #[must_use]
    pub fn was_alive(&self, id: i64, known: Known, now: MonoTime) -> bool {
        known.sure && self.is_same(id, known) && self.surely_alive(id, now)
    }

    /// Whether it was not there from a call made when `known` was known until now.
    #[must_use]
    pub fn was_dead(&self, id: i64, known: Known) -> bool {
        known.dead && self.is_same(id, known) && self.is_dead(id)
    }

    fn is_same(&self, id: i64, known: Known) -> bool {
        self.leases.get(&id).map_or(0, |lease| lease.generation) == known.generation
    }

    /// A grant was asked for: from now on the lease may be there.
    pub fn grant_called(&mut self, id: i64, ttl_s: i64) {
        let fresh = Lease { ttl_s, dead: true, ..Lease::default() };
        let lease = self.leases.entry(id).or_insert(fresh);
        assert_eq!(lease.ttl_s, ttl_s, "an id always has the same time");
        lease.grants_open += 1;
        if lease.dead {
            lease.dead = false;
            lease.certain = false;
            lease.generation += 1;
        }
        self.alive.insert(id);
    }

    /// A grant was acknowledged.
    pub fn granted(&mut self, id: i64, called: MonoTime, now: MonoTime) {
        let lease = self.leases.entry(id).or_default();
        lease.grants_open = lease.grants_open.saturating_sub(1);
        lease.generation += 1;
        (lease.certain, lease.carried, lease.dead) = (!lease.unclear, false, false);
        lease.unclear &= lease.grants_open > 0;
        lease.renew(called, now);
        self.alive.insert(id);
    }

    /// Whether the grant that was made when `known` was known is the only one since.
    #[must_use]
    pub fn is_only_grant(&self, id: i64, known: Known) -> bool {
        let alone = self.leases.get(&id).is_some_and(|lease| lease.grants_open == 1);
        alone && self.is_same(id, known)
    }

    /// A grant was refused.
    pub fn grant_refused(&mut self, id: i64) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.grants_open = lease.grants_open.saturating_sub(1);
        }
    }

    /// Somebody asks to renew it.
    pub fn renew_called(&mut self, id: i64) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.renew_called = true;
        }
    }

    /// A renewal that was asked for at `called` was answered with `ttl_s` seconds.
    ///
    /// # Errors
    /// What cannot be.
    pub fn renewed(
        &mut self,
        id: i64,
        ttl_s: i64,
        (called, known): (MonoTime, Known),
        now: MonoTime,
    ) -> Result<(), String> {
        if ttl_s == 0 {
            if self.was_alive(id, known, now) {
                return Err(format!("lease {id} was called gone within its time"));
            }
            return Ok(());
        }
        if self.was_dead(id, known) {
            return Err(format!("lease {id} rose from the dead"));
        }
        let same = self.is_same(id, known);
        let Some(lease) = self.leases.get_mut(&id) else {
            return Err(format!("lease {id} was renewed and never granted"));
        };
        if lease.ttl_s != ttl_s {
            return Err(format!("lease {id} of {} s was renewed to {ttl_s} s", lease.ttl_s));
        }
        if same && !lease.dead {
            lease.renew(called, now);
        }
        Ok(())
    }

    /// What is left of it was told: `left_s` of `granted_s`.
    ///
    /// # Errors
    /// What cannot be.
    pub fn told_left(
        &self,
        id: i64,
        (left_s, granted_s): (i64, i64),
        known: Known,
        now: MonoTime,
    ) -> Result<(), String> {
        let Some(lease) = self.leases.get(&id) else {
            return Err(format!("lease {id} has {left_s} s left and was never granted"));
        };
        if self.was_dead(id, known) {
            return Err(format!("lease {id} is gone and has {left_s} s left"));
        }
        let most = lease.ttl_s + i64::try_from(self.election.as_secs()).unwrap_or(0) + 1;
        let until = self.guaranteed(lease, now);
        let due = if self.was_alive(id, known, now) { until.since(now).as_secs() } else { 0 };
        let least = i64::try_from(due).unwrap_or(0);
        if granted_s != lease.ttl_s || left_s > most || left_s < least {
            return Err(format!(
                "lease {id} of {} s has {left_s} s of {granted_s} left, not {least}..={most}",
                lease.ttl_s
            ));
        }
        Ok(())
    }

    /// Somebody asks to revoke it.
    pub fn revoke_called(&mut self, id: i64) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.revokes_open += 1;
        }
    }

    /// A revocation was refused.
    pub fn revoke_refused(&mut self, id: i64) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.revokes_open = lease.revokes_open.saturating_sub(1);
        }
    }

    /// It was revoked by a request that was made when `known` was known.
    pub fn revoked(&mut self, id: i64, known: Known) {
        let same = self.is_same(id, known);
        let Some(lease) = self.leases.get_mut(&id) else { return };
        lease.revokes_open = lease.revokes_open.saturating_sub(1);
        lease.certain = false;
        lease.unclear |= lease.grants_open > 0;
        // Granted again meanwhile, or about to be: nobody knows which one it was.
        if same && lease.grants_open == 0 {
            lease.dead = true;
            self.alive.remove(&id);
        }
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
        let revoked = lease.revokes_open > 0 || lease.dead;
        lease.certain && !revoked && now < self.guaranteed(lease, now)
    }

    /// Until when it must live, as far as was acknowledged before `now`.
    fn guaranteed(&self, lease: &Lease, now: MonoTime) -> MonoTime {
        let ttl = Duration::from_secs(u64::try_from(lease.ttl_s).unwrap_or(0));
        let renewed = lease.renewed(now).map(|called| called + ttl).unwrap_or_default();
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
        if now < until && lease.certain && lease.revokes_open == 0 {
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
            let sure = lease.certain && lease.revokes_open == 0 && !lease.dead;
            if lossless && sure && !there && !lease.renewals.is_empty() {
                return Err(format!("lease {id} is lost"));
            }
            match there {
                true => self.alive.insert(*id),
                false => self.alive.remove(id),
            };
            // Whoever asked for something died with the process.
            let generation = lease.generation + 1;
            let (certain, carried, dead) = (there, there, !there);
            let ttl_s = lease.ttl_s;
            *lease = Lease { ttl_s, certain, carried, dead, generation, ..Lease::default() };
        }
        self.opened = Some(now);
        self.election = election;
        Ok(())
    }

    /// What may have ended by itself before a crash at `now` is not missed after it.
    pub fn crashed(&mut self, now: MonoTime) {
        let ids: Vec<i64> = self.leases.keys().copied().collect();
        for id in ids {
            let alive = self.surely_alive(id, now);
            let lease = self.leases.get_mut(&id).expect("it is a key");
            lease.renewals.clear();
            if alive {
                lease.renew(now, now);
            }
        }
    }

    /// Ids of the leases that may be there.
    pub fn maybe_alive(&self) -> impl Iterator<Item = i64> {
        self.alive.iter().copied()
    }
}

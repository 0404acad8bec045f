//! The leader's clocks of leases, and what clients ask of them.
//!
//! ```text
//! lead: every lease gets its full time plus one election timeout
//! apply grant ─► deadline; renew ─► later deadline; due ─► revoke proposed ─► apply ─► forgotten
//! ```

use ringbolt_io::planted::{self, Planted};
use std::cell::Ref;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringbolt_io::MonoTime;
use ringbolt_io::local::{Promise, Receipt, receipt};
use ringbolt_proto::etcdserverpb::LeaseRevokeRequest;

use super::Replica;
use crate::error::{Error, Reason};
use crate::lease::{Deadlines, Renewal};
use crate::limits::{LEASE_REVOKES_IN_FLIGHT_MAX, LEASES_DUE_PER_TURN_MAX};
use crate::state::{Command, Reply};
use crate::types::LeaseId;

/// Leases as this member's clock sees them.
pub(super) struct Leases {
    deadlines: Deadlines,
    /// The term in which this member leads and its deadlines hold.
    term: Option<u64>,
    /// Wall time minus the shard's clock when it began to lead.
    wall_offset: u64,
    /// Came due, not proposed yet: the oldest ends first.
    due: VecDeque<LeaseId>,
    /// Proposed to be revoked and not answered yet: never proposed twice, so that a lease granted
    /// again under the same id is safe from an old revocation.
    revoking: BTreeSet<LeaseId>,
    /// Keep-alives of leases that ended; answered when the revocation is applied.
    ended: BTreeMap<LeaseId, Vec<Promise<()>>>,
}

impl Leases {
    pub(super) fn new(retry: std::time::Duration) -> Leases {
        Leases {
            deadlines: Deadlines::new(retry),
            term: None,
            wall_offset: 0,
            due: VecDeque::new(),
            revoking: BTreeSet::new(),
            ended: BTreeMap::new(),
        }
    }

    fn forget(&mut self, id: LeaseId) {
        self.deadlines.forget(id);
        for promise in self.ended.remove(&id).unwrap_or_default() {
            promise.fulfil(());
        }
    }
}

impl Replica {
    /// Starts or ends this member's part as keeper of leases. Called at the end of each turn.
    pub(super) fn lead_leases(&self) {
        let view = self.view.get();
        let leads = view.leads && view.commit_in_term && view.applied_term == view.term;
        let term = leads.then_some(view.term);
        let mut leases = self.leases.borrow_mut();
        if leases.term == term {
            return;
        }
        leases.term = term;
        if planted::is(Planted::LeaseEndsWithWallClock) {
            leases.wall_offset = self.io.wall().0.saturating_sub(self.io.now().0);
        }
        leases.due.clear();
        leases.deadlines.clear();
        for promise in std::mem::take(&mut leases.ended).into_values().flatten() {
            promise.fulfil(());
        }
        if leads {
            let state = self.state.borrow();
            let granted = state.leases.iter().map(|(id, lease)| (id, lease.ttl_s()));
            leases.deadlines.lead(granted, self.io.now(), self.config.election_timeout());
        }
    }

    /// A command of the lease kind was applied.
    pub(super) fn note_lease(&self, command: &Command, reply: &Reply) {
        let mut leases = self.leases.borrow_mut();
        if leases.term.is_none() {
            return;
        }
        match (command, reply) {
            (Command::LeaseGrant(_), Reply::LeaseGrant(granted)) => {
                leases.deadlines.grant(LeaseId(granted.id), granted.ttl, self.io.now());
            }
            (Command::LeaseRevoke(request), _) => leases.forget(LeaseId(request.id)),
            _ => {}
        }
    }

    /// Gives a lease its full time again; `Ok` is the answer's TTL in seconds, 0 for a lease that
    /// is unknown or has ended. A lease whose time has passed is never renewed: the call waits
    /// until it is revoked.
    ///
    /// Source: etcd `LeaseKeepAlive`, semantics 8.7, 8.8.
    ///
    /// # Errors
    /// `Retry(NoLeader)` when this member does not lead.
    pub async fn lease_renew(&self, id: LeaseId) -> Result<i64, Error> {
        match self.renew(id)? {
            Ok(ttl_s) => Ok(ttl_s),
            Err(ended) => {
                ended.await;
                Ok(0)
            }
        }
    }

    fn renew(&self, id: LeaseId) -> Result<Result<i64, Receipt<()>>, Error> {
        self.life.check()?;
        let mut leases = self.leases.borrow_mut();
        if leases.term.is_none() {
            return Err(Reason::NoLeader.into());
        }
        match leases.deadlines.renew(id, self.io.now()) {
            Renewal::Renewed { ttl_s } => Ok(Ok(ttl_s)),
            Renewal::Unknown => Ok(Ok(0)),
            Renewal::Ended => {
                let (promise, receipt) = receipt();
                leases.ended.entry(id).or_default().push(promise);
                Ok(Err(receipt))
            }
        }
    }

    /// The leader's clocks, to answer what is left of a lease. The borrow must not live over an
    /// await.
    ///
    /// # Errors
    /// `Retry(NoLeader)` when this member does not lead.
    pub fn deadlines(&self) -> Result<Ref<'_, Deadlines>, Error> {
        self.life.check()?;
        let leases = self.leases.borrow();
        if leases.term.is_none() {
            return Err(Reason::NoLeader.into());
        }
        Ok(Ref::map(leases, |leases| &leases.deadlines))
    }

    /// Takes some of what came due; whether there was any.
    pub(super) fn leases_due(&self) -> bool {
        let mut leases = self.leases.borrow_mut();
        if leases.term.is_none() {
            return false;
        }
        let mut now = self.io.now();
        if planted::is(Planted::LeaseEndsWithWallClock) {
            now = MonoTime(self.io.wall().0.saturating_sub(leases.wall_offset));
        }
        let due = leases.deadlines.due(now, LEASES_DUE_PER_TURN_MAX);
        let any = !due.is_empty();
        let due = due.into_iter().filter(|id| !leases.revoking.contains(id)).collect::<Vec<_>>();
        leases.due.extend(due);
        any
    }

    /// The next lease to revoke, when one more revocation may be in flight.
    pub(super) fn next_revocation(&self) -> Option<(LeaseId, Command)> {
        let mut leases = self.leases.borrow_mut();
        if leases.revoking.len() >= LEASE_REVOKES_IN_FLIGHT_MAX {
            return None;
        }
        let id = leases.due.pop_front()?;
        leases.revoking.insert(id);
        Some((id, Command::LeaseRevoke(LeaseRevokeRequest { id: id.0 })))
    }

    /// Whether a lease that came due waits for its revocation to be proposed.
    pub(super) fn revocations_wait(&self) -> bool {
        !self.leases.borrow().due.is_empty()
    }

    /// A revocation was answered, or could not be proposed.
    pub(super) fn revoked(&self, id: LeaseId) {
        self.leases.borrow_mut().revoking.remove(&id);
    }
}

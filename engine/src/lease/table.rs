//! The replicated half: which leases exist and which keys hang on each.
//!
//! Invariants, asserted or checked by number:
//!
//! * L1: a key is attached to at most one lease, the one its live version names.
//! * L2: every live key that names a lease is attached to it, and the lease exists.
//! * L3: the table changes only by applied commands; it has no clock.
//!
//! The caller (`state`) keeps L1 and L2 by telling each change of a key's lease: the table does
//! not know the keys' versions.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::error::Reason;
use crate::limits::LEASE_TTL_S_MAX;
use crate::types::LeaseId;

/// One lease as it was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    ttl_s: i64,
    keys: BTreeSet<Bytes>,
}

/// All leases of a keyspace. Lives on the keyspace's home shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseTable {
    leases: BTreeMap<LeaseId, Lease>,
    attached_count: usize,
}

impl Lease {
    /// The granted time to live. Unit: seconds.
    #[must_use]
    pub fn ttl_s(&self) -> i64 {
        self.ttl_s
    }

    /// The attached keys, in byte order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Bytes> {
        self.keys.iter()
    }

    /// Whether the key hangs on it.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.keys.contains(key)
    }
}

impl LeaseTable {
    /// A table without leases.
    #[must_use]
    pub fn new() -> LeaseTable {
        LeaseTable::default()
    }

    /// Grants a lease.
    ///
    /// *Errors*, in this order: [`Reason::LeaseNotFound`] for id 0 (a proposer always fills it in),
    /// [`Reason::LeaseTtlTooLarge`], [`Reason::LeaseExists`]. Nothing changed then.
    /// Source: etcd `LeaseGrant`.
    pub fn grant(&mut self, id: LeaseId, ttl_s: i64) -> Result<(), Reason> {
        if id == LeaseId(0) {
            return Err(Reason::LeaseNotFound);
        }
        if ttl_s > LEASE_TTL_S_MAX {
            return Err(Reason::LeaseTtlTooLarge);
        }
        if self.leases.contains_key(&id) {
            return Err(Reason::LeaseExists);
        }
        self.leases.insert(id, Lease { ttl_s, keys: BTreeSet::new() });
        Ok(())
    }

    /// Removes a lease and gives back its keys in byte order. The caller deletes them, all in one
    /// revision. The id may be granted again at once.
    ///
    /// *Errors*: [`Reason::LeaseNotFound`]; nothing changed then.
    pub fn revoke(&mut self, id: LeaseId) -> Result<BTreeSet<Bytes>, Reason> {
        let lease = self.leases.remove(&id).ok_or(Reason::LeaseNotFound)?;
        self.attached_count -= lease.keys.len();
        Ok(lease.keys)
    }

    /// Whether the lease exists.
    #[must_use]
    pub fn contains(&self, id: LeaseId) -> bool {
        self.leases.contains_key(&id)
    }

    /// The lease of this id.
    #[must_use]
    pub fn get(&self, id: LeaseId) -> Option<&Lease> {
        self.leases.get(&id)
    }

    /// Hangs a key on a lease; a key that already hangs there stays. Id 0 is no lease: nothing
    /// happens.
    ///
    /// A lease that does not exist is our own mistake: the command was checked before it changed
    /// anything.
    pub fn attach(&mut self, id: LeaseId, key: &[u8]) {
        if id == LeaseId(0) {
            return;
        }
        let lease = self.leases.get_mut(&id).expect("a put's lease was checked before the put");
        // Looked up before it is copied: a key that is put again under its lease costs no memory.
        if !lease.keys.contains(key) {
            lease.keys.insert(Bytes::copy_from_slice(key));
            self.attached_count += 1;
        }
    }

    /// Takes a key off its lease. Id 0 is no lease, and a lease that is just being revoked has
    /// left the table already: nothing happens.
    pub fn detach(&mut self, id: LeaseId, key: &[u8]) {
        if let Some(lease) = self.leases.get_mut(&id)
            && lease.keys.remove(key)
        {
            self.attached_count -= 1;
        }
    }

    /// All leases in the order of their ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (LeaseId, &Lease)> {
        self.leases.iter().map(|(id, lease)| (*id, lease))
    }

    /// How many leases there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// Whether there is no lease.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// How many keys hang on leases.
    #[must_use]
    pub fn attached_count(&self) -> usize {
        self.attached_count
    }

    /// Checks the whole table: the count of attached keys, and L1. O(keys).
    pub fn check(&self) {
        let mut seen = BTreeSet::new();
        for (id, lease) in &self.leases {
            assert_ne!(*id, LeaseId(0), "lease 0 means no lease");
            for key in &lease.keys {
                assert!(seen.insert(key), "L1: {key:?} hangs on two leases, one is {id:?}");
            }
        }
        assert_eq!(seen.len(), self.attached_count, "count of attached keys");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules 8.1, 8.2 and 8.4: what grant and revoke refuse, and in which order.
    #[test]
    fn grant_and_revoke_refuse() {
        let mut table = LeaseTable::new();
        assert_eq!(table.grant(LeaseId(0), 60), Err(Reason::LeaseNotFound));
        assert_eq!(table.grant(LeaseId(7), 60), Ok(()));
        assert_eq!(table.grant(LeaseId(7), 60), Err(Reason::LeaseExists));
        assert_eq!(table.grant(LeaseId(7), LEASE_TTL_S_MAX + 1), Err(Reason::LeaseTtlTooLarge));
        assert_eq!(table.grant(LeaseId(-7), LEASE_TTL_S_MAX), Ok(()));
        assert_eq!(table.revoke(LeaseId(0)), Err(Reason::LeaseNotFound));
        assert_eq!(table.revoke(LeaseId(8)), Err(Reason::LeaseNotFound));
        assert_eq!(table.revoke(LeaseId(7)), Ok(BTreeSet::new()));
        assert_eq!(table.grant(LeaseId(7), 5), Ok(()));
        assert_eq!(table.get(LeaseId(7)).map(Lease::ttl_s), Some(5));
        assert_eq!(table.len(), 2);
        table.check();
    }

    /// Keys come back sorted by bytes; attaching twice and detaching twice change nothing more.
    #[test]
    fn keys_are_attached_and_detached() {
        let mut table = LeaseTable::new();
        table.grant(LeaseId(1), 60).expect("the id is free");
        for key in ["b", "a", "c", "a"] {
            table.attach(LeaseId(1), key.as_bytes());
        }
        table.attach(LeaseId(0), b"free");
        assert_eq!(table.attached_count(), 3);
        table.detach(LeaseId(1), b"b");
        table.detach(LeaseId(1), b"b");
        table.detach(LeaseId(0), b"a");
        table.detach(LeaseId(99), b"a");
        table.check();
        let keys: Vec<_> = table.get(LeaseId(1)).expect("granted").keys().cloned().collect();
        assert_eq!(keys, ["a", "c"]);
        let revoked = table.revoke(LeaseId(1)).expect("granted");
        assert_eq!(revoked.into_iter().collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!(table.attached_count(), 0);
    }
}

//! Who owns the revisions that no client was told about.
//!
//! A revision without an owner must come from a request whose end nobody knows, each of which owns
//! at most one, or from the end of a lease. Requests that look alike (two deletions of one key)
//! make this a matching; Kuhn's algorithm finds one if there is one.

use std::collections::{BTreeMap, BTreeSet};

use super::oracle::{Oracle, Verdict};

/// Finds an owner for each unclaimed revision and takes it off the list.
pub(super) fn settle(oracle: &mut Oracle) -> Verdict {
    let mut candidates: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
    for (revision, at) in oracle.unclaimed.clone() {
        let owners = oracle.owners(revision);
        match oracle.lease_end(revision, at) {
            Some(Ok(())) => {}
            Some(Err(wrong)) if owners.is_empty() => {
                return Err(format!("revision {revision}: {wrong}"));
            }
            _ if owners.is_empty() => {
                let events = oracle.model().events(revision);
                return Err(format!("nobody asked for revision {revision}: {events:?}"));
            }
            _ => {
                candidates.insert(revision, owners);
            }
        }
    }
    let mut owner_of: BTreeMap<u64, i64> = BTreeMap::new();
    for revision in candidates.keys() {
        if !find(*revision, &candidates, &mut owner_of, &mut BTreeSet::new()) {
            let events = oracle.model().events(*revision);
            return Err(format!("revision {revision} happened once too often: {events:?}"));
        }
    }
    for call in owner_of.keys() {
        oracle.unknown.remove(call);
    }
    oracle.unclaimed.clear();
    Ok(())
}

fn find(
    revision: i64,
    candidates: &BTreeMap<i64, Vec<u64>>,
    owner_of: &mut BTreeMap<u64, i64>,
    tried: &mut BTreeSet<u64>,
) -> bool {
    for call in &candidates[&revision] {
        if !tried.insert(*call) {
            continue;
        }
        let free = match owner_of.get(call).copied() {
            None => true,
            Some(other) => find(other, candidates, owner_of, tried),
        };
        if free {
            owner_of.insert(*call, revision);
            return true;
        }
    }
    false
}

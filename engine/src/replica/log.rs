//! What consensus says, as the log takes it, and back.

use ringbolt_consensus as consensus;

use super::config::{OpenError, ReplicaConfig};
use crate::state::{Command, ConfState, Members, validate};
use crate::types::{RaftIndex, Term};
use crate::wal::{Batch, Entry, HardState, Identity, Recovered, WalConfig};

/// Bytes an entry may have beside the request it carries.
const ENTRY_SLACK_BYTES: usize = 64 * 1024;

/// How the log of a replica is kept.
pub(super) fn wal_config(config: &ReplicaConfig) -> WalConfig {
    let mut wal = config.wal.clone().unwrap_or_else(|| WalConfig::new(config.mode));
    wal.mode = config.mode;
    wal.flush_interval = config.flush_interval;
    wal.check = check_entry;
    wal.entry_bytes_max = wal.entry_bytes_max.max(config.max_request_bytes + ENTRY_SLACK_BYTES);
    wal
}

/// What one step has to have written. Whether term or vote changed, the log sees for itself.
pub(super) fn batch(entries: &[consensus::Entry], state: consensus::HardState) -> Batch {
    let entries = entries.iter().map(|entry| Entry {
        index: RaftIndex(entry.index),
        term: Term(entry.term),
        kind: entry.kind.to_byte(),
        data: entry.data.clone(),
    });
    let hard_state =
        HardState { term: Term(state.term), vote: state.vote, commit: RaftIndex(state.commit) };
    Batch { entries: entries.collect(), hard_state: Some(hard_state), must_sync: false }
}

/// What a log's entry of this member may be: a command that could have been proposed here. Whoever
/// opens a replica's log without a replica gives it to the log as well.
///
/// # Errors
/// What it is instead.
pub fn check_entry(identity: Identity, entry: &Entry) -> Result<(), String> {
    match consensus::EntryKind::from_byte(entry.kind) {
        Some(consensus::EntryKind::Command) => {}
        // This release makes none: its node would be one of several, with nobody to write to.
        Some(consensus::EntryKind::Membership) => return Err("a change of raft's members".into()),
        None => return Err(format!("kind {} is unknown", entry.kind)),
    }
    let command = Command::decode(entry.data.clone())?;
    validate::stored(&command)?;
    match &command {
        Command::Membership(members) => check_members(identity, members),
        _ => Ok(()),
    }
}

/// The member whose log it is votes alone.
///
/// # Errors
/// Who votes instead.
pub(super) fn check_members(identity: Identity, members: &Members) -> Result<(), String> {
    let ConfState { voters, learners } = members.conf_state();
    if voters == [identity.member_id.0] && learners.is_empty() {
        return Ok(());
    }
    Err(format!("voters {voters:x?} and learners {learners:x?}, not {} alone", identity.member_id))
}

/// What consensus starts from: the entries behind the checkpoint at `base`.
///
/// # Errors
/// A missing entry, or one of a kind this release does not know.
pub(super) fn stored(
    recovered: &Recovered,
    base: (u64, u64),
    membership: consensus::Membership,
    first_term: u64,
) -> Result<consensus::Stored, OpenError> {
    let mut entries = Vec::with_capacity(recovered.entries.len());
    for entry in &recovered.entries {
        let index = entry.index.0;
        if index <= base.0 {
            continue;
        }
        let Some(kind) = consensus::EntryKind::from_byte(entry.kind) else {
            let found = format!("kind {} is unknown", entry.kind);
            return Err(OpenError::Entry { index, found });
        };
        let expected = base.0 + 1 + entries.len() as u64;
        if index != expected {
            return Err(OpenError::Entry { index, found: format!("entry {expected} is missing") });
        }
        let (term, data) = (entry.term.0, entry.data.clone());
        entries.push(consensus::Entry { index, term, kind, data });
    }
    let hard_state = consensus::HardState {
        term: recovered.hard_state.term.0.max(first_term),
        vote: recovered.hard_state.vote,
        commit: recovered.hard_state.commit.0,
    };
    Ok(consensus::Stored { base, hard_state, entries, membership })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ringbolt_proto::etcdserverpb::{LeaseGrantRequest, PutRequest};

    use super::*;
    use crate::state::Member;
    use crate::types::{ClusterId, MemberId, Revision};

    /// Entries of another member's log, or of nobody's: they were taken for ours and applied, and
    /// the node that was then one of several had somebody to write to.
    #[test]
    fn a_foreign_log_is_told_from_ours() {
        let identity = Identity { cluster_id: ClusterId(1), member_id: MemberId(7) };
        let told = |kind: u8, data: Bytes| {
            check_entry(identity, &Entry { index: RaftIndex(1), term: Term(1), kind, data })
        };
        let command = |command: Command| told(0, command.encode());
        let member = |id| Member { id: MemberId(id), raft_id: id, ..Member::default() };
        let put = |key: &'static str| PutRequest { key: key.into(), ..PutRequest::default() };
        let fence = |revision, compacted| Command::Fence {
            revision: Revision(revision),
            compacted: Revision(compacted),
        };
        let grant = |ttl| Command::LeaseGrant(LeaseGrantRequest { id: 5, ttl });
        for ours in [
            Command::Nothing,
            Command::first_member(member(7)),
            Command::Put(put("k")),
            fence(9, 9),
            grant(60),
        ] {
            assert_eq!(command(ours), Ok(()));
        }
        for foreign in [
            Command::Membership(Members::default()),
            Command::first_member(member(8)),
            Command::Membership(Members::of([member(7), member(8)])),
            Command::Membership(Members::of([Member { is_learner: true, ..member(7) }])),
            Command::Put(put("")),
            fence(i64::MAX, 1),
            fence(-1, -1),
            fence(5, 6),
            grant(-60),
        ] {
            assert!(command(foreign.clone()).is_err(), "{foreign:?}");
        }
        assert!(told(2, Bytes::new()).is_err() && told(9, Bytes::new()).is_err());
    }
}

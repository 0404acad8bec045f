//! What consensus says, as the log takes it, and back.

use ringbolt_consensus as consensus;

use super::config::{OpenError, ReplicaConfig};
use crate::types::{RaftIndex, Term};
use crate::wal::{Batch, Entry, HardState, Recovered, WalConfig};

/// Bytes an entry may have beside the request it carries.
const ENTRY_SLACK_BYTES: usize = 64 * 1024;

/// How the log of a replica is kept.
pub(super) fn wal_config(config: &ReplicaConfig) -> WalConfig {
    let mut wal = config.wal.clone().unwrap_or_else(|| WalConfig::new(config.mode));
    wal.mode = config.mode;
    wal.flush_interval = config.flush_interval;
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

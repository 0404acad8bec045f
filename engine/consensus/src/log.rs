//! The log as raft reads it: the entries after a base, in memory.
//!
//! Invariants:
//! - L1 Entries follow the base without a gap: entry `i` has index `base.index + 1 + i`.
//! - L2 Terms never fall along the log.
//! - L3 Data is held once, as shared bytes. raft itself is given entries without data, except where
//!   it builds a message for a peer.

use std::collections::VecDeque;

use bytes::Bytes;
use raft::eraftpb::{self, ConfState, EntryType, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use crate::types::{Entry, EntryKind, HardState, Membership, SnapshotMark};

/// The log of one member.
pub(crate) struct Log {
    base: (u64, u64),
    entries: VecDeque<Entry>,
    initial: RaftState,
    checkpoint: Option<SnapshotMark>,
}

impl Log {
    /// A log of `entries` after `base`.
    pub(crate) fn new(
        base: (u64, u64),
        entries: Vec<Entry>,
        hard_state: HardState,
        membership: &Membership,
    ) -> Log {
        let hard_state = eraftpb::HardState {
            term: hard_state.term,
            vote: hard_state.vote,
            commit: hard_state.commit,
        };
        let initial = RaftState { hard_state, conf_state: to_conf_state(membership) };
        let mut log = Log { base, entries: VecDeque::new(), initial, checkpoint: None };
        log.append(&entries);
        log
    }

    pub(crate) fn last(&self) -> u64 {
        self.entries.back().map_or(self.base.0, |entry| entry.index)
    }

    /// Appends entries; an index that is there already replaces the log from there on.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        assert!(first.index > self.base.0, "entry {} below base {}", first.index, self.base.0);
        assert!(first.index <= self.last() + 1, "gap: {} after {}", first.index, self.last());
        let keep = self.place(first.index);
        self.entries.truncate(keep);
        for entry in entries {
            assert_eq!(entry.index, self.last() + 1, "a log has no gap");
            let before = self.entries.back().map_or(self.base.1, |last| last.term);
            assert!(entry.term >= before, "term {} after {before}", entry.term);
            self.entries.push_back(entry.clone());
        }
    }

    pub(crate) fn get(&self, index: u64) -> Option<&Entry> {
        if index <= self.base.0 { None } else { self.entries.get(self.place(index)) }
    }

    /// Forgets entries up to and including `index`.
    pub(crate) fn compact(&mut self, index: u64) {
        while self.base.0 < index {
            let Some(entry) = self.entries.pop_front() else { return };
            self.base = (entry.index, entry.term);
        }
    }

    /// Forgets everything in favour of a checkpoint.
    pub(crate) fn restore(&mut self, mark: SnapshotMark) {
        self.base = (mark.index, mark.term);
        self.entries.clear();
        self.checkpoint = Some(mark);
    }

    /// Names the checkpoint a follower that is too far behind is sent.
    pub(crate) fn set_checkpoint(&mut self, mark: SnapshotMark) {
        self.checkpoint = Some(mark);
    }

    fn place(&self, index: u64) -> usize {
        usize::try_from(index - self.base.0 - 1).expect("an index in memory fits usize")
    }
}

impl Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(self.initial.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<eraftpb::Entry>> {
        if low <= self.base.0 {
            return Err(StorageError::Compacted.into());
        }
        assert!(high <= self.last() + 1, "entries up to {high} of {}", self.last());
        let with_data = context.can_async();
        let budget = max_size.into().unwrap_or(u64::MAX);
        let mut used = 0u64;
        let mut found = Vec::new();
        for entry in self.entries.range(self.place(low)..self.place(high)) {
            used = used.saturating_add(entry.data.len() as u64 + ENTRY_OVERHEAD_BYTES);
            if !found.is_empty() && used > budget {
                break;
            }
            found.push(to_raft(entry, with_data));
        }
        Ok(found)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.base.0 {
            return Ok(self.base.1);
        }
        if index < self.base.0 {
            return Err(StorageError::Compacted.into());
        }
        self.get(index).map(|entry| entry.term).ok_or(StorageError::Unavailable.into())
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        let Some(mark) = self.checkpoint.as_ref().filter(|mark| mark.index >= request_index) else {
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        };
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        metadata.index = mark.index;
        metadata.term = mark.term;
        metadata.conf_state = Some(to_conf_state(&mark.membership));
        Ok(snapshot)
    }
}

/// What an entry costs beside its data when sizes are added up.
const ENTRY_OVERHEAD_BYTES: u64 = 16;

/// An entry as raft holds it.
fn to_raft(entry: &Entry, with_data: bool) -> eraftpb::Entry {
    let mut raft = eraftpb::Entry { index: entry.index, term: entry.term, ..Default::default() };
    raft.set_entry_type(match entry.kind {
        EntryKind::Command => EntryType::EntryNormal,
        EntryKind::Membership => EntryType::EntryConfChangeV2,
    });
    if with_data {
        raft.data = entry.data.to_vec();
    }
    raft
}

/// An entry as everybody else holds it.
pub(crate) fn from_raft(raft: eraftpb::Entry) -> Entry {
    let kind = match raft.get_entry_type() {
        EntryType::EntryNormal => EntryKind::Command,
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => EntryKind::Membership,
    };
    Entry { index: raft.index, term: raft.term, kind, data: Bytes::from(raft.data) }
}

pub(crate) fn to_conf_state(membership: &Membership) -> ConfState {
    ConfState {
        voters: membership.voters.clone(),
        learners: membership.learners.clone(),
        voters_outgoing: membership.voters_outgoing.clone(),
        learners_next: membership.learners_next.clone(),
        auto_leave: membership.auto_leave,
    }
}

/// Sorted: raft keeps members in hash order.
pub(crate) fn from_conf_state(state: &ConfState) -> Membership {
    let sorted = |ids: &[u64]| {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids
    };
    Membership {
        voters: sorted(&state.voters),
        learners: sorted(&state.learners),
        voters_outgoing: sorted(&state.voters_outgoing),
        learners_next: sorted(&state.learners_next),
        auto_leave: state.auto_leave,
    }
}

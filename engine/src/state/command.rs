//! Commands: what a proposer asks the group to do, and what applying it answers.

use ringbolt_proto::etcdserverpb::{
    AlarmRequest, AlarmResponse, CompactionRequest, CompactionResponse, DeleteRangeRequest,
    DeleteRangeResponse, LeaseGrantRequest, LeaseGrantResponse, LeaseRevokeRequest,
    LeaseRevokeResponse, PutRequest, PutResponse, TxnRequest, TxnResponse,
};

use super::members::{Member, Members};
use crate::types::{MemberId, Revision};

/// One change of the store, as it stands in the log.
///
/// Everything that could come out differently on another member or in a replay (ids, times) was
/// chosen by the proposer and is part of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Changes nothing; raft's own first entry of a term is read as this.
    Nothing,
    /// Writes one key.
    Put(PutRequest),
    /// Deletes a range of keys.
    DeleteRange(DeleteRangeRequest),
    /// Compares, then runs one of two lists of operations.
    Txn(TxnRequest),
    /// Gives up the history before a revision.
    Compact(CompactionRequest),
    /// Grants a lease. The id is chosen and the time to live already raised to the minimum.
    LeaseGrant(LeaseGrantRequest),
    /// Ends a lease and deletes its keys.
    LeaseRevoke(LeaseRevokeRequest),
    /// Reads, raises or clears alarms.
    Alarm(AlarmRequest),
    /// Jumps ahead in revisions because history may have been shortened: watchers start over.
    Fence {
        /// The revision the store is at afterwards.
        revision: Revision,
        /// The compacted revision afterwards.
        compacted: Revision,
    },
    /// A member tells its name and where clients reach it.
    MemberAttributes {
        /// Who tells.
        member: MemberId,
        /// Its name.
        name: String,
        /// Its client URLs.
        client_urls: Vec<String>,
    },
    /// Replaces the whole member record. The first command of a fresh store.
    Membership(Members),
    /// Sets the version all members speak, as `X.Y.0`.
    ClusterVersion(String),
}

/// What applying a command answers. Headers hold only the revision (where the contract wants one);
/// the server fills in ids and term.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Answer to [`Command::Put`].
    Put(PutResponse),
    /// Answer to [`Command::DeleteRange`].
    DeleteRange(DeleteRangeResponse),
    /// Answer to [`Command::Txn`].
    Txn(TxnResponse),
    /// Answer to [`Command::Compact`].
    Compact(CompactionResponse),
    /// Answer to [`Command::LeaseGrant`].
    LeaseGrant(LeaseGrantResponse),
    /// Answer to [`Command::LeaseRevoke`].
    LeaseRevoke(LeaseRevokeResponse),
    /// Answer to [`Command::Alarm`].
    Alarm(AlarmResponse),
    /// Answer to the commands that only members send.
    Done,
}

impl Command {
    /// A record with this one member, as a fresh single-member store begins.
    #[must_use]
    pub fn first_member(member: Member) -> Command {
        Command::Membership(Members::of([member]))
    }

    /// What metrics call its apply; `None` for what clients of etcd know nothing of.
    #[must_use]
    pub fn apply_name(&self) -> Option<&'static str> {
        Some(match self {
            Command::Put(_) => "Put",
            Command::DeleteRange(_) => "DeleteRange",
            Command::Txn(_) => "Txn",
            Command::Compact(_) => "Compaction",
            Command::LeaseGrant(_) => "LeaseGrant",
            Command::LeaseRevoke(_) => "LeaseRevoke",
            Command::Alarm(_) => "Alarm",
            Command::MemberAttributes { .. } => "ClusterMemberAttrSet",
            Command::ClusterVersion(_) => "ClusterVersionSet",
            Command::Nothing | Command::Fence { .. } | Command::Membership(_) => return None,
        })
    }
}

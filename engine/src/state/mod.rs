//! Apply: the one place where a command changes the store.
//!
//! ```text
//!   request ──► validate ──► admit (quota, alarms) ──► Command ──► encode ──► the log
//!   the log ──► decode ──► State::apply ──► Reply
//!   request ──► validate ──► read::range, read::txn, RangeCursor, RangeStream
//! ```
//!
//! [`State`] is a function of the log: same entries, same state, on every member. It joins keys
//! ([`crate::mvcc`]) and leases ([`crate::lease`]), which do not know each other, and holds the
//! small records beside them: alarms, members, the cluster's version.

mod apply;
mod change;
mod deletes;
mod pins;
mod rolling;
mod txn;

pub mod alarms;
pub mod command;
pub mod format;
pub mod members;
pub mod quota;
pub mod read;
pub mod rest;
pub mod validate;

#[cfg(test)]
mod tests;

use ringbolt_io::MonoTime;
use ringbolt_proto::etcdserverpb::{AlarmRequest, AlarmType, alarm_request::AlarmAction};

use crate::error::Reason;
use crate::lease::LeaseTable;
use crate::mvcc::Mvcc;
use crate::types::{MemberId, RaftIndex, Revision, Term};
use pins::Pins;

pub use alarms::Alarms;
pub use command::{Command, Reply};
pub use members::{ConfState, Member, Members};
pub use pins::Pin;
pub use read::{Budget, RangeCursor, RangeStream, Step, StreamStep};
pub use rolling::Rolling;
pub use validate::Limits;

/// Bytes accounted for each lease, and for each key that hangs on one beside the key.
const LEASE_BYTES: u64 = 64;

/// Bytes accounted for an empty store: its members and versions. Never 0, because etcdctl divides
/// by the size that `Status` tells.
const STATE_BYTES: u64 = 4096;
/// Bytes of a checkpoint beside keys and leases, at most: members, alarms, heads of file and end.
const REST_BYTES: u64 = 64 * 1024;
/// Bytes of a lease in a checkpoint.
const REST_LEASE_BYTES: u64 = 16;

/// What an operator decides about a keyspace, as far as its state is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateConfig {
    /// Operations in one level of a transaction at most.
    pub max_txn_ops: usize,
    /// Serialized size of a proposal at most. Unit: bytes.
    pub max_request_bytes: usize,
    /// The space quota as configured: 0 for the default, negative for none. Unit: bytes.
    pub quota_bytes: i64,
    /// The least time to live of a lease: [`crate::lease::ttl_min_s`]. Unit: seconds.
    pub min_lease_ttl_s: i64,
    /// The members a fresh store begins with.
    pub members: Members,
}

/// Everything a keyspace holds at one raft index. Lives on the keyspace's home shard.
#[derive(Debug)]
pub struct State {
    /// Keys and their history.
    pub mvcc: Mvcc,
    /// Leases and the keys that hang on them.
    pub leases: LeaseTable,
    /// Raised alarms.
    pub alarms: Alarms,
    /// Who belongs to the cluster.
    pub members: Members,
    /// The version all members speak, as `X.Y.0`; empty until the leader has set it.
    pub cluster_version: String,
    /// The operator's decisions.
    pub config: StateConfig,
    applied: RaftIndex,
    applied_term: Term,
    rolling: Rolling,
    pins: Pins,
}

/// What a slice of removal left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Nothing, or a checkpoint streams.
    Done,
    /// More at once.
    More,
    /// More when the reads have ended that need what comes next.
    Held,
}

impl Default for StateConfig {
    /// etcd's defaults, without members.
    fn default() -> StateConfig {
        let limits = Limits::default();
        StateConfig {
            max_txn_ops: limits.max_txn_ops,
            max_request_bytes: limits.max_request_bytes,
            quota_bytes: 0,
            min_lease_ttl_s: 2,
            members: Members::default(),
        }
    }
}

impl StateConfig {
    /// The limits for [`validate`].
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits { max_txn_ops: self.max_txn_ops, max_request_bytes: self.max_request_bytes }
    }
}

impl State {
    /// The state of a store whose log is empty.
    #[must_use]
    pub fn new(config: StateConfig) -> State {
        State {
            mvcc: Mvcc::new(),
            leases: LeaseTable::new(),
            alarms: Alarms::default(),
            members: config.members.clone(),
            cluster_version: String::new(),
            config,
            applied: RaftIndex(0),
            applied_term: Term(0),
            rolling: Rolling::default(),
            pins: Pins::default(),
        }
    }

    /// The last index that was applied.
    #[must_use]
    pub fn applied(&self) -> RaftIndex {
        self.applied
    }

    /// The term of that index.
    #[must_use]
    pub fn applied_term(&self) -> Term {
        self.applied_term
    }

    /// The hash of everything applied so far; equal on every member at the same index.
    #[must_use]
    pub fn rolling(&self) -> Rolling {
        self.rolling
    }

    /// Accounted bytes of keys, values, history and leases: `dbSize` and `dbSizeInUse`.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        let leases = self.leases.len() + self.leases.attached_count();
        STATE_BYTES + self.mvcc.size_bytes() + LEASE_BYTES * leases as u64
    }

    /// Bytes of a checkpoint of this moment, at most.
    #[must_use]
    pub fn checkpoint_bytes(&self) -> u64 {
        let keys = self.mvcc.export_bytes_max();
        // Heads of chunks and of their frames are a hundredth of what they frame, at most.
        keys + keys / 64 + REST_BYTES + REST_LEASE_BYTES * self.leases.len() as u64
    }

    /// Asked before a command is proposed: is there room for it, and do alarms let it pass?
    ///
    /// *Errors*: [`Reason::NoSpace`], [`Reason::Corrupt`]. If [`State::exceeds_quota`], the caller
    /// also raises the alarm: it proposes [`State::no_space_alarm`].
    pub fn admit(&self, command: &Command) -> Result<(), Reason> {
        if self.exceeds_quota(command) {
            return Err(Reason::NoSpace);
        }
        self.check_alarms(command)
    }

    /// Whether a command would grow the store to its quota or beyond. Source: etcd, quota.
    #[must_use]
    pub fn exceeds_quota(&self, command: &Command) -> bool {
        let cost = quota::cost_bytes(command);
        let quota = quota::effective_quota_bytes(self.config.quota_bytes);
        cost > 0 && quota.is_some_and(|quota| self.size_bytes() + cost >= quota)
    }

    /// The command that tells the cluster that this member has no space left.
    #[must_use]
    pub fn no_space_alarm(member: MemberId) -> Command {
        Command::Alarm(AlarmRequest {
            action: AlarmAction::Activate as i32,
            member_id: member.0,
            alarm: AlarmType::Nospace as i32,
        })
    }

    /// Keeps the versions of `at` in place until the pin is dropped, or `until` at the longest. For
    /// reads that were begun at a revision and should end there.
    #[must_use]
    pub fn pin(&self, at: Revision, until: MonoTime) -> Pin {
        self.pins.pin(at, until)
    }

    /// Removes compacted versions, `steps` at most, but none that a pin needs.
    pub fn compact_slice(&mut self, steps: usize, now: MonoTime) -> Removal {
        self.mvcc.hold_removal(self.pins.lowest(now));
        match self.mvcc.compact_slice(steps) {
            true => Removal::More,
            false if self.mvcc.removal_is_held() => Removal::Held,
            false => Removal::Done,
        }
    }

    /// Checks the whole state: its parts, and that keys and leases agree. O(keys).
    pub fn check(&self) {
        self.mvcc.check();
        self.leases.check();
        let mut attached = 0;
        let everything = crate::mvcc::KeyRange::everything();
        self.mvcc.visit(&everything, self.mvcc.revision(), &mut |version| {
            if version.lease.0 != 0 {
                let lease = self.leases.get(version.lease).expect("L2: the lease of a key exists");
                assert!(lease.contains(version.key), "L2: {:?} hangs on its lease", version.key);
                attached += 1;
            }
            std::ops::ControlFlow::Continue(())
        });
        assert_eq!(attached, self.leases.attached_count(), "L2: no lease holds a dead key");
    }
}

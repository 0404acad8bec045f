//! Apply: one match over the commands.
//!
//! * A1: a command is checked whole before it changes anything; an error means nothing changed.
//! * A2: the result depends on the state and the command alone.
//! * A3: each index is applied once, in order.

use prost::Message;
use ringbolt_proto::etcdserverpb::{
    AlarmRequest, CompactionRequest, CompactionResponse, DeleteRangeRequest, LeaseGrantRequest,
    LeaseGrantResponse, LeaseRevokeRequest, LeaseRevokeResponse, PutRequest, TxnRequest,
};

use super::change::{Change, header};
use super::quota::cost_bytes;
use super::{Command, Reply, State, txn};
use crate::error::Reason;
use crate::types::{LeaseId, RaftIndex, Revision, Term};

impl State {
    /// Applies the command at `index`, which is above every index applied before.
    ///
    /// *Order*: when this returns, the change is visible to every read of this state.
    /// *Errors*: the reason the client gets; nothing changed but the applied index.
    pub fn apply(
        &mut self,
        index: RaftIndex,
        term: Term,
        command: &Command,
    ) -> Result<Reply, Reason> {
        tracing::trace!(target: "path", "State::apply");
        assert!(index > self.applied, "A3: {index:?} after {:?}", self.applied);
        assert!(term >= self.applied_term, "{term:?} after {:?}", self.applied_term);
        self.applied = index;
        self.applied_term = term;
        self.rolling.index(index);
        self.check_alarms(command)?;
        match command {
            Command::Nothing => Ok(Reply::Done),
            Command::Put(request) => self.put(request),
            Command::DeleteRange(request) => Ok(self.delete_range(request)),
            Command::Txn(request) => self.txn(request),
            Command::Compact(request) => self.compact(*request),
            Command::LeaseGrant(request) => self.lease_grant(*request),
            Command::LeaseRevoke(request) => self.lease_revoke(*request),
            Command::Alarm(request) => Ok(self.alarm(request)),
            Command::Fence { revision, compacted } => Ok(self.fence(*revision, *compacted)),
            Command::MemberAttributes { member, name, client_urls } => {
                self.members.set_attributes(*member, name, client_urls);
                Ok(self.recorded(command))
            }
            Command::Membership(members) => {
                self.members = members.clone();
                Ok(self.recorded(command))
            }
            Command::ClusterVersion(version) => {
                version.clone_into(&mut self.cluster_version);
                Ok(self.recorded(command))
            }
        }
    }

    /// What raised alarms refuse. A corrupt cluster refuses every change of data; one without
    /// space those that add data.
    ///
    /// *Errors*: [`Reason::Corrupt`], [`Reason::NoSpace`]. Source: etcd, alarms.
    pub fn check_alarms(&self, command: &Command) -> Result<(), Reason> {
        let changes_data = matches!(
            command,
            Command::Put(_)
                | Command::DeleteRange(_)
                | Command::Txn(_)
                | Command::Compact(_)
                | Command::LeaseGrant(_)
                | Command::LeaseRevoke(_)
        );
        if changes_data && self.alarms.corrupt() {
            return Err(Reason::Corrupt);
        }
        if self.alarms.no_space() && cost_bytes(command) > 0 {
            return Err(Reason::NoSpace);
        }
        Ok(())
    }

    fn put(&mut self, request: &PutRequest) -> Result<Reply, Reason> {
        txn::check_put(&self.mvcc, &self.leases, request)?;
        let mut change = Change::begin(self);
        let response = change.put(request);
        change.finish();
        Ok(Reply::Put(response))
    }

    fn delete_range(&mut self, request: &DeleteRangeRequest) -> Reply {
        let mut change = Change::begin(self);
        let response = change.delete_range(request);
        change.finish();
        Reply::DeleteRange(response)
    }

    fn txn(&mut self, request: &TxnRequest) -> Result<Reply, Reason> {
        let taken = txn::choose(&self.mvcc, request);
        txn::check(&self.mvcc, &self.leases, &taken)?;
        let mut change = Change::begin(self);
        let mut response = txn::apply(&mut change, &taken);
        response.header = header(change.finish());
        Ok(Reply::Txn(response))
    }

    fn compact(&mut self, request: CompactionRequest) -> Result<Reply, Reason> {
        self.mvcc.compact(Revision(request.revision))?;
        self.rolling.compact(self.mvcc.revision(), self.mvcc.compacted());
        Ok(Reply::Compact(CompactionResponse { header: header(self.mvcc.revision()) }))
    }

    fn lease_grant(&mut self, request: LeaseGrantRequest) -> Result<Reply, Reason> {
        self.leases.grant(LeaseId(request.id), request.ttl)?;
        self.rolling.grant(LeaseId(request.id), request.ttl);
        Ok(Reply::LeaseGrant(LeaseGrantResponse {
            header: header(self.mvcc.revision()),
            id: request.id,
            ttl: request.ttl,
            error: String::new(),
        }))
    }

    /// Removes the lease first, then deletes its keys in byte order, all in one revision. A lease
    /// without keys makes no revision.
    fn lease_revoke(&mut self, request: LeaseRevokeRequest) -> Result<Reply, Reason> {
        let id = LeaseId(request.id);
        let keys = self.leases.revoke(id)?;
        self.rolling.revoke(id);
        let mut change = Change::begin(self);
        for key in &keys {
            let previous = change.delete(key);
            let lease = previous.map(|kv| LeaseId(kv.lease));
            assert_eq!(lease, Some(id), "L2: an attached key is live and names its lease");
        }
        let header = header(change.finish());
        Ok(Reply::LeaseRevoke(LeaseRevokeResponse { header }))
    }

    fn alarm(&mut self, request: &AlarmRequest) -> Reply {
        let mut response = self.alarms.apply(request);
        response.header = header(self.mvcc.revision());
        self.rolling.record(&request.encode_to_vec());
        Reply::Alarm(response)
    }

    fn fence(&mut self, revision: Revision, compacted: Revision) -> Reply {
        self.mvcc.fence(revision, compacted);
        self.rolling.compact(revision, compacted);
        Reply::Done
    }

    fn recorded(&mut self, command: &Command) -> Reply {
        self.rolling.record(&command.encode());
        Reply::Done
    }
}

#[cfg(test)]
mod tests;

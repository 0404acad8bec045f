//! What a checkpoint holds beside the keys.
//!
//! ```text
//!   size  what
//!   4     format version, u32: 1
//!   8     applied raft index, u64
//!   8     its term, u64
//!   8     rolling hash, u64
//!   ...   cluster version: u32 length, UTF-8
//!   4     count of leases, u32; then for each, by ascending id:
//!   16      id i64, granted time to live i64 (seconds)
//!   4     count of alarms, u32; then for each, by (kind, member):
//!   12      kind i32 (never 0), member u64
//!   ...   member record, as in the command that replaces it (`format.rs`)
//! ```
//!
//! Little-endian. Valid when the version is known and every count fits what is left, to the last
//! byte. The checkpoint file has its own checksums. Which key hangs on which lease is not stored:
//! each live key names its lease.

use std::ops::ControlFlow;

use bytes::{BufMut, BytesMut};

use super::format::{Fields, put_members, put_text};
use super::{Alarms, Members, Rolling, State, StateConfig};
use crate::lease::LeaseTable;
use crate::mvcc::{KeyRange, Mvcc};
use crate::types::{LeaseId, MemberId, RaftIndex, Term};

/// The version this build writes. It reads no other.
pub const REST_FORMAT_VERSION: u32 = 1;

impl State {
    /// The state beside the keys as it is now, for a checkpoint at [`State::applied`].
    #[must_use]
    pub fn export_rest(&self) -> Vec<u8> {
        let mut out = BytesMut::with_capacity(64 + 16 * self.leases.len());
        out.put_u32_le(REST_FORMAT_VERSION);
        out.put_u64_le(self.applied.0);
        out.put_u64_le(self.applied_term.0);
        out.put_u64_le(self.rolling.value());
        put_text(&mut out, &self.cluster_version);
        out.put_u32_le(u32::try_from(self.leases.len()).expect("leases in memory are below 2^32"));
        for (id, lease) in self.leases.iter() {
            out.put_i64_le(id.0);
            out.put_i64_le(lease.ttl_s());
        }
        out.put_u32_le(u32::try_from(self.alarms.iter().len()).expect("few members, few alarms"));
        for (alarm, member) in self.alarms.iter() {
            out.put_i32_le(alarm);
            out.put_u64_le(member.0);
        }
        put_members(&mut out, &self.members);
        out.to_vec()
    }

    /// Joins the keys and the rest of a checkpoint.
    ///
    /// *Errors*: what does not fit, as a text. The checkpoint is corrupt or of another version; the
    /// caller names the file and does not go on with it.
    pub fn import_rest(config: StateConfig, mvcc: Mvcc, bytes: &[u8]) -> Result<State, String> {
        let mut fields = Fields::new(bytes);
        let version = fields.u32()?;
        if version != REST_FORMAT_VERSION {
            return Err(format!("state format {version}, this build reads {REST_FORMAT_VERSION}"));
        }
        let applied = RaftIndex(fields.u64()?);
        let applied_term = Term(fields.u64()?);
        let rolling = Rolling::resume(fields.u64()?);
        let cluster_version = fields.text()?;
        let mut leases = take_leases(&mut fields)?;
        let alarms = take_alarms(&mut fields)?;
        let members: Members = fields.members()?;
        fields.finish()?;
        attach_keys(&mvcc, &mut leases)?;
        let fresh = State::new(config);
        Ok(State {
            mvcc,
            leases,
            alarms,
            members,
            cluster_version,
            applied,
            applied_term,
            rolling,
            ..fresh
        })
    }
}

fn take_leases(fields: &mut Fields<'_>) -> Result<LeaseTable, String> {
    let mut leases = LeaseTable::new();
    for _ in 0..fields.count(16)? {
        let (id, ttl_s) = (LeaseId(fields.i64()?), fields.i64()?);
        if ttl_s < 1 {
            return Err(format!("lease {:x} of {ttl_s} s", id.0));
        }
        leases.grant(id, ttl_s).map_err(|reason| format!("lease {:x}: {reason:?}", id.0))?;
    }
    Ok(leases)
}

fn take_alarms(fields: &mut Fields<'_>) -> Result<Alarms, String> {
    let mut alarms = Alarms::default();
    for _ in 0..fields.count(12)? {
        let (alarm, member) = (fields.i32()?, MemberId(fields.u64()?));
        if alarm == 0 {
            return Err("an alarm of no kind".to_owned());
        }
        alarms.raise(member, alarm);
    }
    Ok(alarms)
}

fn attach_keys(mvcc: &Mvcc, leases: &mut LeaseTable) -> Result<(), String> {
    let mut result = Ok(());
    mvcc.visit(&KeyRange::everything(), mvcc.revision(), &mut |version| {
        if version.lease == LeaseId(0) {
            return ControlFlow::Continue(());
        }
        if !leases.contains(version.lease) {
            let lease = version.lease.0;
            result = Err(format!("key {:?} names lease {lease:x}, which is missing", version.key));
            return ControlFlow::Break(());
        }
        leases.attach(version.lease, version.key);
        ControlFlow::Continue(())
    });
    result
}

#[cfg(test)]
mod tests;

//! What is checked before a request is proposed or read, in etcd's order.
//!
//! These checks need only the request. What depends on the store (leases, revisions, existing
//! keys) is decided at apply.

use std::collections::BTreeSet;

use prost::Message;
use ringbolt_proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use ringbolt_proto::etcdserverpb::request_op::Request;
use ringbolt_proto::etcdserverpb::{
    DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};

use super::Command;
use super::deletes::Deletes;
use crate::error::Reason;
use crate::limits::{COUNTER_MAX, PROPOSAL_OVERHEAD_BYTES, TXN_LEVELS_MAX};

/// The limits an operator sets on requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Operations in one level of a transaction at most.
    pub max_txn_ops: usize,
    /// Serialized size of a proposal at most. Unit: bytes.
    pub max_request_bytes: usize,
}

impl Default for Limits {
    /// etcd's defaults.
    fn default() -> Limits {
        Limits { max_txn_ops: 128, max_request_bytes: 3 * 512 * 1024 }
    }
}

/// Checks a `Range`. Source: etcd `rpc.proto` `RangeRequest`.
pub fn range(request: &RangeRequest, _limits: &Limits) -> Result<(), Reason> {
    if request.key.is_empty() {
        return Err(Reason::EmptyKey);
    }
    if SortOrder::try_from(request.sort_order).is_err()
        || SortTarget::try_from(request.sort_target).is_err()
    {
        return Err(Reason::InvalidSortOption);
    }
    Ok(())
}

/// Checks a `RangeStream`: as [`range`], and then what only a unary `Range` can do.
pub fn range_stream(request: &RangeRequest, limits: &Limits) -> Result<(), Reason> {
    range(request, limits)?;
    let is_natural = match SortOrder::try_from(request.sort_order) {
        Ok(SortOrder::None) => true,
        Ok(SortOrder::Ascend) => request.sort_target == SortTarget::Key as i32,
        _ => false,
    };
    if !is_natural {
        return Err(Reason::StreamSortOrder);
    }
    let filters = [
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    ];
    if filters.iter().any(|filter| *filter != 0) {
        return Err(Reason::StreamRevisionFilter);
    }
    Ok(())
}

/// Checks a `Put`. Source: etcd `rpc.proto` `PutRequest`.
pub fn put(request: &PutRequest, _limits: &Limits) -> Result<(), Reason> {
    if request.key.is_empty() {
        return Err(Reason::EmptyKey);
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(Reason::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Reason::LeaseProvided);
    }
    Ok(())
}

/// Checks a `DeleteRange`.
pub fn delete_range(request: &DeleteRangeRequest, _limits: &Limits) -> Result<(), Reason> {
    if request.key.is_empty() { Err(Reason::EmptyKey) } else { Ok(()) }
}

/// Checks a `Txn`: sizes and each operation at every level of both branches, then that no key is
/// written twice by one branch. Source: etcd `rpc.proto` `TxnRequest`.
pub fn txn(request: &TxnRequest, limits: &Limits) -> Result<(), Reason> {
    txn_level(request, limits.max_txn_ops, limits, 1)?;
    written_keys(&request.success)?;
    written_keys(&request.failure)?;
    Ok(())
}

/// Checks the size of a proposal: the request as it would stand in etcd's own log entry.
///
/// Unit: bytes. *Errors*: [`Reason::RequestTooLarge`].
pub fn size(request: &impl Message, limits: &Limits) -> Result<(), Reason> {
    if request.encoded_len() + PROPOSAL_OVERHEAD_BYTES > limits.max_request_bytes {
        return Err(Reason::RequestTooLarge);
    }
    Ok(())
}

/// Checks a command of the log: what a member of this release could have proposed, whatever the
/// limits were at that time.
///
/// *Errors*: what it holds instead, in words. The log was written by somebody else.
pub fn stored(command: &Command) -> Result<(), String> {
    let limits = Limits { max_txn_ops: usize::MAX, max_request_bytes: usize::MAX };
    let checked = match command {
        Command::Put(request) => put(request, &limits),
        Command::DeleteRange(request) => delete_range(request, &limits),
        Command::Txn(request) => txn(request, &limits),
        Command::LeaseGrant(request) if request.ttl < 1 => Err(Reason::LeaseTtlTooLarge),
        Command::Fence { revision, compacted } => {
            let counted = revision.0.cast_unsigned() <= COUNTER_MAX;
            let sound = counted && *compacted <= *revision && compacted.0 > 0;
            return if sound { Ok(()) } else { Err(format!("a fence to {revision}, {compacted}")) };
        }
        _ => Ok(()),
    };
    checked.map_err(|reason| format!("a request that is refused ({reason:?})"))
}

/// Whether a transaction only reads: every operation of both branches is a `Range`. A nested
/// transaction makes it a write, whatever it holds.
#[must_use]
pub fn is_read_only(request: &TxnRequest) -> bool {
    let mut ops = request.success.iter().chain(&request.failure);
    ops.all(|op| matches!(op.request, Some(Request::RequestRange(_))))
}

/// Whether a read-only transaction asks for no linearizable read: every `Range` is serializable.
/// True also for one without operations.
#[must_use]
pub fn is_serializable(request: &TxnRequest) -> bool {
    let mut ops = request.success.iter().chain(&request.failure);
    ops.all(|op| matches!(&op.request, Some(Request::RequestRange(range)) if range.serializable))
}

/// `level` counts from 1. A transaction whose operations may lie deeper than is decoded is refused
/// as one of too many, which below etcd's default limit it always is.
fn txn_level(
    request: &TxnRequest,
    ops_max: usize,
    limits: &Limits,
    level: usize,
) -> Result<(), Reason> {
    let ops = request.compare.len().max(request.success.len()).max(request.failure.len());
    if ops > ops_max || (ops > 0 && level > TXN_LEVELS_MAX) {
        return Err(Reason::TooManyOps);
    }
    if request.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(Reason::EmptyKey);
    }
    for op in request.success.iter().chain(&request.failure) {
        match &op.request {
            Some(Request::RequestRange(request)) => range(request, limits)?,
            Some(Request::RequestPut(request)) => put(request, limits)?,
            Some(Request::RequestDeleteRange(request)) => delete_range(request, limits)?,
            Some(Request::RequestTxn(request)) => {
                txn_level(request, ops_max - ops, limits, level + 1)?;
            }
            None => return Err(Reason::KeyNotFound),
        }
    }
    Ok(())
}

/// Keys one branch puts and intervals it deletes.
///
/// Both sides are ordered, and two of them are compared by walking the smaller one, so that a
/// request of a megabyte costs no more than its size and a logarithm at any depth.
#[derive(Default)]
struct Written<'a> {
    puts: BTreeSet<&'a [u8]>,
    deletes: Deletes<'a>,
}

/// The keys a list of operations writes, or [`Reason::DuplicateKey`].
///
/// 1. The deletes of this level count for everything below.
/// 2. Nested transactions follow in order; the two branches of one never run together, so they
///    may put the same key.
/// 3. The puts of this level come last.
///
/// A delete "from key on" is not seen: its end, one zero byte, is below every start.
/// Source: etcd 3.7 `Txn`, observed.
fn written_keys(ops: &[RequestOp]) -> Result<Written<'_>, Reason> {
    let mut written = Written::default();
    for op in ops {
        if let Some(Request::RequestDeleteRange(delete)) = &op.request {
            written.deletes.insert(&delete.key, &delete.range_end);
        }
    }
    for op in ops {
        if let Some(Request::RequestTxn(nested)) = &op.request {
            let then = written_keys(&nested.success)?;
            let mut otherwise = written_keys(&nested.failure)?;
            if written.conflicts_with(&then.puts) {
                return Err(Reason::DuplicateKey);
            }
            // What the then-branch puts as well was found free just now.
            subtract(&mut otherwise.puts, &then.puts);
            if written.conflicts_with(&otherwise.puts) {
                return Err(Reason::DuplicateKey);
            }
            written.absorb(then);
            written.absorb(otherwise);
        }
    }
    for op in ops {
        if let Some(Request::RequestPut(put)) = &op.request {
            let key = put.key.as_ref();
            if written.deletes.contains(key) || !written.puts.insert(key) {
                return Err(Reason::DuplicateKey);
            }
        }
    }
    Ok(written)
}

/// Takes `away` out of `keys` by walking the smaller of the two.
fn subtract<'a>(keys: &mut BTreeSet<&'a [u8]>, away: &BTreeSet<&'a [u8]>) {
    if away.len() < keys.len() {
        for key in away {
            keys.remove(key);
        }
    } else {
        keys.retain(|key| !away.contains(key));
    }
}

impl<'a> Written<'a> {
    fn conflicts_with(&self, puts: &BTreeSet<&'a [u8]>) -> bool {
        let (few, many) =
            if puts.len() < self.puts.len() { (puts, &self.puts) } else { (&self.puts, puts) };
        few.iter().any(|key| many.contains(key)) || self.deletes.meet(puts)
    }

    fn absorb(&mut self, mut other: Written<'a>) {
        if other.puts.len() > self.puts.len() {
            std::mem::swap(&mut self.puts, &mut other.puts);
        }
        self.puts.extend(other.puts);
        if other.deletes.len() > self.deletes.len() {
            std::mem::swap(&mut self.deletes, &mut other.deletes);
        }
        self.deletes.extend(other.deletes);
    }
}

#[cfg(test)]
mod tests;

//! Reads: `Range` in full, in one piece or in steps, and transactions that only read.
//!
//! A read fixes its revision when it is opened and then walks the index by a [`RangeCursor`], a
//! bounded number of keys at a time. Between two steps anything may happen to the store: versions
//! at the fixed revision do not change, and a compaction either leaves them in place until the read
//! ends (a unary `Range` pins its revision) or ends it (`RangeStream`).

mod collect;
mod cursor;
mod leases;
mod stream;
mod txn;

use ringbolt_io::MonoTime;
use ringbolt_proto::etcdserverpb::{RangeRequest, RangeResponse, TxnRequest, TxnResponse};

use super::{State, txn as transaction};
use crate::error::Reason;
use crate::mvcc::Mvcc;
use crate::types::Revision;

pub use cursor::{Budget, RangeCursor, Step};
pub use leases::{lease_leases, lease_time_to_live};
pub use stream::{RangeStream, StreamStep};
pub use txn::TxnCursor;

/// Answers a `Range` in one go. For ranges that may be large use [`RangeCursor::unary`], which does
/// the same in steps.
///
/// The request was validated. *Errors*: [`Reason::FutureRevision`], [`Reason::Compacted`].
/// Source: etcd `rpc.proto` `RangeRequest`, `RangeResponse`.
pub fn range(state: &State, request: &RangeRequest) -> Result<RangeResponse, Reason> {
    let at = state.mvcc.check_revision(request.revision)?;
    Ok(select(&state.mvcc, at, state.mvcc.revision(), request))
}

/// Answers a transaction whose every operation is a `Range`, in one go; [`TxnCursor`] does the same
/// in steps. It does not pass through the log.
///
/// The request was validated and [`super::validate::is_read_only`] holds.
/// *Errors*: [`Reason::FutureRevision`], [`Reason::Compacted`].
pub fn txn(state: &State, request: &TxnRequest) -> Result<TxnResponse, Reason> {
    let mut cursor = TxnCursor::open(state, request, MonoTime(u64::MAX))?;
    loop {
        if let Some(response) = cursor.step(state, Budget::UNLIMITED)? {
            return Ok(response);
        }
    }
}

/// Reads a range at a revision that is known to be readable; `header` is what the answer's header
/// shows. `at` above the store's revision reads the state inside a change.
pub(super) fn select(
    mvcc: &Mvcc,
    at: Revision,
    header: Revision,
    request: &RangeRequest,
) -> RangeResponse {
    let mut cursor = RangeCursor::at(mvcc, at, header, request);
    let mut kvs = Vec::new();
    loop {
        match cursor.walk(mvcc, Budget::UNLIMITED) {
            Step::More(more) => kvs.extend(more),
            Step::Last(mut last) => {
                if !kvs.is_empty() {
                    kvs.append(&mut last.kvs);
                    last.kvs = kvs;
                }
                return last;
            }
        }
    }
}

#[cfg(test)]
mod tests;

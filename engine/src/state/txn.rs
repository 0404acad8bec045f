//! Transactions: which way they go, whether they may, and what they do.
//!
//! Three steps, each a function of its own:
//!
//! 1. [`choose`]: every compare, also those of nested transactions on the way, is evaluated against
//!    the state *before* the transaction. The result is the list of operations that will run.
//! 2. [`check`]: those operations are checked, still before anything changed. An error here is the
//!    answer of the whole transaction.
//! 3. [`apply`]: they run in order and cannot fail. Later ones see what earlier ones did.
//!
//! A transaction that only reads goes on from step 2 as a [`super::read::TxnCursor`].

use std::cmp::Ordering;
use std::ops::ControlFlow;

use ringbolt_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use ringbolt_proto::etcdserverpb::request_op::Request;
use ringbolt_proto::etcdserverpb::response_op::Response;
use ringbolt_proto::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RangeResponse, ResponseHeader,
    ResponseOp, TxnRequest, TxnResponse,
};

use super::change::Change;
use super::deletes::Deletes;
use super::read::select;
use crate::error::Reason;
use crate::lease::LeaseTable;
use crate::mvcc::{KeyRange, Mvcc, VersionRef};
use crate::types::{LeaseId, Revision};

/// A transaction whose compares are decided: only the operations that run are left.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    pub(super) succeeded: bool,
    ops: Vec<TakenOp<'a>>,
}

#[derive(Debug)]
enum TakenOp<'a> {
    Range(&'a RangeRequest),
    Put(&'a PutRequest),
    DeleteRange(&'a DeleteRangeRequest),
    Txn(Taken<'a>),
}

/// Step 1. Source: etcd `rpc.proto` `TxnRequest`, `Compare`.
pub(super) fn choose<'a>(mvcc: &Mvcc, request: &'a TxnRequest) -> Taken<'a> {
    let succeeded = request.compare.iter().all(|compare| holds(mvcc, compare));
    let branch = if succeeded { &request.success } else { &request.failure };
    // An operation without a request was refused by the validation.
    let ops = branch.iter().filter_map(|op| op.request.as_ref()).map(|request| match request {
        Request::RequestRange(request) => TakenOp::Range(request),
        Request::RequestPut(request) => TakenOp::Put(request),
        Request::RequestDeleteRange(request) => TakenOp::DeleteRange(request),
        Request::RequestTxn(request) => TakenOp::Txn(choose(mvcc, request)),
    });
    Taken { succeeded, ops: ops.collect() }
}

/// Step 2. *Errors*, of the first operation that has one: [`Reason::FutureRevision`],
/// [`Reason::Compacted`], [`Reason::LeaseNotFound`], [`Reason::KeyNotFound`].
pub(super) fn check(mvcc: &Mvcc, leases: &LeaseTable, taken: &Taken<'_>) -> Result<(), Reason> {
    let mut deletes = any_keeps(taken).then(Deletes::default);
    check_level(mvcc, leases, taken, &mut deletes)
}

/// `deletes` collects what the transaction deletes before the operation that is checked, if any of
/// its puts keeps something. A delete "from key on" slips through the check for keys written twice
/// and leaves a later put nothing to keep a value or a lease of.
fn check_level<'a>(
    mvcc: &Mvcc,
    leases: &LeaseTable,
    taken: &Taken<'a>,
    deletes: &mut Option<Deletes<'a>>,
) -> Result<(), Reason> {
    for op in &taken.ops {
        match op {
            TakenOp::Range(range) => check_range(mvcc, range)?,
            TakenOp::Put(put) => {
                check_put(mvcc, leases, put)?;
                let is_deleted = deletes.as_ref().is_some_and(|deletes| deletes.contains(&put.key));
                if keeps(put) && is_deleted {
                    return Err(Reason::KeyNotFound);
                }
            }
            TakenOp::DeleteRange(delete) => {
                if let Some(deletes) = deletes {
                    deletes.insert_as_run(&delete.key, &delete.range_end);
                }
            }
            TakenOp::Txn(nested) => check_level(mvcc, leases, nested, deletes)?,
        }
    }
    Ok(())
}

fn any_keeps(taken: &Taken<'_>) -> bool {
    taken.ops.iter().any(|op| match op {
        TakenOp::Put(put) => keeps(put),
        TakenOp::Txn(nested) => any_keeps(nested),
        TakenOp::Range(_) | TakenOp::DeleteRange(_) => false,
    })
}

/// Whether a put keeps something of the version it replaces.
fn keeps(put: &PutRequest) -> bool {
    put.ignore_value || put.ignore_lease
}

/// A negative revision is below every compacted revision, but -1 is that of a store that was never
/// compacted: it is let through and reads the newest state. Source: etcd, observed.
fn check_range(mvcc: &Mvcc, range: &RangeRequest) -> Result<(), Reason> {
    match range.revision {
        0 => Ok(()),
        at if at > mvcc.revision().0 => Err(Reason::FutureRevision),
        at if at < mvcc.compacted().0 => Err(Reason::Compacted),
        _ => Ok(()),
    }
}

/// What a put asks of the store: its lease exists, and so does its key if it keeps something of it.
pub(super) fn check_put(mvcc: &Mvcc, leases: &LeaseTable, put: &PutRequest) -> Result<(), Reason> {
    if put.lease != 0 && !leases.contains(LeaseId(put.lease)) {
        return Err(Reason::LeaseNotFound);
    }
    if keeps(put) && mvcc.get(&put.key, mvcc.revision()).is_none() {
        return Err(Reason::KeyNotFound);
    }
    Ok(())
}

/// Step 3. Inner headers hold only a revision; that of a nested transaction is all zero.
pub(super) fn apply(change: &mut Change<'_>, taken: &Taken<'_>) -> TxnResponse {
    let answer = |op: &TakenOp<'_>| match op {
        TakenOp::Range(request) => {
            let (mvcc, now) = change.view();
            Response::ResponseRange(read_range(mvcc, now, request))
        }
        TakenOp::Put(request) => Response::ResponsePut(change.put(request)),
        TakenOp::DeleteRange(request) => {
            Response::ResponseDeleteRange(change.delete_range(request))
        }
        TakenOp::Txn(nested) => Response::ResponseTxn(apply(change, nested)),
    };
    answer_all(taken, answer)
}

fn answer_all(taken: &Taken<'_>, answer: impl FnMut(&TakenOp<'_>) -> Response) -> TxnResponse {
    let responses = taken.ops.iter().map(answer);
    let responses = responses.map(|response| ResponseOp { response: Some(response) }).collect();
    let header = Some(ResponseHeader::default());
    TxnResponse { header, succeeded: taken.succeeded, responses }
}

/// `now` is the revision of the state the transaction sees; a range at an older one does not see
/// what the transaction did, though its header says `now`.
fn read_range(mvcc: &Mvcc, now: Revision, request: &RangeRequest) -> RangeResponse {
    let at = if request.revision > 0 { Revision(request.revision) } else { now };
    select(mvcc, at, now, request)
}

/// Whether a compare holds for every key of its range. A range without keys compares as a key that
/// does not exist: zeros, and never equal nor unequal to any value.
fn holds(mvcc: &Mvcc, compare: &Compare) -> bool {
    let range = KeyRange::from_wire(&compare.key, &compare.range_end);
    let mut any = false;
    let mut all = true;
    mvcc.visit(&range, mvcc.revision(), &mut |version| {
        any = true;
        all = holds_for(compare, Some(&version));
        if all { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    if any { all } else { holds_for(compare, None) }
}

fn holds_for(compare: &Compare, version: Option<&VersionRef<'_>>) -> bool {
    use CompareTarget as Target;
    use TargetUnion as Union;
    let union = compare.target_union.as_ref();
    let order = match Target::try_from(compare.target) {
        Ok(Target::Value) => {
            let Some(version) = version else { return false };
            let wanted: &[u8] = if let Some(Union::Value(value)) = union { value } else { b"" };
            version.value.as_ref().cmp(wanted)
        }
        Ok(target) => {
            // The target decides; a member of the union that does not fit it reads as zero.
            let wanted = match (target, union) {
                (Target::Version, Some(Union::Version(number)))
                | (Target::Create, Some(Union::CreateRevision(number)))
                | (Target::Mod, Some(Union::ModRevision(number)))
                | (Target::Lease, Some(Union::Lease(number))) => *number,
                _ => 0,
            };
            let found = version.map_or(0, |version| match target {
                Target::Version => version.version,
                Target::Create => version.create.0,
                Target::Mod => version.mod_.0,
                Target::Lease | Target::Value => version.lease.0,
            });
            found.cmp(&wanted)
        }
        Err(_) => Ordering::Equal,
    };
    match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => order.is_eq(),
        Ok(CompareResult::Greater) => order.is_gt(),
        Ok(CompareResult::Less) => order.is_lt(),
        Ok(CompareResult::NotEqual) => order.is_ne(),
        Err(_) => true,
    }
}

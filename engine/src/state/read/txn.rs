//! A transaction that only reads, in steps.

use std::collections::VecDeque;
use std::rc::Rc;

use ringbolt_io::MonoTime;
use ringbolt_proto::etcdserverpb::request_op::Request;
use ringbolt_proto::etcdserverpb::response_op::Response;
use ringbolt_proto::etcdserverpb::{ResponseHeader, ResponseOp, TxnRequest, TxnResponse};
use ringbolt_proto::mvccpb::KeyValue;

use super::cursor::{Budget, RangeCursor, Step};
use super::transaction;
use crate::error::Reason;
use crate::state::State;
use crate::types::Revision;

/// A transaction whose every operation is a `Range`, as it is being read. Compares were made and
/// revisions checked when it was opened; every range sees that moment, whatever happens between two
/// steps. Belongs to one request and lives on the keyspace's home shard.
#[derive(Debug)]
pub struct TxnCursor {
    succeeded: bool,
    header: Revision,
    ranges: VecDeque<RangeCursor>,
    /// What the first of them gave so far.
    kvs: Vec<KeyValue>,
    responses: Vec<ResponseOp>,
}

impl TxnCursor {
    /// Opens a validated transaction of ranges alone. Its revisions are pinned, `until` at the
    /// longest.
    ///
    /// *Errors*: [`Reason::FutureRevision`], [`Reason::Compacted`].
    pub fn open(state: &State, request: &TxnRequest, until: MonoTime) -> Result<TxnCursor, Reason> {
        let taken = transaction::choose(&state.mvcc, request);
        transaction::check(&state.mvcc, &state.leases, &taken)?;
        let branch = if taken.succeeded { &request.success } else { &request.failure };
        let ranges = branch.iter().filter_map(|op| match &op.request {
            Some(Request::RequestRange(range)) => Some(range),
            _ => None,
        });
        let ranges = ranges.map(|range| {
            let at = state.mvcc.check_revision(range.revision)?;
            RangeCursor::pinned(state, range, Rc::new(state.pin(at, until)))
        });
        Ok(TxnCursor {
            succeeded: taken.succeeded,
            header: state.mvcc.revision(),
            ranges: ranges.collect::<Result<_, Reason>>()?,
            kvs: Vec::new(),
            responses: Vec::new(),
        })
    }

    /// Does the next portion of work: many small ranges, or a part of a large one. The answer when
    /// nothing is left, its header the revision only.
    ///
    /// *Errors*: [`Reason::Compacted`]: a pin has expired, and its revision is gone.
    pub fn step(&mut self, state: &State, budget: Budget) -> Result<Option<TxnResponse>, Reason> {
        let mut done = 0;
        while let Some(range) = self.ranges.front_mut() {
            match range.step(state, budget)? {
                Step::More(kvs) => {
                    self.kvs.extend(kvs);
                    return Ok(None);
                }
                Step::Last(mut last) => {
                    done += last.kvs.len() + 1;
                    self.kvs.append(&mut last.kvs);
                    last.kvs = std::mem::take(&mut self.kvs);
                    let response = Some(Response::ResponseRange(last));
                    self.responses.push(ResponseOp { response });
                    self.ranges.pop_front();
                }
            }
            if done >= budget.keys && !self.ranges.is_empty() {
                return Ok(None);
            }
        }
        let header = ResponseHeader { revision: self.header.0, ..ResponseHeader::default() };
        Ok(Some(TxnResponse {
            header: Some(header),
            succeeded: self.succeeded,
            responses: std::mem::take(&mut self.responses),
        }))
    }
}

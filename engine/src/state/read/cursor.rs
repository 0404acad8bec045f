//! A range in steps.
//!
//! ```text
//!             step                    step                  step
//!   Walking ────────► Walking ... ──────────► Emptying ... ──────► Done
//!     │ keys of the range, counted and kept      │ sorted keys leave
//!     └─ keys in key order leave at once
//! ```

use std::ops::ControlFlow;
use std::rc::Rc;

use ringbolt_io::MonoTime;
use ringbolt_proto::etcdserverpb::{RangeRequest, RangeResponse, ResponseHeader};
use ringbolt_proto::mvccpb::KeyValue;

use super::collect::Collector;
use crate::error::Reason;
use crate::limits::{RANGE_COUNT_BACK_MAX, RANGE_STEP_BYTES_MAX, RANGE_STEP_KEYS_MAX};
use crate::mvcc::{KeyRange, Mvcc, Next, Rest};
use crate::state::{Pin, State};
use crate::types::Revision;

/// How much one step may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Keys it looks at, and keys it hands out, at most.
    pub keys: usize,
    /// Bytes of keys and values it hands out; the key that exceeds it is the last of the step.
    pub bytes: usize,
}

impl Budget {
    /// One step of a read that shares its core with writes: about 200 µs.
    pub const STEP: Budget = Budget { keys: RANGE_STEP_KEYS_MAX, bytes: RANGE_STEP_BYTES_MAX };
    /// Everything at once.
    pub const UNLIMITED: Budget = Budget { keys: usize::MAX, bytes: usize::MAX };
}

/// What a step brought.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Key-values, possibly none, and there is more to do.
    More(Vec<KeyValue>),
    /// The end: header (revision only), count, more, and the last key-values.
    Last(RangeResponse),
}

/// A range that is being read. It belongs to one request and lives on the keyspace's home shard.
///
/// Concatenating the key-values of all steps gives the answer. A cursor made by
/// [`RangeCursor::unary`] pins its revision: a compaction that passes it does not end the read.
#[derive(Debug)]
pub struct RangeCursor {
    at: Revision,
    header: Revision,
    /// What is still to be walked.
    rest: Option<Rest>,
    collector: Collector,
    count: u64,
    is_counted: bool,
    count_only: bool,
    pin: Option<Rc<Pin>>,
}

impl RangeCursor {
    /// Opens a unary `Range` that was validated. Its revision is pinned, `until` at the longest.
    ///
    /// *Errors*: [`Reason::FutureRevision`], [`Reason::Compacted`].
    pub fn unary(
        state: &State,
        request: &RangeRequest,
        until: MonoTime,
    ) -> Result<RangeCursor, Reason> {
        let at = state.mvcc.check_revision(request.revision)?;
        let pin = Rc::new(state.pin(at, until));
        RangeCursor::pinned(state, request, pin)
    }

    /// Opens a range at the revision of a pin, whatever the request says.
    ///
    /// *Errors*: [`Reason::Compacted`]: the pin has expired, and the revision is gone.
    pub fn pinned(
        state: &State,
        request: &RangeRequest,
        pin: Rc<Pin>,
    ) -> Result<RangeCursor, Reason> {
        check_pin(state, &pin)?;
        let mut cursor = RangeCursor::at(&state.mvcc, pin.at(), state.mvcc.revision(), request);
        cursor.pin = Some(pin);
        Ok(cursor)
    }

    /// As [`RangeCursor::pinned`], to go on with a range whose count is known already: nothing is
    /// looked at but what is handed out, and `count` of the answer is 0.
    ///
    /// *Errors*: as [`RangeCursor::pinned`].
    pub fn continued(
        state: &State,
        request: &RangeRequest,
        pin: Rc<Pin>,
    ) -> Result<RangeCursor, Reason> {
        check_pin(state, &pin)?;
        let range = KeyRange::from_wire(&request.key, &request.range_end);
        Ok(RangeCursor {
            at: pin.at(),
            header: state.mvcc.revision(),
            rest: Some(range.into()),
            collector: Collector::new(request),
            count: 0,
            is_counted: true,
            count_only: false,
            pin: Some(pin),
        })
    }

    /// The pin of this range, to go on at its revision; none for a stream.
    #[must_use]
    pub fn pin(&self) -> Option<Rc<Pin>> {
        self.pin.clone()
    }

    /// Opens a cursor at a readable revision.
    pub(in crate::state) fn at(
        mvcc: &Mvcc,
        at: Revision,
        header: Revision,
        request: &RangeRequest,
    ) -> RangeCursor {
        let range = KeyRange::from_wire(&request.key, &request.range_end);
        let is_counted = mvcc.revision().0 - at.0 <= RANGE_COUNT_BACK_MAX;
        let count = if is_counted { mvcc.count(&range, at) } else { 0 };
        let needs_walk = !is_counted || (!request.count_only && count > 0);
        RangeCursor {
            at,
            header,
            rest: needs_walk.then(|| range.into()),
            collector: Collector::new(request),
            count,
            is_counted,
            count_only: request.count_only,
            pin: None,
        }
    }

    /// Keeps key order whatever the request says.
    pub(super) fn in_key_order(mut self) -> RangeCursor {
        self.collector = self.collector.in_key_order();
        self
    }

    /// Does the next portion of work.
    ///
    /// *Errors*: [`Reason::Compacted`] if the revision was compacted meanwhile and is not pinned.
    pub fn step(&mut self, state: &State, budget: Budget) -> Result<Step, Reason> {
        let is_pinned = self.pin.as_ref().is_some_and(|pin| pin.is_live());
        if !is_pinned && self.at < state.mvcc.compacted() {
            return Err(Reason::Compacted);
        }
        Ok(self.walk(&state.mvcc, budget))
    }

    /// As [`RangeCursor::step`], at a revision that cannot go away.
    pub(super) fn walk(&mut self, mvcc: &Mvcc, budget: Budget) -> Step {
        if let Some(rest) = self.rest.take() {
            self.rest = self.visit(mvcc, rest, budget);
            if self.rest.is_some() {
                let can_leave = self.collector.is_in_key_order();
                return Step::More(if can_leave {
                    self.collector.take(usize::MAX)
                } else {
                    vec![]
                });
            }
        }
        let more = self.collector.more() && !self.count_only;
        let kvs = self.collector.take(budget.keys);
        if !self.collector.is_drained() {
            return Step::More(kvs);
        }
        let header = Some(ResponseHeader { revision: self.header.0, ..ResponseHeader::default() });
        let count = i64::try_from(self.count).expect("keys in memory are fewer than 2^63");
        Step::Last(RangeResponse { header, kvs, more, count })
    }

    /// Walks on and gives what is left. Keys that did not exist at the revision and versions that
    /// are newer count as looks, so that a step at an old revision is as short as any.
    fn visit(&mut self, mvcc: &Mvcc, rest: Rest, budget: Budget) -> Option<Rest> {
        let mut seen_keys = 0_usize;
        let mut seen_bytes = 0_usize;
        let looks = budget.keys.max(RANGE_STEP_KEYS_MAX);
        mvcc.visit_some(rest, self.at, looks, &mut |version| {
            if seen_keys == budget.keys || seen_bytes >= budget.bytes {
                return Next::Pause;
            }
            seen_keys += 1;
            if !self.is_counted {
                self.count += 1;
            }
            if self.count_only || self.collector.is_full() {
                return self.go_on();
            }
            seen_bytes += version.key.len() + version.value.len();
            match self.collector.push(&version) {
                ControlFlow::Continue(()) => Next::GoOn,
                ControlFlow::Break(()) => self.go_on(),
            }
        })
    }

    /// Nothing more is wanted; the walk goes on only to count.
    fn go_on(&self) -> Next {
        if self.is_counted { Next::End } else { Next::GoOn }
    }
}

/// *Errors*: [`Reason::Compacted`]: the pin has expired, and its revision is gone.
fn check_pin(state: &State, pin: &Pin) -> Result<(), Reason> {
    if !pin.is_live() {
        state.mvcc.check_revision(pin.at().0)?;
    }
    Ok(())
}

//! `RangeStream`: a range in messages, each sent as soon as it is read.

use prost::Message;
use ringbolt_proto::etcdserverpb::{RangeRequest, RangeResponse};

use super::cursor::{Budget, RangeCursor, Step};
use crate::error::Reason;
use crate::limits::{RANGE_STEP_BYTES_MAX, RANGE_STEP_KEYS_MAX, RANGE_STREAM_FIRST_KEYS};
use crate::state::State;

/// What a step of a stream brought.
#[derive(Debug, PartialEq)]
pub enum StreamStep {
    /// Nothing to send yet: keys were only counted.
    Working,
    /// A message of key-values alone.
    Chunk(RangeResponse),
    /// The last message: header (revision only), count, more and the last key-values.
    Last(RangeResponse),
}

/// A stream that is being read. Lives on the keyspace's home shard; may wait for its client as long
/// as it likes. Nothing is held for it: if its revision is compacted meanwhile it ends.
///
/// Chunks begin small and grow while they stay below half of what a request may hold, so that the
/// first keys arrive early and a long list needs few messages.
/// Source: etcd 3.7 `rpc.proto` `RangeStream`.
#[derive(Debug)]
pub struct RangeStream {
    cursor: RangeCursor,
    chunk_keys: usize,
    chunk_bytes: usize,
}

impl RangeStream {
    /// Opens a stream for a request that passed [`crate::state::validate::range_stream`].
    ///
    /// *Errors*: [`Reason::FutureRevision`], [`Reason::Compacted`].
    pub fn open(state: &State, request: &RangeRequest) -> Result<RangeStream, Reason> {
        let at = state.mvcc.check_revision(request.revision)?;
        let cursor = RangeCursor::at(&state.mvcc, at, state.mvcc.revision(), request);
        Ok(RangeStream {
            cursor: cursor.in_key_order(),
            chunk_keys: RANGE_STREAM_FIRST_KEYS,
            chunk_bytes: state.config.max_request_bytes.min(RANGE_STEP_BYTES_MAX),
        })
    }

    /// Reads the next message.
    ///
    /// *Errors*: [`Reason::Compacted`] ends the stream.
    pub fn step(&mut self, state: &State) -> Result<StreamStep, Reason> {
        let budget = Budget { keys: self.chunk_keys, bytes: self.chunk_bytes };
        match self.cursor.step(state, budget)? {
            Step::Last(last) => Ok(StreamStep::Last(last)),
            Step::More(kvs) if kvs.is_empty() => {
                self.chunk_keys = RANGE_STEP_KEYS_MAX;
                Ok(StreamStep::Working)
            }
            Step::More(kvs) => {
                let chunk = RangeResponse { kvs, ..RangeResponse::default() };
                let size = chunk.encoded_len();
                if size < self.chunk_bytes / 2 {
                    self.chunk_keys = (self.chunk_keys * 2).min(RANGE_STEP_KEYS_MAX);
                } else if size > self.chunk_bytes * 2 {
                    self.chunk_keys = (self.chunk_keys / 2).max(1);
                }
                Ok(StreamStep::Chunk(chunk))
            }
        }
    }
}

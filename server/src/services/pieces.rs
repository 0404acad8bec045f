//! Answers with many key-values outside of a plain list: transactions, deletions that give back
//! what they deleted. Their encoded form is never held: it is made as flow control has room.
//!
//! ```text
//! request ── cost ──► afford ──► charged, or refused before anything happens
//! response ──► pieces: [tags, lengths, small fields] [key-values] [tags …] … ──► 64 KiB at a time
//! ```

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use prost::Message;
use prost::encoding::{self, WireType};
use ringbolt_engine::mvcc::{End, KeyRange};
use ringbolt_engine::{Reason, state::State};
use ringbolt_proto::etcdserverpb::request_op::Request;
use ringbolt_proto::etcdserverpb::response_op::Response;
use ringbolt_proto::etcdserverpb::{
    DeleteRangeRequest, DeleteRangeResponse, RangeRequest, RangeResponse, RequestOp, ResponseOp,
    TxnRequest, TxnResponse,
};
use ringbolt_proto::mvccpb::KeyValue;

use super::Keyspace;
use crate::budget::{Owner, Share};
use crate::connection::Call;
use crate::error::status_of;
use crate::grpc::Status;
use crate::limits::{CHUNK_SLACK_BYTES, RANGE_CHUNK_BYTES};

/// What a key-value of an answer is charged: its own table, not the bytes it shares with the store.
pub(super) const KV_BYTES: usize = size_of::<KeyValue>();
/// The same while it is sorted.
const SORTED_KV_BYTES: usize = 2 * KV_BYTES;

/// What an answer is charged until it is sent.
#[derive(Debug)]
pub(super) struct Held {
    share: Rc<Share>,
    bytes: usize,
}

impl Held {
    pub(super) fn charge(share: &Rc<Share>, bytes: usize) -> Held {
        share.recharge(Owner::Calls, 0, bytes);
        Held { share: share.clone(), bytes }
    }

    /// Charges what an answer will hold.
    ///
    /// *Errors*: the budget has no room for it.
    pub(super) fn afford(keyspace: &Keyspace, bytes: usize) -> Result<Held, Status> {
        if !keyspace.share.has_room(bytes) {
            return Err(status_of(Reason::MemoryBudget));
        }
        Ok(Held::charge(&keyspace.share, bytes))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.share.recharge(Owner::Calls, self.bytes, 0);
    }
}

/// What the answer of a range that is held whole costs, as far as the store knows now.
pub(super) fn range_cost(state: &State, range: &RangeRequest) -> usize {
    if range.count_only {
        return 0;
    }
    let found = count(state, &KeyRange::from_wire(&range.key, &range.range_end));
    let limit = usize::try_from(range.limit).ok().filter(|limit| *limit > 0);
    let sorted = range.sort_order != 0 || range.sort_target != 0;
    let each = if sorted { SORTED_KV_BYTES } else { KV_BYTES };
    found.min(limit.unwrap_or(usize::MAX)).saturating_mul(each)
}

/// What the answer of a deletion costs.
pub(super) fn delete_cost(state: &State, delete: &DeleteRangeRequest) -> usize {
    let range = KeyRange::from_wire(&delete.key, &delete.range_end);
    if delete.prev_kv { count(state, &range).saturating_mul(KV_BYTES) } else { 0 }
}

/// What the answer of a transaction costs: of its dearer branch.
pub(super) fn txn_cost(state: &State, txn: &TxnRequest) -> usize {
    let branch = |ops: &[RequestOp]| {
        ops.iter().fold(0usize, |cost, op| cost.saturating_add(op_cost(state, op)))
    };
    branch(&txn.success).max(branch(&txn.failure))
}

fn op_cost(state: &State, op: &RequestOp) -> usize {
    match &op.request {
        Some(Request::RequestRange(range)) => range_cost(state, range),
        Some(Request::RequestDeleteRange(delete)) => delete_cost(state, delete),
        Some(Request::RequestTxn(txn)) => txn_cost(state, txn),
        Some(Request::RequestPut(_)) | None => KV_BYTES,
    }
}

fn count(state: &State, range: &KeyRange) -> usize {
    if range.end == End::Single {
        return 1;
    }
    usize::try_from(state.mvcc.count(range, state.mvcc.revision())).unwrap_or(usize::MAX)
}

/// A message taken apart, in the order of its bytes.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    queue: VecDeque<Piece>,
    size: usize,
}

#[derive(Debug)]
enum Piece {
    Bytes(Vec<u8>),
    KeyValues { field: u32, kvs: VecDeque<KeyValue> },
}

impl Pieces {
    /// A transaction's answer.
    pub(super) fn of_txn(response: TxnResponse) -> Pieces {
        let TxnResponse { header, succeeded, responses } = response;
        let mut pieces = Pieces::default();
        pieces.message(&TxnResponse { header, succeeded, responses: Vec::new() });
        for op in responses {
            pieces.nested(3, Pieces::of_op(op));
        }
        pieces
    }

    /// A deletion's answer.
    pub(super) fn of_delete(response: DeleteRangeResponse) -> Pieces {
        let DeleteRangeResponse { header, deleted, prev_kvs } = response;
        let mut pieces = Pieces::default();
        pieces.message(&DeleteRangeResponse { header, deleted, prev_kvs: Vec::new() });
        pieces.key_values(3, prev_kvs);
        pieces
    }

    fn of_range(response: RangeResponse) -> Pieces {
        let RangeResponse { header, kvs, more, count } = response;
        let mut pieces = Pieces::default();
        pieces.message(&RangeResponse { header, ..RangeResponse::default() });
        pieces.key_values(2, kvs);
        pieces.message(&RangeResponse { more, count, ..RangeResponse::default() });
        pieces
    }

    fn of_op(op: ResponseOp) -> Pieces {
        let mut pieces = Pieces::default();
        match op.response {
            Some(Response::ResponseRange(range)) => pieces.nested(1, Pieces::of_range(range)),
            Some(Response::ResponseDeleteRange(delete)) => {
                pieces.nested(3, Pieces::of_delete(delete));
            }
            Some(Response::ResponseTxn(txn)) => pieces.nested(4, Pieces::of_txn(txn)),
            response => pieces.message(&ResponseOp { response }),
        }
        pieces
    }

    /// Its encoded size.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    fn message(&mut self, message: &impl Message) {
        self.bytes(message.encode_to_vec());
    }

    fn bytes(&mut self, bytes: Vec<u8>) {
        self.size += bytes.len();
        match self.queue.back_mut() {
            Some(Piece::Bytes(before)) => before.extend(bytes),
            _ => self.queue.push_back(Piece::Bytes(bytes)),
        }
    }

    fn key_values(&mut self, field: u32, kvs: Vec<KeyValue>) {
        let size = |kv| encoding::message::encoded_len(field, kv);
        self.size += kvs.iter().map(size).sum::<usize>();
        self.queue.push_back(Piece::KeyValues { field, kvs: kvs.into() });
    }

    fn nested(&mut self, field: u32, inner: Pieces) {
        let mut head = Vec::new();
        encoding::encode_key(field, WireType::LengthDelimited, &mut head);
        encoding::encode_varint(u64::try_from(inner.size).unwrap_or(u64::MAX), &mut head);
        self.bytes(head);
        self.size += inner.size;
        self.queue.extend(inner.queue);
    }

    /// The next bytes; none at the end.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        let mut chunk = Vec::with_capacity(RANGE_CHUNK_BYTES + CHUNK_SLACK_BYTES);
        while chunk.len() < RANGE_CHUNK_BYTES {
            match self.queue.front_mut() {
                None => break,
                Some(Piece::Bytes(bytes)) => {
                    chunk.append(bytes);
                    self.queue.pop_front();
                }
                Some(Piece::KeyValues { field, kvs }) => match kvs.pop_front() {
                    Some(kv) => encoding::message::encode(*field, &kv, &mut chunk),
                    None => drop(self.queue.pop_front()),
                },
            }
        }
        (!chunk.is_empty()).then(|| chunk.into())
    }
}

/// Answers piece by piece; `held` is given back at the end.
pub(super) async fn send(call: Call, mut pieces: Pieces, held: Held) {
    let size = pieces.size();
    let next = async || Ok(pieces.next());
    // A client that goes away needs no answer.
    let _ = call.responder.unary_chunks(size, next).await;
    drop(held);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringbolt_proto::etcdserverpb::{PutResponse, ResponseHeader};

    fn kvs(count: usize) -> Vec<KeyValue> {
        let kv = |index: usize| KeyValue {
            key: format!("k{index}").into(),
            value: vec![b'v'; index % 700].into(),
            mod_revision: 7,
            ..KeyValue::default()
        };
        (0..count).map(kv).collect()
    }

    fn op(response: Response) -> ResponseOp {
        ResponseOp { response: Some(response) }
    }

    fn txn(responses: Vec<ResponseOp>) -> TxnResponse {
        let header = Some(ResponseHeader { revision: 9, ..ResponseHeader::default() });
        TxnResponse { header, succeeded: true, responses }
    }

    /// In pieces or whole, the bytes are the same, and their number is known before.
    #[test]
    fn the_bytes_of_a_message() {
        let range = |count| {
            let kvs = kvs(count);
            op(Response::ResponseRange(RangeResponse { kvs, more: true, count: 3, header: None }))
        };
        let deleted = DeleteRangeResponse { header: None, deleted: 5, prev_kvs: kvs(5) };
        let put = PutResponse { header: None, prev_kv: kvs(1).pop() };
        let inner = txn(vec![range(3), op(Response::ResponsePut(put)), range(0)]);
        let messages = [
            txn(vec![]),
            txn(vec![range(1000), op(Response::ResponseTxn(inner)), ResponseOp::default()]),
            txn(vec![op(Response::ResponseDeleteRange(deleted.clone())), range(900)]),
        ];
        for message in messages {
            let mut pieces = Pieces::of_txn(message.clone());
            assert_eq!(pieces.size(), message.encoded_len());
            let mut bytes = Vec::new();
            while let Some(chunk) = pieces.next() {
                assert!(chunk.len() < RANGE_CHUNK_BYTES + CHUNK_SLACK_BYTES);
                bytes.extend_from_slice(&chunk);
            }
            assert_eq!(bytes, message.encode_to_vec());
        }
        let mut pieces = Pieces::of_delete(deleted.clone());
        assert_eq!(pieces.next().expect("bytes")[..], deleted.encode_to_vec()[..]);
        assert!(pieces.next().is_none());
    }
}

//! The KV service.

use std::rc::Rc;

use bytes::Bytes;
use prost::{Message, encoding};
use ringbolt_engine::Reason;
use ringbolt_engine::state::{Command, Reply, read, validate};
use ringbolt_proto::etcdserverpb::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
    PutResponse, RangeRequest, RangeResponse, RangeStreamResponse, TxnRequest, TxnResponse,
};

use super::{Keyspace, answer, request};
use crate::connection::Call;
use crate::error;
use crate::grpc::Status;
use crate::limits::RANGE_CHUNK_BYTES;

/// Field number of `RangeResponse.kvs`.
const RANGE_KVS_FIELD: u32 = 2;

/// Asks the replica. A write whose deadline passes before it is proposed is dropped; once proposed
/// it happens, whatever the client does.
pub(super) async fn propose(
    keyspace: &Keyspace,
    call: &Call,
    command: Command,
) -> Result<Reply, Status> {
    let proposed = keyspace.replica.propose_before(command, call.deadline).await;
    proposed.map_err(|error| error::status(&error))
}

/// Waits until a linearizable read may be answered.
pub(super) async fn barrier(keyspace: &Keyspace) -> Result<(), Status> {
    keyspace.replica.read_barrier().await.map_err(|error| error::status(&error))
}

fn refused(reason: Reason) -> Status {
    error::status_of(reason)
}

/// `KV/Put`
pub(super) async fn put(keyspace: Rc<Keyspace>, mut call: Call) {
    tracing::trace!(target: "path", "kv::put");
    let result = async {
        let put: PutRequest = request(&mut call).await?;
        validate::put(&put, &keyspace.settings.limits).map_err(refused)?;
        match propose(&keyspace, &call, Command::Put(put)).await? {
            Reply::Put(mut response) => {
                keyspace.counts.puts.increment();
                keyspace.complete(&mut response.header);
                Ok::<PutResponse, Status>(response)
            }
            other => unreachable!("a put is answered as a put, not {other:?}"),
        }
    };
    let result = result.await;
    answer(call, result);
}

/// `KV/DeleteRange`
pub(super) async fn delete_range(keyspace: Rc<Keyspace>, mut call: Call) {
    let result = async {
        let delete: DeleteRangeRequest = request(&mut call).await?;
        validate::delete_range(&delete, &keyspace.settings.limits).map_err(refused)?;
        match propose(&keyspace, &call, Command::DeleteRange(delete)).await? {
            Reply::DeleteRange(mut response) => {
                keyspace.counts.deletes.increment();
                keyspace.complete(&mut response.header);
                Ok::<DeleteRangeResponse, Status>(response)
            }
            other => unreachable!("a delete is answered as a delete, not {other:?}"),
        }
    };
    let result = result.await;
    answer(call, result);
}

/// `KV/Txn`
pub(super) async fn txn(keyspace: Rc<Keyspace>, mut call: Call) {
    let result = async {
        let txn: TxnRequest = request(&mut call).await?;
        validate::txn(&txn, &keyspace.settings.limits).map_err(refused)?;
        if validate::is_read_only(&txn) {
            if !validate::is_serializable(&txn) {
                barrier(&keyspace).await?;
            }
            let mut response = read::txn(&keyspace.replica.state(), &txn).map_err(refused)?;
            keyspace.counts.count_txn(&response);
            keyspace.complete(&mut response.header);
            return Ok::<TxnResponse, Status>(response);
        }
        match propose(&keyspace, &call, Command::Txn(txn)).await? {
            Reply::Txn(mut response) => {
                keyspace.counts.count_txn(&response);
                keyspace.complete(&mut response.header);
                Ok(response)
            }
            other => unreachable!("a txn is answered as a txn, not {other:?}"),
        }
    };
    let result = result.await;
    answer(call, result);
}

/// `KV/Compact`
pub(super) async fn compact(keyspace: Rc<Keyspace>, mut call: Call) {
    let result = async {
        let compaction: CompactionRequest = request(&mut call).await?;
        match propose(&keyspace, &call, Command::Compact(compaction)).await? {
            Reply::Compact(mut response) => {
                keyspace.complete(&mut response.header);
                Ok::<CompactionResponse, Status>(response)
            }
            other => unreachable!("a compaction is answered as one, not {other:?}"),
        }
    };
    let result = result.await;
    answer(call, result);
}

/// `KV/Range`
pub(super) async fn range(keyspace: Rc<Keyspace>, mut call: Call) {
    let result = async {
        let range: RangeRequest = request(&mut call).await?;
        validate::range(&range, &keyspace.settings.limits).map_err(refused)?;
        if !range.serializable {
            barrier(&keyspace).await?;
        }
        let mut response = read_in_steps(&keyspace, &range).await?;
        keyspace.counts.ranges.increment();
        keyspace.complete(&mut response.header);
        Ok::<RangeResponse, Status>(response)
    };
    match result.await {
        Ok(response) if response.kvs.len() > 1 => answer_in_chunks(call, response).await,
        result => answer(call, result),
    }
}

/// Sends a list without ever holding its encoded form: the key-values share the store's bytes and
/// are encoded piece by piece as flow control has room.
async fn answer_in_chunks(call: Call, response: RangeResponse) {
    let size = response.encoded_len();
    if size <= RANGE_CHUNK_BYTES {
        return answer(call, Ok(response));
    }
    let RangeResponse { header, kvs, more, count } = response;
    let head = RangeResponse { header, ..RangeResponse::default() };
    let tail = RangeResponse { more, count, ..RangeResponse::default() };
    let mut kvs = kvs.into_iter();
    let mut head = Some(head.encode_to_vec());
    let mut tail = Some(tail.encode_to_vec());
    let next = async || {
        let mut chunk = head.take().unwrap_or_default();
        while chunk.len() < RANGE_CHUNK_BYTES {
            let Some(kv) = kvs.next() else {
                chunk.extend(tail.take()?);
                break;
            };
            encoding::message::encode(RANGE_KVS_FIELD, &kv, &mut chunk);
        }
        Some(Bytes::from(chunk))
    };
    // A client that goes away needs no answer.
    let _ = call.responder.unary_chunks(size, next).await;
}

/// Reads a range in steps; between two of them writes and other reads have their turn.
async fn read_in_steps(keyspace: &Keyspace, range: &RangeRequest) -> Result<RangeResponse, Status> {
    let mut cursor = read::RangeCursor::unary(&keyspace.replica.state(), range).map_err(refused)?;
    let mut kvs = Vec::new();
    loop {
        let step = cursor.step(&keyspace.replica.state(), read::Budget::STEP).map_err(refused)?;
        match step {
            read::Step::Last(last) if kvs.is_empty() => return Ok(last),
            read::Step::Last(mut last) => {
                kvs.append(&mut last.kvs);
                return Ok(RangeResponse { kvs, ..last });
            }
            read::Step::More(more) => kvs.extend(more),
        }
        keyspace.io.yield_now().await;
    }
}

/// `KV/RangeStream`
pub(super) async fn range_stream(keyspace: Rc<Keyspace>, mut call: Call) {
    let opened = async {
        let range: RangeRequest = request(&mut call).await?;
        validate::range_stream(&range, &keyspace.settings.limits).map_err(refused)?;
        if !range.serializable {
            barrier(&keyspace).await?;
        }
        read::RangeStream::open(&keyspace.replica.state(), &range).map_err(refused)
    };
    let mut stream = match opened.await {
        Ok(stream) => stream,
        Err(status) => return call.responder.finish(status),
    };
    loop {
        let step = stream.step(&keyspace.replica.state());
        let (chunk, is_last) = match step {
            Ok(read::StreamStep::Working) => {
                keyspace.io.yield_now().await;
                continue;
            }
            Ok(read::StreamStep::Chunk(chunk)) => (chunk, false),
            Ok(read::StreamStep::Last(mut last)) => {
                keyspace.complete(&mut last.header);
                (last, true)
            }
            Err(reason) => return call.responder.finish(refused(reason)),
        };
        let message = RangeStreamResponse { range_response: Some(chunk) };
        if call.responder.send(Bytes::from(message.encode_to_vec())).await.is_err() {
            return;
        }
        if is_last {
            return call.responder.finish(Status::OK);
        }
        keyspace.io.yield_now().await;
    }
}

//! The KV service.

use std::rc::Rc;

use bytes::Bytes;
use prost::Message;
use ringbolt_engine::Reason;
use ringbolt_engine::state::{Command, Reply, read, validate};
use ringbolt_proto::etcdserverpb::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
    PutResponse, RangeRequest, RangeStreamResponse, TxnRequest, TxnResponse,
};

use super::list::{self, Listed};
use super::pieces::{self, Held, Pieces};
use super::{Keyspace, answer, request};
use crate::connection::Call;
use crate::error;
use crate::grpc::Status;
use crate::limits::{LIST_PIN_TIME_MAX, RANGE_CHUNK_BYTES};

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
        let cost = pieces::delete_cost(&keyspace.replica.state(), &delete);
        let held = Held::afford(&keyspace, cost)?;
        match propose(&keyspace, &call, Command::DeleteRange(delete)).await? {
            Reply::DeleteRange(mut response) => {
                keyspace.counts.deletes.increment();
                keyspace.complete(&mut response.header);
                Ok::<(DeleteRangeResponse, Held), Status>((response, held))
            }
            other => unreachable!("a delete is answered as a delete, not {other:?}"),
        }
    };
    match result.await {
        Ok((response, held)) if response.prev_kvs.len() > 1 => {
            pieces::send(call, Pieces::of_delete(response), held).await;
        }
        result => answer(call, result.map(|(response, _)| response)),
    }
}

/// `KV/Txn`
pub(super) async fn txn(keyspace: Rc<Keyspace>, mut call: Call) {
    let result = async {
        let txn: TxnRequest = request(&mut call).await?;
        validate::txn(&txn, &keyspace.settings.limits).map_err(refused)?;
        let cost = pieces::txn_cost(&keyspace.replica.state(), &txn);
        let held = Held::afford(&keyspace, cost)?;
        if validate::is_read_only(&txn) {
            if !validate::is_serializable(&txn) {
                barrier(&keyspace).await?;
            }
            let mut response = read_txn(&keyspace, &txn).await?;
            keyspace.counts.count_txn(&response);
            keyspace.complete(&mut response.header);
            return Ok::<(TxnResponse, Held), Status>((response, held));
        }
        match propose(&keyspace, &call, Command::Txn(txn)).await? {
            Reply::Txn(mut response) => {
                keyspace.counts.count_txn(&response);
                keyspace.complete(&mut response.header);
                Ok((response, held))
            }
            other => unreachable!("a txn is answered as a txn, not {other:?}"),
        }
    };
    match result.await {
        Ok((response, held)) if response.encoded_len() > RANGE_CHUNK_BYTES => {
            pieces::send(call, Pieces::of_txn(response), held).await;
        }
        result => answer(call, result.map(|(response, _)| response)),
    }
}

/// Reads in steps; between two of them writes and other reads have their turn.
async fn read_txn(keyspace: &Keyspace, txn: &TxnRequest) -> Result<TxnResponse, Status> {
    let until = keyspace.io.now() + LIST_PIN_TIME_MAX;
    let opened = read::TxnCursor::open(&keyspace.replica.state(), txn, until);
    let mut cursor = opened.map_err(refused)?;
    loop {
        let step = cursor.step(&keyspace.replica.state(), read::Budget::STEP);
        if let Some(response) = step.map_err(refused)? {
            return Ok(response);
        }
        keyspace.io.yield_now().await;
    }
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
        let mut listed = list::read(&keyspace, range).await?;
        keyspace.counts.ranges.increment();
        keyspace.complete(&mut listed.response.header);
        Ok::<Listed, Status>(listed)
    };
    match result.await {
        Ok(listed) if listed.response.kvs.len() > 1 => list::answer(&keyspace, call, listed).await,
        result => answer(call, result.map(|listed| listed.response)),
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

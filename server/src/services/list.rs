//! The answer of a unary range, which may be larger than what may be held for one client.
//!
//! ```text
//! read:   walk to the end ──► all of it held, or the first LIST_HELD_BYTES_MAX and the exact size
//! answer: what is held ──► the rest, read again at the same revision as flow control has room
//! ```
//! The revision stays pinned for `LIST_PIN_TIME_MAX`, but not while memory is tight. When a
//! compaction passes it after that, before a slow client has read all, the call ends as
//! `compacted`.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use prost::{Message, encoding};
use ringbolt_engine::state::Pin;
use ringbolt_engine::state::read::{Budget, RangeCursor, Step};
use ringbolt_proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use ringbolt_proto::etcdserverpb::{RangeRequest, RangeResponse};
use ringbolt_proto::mvccpb::KeyValue;

use super::pieces::{Held, KV_BYTES, range_cost};
use super::{Keyspace, answer as answer_whole};
use crate::connection::Call;
use crate::error::status_of;
use crate::grpc::Status;
use crate::limits::{
    CHUNK_SLACK_BYTES, LIST_HELD_BYTES_MAX, LIST_HELD_TIGHT_BYTES, LIST_PIN_TIME_MAX,
    LIST_REFILL_KEYS, RANGE_CHUNK_BYTES,
};

/// Field number of `RangeResponse.kvs`.
const RANGE_KVS_FIELD: u32 = 2;

/// What a range found.
pub(super) struct Listed {
    /// The answer, its first key-values only when there is a rest.
    pub response: RangeResponse,
    rest: Option<Rest>,
}

/// The part of a list that is not held.
struct Rest {
    /// Reads what follows the last key held.
    request: RangeRequest,
    /// The list's revision.
    pin: Rc<Pin>,
    /// How many key-values are not held.
    count: usize,
    /// Their size in the encoded answer.
    bytes: usize,
}

/// Reads a range in steps; between two of them writes and other reads have their turn.
pub(super) async fn read(keyspace: &Keyspace, range: RangeRequest) -> Result<Listed, Status> {
    let until = keyspace.io.now() + LIST_PIN_TIME_MAX;
    let opened = RangeCursor::unary(&keyspace.replica.state(), &range, until);
    let mut cursor = opened.map_err(status_of)?;
    let in_key_order = is_in_key_order(&range);
    // What is sorted is held whole, whatever its size.
    let cost = if in_key_order { 0 } else { range_cost(&keyspace.replica.state(), &range) };
    let _sorted = Held::afford(keyspace, cost)?;
    let tight = keyspace.is_tight();
    let held_max = if tight { LIST_HELD_TIGHT_BYTES } else { LIST_HELD_BYTES_MAX };
    let mut kvs: Vec<KeyValue> = Vec::new();
    let (mut held_bytes, mut count, mut bytes) = (0, 0, 0);
    let mut take = |kvs: &mut Vec<KeyValue>, more: Vec<KeyValue>| {
        if !in_key_order || held_bytes < held_max {
            held_bytes += more.iter().map(|kv| kv.key.len() + kv.value.len()).sum::<usize>();
            return kvs.extend(more);
        }
        count += more.len();
        bytes += more.iter().map(encoded_len).sum::<usize>();
    };
    let mut last = loop {
        let step = cursor.step(&keyspace.replica.state(), Budget::STEP).map_err(status_of)?;
        match step {
            Step::Last(last) if kvs.is_empty() => return Ok(Listed { response: last, rest: None }),
            Step::Last(mut last) => {
                take(&mut kvs, std::mem::take(&mut last.kvs));
                break last;
            }
            Step::More(more) => take(&mut kvs, more),
        }
        keyspace.io.yield_now().await;
    };
    let rest = (count > 0).then(|| {
        let after = kvs.last().expect("a list with a rest holds its beginning");
        let request = RangeRequest { key: next_key(&after.key), ..range };
        let pin = cursor.pin().expect("a unary range has one");
        Rest { request, pin, count, bytes }
    });
    last.kvs = kvs;
    Ok(Listed { response: last, rest })
}

/// Sends a list without ever holding its encoded form: the key-values share the store's bytes and
/// are encoded piece by piece as flow control has room.
pub(super) async fn answer(keyspace: &Keyspace, call: Call, listed: Listed) {
    let Listed { response, rest } = listed;
    let rest_bytes = rest.as_ref().map_or(0, |rest| rest.bytes);
    let size = response.encoded_len() + rest_bytes;
    if size <= RANGE_CHUNK_BYTES {
        return answer_whole(call, Ok(response));
    }
    let _held = Held::charge(&keyspace.share, response.kvs.len() * KV_BYTES);
    let RangeResponse { header, kvs, more, count } = response;
    let head = RangeResponse { header, ..RangeResponse::default() };
    let tail = RangeResponse { more, count, ..RangeResponse::default() };
    let mut kvs = VecDeque::from(kvs);
    let mut rest = rest;
    let mut head = Some(head.encode_to_vec());
    let mut tail = Some(tail.encode_to_vec());
    let next = async || {
        let mut chunk = Vec::with_capacity(RANGE_CHUNK_BYTES + CHUNK_SLACK_BYTES);
        chunk.extend(head.take().unwrap_or_default());
        while chunk.len() < RANGE_CHUNK_BYTES {
            if kvs.is_empty() {
                match &mut rest {
                    Some(rest) if rest.count > 0 => kvs = rest.refill(keyspace).await?,
                    _ => {}
                }
            }
            let Some(kv) = kvs.pop_front() else {
                let Some(tail) = tail.take() else { return Ok(None) };
                chunk.extend(tail);
                break;
            };
            encoding::message::encode(RANGE_KVS_FIELD, &kv, &mut chunk);
        }
        Ok(Some(Bytes::from(chunk)))
    };
    // A client that goes away needs no answer.
    let _ = call.responder.unary_chunks(size, next).await;
}

impl Rest {
    /// The next key-values; at least one.
    async fn refill(&mut self, keyspace: &Keyspace) -> Result<VecDeque<KeyValue>, Status> {
        let left = i64::try_from(self.count).unwrap_or(i64::MAX);
        self.request.limit = left.min(LIST_REFILL_KEYS);
        if keyspace.is_tight() {
            self.pin.release();
        }
        let pin = self.pin.clone();
        let opened = RangeCursor::continued(&keyspace.replica.state(), &self.request, pin);
        let mut cursor = opened.map_err(status_of)?;
        let mut kvs = VecDeque::new();
        loop {
            let step = cursor.step(&keyspace.replica.state(), Budget::STEP).map_err(status_of)?;
            match step {
                Step::More(more) => kvs.extend(more),
                Step::Last(last) => {
                    kvs.extend(last.kvs);
                    break;
                }
            }
            keyspace.io.yield_now().await;
        }
        let after = kvs.back().expect("a revision that is readable never changes");
        self.request.key = next_key(&after.key);
        self.count -= kvs.len();
        Ok(kvs)
    }
}

/// Source: etcd 3.7: another target than the key is sorted by even without an order.
fn is_in_key_order(range: &RangeRequest) -> bool {
    range.sort_target == i32::from(SortTarget::Key)
        && range.sort_order != i32::from(SortOrder::Descend)
}

fn encoded_len(kv: &KeyValue) -> usize {
    encoding::message::encoded_len(RANGE_KVS_FIELD, kv)
}

/// The least key above `key`.
fn next_key(key: &[u8]) -> Bytes {
    Bytes::from([key, &[0]].concat())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use ringbolt_engine::replica::{Mode, Replica, ReplicaConfig};
    use ringbolt_engine::state::{Command, Limits};
    use ringbolt_io::Io;
    use ringbolt_io::sim::{SimConfig, World};
    use ringbolt_proto::etcdserverpb::{CompactionRequest, PutRequest};

    use super::*;
    use crate::budget::{Owner, Share};
    use crate::metrics::KeyCounts;
    use crate::services::Settings;

    const KEYS: usize = 6000;
    const VALUE_BYTES: usize = 2000;
    /// What makes memory tight in a budget of 1 MiB.
    const TIGHT_BYTES: usize = 1 << 18;

    /// Runs `test` on a keyspace of `KEYS` keys, under a budget.
    fn with_keys(test: impl AsyncFnOnce(Rc<Keyspace>) + 'static) {
        let mut world = World::new(3, SimConfig::default());
        let machine = world.add_machine();
        world.make_dir(machine, "/data".as_ref());
        let done = Rc::new(Cell::new(false));
        let finished = done.clone();
        world.start(machine, |io| {
            let io = io.clone();
            io.clone().spawn("test", async move {
                test(open(io).await).await;
                finished.set(true);
            });
        });
        assert!(world.run_until(Duration::from_secs(600), |_| done.get()), "the test ends");
    }

    async fn open(io: Io) -> Rc<Keyspace> {
        let config = ReplicaConfig::new("n1", "/data".into(), Mode::Memory);
        let replica = Replica::open(io.clone(), config).await.expect("an empty directory");
        for index in 0..KEYS {
            let key = format!("k/{index:06}").into();
            let put = PutRequest { key, value: vec![7; VALUE_BYTES].into(), ..Default::default() };
            replica.propose(Command::Put(put)).await.expect("room for it");
        }
        let settings = Settings {
            limits: Limits { max_txn_ops: 128, max_request_bytes: 1 << 20 },
            progress_interval: Duration::from_secs(600),
            quota_bytes: -1,
            lease_ttl_min_s: 2,
        };
        let share = Share::new(1 << 20);
        // Memory is tight: little of a list is held.
        share.recharge(Owner::Output, 0, TIGHT_BYTES);
        Keyspace::new(io, replica, settings, Rc::new(KeyCounts::default()), share)
    }

    fn all() -> RangeRequest {
        RangeRequest { key: "k/".into(), range_end: "k0".into(), ..RangeRequest::default() }
    }

    /// A long list is held in part; what is read again completes it to the byte, at the list's own
    /// revision, whatever is written meanwhile.
    #[test]
    fn a_long_list_is_read_again() {
        with_keys(async |keyspace| {
            let Listed { response, rest } = read(&keyspace, all()).await.expect("a range");
            let mut rest = rest.expect("more than is held");
            assert!(response.kvs.len() < KEYS / 2, "{}", response.kvs.len());
            assert_eq!(response.kvs.len() + rest.count, KEYS);
            for index in [KEYS - 1, KEYS] {
                let key = format!("k/{index:06}").into();
                let put = PutRequest { key, value: "later".into(), ..PutRequest::default() };
                keyspace.replica.propose(Command::Put(put)).await.expect("room for it");
            }
            let size = response.encoded_len() + rest.bytes;
            let mut whole = response;
            while rest.count > 0 {
                whole.kvs.extend(rest.refill(&keyspace).await.expect("not compacted"));
            }
            assert_eq!(whole.encoded_len(), size);
            assert_eq!(whole.count, i64::try_from(KEYS).expect("small"));
            for (index, kv) in whole.kvs.iter().enumerate() {
                assert_eq!(&kv.key[..], format!("k/{index:06}").as_bytes());
                assert_eq!(kv.value.len(), VALUE_BYTES);
            }
        });
    }

    /// A compaction does not end a list that is being read, but gives its revision up once memory
    /// is tight; limits hold across the parts.
    #[test]
    fn a_long_list_that_was_compacted_away() {
        with_keys(async |keyspace| {
            let limit = i64::try_from(KEYS - 10).expect("small");
            let listed = read(&keyspace, RangeRequest { limit, ..all() }).await.expect("a range");
            let mut rest = listed.rest.expect("more than is held");
            assert_eq!(listed.response.kvs.len() + rest.count, KEYS - 10);
            assert!(listed.response.more);
            let put = PutRequest { key: "x".into(), ..PutRequest::default() };
            keyspace.replica.propose(Command::Put(put)).await.expect("room for it");
            let revision = keyspace.revision().0;
            let compaction = CompactionRequest { revision, physical: false };
            keyspace.replica.propose(Command::Compact(compaction)).await.expect("a revision");
            keyspace.share.recharge(Owner::Output, TIGHT_BYTES, 0);
            keyspace.io.sleep(LIST_PIN_TIME_MAX - Duration::from_secs(5)).await;
            let more = rest.refill(&keyspace).await.expect("its revision is pinned");
            let behind = i64::try_from(listed.response.kvs.len()).expect("few");
            assert_eq!(more[0].mod_revision, 2 + behind);
            // What a pin keeps is given back where memory is needed.
            keyspace.share.recharge(Owner::Output, 0, TIGHT_BYTES);
            let status = rest.refill(&keyspace).await.expect_err("it is gone");
            assert_eq!(
                &status.message[..],
                "etcdserver: mvcc: required revision has been compacted"
            );
        });
    }

    /// An order other than that of keys is never read again in parts.
    #[test]
    fn other_orders_are_held_whole() {
        let sorted = |order: SortOrder, target: SortTarget| RangeRequest {
            sort_order: order.into(),
            sort_target: target.into(),
            ..all()
        };
        assert!(is_in_key_order(&sorted(SortOrder::None, SortTarget::Key)));
        assert!(is_in_key_order(&sorted(SortOrder::Ascend, SortTarget::Key)));
        assert!(!is_in_key_order(&sorted(SortOrder::Descend, SortTarget::Key)));
        assert!(!is_in_key_order(&sorted(SortOrder::None, SortTarget::Mod)));
    }
}

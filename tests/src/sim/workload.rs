//! What clients do: a seeded mix of every request on a few keys, so that they meet often.

use bytes::Bytes;
use ringbolt_io::sim::Rng;
use ringbolt_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use ringbolt_proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use ringbolt_proto::etcdserverpb::request_op::Request as Op;
use ringbolt_proto::etcdserverpb::{
    CompactionRequest, Compare, DeleteRangeRequest, LeaseGrantRequest, LeaseRevokeRequest,
    PutRequest, RangeRequest, RequestOp, TxnRequest,
};

use super::oracle::Oracle;
use super::request::Request;
use super::store::WatchSpec;

/// Ids of leases.
const LEASE_IDS: u64 = 60;
/// More keys than this are many: a deletion takes a few of them, so that they grow to be many.
const KEYS_FEW: u64 = 100;

/// What the requests of a keyspace are like.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Bytes of the longest value.
    pub value_bytes_max: u64,
    /// Keys of the whole keyspace: few, so that clients meet, or so many that the index is a tree.
    pub keys: u64,
    /// Granted seconds of leases, from and to.
    pub lease_ttl_s: (u64, u64),
    /// How many of a hundred compactions happen; a put is made in place of the others.
    pub compactions_percent: u64,
}

impl Mix {
    /// Few keys, short leases, many compactions.
    pub const SMALL: Mix =
        Mix { value_bytes_max: 6_000, keys: 14, lease_ttl_s: (2, 6), compactions_percent: 100 };
}

/// Writes requests for one client.
pub struct Writer {
    rng: Rng,
    name: String,
    count: u64,
    leases: Vec<i64>,
    mix: Mix,
}

impl Writer {
    /// A client's writer; `name` makes its values and lease ids its own.
    #[must_use]
    pub fn new(rng: Rng, name: String, mix: Mix) -> Writer {
        Writer { rng, name, count: 0, leases: Vec::new(), mix }
    }

    /// Numbers of the client itself: thinking times.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// The next request, made with an eye on what is known.
    pub fn request(&mut self, oracle: &Oracle) -> Request {
        self.count += 1;
        match self.rng.below(100) {
            0..30 => Request::Put(self.put(oracle)),
            30..39 => Request::Delete(self.delete()),
            39..57 => Request::Txn(self.txn(oracle, 1)),
            57..80 => Request::Range(self.range(oracle)),
            80..85 => Request::Grant(self.grant()),
            85..88 => Request::Revoke(LeaseRevokeRequest { id: self.lease(oracle) }),
            88..93 => Request::Renew(self.lease(oracle)),
            93 => Request::TimeToLive(self.lease(oracle)),
            94 => Request::HashKv(self.hash_revision(oracle)),
            _ if self.rng.below(100) < self.mix.compactions_percent => {
                Request::Compact(self.compact(oracle))
            }
            _ => Request::Put(self.put(oracle)),
        }
    }

    fn key(&mut self) -> Bytes {
        let key = self.rng.below(self.mix.keys);
        self.key_of(key)
    }

    fn key_of(&self, number: u64) -> Bytes {
        let half = ["a", "b"][usize::from(number >= self.mix.keys / 2)];
        match self.mix.keys {
            ..=KEYS_FEW => Bytes::from(format!("{half}/{number:02}")),
            _ => Bytes::from(format!("{half}/{number:03}")),
        }
    }

    /// A few keys next to each other.
    fn neighbours(&mut self) -> (Bytes, Bytes) {
        let first = self.rng.below(self.mix.keys);
        let end = first + self.rng.below(6);
        (self.key_of(first), self.key_of(end))
    }

    /// A start and an end: one key, a prefix, an interval, everything or nothing.
    fn keys(&mut self) -> (Bytes, Bytes) {
        match self.rng.below(10) {
            0..5 => (self.key(), Bytes::new()),
            5 => (Bytes::from_static(b"a/"), Bytes::from_static(b"a0")),
            6 => (Bytes::from_static(&[0]), Bytes::from_static(&[0])),
            7 => (self.key(), Bytes::from_static(&[0])),
            _ => (self.key(), self.key()),
        }
    }

    fn value(&mut self) -> Bytes {
        let mut value = format!("{}-{}-", self.name, self.count).into_bytes();
        let long = self.rng.below(8) == 0;
        let filler =
            if long { self.rng.below(self.mix.value_bytes_max) } else { self.rng.below(30) };
        let len = value.len() + usize::try_from(filler).expect("a bounded number");
        value.resize(len, b'.');
        Bytes::from(value)
    }

    fn put(&mut self, oracle: &Oracle) -> PutRequest {
        let mut put = PutRequest {
            key: self.key(),
            value: self.value(),
            prev_kv: self.rng.coin(),
            ..PutRequest::default()
        };
        match self.rng.below(12) {
            0..3 => put.lease = self.lease(oracle),
            3 => {
                put.ignore_value = true;
                put.value = Bytes::new();
            }
            4 => put.ignore_lease = true,
            _ => {}
        }
        put
    }

    fn delete(&mut self) -> DeleteRangeRequest {
        let (key, range_end) = match self.rng.below(4) {
            0 if self.mix.keys > KEYS_FEW && self.rng.below(16) > 0 => self.neighbours(),
            0 => self.keys(),
            _ => (self.key(), Bytes::new()),
        };
        DeleteRangeRequest { key, range_end, prev_kv: self.rng.coin() }
    }

    fn range(&mut self, oracle: &Oracle) -> RangeRequest {
        let (key, range_end) = self.keys();
        let mut range = RangeRequest { key, range_end, ..RangeRequest::default() };
        match self.rng.below(10) {
            0 => range.count_only = true,
            1 => range.keys_only = true,
            2 => range.sort_order = SortOrder::Descend.into(),
            3 => {
                range.sort_order = SortOrder::Ascend.into();
                range.sort_target = SortTarget::Value.into();
            }
            4 => range.min_mod_revision = self.revision(oracle),
            5 => range.max_mod_revision = self.revision(oracle),
            _ => {}
        }
        if self.rng.below(4) == 0 {
            range.limit = i64::try_from(self.rng.below(5)).expect("below five");
        }
        if self.rng.below(4) == 0 {
            range.revision = self.revision(oracle);
        }
        range
    }

    /// A revision near the present, now and then one to come.
    fn revision(&mut self, oracle: &Oracle) -> i64 {
        let back = i64::try_from(self.rng.below(30)).expect("below thirty");
        (oracle.floor() + 2 - back).max(0)
    }

    fn compact(&mut self, oracle: &Oracle) -> CompactionRequest {
        let back = i64::try_from(self.rng.below(40)).expect("below forty");
        let revision = (oracle.floor() + 1 - back).max(1);
        CompactionRequest { revision, physical: self.rng.below(4) == 0 }
    }

    /// Now and then the hash of a compaction, which a store may remember.
    fn hash_revision(&mut self, oracle: &Oracle) -> i64 {
        match self.rng.below(3) {
            0 => 0,
            1 => oracle.compacted().max(0),
            _ => self.revision(oracle),
        }
    }

    /// Few ids, so that they are granted again; an id always has the same time to live.
    fn grant(&mut self) -> LeaseGrantRequest {
        let number = self.rng.below(LEASE_IDS);
        let (least, most) = self.mix.lease_ttl_s;
        let seconds = |number: u64| i64::try_from(number).expect("a small number");
        let id = seconds(number + 1);
        self.leases.push(id);
        LeaseGrantRequest { id, ttl: seconds(least + number % (most - least + 1)) }
    }

    /// A lease of its own, of anybody, or of nobody.
    fn lease(&mut self, oracle: &Oracle) -> i64 {
        let known = oracle.lease_ids();
        match self.rng.below(12) {
            0 => 999_999_999_999_999,
            1..6 if !known.is_empty() => known[self.rng.index(known.len())],
            _ => match self.leases.len() {
                0 => 777,
                len => self.leases[len - 1 - self.rng.index(len.min(3))],
            },
        }
    }

    fn txn(&mut self, oracle: &Oracle, depth: u32) -> TxnRequest {
        let compares = self.rng.below(3);
        let compare = (0..compares).map(|_| self.compare(oracle)).collect();
        let mut keys = Vec::new();
        let success = self.ops(oracle, depth, &mut keys);
        keys.clear();
        let failure = self.ops(oracle, depth, &mut keys);
        TxnRequest { compare, success, failure }
    }

    /// Operations that pass the duplicate check: each key is written once.
    fn ops(&mut self, oracle: &Oracle, depth: u32, keys: &mut Vec<Bytes>) -> Vec<RequestOp> {
        let mut ops = Vec::new();
        for _ in 0..self.rng.below(4) {
            let op = match self.rng.below(10) {
                0..4 => {
                    let (key, range_end) = self.keys();
                    Op::RequestRange(RangeRequest { key, range_end, ..RangeRequest::default() })
                }
                4..8 => {
                    let key = self.key();
                    if keys.contains(&key) {
                        continue;
                    }
                    keys.push(key.clone());
                    let prev_kv = self.rng.coin();
                    let value = self.value();
                    Op::RequestPut(PutRequest { key, value, prev_kv, ..PutRequest::default() })
                }
                8 => {
                    let key = self.key();
                    if keys.contains(&key) {
                        continue;
                    }
                    keys.push(key.clone());
                    let range_end = Bytes::new();
                    Op::RequestDeleteRange(DeleteRangeRequest { key, range_end, prev_kv: true })
                }
                _ if depth > 0 => {
                    let compare = vec![self.compare(oracle)];
                    let success = self.ops(oracle, depth - 1, keys);
                    let failure = self.ops(oracle, depth - 1, keys);
                    Op::RequestTxn(TxnRequest { compare, success, failure })
                }
                _ => continue,
            };
            ops.push(RequestOp { request: Some(op) });
        }
        ops
    }

    /// A comparison that has a fair chance to hold: most are made from the present state.
    fn compare(&mut self, oracle: &Oracle) -> Compare {
        let key = self.key();
        let known = oracle.model().get(&key, oracle.model().revision()).cloned();
        let known = known.unwrap_or_default();
        let result = [
            CompareResult::Equal,
            CompareResult::Equal,
            CompareResult::Equal,
            CompareResult::Greater,
            CompareResult::Less,
            CompareResult::NotEqual,
        ][self.rng.index(6)];
        let (target, union) = match self.rng.below(5) {
            0 => (CompareTarget::Version, TargetUnion::Version(known.version)),
            1 => (CompareTarget::Create, TargetUnion::CreateRevision(known.create_revision)),
            2 => (CompareTarget::Mod, TargetUnion::ModRevision(known.mod_revision)),
            3 => (CompareTarget::Value, TargetUnion::Value(known.value)),
            _ => (CompareTarget::Lease, TargetUnion::Lease(known.lease)),
        };
        let range_end =
            if self.rng.below(6) == 0 { Bytes::from_static(b"b") } else { Bytes::new() };
        Compare {
            result: result.into(),
            target: target.into(),
            key,
            range_end,
            target_union: Some(union),
        }
    }

    /// What a watcher of this client wants.
    pub fn watch_spec(&mut self) -> WatchSpec {
        let (key, range_end) = match self.rng.below(4) {
            0 => (self.key(), Bytes::new()),
            1 => (Bytes::from_static(b"a/"), Bytes::from_static(b"a0")),
            2 => (Bytes::from_static(b"a/03"), Bytes::from_static(b"b/05")),
            _ => (Bytes::from_static(&[0]), Bytes::from_static(&[0])),
        };
        WatchSpec {
            key,
            range_end,
            prev_kv: self.rng.coin(),
            no_put: self.rng.below(8) == 0,
            no_delete: self.rng.below(8) == 0,
        }
    }

    /// Where a fresh watcher starts: the present, the past, or (rarely) the future.
    pub fn watch_start(&mut self, oracle: &Oracle) -> Option<i64> {
        match self.rng.below(4) {
            0 | 1 => None,
            _ => Some(self.revision(oracle).max(1)),
        }
    }
}

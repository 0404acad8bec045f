//! What is asked for.

use bytes::Bytes;
use clap::ValueEnum;
use prost::Message;
use ringbolt_proto::etcdserverpb::{
    Compare, PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse, compare, request_op,
    response_op,
};

use crate::wire::head;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Puts on a fixed set of keys.
    Put,
    /// Linearizable gets of single keys.
    Get,
    /// Creates as Kubernetes does: compare the mod revision with 0, put, else get.
    Create,
    /// Updates as Kubernetes does: compare the mod revision with the one known, put, else get.
    Update,
}

/// What a caller of updates holds: a key of its own, and its mod revision as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Number of the key.
    pub slot: u64,
    /// Its mod revision; 0 when it was never seen.
    pub revision: i64,
}

impl Held {
    /// Learns from the answer to an update; false when another revision was there.
    pub fn learn(&mut self, answer: &[u8]) -> bool {
        let Ok(answer) = TxnResponse::decode(answer) else { return false };
        if answer.succeeded {
            self.revision = answer.header.map_or(0, |header| header.revision);
            return true;
        }
        let first = answer.responses.into_iter().next().and_then(|one| one.response);
        if let Some(response_op::Response::ResponseRange(range)) = first {
            self.revision = range.kvs.first().map_or(0, |kv| kv.mod_revision);
        }
        false
    }
}

/// Keys that puts and gets go round in.
const KEYS: u64 = 10_000;
/// Keys of one list.
pub const LIST_KEYS: i64 = 10_000;

/// The 48-byte key of a number.
pub fn key(number: u64) -> String {
    format!("/registry/leases/kube-node-lease/node-{number:010}")
}

impl Workload {
    /// The method's path as a header block.
    pub fn head(self) -> Vec<u8> {
        head(match self {
            Workload::Put => "/etcdserverpb.KV/Put",
            Workload::Get => "/etcdserverpb.KV/Range",
            Workload::Create | Workload::Update => "/etcdserverpb.KV/Txn",
        })
    }

    /// The request with this number, encoded. An update is of `held`'s key.
    pub fn request(self, number: u64, held: Held, value: &Bytes) -> Vec<u8> {
        match self {
            Workload::Put => put(key(number % KEYS), value).encode_to_vec(),
            Workload::Get => {
                let key = Bytes::from(key(number % KEYS));
                RangeRequest { key, ..RangeRequest::default() }.encode_to_vec()
            }
            Workload::Create => guarded(format!("/create/{number}"), 0, value).encode_to_vec(),
            Workload::Update => guarded(key(held.slot), held.revision, value).encode_to_vec(),
        }
    }
}

/// A put.
pub fn put(key: String, value: &Bytes) -> PutRequest {
    PutRequest { key: Bytes::from(key), value: value.clone(), ..PutRequest::default() }
}

/// Puts when the key's mod revision is still the one that is known, gets otherwise.
pub fn guarded(key: String, revision: i64, value: &Bytes) -> TxnRequest {
    let compare = Compare {
        result: compare::CompareResult::Equal.into(),
        target: compare::CompareTarget::Mod.into(),
        key: Bytes::from(key.clone()),
        target_union: Some(compare::TargetUnion::ModRevision(revision)),
        ..Compare::default()
    };
    let range = RangeRequest { key: Bytes::from(key.clone()), ..RangeRequest::default() };
    let op = |request| vec![RequestOp { request: Some(request) }];
    TxnRequest {
        compare: vec![compare],
        success: op(request_op::Request::RequestPut(put(key, value))),
        failure: op(request_op::Request::RequestRange(range)),
    }
}

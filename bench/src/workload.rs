//! What is asked for.

use bytes::Bytes;
use clap::ValueEnum;
use prost::Message;
use ringbolt_proto::etcdserverpb::{
    Compare, PutRequest, RangeRequest, RequestOp, TxnRequest, compare, request_op,
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
    /// Lists of the first 10 000 keys of the large store.
    List,
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
            Workload::Get | Workload::List => "/etcdserverpb.KV/Range",
            Workload::Create => "/etcdserverpb.KV/Txn",
        })
    }

    /// The request with this number, encoded.
    pub fn request(self, number: u64, value: &Bytes) -> Vec<u8> {
        match self {
            Workload::Put => put(key(number % KEYS), value).encode_to_vec(),
            Workload::Get => {
                let key = Bytes::from(key(number % KEYS));
                RangeRequest { key, ..RangeRequest::default() }.encode_to_vec()
            }
            Workload::Create => create(format!("/create/{number}"), value).encode_to_vec(),
            Workload::List => RangeRequest {
                key: Bytes::from_static(b"/large/"),
                range_end: Bytes::from_static(b"/large0"),
                limit: LIST_KEYS,
                ..RangeRequest::default()
            }
            .encode_to_vec(),
        }
    }
}

/// A put.
pub fn put(key: String, value: &Bytes) -> PutRequest {
    PutRequest { key: Bytes::from(key), value: value.clone(), ..PutRequest::default() }
}

fn create(key: String, value: &Bytes) -> TxnRequest {
    let compare = Compare {
        result: compare::CompareResult::Equal.into(),
        target: compare::CompareTarget::Mod.into(),
        key: Bytes::from(key.clone()),
        target_union: Some(compare::TargetUnion::ModRevision(0)),
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

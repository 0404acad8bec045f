//! Requests of few keys, few revisions and few leases, so that they meet each other.

use prost::Message;
use ringbolt_proto::etcdserverpb as pb;
use ringbolt_proto::etcdserverpb::compare::TargetUnion;
use ringbolt_proto::etcdserverpb::request_op::Request;
use ringbolt_proto::etcdserverpb::watch_request::RequestUnion;

use crate::script::{Script, put_long_piece};

const KEYS: [&[u8]; 8] = [b"a", b"aa", b"ab", b"b", b"b\0", b"c", b"\xff", b""];
const ENDS: [&[u8]; 8] = [b"", b"", b"", b"\0", b"b", b"ac", b"c", b"a"];

fn key(script: &mut Script<'_>) -> bytes::Bytes {
    bytes::Bytes::from_static(KEYS[usize::from(script.byte()) % KEYS.len()])
}

fn end(script: &mut Script<'_>) -> bytes::Bytes {
    bytes::Bytes::from_static(ENDS[usize::from(script.byte()) % ENDS.len()])
}

/// Mostly none, else a small one or one just below zero.
fn revision(script: &mut Script<'_>) -> i64 {
    match script.byte() {
        0..128 => 0,
        byte => i64::from(byte) - 130,
    }
}

fn lease(script: &mut Script<'_>) -> i64 {
    i64::from(script.byte() % 4)
}

fn put(script: &mut Script<'_>) -> pb::PutRequest {
    let flags = script.byte();
    let key = key(script);
    let size =
        if flags & 64 == 0 { usize::from(script.byte()) } else { usize::from(script.short()) };
    let value = vec![b'v'; if flags & 2 == 0 { size % 20_000 } else { 0 }].into();
    pb::PutRequest {
        key,
        value,
        lease: if flags & 1 == 0 { 0 } else { lease(script) },
        prev_kv: flags & 4 != 0,
        ignore_value: flags & 2 != 0,
        ignore_lease: flags & 8 != 0,
    }
}

fn range(script: &mut Script<'_>) -> pb::RangeRequest {
    let flags = script.byte();
    let mut range = pb::RangeRequest {
        key: key(script),
        range_end: end(script),
        serializable: flags & 1 != 0,
        keys_only: flags & 2 != 0,
        count_only: flags & 4 != 0,
        revision: revision(script),
        ..pb::RangeRequest::default()
    };
    if flags & 8 != 0 {
        range.limit = i64::from(script.byte() % 6) - 1;
    }
    if flags & 16 != 0 {
        range.sort_order = i32::from(script.byte() % 4);
        range.sort_target = i32::from(script.byte() % 6);
    }
    if flags & 32 != 0 {
        range.min_mod_revision = revision(script);
        range.max_mod_revision = revision(script);
        range.min_create_revision = revision(script);
        range.max_create_revision = revision(script);
    }
    range
}

fn delete(script: &mut Script<'_>) -> pb::DeleteRangeRequest {
    let (key, range_end) = (key(script), end(script));
    pb::DeleteRangeRequest { key, range_end, prev_kv: script.byte() & 1 != 0 }
}

fn compare(script: &mut Script<'_>) -> pb::Compare {
    let number = i64::from(script.byte() % 8);
    let union = match script.byte() % 6 {
        0 => TargetUnion::Version(number),
        1 => TargetUnion::CreateRevision(number),
        2 => TargetUnion::ModRevision(number),
        3 => TargetUnion::Value(vec![b'v'; usize::from(script.byte() % 4)].into()),
        _ => TargetUnion::Lease(number),
    };
    pb::Compare {
        result: i32::from(script.byte() % 5),
        target: i32::from(script.byte() % 6),
        key: key(script),
        range_end: end(script),
        target_union: Some(union),
    }
}

fn txn_of(script: &mut Script<'_>, depth: usize) -> pb::TxnRequest {
    let counts = script.byte();
    let mut ops = |count: u8| {
        let ops = (0..count).map(|_| {
            let request = match script.byte() % 5 {
                0 => Request::RequestRange(range(script)),
                1 | 2 => Request::RequestPut(put(script)),
                3 => Request::RequestDeleteRange(delete(script)),
                _ if depth < 4 => Request::RequestTxn(txn_of(script, depth + 1)),
                _ => return pb::RequestOp::default(),
            };
            pb::RequestOp { request: Some(request) }
        });
        ops.collect::<Vec<_>>()
    };
    let (success, failure) = (ops(counts & 3), ops(counts >> 2 & 3));
    let compare = (0..counts >> 4 & 3).map(|_| compare(script)).collect();
    pb::TxnRequest { compare, success, failure }
}

/// The path and the message of a unary call.
pub fn unary(what: u8, script: &mut Script<'_>) -> (&'static str, Vec<u8>) {
    match what {
        7 | 8 => ("/etcdserverpb.KV/Put", put(script).encode_to_vec()),
        9 => ("/etcdserverpb.KV/Range", range(script).encode_to_vec()),
        10 => ("/etcdserverpb.KV/DeleteRange", delete(script).encode_to_vec()),
        11 | 12 => ("/etcdserverpb.KV/Txn", txn_of(script, 0).encode_to_vec()),
        13 => {
            let (revision, physical) = (i64::from(script.byte() % 40), script.byte() & 1 != 0);
            let request = pb::CompactionRequest { revision, physical };
            ("/etcdserverpb.KV/Compact", request.encode_to_vec())
        }
        14 => leases(script),
        _ => other(script),
    }
}

fn leases(script: &mut Script<'_>) -> (&'static str, Vec<u8>) {
    let what = script.byte();
    let id = lease(script);
    match what % 4 {
        0 | 1 => {
            let ttl = i64::from(script.byte()) - 2;
            ("/etcdserverpb.Lease/LeaseGrant", pb::LeaseGrantRequest { ttl, id }.encode_to_vec())
        }
        2 => ("/etcdserverpb.Lease/LeaseRevoke", pb::LeaseRevokeRequest { id }.encode_to_vec()),
        _ => {
            let request = pb::LeaseTimeToLiveRequest { id, keys: what & 4 != 0 };
            ("/etcdserverpb.Lease/LeaseTimeToLive", request.encode_to_vec())
        }
    }
}

fn other(script: &mut Script<'_>) -> (&'static str, Vec<u8>) {
    match script.byte() % 5 {
        0 => ("/etcdserverpb.KV/RangeStream", range(script).encode_to_vec()),
        1 => {
            let revision = revision(script);
            let request = pb::HashKvRequest { revision };
            ("/etcdserverpb.Maintenance/HashKV", request.encode_to_vec())
        }
        2 => ("/etcdserverpb.Maintenance/Status", vec![]),
        3 => {
            let (action, alarm) = (i32::from(script.byte() % 4), i32::from(script.byte() % 4));
            let request = pb::AlarmRequest { action, member_id: 0, alarm };
            ("/etcdserverpb.Maintenance/Alarm", request.encode_to_vec())
        }
        _ => ("/etcdserverpb.Lease/LeaseLeases", vec![]),
    }
}

/// A message for a watch stream.
pub fn watch(script: &mut Script<'_>) -> Vec<u8> {
    let flags = script.byte();
    let union = match flags % 8 {
        6 => RequestUnion::CancelRequest(pb::WatchCancelRequest {
            watch_id: i64::from(script.byte() % 4),
        }),
        7 => RequestUnion::ProgressRequest(pb::WatchProgressRequest {}),
        _ => RequestUnion::CreateRequest(pb::WatchCreateRequest {
            key: key(script),
            range_end: end(script),
            start_revision: revision(script),
            progress_notify: flags & 8 != 0,
            filters: if flags & 16 == 0 { vec![] } else { vec![i32::from(script.byte() % 3)] },
            prev_kv: flags & 32 != 0,
            watch_id: if flags & 64 == 0 { 0 } else { i64::from(script.byte() % 4) },
            fragment: flags & 128 != 0,
        }),
    };
    pb::WatchRequest { request_union: Some(union) }.encode_to_vec()
}

/// A message for a stream of keep-alives.
pub fn keep_alive(script: &mut Script<'_>) -> Vec<u8> {
    pb::LeaseKeepAliveRequest { id: lease(script) }.encode_to_vec()
}

/// A transaction as Kubernetes makes it, at `revision`.
#[must_use]
pub fn txn(revision: i64) -> pb::TxnRequest {
    let compare = pb::Compare {
        target: 2,
        key: "a".into(),
        target_union: Some(TargetUnion::ModRevision(revision)),
        ..pb::Compare::default()
    };
    let put = pb::PutRequest { key: "a".into(), value: "1".into(), ..pb::PutRequest::default() };
    let get = pb::RangeRequest { key: "a".into(), ..pb::RangeRequest::default() };
    let op = |request| vec![pb::RequestOp { request: Some(request) }];
    pb::TxnRequest {
        compare: vec![compare],
        success: op(Request::RequestPut(put)),
        failure: op(Request::RequestRange(get)),
    }
}

/// A transaction in `levels` others.
#[must_use]
pub fn nested(levels: usize) -> pb::TxnRequest {
    (0..levels).fold(txn(0), |inner, _| pb::TxnRequest {
        success: vec![pb::RequestOp { request: Some(Request::RequestTxn(inner)) }],
        ..pb::TxnRequest::default()
    })
}

/// Sessions: puts and reads, transactions, watches, leases that expire, compaction; steps by
/// structure and steps by the bytes of real messages.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let raw = |method: u8, message: &[u8]| {
        let mut step = vec![0, method];
        put_long_piece(&mut step, message);
        step
    };
    let puts = [[7, 4, 0, 9], [7, 0, 1, 3], [8, 0, 2, 200], [7, 0, 3, 1]].concat();
    let reads = [9, 0, 0, 3, 0, 9, 24, 7, 0, 0, 2, 1, 1, 15, 0, 1, 0, 0, 0].to_vec();
    let deletes = [10, 0, 0, 1, 10, 1, 4, 0].to_vec();
    let watches = [4, 8, 0, 3, 0, 5, 0x60, 1, 3, 132, 2, 4, 7, 4, 6, 0].to_vec();
    let grants = [14, 0, 1, 5, 14, 0, 2, 30, 7, 1, 0, 4, 1, 7, 1, 3, 4, 2, 6, 1].to_vec();
    let looks = [14, 7, 1, 2, 0x13, 0x88, 14, 2, 2, 15, 4, 14, 3, 1].to_vec();
    let txns = [11, 0x15, 1, 0, 4, 9, 3, 0, 0, 0, 2, 2, 0, 0, 12, 5, 4, 1, 1, 0, 5, 9, 0].to_vec();
    let compact = [13, 3, 1, 15, 1, 0, 15, 2, 9, 0, 0, 3, 132, 13, 90, 0].to_vec();
    let messages = [
        raw(4, &txn(0).encode_to_vec()),
        raw(4, &nested(60).encode_to_vec()),
        raw(2, b"\x0a\x01k\x12\x01v\x1d\x01\x02\x03\x04"),
        raw(0, b"\x0a\x01a\x12\x01\x00"),
        raw(6, b"\x0a\x06\x0a\x01a\x12\x01\x00"),
    ]
    .concat();
    let sessions = [
        [&puts[..], &reads, &deletes, &reads].concat(),
        [&watches[..], &puts, &deletes, &compact, &watches].concat(),
        [&grants[..], &looks, &[2, 0x17, 0x70], &looks].concat(),
        [&txns[..], &puts, &txns, &compact].concat(),
        messages,
        [&puts[..], &[3, 9, 0, 0, 0, 6, 0, 0, 0, 0, 0], &reads].concat(),
    ];
    let modes = [0_u8, 2, 3];
    let seeds = sessions
        .iter()
        .enumerate()
        .map(|(index, session)| [&[modes[index % modes.len()]][..], session].concat());
    seeds.collect()
}

/// Steps, and bytes of messages.
#[must_use]
pub fn words() -> Vec<Vec<u8>> {
    let mut words = crate::messages::words();
    words.extend([vec![7, 0, 0, 1], vec![4, 0, 0, 3, 0], vec![14, 0, 1, 5], vec![13, 5, 1]]);
    words
}

//! A checkpoint of the rest comes back as it was; its bytes are fixed; broken ones are refused.

use ringbolt_proto::etcdserverpb::{AlarmRequest, PutRequest};

use super::*;
use crate::mvcc::{ExportCursor, Importer};
use crate::state::tests::golden::Store;
use crate::state::{Command, Member};

fn store() -> Store {
    let mut store = Store::new();
    for request in ["grant 7 100", "grant -3 5", "put a 1 lease=7", "put b 1", "put c 1 lease=-3"] {
        store.play(request);
    }
    let member = Member {
        id: MemberId(5),
        raft_id: 6,
        name: "one".to_owned(),
        peer_urls: vec!["p".to_owned()],
        client_urls: vec!["c".to_owned()],
        is_learner: false,
    };
    let alarm = AlarmRequest { action: 1, member_id: 5, alarm: 1 };
    for command in [
        Command::first_member(member),
        Command::ClusterVersion("3.7.0".to_owned()),
        Command::Alarm(alarm),
    ] {
        store.apply(&command).expect("records are never refused");
    }
    store
}

fn copy_of(mvcc: &Mvcc) -> Mvcc {
    let mut cursor = ExportCursor::new(mvcc);
    let mut importer = Importer::new();
    while let Some(chunk) = mvcc.export(&mut cursor, 64) {
        importer.feed(&chunk).expect("what was exported is imported");
    }
    importer.finish().expect("the stream is whole")
}

fn import(store: &Store, bytes: &[u8]) -> Result<State, String> {
    State::import_rest(StateConfig::default(), copy_of(&store.state.mvcc), bytes)
}

/// Everything comes back, the keys on their leases too, and both go on alike.
#[test]
fn a_state_comes_back() {
    let mut store = store();
    let bytes = store.state.export_rest();
    let mut other = import(&store, &bytes).expect("the bytes are whole");
    other.check();
    assert_eq!(other.export_rest(), bytes);
    assert_eq!(other.leases, store.state.leases);
    assert_eq!(other.alarms, store.state.alarms);
    assert_eq!(other.members, store.state.members);
    assert_eq!(other.applied(), RaftIndex(8));
    let command = Command::DeleteRange(ringbolt_proto::etcdserverpb::DeleteRangeRequest {
        key: "a".into(),
        ..Default::default()
    });
    let reply = other.apply(RaftIndex(9), Term(1), &command);
    assert_eq!(reply, store.apply(&command));
    assert_eq!(other.rolling(), store.state.rolling());
}

/// The golden bytes, the rolling hash left out.
#[test]
fn the_rest_has_these_bytes() {
    let bytes = store().state.export_rest();
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    assert_eq!(hex(&bytes[..20]), "0100000008000000000000000100000000000000");
    let expected = "05000000 332e372e30 \
        02000000 fdffffffffffffff 0500000000000000 0700000000000000 6400000000000000 \
        01000000 01000000 0500000000000000 \
        01000000 0500000000000000 0600000000000000 03000000 6f6e65 01000000 01000000 70 \
        01000000 01000000 63 00 \
        00000000";
    assert_eq!(hex(&bytes[28..]), expected.replace(' ', ""));
}

/// Cut anywhere, or with a byte too many, it is refused.
#[test]
fn a_cut_rest_is_refused() {
    let store = store();
    let mut bytes = store.state.export_rest();
    for size in 0..bytes.len() {
        assert!(import(&store, &bytes[..size]).is_err(), "cut to {size}");
    }
    bytes.push(0);
    assert_eq!(import(&store, &bytes).err(), Some("1 bytes left".to_owned()));
    bytes.pop();
    bytes[0] = 2;
    let error = import(&store, &bytes).err();
    assert_eq!(error, Some("state format 2, this build reads 1".to_owned()));
}

/// A key whose lease is missing means that keys and rest are not of one checkpoint.
#[test]
fn a_missing_lease_is_refused() {
    let mut store = Store::new();
    let bytes = store.state.export_rest();
    store.play("grant 7 100");
    let put = PutRequest { key: "a".into(), lease: 7, ..PutRequest::default() };
    store.apply(&Command::Put(put)).expect("the lease exists");
    let error = import(&store, &bytes).err();
    assert_eq!(error, Some("key b\"a\" names lease 7, which is missing".to_owned()));
}

/// No flipped bit makes the reader panic.
#[test]
fn a_damaged_rest_never_panics() {
    let store = store();
    let bytes = store.state.export_rest();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let _ = import(&store, &damaged);
    }
}

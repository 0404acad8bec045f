//! Each kind of command comes back from its bytes; the bytes are fixed; garbage is refused.

use proptest::prelude::*;
use ringbolt_proto::etcdserverpb::{
    AlarmRequest, CompactionRequest, DeleteRangeRequest, LeaseGrantRequest, LeaseRevokeRequest,
    PutRequest, TxnRequest,
};

use super::*;

fn examples() -> Vec<(Command, &'static str)> {
    let member = Member {
        id: MemberId(0x8e9e_05c5_2164_694d),
        raft_id: 1,
        name: "m".to_owned(),
        peer_urls: vec!["u".to_owned()],
        client_urls: vec![],
        is_learner: true,
    };
    let mut members = Members::of([member]);
    members.mark_removed(MemberId(9));
    vec![
        (Command::Nothing, "01000000"),
        (
            Command::Put(PutRequest { key: "k".into(), value: "v".into(), ..Default::default() }),
            "01010000 0a016b 120176",
        ),
        (
            Command::DeleteRange(DeleteRangeRequest { key: "k".into(), ..Default::default() }),
            "01020000 0a016b",
        ),
        (Command::Txn(TxnRequest::default()), "01030000"),
        (Command::Compact(CompactionRequest { revision: 5, physical: true }), "01040000 0805 1001"),
        (Command::LeaseGrant(LeaseGrantRequest { ttl: 60, id: 7 }), "01050000 083c 1007"),
        (Command::LeaseRevoke(LeaseRevokeRequest { id: 7 }), "01060000 0807"),
        (
            Command::Alarm(AlarmRequest { action: 1, member_id: 2, alarm: 1 }),
            "01070000 0801 1002 1801",
        ),
        (
            Command::Fence { revision: Revision(300), compacted: Revision(-1) },
            "01080000 2c01000000000000 ffffffffffffffff",
        ),
        (
            Command::MemberAttributes {
                member: MemberId(3),
                name: "n".to_owned(),
                client_urls: vec!["c".to_owned()],
            },
            "01090000 0300000000000000 01000000 6e 01000000 01000000 63",
        ),
        (
            Command::Membership(members),
            "010a0000 01000000 4d696421c5059e8e 0100000000000000 01000000 6d 01000000 01000000 75 \
             00000000 01 01000000 0900000000000000",
        ),
        (Command::ClusterVersion("3.7.0".to_owned()), "010b0000 05000000 332e372e30"),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The golden bytes: a change here is a change of the format and needs a new version number.
#[test]
fn commands_have_these_bytes() {
    for (command, expected) in examples() {
        let bytes = command.encode();
        assert_eq!(hex(&bytes), expected.replace(' ', ""), "{command:?}");
        assert_eq!(Command::decode(bytes).as_ref(), Ok(&command));
    }
}

/// Every command cut short anywhere, or with a byte too many, is refused or is another valid
/// protobuf message; our own kinds always refuse.
#[test]
fn a_cut_command_is_refused() {
    assert_eq!(Command::decode(Bytes::new()), Ok(Command::Nothing));
    for (command, _) in examples() {
        let bytes = command.encode();
        for size in 1..bytes.len() {
            let cut = Command::decode(bytes.slice(..size));
            assert_ne!(cut, Ok(command.clone()), "{size} of {} bytes", bytes.len());
            if size < COMMAND_HEADER_SIZE || bytes[1] >= Kind::Fence as u8 {
                assert!(cut.is_err(), "{command:?} cut to {size}");
            }
        }
        if bytes[1] >= Kind::Fence as u8 || bytes[1] == 0 {
            let mut longer = BytesMut::from(&bytes[..]);
            longer.put_u8(0);
            assert!(Command::decode(longer.freeze()).is_err(), "{command:?} with a byte more");
        }
    }
}

/// Unknown version, kind and flags are named.
#[test]
fn an_unknown_header_is_refused() {
    for (bytes, text) in [
        ([2, 1, 0, 0], "command format 2, this build reads 1"),
        ([1, 12, 0, 0], "command kind 12 is unknown"),
        ([1, 1, 1, 0], "command flags 0x0001 are unknown"),
    ] {
        assert_eq!(Command::decode(Bytes::copy_from_slice(&bytes)), Err(text.to_owned()));
    }
}

/// A count larger than the bytes behind it does not allocate.
#[test]
fn a_wrong_count_is_refused() {
    let bytes = [1, 10, 0, 0, 0xff, 0xff, 0xff, 0xff];
    let error = Command::decode(Bytes::copy_from_slice(&bytes)).expect_err("no members follow");
    assert_eq!(error, "command Membership: count 4294967295 does not fit 0 bytes");
}

proptest! {
    /// No bytes make the decoder panic, and what it accepts it also writes.
    #[test]
    fn garbage_never_panics(kind in 0_u8..14, body in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut bytes = BytesMut::new();
        bytes.put_slice(&[COMMAND_FORMAT_VERSION, kind, 0, 0]);
        bytes.put_slice(&body);
        if let Ok(command) = Command::decode(bytes.freeze()) {
            prop_assert_eq!(Command::decode(command.encode()), Ok(command));
        }
        let _ = Command::decode(Bytes::from(body));
    }
}

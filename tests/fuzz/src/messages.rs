//! Every request message of the contract, from bytes.
//!
//! ```text
//! input: | which message (1) | bytes …
//! ```
//!
//! - M1 Bytes are a message or are refused with one of the texts a client may see.
//! - M2 A message, encoded again, decodes to itself.
//! - M3 Fields nobody knows, behind a message, change nothing.
//! - M4 Bytes are a command of the log, which encoded again decodes to itself, or are refused.

use std::fmt::Debug;

use bytes::Bytes;
use prost::Message;
use ringbolt_engine::state::{Command, Limits, validate};
use ringbolt_proto::etcdserverpb as pb;
use ringbolt_proto::health::HealthCheckRequest;
use ringbolt_proto::method::Mode;
use ringbolt_proto::schema::Described;
use ringbolt_server::grpc::unmarshal;

/// What a refusal may say behind its common beginning.
const TEXTS: [&str; 3] = [
    "proto: cannot parse invalid wire-format data",
    "proto: exceeded maximum recursion depth",
    "string field contains invalid UTF-8",
];

macro_rules! kinds {
    ($($number:literal $type:ty),* $(,)?) => {
        fn decode(which: u8, bytes: &Bytes) {
            match which {
                $($number => drop(check::<$type>(bytes)),)*
                KINDS => txn(bytes),
                _ => command(bytes),
            }
        }

        /// How many kinds there are besides `Txn` and commands.
        const KINDS: u8 = 27;
        const _: () = assert!([$($number),*].len() == KINDS as usize);
    };
}

kinds! {
    0 pb::RangeRequest, 1 pb::PutRequest, 2 pb::DeleteRangeRequest, 3 pb::CompactionRequest,
    4 pb::WatchRequest, 5 pb::LeaseGrantRequest, 6 pb::LeaseRevokeRequest,
    7 pb::LeaseKeepAliveRequest, 8 pb::LeaseTimeToLiveRequest, 9 pb::LeaseLeasesRequest,
    10 pb::MemberAddRequest, 11 pb::MemberRemoveRequest, 12 pb::MemberUpdateRequest,
    13 pb::MemberListRequest, 14 pb::MemberPromoteRequest, 15 pb::AlarmRequest,
    16 pb::StatusRequest, 17 pb::DefragmentRequest, 18 pb::HashRequest, 19 pb::HashKvRequest,
    20 pb::SnapshotRequest, 21 pb::MoveLeaderRequest, 22 pb::DowngradeRequest,
    23 pb::AuthUserAddRequest, 24 pb::AuthenticateRequest,
    25 pb::AuthRoleGrantPermissionRequest, 26 HealthCheckRequest,
}

/// Takes one input.
pub fn run(input: &[u8]) {
    let Some((which, bytes)) = input.split_first() else { return };
    decode(which % (KINDS + 2), &Bytes::copy_from_slice(bytes));
}

fn txn(bytes: &Bytes) {
    if let Some(txn) = check::<pb::TxnRequest>(bytes) {
        let limits = Limits::default();
        let verdict = validate::txn(&txn, &limits);
        if verdict.is_ok() {
            let _ = validate::size(&txn, &limits);
            let _ = (validate::is_read_only(&txn), validate::is_serializable(&txn));
        }
    }
}

/// M4.
fn command(bytes: &Bytes) {
    if let Ok(command) = Command::decode(bytes.clone()) {
        assert_eq!(Command::decode(command.encode()), Ok(command), "M4");
    }
}

fn check<M>(bytes: &Bytes) -> Option<M>
where
    M: Message + Described + Default + PartialEq + Debug,
{
    let message = match unmarshal::<M>(bytes.clone(), Mode::Unary) {
        Ok(message) => message,
        Err(status) => {
            let text = status.message.strip_prefix("grpc: error unmarshalling request: ");
            assert!(text.is_some_and(|text| TEXTS.contains(&text)), "M1: {status}");
            return None;
        }
    };
    let encoded = message.encode_to_vec();
    let again = unmarshal::<M>(Bytes::from(encoded.clone()), Mode::Unary);
    assert_eq!(again.as_ref(), Ok(&message), "M2");
    // A field of every wire type, with a number that no message has.
    let mut more = encoded;
    for tag in [0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd_u8] {
        more.extend([tag, 0x7f]);
        match tag & 7 {
            1 => more.extend([0xff; 8]),
            2 => more.extend([1, 0xff]),
            5 => more.extend([0xff; 4]),
            0 => more.push(1),
            _ => {}
        }
    }
    assert_eq!(unmarshal::<M>(Bytes::from(more), Mode::Unary).as_ref(), Ok(&message), "M3");
    Some(message)
}

/// A request of every kind, a nested transaction, wrong wire types, groups.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = vec![];
    let mut seed = |which: u8, bytes: &[u8]| seeds.push([&[which], bytes].concat());
    for which in 0..KINDS {
        // Numbers, bytes and messages in the fields that most messages have.
        seed(which, b"\x08\x01\x10\x02\x18\x03");
        seed(which, b"\x0a\x01k\x12\x01v\x18\x07");
        seed(which, b"\x0a\x05\x0a\x01k\x18\x01");
    }
    seed(KINDS, &crate::requests::samples::txn(0).encode_to_vec());
    seed(KINDS, &crate::requests::samples::nested(40).encode_to_vec());
    seed(KINDS, &crate::requests::samples::nested(140).encode_to_vec());
    seed(1, b"\x08\x01\x0a\x01k\x0b\x0b\x08\x01\x0c\x0c\x15\x01\x02\x03\x04");
    for kind in 0..12 {
        seed(KINDS + 1, &[&[1, kind, 0, 0], &b"\x0a\x01k\x12\x01v\x18\x07"[..]].concat());
    }
    seed(KINDS + 1, &Command::Txn(crate::requests::samples::txn(3)).encode());
    seed(1, b"\xf8\x7f\x01\x0a\x01k\x1d\x01\x02\x03\x04");
    seeds
}

/// Tags of known fields with every wire type, and long numbers.
#[must_use]
pub fn words() -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> =
        (1..7_u8).flat_map(|field| (0..6_u8).map(move |wire| vec![field << 3 | wire])).collect();
    words.push(vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    words.push(vec![0x0b, 0x0b, 0x0c, 0x0c]);
    words
}

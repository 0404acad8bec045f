//! Sifting, by example.

use prost::Message;

use super::*;
use crate::etcdserverpb::{PutRequest, RequestOp, TxnRequest, request_op::Request};
use crate::schema::Described;

fn put(bytes: &[u8]) -> Result<PutRequest, Fault> {
    let sifted = sift(Bytes::copy_from_slice(bytes), PutRequest::SCHEMA, 100)?;
    Ok(PutRequest::decode(sifted).expect("what was sifted decodes"))
}

/// Transactions in each other, `levels` of them.
fn nested(levels: usize) -> Bytes {
    let mut bytes = vec![];
    for _ in 1..levels {
        for tag in [0x22, 0x12] {
            let mut outer = vec![tag];
            prost::encoding::encode_varint(bytes.len() as u64, &mut outer);
            outer.append(&mut bytes);
            bytes = outer;
        }
    }
    bytes.into()
}

/// How deep a decoded transaction is, without recursion.
fn levels(txn: &TxnRequest) -> usize {
    let (mut count, mut at) = (1, txn);
    while let Some(RequestOp { request: Some(Request::RequestTxn(inner)) }) = at.success.first() {
        count += 1;
        at = inner;
    }
    count
}

/// A sound request is passed on as the same memory.
#[test]
fn sound_bytes_are_not_copied() {
    let bytes = Bytes::from_static(b"\x0a\x01k\x12\x01v\x18\x07\xf8\x7f\x01");
    let sifted = sift(bytes.clone(), PutRequest::SCHEMA, 100).expect("sound");
    assert_eq!(sifted.as_ptr(), bytes.as_ptr());
}

/// A known field of a wrong wire type was `Internal`; etcd takes it for an unknown one.
#[test]
fn wrong_wire_type_is_unknown() {
    let key = PutRequest { key: "k".into(), ..PutRequest::default() };
    assert_eq!(put(b"\x08\x01\x0a\x01k"), Ok(key.clone()));
    assert_eq!(put(b"\x0a\x01k\x1d\x01\x02\x03\x04"), Ok(key.clone()));
    assert_eq!(put(b"\x0a\x01k\x19\x01\x02\x03\x04\x05\x06\x07\x08"), Ok(key.clone()));
    assert_eq!(put(b"\x0a\x01k\x1a\x01v"), Ok(key));
    // But it has to be whole.
    assert_eq!(put(b"\x0a\x01k\x1d\x01\x02\x03"), Err(Fault::Invalid));
    assert_eq!(put(b"\x0a\x01k\x1e"), Err(Fault::Invalid));
}

/// A wrong field deep inside changes every length around it.
#[test]
fn lengths_around_a_left_field() {
    let beyond = Bytes::from_static(b"\x12\x07\x12\x06\x0a\x01k\x10\x01");
    assert_eq!(sift(beyond, TxnRequest::SCHEMA, 100), Err(Fault::Invalid));
    let bytes = Bytes::from_static(b"\x12\x07\x12\x05\x0a\x01k\x10\x01");
    let sifted = sift(bytes, TxnRequest::SCHEMA, 100).expect("sound");
    assert_eq!(&sifted[..], b"\x12\x05\x12\x03\x0a\x01k");
}

/// Groups are skipped at any depth that Go skips, closed in order, and never decoded.
#[test]
fn groups() {
    let key = PutRequest { key: "k".into(), ..PutRequest::default() };
    assert_eq!(put(b"\x0b\x08\x01\x1b\x1c\x0c\x0a\x01k"), Ok(key.clone()));
    assert_eq!(put(b"\x0b\x1b\x0c\x1c\x0a\x01k"), Err(Fault::Invalid));
    assert_eq!(put(b"\x0b\x0a\x01k"), Err(Fault::Invalid));
    assert_eq!(put(b"\x0c\x0a\x01k"), Err(Fault::Invalid));
    let deep =
        |count: usize| [vec![0x0b; count], vec![0x0c; count], b"\x0a\x01k".to_vec()].concat();
    assert_eq!(put(&deep(GROUPS_DEEP_MAX)), Ok(key));
    assert_eq!(put(&deep(GROUPS_DEEP_MAX + 1)), Err(Fault::Invalid));
    assert_eq!(put(&vec![0x0b; 2 << 20]), Err(Fault::Invalid));
}

/// Transactions in each other were `Internal` from 50 levels on. Only so many messages as were
/// asked for are decoded; as many as Go takes are taken; more are too deep.
#[test]
fn depth() {
    let sifted = sift(nested(60), TxnRequest::SCHEMA, 1000).expect("not deep");
    assert_eq!(levels(&TxnRequest::decode(sifted).expect("sound")), 60);
    let sifted = sift(nested(60), TxnRequest::SCHEMA, 100).expect("not deep");
    assert_eq!(levels(&TxnRequest::decode(sifted).expect("sound")), 50);
    let sifted = sift(nested(5000), TxnRequest::SCHEMA, 100).expect("9999 messages");
    assert_eq!(levels(&TxnRequest::decode(sifted).expect("sound")), 50);
    assert_eq!(sift(nested(5001), TxnRequest::SCHEMA, 100), Err(Fault::TooDeep));
    assert_eq!(sift(nested(20_000), TxnRequest::SCHEMA, 100), Err(Fault::TooDeep));
}

/// The first fault is told, in the order of the bytes.
#[test]
fn first_fault() {
    let schema = crate::etcdserverpb::MemberAddRequest::SCHEMA;
    let sift = |bytes: &'static [u8]| super::sift(Bytes::from_static(bytes), schema, 100);
    assert_eq!(sift(b"\x0a\x01\xff\x00"), Err(Fault::NotText));
    assert_eq!(sift(b"\x00\x0a\x01\xff"), Err(Fault::Invalid));
    assert_eq!(sift(b"\x80\x80\x80\x80\x10\x00"), Err(Fault::Invalid), "a number of 30 bits");
    assert_eq!(sift(b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), Err(Fault::Invalid));
}

/// Packed numbers, one by one, and broken.
#[test]
fn packed_numbers() {
    let schema = crate::etcdserverpb::WatchCreateRequest::SCHEMA;
    let sift = |bytes: &'static [u8]| super::sift(Bytes::from_static(bytes), schema, 100);
    assert!(sift(b"\x2a\x02\x00\x01\x28\x01").is_ok());
    assert_eq!(sift(b"\x2a\x01\x80\x28\x01"), Err(Fault::Invalid));
    assert_eq!(sift(b"\x2d\x01\x02\x03\x04").as_deref(), Ok(&b""[..]));
}

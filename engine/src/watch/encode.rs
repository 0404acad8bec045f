//! The bytes of watch responses. An event is encoded once and copied into each response.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use ringbolt_proto::etcdserverpb::WatchResponse;
use ringbolt_proto::mvccpb::{Event, KeyValue, event::EventType};

use super::Batch;
use crate::mvcc::Kind;

/// Field number of `WatchResponse.events`.
const EVENTS_FIELD: u32 = 11;

/// One event as a `WatchResponse.events` field.
pub(super) fn event(kind: Kind, kv: KeyValue, prev_kv: Option<KeyValue>) -> Bytes {
    let kind = match kind {
        Kind::Put => EventType::Put,
        Kind::Delete => EventType::Delete,
    };
    let event = Event { r#type: kind.into(), kv: Some(kv), prev_kv };
    let mut out = BytesMut::with_capacity(event.encoded_len() + 12);
    encode_key(EVENTS_FIELD, WireType::LengthDelimited, &mut out);
    encode_varint(event.encoded_len() as u64, &mut out);
    event.encode_raw(&mut out);
    out.freeze()
}

/// A whole `WatchResponse`: the fields of `head` (which holds no events), then the events of
/// `batch` from number `from` up to `to`.
#[must_use]
pub fn response(head: &WatchResponse, batch: &Batch, from: usize, to: usize) -> Bytes {
    assert!(head.events.is_empty(), "events come from the batch");
    assert!(from <= to && to <= batch.ends.len(), "events {from}..{to} of {}", batch.ends.len());
    let offset = |count: usize| if count == 0 { 0 } else { batch.ends[count - 1] as usize };
    let events = &batch.events[offset(from)..offset(to)];
    let mut out = BytesMut::with_capacity(head.encoded_len() + events.len());
    head.encode_raw(&mut out);
    out.put_slice(events);
    out.freeze()
}

//! The bytes of watch responses. An event is encoded once and goes into each response.

use bytes::{Bytes, BytesMut};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
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

impl Batch {
    /// The events from number `from` up to `to` as fields of a `WatchResponse`: with the other
    /// fields before them they are a whole response.
    #[must_use]
    pub fn encoded(&self, from: usize, to: usize) -> Bytes {
        assert!(from <= to && to <= self.ends.len(), "events {from}..{to} of {}", self.ends.len());
        let offset = |count: usize| if count == 0 { 0 } else { self.ends[count - 1] as usize };
        self.events.slice(offset(from)..offset(to))
    }
}

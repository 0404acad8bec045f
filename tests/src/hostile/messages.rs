//! Well-formed calls that ask for too much.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use ringbolt_proto::etcdserverpb::watch_request::RequestUnion;
use ringbolt_proto::etcdserverpb::{PutRequest, WatchCreateRequest, WatchRequest, WatchResponse};

use super::Attack;
use super::server::Server;
use super::wire::{Wire, flag, kind};

const GROWTH_BYTES: u64 = 64 << 20;
/// Watchers asked for on one stream.
const WATCHES: usize = 300_000;
const KEY_BYTES: usize = 1024;

/// The attacks of this file.
#[must_use]
pub fn attacks() -> Vec<Attack> {
    let attack = |name, limit, growth_bytes_max, run| Attack {
        name,
        limit,
        growth_bytes_max,
        fills_budget: name == "many-watches",
        run,
    };
    vec![
        attack("nested-txn", "the decoder's depth, --max-txn-ops", GROWTH_BYTES, nested_txn),
        attack("huge-keys", "--max-request-bytes", GROWTH_BYTES, huge_keys),
        attack("gzip-bomb", "--max-request-bytes, unpacked", GROWTH_BYTES, gzip_bomb),
        attack("many-watches", "--memory-budget", 256 << 20, many_watches),
    ]
}

fn field(number: u8, inner: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut size = inner.len();
    while size >= 128 {
        out.push(u8::try_from(size % 128).unwrap_or(0) | 128);
        size /= 128;
    }
    out.push(u8::try_from(size).unwrap_or(0));
    out.extend(inner);
    out
}

/// Transactions in transactions. Each level is a `success` operation (2) that holds a txn (4).
fn nested_txn(server: &Server) -> Result<String, String> {
    let mut wire = Wire::hello(server)?;
    let mut told = Vec::new();
    for (index, depth) in [10, 40, 100, 1_000, 50_000].into_iter().enumerate() {
        let mut txn = Vec::new();
        for _ in 0..depth {
            txn = field(2, &field(4, &txn));
            if txn.len() > 1 << 20 {
                break;
            }
        }
        let stream = u32::try_from(index).unwrap_or(0) * 2 + 1;
        wire.call(stream, "etcdserverpb.KV/Txn", &[]);
        wire.message(stream, &txn, true);
        let outcome = wire.outcome(stream)?;
        told.push(format!("{depth}: {outcome}"));
        if depth > 100 && outcome.starts_with("0 ") {
            return Err(format!("a txn of {depth} levels was done"));
        }
    }
    Ok(told.join("; "))
}

fn huge_keys(server: &Server) -> Result<String, String> {
    let mut wire = Wire::hello(server)?;
    let mut told = Vec::new();
    // Messages that only announce their size: refused by the announcement alone.
    for (index, megabytes) in [3_u32, 64, 2_000].into_iter().enumerate() {
        let stream = u32::try_from(index).unwrap_or(0) * 2 + 1;
        wire.call(stream, "etcdserverpb.KV/Put", &[]);
        let prefix = [&[0][..], &(megabytes << 20).to_be_bytes()].concat();
        wire.frame(kind::DATA, 0, stream, &prefix);
        let outcome = wire.outcome(stream)?;
        if !outcome.starts_with("8 ") {
            return Err(format!("{megabytes} MiB were announced: {outcome}"));
        }
    }
    for (index, bytes) in [1_400_000, 1_600_000].into_iter().enumerate() {
        let mut wire = Wire::hello(server)?;
        let put = PutRequest { key: vec![7; bytes].into(), ..PutRequest::default() };
        wire.call(1, "etcdserverpb.KV/Put", &[]);
        send_paced(&mut wire, 1, false, &put.encode_to_vec())?;
        let outcome = wire.outcome(1)?;
        if index == 1 && outcome.starts_with("0 ") {
            return Err("a key above the limit was put".to_owned());
        }
        told.push(format!("{bytes}: {outcome}"));
    }
    Ok(told.join("; "))
}

/// Sends a message as its windows open.
fn send_paced(wire: &mut Wire, stream: u32, packed: bool, message: &[u8]) -> Result<(), String> {
    let size = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    let all = [&[u8::from(packed)][..], &size, message].concat();
    let (mut sent, mut window) = (0, 65_535_usize);
    while sent < all.len() {
        let next = (all.len() - sent).min(window).min(16_384);
        if next > 0 {
            let end = sent + next == all.len();
            let flags = if end { flag::END_STREAM } else { 0 };
            wire.frame(kind::DATA, flags, stream, &all[sent..sent + next]);
            wire.flush()?;
            sent += next;
            window -= next;
            continue;
        }
        let frame = wire.next(Duration::from_secs(5)).map_err(|end| format!("{end:?}"))?;
        if frame.kind == kind::WINDOW_UPDATE && frame.stream == stream {
            window += usize::try_from(frame.number(0)).unwrap_or(0);
        }
        if frame.kind == kind::RST_STREAM || frame.kind == kind::GOAWAY {
            return Err(format!("{frame:?}"));
        }
    }
    Ok(())
}

/// A small message that would unpack to a gigabyte.
fn gzip_bomb(server: &Server) -> Result<String, String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![0; 1 << 20];
    for _ in 0..1024 {
        encoder.write_all(&zeros).map_err(|error| error.to_string())?;
    }
    let packed = encoder.finish().map_err(|error| error.to_string())?;
    let mut wire = Wire::hello(server)?;
    wire.call(1, "etcdserverpb.KV/Put", &[("grpc-encoding", b"gzip")]);
    send_paced(&mut wire, 1, true, &packed)?;
    let outcome = wire.outcome(1)?;
    if outcome.starts_with("8 ") {
        Ok(format!("{} bytes for a gigabyte: {outcome}", packed.len()))
    } else {
        Err(format!("a gzip bomb got {outcome:?}"))
    }
}

/// Watchers on one stream until the server has enough.
fn many_watches(server: &Server) -> Result<String, String> {
    let mut wire = Wire::wide(server)?;
    wire.call(1, "etcdserverpb.Watch/Watch", &[]);
    let (mut created, mut payload) = (0, Vec::new());
    let mut asked = 0;
    while asked < WATCHES {
        for _ in 0..20 {
            let mut key = vec![b'w'; KEY_BYTES];
            key.extend(asked.to_be_bytes());
            let create = WatchCreateRequest { key: key.into(), ..WatchCreateRequest::default() };
            let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
            wire.message(1, &request.encode_to_vec(), false);
            asked += 1;
        }
        wire.flush()?;
        while created < asked {
            let frame = wire.next(Duration::from_secs(10)).map_err(|end| format!("{end:?}"))?;
            if frame.kind == kind::DATA && frame.stream == 1 {
                payload.extend(frame.payload);
            } else if frame.stream == 1 && frame.kind != kind::WINDOW_UPDATE && created > 0 {
                return Ok(format!("the stream was ended at {created} watchers"));
            }
            while let Some(message) = take_message(&mut payload) {
                let response = WatchResponse::decode(&message[..]);
                let response = response.map_err(|error| error.to_string())?;
                if response.canceled {
                    let reason = response.cancel_reason;
                    return Ok(format!("refused at {created} watchers: {reason}"));
                }
                created += 1;
            }
        }
    }
    Err(format!("{created} watchers with keys of {KEY_BYTES} bytes on one stream"))
}

fn take_message(payload: &mut Vec<u8>) -> Option<Vec<u8>> {
    let [_, a, b, c, d] = *payload.first_chunk::<5>()?;
    let size = usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?;
    let message = payload.get(5..5 + size)?.to_vec();
    payload.drain(..5 + size);
    Some(message)
}

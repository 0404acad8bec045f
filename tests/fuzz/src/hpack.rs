//! Header blocks of one connection, one after the other, and what a request's head makes of them.
//!
//! ```text
//! input: | size (2) | block | size (2) | block | …
//! ```
//!
//! - P1 Two decoders of the same blocks give the same.
//! - P2 A list within its limit is within its limit, and a list beyond it is not handed out.
//! - P3 What was decoded, encoded again, decodes to the same.
//! - P4 A head that is refused is refused with a block that decodes.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use ringbolt_server::grpc::{Kind, Request, respond};
use ringbolt_server::http2::Head;
use ringbolt_server::http2::hpack::encode::put_field;
use ringbolt_server::http2::hpack::{BlockCache, Decoder};
use ringbolt_server::limits::HEADER_LIST_BYTES_MAX;

use crate::script::{Script, put_long_piece};

type Fields = Vec<(Bytes, Bytes)>;

/// Takes one input.
pub fn run(input: &[u8]) {
    let mut script = Script::new(input);
    let (mut decoder, mut twin) = (Decoder::default(), Decoder::default());
    let mut cache = BlockCache::default();
    while !script.is_over() {
        let block = script.long_piece();
        let before = decoder.changes();
        let (mut fields, mut same) = (Fields::new(), Fields::new());
        let outcome = decoder.decode(block, &mut fields);
        assert_eq!(outcome, twin.decode(block, &mut same), "P1");
        assert_eq!(fields, same, "P1");
        let Ok(fits) = outcome else { return };
        let size: usize = fields.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
        assert!(size <= HEADER_LIST_BYTES_MAX, "P2: {size}");
        if !fits {
            continue;
        }
        again(&fields);
        let Some(head) = Head::request(fields) else { continue };
        let head = Rc::new(head);
        if decoder.changes() == before {
            cache.remember(block, before, &head);
            assert!(cache.find(block, before).is_none_or(|found| **found == *head), "P1: cached");
        }
        if let Kind::Refused { http, status } = Request::parse(head).kind {
            let block = respond::trailers_only(http, None, &status);
            assert_eq!(Decoder::default().decode(&block, &mut Fields::new()), Ok(true), "P4");
        }
    }
}

/// P3. Only names and values that a field may have are encoded.
fn again(fields: &Fields) {
    let mut block = BytesMut::new();
    for (name, value) in fields {
        put_field(&mut block, name, value);
    }
    let mut decoded = Fields::new();
    assert_eq!(Decoder::default().decode(&block, &mut decoded), Ok(true), "P3");
    assert_eq!(&decoded, fields, "P3");
}

/// Blocks as clients send them, and the appendix of the standard in spirit: indexed fields,
/// literals with and without indexing, sizes of the table, Huffman.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![];
    for path in ["/etcdserverpb.KV/Put", "/etcdserverpb.Watch/Watch", "/health"] {
        let mut input = vec![];
        for _ in 0..2 {
            put_long_piece(&mut input, &request(path));
        }
        seeds.push(input);
    }
    let mut input = vec![];
    // A table of 100 bytes, two entries that push each other out, then both by index.
    let mut block = vec![0x3f, 0x45];
    for name in [&b"first-field"[..], b"second-field"] {
        literal(&mut block, 0x40, name, &[b'v'; 40]);
    }
    put_long_piece(&mut input, &block);
    put_long_piece(&mut input, &[0xbe]);
    put_long_piece(&mut input, &[0x20, 0xbf]);
    seeds.push(input);
    // `www.example.com` with Huffman, by an indexed name.
    let huffman = b"\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
    let mut input = vec![];
    put_long_piece(&mut input, huffman);
    put_long_piece(&mut input, &[0xbe, 0x1f, 0xff, 0x80, 0x80, 0x01]);
    seeds.push(input);
    seeds
}

/// The block of a request, its fields left in the table.
#[must_use]
pub fn request(path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    let fields: [(&[u8], &[u8]); 6] = [
        (b":path", path.as_bytes()),
        (b":authority", b"localhost:2379"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        (b"grpc-timeout", b"5S"),
        (b"grpc-encoding", b"gzip"),
    ];
    for (name, value) in fields {
        literal(&mut block, 0x40, name, value);
    }
    block
}

fn literal(block: &mut Vec<u8>, kind: u8, name: &[u8], value: &[u8]) {
    block.push(kind);
    for text in [name, value] {
        block.push(u8::try_from(text.len()).expect("below 127"));
        block.extend(text);
    }
}

/// Names and values that mean something.
#[must_use]
pub fn words() -> Vec<Vec<u8>> {
    let words: [&[u8]; 12] = [
        b":method",
        b":path",
        b":scheme",
        b":authority",
        b"content-type",
        b"application/grpc+proto",
        b"grpc-timeout",
        b"99999999H",
        b"grpc-encoding",
        b"content-length",
        b"connection",
        b"te",
    ];
    words.iter().map(|word| word.to_vec()).collect()
}

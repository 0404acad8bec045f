//! The payload of one stream: cut into messages, their compression undone.
//!
//! ```text
//! input: | size limit (2) | 1: gzip announced | cuts (1) | payload …
//! ```
//!
//! - G1 However the payload is cut, the same messages come out.
//! - G2 A message is within the limit, opened or not.
//! - G3 What is held for an incomplete message is not much more than what came.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use ringbolt_server::grpc::framing::prefix;
use ringbolt_server::grpc::{Assembler, Encoding, Message, Status};

use crate::script::Script;

/// Takes one input.
pub fn run(input: &[u8]) {
    let mut script = Script::new(input);
    let size_max = usize::from(script.short());
    let encoding = if script.byte() & 1 == 1 { Encoding::Gzip } else { Encoding::Identity };
    let cut = usize::from(script.byte()) + 1;
    let payload = Bytes::copy_from_slice(script.rest());
    let (mut whole, mut pieces) = (Assembler::default(), Assembler::default());
    let mut messages: Vec<Result<Message, Status>> = vec![];
    whole.feed(payload.clone(), size_max, |message| messages.push(message));
    let mut again = vec![];
    for piece in payload.chunks(cut) {
        pieces.feed(Bytes::copy_from_slice(piece), size_max, |message| again.push(message));
        assert!(pieces.held_bytes() <= 2 * payload.len() + 64, "G3: {}", pieces.held_bytes());
    }
    assert_eq!(messages, again, "G1");
    assert_eq!(whole.cut_short(), pieces.cut_short(), "G1");
    for message in messages.into_iter().flatten() {
        assert!(message.size() <= size_max, "G2: {}", message.size());
        if let Ok(opened) = message.open(encoding, size_max) {
            assert!(opened.len() <= size_max, "G2: opened {}", opened.len());
        }
    }
}

/// Messages alone and several, plain and compressed, one too large, one cut, a bomb.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let plain = framed(false, b"\x0a\x01k\x12\x01v");
    let packed = framed(true, &gzip(b"\x0a\x01k\x12\x01v"));
    let bomb = framed(true, &gzip(&[0; 60_000]));
    let head = |gzip: u8, cut: u8| vec![0x40, 0, gzip, cut];
    vec![
        [head(0, 3), plain.clone(), framed(false, b""), plain.clone()].concat(),
        [head(1, 200), packed.clone(), plain.clone()].concat(),
        [head(0, 1), packed.clone()].concat(),
        [head(1, 9), bomb].concat(),
        [head(0, 255), framed(false, &[7; 0x4001])].concat(),
        [head(1, 20), packed[..packed.len() - 6].to_vec()].concat(),
        [vec![0, 3, 0, 0], plain].concat(),
    ]
}

/// A message behind its prefix.
#[must_use]
pub fn framed(compressed: bool, message: &[u8]) -> Vec<u8> {
    let mut out = prefix(message.len()).to_vec();
    out[0] = u8::from(compressed);
    out.extend(message);
    out
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

/// What begins a message, and what begins a compressed one.
#[must_use]
pub fn words() -> Vec<Vec<u8>> {
    vec![vec![0, 0, 0, 0, 1], vec![1, 0, 0, 0, 30], vec![0x1f, 0x8b, 8], vec![0xff; 4]]
}

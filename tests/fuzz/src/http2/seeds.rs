//! Connections to begin with.

use ringbolt_server::http2::frame::kind;

use super::client::frame;
use super::{SILENCE, beginning};
use crate::grpc::framed;
use crate::hpack;

/// The bytes of clients that call, stream, reset, pad, continue and flood; and lives of a server.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let block = hpack::request("/etcdserverpb.KV/Range");
    let message = framed(false, b"\x0a\x01k");
    let call = |stream: u32| {
        [
            frame(kind::HEADERS, 4, stream, &block),
            frame(kind::DATA, 1, stream, &message),
            frame(kind::WINDOW_UPDATE, 0, stream, &[0, 1, 0, 0]),
        ]
        .concat()
    };
    let (front, back) = block.split_at(9);
    let padded = [&[3][..], &message, &[0; 3]].concat();
    let priority = [&[0x80, 0, 0, 1, 15][..], &block].concat();
    let odd = [
        frame(kind::HEADERS, 1, 1, front),
        frame(kind::CONTINUATION, 0, 1, &[]),
        frame(kind::CONTINUATION, 4, 1, back),
        frame(kind::HEADERS, 4 | 0x20, 3, &priority),
        frame(kind::DATA, 8, 3, &padded),
        frame(kind::PRIORITY, 0, 3, &[0, 0, 0, 1, 9]),
        frame(kind::HEADERS, 5, 3, &[0x40, 1, b't', 1, b'v']),
        frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8]),
        frame(0x77, 0, 0, b"unknown"),
    ]
    .concat();
    let control = [
        frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 9, 0, 5, 0, 0, 0x40, 0, 0, 1, 0, 0, 0, 0]),
        frame(kind::SETTINGS, 1, 0, &[]),
        frame(kind::PING, 0, 0, b"12345678"),
        frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]),
    ]
    .concat();
    let several = [call(1), call(3), control.clone(), call(5)].concat();
    let mut seeds = vec![
        [vec![0x0c], beginning(), call(1)].concat(),
        [vec![0x02], several].concat(),
        [vec![0x56], odd].concat(),
        [vec![0xfe], control].concat(),
        [vec![0x02], call(1).repeat(3)].concat(),
    ];
    seeds.extend(lives());
    seeds
}

/// Scripts; see `act`.
fn lives() -> Vec<Vec<u8>> {
    let tenths = u16::try_from(SILENCE.as_secs()).expect("hours").to_be_bytes();
    let silence = [8, tenths[0], tenths[1]];
    let open = [2, 0];
    let answer = [11, 0, 0, 40, 12, 0, 1, 0, 3];
    let wide = [6, 0, 0, 16, 0, 0, 6, 1, 0, 16, 0, 0];
    let large = [11, 0, 0, 40, 12, 0, 0xff, 0xff, 0, 12, 0, 0xff, 0xff, 0, 10];
    let narrow = [7, 4, 0, 0, 0, 1];
    let upload = [4, 0, 0, 0x40, 0, 4, 0, 0, 0x40, 0, 14, 0, 0x80, 0, 4, 0, 1, 0, 9];
    let lives: [Vec<&[u8]>; 6] = [
        vec![&open, &answer, &[10]],
        vec![&open, &open, &large, &wide, &[10], &answer, &[10]],
        vec![&narrow, &open, &large, &[7, 4, 0, 1, 0, 0], &[10]],
        vec![&open, &upload, &answer, &[10]],
        vec![&open, &[9, 10], &answer, &silence, &[8, 0xff, 0xff], &[10]],
        vec![&open, &open, &[15, 1], &large, &[15, 0, 10], &[1, 8, 0, 1, 4, 0, 0, 9, 9]],
    ];
    lives.iter().map(|life| [&[1][..], &life.concat()].concat()).collect()
}

/// Frames' heads.
#[must_use]
pub fn words() -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = (0..10).map(|kind| frame(kind, 0, 1, &[])).collect();
    words.push(frame(kind::SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
    words.push(frame(kind::WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]));
    words.push(frame(kind::HEADERS, 5, 1, &[0x83, 0x86, 0x84, 0x41, 1, b'a']));
    words
}

//! Floods of frames that cost a client nothing: each must end its own connection with
//! `ENHANCE_YOUR_CALM`, or be refused stream by stream.

use std::time::{Duration, Instant};

use super::Attack;
use super::server::Server;
use super::wire::{CALM, End, Wire, block, flag, kind, put_field, put_text};

const END_TIME: Duration = Duration::from_secs(10);
/// Frames of a flood at most: far more than any limit.
const FRAMES: usize = 200_000;
/// Frames sent between two looks whether the server still takes them.
const BATCH: usize = 1000;

/// The floods.
#[must_use]
pub fn attacks() -> Vec<Attack> {
    let attack = Attack::small;
    vec![
        attack("rapid-reset", "RESETS_BURST, RESETS_PER_S", rapid_reset),
        attack("made-you-reset", "RESETS_BURST, RESETS_PER_S", made_you_reset),
        attack("continuation", "CONTINUATIONS_MAX, HEADER_BLOCK_BYTES_MAX", continuation),
        attack("settings", "IDLE_FRAMES_BURST", settings),
        attack("settings-windows", "IDLE_FRAMES_BURST, one change a frame", settings_windows),
        attack("ping", "PING_STRIKES_MAX", ping),
        attack("window-update", "IDLE_FRAMES_BURST", window_update),
        attack("empty-data", "IDLE_FRAMES_BURST", empty_data),
        attack("padding", "IDLE_FRAMES_BURST", padding),
        attack("header-list", "HEADER_LIST_BYTES_MAX", header_list),
        attack("hpack-bomb", "HEADER_LIST_BYTES_MAX, HEADER_TABLE_BYTES_MAX", hpack_bomb),
        attack("open-streams", "HEADS_PER_CONNECTION_BYTES_MAX", open_streams),
    ]
}

/// Sends frames until the server ends the connection; it must say that it was too much.
fn flood(wire: &mut Wire, mut frame: impl FnMut(&mut Wire, usize)) -> Result<String, String> {
    let began = Instant::now();
    for index in 0..FRAMES {
        frame(wire, index);
        // A server that has closed does not take the rest.
        if index % BATCH == BATCH - 1 && wire.flush().is_err() {
            return calm(wire, index, began);
        }
    }
    let _closed_already = wire.flush();
    calm(wire, FRAMES, began)
}

fn calm(wire: &mut Wire, sent: usize, began: Instant) -> Result<String, String> {
    match wire.end(END_TIME) {
        End::Goaway(CALM, text) => Ok(format!("GOAWAY {CALM} {text:?} after {sent} frames")),
        // What it said is lost where the socket was closed with our frames unread.
        End::Closed if sent < FRAMES => Ok(format!("closed after {sent} frames")),
        end => Err(format!("{end:?} after {sent} frames in {:?}", began.elapsed())),
    }
}

fn odd(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(0) * 2 + 1
}

fn rapid_reset(server: &Server) -> Result<String, String> {
    let mut wire = Wire::hello(server)?;
    flood(&mut wire, |wire, index| {
        wire.call(odd(index), "etcdserverpb.KV/Range", &[]);
        wire.frame(kind::RST_STREAM, 0, odd(index), &8_u32.to_be_bytes());
    })
}

/// Makes the server reset the streams: a window increment of zero is a stream error.
fn made_you_reset(server: &Server) -> Result<String, String> {
    let mut wire = Wire::hello(server)?;
    flood(&mut wire, |wire, index| {
        wire.call(odd(index), "etcdserverpb.KV/Range", &[]);
        wire.frame(kind::WINDOW_UPDATE, 0, odd(index), &[0; 4]);
    })
}

fn continuation(server: &Server) -> Result<String, String> {
    let mut wire = Wire::hello(server)?;
    wire.frame(kind::HEADERS, 0, 1, &block("etcdserverpb.KV/Range", &[]));
    flood(&mut wire, |wire, _| wire.frame(kind::CONTINUATION, 0, 1, b""))
}

fn settings(server: &Server) -> Result<String, String> {
    let mut wire = Wire::hello(server)?;
    flood(&mut wire, |wire, _| wire.settings(&[]))
}

/// Each change of the initial window touches every open stream.
fn settings_windows(server: &Server) -> Result<String, String> {
    let mut wire = Wire::hello(server)?;
    for index in 0..10_000 {
        wire.call(odd(index), "etcdserverpb.Watch/Watch", &[]);
    }
    wire.flush()?;
    let changes: Vec<(u16, u32)> = (0..2_700).map(|index| (4, 1_000 + index % 2)).collect();
    flood(&mut wire, |wire, index| {
        if index < 20_000 {
            wire.settings(&changes);
        } else {
            wire.settings(&[]);
        }
    })
}

fn ping(server: &Server) -> Result<String, String> {
    let mut wire = Wire::hello(server)?;
    flood(&mut wire, |wire, _| wire.frame(kind::PING, 0, 0, &[0; 8]))
}

fn window_update(server: &Server) -> Result<String, String> {
    let mut wire = Wire::hello(server)?;
    flood(&mut wire, |wire, _| wire.frame(kind::WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()))
}

fn empty_data(server: &Server) -> Result<String, String> {
    let mut wire = Wire::hello(server)?;
    wire.call(1, "etcdserverpb.Watch/Watch", &[]);
    flood(&mut wire, |wire, _| wire.frame(kind::DATA, 0, 1, b""))
}

/// DATA of nothing but padding.
fn padding(server: &Server) -> Result<String, String> {
    let mut wire = Wire::hello(server)?;
    wire.call(1, "etcdserverpb.Watch/Watch", &[]);
    flood(&mut wire, |wire, _| wire.frame(kind::DATA, flag::PADDED, 1, &[3, 0, 0, 0]))
}

/// A header list above the limit, again and again.
fn header_list(server: &Server) -> Result<String, String> {
    let mut wire = Wire::hello(server)?;
    // Each field counts 32 bytes more than it has.
    let mut large = block("etcdserverpb.KV/Range", &[]);
    while large.len() < 60_000 {
        put_field(&mut large, "a", b"");
    }
    flood(&mut wire, |wire, index| {
        let mut chunks = large.chunks(16_384);
        let first = chunks.next().unwrap_or_default();
        wire.frame(kind::HEADERS, 0, odd(index), first);
        let rest: Vec<&[u8]> = chunks.collect();
        for (at, chunk) in rest.iter().enumerate() {
            let flags = if at + 1 == rest.len() { flag::END_HEADERS } else { 0 };
            wire.frame(kind::CONTINUATION, flags, odd(index), chunk);
        }
    })
}

/// One large entry of the table, named by a byte as often as a block holds.
fn hpack_bomb(server: &Server) -> Result<String, String> {
    let mut wire = Wire::hello(server)?;
    let mut first = block("etcdserverpb.KV/Range", &[]);
    first.push(0x40);
    put_text(&mut first, b"bomb");
    put_text(&mut first, &[b'x'; 3_900]);
    wire.frame(kind::HEADERS, flag::END_HEADERS, 1, &first);
    // 62 is the first entry of the dynamic table.
    let mut bomb = block("etcdserverpb.KV/Range", &[]);
    bomb.resize(16_000, 0x80 | 62);
    flood(&mut wire, |wire, index| {
        wire.frame(kind::HEADERS, flag::END_HEADERS, odd(index + 1), &bomb);
    })
}

/// Streams that are opened with large heads and never go on: most must be refused.
fn open_streams(server: &Server) -> Result<String, String> {
    let mut wire = Wire::hello(server)?;
    let mut number = 0_u32;
    let outcome = flood(&mut wire, |wire, index| {
        if index < 20_000 {
            number += 1;
            let value = format!("{number:012000}");
            wire.call(odd(index), "etcdserverpb.KV/Range", &[("x-large", value.as_bytes())]);
        }
    });
    match outcome {
        // Refused one by one, each a reset of ours; the connection may live.
        Err(error) if error.starts_with("Open") => {
            Ok("20 000 heads of 12 kB: refused above the limit".to_owned())
        }
        other => other,
    }
}

//! What a client may not do, or not so often.

use std::time::Duration;

use bytes::Bytes;
use ringbolt_io::MonoTime;

use super::super::frame::{ErrorCode, StreamId, flag, kind, setting};
use super::super::{Event, Http2, Limits};
use super::{Client, GET, POST, greeted, server, summary};
use crate::limits::{
    CONTINUATIONS_MAX, HEADER_LIST_BYTES_MAX, IDLE_FRAMES_BURST, RESETS_BURST, STREAM_WINDOW_BYTES,
};

const NOW: MonoTime = MonoTime(0);
const CALM: Option<ErrorCode> = Some(ErrorCode::ENHANCE_YOUR_CALM);

/// Opening and resetting streams without end is stopped; at a fair pace it never is.
#[test]
fn rapid_reset() {
    let run = |pause: Duration| {
        let (mut http, mut client) = greeted();
        let mut now = NOW;
        for index in 0..RESETS_BURST + 10 {
            client.get(1 + 2 * index);
            client.reset(1 + 2 * index);
            client.send(&mut http, now);
            now = now + pause;
        }
        http.ended_by()
    };
    assert_eq!(run(Duration::ZERO), CALM);
    assert_eq!(run(Duration::from_millis(3)), None);
}

/// CONTINUATION frames without end are stopped, empty ones too.
#[test]
fn continuation_flood() {
    for payload in [&b""[..], &[0x84; 8000]] {
        let (mut http, mut client) = greeted();
        client.frame(kind::HEADERS, 0, 1, GET);
        for _ in 0..=CONTINUATIONS_MAX {
            client.frame(kind::CONTINUATION, 0, 1, payload);
        }
        client.send(&mut http, NOW);
        assert_eq!(http.ended_by(), CALM);
    }
}

/// Control frames and empty DATA without end are stopped.
#[test]
fn control_floods() {
    let floods: [fn(&mut Client); 5] = [
        |client| client.settings(&[(setting::HEADER_TABLE_SIZE, 4096)]),
        |client| client.window(0, 1),
        |client| client.data(1, b"", false),
        |client| client.frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 3, 16]),
        |client| client.frame(99, 0, 1, b"unknown"),
    ];
    for (index, flood) in floods.into_iter().enumerate() {
        let (mut http, mut client) = greeted();
        client.post(1);
        for _ in 0..=IDLE_FRAMES_BURST {
            flood(&mut client);
            client.send(&mut http, NOW);
        }
        assert_eq!(http.ended_by(), CALM, "flood {index}");
    }
}

/// Changes of the initial window walk over the open streams: with many open, few are taken. Those
/// of one frame count once, however many it holds.
#[test]
fn window_changes_over_many_streams() {
    let (mut http, mut client) = greeted();
    for index in 0..10_000 {
        client.post(1 + 2 * index);
        client.send(&mut http, NOW);
    }
    let changes: Vec<(u16, u32)> =
        (0..2_700).map(|index| (setting::INITIAL_WINDOW_SIZE, 1_000 + index % 2)).collect();
    let mut taken = 0;
    while http.ended_by().is_none() {
        taken += 1;
        client.settings(&changes[..changes.len() - taken % 2]);
        client.send(&mut http, NOW);
    }
    assert_eq!(http.ended_by(), CALM);
    assert!((50..500).contains(&taken), "{taken} walks over 10 000 streams");
}

/// Header lists above the limit cost much and are never sent in good faith: few end a connection.
#[test]
fn oversize_header_lists() {
    let (mut http, mut client) = greeted();
    let block = [GET, &b"\x00\x01a\x00".repeat(14_000)].concat();
    let mut count = 0;
    while http.ended_by().is_none() && count < 100 {
        let mut chunks = block.chunks(16_000);
        client.frame(kind::HEADERS, 0, 1 + 2 * count, chunks.next().unwrap());
        for chunk in chunks {
            let last = chunk.len() < 16_000;
            client.frame(kind::CONTINUATION, if last { 4 } else { 0 }, 1 + 2 * count, chunk);
        }
        client.send(&mut http, NOW);
        count += 1;
    }
    assert_eq!(http.ended_by(), CALM);
    assert!((2..10).contains(&count), "{count} oversize lists");
}

/// The third ping that comes too early ends the connection with etcd's text; pings that follow
/// answers are free.
#[test]
fn too_many_pings() {
    let (mut http, mut client) = greeted();
    client.post(1);
    for count in 0..20 {
        client.ping([count; 8]);
        client.send(&mut http, NOW);
        http.send_data(StreamId(1), b"x", Bytes::new(), false).unwrap();
    }
    assert_eq!(http.ended_by(), None);
    (0..4).for_each(|count| client.ping([count; 8]));
    client.send(&mut http, NOW);
    assert_eq!(http.ended_by(), CALM);
    let mut bytes = super::output(&mut http);
    let text = b"too_many_pings";
    assert_eq!(&bytes.split_off(bytes.len() - text.len())[..], text);
}

/// A header list above the limit resets its stream only, and the table is still right after it.
#[test]
fn long_header_list() {
    let (mut http, mut client) = greeted();
    let mut block = GET.to_vec();
    block.extend(b"\x40\x01a\x7f\xa1\x1e");
    block.extend([b'v'; 4000]);
    block.extend(vec![0xbe; HEADER_LIST_BYTES_MAX / 4000 + 1]);
    client.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &block);
    client.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 3, &[GET, &[0xbe]].concat());
    let events = client.send(&mut http, NOW);
    let [Event::Request { head, stream, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(*stream, StreamId(3));
    assert_eq!(head.get("a").map(Bytes::len), Some(4000));
    assert_eq!(summary(&mut http), ["reset 1 11"]);
}

/// Streams above the limit are refused, and come again when others have ended.
#[test]
fn concurrent_streams() {
    let limits = Limits { concurrent_streams_max: 2, ..Limits::default() };
    let mut http = Http2::new(limits, NOW);
    let mut client = Client::hello();
    (0..3).for_each(|index| client.get(1 + 2 * index));
    assert_eq!(client.send(&mut http, NOW).len(), 2);
    let told = summary(&mut http);
    assert_eq!(told.last().map(String::as_str), Some("reset 5 7"));
    http.send_block(StreamId(1), Bytes::from_static(&[0x88]), true).unwrap();
    client.get(7);
    assert_eq!(client.send(&mut http, NOW).len(), 1);
}

/// A client may send what its window holds and not a byte more; consumed bytes are given back.
#[test]
fn receive_window() {
    let chunk = vec![0; 16_384];
    let run = |consume: bool| {
        let (mut http, mut client) = greeted();
        client.post(1);
        for _ in 0..5 {
            client.data(1, &chunk, false);
            for event in client.send(&mut http, NOW) {
                if let (true, Event::Data { stream, bytes }) = (consume, &event) {
                    http.consumed(*stream, bytes.len());
                }
            }
        }
        summary(&mut http)
    };
    assert_eq!(run(false), ["reset 1 3"]);
    let updates: u32 = run(true)
        .iter()
        .filter_map(|frame| frame.strip_prefix("window 1 ")?.parse::<u32>().ok())
        .sum();
    assert!(updates >= 5 * 16_384 - STREAM_WINDOW_BYTES / 4);
}

/// The connection's window is given back for streams that are gone, too.
#[test]
fn connection_window_of_closed_streams() {
    let (mut http, mut client) = greeted();
    let chunk = vec![0; 16_000];
    let mut returned = 0;
    for index in 0..200 {
        let id = 1 + 2 * index;
        client.post(id);
        client.send(&mut http, NOW);
        http.reset(StreamId(id), ErrorCode::CANCEL);
        client.data(id, &chunk, true);
        client.send(&mut http, NOW);
        for frame in summary(&mut http) {
            if let Some(size) = frame.strip_prefix("window 0 ") {
                returned += size.parse::<u32>().unwrap();
            }
        }
    }
    assert_eq!(http.ended_by(), None);
    assert!(returned > 200 * 16_000 - (1 << 19));
}

/// Declared and real length of a payload must agree.
#[test]
fn content_length() {
    let block = [POST, b"\x0f\x0d\x013"].concat();
    for (payload, wrong) in [(&b"abc"[..], false), (b"ab", true), (b"abcd", true)] {
        let (mut http, mut client) = greeted();
        client.frame(kind::HEADERS, flag::END_HEADERS, 1, &block);
        client.data(1, payload, true);
        client.send(&mut http, NOW);
        assert_eq!(summary(&mut http) == ["reset 1 1"], wrong, "{payload:?}");
    }
}

/// A silent client is pinged, and given up when it stays silent.
#[test]
fn silent_client() {
    let limits = Limits::default();
    let mut http = server();
    Client::hello().send(&mut http, NOW);
    summary(&mut http);
    let ping_at = http.tick(NOW);
    assert_eq!(ping_at, NOW + limits.keepalive_interval);
    let end_at = http.tick(ping_at);
    assert_eq!(summary(&mut http), ["ping"]);
    assert_eq!(end_at, ping_at + limits.keepalive_timeout);
    http.tick(end_at);
    assert!(http.is_finished());
}

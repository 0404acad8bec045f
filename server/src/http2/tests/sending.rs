//! Flow control and turns on the sending side.

use bytes::Bytes;
use proptest::prelude::*;
use ringbolt_io::MonoTime;

use super::super::frame::{StreamId, kind, setting};
use super::{Client, Http2, frames, greeted, summary};
use crate::limits::{
    FRAME_SENT_BYTES_MAX, OUTPUT_PENDING_BYTES_MAX, OUTPUT_SLICES_MAX, STREAM_AHEAD_BYTES_MAX,
};

const NOW: MonoTime = MonoTime(0);

fn payload(size: usize) -> Bytes {
    Bytes::from(vec![7; size])
}

/// Payload waits for the stream's window and then for the connection's, to the byte.
#[test]
fn waits_for_both_windows() {
    let (mut http, mut client) = greeted();
    client.settings(&[(setting::INITIAL_WINDOW_SIZE, 10)]);
    client.get(1);
    client.send(&mut http, NOW);
    http.send_data(StreamId(1), b"abc", payload(12), true).unwrap();
    assert_eq!(summary(&mut http), ["settings ack", "data 1 10"]);
    client.window(1, 3);
    client.send(&mut http, NOW);
    assert_eq!(summary(&mut http), ["data 1 3"]);
    client.window(1, 100_000);
    client.send(&mut http, NOW);
    assert_eq!(summary(&mut http), ["data 1 2 end"]);

    client.get(3);
    client.window(3, 1_000_000);
    client.send(&mut http, NOW);
    http.send_data(StreamId(3), b"", payload(100_000), true).unwrap();
    let left = 65_535 - 15;
    let sent: usize = frames(&mut http).iter().map(|(header, _)| header.length).sum();
    assert_eq!(sent, left);
    client.window(0, 1_000_000);
    client.send(&mut http, NOW);
    let sent: usize = frames(&mut http).iter().map(|(header, _)| header.length).sum();
    assert_eq!(sent, 100_000 - left);
}

/// A stream whose window shrank below zero waits until it is positive again.
#[test]
fn shrunk_window() {
    let (mut http, mut client) = greeted();
    client.get(1);
    client.send(&mut http, NOW);
    http.send_data(StreamId(1), b"", payload(100), false).unwrap();
    assert_eq!(summary(&mut http), ["data 1 100"]);
    client.settings(&[(setting::INITIAL_WINDOW_SIZE, 50)]);
    client.send(&mut http, NOW);
    http.send_data(StreamId(1), b"", payload(10), true).unwrap();
    assert_eq!(summary(&mut http), ["settings ack"]);
    client.window(1, 50);
    client.send(&mut http, NOW);
    assert!(summary(&mut http).is_empty());
    client.settings(&[(setting::INITIAL_WINDOW_SIZE, 70)]);
    client.send(&mut http, NOW);
    assert_eq!(summary(&mut http), ["settings ack", "data 1 10 end"]);
}

/// Streams that all have much to send take turns, a frame each; trailers need no window.
#[test]
fn turns() {
    let (mut http, mut client) = greeted();
    client.settings(&[(setting::INITIAL_WINDOW_SIZE, 40_000)]);
    client.window(0, 1_000_000);
    (0..3).for_each(|index| client.get(1 + 2 * index));
    client.send(&mut http, NOW);
    for stream in [1, 3, 5] {
        let stream = StreamId(stream);
        http.send_data(stream, b"", payload(2 * FRAME_SENT_BYTES_MAX), false).unwrap();
        http.send_block(stream, Bytes::from_static(&[0x88]), true).unwrap();
    }
    let expected = [
        "settings ack",
        "data 1 16384",
        "data 3 16384",
        "data 5 16384",
        "data 1 16384",
        "data 3 16384",
        "data 5 16384",
        "headers 1 end",
        "headers 3 end",
        "headers 5 end",
    ];
    assert_eq!(summary(&mut http), expected);
}

/// H1: a huge answer to a client that gave every window is encoded only as it is taken, and its
/// producer is told when to go on.
#[test]
fn output_is_bounded() {
    let (mut http, mut client) = greeted();
    client.settings(&[(setting::INITIAL_WINDOW_SIZE, 0x7fff_ffff)]);
    client.window(0, 0x7fff_0000);
    client.get(1);
    client.send(&mut http, NOW);
    let (one, mut sent, mut written) = (StreamId(1), 0, 0);
    while written < 50_000_000 {
        while http.has_room(one, STREAM_AHEAD_BYTES_MAX) {
            http.send_data(one, b"", payload(30_000), false).unwrap();
            sent += 30_000;
        }
        let (mut batch, mut room) = (Vec::new(), Vec::new());
        http.poll_output(&mut batch, &mut room);
        assert!(batch.len() <= OUTPUT_SLICES_MAX);
        let size: usize = batch.iter().map(Bytes::len).sum();
        let most = OUTPUT_PENDING_BYTES_MAX + FRAME_SENT_BYTES_MAX + 100;
        assert!(size <= most, "{size} bytes at once");
        assert!(sent <= written + most + STREAM_AHEAD_BYTES_MAX + 30_000);
        assert!(size > 0 && !batch.is_empty());
        written += size;
        assert!(room.is_empty() || room == [one]);
    }
}

/// A header block larger than a frame goes on in CONTINUATION frames.
#[test]
fn large_block() {
    let (mut http, mut client) = greeted();
    client.get(1);
    client.send(&mut http, NOW);
    http.send_block(StreamId(1), payload(40_000), true).unwrap();
    let kinds: Vec<_> = frames(&mut http)
        .iter()
        .map(|(header, _)| (header.kind, header.flags, header.length))
        .collect();
    let (headers, continuation) = (kind::HEADERS, kind::CONTINUATION);
    let expected = [(headers, 1, 16_384), (continuation, 0, 16_384), (continuation, 4, 7_232)];
    assert_eq!(kinds, expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// H2: whatever is queued and whatever windows are given, each stream's payload arrives whole
    /// and in order, never beyond a window.
    #[test]
    fn payload_arrives_within_windows(
        steps in proptest::collection::vec((0_u32..3, 0_usize..40_000, 1_u32..30_000), 1..60),
    ) {
        let (mut http, mut client) = greeted();
        let mut streams = [(0_usize, 0_usize, 65_535_i64); 3];
        let mut connection = 65_535_i64;
        (0..3).for_each(|index| client.get(1 + 2 * index));
        client.send(&mut http, NOW);
        type Streams = [(usize, usize, i64); 3];
        let check = |http: &mut Http2, streams: &mut Streams, connection: &mut i64| {
            for (header, bytes) in frames(http) {
                if header.kind != kind::DATA {
                    continue;
                }
                let stream = &mut streams[usize::try_from(header.stream.0 / 2).unwrap()];
                for byte in &bytes {
                    assert_eq!(usize::from(*byte), stream.1 % 251);
                    stream.1 += 1;
                }
                let size = i64::try_from(bytes.len()).unwrap();
                stream.2 -= size;
                *connection -= size;
                assert!(stream.2 >= 0 && *connection >= 0);
            }
        };
        for (index, size, increment) in steps {
            let (id, place) = (StreamId(1 + 2 * index), usize::try_from(index).unwrap());
            let from = streams[place].0;
            let bytes: Vec<u8> =
                (from..from + size).map(|at| u8::try_from(at % 251).unwrap()).collect();
            streams[place].0 += size;
            let (head, rest) = bytes.split_at(size.min(5));
            http.send_data(id, head, Bytes::copy_from_slice(rest), false).unwrap();
            check(&mut http, &mut streams, &mut connection);
            if size % 2 == 0 {
                client.window(id.0, increment);
                streams[place].2 += i64::from(increment);
            } else {
                client.window(0, increment);
                connection += i64::from(increment);
            }
            client.send(&mut http, NOW);
            check(&mut http, &mut streams, &mut connection);
        }
        let mut more = Client::default();
        more.window(0, 0x1000_0000);
        (0..3).for_each(|index| more.window(1 + 2 * index, 0x1000_0000));
        streams.iter_mut().for_each(|stream| stream.2 += 0x1000_0000);
        connection += 0x1000_0000;
        more.send(&mut http, NOW);
        check(&mut http, &mut streams, &mut connection);
        for (queued, arrived, _) in streams {
            prop_assert_eq!(queued, arrived);
        }
    }
}

//! H4 and freedom from panics: arbitrary frames, arbitrary bytes, arbitrary splits.

use bytes::{BufMut, Bytes, BytesMut};
use proptest::prelude::*;
use ringbolt_io::MonoTime;

use super::super::frame::{FrameHeader, PREFACE, StreamId, put_settings};
use super::super::{Event, Http2};
use super::{GET, POST, output, server};

/// Feeds `bytes` in pieces, answering requests as a careless service would.
fn run(bytes: &Bytes, cuts: &[usize]) -> (Vec<Event>, Bytes) {
    let mut http = server();
    let mut all = Vec::new();
    let mut rest = bytes.clone();
    for cut in cuts.iter().copied().chain(std::iter::repeat(usize::MAX)) {
        if rest.is_empty() {
            break;
        }
        let piece = rest.split_to(cut.min(rest.len()));
        http.receive(MonoTime(1), &piece, &mut all);
    }
    let sent = output(&mut http);
    answer(&mut http, &all);
    output(&mut http);
    (all, sent)
}

fn answer(http: &mut Http2, events: &[Event]) {
    for event in events {
        match event {
            Event::Request { stream, .. } => {
                let _ = http.send_block(*stream, Bytes::from_static(&[0x88]), false);
                let _ = http.send_data(*stream, b"12345", Bytes::from(vec![1; 70_000]), false);
            }
            Event::Data { stream, bytes } => http.consumed(*stream, bytes.len()),
            Event::End { stream } => {
                let _ = http.send_block(*stream, Bytes::from_static(&[0x88]), true);
            }
            Event::Reset { .. } | Event::Goaway { .. } => {}
        }
    }
}

/// Payloads that make sense for some frame, and payloads that do not.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(GET.to_vec()),
        Just(POST.to_vec()),
        Just(vec![0x83, 0x86, 0x44, 2, b'/', b'a', 0xbe]),
        Just(vec![0, 4, 0, 0, 1, 0]),
        Just(vec![0, 0, 0, 9]),
        Just(vec![0; 8]),
        Just(Vec::new()),
        proptest::collection::vec(any::<u8>(), 0..60),
        (0_usize..17_000).prop_map(|size| vec![3; size]),
    ]
}

fn frames() -> impl Strategy<Value = Bytes> {
    let frame = (0_u8..11, any::<u8>(), 0_u32..9, payload());
    proptest::collection::vec(frame, 0..25).prop_map(|frames| {
        let mut out = BytesMut::new();
        out.put_slice(PREFACE);
        put_settings(&mut out, &[]);
        for (kind, flags, stream, payload) in frames {
            let stream = StreamId(stream);
            // Mostly flags that mean something, so that streams open and end.
            let flags = if flags > 128 { flags & 0x05 } else { flags & 0x2d };
            FrameHeader { length: payload.len(), kind, flags, stream }.put(&mut out);
            out.put_slice(&payload);
        }
        out.freeze()
    })
}

proptest! {
    /// The same frames give the same events and output, however they were split.
    #[test]
    fn splits_do_not_matter(
        bytes in frames(),
        cuts in proptest::collection::vec(1_usize..5_000, 0..60),
    ) {
        let whole = run(&bytes, &[]);
        prop_assert_eq!(&run(&bytes, &cuts), &whole);
        let small: Vec<usize> = cuts.iter().map(|cut| 1 + cut % 20).collect();
        prop_assert_eq!(&run(&bytes, &small), &whole);
    }

    /// Bytes without any sense after a right beginning.
    #[test]
    fn noise_never_panics(noise in proptest::collection::vec(any::<u8>(), 0..3_000)) {
        let mut out = BytesMut::new();
        out.put_slice(PREFACE);
        put_settings(&mut out, &[]);
        out.put_slice(&noise);
        let bytes = out.freeze();
        prop_assert_eq!(run(&bytes, &[]), run(&bytes, &[1; 200]));
        run(&bytes.slice(5..), &[7]);
    }
}

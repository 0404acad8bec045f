//! The protocol as a whole: a scripted client against the value, and arbitrary bytes.

mod arbitrary;
mod limits;
mod sending;

use bytes::{BufMut, Bytes, BytesMut};
use ringbolt_io::MonoTime;

use super::frame::{self, ErrorCode, FrameHeader, PREFACE, StreamId, flag, kind};
use super::{Event, Http2, Limits};

/// A client that writes frames by hand.
#[derive(Default)]
struct Client {
    out: BytesMut,
}

impl Client {
    /// Preface and empty SETTINGS.
    fn hello() -> Client {
        let mut client = Client::default();
        client.out.put_slice(PREFACE);
        frame::put_settings(&mut client.out, &[]);
        client
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let stream = StreamId(stream);
        FrameHeader { length: payload.len(), kind, flags, stream }.put(&mut self.out);
        self.out.put_slice(payload);
    }

    /// A request without payload.
    fn get(&mut self, stream: u32) {
        self.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, GET);
    }

    /// A request whose payload follows.
    fn post(&mut self, stream: u32) {
        self.frame(kind::HEADERS, flag::END_HEADERS, stream, POST);
    }

    fn data(&mut self, stream: u32, payload: &[u8], end: bool) {
        self.frame(kind::DATA, if end { flag::END_STREAM } else { 0 }, stream, payload);
    }

    fn window(&mut self, stream: u32, increment: u32) {
        self.frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
    }

    fn settings(&mut self, settings: &[(u16, u32)]) {
        frame::put_settings(&mut self.out, settings);
    }

    fn reset(&mut self, stream: u32) {
        self.frame(kind::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
    }

    fn ping(&mut self, payload: [u8; 8]) {
        frame::put_ping(&mut self.out, false, payload);
    }

    /// Hands everything written so far to the server.
    fn send(&mut self, http: &mut Http2, now: MonoTime) -> Vec<Event> {
        let mut events = Vec::new();
        http.receive(now, &self.out.split().freeze(), &mut events);
        events
    }
}

/// `:method: GET`, `:scheme: http`, `:path: /`.
const GET: &[u8] = &[0x82, 0x86, 0x84];
/// `:method: POST`, `:scheme: http`, `:path: /`.
const POST: &[u8] = &[0x83, 0x86, 0x84];

fn server() -> Http2 {
    Http2::new(Limits::default(), MonoTime(0))
}

/// A server that has greeted and been greeted.
fn greeted() -> (Http2, Client) {
    let mut http = server();
    let mut client = Client::hello();
    assert_eq!(client.send(&mut http, MonoTime(0)), []);
    frames(&mut http);
    (http, client)
}

/// All output there is now, as one run of bytes.
fn output(http: &mut Http2) -> Bytes {
    let mut all = BytesMut::new();
    loop {
        let (mut batch, mut room) = (Vec::new(), Vec::new());
        http.poll_output(&mut batch, &mut room);
        if batch.is_empty() {
            return all.freeze();
        }
        batch.iter().for_each(|bytes| all.put_slice(bytes));
    }
}

fn split_frames(mut bytes: Bytes) -> Vec<(FrameHeader, Bytes)> {
    let mut frames = Vec::new();
    while let Some(header) = FrameHeader::parse(&bytes) {
        let frame = bytes.split_to(frame::HEADER_BYTES + header.length);
        frames.push((header, frame.slice(frame::HEADER_BYTES..)));
    }
    assert!(bytes.is_empty(), "output ends inside a frame");
    frames
}

fn frames(http: &mut Http2) -> Vec<(FrameHeader, Bytes)> {
    split_frames(output(http))
}

/// Frames by type and stream, with the payload size of DATA.
fn summary(http: &mut Http2) -> Vec<String> {
    let name = |(header, payload): (FrameHeader, Bytes)| {
        let end = header.has(flag::END_STREAM);
        let stream = header.stream.0;
        match header.kind {
            kind::DATA => {
                format!("data {stream} {}{}", header.length, if end { " end" } else { "" })
            }
            kind::HEADERS => format!("headers {stream}{}", if end { " end" } else { "" }),
            kind::RST_STREAM => format!("reset {stream} {}", number(&payload)),
            kind::SETTINGS if header.has(flag::ACK) => "settings ack".to_owned(),
            kind::SETTINGS => "settings".to_owned(),
            kind::PING if header.has(flag::ACK) => "pong".to_owned(),
            kind::PING => "ping".to_owned(),
            kind::GOAWAY => format!("goaway {} {}", number(&payload), number(&payload[4..])),
            kind::WINDOW_UPDATE => format!("window {stream} {}", number(&payload)),
            other => format!("frame {other}"),
        }
    };
    frames(http).into_iter().map(name).collect()
}

fn number(payload: &[u8]) -> u32 {
    u32::from_be_bytes(*payload.first_chunk().expect("four bytes"))
}

/// The first frames are etcd's SETTINGS and a wider window; the client's are acknowledged.
#[test]
fn greeting() {
    let mut http = server();
    let greeting = frames(&mut http);
    assert_eq!(&greeting[0].1[..], [0, 5, 0, 0, 0x40, 0]);
    assert_eq!(number(&greeting[1].1), (1 << 20) - 65_535);
    assert_eq!(greeting.len(), 2);
    Client::hello().send(&mut http, MonoTime(0));
    assert_eq!(summary(&mut http), ["settings ack"]);
}

/// A request with payload in padded frames, and its answer with trailers.
#[test]
fn request_and_answer() {
    let (mut http, mut client) = greeted();
    client.post(1);
    client.frame(kind::DATA, flag::PADDED, 1, b"\x03abcdef\0\0\0");
    client.data(1, b"gh", true);
    let events = client.send(&mut http, MonoTime(0));
    let one = StreamId(1);
    let Event::Request { stream, head, end } = &events[0] else { panic!("no request") };
    assert_eq!((*stream, *end), (one, false));
    assert_eq!((&head.method[..], &head.path[..]), (&b"POST"[..], &b"/"[..]));
    let data = |bytes: &'static [u8]| Event::Data { stream: one, bytes: Bytes::from_static(bytes) };
    assert_eq!(events[1..], [data(b"abcdef"), data(b"gh"), Event::End { stream: one }]);

    http.send_block(one, Bytes::from_static(&[0x88]), false).unwrap();
    http.send_data(one, b"head", Bytes::from_static(b"body"), false).unwrap();
    http.send_block(one, Bytes::from_static(&[0x88]), true).unwrap();
    assert_eq!(summary(&mut http), ["headers 1", "data 1 8", "headers 1 end"]);
    assert_eq!(http.streams_open(), 0);
}

/// A client that is still sending when it is answered is told to stop, and what it had sent by
/// then is no error.
#[test]
fn early_answer() {
    let (mut http, mut client) = greeted();
    client.post(1);
    client.send(&mut http, MonoTime(0));
    http.send_block(StreamId(1), Bytes::from_static(&[0x88]), true).unwrap();
    assert_eq!(summary(&mut http), ["headers 1 end", "reset 1 0"]);
    client.data(1, b"late", true);
    assert_eq!(client.send(&mut http, MonoTime(0)), []);
    assert!(summary(&mut http).is_empty());
}

/// A repeated header block yields the very same head; after the table changed the same bytes are
/// decoded again and mean what they mean then.
#[test]
fn repeated_blocks_share_their_head() {
    let (mut http, mut client) = greeted();
    let request = |client: &mut Client, stream, block: &[u8]| {
        client.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, block);
    };
    // Inserts `:path: /a`, then refers to it twice, inserts `:path: /b`, and refers again.
    let insert = |path: &[u8]| [&[0x83, 0x86, 0x44, 2][..], path].concat();
    request(&mut client, 1, &insert(b"/a"));
    request(&mut client, 3, &[0x83, 0x86, 0xbe]);
    request(&mut client, 5, &[0x83, 0x86, 0xbe]);
    request(&mut client, 7, &insert(b"/b"));
    request(&mut client, 9, &[0x83, 0x86, 0xbe]);
    let heads: Vec<_> = client
        .send(&mut http, MonoTime(0))
        .into_iter()
        .map(|event| match event {
            Event::Request { head, .. } => head,
            other => panic!("{other:?}"),
        })
        .collect();
    let paths: Vec<&[u8]> = heads.iter().map(|head| &head.path[..]).collect();
    assert_eq!(paths, [b"/a", b"/a", b"/a", b"/b", b"/b"]);
    assert!(std::rc::Rc::ptr_eq(&heads[1], &heads[2]));
    assert!(!std::rc::Rc::ptr_eq(&heads[2], &heads[4]));
}

/// A graceful end: warned, streams opened before the client heard are served, the last id is told
/// once the client has answered, and with the last stream the connection is finished.
#[test]
fn graceful_end() {
    let (mut http, mut client) = greeted();
    client.get(1);
    client.send(&mut http, MonoTime(0));
    http.shut_down();
    assert_eq!(summary(&mut http), ["goaway 2147483647 0", "ping"]);
    client.get(3);
    frame::put_ping(&mut client.out, true, *b"farewell");
    client.get(5);
    let events = client.send(&mut http, MonoTime(0));
    assert_eq!(events.len(), 1);
    assert_eq!(summary(&mut http), ["goaway 3 0"]);
    for stream in [1, 3] {
        assert!(!http.is_finished());
        http.send_block(StreamId(stream), Bytes::from_static(&[0x88]), true).unwrap();
    }
    assert!(http.is_finished());
    assert_eq!(http.ended_by(), None);
}

/// After a broken rule nothing is received or sent any more but the GOAWAY that names it.
#[test]
fn connection_error_ends_everything() {
    let (mut http, mut client) = greeted();
    client.get(1);
    client.data(9, b"", false);
    client.get(3);
    assert_eq!(client.send(&mut http, MonoTime(0)).len(), 1);
    assert_eq!(http.ended_by(), Some(ErrorCode::PROTOCOL));
    assert_eq!(summary(&mut http), ["goaway 1 1"]);
    assert!(http.send_block(StreamId(1), Bytes::new(), true).is_err());
}

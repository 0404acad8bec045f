//! A client that writes frames by hand and collects what comes back by stream.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use ringbolt_io::{Io, Stream};

use crate::grpc::framing::prefix;
use crate::http2::StreamId;
use crate::http2::frame::{FrameHeader, PREFACE, flag, kind, put_settings, put_window_update};
use crate::http2::hpack::Decoder;
use crate::http2::hpack::encode::put_field;

/// What came on one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// All fields, as `name: value` lines, headers before trailers.
    pub fields: Vec<String>,
    /// The payload.
    pub data: Vec<u8>,
    /// The server ended it.
    pub ended: bool,
    /// The code of an RST_STREAM.
    pub reset: Option<u32>,
}

impl Answer {
    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// `grpc-status` and `grpc-message`.
    pub fn status(&self) -> (&str, &str) {
        (self.get("grpc-status").unwrap_or(""), self.get("grpc-message").unwrap_or(""))
    }

    /// The messages in the payload.
    pub fn messages(&self) -> Vec<&[u8]> {
        let (mut rest, mut messages) = (&self.data[..], Vec::new());
        while let Some(([0, a, b, c, d], after)) = rest.split_first_chunk::<5>() {
            let size = usize::try_from(u32::from_be_bytes([*a, *b, *c, *d])).unwrap();
            let (message, later) = after.split_at(size);
            messages.push(message);
            rest = later;
        }
        assert!(rest.is_empty());
        messages
    }
}

pub struct Client {
    pub io: Io,
    pub stream: Stream,
    pub out: BytesMut,
    pub answers: BTreeMap<u32, Answer>,
    /// Error codes of GOAWAY frames.
    pub goaways: Vec<u32>,
    pub closed: bool,
    decoder: Decoder,
    pending: Vec<u8>,
}

impl Client {
    pub fn new(io: Io, stream: Stream) -> Client {
        Client {
            io,
            stream,
            out: BytesMut::new(),
            answers: BTreeMap::new(),
            goaways: Vec::new(),
            closed: false,
            decoder: Decoder::default(),
            pending: Vec::new(),
        }
    }

    /// Preface and SETTINGS.
    pub fn hello(mut self) -> Client {
        self.out.put_slice(PREFACE);
        put_settings(&mut self.out, &[]);
        self
    }

    /// Opens every window wide.
    pub fn wide(mut self) -> Client {
        put_settings(&mut self.out, &[(4, 0x7fff_ffff)]);
        put_window_update(&mut self.out, StreamId(0), 0x7fff_0000);
        self
    }

    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let stream = StreamId(stream);
        FrameHeader { length: payload.len(), kind, flags, stream }.put(&mut self.out);
        self.out.put_slice(payload);
    }

    /// Request headers.
    pub fn head(&mut self, stream: u32, path: &str, fields: &[(&str, &str)], end: bool) {
        let mut block = BytesMut::from(&[0x83, 0x86][..]);
        put_field(&mut block, b":path", path.as_bytes());
        put_field(&mut block, b":authority", b"server:2379");
        for (name, value) in fields {
            put_field(&mut block, name.as_bytes(), value.as_bytes());
        }
        let flags = flag::END_HEADERS | if end { flag::END_STREAM } else { 0 };
        self.frame(kind::HEADERS, flags, stream, &block);
    }

    /// Request headers of a gRPC method.
    pub fn call(&mut self, stream: u32, method: &str, fields: &[(&str, &str)]) {
        let fields = [&[("content-type", "application/grpc")], fields].concat();
        self.head(stream, &format!("/etcdserverpb.{method}"), &fields, false);
    }

    /// One message, in as many frames as it needs.
    pub fn message(&mut self, stream: u32, message: &[u8], end: bool) {
        let all = [&prefix(message.len())[..], message].concat();
        let count = all.chunks(16_384).count();
        for (index, chunk) in all.chunks(16_384).enumerate() {
            let last = end && index + 1 == count;
            self.frame(kind::DATA, if last { flag::END_STREAM } else { 0 }, stream, chunk);
        }
    }

    pub async fn flush(&mut self) {
        let bytes = self.out.split().freeze();
        if !bytes.is_empty() {
            let _ = self.stream.write(vec![bytes]).await;
        }
    }

    /// Sends what was written and reads until the stream has ended or was reset.
    pub async fn answer(&mut self, stream: u32) -> Answer {
        self.until(|client| {
            let answer = client.answers.get(&stream);
            answer.is_some_and(|answer| answer.ended || answer.reset.is_some())
        })
        .await;
        self.answers.remove(&stream).unwrap()
    }

    /// Sends what was written and reads until something is true or the server closes.
    pub async fn until(&mut self, done: impl Fn(&Client) -> bool) {
        self.flush().await;
        while !done(self) && !self.closed {
            let (outcome, pending) = self.stream.read(std::mem::take(&mut self.pending)).await;
            self.pending = pending;
            self.closed = !matches!(outcome, Ok(size) if size > 0);
            self.take_frames();
        }
        assert!(done(self), "the server closed: {:?} {:?}", self.goaways, self.answers);
    }

    /// Reads until the server closes.
    pub async fn until_closed(&mut self) {
        self.until(|client| client.closed).await;
    }

    fn take_frames(&mut self) {
        let mut bytes = Bytes::from(std::mem::take(&mut self.pending));
        while let Some(header) = FrameHeader::parse(&bytes) {
            if bytes.len() < 9 + header.length {
                break;
            }
            let frame = bytes.split_to(9 + header.length);
            self.take_frame(header, &frame[9..]);
        }
        self.pending = bytes.to_vec();
    }

    fn take_frame(&mut self, header: FrameHeader, payload: &[u8]) {
        let number = |at: usize| u32::from_be_bytes(*payload[at..].first_chunk().unwrap());
        let mut answer = self.answers.remove(&header.stream.0).unwrap_or_default();
        match header.kind {
            kind::HEADERS => {
                let mut fields = Vec::new();
                self.decoder.decode(payload, &mut fields).unwrap();
                answer.fields.extend(fields.iter().map(|(name, value)| {
                    format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
                }));
            }
            kind::DATA => answer.data.extend(payload),
            kind::RST_STREAM => answer.reset = Some(number(0)),
            kind::GOAWAY => self.goaways.push(number(4)),
            kind::PING if !header.has(flag::ACK) => {
                self.frame(kind::PING, flag::ACK, 0, payload);
            }
            _ => {}
        }
        answer.ended |=
            matches!(header.kind, kind::HEADERS | kind::DATA) && header.has(flag::END_STREAM);
        self.answers.insert(header.stream.0, answer);
    }
}

//! A client that writes frames by hand and keeps what comes back by stream.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use ringbolt_io::{Io, Stream};
use ringbolt_server::http2::StreamId;
use ringbolt_server::http2::frame::put_window_update;
use ringbolt_server::http2::frame::{FrameHeader, PREFACE, flag, kind, put_settings};
use ringbolt_server::http2::hpack::Decoder;
use ringbolt_server::http2::hpack::encode::put_field;

use crate::grpc::framed;

/// What came on one stream.
#[derive(Debug, Default)]
pub struct Answer {
    /// Headers and trailers.
    pub fields: Vec<(Bytes, Bytes)>,
    /// The payload that is not cut into messages yet.
    pub data: BytesMut,
    /// The server is done with it.
    pub over: bool,
}

impl Answer {
    /// The gRPC status, once it came.
    pub fn status(&self) -> Option<&[u8]> {
        let field = self.fields.iter().find(|(name, _)| name == "grpc-status");
        field.map(|(_, value)| &value[..])
    }

    /// The next whole message.
    pub fn message(&mut self) -> Option<Bytes> {
        let ([compressed, a, b, c, d], _) = self.data.split_first_chunk::<5>()?;
        assert_eq!(*compressed, 0, "answers are not compressed");
        let size = usize::try_from(u32::from_be_bytes([*a, *b, *c, *d])).expect("32 bits");
        if self.data.len() < 5 + size {
            return None;
        }
        Some(self.data.split_to(5 + size).freeze().slice(5..))
    }
}

/// One connection.
pub struct Client {
    stream: Stream,
    out: BytesMut,
    /// By stream.
    pub answers: BTreeMap<u32, Answer>,
    /// The server closed the connection, or said that it will.
    pub closed: bool,
    decoder: Decoder,
    pending: Vec<u8>,
    next: u32,
}

impl Client {
    /// A connection with wide windows.
    pub async fn connect(io: &Io, address: &ringbolt_io::Address) -> Client {
        let stream = io.connect(address).await.expect("the member listens");
        let mut client = Client {
            stream,
            out: BytesMut::new(),
            answers: BTreeMap::new(),
            closed: false,
            decoder: Decoder::default(),
            pending: vec![],
            next: 1,
        };
        client.out.put_slice(PREFACE);
        put_settings(&mut client.out, &[(4, 0x7fff_ffff)]);
        put_window_update(&mut client.out, StreamId::CONNECTION, 0x7fff_0000);
        client
    }

    /// Writes a frame.
    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let stream = StreamId(stream);
        FrameHeader { length: payload.len(), kind, flags, stream }.put(&mut self.out);
        self.out.put_slice(payload);
    }

    /// Writes bytes that may be anything.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.put_slice(bytes);
    }

    /// Opens a call; gives its stream.
    pub fn call(&mut self, path: &str) -> u32 {
        let stream = self.next;
        self.next += 2;
        let mut block = BytesMut::from(&[0x83, 0x86][..]);
        put_field(&mut block, b":path", path.as_bytes());
        put_field(&mut block, b":authority", b"member:2379");
        put_field(&mut block, b"content-type", b"application/grpc");
        self.frame(kind::HEADERS, flag::END_HEADERS, stream, &block);
        self.answers.insert(stream, Answer::default());
        stream
    }

    /// Sends a message, in as many frames as it needs.
    pub fn message(&mut self, stream: u32, message: &[u8], end: bool) {
        let all = framed(false, message);
        let count = all.chunks(16_384).count();
        for (index, chunk) in all.chunks(16_384).enumerate() {
            let last = end && index + 1 == count;
            self.frame(kind::DATA, if last { flag::END_STREAM } else { 0 }, stream, chunk);
        }
    }

    /// Sends what was written and reads until something is true or the server closes.
    pub async fn until(&mut self, done: impl Fn(&Client) -> bool) {
        while !done(self) && !self.closed {
            let out = self.out.split().freeze();
            if !out.is_empty() && self.stream.write(vec![out]).await.is_err() {
                self.closed = true;
                return;
            }
            let (outcome, pending) = self.stream.read(std::mem::take(&mut self.pending)).await;
            self.pending = pending;
            self.closed |= !matches!(outcome, Ok(size) if size > 0);
            self.take_frames();
        }
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
        if header.kind == kind::GOAWAY {
            self.closed = true;
        }
        if header.kind == kind::PING && !header.has(flag::ACK) {
            self.frame(kind::PING, flag::ACK, 0, payload);
        }
        let mut fields = vec![];
        if header.kind == kind::HEADERS {
            let outcome = self.decoder.decode(payload, &mut fields);
            assert_eq!(outcome, Ok(true), "answers' headers decode");
        }
        let Some(answer) = self.answers.get_mut(&header.stream.0) else { return };
        answer.fields.extend(fields);
        match header.kind {
            kind::DATA => answer.data.put_slice(payload),
            kind::RST_STREAM => answer.over = true,
            _ => {}
        }
        answer.over |=
            matches!(header.kind, kind::HEADERS | kind::DATA) && header.has(flag::END_STREAM);
    }
}

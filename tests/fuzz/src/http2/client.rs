//! What a client that counts knows: what it sent, and what it let the server send.

use std::collections::BTreeMap;

use bytes::BytesMut;
use ringbolt_server::http2::StreamId;
use ringbolt_server::http2::frame::{FrameHeader, HEADER_BYTES, PREFACE, kind};

/// A frame's bytes.
#[must_use]
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    FrameHeader { length: payload.len(), kind, flags, stream: StreamId(stream) }.put(&mut out);
    out.extend_from_slice(payload);
    out.to_vec()
}

/// A client's books. Windows are counted as if nothing ever closed one, so what they allow is what
/// a correct server stays within whatever else happened.
#[derive(Default)]
pub struct Client {
    sent: Vec<u8>,
    /// Where in `sent` the next frame begins.
    at: usize,
    granted: u64,
    initial_max: u64,
    granted_of: BTreeMap<u32, u64>,
    heard: Vec<u8>,
    data: u64,
    data_of: BTreeMap<u32, u64>,
}

impl Client {
    /// How much was sent.
    pub fn sent_bytes(&self) -> usize {
        self.sent.len()
    }

    /// The client sends this.
    pub fn sends(&mut self, bytes: &[u8]) {
        self.sent.extend(bytes);
        self.at = self.at.max(PREFACE.len());
        while let Some(header) = self.sent.get(self.at..).and_then(FrameHeader::parse) {
            let start = self.at + HEADER_BYTES;
            let Some(payload) = self.sent.get(start..start + header.length) else { return };
            match (header.kind, payload) {
                (kind::WINDOW_UPDATE, [a, b, c, d]) => {
                    let more = u64::from(u32::from_be_bytes([*a, *b, *c, *d]) & 0x7fff_ffff);
                    if header.stream.0 == 0 {
                        self.granted += more;
                    } else {
                        *self.granted_of.entry(header.stream.0).or_default() += more;
                    }
                }
                (kind::SETTINGS, _) => {
                    for setting in payload.chunks_exact(6).filter(|setting| setting[..2] == [0, 4])
                    {
                        let size =
                            u32::from_be_bytes(setting[2..].try_into().expect("six less two"));
                        self.initial_max = self.initial_max.max(u64::from(size));
                    }
                }
                _ => {}
            }
            self.at = start + header.length;
        }
    }

    /// The server sent this.
    pub fn hears(&mut self, bytes: &[u8]) {
        self.heard.extend(bytes);
        let mut at = 0;
        while let Some(header) = FrameHeader::parse(&self.heard[at..]) {
            assert!(header.length <= 16_384, "F3: a frame of {}", header.length);
            assert!(header.kind <= kind::CONTINUATION, "F3: {header:?}");
            if self.heard.len() < at + HEADER_BYTES + header.length {
                break;
            }
            if header.kind == kind::DATA {
                self.hears_data(header);
            }
            at += HEADER_BYTES + header.length;
        }
        self.heard.drain(..at);
    }

    fn hears_data(&mut self, header: FrameHeader) {
        let size = u64::try_from(header.length).expect("24 bits");
        self.data += size;
        let allowed = 65_535 + self.granted;
        assert!(self.data <= allowed, "F3: {} of {allowed} on the connection", self.data);
        let stream = header.stream.0;
        let of = self.data_of.entry(stream).or_default();
        *of += size;
        let granted = self.granted_of.get(&stream).copied().unwrap_or_default();
        let allowed = self.initial_max.max(65_535) + granted;
        assert!(*of <= allowed, "F3: {of} of {allowed} on stream {stream}");
    }

    /// Everything that was sent was whole frames.
    pub fn heard_whole(&self) {
        assert!(self.heard.is_empty(), "F3: {} bytes of a frame", self.heard.len());
    }
}

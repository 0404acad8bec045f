//! Frames: their header, types, flags and error codes. Source: RFC 9113 4 and 6.
//!
//! ```text
//! 0        3      4       5                    9
//! | length | type | flags | R | stream id (31) | payload …
//! ```
//! Big-endian.

use bytes::{BufMut, BytesMut};

/// What a client sends before its first frame. Source: RFC 9113 3.4.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Size of a frame header.
pub const HEADER_BYTES: usize = 9;

/// Frame types.
pub mod kind {
    #![allow(missing_docs, reason = "the names are those of RFC 9113 6")]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Frame flags.
pub mod flag {
    #![allow(missing_docs, reason = "the names are those of RFC 9113 6")]
    pub const END_STREAM: u8 = 0x1;
    pub const ACK: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// Settings.
pub mod setting {
    #![allow(missing_docs, reason = "the names are those of RFC 9113 6.5.2")]
    pub const HEADER_TABLE_SIZE: u16 = 1;
    pub const ENABLE_PUSH: u16 = 2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    pub const MAX_FRAME_SIZE: u16 = 5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// An error code. Source: RFC 9113 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ErrorCode(pub u32);

#[allow(missing_docs, reason = "the names are those of RFC 9113 7")]
impl ErrorCode {
    pub const NO_ERROR: ErrorCode = ErrorCode(0);
    pub const PROTOCOL: ErrorCode = ErrorCode(1);
    pub const INTERNAL: ErrorCode = ErrorCode(2);
    pub const FLOW_CONTROL: ErrorCode = ErrorCode(3);
    pub const STREAM_CLOSED: ErrorCode = ErrorCode(5);
    pub const FRAME_SIZE: ErrorCode = ErrorCode(6);
    pub const REFUSED_STREAM: ErrorCode = ErrorCode(7);
    pub const CANCEL: ErrorCode = ErrorCode(8);
    pub const COMPRESSION: ErrorCode = ErrorCode(9);
    pub const ENHANCE_YOUR_CALM: ErrorCode = ErrorCode(11);
}

/// Names a stream of a connection. 0 is the connection itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u32);

impl StreamId {
    /// The connection itself.
    pub const CONNECTION: StreamId = StreamId(0);
    /// The greatest id there is.
    pub const MAX: StreamId = StreamId(0x7fff_ffff);
}

/// A parsed frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Size of the payload in bytes.
    pub length: usize,
    /// One of [`kind`], or something unknown.
    pub kind: u8,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Which stream.
    pub stream: StreamId,
}

impl FrameHeader {
    /// Reads a header from the front of `bytes`; `None` when fewer than nine are there.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<FrameHeader> {
        let (head, _) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let [a, b, c, kind, flags, d, e, f, g] = *head;
        Some(FrameHeader {
            length: (usize::from(a) << 16) | (usize::from(b) << 8) | usize::from(c),
            kind,
            flags,
            stream: StreamId(u32::from_be_bytes([d, e, f, g]) & StreamId::MAX.0),
        })
    }

    /// Appends the header to `out`.
    pub fn put(self, out: &mut BytesMut) {
        let length = u32::try_from(self.length).expect("frames are cut to the peer's frame size");
        let [zero, a, b, c] = length.to_be_bytes();
        assert_eq!(zero, 0, "a frame length has 24 bits");
        let [d, e, f, g] = self.stream.0.to_be_bytes();
        out.put_slice(&[a, b, c, self.kind, self.flags, d, e, f, g]);
    }

    /// Whether `flag` is set.
    #[must_use]
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a SETTINGS frame.
pub fn put_settings(out: &mut BytesMut, settings: &[(u16, u32)]) {
    let length = settings.len() * 6;
    put_header(out, length, kind::SETTINGS, 0, StreamId::CONNECTION);
    for (id, value) in settings {
        out.put_u16(*id);
        out.put_u32(*value);
    }
}

/// Appends the acknowledgement of a SETTINGS frame.
pub fn put_settings_ack(out: &mut BytesMut) {
    put_header(out, 0, kind::SETTINGS, flag::ACK, StreamId::CONNECTION);
}

/// Appends a PING frame.
pub fn put_ping(out: &mut BytesMut, ack: bool, payload: [u8; 8]) {
    put_header(out, 8, kind::PING, if ack { flag::ACK } else { 0 }, StreamId::CONNECTION);
    out.put_slice(&payload);
}

/// Appends a GOAWAY frame.
pub fn put_goaway(out: &mut BytesMut, last: StreamId, code: ErrorCode, text: &str) {
    put_header(out, 8 + text.len(), kind::GOAWAY, 0, StreamId::CONNECTION);
    out.put_u32(last.0);
    out.put_u32(code.0);
    out.put_slice(text.as_bytes());
}

/// Appends a WINDOW_UPDATE frame.
pub fn put_window_update(out: &mut BytesMut, stream: StreamId, increment: u32) {
    assert!(increment > 0, "a window grows by something");
    put_header(out, 4, kind::WINDOW_UPDATE, 0, stream);
    out.put_u32(increment);
}

/// Appends an RST_STREAM frame.
pub fn put_reset(out: &mut BytesMut, stream: StreamId, code: ErrorCode) {
    put_header(out, 4, kind::RST_STREAM, 0, stream);
    out.put_u32(code.0);
}

fn put_header(out: &mut BytesMut, length: usize, kind: u8, flags: u8, stream: StreamId) {
    FrameHeader { length, kind, flags, stream }.put(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header survives the trip, and the reserved bit is ignored.
    #[test]
    fn header_round_trip() {
        let header = FrameHeader { length: 0x01_0203, kind: 9, flags: 5, stream: StreamId(77) };
        let mut out = BytesMut::new();
        header.put(&mut out);
        assert_eq!(&out[..], [1, 2, 3, 9, 5, 0, 0, 0, 77]);
        assert_eq!(FrameHeader::parse(&out), Some(header));
        out[5] |= 0x80;
        assert_eq!(FrameHeader::parse(&out), Some(header));
        assert_eq!(FrameHeader::parse(&out[..8]), None);
    }
}

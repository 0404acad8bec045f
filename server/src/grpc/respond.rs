//! Header blocks of answers.

use bytes::{Bytes, BytesMut};

use super::status::{Code, Status, encode_message};
use crate::http2::hpack::encode::{put_content_type, put_field, put_status};

/// `:status: 200` and `content-type: application/grpc`.
const PLAIN_HEADERS: &[u8] = b"\x88\x0f\x10\x10application/grpc";
/// `grpc-status: 0` and an empty `grpc-message`.
const OK_TRAILERS: &[u8] = b"\x00\x0bgrpc-status\x010\x00\x0cgrpc-message\x00";

/// Response headers.
#[must_use]
pub fn headers(content_type: Option<&Bytes>) -> Bytes {
    let Some(content_type) = content_type else { return Bytes::from_static(PLAIN_HEADERS) };
    let mut out = BytesMut::new();
    put_status(&mut out, 200);
    put_content_type(&mut out, content_type);
    out.freeze()
}

/// Trailers after response headers.
#[must_use]
pub fn trailers(status: &Status) -> Bytes {
    if status.code == Code::Ok {
        return Bytes::from_static(OK_TRAILERS);
    }
    let mut out = BytesMut::new();
    put_grpc_status(&mut out, status);
    out.freeze()
}

/// Headers and trailers in one, for a call that ends before it answered anything.
#[must_use]
pub fn trailers_only(http: u16, content_type: Option<&Bytes>, status: &Status) -> Bytes {
    let mut out = BytesMut::new();
    put_status(&mut out, http);
    put_content_type(&mut out, content_type.map_or(b"application/grpc", |value| &value[..]));
    put_grpc_status(&mut out, status);
    if status.message.starts_with("grpc: Decompressor is not installed") {
        put_field(&mut out, b"grpc-accept-encoding", b"gzip");
    }
    out.freeze()
}

fn put_grpc_status(out: &mut BytesMut, status: &Status) {
    let number = status.code.number().to_string();
    put_field(out, b"grpc-status", number.as_bytes());
    put_field(out, b"grpc-message", encode_message(&status.message).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::hpack::Decoder;

    /// The blocks that are spelled out are what the encoder would give.
    #[test]
    fn constants_are_right() {
        let mut out = BytesMut::new();
        put_status(&mut out, 200);
        put_content_type(&mut out, b"application/grpc");
        assert_eq!(out, PLAIN_HEADERS);
        let mut out = BytesMut::new();
        put_grpc_status(&mut out, &Status::OK);
        assert_eq!(out, OK_TRAILERS);
    }

    /// An immediate error is one block.
    #[test]
    fn trailers_only_block() {
        let status = Status::new(Code::NotFound, "no\nway");
        let block = trailers_only(200, None, &status);
        let mut fields = Vec::new();
        assert_eq!(Decoder::default().decode(&block, &mut fields), Ok(true));
        let texts: Vec<_> = fields
            .iter()
            .map(|(name, value)| {
                format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
            })
            .collect();
        let expected = [
            ":status=200",
            "content-type=application/grpc",
            "grpc-status=5",
            "grpc-message=no%0Away",
        ];
        assert_eq!(texts, expected);
    }
}

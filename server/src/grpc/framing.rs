//! Messages in a stream of payload, and back.
//!
//! ```text
//! | compressed (0 or 1) | length, big-endian (4) | message …
//! ```

use std::io::Read;

use bytes::{Buf, Bytes, BytesMut};
use flate2::read::GzDecoder;
use ringbolt_engine::limits::TXN_MESSAGES_DEEP_MAX;
use ringbolt_proto::method::Mode;
use ringbolt_proto::schema::Described;
use ringbolt_proto::wire::{self, Fault};

use super::request::Encoding;
use super::status::{Code, Status};

/// Size of what precedes each message.
pub const PREFIX_BYTES: usize = 5;

/// A whole message as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its bytes are in the encoding the request named.
    pub compressed: bool,
    /// The bytes after the prefix.
    pub bytes: Bytes,
}

/// Cuts the payload of one stream into messages. A message that came in one piece is not copied.
#[derive(Debug, Default)]
pub struct Assembler {
    /// Prefix and beginning of a message whose end has not come.
    partial: BytesMut,
    /// A broken prefix came: nothing after it makes sense.
    broken: bool,
}

impl Assembler {
    /// Takes the next payload and hands each message that it completes to `give`; an error once,
    /// after which the rest is ignored.
    pub fn feed(
        &mut self,
        mut bytes: Bytes,
        size_max: usize,
        mut give: impl FnMut(Result<Message, Status>),
    ) {
        while !self.broken && !bytes.is_empty() {
            let outcome = if self.partial.is_empty() {
                self.cut_front(&mut bytes, size_max)
            } else {
                self.cut_partial(&mut bytes, size_max)
            };
            match outcome {
                Ok(None) => {}
                Ok(Some(message)) => give(Ok(message)),
                Err(status) => {
                    self.broken = true;
                    self.partial = BytesMut::new();
                    give(Err(status));
                }
            }
        }
    }

    /// How a stream ends that ends here without the message it needs. Source: observed of etcd.
    #[must_use]
    pub fn cut_short(&self) -> Status {
        match self.partial.len() {
            0 => Status::new(
                Code::Internal,
                "cardinality violation: received no request message from non-client-streaming RPC",
            ),
            1..PREFIX_BYTES => Status::new(Code::Unknown, "EOF"),
            _ => Status::new(Code::Unknown, "unexpected EOF"),
        }
    }

    /// Memory held for an incomplete message.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.partial.capacity()
    }

    fn cut_front(&mut self, bytes: &mut Bytes, size_max: usize) -> Result<Option<Message>, Status> {
        let parsed = parse_prefix(bytes, size_max)?;
        match parsed {
            Some((compressed, size)) if bytes.len() >= PREFIX_BYTES + size => {
                let mut bytes = bytes.split_to(PREFIX_BYTES + size);
                bytes.advance(PREFIX_BYTES);
                Ok(Some(Message { compressed, bytes }))
            }
            _ => {
                // Room for the message is made as it comes, not as it is announced.
                self.partial.extend_from_slice(bytes);
                bytes.clear();
                Ok(None)
            }
        }
    }

    fn cut_partial(
        &mut self,
        bytes: &mut Bytes,
        size_max: usize,
    ) -> Result<Option<Message>, Status> {
        let whole = match parse_prefix(&self.partial, size_max)? {
            None => PREFIX_BYTES,
            Some((_, size)) => PREFIX_BYTES + size,
        };
        let taken = bytes.len().min(whole - self.partial.len());
        self.partial.extend_from_slice(&bytes[..taken]);
        bytes.advance(taken);
        match parse_prefix(&self.partial, size_max)? {
            Some((compressed, size)) if self.partial.len() == PREFIX_BYTES + size => {
                let mut bytes = std::mem::take(&mut self.partial).freeze();
                bytes.advance(PREFIX_BYTES);
                Ok(Some(Message { compressed, bytes }))
            }
            _ => Ok(None),
        }
    }
}

/// Reads a prefix, when it is all there: whether the message is compressed, and its size.
fn parse_prefix(bytes: &[u8], size_max: usize) -> Result<Option<(bool, usize)>, Status> {
    let Some(([flag, size @ ..], _)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
        return Ok(None);
    };
    let compressed = match flag {
        0 => false,
        1 => true,
        other => {
            let text = format!("grpc: received unexpected payload format {other}");
            return Err(Status::new(Code::Internal, text));
        }
    };
    let size = usize::try_from(u32::from_be_bytes(*size)).unwrap_or(usize::MAX);
    if size > size_max {
        return Err(too_large("", size, size_max));
    }
    Ok(Some((compressed, size)))
}

fn too_large(after: &str, size: usize, size_max: usize) -> Status {
    let text = format!("grpc: received message {after}larger than max ({size} vs. {size_max})");
    Status::new(Code::ResourceExhausted, text)
}

impl Message {
    /// What it holds.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The message itself, its compression undone.
    ///
    /// # Errors
    /// The status the call ends with: broken or too large compressed data, compression that was
    /// not announced.
    pub fn open(self, encoding: Encoding, size_max: usize) -> Result<Bytes, Status> {
        if !self.compressed {
            return Ok(self.bytes);
        }
        if encoding == Encoding::Identity {
            let text = "grpc: compressed flag set with identity or empty encoding";
            return Err(Status::new(Code::Internal, text));
        }
        let mut out = Vec::new();
        let limit = u64::try_from(size_max).unwrap_or(u64::MAX).saturating_add(1);
        let outcome = GzDecoder::new(&self.bytes[..]).take(limit).read_to_end(&mut out);
        if let Err(error) = outcome {
            let why = match error.kind() {
                std::io::ErrorKind::UnexpectedEof => "unexpected EOF",
                _ => "gzip: invalid header",
            };
            let text = format!("grpc: failed to decompress the message: {why}");
            return Err(Status::new(Code::Internal, text));
        }
        if out.len() > size_max {
            return Err(too_large("after decompression ", out.len(), size_max));
        }
        Ok(Bytes::from(out))
    }
}

/// The prefix of an uncompressed message of `size` bytes.
#[must_use]
pub fn prefix(size: usize) -> [u8; PREFIX_BYTES] {
    let size = u32::try_from(size).expect("answers are cut below 4 GiB before they are framed");
    let [a, b, c, d] = size.to_be_bytes();
    [0, a, b, c, d]
}

/// Decodes a request as etcd does. Its stack is bounded however deep messages lie in each other:
/// of a nested transaction only the levels that the engine looks at are decoded.
///
/// # Errors
/// `Internal` with etcd's text when the bytes are no such message. The text depends on `mode`:
/// only a unary method has its request unmarshalled before its handler.
pub fn unmarshal<T>(bytes: Bytes, mode: Mode) -> Result<T, Status>
where
    T: prost::Message + Described + Default,
{
    let what = match mode {
        Mode::Unary => "grpc: error unmarshalling request",
        Mode::ServerStream | Mode::Bidi => "grpc: failed to unmarshal the received message",
    };
    let refused = |why| Status::new(Code::Internal, format!("{what}: {why}"));
    let sifted = wire::sift(bytes, T::SCHEMA, TXN_MESSAGES_DEEP_MAX).map_err(|fault| {
        refused(match fault {
            Fault::Invalid => "proto: cannot parse invalid wire-format data",
            Fault::TooDeep => "proto: exceeded maximum recursion depth",
            Fault::NotText => "string field contains invalid UTF-8",
        })
    })?;
    T::decode(sifted).map_err(|_| refused("proto: cannot parse invalid wire-format data"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        for message in messages {
            out.extend(prefix(message.len()));
            out.extend(message);
        }
        out
    }

    proptest! {
        /// However the payload is cut, the same messages come out.
        #[test]
        fn any_split_gives_the_messages(
            messages in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 0..40), 0..6),
            cuts in proptest::collection::vec(1_usize..30, 0..40),
        ) {
            let all = Bytes::from(framed(&messages));
            let mut assembler = Assembler::default();
            let mut got = Vec::new();
            let mut rest = all.clone();
            for cut in cuts.into_iter().chain(std::iter::repeat(1000)) {
                if rest.is_empty() {
                    break;
                }
                let piece = rest.split_to(cut.min(rest.len()));
                assembler.feed(piece, 1000, |message| got.push(message.unwrap().bytes.to_vec()));
            }
            prop_assert_eq!(got, messages);
            prop_assert!(assembler.partial.is_empty());
        }

        /// Arbitrary bytes never panic and hold no more than they are.
        #[test]
        fn arbitrary_payload(pieces in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..50), 0..20)) {
            let mut assembler = Assembler::default();
            for piece in pieces {
                assembler.feed(Bytes::from(piece), 100, |message| {
                    let _ = message.map(|message| message.open(Encoding::Gzip, 100));
                });
            }
        }
    }

    /// A message above the limit is refused by its prefix, with the numbers, and only once.
    #[test]
    fn too_large_by_prefix() {
        let mut assembler = Assembler::default();
        let mut got = Vec::new();
        for _ in 0..2 {
            assembler.feed(Bytes::from_static(&[0, 0, 0, 0, 11]), 10, |message| got.push(message));
        }
        let text = "grpc: received message larger than max (11 vs. 10)";
        assert_eq!(got, [Err(Status::new(Code::ResourceExhausted, text))]);
    }

    /// Compression is undone, but not beyond the limit, and not when it was not announced.
    #[test]
    fn gzip() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&[7; 1000]).unwrap();
        let bytes = Bytes::from(encoder.finish().unwrap());
        let message = Message { compressed: true, bytes };
        assert_eq!(message.clone().open(Encoding::Gzip, 1000).unwrap(), vec![7; 1000]);
        let status = message.clone().open(Encoding::Gzip, 999).unwrap_err();
        assert_eq!(status.code, Code::ResourceExhausted);
        let status = message.clone().open(Encoding::Identity, 1000).unwrap_err();
        assert_eq!(status.code, Code::Internal);
        let broken = Message { compressed: true, bytes: message.bytes.slice(..20) };
        assert_eq!(broken.open(Encoding::Gzip, 1000).unwrap_err().code, Code::Internal);
    }
}

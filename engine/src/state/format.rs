//! The bytes of a command in the log.
//!
//! ```text
//!   offset  size  what
//!   0       1     format version, 1
//!   1       1     kind, see `Kind`
//!   2       2     flags, little-endian; none is defined: 0
//!   4       ...   body, to the end: the request as a protobuf message of etcd's API, or for our
//!                 own kinds the fields listed at `encode_body`
//! ```
//!
//! An entry of no bytes at all is [`Command::Nothing`]: raft appends one when a term begins.
//! A command is valid when version, kind and flags are known and the body parses to its end. There
//! is no checksum: the log has its own around each batch. Integers of our own kinds are
//! little-endian and of fixed width; a text is a `u32` length and its UTF-8 bytes.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use super::command::Command;
use super::members::{Member, Members};
use crate::types::{MemberId, Revision};

/// The version this build writes. It reads no other.
pub const COMMAND_FORMAT_VERSION: u8 = 1;
/// Bytes before the body.
pub const COMMAND_HEADER_SIZE: usize = 4;

/// Kinds of commands on disk. A number is never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Nothing = 0,
    Put = 1,
    DeleteRange = 2,
    Txn = 3,
    Compact = 4,
    LeaseGrant = 5,
    LeaseRevoke = 6,
    Alarm = 7,
    Fence = 8,
    MemberAttributes = 9,
    Membership = 10,
    ClusterVersion = 11,
}

impl Command {
    /// The command's bytes for the log, in one allocation of exactly their size.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        match self {
            Command::Nothing => own(Kind::Nothing, |_| ()),
            Command::Put(request) => message(Kind::Put, request),
            Command::DeleteRange(request) => message(Kind::DeleteRange, request),
            Command::Txn(request) => message(Kind::Txn, request),
            Command::Compact(request) => message(Kind::Compact, request),
            Command::LeaseGrant(request) => message(Kind::LeaseGrant, request),
            Command::LeaseRevoke(request) => message(Kind::LeaseRevoke, request),
            Command::Alarm(request) => message(Kind::Alarm, request),
            // i64 revision, i64 compacted.
            Command::Fence { revision, compacted } => own(Kind::Fence, |out| {
                out.put_i64_le(revision.0);
                out.put_i64_le(compacted.0);
            }),
            // u64 member, text name, texts client URLs.
            Command::MemberAttributes { member, name, client_urls } => {
                own(Kind::MemberAttributes, |out| {
                    out.put_u64_le(member.0);
                    put_text(out, name);
                    put_texts(out, client_urls);
                })
            }
            Command::Membership(members) => own(Kind::Membership, |out| put_members(out, members)),
            Command::ClusterVersion(version) => {
                own(Kind::ClusterVersion, |out| put_text(out, version))
            }
        }
    }

    /// Reads a command back. Keys and values share `bytes`; nothing is copied.
    ///
    /// *Errors*: a text that says what is wrong. The entry passed the log's checksum, so it was
    /// written by another version or by a mistake of ours: the caller stops.
    pub fn decode(mut bytes: Bytes) -> Result<Command, String> {
        if bytes.is_empty() {
            return Ok(Command::Nothing);
        }
        if bytes.len() < COMMAND_HEADER_SIZE {
            return Err(format!("command of {} bytes is shorter than its header", bytes.len()));
        }
        let body = bytes.split_off(COMMAND_HEADER_SIZE);
        let (version, kind) = (bytes[0], bytes[1]);
        let flags = u16::from_le_bytes([bytes[2], bytes[3]]);
        if version != COMMAND_FORMAT_VERSION {
            return Err(format!(
                "command format {version}, this build reads {COMMAND_FORMAT_VERSION}"
            ));
        }
        if flags != 0 {
            return Err(format!("command flags {flags:#06x} are unknown"));
        }
        let kind =
            Kind::from_byte(kind).ok_or_else(|| format!("command kind {kind} is unknown"))?;
        decode_body(kind, body).map_err(|error| format!("command {kind:?}: {error}"))
    }
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        const KINDS: [Kind; 12] = [
            Kind::Nothing,
            Kind::Put,
            Kind::DeleteRange,
            Kind::Txn,
            Kind::Compact,
            Kind::LeaseGrant,
            Kind::LeaseRevoke,
            Kind::Alarm,
            Kind::Fence,
            Kind::MemberAttributes,
            Kind::Membership,
            Kind::ClusterVersion,
        ];
        KINDS.get(usize::from(byte)).copied()
    }
}

fn header(out: &mut BytesMut, kind: Kind) {
    out.put_u8(COMMAND_FORMAT_VERSION);
    out.put_u8(kind as u8);
    out.put_u16_le(0);
}

fn message(kind: Kind, request: &impl Message) -> Bytes {
    let mut out = BytesMut::with_capacity(COMMAND_HEADER_SIZE + request.encoded_len());
    header(&mut out, kind);
    request.encode(&mut out).expect("the buffer has room for the encoded length");
    out.freeze()
}

fn own(kind: Kind, body: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    header(&mut out, kind);
    body(&mut out);
    out.freeze()
}

fn decode_body(kind: Kind, body: Bytes) -> Result<Command, String> {
    match kind {
        Kind::Put => parse(body).map(Command::Put),
        Kind::DeleteRange => parse(body).map(Command::DeleteRange),
        Kind::Txn => parse(body).map(Command::Txn),
        Kind::Compact => parse(body).map(Command::Compact),
        Kind::LeaseGrant => parse(body).map(Command::LeaseGrant),
        Kind::LeaseRevoke => parse(body).map(Command::LeaseRevoke),
        Kind::Alarm => parse(body).map(Command::Alarm),
        Kind::Nothing
        | Kind::Fence
        | Kind::MemberAttributes
        | Kind::Membership
        | Kind::ClusterVersion => {
            let mut fields = Fields::new(&body);
            let command = match kind {
                Kind::Fence => {
                    Command::Fence { revision: fields.revision()?, compacted: fields.revision()? }
                }
                Kind::MemberAttributes => Command::MemberAttributes {
                    member: MemberId(fields.u64()?),
                    name: fields.text()?,
                    client_urls: fields.texts()?,
                },
                Kind::Membership => Command::Membership(fields.members()?),
                Kind::ClusterVersion => Command::ClusterVersion(fields.text()?),
                _ => Command::Nothing,
            };
            fields.finish()?;
            Ok(command)
        }
    }
}

fn parse<M: Message + Default>(body: Bytes) -> Result<M, String> {
    M::decode(body).map_err(|error| error.to_string())
}

/// Writes a text: `u32` length, bytes.
pub(super) fn put_text(out: &mut BytesMut, text: &str) {
    out.put_u32_le(u32::try_from(text.len()).expect("names and URLs are far below 4 GiB"));
    out.put_slice(text.as_bytes());
}

/// Writes a list of texts: `u32` count, texts.
pub(super) fn put_texts(out: &mut BytesMut, texts: &[String]) {
    out.put_u32_le(u32::try_from(texts.len()).expect("a member has few URLs"));
    for text in texts {
        put_text(out, text);
    }
}

/// Writes a member record:
///
/// ```text
///   u32 count, then for each member in the order of ids:
///       u64 id, u64 raft id, text name, texts peer URLs, texts client URLs, u8 learner (0 or 1)
///   u32 count, then u64 for each id that was removed
/// ```
pub(super) fn put_members(out: &mut BytesMut, members: &Members) {
    out.put_u32_le(u32::try_from(members.len()).expect("a cluster has few members"));
    for member in members.iter() {
        out.put_u64_le(member.id.0);
        out.put_u64_le(member.raft_id);
        put_text(out, &member.name);
        put_texts(out, &member.peer_urls);
        put_texts(out, &member.client_urls);
        out.put_u8(u8::from(member.is_learner));
    }
    out.put_u32_le(u32::try_from(members.removed().len()).expect("few members ever leave"));
    for id in members.removed() {
        out.put_u64_le(id.0);
    }
}

/// Reads fields one after another and never past the end.
pub(super) struct Fields<'a> {
    left: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Starts at the first byte.
    pub(super) fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields { left: bytes }
    }

    /// The next `size` bytes.
    pub(super) fn take(&mut self, size: usize) -> Result<&'a [u8], String> {
        let Some((taken, left)) = self.left.split_at_checked(size) else {
            return Err(format!("{size} bytes expected, {} left", self.left.len()));
        };
        self.left = left;
        Ok(taken)
    }

    fn array<const SIZE: usize>(&mut self) -> Result<[u8; SIZE], String> {
        Ok(self.take(SIZE)?.try_into().expect("take gives exactly SIZE bytes"))
    }

    /// One byte.
    pub(super) fn u8(&mut self) -> Result<u8, String> {
        Ok(self.array::<1>()?[0])
    }

    /// A `u32`.
    pub(super) fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    /// An `i32`.
    pub(super) fn i32(&mut self) -> Result<i32, String> {
        self.array().map(i32::from_le_bytes)
    }

    /// A `u64`.
    pub(super) fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    /// An `i64`.
    pub(super) fn i64(&mut self) -> Result<i64, String> {
        self.array().map(i64::from_le_bytes)
    }

    fn revision(&mut self) -> Result<Revision, String> {
        self.i64().map(Revision)
    }

    /// A count of things of at least `size_min` bytes each, so that a wrong count cannot ask for
    /// more memory than there are bytes.
    pub(super) fn count(&mut self, size_min: usize) -> Result<usize, String> {
        let count = usize::try_from(self.u32()?).map_err(|error| error.to_string())?;
        if count.saturating_mul(size_min) > self.left.len() {
            return Err(format!("count {count} does not fit {} bytes", self.left.len()));
        }
        Ok(count)
    }

    /// A text.
    pub(super) fn text(&mut self) -> Result<String, String> {
        let size = self.count(1)?;
        let bytes = self.take(size)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|error| error.to_string())
    }

    /// A list of texts.
    pub(super) fn texts(&mut self) -> Result<Vec<String>, String> {
        let count = self.count(4)?;
        (0..count).map(|_| self.text()).collect()
    }

    /// A member record.
    pub(super) fn members(&mut self) -> Result<Members, String> {
        let mut members = Members::default();
        for _ in 0..self.count(29)? {
            let member = self.member()?;
            let id = member.id;
            if !members.insert(member) {
                return Err(format!("member {id} is listed twice"));
            }
        }
        for _ in 0..self.count(8)? {
            members.mark_removed(MemberId(self.u64()?));
        }
        Ok(members)
    }

    fn member(&mut self) -> Result<Member, String> {
        Ok(Member {
            id: MemberId(self.u64()?),
            raft_id: self.u64()?,
            name: self.text()?,
            peer_urls: self.texts()?,
            client_urls: self.texts()?,
            is_learner: match self.u8()? {
                0 => false,
                1 => true,
                other => return Err(format!("learner flag {other}")),
            },
        })
    }

    /// Nothing may be left.
    pub(super) fn finish(self) -> Result<(), String> {
        if self.left.is_empty() { Ok(()) } else { Err(format!("{} bytes left", self.left.len())) }
    }
}

#[cfg(test)]
mod tests;

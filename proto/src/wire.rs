//! A request's bytes before prost decodes them.
//!
//! etcd's decoder is Go's, and prost differs from it in three ways that a client can see: a known
//! field of another wire type is unknown to Go and an error to prost; Go takes 10 000 messages in
//! each other, prost takes 100 or overflows the stack; and Go skips groups of any depth. So the
//! bytes are walked first, in a loop and not by recursion, in the order in which Go would find
//! fault with them. What prost must not see is left out; most requests have nothing of the kind and
//! are passed on as they are.
//!
//! Source: the protobuf encoding text; answers of etcd 3.7.3, `tests/compare/wire.txt`.

use bytes::Bytes;

use crate::schema::{Kind, Schema};

/// Messages in each other, the outermost counted, that Go takes.
pub const MESSAGES_DEEP_MAX: usize = 10_000;
/// Groups in each other that Go skips.
pub const GROUPS_DEEP_MAX: usize = 10_001;

const FIELD_NUMBER_MAX: u64 = (1 << 29) - 1;
/// Inside a group that is skipped, Go takes numbers up to this.
const SKIPPED_NUMBER_MAX: u64 = (1 << 31) - 1;

/// Wire types.
const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
const BYTES: u8 = 2;
const GROUP: u8 = 3;
const GROUP_END: u8 = 4;
const FIXED_32: u8 = 5;

/// Why bytes are no such message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// They are no fields.
    Invalid,
    /// More than [`MESSAGES_DEEP_MAX`] messages in each other.
    TooDeep,
    /// A text that is not UTF-8.
    NotText,
}

/// Checks a message and leaves out what prost must not see: known fields of a wrong wire type,
/// groups, and messages more than `deep_max` deep in each other.
///
/// # Errors
/// The first fault, in the order of the bytes.
pub fn sift(bytes: Bytes, schema: &'static Schema, deep_max: usize) -> Result<Bytes, Fault> {
    let mut finds_any = false;
    walk(&bytes, schema, deep_max, |piece| finds_any |= matches!(piece, Piece::Left))?;
    if !finds_any {
        return Ok(bytes);
    }
    let mut pieces = Vec::new();
    walk(&bytes, schema, deep_max, |piece| pieces.push(piece))?;
    Ok(rebuild(&bytes, &pieces))
}

/// What a walk comes by, in order.
#[derive(Clone, Copy, Debug)]
enum Piece {
    /// A field that stays: from, to.
    Kept(usize, usize),
    /// A field that is left out.
    Left,
    /// The head of a message that stays: from, where its length begins.
    Open(usize, usize),
    /// Its end.
    Close,
}

/// A message that is being walked.
struct Level {
    schema: &'static Schema,
    end: usize,
    /// It stays.
    kept: bool,
}

fn walk(
    bytes: &[u8],
    schema: &'static Schema,
    deep_max: usize,
    mut find: impl FnMut(Piece),
) -> Result<(), Fault> {
    let mut above: Vec<Level> = Vec::new();
    let mut level = Level { schema, end: bytes.len(), kept: true };
    let mut at = 0;
    loop {
        if at == level.end {
            let Some(outer) = above.pop() else { return Ok(()) };
            if level.kept {
                find(Piece::Close);
            }
            level = outer;
            continue;
        }
        let start = at;
        let mut reader = Reader { bytes: &bytes[..level.end], at };
        let (number, wire) = reader.tag(FIELD_NUMBER_MAX)?;
        let length_at = reader.at;
        let kind = level.schema.kind_of(number);
        let fits = match (kind, wire) {
            (Some(Kind::Message(schema)), BYTES) => {
                let size = reader.size()?;
                if above.len() + 1 >= MESSAGES_DEEP_MAX {
                    return Err(Fault::TooDeep);
                }
                let kept = level.kept && above.len() + 1 < deep_max;
                if kept {
                    find(Piece::Open(start, length_at));
                } else if level.kept {
                    find(Piece::Left);
                }
                at = reader.at;
                let inner = Level { schema, end: at + size, kept };
                above.push(std::mem::replace(&mut level, inner));
                continue;
            }
            (Some(Kind::Number | Kind::Numbers), VARINT) => reader.varint().map(|_| true)?,
            (Some(Kind::Numbers), BYTES) => reader.numbers().map(|()| true)?,
            (Some(Kind::Bytes), BYTES) => reader.bytes().map(|_| true)?,
            (Some(Kind::Text), BYTES) => {
                let text = reader.bytes()?;
                std::str::from_utf8(text).map_err(|_| Fault::NotText)?;
                true
            }
            (_, GROUP) => reader.group(number).map(|()| false)?,
            // prost skips what it does not know as well.
            (known, wire) => reader.value(wire).map(|()| known.is_none())?,
        };
        at = reader.at;
        if level.kept {
            find(if fits { Piece::Kept(start, at) } else { Piece::Left });
        }
    }
}

/// The message of what stays, made from its end so that every length is known when it is written.
fn rebuild(bytes: &[u8], pieces: &[Piece]) -> Bytes {
    // What stays, with lengths that are no longer than they were, fits where all of it was.
    let mut out = vec![0; bytes.len()];
    let mut at = out.len();
    let mut put = |piece: &[u8], at: &mut usize| {
        *at -= piece.len();
        out[*at..*at + piece.len()].copy_from_slice(piece);
    };
    let mut ends = Vec::new();
    for piece in pieces.iter().rev() {
        match *piece {
            Piece::Left => {}
            Piece::Kept(from, to) => put(&bytes[from..to], &mut at),
            Piece::Close => ends.push(at),
            Piece::Open(from, length_at) => {
                let end = ends.pop().expect("a message that was opened was closed");
                let mut length = Vec::with_capacity(5);
                prost::encoding::encode_varint((end - at) as u64, &mut length);
                put(&length, &mut at);
                put(&bytes[from..length_at], &mut at);
            }
        }
    }
    Bytes::from(out).slice(at..)
}

/// Reads one message's bytes, to its end and no further.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, Fault> {
        let byte = self.bytes.get(self.at).ok_or(Fault::Invalid)?;
        self.at += 1;
        Ok(*byte)
    }

    /// At most ten bytes, of which the last holds one bit.
    fn varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return Err(Fault::Invalid);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Fault::Invalid)
    }

    fn tag(&mut self, number_max: u64) -> Result<(u64, u8), Fault> {
        let tag = self.varint()?;
        let number = tag >> 3;
        if number == 0 || number > number_max {
            return Err(Fault::Invalid);
        }
        let wire = u8::try_from(tag & 7).expect("three bits");
        Ok((number, wire))
    }

    /// A length within what is left.
    fn size(&mut self) -> Result<usize, Fault> {
        let size = usize::try_from(self.varint()?).map_err(|_| Fault::Invalid)?;
        if size > self.bytes.len() - self.at {
            return Err(Fault::Invalid);
        }
        Ok(size)
    }

    fn bytes(&mut self) -> Result<&'a [u8], Fault> {
        let size = self.size()?;
        let from = self.at;
        self.at += size;
        Ok(&self.bytes[from..self.at])
    }

    fn numbers(&mut self) -> Result<(), Fault> {
        let packed = self.bytes()?;
        let mut reader = Reader { bytes: packed, at: 0 };
        while reader.at < packed.len() {
            reader.varint()?;
        }
        Ok(())
    }

    fn skip(&mut self, count: usize) -> Result<(), Fault> {
        if count > self.bytes.len() - self.at {
            return Err(Fault::Invalid);
        }
        self.at += count;
        Ok(())
    }

    /// A value that is no group.
    fn value(&mut self, wire: u8) -> Result<(), Fault> {
        match wire {
            VARINT => self.varint().map(|_| ()),
            FIXED_64 => self.skip(8),
            BYTES => self.bytes().map(|_| ()),
            FIXED_32 => self.skip(4),
            _ => Err(Fault::Invalid),
        }
    }

    /// A group to its end.
    fn group(&mut self, number: u64) -> Result<(), Fault> {
        let mut open = vec![number];
        while let Some(innermost) = open.last() {
            let (number, wire) = self.tag(SKIPPED_NUMBER_MAX)?;
            match wire {
                GROUP if open.len() < GROUPS_DEEP_MAX => open.push(number),
                GROUP_END if number == *innermost => {
                    open.pop();
                }
                wire => self.value(wire)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

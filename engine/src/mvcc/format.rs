//! The bytes of the checkpoint stream: every version of a store, oldest first, in chunks.
//!
//! ```text
//! chunk (little-endian)
//!   0  u8   format, 1
//!   1  u8   flags: 1 first chunk, 2 last chunk; both may be set
//!   2  u16  zero
//!   4  u32  number of records
//!   8  i64  revision the stream is pinned to
//!  16  i64  compacted revision of the stream, -1 for never
//!  24       records
//!
//! record
//!   0  i64  main revision
//!   8  u32  sub revision
//!  12  u8   kind: 0 put, 1 delete
//!  13  [u8; 3] zero
//!  16  i64  create revision  (0 for a delete)
//!  24  i64  version          (0 for a delete)
//!  32  i64  lease            (0 for a delete)
//!  40  u32  key bytes, at least 1
//!  44  u32  value bytes      (0 for a delete)
//!  48       key, then value
//! ```
//!
//! A chunk is valid when its records fill it exactly, reserved bytes are zero and records ascend
//! by (main, sub). A torn chunk cannot be told from a short one here: whoever stores chunks frames
//! them with length and checksum. A reader takes format 1 only.

use crate::{LeaseId, Revision};

use super::view::{EventRef, Kind};

/// The format this code writes and reads.
const FORMAT: u8 = 1;
const FLAG_FIRST: u8 = 1;
const FLAG_LAST: u8 = 2;
/// Bytes before the first record of a chunk.
pub(super) const CHUNK_HEAD_BYTES: usize = 24;
/// Bytes of a record before its key.
pub(super) const RECORD_HEAD_BYTES: usize = 48;

/// What a chunk says about the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) first: bool,
    pub(super) last: bool,
    pub(super) records: u32,
    pub(super) revision: Revision,
    pub(super) compacted: Revision,
}

/// One decoded version, borrowed from the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) main: Revision,
    pub(super) sub: u32,
    pub(super) kind: Kind,
    pub(super) create: Revision,
    pub(super) version: i64,
    pub(super) lease: LeaseId,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

/// Starts a chunk; [`finish_chunk`] sets the count and the last flag.
pub(super) fn start_chunk(first: bool, revision: Revision, compacted: Revision) -> Vec<u8> {
    let mut out = Vec::with_capacity(CHUNK_HEAD_BYTES);
    out.extend_from_slice(&[FORMAT, if first { FLAG_FIRST } else { 0 }, 0, 0]);
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&revision.0.to_le_bytes());
    out.extend_from_slice(&compacted.0.to_le_bytes());
    assert_eq!(out.len(), CHUNK_HEAD_BYTES);
    out
}

/// Completes a chunk that [`start_chunk`] began.
pub(super) fn finish_chunk(chunk: &mut [u8], records: u32, last: bool) {
    chunk[4..8].copy_from_slice(&records.to_le_bytes());
    if last {
        chunk[1] |= FLAG_LAST;
    }
}

/// The bytes an event takes in a chunk.
pub(super) fn record_bytes(event: &EventRef<'_>) -> usize {
    RECORD_HEAD_BYTES + event.key.len() + event.value.len()
}

/// Appends one record.
pub(super) fn put_record(out: &mut Vec<u8>, event: &EventRef<'_>) {
    let size = |bytes: &[u8]| u32::try_from(bytes.len()).expect("a request is far below 4 GiB");
    let sub = u32::try_from(event.sub).expect("the writer counts subs in u32");
    out.extend_from_slice(&event.main.0.to_le_bytes());
    out.extend_from_slice(&sub.to_le_bytes());
    out.extend_from_slice(&[u8::from(event.kind == Kind::Delete), 0, 0, 0]);
    out.extend_from_slice(&event.create.0.to_le_bytes());
    out.extend_from_slice(&event.version.to_le_bytes());
    out.extend_from_slice(&event.lease.0.to_le_bytes());
    out.extend_from_slice(&size(event.key).to_le_bytes());
    out.extend_from_slice(&size(event.value).to_le_bytes());
    out.extend_from_slice(event.key);
    out.extend_from_slice(event.value);
}

/// Reads the head of a chunk; the records are what is left of `chunk`.
pub(super) fn take_head(chunk: &mut &[u8]) -> Result<Head, String> {
    let [format, flags, zero_low, zero_high] = *take_array::<4>(chunk)?;
    if format != FORMAT {
        return Err(format!("checkpoint chunk of format {format}, this version reads {FORMAT}"));
    }
    if flags & !(FLAG_FIRST | FLAG_LAST) != 0 || zero_low != 0 || zero_high != 0 {
        return Err(format!("checkpoint chunk with unknown flags {flags:#x}"));
    }
    let records = u32::from_le_bytes(*take_array(chunk)?);
    let revision = Revision(i64::from_le_bytes(*take_array(chunk)?));
    let compacted = Revision(i64::from_le_bytes(*take_array(chunk)?));
    let head = Head {
        first: flags & FLAG_FIRST != 0,
        last: flags & FLAG_LAST != 0,
        records,
        revision,
        compacted,
    };
    Ok(head)
}

/// Reads the next record of a chunk.
pub(super) fn take_record<'a>(chunk: &mut &'a [u8]) -> Result<Record<'a>, String> {
    let main = Revision(i64::from_le_bytes(*take_array(chunk)?));
    let sub = u32::from_le_bytes(*take_array(chunk)?);
    let kind = match *take_array::<4>(chunk)? {
        [0, 0, 0, 0] => Kind::Put,
        [1, 0, 0, 0] => Kind::Delete,
        other => return Err(format!("checkpoint record of kind {other:?}")),
    };
    let create = Revision(i64::from_le_bytes(*take_array(chunk)?));
    let version = i64::from_le_bytes(*take_array(chunk)?);
    let lease = LeaseId(i64::from_le_bytes(*take_array(chunk)?));
    let key_bytes = u32::from_le_bytes(*take_array(chunk)?);
    let value_bytes = u32::from_le_bytes(*take_array(chunk)?);
    let key = take_slice(chunk, key_bytes)?;
    let value = take_slice(chunk, value_bytes)?;
    Ok(Record { main, sub, kind, create, version, lease, key, value })
}

fn take_array<'a, const N: usize>(from: &mut &'a [u8]) -> Result<&'a [u8; N], String> {
    let Some((taken, rest)) = from.split_first_chunk::<N>() else {
        return Err(format!("checkpoint chunk ends {} bytes early", N - from.len()));
    };
    *from = rest;
    Ok(taken)
}

fn take_slice<'a>(from: &mut &'a [u8], size: u32) -> Result<&'a [u8], String> {
    let size = usize::try_from(size).map_err(|_| "record above the address space".to_string())?;
    let Some((taken, rest)) = from.split_at_checked(size) else {
        return Err(format!("checkpoint chunk ends {} bytes early", size - from.len()));
    };
    *from = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    //! Holds the bytes of a chunk, and proves that no cut or flipped byte makes the reader panic.
    use bytes::Bytes;

    use super::*;

    fn sample() -> Vec<u8> {
        let key = Bytes::from_static(b"key");
        let value = Bytes::from_static(b"v1");
        let mut chunk = start_chunk(true, Revision(7), Revision(3));
        let put = EventRef {
            main: Revision(5),
            sub: 2,
            kind: Kind::Put,
            key: &key,
            create: Revision(4),
            version: 9,
            lease: LeaseId(0x1122),
            value: &value,
            record: 0,
        };
        put_record(&mut chunk, &put);
        finish_chunk(&mut chunk, 1, true);
        chunk
    }

    #[test]
    fn golden_chunk() {
        let mut want = vec![1, 3, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
        want.extend([3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        want.extend([4, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        want.extend([0x22, 0x11, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0]);
        want.extend(b"keyv1");
        assert_eq!(sample(), want);
    }

    #[test]
    fn reads_back_what_it_wrote() {
        let bytes = sample();
        let mut rest = bytes.as_slice();
        let head = take_head(&mut rest).expect("head");
        assert!(head.first);
        assert!(head.last);
        assert_eq!((head.records, head.revision, head.compacted), (1, Revision(7), Revision(3)));
        let record = take_record(&mut rest).expect("record");
        assert_eq!((record.main, record.sub, record.kind), (Revision(5), 2, Kind::Put));
        assert_eq!((record.key, record.value), (b"key".as_slice(), b"v1".as_slice()));
        assert!(rest.is_empty());
    }

    #[test]
    fn every_cut_is_an_error() {
        let bytes = sample();
        for cut in 0..bytes.len() {
            let mut rest = &bytes[..cut];
            let read = take_head(&mut rest).and_then(|_| take_record(&mut rest));
            assert!(read.is_err(), "cut at {cut}");
        }
    }
}

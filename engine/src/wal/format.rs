//! The bytes of a log segment.
//!
//! A segment is a file of whole 4 KiB blocks. Batches follow each other from block 0 without a gap;
//! each begins on a block and is padded with zeros to the end of its last one. The first batch of a
//! segment is its start: it names what came before. Little-endian throughout.
//!
//! ```text
//! batch   0  4  magic "RBWB"
//!         4  2  format version, 1
//!         6  2  record count (65535 at most)
//!         8  4  crc32 of bytes 0..8 and 12..128
//!        12  4  crc32 of bytes 128.. to the end of the last block, padding included
//!        16  8  log id            drawn once per log
//!        24  8  sequence          of this batch, from 1, without a gap
//!        32  8  epoch             of the open that wrote it
//!        40  8  salt              of this life of the segment
//!        48  8  segment sequence  of the start of this segment: what an older segment holds at or
//!                                 above it was cut and does not exist
//!        56  8  chain             checksums of the batch before: header's << 32 | body's
//!        64  8  watermark         every batch up to it was durable when this one was formed
//!        72  8  term
//!        80  8  vote
//!        88  8  commit
//!        96  4  body bytes, without padding
//!       100 28  zeros
//!       128     records
//!
//! record  0  1  what: 1 entry, 2 checkpoint, 3 start
//!         1  1  kind of an entry, else 0
//!         2  2  zeros
//!         4  4  n, bytes that follow this head
//!         8  n  entry:       8 index, 8 term, data
//!               checkpoint:  8 index, 8 term, 8 root hash, file name
//!               start:       8 number of the previous segment (0: none), 8 its salt,
//!                            8 sequence of its last batch, 8 chain of its last batch
//! ```
//!
//! A batch is valid when both checksums hold, log id and salt are the segment's, sequence and chain
//! follow from the batch before. A torn tail is a block where that fails above the watermark: zeros
//! (nothing arrived), a batch of another salt (an earlier life), or a checksum that does not hold.
//! Checksums are CRC-32 as `crc32fast` computes it (IEEE polynomial).

use bytes::Bytes;
use ringbolt_io::planted::{self, Planted};

use crate::limits::{COUNTER_MAX, WAL_RECORD_BYTES_MAX};
use crate::types::{RaftIndex, Term};
use crate::wal::types::{Checkpoint, Entry, HardState};

/// Where batches begin.
pub const BLOCK_BYTES: usize = 4096;
/// Version of this format.
pub const VERSION: u16 = 1;
/// Bytes of a batch header.
pub const HEADER_BYTES: usize = 128;
/// Bytes of a record's head.
pub const RECORD_HEAD_BYTES: usize = 8;
/// Bytes an entry takes besides its data.
pub const ENTRY_OVERHEAD_BYTES: usize = RECORD_HEAD_BYTES + 16;
/// Records one batch holds at most.
pub const BATCH_RECORDS_MAX: usize = 0xffff;

const MAGIC: [u8; 4] = *b"RBWB";
const HEADER_USED_BYTES: usize = 100;
const CHECKPOINT_FIXED_BYTES: usize = 24;
const START_BYTES: usize = 32;

const WHAT_ENTRY: u8 = 1;
const WHAT_CHECKPOINT: u8 = 2;
const WHAT_START: u8 = 3;

const _: () = assert!(HEADER_BYTES + RECORD_HEAD_BYTES + START_BYTES <= BLOCK_BYTES);
const _: () = assert!(HEADER_USED_BYTES <= HEADER_BYTES);

/// The header of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The log.
    pub log_id: u64,
    /// The batch.
    pub sequence: u64,
    /// The open that wrote it.
    pub epoch: u64,
    /// This life of the segment.
    pub salt: u64,
    /// Sequence of the segment's start.
    pub segment_sequence: u64,
    /// Chain value of the batch before.
    pub chain: u64,
    /// Every batch up to it was durable when this one was formed.
    pub watermark: u64,
    /// Hard state once this batch is there.
    pub hard_state: HardState,
}

/// What a segment's start says of the segment before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Number of the previous segment; 0 when this is the first.
    pub previous: u64,
    /// Its salt.
    pub salt: u64,
    /// The last batch of it that exists.
    pub sequence: u64,
    /// Chain value of that batch.
    pub chain: u64,
}

/// One record of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A raft entry.
    Entry(Entry),
    /// Names a checkpoint.
    Checkpoint(Checkpoint),
    /// Begins a segment.
    Start(Start),
}

/// A batch as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Its header.
    pub header: Header,
    /// Its chain value, which the next batch repeats.
    pub chain: u64,
    /// Bytes it takes, padding included.
    pub size: usize,
    /// Its records.
    pub records: Vec<Record>,
}

/// The first look at a block: enough to know how much more to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peek {
    /// The header, whose checksum holds.
    pub header: Header,
    /// Format version.
    pub version: u16,
    /// Bytes the batch takes, padding included.
    pub size: usize,
}

/// Why bytes are not a batch. The text completes "found …".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad(pub String);

impl Record {
    /// Bytes this record takes.
    #[must_use]
    pub fn size(&self) -> usize {
        RECORD_HEAD_BYTES
            + match self {
                Record::Entry(entry) => 16 + entry.data.len(),
                Record::Checkpoint(checkpoint) => CHECKPOINT_FIXED_BYTES + checkpoint.file.len(),
                Record::Start(_) => START_BYTES,
            }
    }
}

/// Bytes of a batch whose records take `body_bytes`, padding included.
#[must_use]
pub fn batch_size(body_bytes: usize) -> usize {
    (HEADER_BYTES + body_bytes).next_multiple_of(BLOCK_BYTES)
}

/// Writes a batch into `into`, which is exactly as long as the batch; gives its chain value.
pub fn encode(header: &Header, records: &[Record], into: &mut [u8]) -> u64 {
    let body_bytes: usize = records.iter().map(Record::size).sum();
    assert_eq!(into.len(), batch_size(body_bytes), "a batch fills whole blocks");
    let count = u16::try_from(records.len()).expect("at most BATCH_RECORDS_MAX records");
    let body_bytes = u32::try_from(body_bytes).expect("a record is below WAL_RECORD_BYTES_MAX");
    into[..HEADER_BYTES].fill(0);
    let mut out = Out { bytes: into, at: 0 };
    out.put(&MAGIC);
    out.put(&VERSION.to_le_bytes());
    out.put(&count.to_le_bytes());
    out.put(&[0; 8]);
    for number in [
        header.log_id,
        header.sequence,
        header.epoch,
        header.salt,
        header.segment_sequence,
        header.chain,
        header.watermark,
        header.hard_state.term.0,
        header.hard_state.vote,
        header.hard_state.commit.0,
    ] {
        out.number(number);
    }
    out.put(&body_bytes.to_le_bytes());
    assert_eq!(out.at, HEADER_USED_BYTES, "the drawing and the code agree");
    out.at = HEADER_BYTES;
    for record in records {
        encode_record(record, &mut out);
    }
    let end = out.at;
    into[end..].fill(0);
    seal(into)
}

/// Sets both checksums; gives the chain value.
fn seal(batch: &mut [u8]) -> u64 {
    let body = crc32fast::hash(&batch[HEADER_BYTES..]);
    batch[12..16].copy_from_slice(&body.to_le_bytes());
    let header = checksum_around(&batch[..HEADER_BYTES]);
    batch[8..12].copy_from_slice(&header.to_le_bytes());
    chain_of(header, body)
}

/// The checksum of a header of which bytes 8..12 hold the checksum itself.
pub(super) fn checksum_around(header: &[u8]) -> u32 {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&header[..8]);
    checksum.update(&header[12..]);
    checksum.finalize()
}

fn chain_of(header: u32, body: u32) -> u64 {
    u64::from(header) << 32 | u64::from(body)
}

fn encode_record(record: &Record, out: &mut Out<'_>) {
    let (what, kind) = match record {
        Record::Entry(entry) => (WHAT_ENTRY, entry.kind),
        Record::Checkpoint(_) => (WHAT_CHECKPOINT, 0),
        Record::Start(_) => (WHAT_START, 0),
    };
    let size = record.size() - RECORD_HEAD_BYTES;
    assert!(size <= WAL_RECORD_BYTES_MAX + 16, "a record of {size} bytes");
    let size = u32::try_from(size).expect("checked above");
    out.put(&[what, kind, 0, 0]);
    out.put(&size.to_le_bytes());
    match record {
        Record::Entry(entry) => {
            out.number(entry.index.0);
            out.number(entry.term.0);
            out.put(&entry.data);
        }
        Record::Checkpoint(checkpoint) => {
            out.number(checkpoint.index.0);
            out.number(checkpoint.term.0);
            out.number(checkpoint.root);
            out.put(checkpoint.file.as_bytes());
        }
        Record::Start(start) => {
            out.number(start.previous);
            out.number(start.salt);
            out.number(start.sequence);
            out.number(start.chain);
        }
    }
}

/// Looks at the header of a batch. `block` holds at least `HEADER_BYTES`.
///
/// # Errors
/// What stands there instead.
pub fn peek(block: &[u8]) -> Result<Peek, Bad> {
    assert!(block.len() >= HEADER_BYTES, "a header's worth of bytes");
    if block[..4] != MAGIC {
        let zero = block[..HEADER_BYTES].iter().all(|byte| *byte == 0);
        let bytes = &block[..4];
        return Err(Bad(if zero { "zeros".into() } else { format!("bytes {bytes:02x?}") }));
    }
    let stored = u32_at(block, 8);
    let computed = checksum_around(&block[..HEADER_BYTES]);
    if stored != computed {
        return Err(Bad(format!("header checksum {computed:08x} (stored {stored:08x})")));
    }
    let body_bytes = usize::try_from(u32_at(block, 96)).expect("32 bits fit");
    let header = Header {
        log_id: u64_at(block, 16),
        sequence: u64_at(block, 24),
        epoch: u64_at(block, 32),
        salt: u64_at(block, 40),
        segment_sequence: u64_at(block, 48),
        chain: u64_at(block, 56),
        watermark: u64_at(block, 64),
        hard_state: HardState {
            term: Term(u64_at(block, 72)),
            vote: u64_at(block, 80),
            commit: RaftIndex(u64_at(block, 88)),
        },
    };
    let version = u16::from_le_bytes([block[4], block[5]]);
    let Header { sequence, epoch, segment_sequence, watermark, hard_state, .. } = header;
    let HardState { term, commit, .. } = hard_state;
    if version == VERSION {
        count_below([sequence, epoch, segment_sequence, watermark, term.0, commit.0])?;
    }
    Ok(Peek { header, version, size: batch_size(body_bytes) })
}

/// Reads a whole batch; `batch` is exactly the size that `peek` told.
///
/// # Errors
/// What stands there instead.
pub fn decode(batch: &[u8]) -> Result<Decoded, Bad> {
    let Peek { header, version, size } = peek(batch)?;
    assert_eq!(batch.len(), size, "the caller reads what peek told");
    let stored = u32_at(batch, 12);
    let computed = crc32fast::hash(&batch[HEADER_BYTES..]);
    if stored != computed && !planted::is(Planted::TornTailAccepted) {
        return Err(Bad(format!("body checksum {computed:08x} (stored {stored:08x})")));
    }
    if version != VERSION {
        return Err(Bad(format!("format version {version}")));
    }
    let body_bytes = usize::try_from(u32_at(batch, 96)).expect("32 bits fit");
    let count = u16::from_le_bytes([batch[6], batch[7]]);
    let mut body = &batch[HEADER_BYTES..HEADER_BYTES + body_bytes];
    let mut records = Vec::with_capacity(usize::from(count).min(body_bytes / RECORD_HEAD_BYTES));
    for _ in 0..count {
        let (record, rest) = decode_record(body)?;
        records.push(record);
        body = rest;
    }
    if !body.is_empty() {
        return Err(Bad(format!("{} bytes after the last record", body.len())));
    }
    Ok(Decoded { header, chain: chain_of(u32_at(batch, 8), stored), size, records })
}

fn decode_record(bytes: &[u8]) -> Result<(Record, &[u8]), Bad> {
    let short = || Bad("a record that ends too early".into());
    let (head, rest) = bytes.split_at_checked(RECORD_HEAD_BYTES).ok_or_else(short)?;
    let size = usize::try_from(u32_at(head, 4)).map_err(|_| short())?;
    let (body, rest) = rest.split_at_checked(size).ok_or_else(short)?;
    let fixed = match head[0] {
        WHAT_ENTRY => 16,
        WHAT_CHECKPOINT => CHECKPOINT_FIXED_BYTES,
        WHAT_START => START_BYTES,
        what => return Err(Bad(format!("a record of kind {what}"))),
    };
    if body.len() < fixed {
        return Err(short());
    }
    if head[0] != WHAT_START {
        // Index and term.
        count_below([u64_at(body, 0), u64_at(body, 8)])?;
    }
    let record = match head[0] {
        WHAT_ENTRY => Record::Entry(Entry {
            index: RaftIndex(u64_at(body, 0)),
            term: Term(u64_at(body, 8)),
            kind: head[1],
            data: Bytes::copy_from_slice(&body[16..]),
        }),
        WHAT_CHECKPOINT => Record::Checkpoint(Checkpoint {
            index: RaftIndex(u64_at(body, 0)),
            term: Term(u64_at(body, 8)),
            root: u64_at(body, 16),
            file: String::from_utf8(body[CHECKPOINT_FIXED_BYTES..].to_vec())
                .map_err(|_| Bad("a checkpoint's name that is not text".into()))?,
        }),
        _ => Record::Start(Start {
            previous: u64_at(body, 0),
            salt: u64_at(body, 8),
            sequence: u64_at(body, 16),
            chain: u64_at(body, 24),
        }),
    };
    Ok((record, rest))
}

/// Nothing counts as far as that: whoever wrote it was not counting.
fn count_below<const COUNT: usize>(counters: [u64; COUNT]) -> Result<(), Bad> {
    match counters.iter().find(|counter| **counter > COUNTER_MAX) {
        Some(counter) => Err(Bad(format!("a counter of {counter}"))),
        None => Ok(()),
    }
}

struct Out<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn number(&mut self, number: u64) {
        self.put(&number.to_le_bytes());
    }
}

/// The little-endian number at `at`; the caller has checked that it is there.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

/// As `u64_at`, of 32 bits.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

#[cfg(test)]
mod tests;

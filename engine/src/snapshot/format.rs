//! The bytes of a checkpoint file. Little-endian.
//!
//! ```text
//! head    0  4  magic "RBCP"
//!         4  2  format version, 1
//!         6  2  zeros
//!         8  4  crc32 of bytes 0..8 and 12..64
//!        12  4  zeros
//!        16  8  cluster id
//!        24  8  index      the last entry whose effect is in here
//!        32  8  term       of that entry
//!        40  8  revision   of the store at it
//!        48  8  compacted  revision at it; -1 is never
//!        56  8  zeros
//!
//! chunk   0  1  section: 1 mvcc, 2 the rest, 255 the end
//!         1  1  flags: 1 the piece goes on in the next chunk
//!         2  2  zeros
//!         4  4  n, bytes of data, 1 MiB at most
//!         8  4  crc32 of bytes 0..8 and the data
//!        12  n  data
//!
//! end           a chunk of section 255, n = 24: 8 how many chunks before it, 8 bytes of
//!               their data, 8 root hash. The file ends behind it.
//! ```
//!
//! The root hash folds the head's checksum and then, for each chunk in order, its first twelve
//! bytes. The log names it, so a file of another state, however whole, is not taken for this one.
//! A file that is not whole has no end chunk, or bytes behind it: it is corrupt, never shortened.

use crate::limits::COUNTER_MAX;
use crate::types::{ClusterId, RaftIndex, Revision, Term};

/// Version of this format.
pub(super) const VERSION: u16 = 1;
/// Bytes of the head.
pub(super) const HEAD_BYTES: usize = 64;
/// Bytes before a chunk's data.
pub(super) const CHUNK_HEAD_BYTES: usize = 12;
/// Bytes of data of the end chunk.
pub(super) const END_BYTES: usize = 24;

const MAGIC: [u8; 4] = *b"RBCP";
const SECTION_END: u8 = 255;
const FLAG_MORE: u8 = 1;
const ROOT_SEED: u64 = 0x5242_4350_726f_6f74;

/// What a checkpoint says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Whose state it is.
    pub cluster_id: ClusterId,
    /// The last entry whose effect it holds.
    pub index: RaftIndex,
    /// That entry's term.
    pub term: Term,
    /// The store's revision.
    pub revision: Revision,
    /// The store's compacted revision.
    pub compacted: Revision,
}

/// A part of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// The versions of all keys, as `Mvcc::export` gives them.
    Mvcc,
    /// Leases, alarms, members, versions.
    Rest,
}

/// The head of a chunk as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkHead {
    /// `None` is the end.
    pub section: Option<Section>,
    pub more: bool,
    pub size: usize,
    pub checksum: u32,
}

/// The data of the end chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct End {
    pub chunks: u64,
    pub bytes: u64,
    pub root: u64,
}

impl Head {
    pub(super) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        let numbers = [
            self.cluster_id.0,
            self.index.0,
            self.term.0,
            self.revision.0.cast_unsigned(),
            self.compacted.0.cast_unsigned(),
        ];
        for (at, number) in numbers.into_iter().enumerate() {
            bytes[16 + 8 * at..24 + 8 * at].copy_from_slice(&number.to_le_bytes());
        }
        let checksum = checksum_of_head(&bytes);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a head. `Ok(Err(version))` is a whole head of another version.
    ///
    /// # Errors
    /// What is expected and what stands there instead.
    pub(super) fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Result<Head, u16>, (String, String)> {
        if bytes[..4] != MAGIC {
            return Err((format!("bytes {MAGIC:02x?}"), format!("bytes {:02x?}", &bytes[..4])));
        }
        let (stored, computed) = (u32_at(bytes, 8), checksum_of_head(bytes));
        if stored != computed {
            return Err((format!("checksum {stored:08x}"), format!("checksum {computed:08x}")));
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if version != VERSION {
            return Ok(Err(version));
        }
        if let Some(counter) =
            [24, 32].map(|at| u64_at(bytes, at)).iter().find(|n| **n > COUNTER_MAX)
        {
            return Err(("an index and a term".into(), format!("a counter of {counter}")));
        }
        Ok(Ok(Head {
            cluster_id: ClusterId(u64_at(bytes, 16)),
            index: RaftIndex(u64_at(bytes, 24)),
            term: Term(u64_at(bytes, 32)),
            revision: Revision(u64_at(bytes, 40).cast_signed()),
            compacted: Revision(u64_at(bytes, 48).cast_signed()),
        }))
    }
}

fn checksum_of_head(bytes: &[u8; HEAD_BYTES]) -> u32 {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&bytes[..8]);
    checksum.update(&bytes[12..]);
    checksum.finalize()
}

/// The head of a chunk with `data`. `section` `None` is the end.
pub(super) fn chunk_head(
    section: Option<Section>,
    more: bool,
    data: &[u8],
) -> [u8; CHUNK_HEAD_BYTES] {
    let mut head = [0; CHUNK_HEAD_BYTES];
    head[0] = match section {
        Some(Section::Mvcc) => 1,
        Some(Section::Rest) => 2,
        None => SECTION_END,
    };
    head[1] = if more { FLAG_MORE } else { 0 };
    let size = u32::try_from(data.len()).expect("a chunk is CHECKPOINT_CHUNK_BYTES_MAX at most");
    head[4..8].copy_from_slice(&size.to_le_bytes());
    let checksum = checksum_of_chunk(&head, data);
    head[8..12].copy_from_slice(&checksum.to_le_bytes());
    head
}

/// The checksum a chunk should carry.
pub(super) fn checksum_of_chunk(head: &[u8; CHUNK_HEAD_BYTES], data: &[u8]) -> u32 {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&head[..8]);
    checksum.update(data);
    checksum.finalize()
}

/// Reads the head of a chunk.
///
/// # Errors
/// What stands there instead.
pub(super) fn read_chunk_head(head: &[u8; CHUNK_HEAD_BYTES]) -> Result<ChunkHead, String> {
    let section = match head[0] {
        1 => Some(Section::Mvcc),
        2 => Some(Section::Rest),
        SECTION_END => None,
        section => return Err(format!("section {section}")),
    };
    let size = usize::try_from(u32_at(head, 4)).expect("32 bits fit");
    Ok(ChunkHead { section, more: head[1] & FLAG_MORE != 0, size, checksum: u32_at(head, 8) })
}

impl End {
    pub(super) fn encode(&self) -> [u8; END_BYTES] {
        let mut bytes = [0; END_BYTES];
        for (at, number) in [self.chunks, self.bytes, self.root].into_iter().enumerate() {
            bytes[8 * at..8 * at + 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8; END_BYTES]) -> End {
        End { chunks: u64_at(bytes, 0), bytes: u64_at(bytes, 8), root: u64_at(bytes, 16) }
    }
}

/// The root hash of a file that has only its head so far.
pub(super) fn root_of_head(head: &[u8; HEAD_BYTES]) -> u64 {
    mix(ROOT_SEED ^ u64::from(u32_at(head, 8)))
}

/// The root hash with one more chunk.
pub(super) fn root_with(root: u64, head: &[u8; CHUNK_HEAD_BYTES]) -> u64 {
    let root = mix(root ^ u64_at(head, 0));
    mix(root ^ u64::from(u32_at(head, 8)))
}

/// A bijection of 64-bit numbers that spreads every bit (the finalizer of SplitMix64).
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

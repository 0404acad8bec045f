//! Checksums set right after damage, so that what lies behind them is fuzzed: the files of a member
//! that somebody else wrote, or of a mistake of ours.
//!
//! The chain of a log and the root of a checkpoint are repeated where they are referred to; there
//! the old value is replaced by the one that holds now. A reference that was itself damaged stays.
//! Layouts: `wal/format.rs`, `wal/mark.rs`, `snapshot/format.rs` of the engine.

use std::collections::HashMap;

use super::Files;

/// Bytes of a block of a log, and of a slot of the mark file.
pub const BLOCK: usize = 4096;
/// Bytes of a batch's header, and of a record's.
pub const HEADER: usize = 128;
/// Bytes of a record before its fields.
pub const RECORD_HEAD: usize = 8;
/// Bytes of a checkpoint's head, and of a chunk's.
pub const CHECKPOINT_HEAD: usize = 64;
/// Bytes of a chunk before its data.
pub const CHUNK_HEAD: usize = 12;
/// The section of the last chunk.
const SECTION_END: u8 = 255;

/// A batch of an undamaged log.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Its file.
    pub file: String,
    /// Where it begins.
    pub offset: usize,
    sequence: u64,
    chain: u64,
}

/// Where things stand in the undamaged files.
pub struct Layout {
    /// The batches in the order they were written, those of earlier lives of a segment too.
    pub batches: Vec<Batch>,
    roots: HashMap<String, u64>,
}

impl Layout {
    /// The layout of `files`.
    pub fn of(files: &Files) -> Layout {
        let mut batches = Vec::new();
        for (file, bytes) in files.iter().filter(|(name, _)| name.ends_with(".wal")) {
            for offset in (0..bytes.len()).step_by(BLOCK) {
                if is_batch(&bytes[offset..]) {
                    let sequence = number(bytes, offset + 24);
                    let chain = chain_of(&bytes[offset..]);
                    batches.push(Batch { file: file.clone(), offset, sequence, chain });
                }
            }
        }
        batches.sort_by_key(|batch| batch.sequence);
        let checkpoints = files.iter().filter(|(name, _)| name.ends_with(".checkpoint"));
        let roots =
            checkpoints.map(|(name, bytes)| (name.clone(), seal_checkpoint(&mut bytes.clone())));
        Layout { batches, roots: roots.collect() }
    }

    /// Sets every checksum right, and what refers to one.
    pub fn repair(&self, files: &mut Files) {
        let mut new = HashMap::new();
        for (name, bytes) in files.iter_mut() {
            if name == "mark" {
                bytes.chunks_exact_mut(BLOCK).for_each(seal_around);
            } else if let Some(root) = self.roots.get(name) {
                new.insert(*root, seal_checkpoint(bytes));
            }
        }
        for batch in &self.batches {
            let Some(bytes) = files.get_mut(&batch.file) else { continue };
            let Some(bytes) = bytes.get_mut(batch.offset..).filter(|bytes| is_batch(bytes)) else {
                continue;
            };
            let chain = seal_batch(bytes, &new);
            new.insert(batch.chain, chain);
        }
    }
}

/// Whether something that calls itself a batch begins here.
fn is_batch(bytes: &[u8]) -> bool {
    bytes.len() >= BLOCK && bytes.starts_with(b"RBWB")
}

/// The bytes of the batch that begins here, padding included, as far as the file goes.
fn extent(bytes: &[u8]) -> usize {
    let body = usize::try_from(small(bytes, 96)).expect("32 bits");
    (HEADER + body).next_multiple_of(BLOCK).min(bytes.len() / BLOCK * BLOCK)
}

/// The records of the batch that begins here: where each begins, with its head.
pub fn records(batch: &[u8]) -> Vec<usize> {
    let count = usize::from(u16::from_le_bytes([batch[6], batch[7]]));
    let (mut places, mut at) = (Vec::new(), HEADER);
    while places.len() < count && at + RECORD_HEAD <= extent(batch) {
        places.push(at);
        at += RECORD_HEAD + usize::try_from(small(batch, at + 4)).expect("32 bits");
    }
    places
}

fn seal_batch(bytes: &mut [u8], new: &HashMap<u64, u64>) -> u64 {
    let size = extent(bytes);
    replace(&mut bytes[..size], 56, new);
    for at in records(bytes) {
        match bytes[at] {
            2 => replace(&mut bytes[..size], at + RECORD_HEAD + 16, new),
            3 => replace(&mut bytes[..size], at + RECORD_HEAD + 24, new),
            _ => {}
        }
    }
    let body = crc32fast::hash(&bytes[HEADER..size]);
    bytes[12..16].copy_from_slice(&body.to_le_bytes());
    seal_around(&mut bytes[..HEADER]);
    chain_of(bytes)
}

fn chain_of(batch: &[u8]) -> u64 {
    u64::from(small(batch, 8)) << 32 | u64::from(small(batch, 12))
}

fn replace(bytes: &mut [u8], at: usize, new: &HashMap<u64, u64>) {
    if let Some(place) = bytes.get_mut(at..at + 8)
        && let Some(value) = new.get(&number(place, 0))
    {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

/// The checksum at 8..12 of everything around it.
fn seal_around(bytes: &mut [u8]) {
    let checksum = checksum(&bytes[..8], &bytes[12..]);
    bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
}

/// Seals a checkpoint, chunk by chunk as far as they hang together; gives its root.
fn seal_checkpoint(bytes: &mut [u8]) -> u64 {
    if bytes.len() < CHECKPOINT_HEAD {
        return 0;
    }
    seal_around(&mut bytes[..CHECKPOINT_HEAD]);
    let mut root = mix(0x5242_4350_726f_6f74 ^ u64::from(small(bytes, 8)));
    let (mut count, mut data_bytes) = (0_u64, 0_u64);
    for at in chunks(bytes) {
        let size = usize::try_from(small(bytes, at + 4)).expect("32 bits");
        let from = at + CHUNK_HEAD;
        if bytes[at] == SECTION_END && size == 24 {
            for (place, value) in [count, data_bytes, root].into_iter().enumerate() {
                bytes[from + 8 * place..][..8].copy_from_slice(&value.to_le_bytes());
            }
        }
        let checksum = checksum(&bytes[at..at + 8], &bytes[from..from + size]);
        bytes[at + 8..at + 12].copy_from_slice(&checksum.to_le_bytes());
        if bytes[at] == SECTION_END {
            return root;
        }
        count += 1;
        data_bytes += size as u64;
        root = mix(mix(root ^ number(bytes, at)) ^ u64::from(checksum));
    }
    root
}

/// Where the chunks of a checkpoint begin, as far as they fit the file.
pub fn chunks(bytes: &[u8]) -> Vec<usize> {
    let (mut places, mut at) = (Vec::new(), CHECKPOINT_HEAD);
    while at + CHUNK_HEAD <= bytes.len() {
        let size = usize::try_from(small(bytes, at + 4)).expect("32 bits");
        if at + CHUNK_HEAD + size > bytes.len() {
            break;
        }
        places.push(at);
        at += CHUNK_HEAD + size;
    }
    places
}

fn checksum(one: &[u8], other: &[u8]) -> u32 {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(one);
    checksum.update(other);
    checksum.finalize()
}

/// The finalizer of SplitMix64.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The little-endian number at `at`, which is there.
pub fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// As `number`, of 32 bits.
pub fn small(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

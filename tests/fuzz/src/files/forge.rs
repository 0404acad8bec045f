//! What is written into files whose checksums are set right afterwards: other numbers, records and
//! commands at the places where the formats have them.
//!
//! ```text
//! forgery: kind (1)
//!   0  field (1)  batch (1)  number          a field of a batch's header
//!   1  batch (1)  record (1)  place (1)  piece   bytes of a record, from its head on
//!   2  batch (1)  kind (1)  long piece       the batch is one entry with these bytes
//!   3  place (1)  number                     a number of the mark, in both slots
//!   4  chunk (1)  place (2)  piece           bytes of a checkpoint's chunk
//!   5  place (1)  number                     a number of a checkpoint's head
//! number: 0, or how far from what stands there (1) | 1, of the large ones (1) | 2, itself (8)
//! ```

use super::Files;
use super::repair::{
    BLOCK, CHECKPOINT_HEAD, CHUNK_HEAD, HEADER, Layout, RECORD_HEAD, chunks, number, records,
};
use crate::script::Script;

/// How many kinds there are.
pub const KINDS: u8 = 6;
/// Numbers at which something ends.
const LARGE: [u64; 10] = [
    0,
    1,
    1 << 31,
    1 << 32,
    1 << 62,
    i64::MAX as u64 - 1,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// Does one forgery to `files`.
pub fn forge(script: &mut Script<'_>, layout: &Layout, files: &mut Files) {
    match script.byte() % KINDS {
        0 => {
            let at = 16 + 8 * (usize::from(script.byte()) % 11);
            if let Some(bytes) = batch(script, layout, files) {
                put_number(script, bytes, at);
            }
        }
        1 => {
            if let Some(bytes) = batch(script, layout, files) {
                let places = records(bytes);
                let record = usize::from(script.byte()) % places.len().max(1);
                let at = places.get(record).copied().unwrap_or(HEADER);
                put(bytes, at + usize::from(script.byte()), script.piece());
            }
        }
        2 => {
            if let Some(bytes) = batch(script, layout, files) {
                entry(bytes, script.byte(), script.long_piece());
            }
        }
        3 => {
            let at = 16 + 8 * (usize::from(script.byte()) % 16);
            let Some(mark) = files.get_mut("mark").filter(|mark| mark.len() >= 2 * BLOCK) else {
                return;
            };
            put_number(script, mark, at);
            // The serials differ: one of the slots is the newer one.
            if at != 16 {
                let value = number(mark, at).to_le_bytes();
                put(mark, BLOCK + at, &value);
            }
        }
        4 => {
            if let Some(bytes) = checkpoint(files) {
                let places = chunks(bytes);
                let chunk = usize::from(script.byte()) % places.len().max(1);
                let at = places.get(chunk).map_or(0, |at| at + CHUNK_HEAD);
                put(bytes, at + usize::from(script.short()), script.piece());
            }
        }
        _ => {
            let at = 16 + 8 * (usize::from(script.byte()) % 5);
            if let Some(bytes) = checkpoint(files).filter(|bytes| bytes.len() >= CHECKPOINT_HEAD) {
                put_number(script, bytes, at);
            }
        }
    }
}

/// A batch, counted from the last one.
fn batch<'a>(
    script: &mut Script<'_>,
    layout: &Layout,
    files: &'a mut Files,
) -> Option<&'a mut [u8]> {
    let back = usize::from(script.byte()) % layout.batches.len().max(1);
    let batch = layout.batches.iter().rev().nth(back)?;
    let bytes = files.get_mut(&batch.file)?.get_mut(batch.offset..)?;
    (bytes.len() >= BLOCK).then_some(bytes)
}

fn checkpoint(files: &mut Files) -> Option<&mut Vec<u8>> {
    let mut named = files.iter_mut().filter(|(name, _)| name.ends_with(".checkpoint"));
    named.next_back().map(|(_, bytes)| bytes)
}

/// The batch becomes one entry with `data`, at the index and term of its first record.
fn entry(bytes: &mut [u8], kind: u8, data: &[u8]) {
    let data = &data[..data.len().min(BLOCK - HEADER - RECORD_HEAD - 16)];
    let size = u32::try_from(16 + data.len()).expect("below a block");
    put(bytes, 6, &1_u16.to_le_bytes());
    put(bytes, 96, &(size + 8).to_le_bytes());
    put(bytes, HEADER, &[1, kind, 0, 0]);
    put(bytes, HEADER + 4, &size.to_le_bytes());
    put(bytes, HEADER + RECORD_HEAD + 16, data);
    bytes[HEADER + RECORD_HEAD + 16 + data.len()..BLOCK].fill(0);
}

fn put_number(script: &mut Script<'_>, bytes: &mut [u8], at: usize) {
    let there = number(bytes, at);
    let value = match script.byte() % 3 {
        0 => there.wrapping_add_signed(i64::from(script.byte().cast_signed())),
        1 => LARGE[usize::from(script.byte()) % LARGE.len()],
        _ => u64::from(script.word()) << 32 | u64::from(script.word()),
    };
    put(bytes, at, &value.to_le_bytes());
}

/// Writes as far as there is room.
fn put(bytes: &mut [u8], at: usize, with: &[u8]) {
    for (byte, with) in bytes.iter_mut().skip(at).zip(with) {
        *byte = *with;
    }
}

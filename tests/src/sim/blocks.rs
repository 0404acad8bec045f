//! W4 seen from below: within one life of a log segment no block of it is given other bytes than
//! before, not even bytes that never landed.
//!
//! A life of a segment begins with a write at its front. What a crash left in flight may still be
//! there in part, so that a block that was asked for counts as written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Bytes of a block.
const BLOCK_BYTES: usize = 4096;

/// What the blocks of every segment were last given.
#[derive(Default)]
pub struct Blocks {
    segments: BTreeMap<PathBuf, BTreeMap<u64, u64>>,
    wrong: Option<String>,
}

impl Blocks {
    /// A write is asked for.
    pub fn write(&mut self, path: &Path, offset: u64, bytes: &[u8]) {
        if path.extension().is_none_or(|end| end != "wal") {
            return;
        }
        if !self.segments.contains_key(path) {
            self.segments.insert(path.to_path_buf(), BTreeMap::new());
        }
        let blocks = self.segments.get_mut(path).expect("it was put there");
        if offset == 0 {
            blocks.clear();
        }
        for (number, block) in (offset / BLOCK_BYTES as u64..).zip(bytes.chunks(BLOCK_BYTES)) {
            let sum = sum_of(block);
            let before = *blocks.entry(number).or_insert(sum);
            if before != sum && self.wrong.is_none() {
                let path = path.display();
                self.wrong = Some(format!("W4: block {number} of {path} is written over"));
            }
        }
    }

    /// What was wrong first.
    #[must_use]
    pub fn wrong(&self) -> Option<String> {
        self.wrong.clone()
    }
}

/// A sum over words, in four lanes.
fn sum_of(block: &[u8]) -> u64 {
    let mut lanes = [1u64, 2, 3, 4];
    for words in block.chunks(32) {
        for (lane, word) in lanes.iter_mut().zip(words.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            let mixed = lane.rotate_left(5) ^ u64::from_le_bytes(bytes);
            *lane = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
    lanes.into_iter().fold(0, |sum, lane| (sum ^ lane).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same bytes again and a life that begins anew are right; other bytes are not.
    #[test]
    fn sees_what_is_written_over() {
        let (segment, mark) = (Path::new("/log/00000001.wal"), Path::new("/log/mark"));
        let (ones, twos) = ([1; 2 * BLOCK_BYTES], [2; BLOCK_BYTES]);
        let mut blocks = Blocks::default();
        blocks.write(segment, 0, &twos);
        blocks.write(segment, 4096, &ones);
        blocks.write(segment, 8192, &ones[..BLOCK_BYTES]);
        blocks.write(mark, 4096, &ones);
        blocks.write(mark, 4096, &twos);
        blocks.write(segment, 0, &ones[..BLOCK_BYTES]);
        blocks.write(segment, 8192, &twos);
        assert_eq!(blocks.wrong(), None);
        blocks.write(segment, 4096, &ones);
        assert!(blocks.wrong().expect("it saw that").contains("block 2 of"));
    }
}

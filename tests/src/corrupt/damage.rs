//! What can go wrong with the bytes of a file.

use std::fmt;

use super::base::Files;
use super::rng::Rng;

/// Bytes of a block.
const BLOCK_BYTES: usize = 4096;

/// One wrong place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A bit is the other one.
    Flip {
        /// In this byte.
        at: usize,
        /// This bit of it.
        bit: u8,
    },
    /// Bytes are these.
    Write {
        /// From here.
        at: usize,
        /// They.
        bytes: Vec<u8>,
    },
    /// Bytes are others.
    Scribble {
        /// From here.
        at: usize,
        /// So many.
        count: usize,
        /// Of this seed.
        seed: u64,
    },
    /// A block reads as zeros.
    Zero {
        /// The block.
        block: usize,
    },
    /// Two blocks have each other's bytes.
    Swap {
        /// One block.
        block: usize,
        /// The file of the other.
        other: String,
        /// The other block.
        with: usize,
    },
    /// A block has the bytes of another one: a write that went to the wrong place.
    Copy {
        /// The block that is lost.
        block: usize,
        /// The file of the other.
        other: String,
        /// The block that is there twice.
        from: usize,
    },
    /// The file ends too early.
    Cut {
        /// Its size.
        size: usize,
    },
    /// The file has bytes behind its end.
    Grow {
        /// How many.
        count: usize,
    },
    /// The file is not there.
    Missing,
}

/// A damage and the file it is done to.
#[derive(Clone, Debug)]
pub struct Place {
    /// The file.
    pub file: String,
    /// What is done to it.
    pub damage: Damage,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.file, self.damage)
    }
}

impl Place {
    /// A place of chance: each file as often as each other, regions that hold something more often
    /// than those that do not.
    #[must_use]
    pub fn draw(files: &Files, rng: &mut Rng) -> Place {
        let names: Vec<&String> = files.keys().collect();
        let file = names[index(rng, names.len())].clone();
        let bytes = &files[&file];
        let blocks = bytes.len().div_ceil(BLOCK_BYTES).max(1);
        let used = (0..blocks).filter(|block| !is_zero(bytes, *block)).collect::<Vec<_>>();
        let block = match used.is_empty() || rng.below(8) == 0 {
            true => index(rng, blocks),
            false => used[index(rng, used.len())],
        };
        let from = (block * BLOCK_BYTES).min(bytes.len().saturating_sub(1));
        let room = BLOCK_BYTES.min(bytes.len() - from).max(1);
        // Headers are small: half of all flips hit the first bytes of a block.
        let room = if rng.below(2) == 0 { room.min(160) } else { room };
        let at = from + index(rng, room);
        let damage = match rng.below(20) {
            0..8 => Damage::Flip { at, bit: u8::try_from(rng.below(8)).expect("small") },
            8 | 9 => Damage::Scribble { at, count: 1 + index(rng, 600), seed: rng.next_u64() },
            10..13 => Damage::Zero { block },
            13..16 => {
                let other = names[index(rng, names.len())].clone();
                let with = index(rng, (files[&other].len() / BLOCK_BYTES).max(1));
                match rng.below(2) {
                    0 => Damage::Swap { block, other, with },
                    _ => Damage::Copy { block, other, from: with },
                }
            }
            16 | 17 => Damage::Cut { size: index(rng, bytes.len().max(1)) },
            18 => Damage::Grow { count: 1 + index(rng, 10_000) },
            _ => Damage::Missing,
        };
        Place { file, damage }
    }

    /// Does it. The files that are different afterwards.
    pub fn apply(&self, files: &mut Files) -> Vec<String> {
        let before = files.clone();
        let mut bytes = files.remove(&self.file).unwrap_or_default();
        match &self.damage {
            Damage::Missing => {
                return vec![self.file.clone()];
            }
            Damage::Flip { at, bit } => {
                if let Some(byte) = bytes.get_mut(*at) {
                    *byte ^= 1 << bit;
                }
            }
            Damage::Write { at, bytes: with } => {
                for (byte, with) in bytes.iter_mut().skip(*at).zip(with) {
                    *byte = *with;
                }
            }
            Damage::Scribble { at, count, seed } => {
                let mut rng = Rng::new(*seed);
                for byte in bytes.iter_mut().skip(*at).take(*count) {
                    *byte = u8::try_from(rng.below(256)).expect("a byte");
                }
            }
            Damage::Zero { block } => put_block(&mut bytes, *block, &[0; BLOCK_BYTES]),
            Damage::Swap { block, other, with } => {
                let theirs = before.get(other).map(|other| block_of(other, *with));
                let ours = block_of(&bytes, *block);
                put_block(&mut bytes, *block, &theirs.unwrap_or_default());
                match files.get_mut(other) {
                    Some(other) => put_block(other, *with, &ours),
                    None => put_block(&mut bytes, *with, &ours),
                }
            }
            Damage::Copy { block, other, from } => {
                let theirs = before.get(other).map(|other| block_of(other, *from));
                put_block(&mut bytes, *block, &theirs.unwrap_or_default());
            }
            Damage::Cut { size } => bytes.truncate(*size),
            Damage::Grow { count } => bytes.extend(std::iter::repeat_n(7, *count)),
        }
        files.insert(self.file.clone(), bytes);
        let changed = before.iter().filter(|(name, bytes)| files.get(*name) != Some(*bytes));
        changed.map(|(name, _)| name.clone()).collect()
    }
}

fn index(rng: &mut Rng, count: usize) -> usize {
    usize::try_from(rng.below(count as u64)).expect("below a count in memory")
}

fn is_zero(bytes: &[u8], block: usize) -> bool {
    block_of(bytes, block).iter().all(|byte| *byte == 0)
}

fn block_of(bytes: &[u8], block: usize) -> Vec<u8> {
    let from = (block * BLOCK_BYTES).min(bytes.len());
    bytes[from..(from + BLOCK_BYTES).min(bytes.len())].to_vec()
}

/// Lays `with` over a block, as far as the file goes.
fn put_block(bytes: &mut [u8], block: usize, with: &[u8]) {
    let from = (block * BLOCK_BYTES).min(bytes.len());
    for (byte, with) in bytes[from..].iter_mut().zip(with) {
        *byte = *with;
    }
}

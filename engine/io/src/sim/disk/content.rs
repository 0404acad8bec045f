//! The bytes of one file: what reads see, what is stable, and every version in between.
//!
//! Invariants:
//! - C1 A block without `dirty` has the same bytes in the cache and on the medium.
//! - C2 The last version of a dirty block is what reads see; versions are ordered by sequence.
//! - C3 `dirty` of the file names exactly the blocks that have a `dirty` of their own.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::FaultCounts;
use crate::disk::Durability;
use crate::sim::limits::{BLOCK_BYTES, FILE_BYTES_MAX};
use crate::sim::rng::Rng;

/// The bytes of one block; `None` is all zeros.
type Data = Option<Rc<[u8]>>;

static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// A sequence no sync ever covers: what became of a version whose sync failed.
const NEVER: u64 = u64::MAX;

#[derive(Clone, Default)]
struct Block {
    view: Data,
    allocated: bool,
    dirty: Option<Box<Dirty>>,
}

#[derive(Clone)]
struct Dirty {
    stable: Data,
    versions: Vec<(u64, Data)>,
}

/// How much of what is not stable a loss of power takes.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim) enum Loss {
    /// Every sector falls back to the medium.
    Everything,
    /// Every sector survives, as if the cache had been written back just before.
    Nothing,
    /// Each sector has its own luck: lost, kept, any version between, or torn.
    Sectors,
}

/// What rots on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// One bit of the byte turns over.
    FlipBit(u8),
    /// The whole block reads as zeros.
    ZeroBlock,
}

/// The content of one file.
#[derive(Clone, Default)]
pub(super) struct Content {
    blocks: Vec<Block>,
    dirty: BTreeSet<usize>,
    size: u64,
    stable_size: u64,
    /// Sizes that are not durable yet, by sequence.
    sizes: Vec<(u64, u64)>,
}

impl Content {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        let count = self.blocks.iter().filter(|block| block.allocated).count();
        bytes_of(count)
    }

    /// Bytes a write of `len` at `offset` would newly allocate.
    pub(super) fn growth_bytes(&self, offset: u64, len: usize) -> u64 {
        let known = |index: &usize| self.blocks.get(*index).is_some_and(|block| block.allocated);
        bytes_of(span(offset, len).filter(|index| !known(index)).count())
    }

    /// Reads what is in the cache; gives the count, short at the end of the file.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = into.len().min(left);
        let mut done = 0;
        while done < count {
            let (index, start) = place(offset + done as u64);
            let take = (BLOCK_BYTES - start).min(count - done);
            let data = self.blocks.get(index).and_then(|block| block.view.as_ref());
            let from = data.map_or(&ZEROS[..], |data| &data[..]);
            into[done..done + take].copy_from_slice(&from[start..start + take]);
            done += take;
        }
        count
    }

    /// Writes into the cache; with `Durability::Disk` the blocks it touches are stable too, and
    /// the size when this write made the file longer.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8], sequence: u64, how: Durability) {
        let end = offset + bytes.len() as u64;
        assert!(end <= FILE_BYTES_MAX, "a simulated file of {end} bytes");
        let blocks = usize::try_from(end.div_ceil(bytes_of(1))).expect("bounded above");
        if self.blocks.len() < blocks {
            self.blocks.resize(blocks, Block::default());
        }
        let mut done = 0;
        while done < bytes.len() {
            let (index, start) = place(offset + done as u64);
            let take = (BLOCK_BYTES - start).min(bytes.len() - done);
            let data = self.blocks[index].merged(start, &bytes[done..done + take]);
            self.blocks[index].allocated = true;
            self.set(index, data, sequence, how);
            done += take;
        }
        if end > self.size {
            self.size = end;
            self.sizes.push((sequence, end));
        }
        if how == Durability::Disk && end > self.stable_size {
            self.stable_size = end;
        }
    }

    fn set(&mut self, index: usize, data: Data, sequence: u64, how: Durability) {
        let block = &mut self.blocks[index];
        let before = std::mem::replace(&mut block.view, data.clone());
        match how {
            Durability::Disk => {
                block.dirty = None;
                self.dirty.remove(&index);
            }
            Durability::System => {
                let fresh = || Box::new(Dirty { stable: before, versions: Vec::new() });
                block.dirty.get_or_insert_with(fresh).versions.push((sequence, data));
                self.dirty.insert(index);
            }
        }
    }

    /// Cuts or extends. What is cut reads as zeros if the file grows again.
    pub(super) fn truncate(&mut self, size: u64, sequence: u64) {
        assert!(size <= FILE_BYTES_MAX, "a simulated file of {size} bytes");
        if size < self.size {
            let (first, start) = place(size);
            if start > 0 && first < self.blocks.len() {
                let data = self.blocks[first].merged(start, &ZEROS[start..]);
                self.set(first, data, sequence, Durability::System);
            }
            let cut = if start > 0 { first + 1 } else { first };
            for index in cut..self.blocks.len() {
                self.set(index, None, sequence, Durability::System);
                self.blocks[index].allocated = false;
            }
        }
        if size != self.size {
            self.size = size;
            self.sizes.push((sequence, size));
        }
    }

    /// A sync: everything that completed up to `sequence` is stable.
    pub(super) fn cover(&mut self, sequence: u64) {
        let blocks = &mut self.blocks;
        self.dirty.retain(|index| blocks[*index].cover(sequence));
        let covered = self.sizes.iter().take_while(|(at, _)| *at <= sequence).count();
        if let Some((_, size)) = self.sizes.drain(..covered).next_back() {
            self.stable_size = size;
        }
    }

    /// A sync that failed: the system forgets that these versions are not on the medium, so no
    /// later sync covers them either (as Linux does after an error of write-back).
    pub(super) fn forsake(&mut self, sequence: u64, rng: &mut Rng) {
        for index in &self.dirty {
            let dirty = self.blocks[*index].dirty.as_mut().expect("C3: the block is dirty");
            if rng.coin() {
                let covered = dirty.versions.iter_mut().filter(|(at, _)| *at <= sequence);
                covered.for_each(|(at, _)| *at = NEVER);
            }
        }
    }

    /// The power goes.
    pub(super) fn lose(
        &mut self,
        loss: Loss,
        sector_bytes: usize,
        rng: &mut Rng,
        counts: &mut FaultCounts,
    ) {
        for index in std::mem::take(&mut self.dirty) {
            let block = &mut self.blocks[index];
            let dirty = block.dirty.take().expect("C3: the block is dirty");
            block.view = match loss {
                Loss::Everything => {
                    counts.lost += 1;
                    dirty.stable
                }
                Loss::Nothing => block.view.take(),
                Loss::Sectors => dirty.survivors(sector_bytes, rng, counts),
            };
        }
        let last = self.size;
        let candidates = self.sizes.len() + 1;
        self.size = match loss {
            Loss::Everything => self.stable_size,
            Loss::Nothing => last,
            Loss::Sectors => match rng.index(candidates) {
                0 => self.stable_size,
                index => self.sizes[index - 1].1,
            },
        };
        self.sizes.clear();
        self.stable_size = self.size;
        self.cut_to_size();
    }

    /// Bytes beyond the size are gone for good.
    fn cut_to_size(&mut self) {
        let (first, start) = place(self.size);
        if start > 0 && first < self.blocks.len() {
            let data = self.blocks[first].merged(start, &ZEROS[start..]);
            self.blocks[first].view = data;
        }
        self.blocks.truncate(if start > 0 { first + 1 } else { first });
    }

    /// Damages the medium; what is cached of the block is dropped, so that reads see it.
    pub(super) fn damage(&mut self, offset: u64, damage: Damage) {
        let (index, start) = place(offset);
        assert!(offset < self.size, "damage at {offset} is behind the end of the file");
        if index >= self.blocks.len() {
            self.blocks.resize(index + 1, Block::default());
        }
        let block = &mut self.blocks[index];
        if let Some(dirty) = block.dirty.take() {
            block.view = dirty.stable;
            self.dirty.remove(&index);
        }
        let old = block.view.as_ref().map_or(0, |data| data[start]);
        block.view = match damage {
            Damage::FlipBit(bit) => block.merged(start, &[old ^ (1 << (bit % 8))]),
            Damage::ZeroBlock => None,
        };
    }
}

impl Block {
    /// The block with `bytes` laid over it at `start`.
    fn merged(&self, start: usize, bytes: &[u8]) -> Data {
        if bytes.len() == BLOCK_BYTES {
            return data_of(bytes);
        }
        let mut whole = self.view.as_ref().map_or(ZEROS, |data| array_of(data));
        whole[start..start + bytes.len()].copy_from_slice(bytes);
        data_of(&whole)
    }

    /// True when some version is left uncovered.
    fn cover(&mut self, sequence: u64) -> bool {
        let dirty = self.dirty.as_mut().expect("C3: the block is dirty");
        // A forsaken version is covered all the same by a sync of a later one over it.
        let last = dirty.versions.iter().rposition(|(at, _)| *at <= sequence);
        if let Some((_, data)) = dirty.versions.drain(..last.map_or(0, |at| at + 1)).next_back() {
            dirty.stable = data;
        }
        if dirty.versions.is_empty() {
            self.dirty = None;
        }
        self.dirty.is_some()
    }
}

impl Dirty {
    /// What the medium holds of the block after the power went: each sector is any of the versions
    /// or the stable one, or the front of one and the back of another.
    fn survivors(&self, sector_bytes: usize, rng: &mut Rng, counts: &mut FaultCounts) -> Data {
        let versions: Vec<&Data> = std::iter::once(&self.stable)
            .chain(self.versions.iter().map(|(_, data)| data))
            .collect();
        let mut block = ZEROS;
        for start in (0..BLOCK_BYTES).step_by(sector_bytes) {
            let end = start + sector_bytes;
            let version = rng.index(versions.len());
            counts.lost += u64::from(version == 0);
            let front = bytes_in(versions[version]);
            block[start..end].copy_from_slice(&front[start..end]);
            if rng.below(8) == 0 {
                counts.torn += 1;
                let cut = start + rng.index(sector_bytes);
                let back = bytes_in(versions[rng.index(versions.len())]);
                block[cut..end].copy_from_slice(&back[cut..end]);
            }
        }
        data_of(&block)
    }
}

fn data_of(bytes: &[u8]) -> Data {
    if bytes == ZEROS { None } else { Some(Rc::from(bytes)) }
}

fn bytes_in(data: &Data) -> &[u8] {
    data.as_ref().map_or(&ZEROS[..], |data| &data[..])
}

fn array_of(data: &[u8]) -> [u8; BLOCK_BYTES] {
    data.try_into().expect("a block has the size of a block")
}

fn place(offset: u64) -> (usize, usize) {
    let index = usize::try_from(offset / bytes_of(1)).expect("files are bounded");
    let start = usize::try_from(offset % bytes_of(1)).expect("below a block");
    (index, start)
}

fn span(offset: u64, len: usize) -> std::ops::Range<usize> {
    let end = offset + len as u64;
    place(offset).0..usize::try_from(end.div_ceil(bytes_of(1))).expect("files are bounded")
}

fn bytes_of(blocks: usize) -> u64 {
    (blocks * BLOCK_BYTES) as u64
}

//! The mark file: what a log knows of itself besides its segments.
//!
//! Two slots of 4 KiB, written in turn, so that a torn write leaves the other one whole. The valid
//! slot with the greater serial holds. Whatever is relied upon (segments, ceiling, identity, clean)
//! is written to both slots, one after the other, before it is relied upon: one bad slot never
//! loses it. Only the watermark of an idle log goes to one slot alone. Little-endian.
//!
//! ```text
//! slot    0  4  magic "RBMK"
//!         4  2  format version, 1
//!         6  2  segment count, n
//!         8  4  crc32 of bytes 0..8 and 12..4096
//!        12  1  mode: 0 safe, 1 unsafe-no-fsync, 2 memory
//!        13  1  flags: 1 clean, 2 history was shortened and not fenced yet
//!        14  2  zeros
//!        16  8  serial of this mark
//!        24  8  epoch
//!        32  8  log id
//!        40  8  cluster id
//!        48  8  member id
//!        56  8  incarnation
//!        64 16  boot id
//!        80  8  revision ceiling
//!        88  8  watermark
//!        96  8  end: last sequence (of a clean log: there is nothing after it)
//!       104  8  end: offset behind it in the last but `spare` segment
//!       112  4  spare: how many of the listed segments are not begun
//!       116 12  zeros
//!       128 16n segments: 4 number, 4 size in blocks, 8 salt; those of the log, oldest first, then
//!               the prepared one, then free ones with salt 0
//! ```

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use ringbolt_io::{AlignedBuffer, Durability, File};

use crate::corruption::Corruption;
use crate::limits::{COUNTER_MAX, WAL_SEGMENT_NUMBER_MAX, WAL_SEGMENTS_MAX};
use crate::types::{ClusterId, MemberId, Revision};
use crate::wal::format::{BLOCK_BYTES, checksum_around, u32_at, u64_at};
use crate::wal::types::{Identity, Mode, OpenError};

/// Name of the mark file in the log's directory.
pub const MARK_FILE: &str = "mark";
/// Bytes of a slot.
pub const SLOT_BYTES: usize = BLOCK_BYTES;

const MAGIC: [u8; 4] = *b"RBMK";
const VERSION: u16 = 1;
const FIXED_BYTES: usize = 128;
const SEGMENT_BYTES: usize = 16;
const FLAG_CLEAN: u8 = 1;
const FLAG_SHORTENED: u8 = 2;

const _: () = assert!(FIXED_BYTES + WAL_SEGMENTS_MAX * SEGMENT_BYTES <= SLOT_BYTES);

/// One segment as a mark names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its number, from 1; the file is named after it.
    pub number: u32,
    /// Its size in blocks.
    pub blocks: u32,
    /// The salt of this life.
    pub salt: u64,
}

/// The content of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Grows with each mark.
    pub serial: u64,
    /// Counts the opens that write batches.
    pub epoch: u64,
    /// Drawn when the log was made.
    pub log_id: u64,
    /// Whose log it is.
    pub identity: Identity,
    /// Counts the opens, in memory mode too.
    pub incarnation: u64,
    /// The boot of the machine in which it was last open.
    pub boot_id: [u8; 16],
    /// The mode it was last open in.
    pub mode: Mode,
    /// Closed in order: nothing was lost and nothing follows `end_sequence`.
    pub clean: bool,
    /// Acknowledged history was given up and the revisions not fenced yet.
    pub shortened: bool,
    /// No revision above it was given out.
    pub ceiling: Revision,
    /// Every batch up to it is durable.
    pub watermark: u64,
    /// The last batch written.
    pub end_sequence: u64,
    /// The offset behind it.
    pub end_offset: u64,
    /// Segments at the end of the list that are not begun.
    pub spare: u32,
    /// The segments, oldest first.
    pub segments: Vec<Listed>,
}

/// The open mark file.
pub struct MarkFile {
    file: File,
    path: PathBuf,
    serial: u64,
}

impl Mark {
    /// The bytes of a slot.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.segments.len() <= WAL_SEGMENTS_MAX, "a mark names WAL_SEGMENTS_MAX segments");
        let count = u16::try_from(self.segments.len()).expect("checked above");
        let mode = match self.mode {
            Mode::Safe => 0,
            Mode::NoFsync => 1,
            Mode::Memory => 2,
        };
        let mut flags = 0;
        if self.clean {
            flags |= FLAG_CLEAN;
        }
        if self.shortened {
            flags |= FLAG_SHORTENED;
        }
        let mut out = Vec::with_capacity(SLOT_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&[0, 0, 0, 0, mode, flags, 0, 0]);
        let Identity { cluster_id, member_id } = self.identity;
        let before = [self.serial, self.epoch, self.log_id, cluster_id.0, member_id.0];
        for number in before.into_iter().chain([self.incarnation]) {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.boot_id);
        out.extend_from_slice(&self.ceiling.0.to_le_bytes());
        for number in [self.watermark, self.end_sequence, self.end_offset] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.spare.to_le_bytes());
        out.resize(FIXED_BYTES, 0);
        for segment in &self.segments {
            out.extend_from_slice(&segment.number.to_le_bytes());
            out.extend_from_slice(&segment.blocks.to_le_bytes());
            out.extend_from_slice(&segment.salt.to_le_bytes());
        }
        out.resize(SLOT_BYTES, 0);
        let checksum = checksum_around(&out);
        out[8..12].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads a slot. `Ok(Err(version))` is a slot of another version that is whole.
    ///
    /// # Errors
    /// What stands there instead.
    pub fn decode(slot: &[u8]) -> Result<Result<Mark, u16>, String> {
        if slot.len() != SLOT_BYTES {
            return Err(format!("{} bytes", slot.len()));
        }
        if slot[..4] != MAGIC {
            return Err(format!("bytes {:02x?}", &slot[..4]));
        }
        let stored = u32_at(slot, 8);
        let computed = checksum_around(slot);
        if stored != computed {
            return Err(format!("checksum {computed:08x} (stored {stored:08x})"));
        }
        let version = u16::from_le_bytes([slot[4], slot[5]]);
        if version != VERSION {
            return Ok(Err(version));
        }
        let mode = match slot[12] {
            0 => Mode::Safe,
            1 => Mode::NoFsync,
            2 => Mode::Memory,
            mode => return Err(format!("mode {mode}")),
        };
        let count = usize::from(u16::from_le_bytes([slot[6], slot[7]]));
        let spare = u32_at(slot, 112);
        if count > WAL_SEGMENTS_MAX || usize::try_from(spare).is_ok_and(|spare| spare > count) {
            return Err(format!("{count} segments, {spare} spare"));
        }
        let counters = [16, 24, 56, 80, 88, 96, 104].map(|at| u64_at(slot, at));
        if let Some(counter) = counters.iter().find(|counter| **counter > COUNTER_MAX) {
            return Err(format!("a counter of {counter}"));
        }
        let mut boot_id = [0; 16];
        boot_id.copy_from_slice(&slot[64..80]);
        let segments = slot[FIXED_BYTES..].chunks_exact(SEGMENT_BYTES).take(count);
        let segments = segments.map(|bytes| Listed {
            number: u32_at(bytes, 0),
            blocks: u32_at(bytes, 4),
            salt: u64_at(bytes, 8),
        });
        let segments: Vec<Listed> = segments.collect();
        check_numbers(&segments)?;
        Ok(Ok(Mark {
            serial: u64_at(slot, 16),
            epoch: u64_at(slot, 24),
            log_id: u64_at(slot, 32),
            identity: Identity {
                cluster_id: ClusterId(u64_at(slot, 40)),
                member_id: MemberId(u64_at(slot, 48)),
            },
            incarnation: u64_at(slot, 56),
            boot_id,
            mode,
            clean: slot[13] & FLAG_CLEAN != 0,
            shortened: slot[13] & FLAG_SHORTENED != 0,
            ceiling: Revision(u64_at(slot, 80).cast_signed()),
            watermark: u64_at(slot, 88),
            end_sequence: u64_at(slot, 96),
            end_offset: u64_at(slot, 104),
            spare,
            segments,
        }))
    }
}

/// Each segment is a file of its own.
fn check_numbers(segments: &[Listed]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for Listed { number, .. } in segments {
        if !(1..=WAL_SEGMENT_NUMBER_MAX).contains(number) || !seen.insert(number) {
            return Err(format!("segment {number} in the list"));
        }
    }
    Ok(())
}

impl MarkFile {
    /// Takes an open mark file over and reads it: the newest whole slot.
    ///
    /// # Errors
    /// `Corrupt` when no slot is whole, `Version` when a later release wrote one, `Io`.
    pub async fn read(file: File, path: &Path) -> Result<(MarkFile, Mark), OpenError> {
        let mut newest: Option<Mark> = None;
        let mut bad = Vec::new();
        for slot in 0..2u64 {
            let offset = slot * SLOT_BYTES as u64;
            let (result, mut buffer) =
                file.read_at(AlignedBuffer::zeroed(SLOT_BYTES), offset).await;
            let count =
                result.map_err(|source| OpenError::Io { file: path.to_path_buf(), source })?;
            buffer.set_len(count);
            match Mark::decode(&buffer) {
                Ok(Ok(mark)) => {
                    if newest.as_ref().is_none_or(|other| other.serial < mark.serial) {
                        newest = Some(mark);
                    }
                }
                Ok(Err(version)) => {
                    return Err(OpenError::Version { file: path.to_path_buf(), version });
                }
                Err(found) => bad.push(format!("{found} @ {offset:#x}")),
            }
        }
        let Some(mark) = newest else {
            let found = bad.join(" and ");
            return Err(Corruption::new(path, 0, "a whole mark in one of two slots", found).into());
        };
        let marks = MarkFile { file, path: path.to_path_buf(), serial: mark.serial };
        Ok((marks, mark))
    }

    /// Takes an open mark file over whatever it holds.
    #[must_use]
    pub fn over(file: File, path: &Path) -> MarkFile {
        MarkFile { file, path: path.to_path_buf(), serial: 0 }
    }

    /// Writes a mark to both slots: what it says may be relied upon when it returns.
    ///
    /// # Errors
    /// The system's. The log has then failed (W7).
    pub async fn write_both(&mut self, mark: &Mark) -> io::Result<()> {
        self.write_one(mark).await?;
        self.write_one(mark).await
    }

    /// Writes a mark to the older slot.
    ///
    /// # Errors
    /// As `write_both`.
    pub async fn write_one(&mut self, mark: &Mark) -> io::Result<()> {
        self.serial += 1;
        let bytes = Mark { serial: self.serial, ..mark.clone() }.encode();
        let mut buffer = AlignedBuffer::zeroed(SLOT_BYTES);
        buffer.copy_from_slice(&bytes);
        let offset = (self.serial % 2) * SLOT_BYTES as u64;
        self.file.write_at(buffer, offset, Durability::Disk).await.0
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The bytes of a fresh mark file.
#[must_use]
pub fn fresh(mark: &Mark) -> Vec<u8> {
    let slots = [0, 1].map(|serial| Mark { serial, ..mark.clone() }.encode());
    slots.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Mark {
        Mark {
            serial: 0x11,
            epoch: 0x12,
            log_id: 0x13,
            identity: Identity { cluster_id: ClusterId(0x14), member_id: MemberId(0x15) },
            incarnation: 0x16,
            boot_id: [0x17; 16],
            mode: Mode::NoFsync,
            clean: true,
            shortened: true,
            ceiling: Revision(0x18),
            watermark: 0x19,
            end_sequence: 0x1a,
            end_offset: 0x1b,
            spare: 1,
            segments: vec![
                Listed { number: 0x1c, blocks: 0x1d, salt: 0x1e },
                Listed { number: 0x1f, blocks: 0x20, salt: 0x21 },
            ],
        }
    }

    /// The bytes of a mark, field by field as they are drawn.
    #[test]
    fn golden() {
        let bytes = mark().encode();
        let mut drawn = Vec::new();
        drawn.extend_from_slice(b"RBMK\x01\x00\x02\x00");
        drawn.extend_from_slice(&[0x63, 0xfe, 0x5b, 0x52]);
        drawn.extend_from_slice(&[1, 3, 0, 0]);
        for number in 0x11..=0x16u64 {
            drawn.extend_from_slice(&number.to_le_bytes());
        }
        drawn.extend_from_slice(&[0x17; 16]);
        for number in 0x18..=0x1bu64 {
            drawn.extend_from_slice(&number.to_le_bytes());
        }
        drawn.extend_from_slice(&1u32.to_le_bytes());
        drawn.extend_from_slice(&[0; 12]);
        for (number, blocks, salt) in [(0x1cu32, 0x1du32, 0x1eu64), (0x1f, 0x20, 0x21)] {
            drawn.extend_from_slice(&number.to_le_bytes());
            drawn.extend_from_slice(&blocks.to_le_bytes());
            drawn.extend_from_slice(&salt.to_le_bytes());
        }
        assert_eq!(bytes[..drawn.len()], drawn);
        assert!(bytes[drawn.len()..].iter().all(|byte| *byte == 0));
        assert_eq!(bytes.len(), SLOT_BYTES);
        assert_eq!(Mark::decode(&bytes), Ok(Ok(mark())));
    }

    /// A flipped bit anywhere is noticed, and another version is told apart from rot.
    #[test]
    fn every_bit_counts() {
        let bytes = mark().encode();
        for at in 0..SLOT_BYTES {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << (at % 8);
            assert!(Mark::decode(&bad).is_err(), "byte {at}");
        }
        let mut later = bytes;
        later[4] = 2;
        let checksum = checksum_around(&later);
        later[8..12].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(Mark::decode(&later), Ok(Err(2)));
    }
}

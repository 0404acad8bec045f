//! Segment files and their life.
//!
//! ```text
//!            zero_file                prepare                 switch
//!   Empty ──────────────► Zeroed ──────────────► Prepared ─────────────► Active
//!  (.partial)         final name, unused   listed, new salt, locked        │ switch
//!                           ▲                                              ▼
//!                           └────────── release ◄──────────────────────  Sealed
//!                             Recycled: as Zeroed, but with the blocks of an earlier life,
//!                             which the new salt makes foreign
//! ```
//!
//! Where a segment stands is where it is kept: `Log::free` holds the zeroed and recycled ones,
//! `Log::next` the prepared one, `Log::active` the active one, `Log::sealed` the sealed ones.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringbolt_io::bulk::zero_file;
use ringbolt_io::{File, Io, MonoTime, OpenHow};

use crate::limits::{WAL_LOCK_RETRY_MS, WAL_SEGMENT_NUMBER_MAX};
use crate::wal::format::BLOCK_BYTES;
use crate::wal::mark::Listed;
use crate::wal::types::OpenError;

/// End of a segment's file name.
const SUFFIX: &str = ".wal";

/// A zeroed or recycled segment that waits for use. The mark lists it with salt 0: files that are
/// listed nowhere are on their way out, and nobody touches them again, since the removal may come
/// from a process that has died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// Its number.
    pub number: u32,
    /// Its size in bytes.
    pub size: u64,
}

/// A segment of this log: prepared, active or sealed.
pub struct Segment {
    /// Its number.
    pub number: u32,
    /// The salt of this life.
    pub salt: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The open, locked file.
    pub file: File,
    /// Its path.
    pub path: PathBuf,
    /// Sequence of its start; 0 while it is only prepared.
    pub first_sequence: u64,
    /// Sequence of its last batch so far.
    pub last_sequence: u64,
    /// The first entry index written to it; 0 when there is none.
    pub first_index: u64,
    /// The highest entry index written to it; 0 when there is none.
    pub max_index: u64,
}

impl Free {
    /// As a mark names it.
    #[must_use]
    pub fn listed(&self) -> Listed {
        let blocks = u32::try_from(self.size / BLOCK_BYTES as u64).expect("below 16 TiB");
        Listed { number: self.number, blocks, salt: 0 }
    }
}

impl Segment {
    /// A free segment that begins a life under a salt of its own.
    #[must_use]
    pub fn fresh(io: &Io, free: Free, file: File, path: PathBuf) -> Segment {
        assert!(free.size.is_multiple_of(BLOCK_BYTES as u64), "a segment is whole blocks");
        Segment {
            number: free.number,
            salt: draw_salt(io),
            size: free.size,
            file,
            path,
            first_sequence: 0,
            last_sequence: 0,
            first_index: 0,
            max_index: 0,
        }
    }

    /// As a mark names it.
    #[must_use]
    pub fn listed(&self) -> Listed {
        let blocks = u32::try_from(self.size / BLOCK_BYTES as u64).expect("below 16 TiB");
        Listed { number: self.number, blocks, salt: self.salt }
    }

    /// Takes note of an entry written to it.
    pub fn note_index(&mut self, index: u64) {
        if self.first_index == 0 {
            self.first_index = index;
        }
        self.max_index = self.max_index.max(index);
    }
}

/// A salt for a new life. 0 marks the free segments of a mark's list.
#[must_use]
pub fn draw_salt(io: &Io) -> u64 {
    io.random_u64().max(1)
}

/// The file name of a segment.
#[must_use]
pub fn file_name(number: u32) -> String {
    format!("{number:08}{SUFFIX}")
}

/// The number in a segment's file name.
#[must_use]
pub fn number_of(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(SUFFIX)?;
    let number = digits.parse().ok()?;
    (number <= WAL_SEGMENT_NUMBER_MAX && file_name(number) == name).then_some(number)
}

/// Opens a file of the log, in the one way all of them are read and written (W8).
///
/// # Errors
/// `Io`.
pub async fn open_file(io: &Io, path: &Path, direct: bool) -> Result<File, OpenError> {
    let failed = |source| OpenError::Io { file: path.to_path_buf(), source };
    let how = OpenHow { direct, ..OpenHow::LOG };
    let file = io.disk().open(path, how).await.map_err(failed)?;
    if direct && !file.is_direct() {
        let text = "this file refuses direct I/O and the log's other files take it";
        return Err(failed(io::Error::new(io::ErrorKind::Unsupported, text)));
    }
    Ok(file)
}

/// Zeroes a segment of the usual size, or of a half, a quarter … of it down to the least, as the
/// disk has room; gives its size.
///
/// # Errors
/// The system's; `StorageFull` when not even the least fits.
pub async fn zero_what_fits(io: &Io, path: &Path, (usual, least): (u64, u64)) -> io::Result<u64> {
    let mut size = usual;
    loop {
        match zero_file(io, path, size).await {
            Err(error) if error.kind() == io::ErrorKind::StorageFull && half(size) >= least => {
                size = half(size);
            }
            result => return result.map(|()| size),
        }
    }
}

/// Half of a segment, in whole blocks.
fn half(size: u64) -> u64 {
    size / 2 / BLOCK_BYTES as u64 * BLOCK_BYTES as u64
}

/// Takes a file's lock, which a process that was killed keeps while its writes still land.
///
/// # Errors
/// `Busy` when it is held at `until` still, `Io`.
pub async fn lock(io: &Io, file: &File, path: &Path, until: MonoTime) -> Result<(), OpenError> {
    loop {
        match file.lock().await {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if io.now() >= until {
                    return Err(OpenError::Busy(path.to_path_buf()));
                }
                io.sleep(Duration::from_millis(WAL_LOCK_RETRY_MS)).await;
            }
            Err(source) => return Err(OpenError::Io { file: path.to_path_buf(), source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and numbers agree, and nothing else is taken for a segment.
    #[test]
    fn names() {
        assert_eq!(file_name(7), "00000007.wal");
        assert_eq!(number_of("00000007.wal"), Some(7));
        assert_eq!(number_of("123456789.wal"), Some(123_456_789));
        for other in ["7.wal", "00000007.wal.partial", "mark", "-0000007.wal", "+0000007.wal"] {
            assert_eq!(number_of(other), None, "{other}");
        }
    }
}

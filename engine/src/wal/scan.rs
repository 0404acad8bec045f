//! Reading the segments of a log: which batches are there, and how far they hang together.
//!
//! `scan` finds every intact batch of a segment, also behind a bad one: those tell how much was
//! durable. `walk` then follows the chain and says where it ends and whether it may end there (W6).

use std::path::{Path, PathBuf};

use ringbolt_io::{AlignedBuffer, File};

use crate::corruption::Corruption;
use crate::limits::WAL_READ_BYTES;
use crate::wal::format::{BLOCK_BYTES, Decoded, Peek, Record, VERSION, decode, peek};
use crate::wal::mark::{Listed, Mark};
use crate::wal::types::OpenError;

/// A listed segment as it was read.
pub(super) struct Scan {
    pub listed: Listed,
    pub path: PathBuf,
    /// The open, locked file; `None` when it is missing and loss is accepted.
    pub file: Option<File>,
    /// The intact batches, by offset.
    pub batches: Vec<(u64, Decoded)>,
    /// What stands at the offsets where batches end.
    bad: Vec<(u64, Bad)>,
}

/// What is not a batch of this life.
struct Bad {
    found: String,
    /// Zeros or an earlier life: nothing of this life ever arrived there.
    untouched: bool,
}

/// How far the chain goes.
#[derive(Debug)]
pub(super) struct Walk {
    /// How many batches of each segment are part of the log.
    pub accepted: Vec<usize>,
    /// The last batch of the log: its sequence and chain value.
    pub end: Option<(u64, u64)>,
    /// The greatest watermark of any batch that exists, and of the mark.
    pub watermark: u64,
    /// Where the chain ends, and what stands there.
    pub stop: Corruption,
    /// Something follows that was begun and not finished.
    pub torn: bool,
}

impl Scan {
    /// A listed segment that is not there.
    pub fn missing(listed: Listed, path: PathBuf) -> Scan {
        Scan { listed, path, file: None, batches: Vec::new(), bad: Vec::new() }
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        u64::from(self.listed.blocks) * BLOCK_BYTES as u64
    }

    /// Sequence of the segment's start, from any of its batches.
    fn first_sequence(&self) -> Option<u64> {
        self.batches.first().map(|(_, batch)| batch.header.segment_sequence)
    }

    /// Bytes that its first `count` batches take.
    pub fn size_of(&self, count: usize) -> u64 {
        let last = count.checked_sub(1).and_then(|last| self.batches.get(last));
        last.map_or(0, |(offset, batch)| offset + batch.size as u64)
    }

    fn found_at(&self, offset: u64) -> Option<&Bad> {
        self.bad.iter().find(|(at, _)| *at == offset).map(|(_, bad)| bad)
    }

    fn untouched_at(&self, offset: u64) -> bool {
        self.found_at(offset).is_none_or(|bad| bad.untouched)
    }
}

/// A part of a file in memory that moves forward.
struct Window<'a> {
    file: &'a File,
    path: &'a Path,
    size: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// The `len` bytes at `offset`, both whole blocks and within the file.
    async fn at(&mut self, offset: u64, len: usize) -> Result<&[u8], OpenError> {
        assert!(offset >= self.start, "the window moves forward");
        let skip = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        if skip >= self.bytes.len() {
            self.bytes.clear();
            self.start = offset;
        } else if skip + len > self.bytes.len() {
            self.bytes.drain(..skip);
            self.start = offset;
        }
        let skip = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        while self.bytes.len() < skip + len {
            let at = self.start + self.bytes.len() as u64;
            let left = usize::try_from(self.size - at).unwrap_or(usize::MAX);
            let (result, mut buffer) =
                self.file.read_at(AlignedBuffer::zeroed(WAL_READ_BYTES.min(left)), at).await;
            let failed = |source| OpenError::Io { file: self.path.to_path_buf(), source };
            let count = result.map_err(failed)?;
            if count == 0 {
                return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
            }
            // A short read ends on a block: what is read again is read whole.
            buffer.set_len(count / BLOCK_BYTES * BLOCK_BYTES);
            if buffer.is_empty() {
                return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
            }
            self.bytes.extend_from_slice(&buffer);
        }
        Ok(&self.bytes[skip..skip + len])
    }
}

/// Finds every intact batch of one segment.
///
/// # Errors
/// `Io`; `Version` for a batch of a later release, which must never be taken for a torn one.
pub(super) async fn scan(
    listed: Listed,
    path: &Path,
    file: &File,
    log_id: u64,
    end: Option<u64>,
) -> Result<Scan, OpenError> {
    let mut scan = Scan::missing(listed, path.to_path_buf());
    scan.file = Some(file.clone());
    let size = end.unwrap_or(scan.size()).min(scan.size());
    let mut window = Window { file, path, size, start: 0, bytes: Vec::new() };
    let mut offset = 0;
    let mut after_batch = true;
    while offset < size {
        let found = look(&mut window, offset, size, log_id, listed.salt).await?;
        match found {
            Look::Batch(batch) => {
                let next = offset + batch.size as u64;
                scan.batches.push((offset, batch));
                offset = next;
                after_batch = true;
            }
            Look::Bad { bad, skip } => {
                if after_batch {
                    scan.bad.push((offset, bad));
                }
                after_batch = false;
                offset += skip;
            }
        }
    }
    Ok(scan)
}

enum Look {
    Batch(Decoded),
    Bad { bad: Bad, skip: u64 },
}

async fn look(
    window: &mut Window<'_>,
    offset: u64,
    size: u64,
    log_id: u64,
    salt: u64,
) -> Result<Look, OpenError> {
    let block = BLOCK_BYTES as u64;
    let bad = |found: String, skip| Ok(Look::Bad { bad: Bad { found, untouched: false }, skip });
    let bytes = window.at(offset, BLOCK_BYTES).await?;
    let zeros = bytes.iter().all(|byte| *byte == 0);
    let head: Peek = match peek(bytes) {
        Ok(head) => head,
        Err(_) if zeros => {
            let bad = Bad { found: "zeros".into(), untouched: true };
            return Ok(Look::Bad { bad, skip: block });
        }
        Err(error) => return bad(error.0, block),
    };
    if head.header.log_id != log_id || head.header.salt != salt {
        let found = "a batch of an earlier life of the segment".into();
        return Ok(Look::Bad { bad: Bad { found, untouched: true }, skip: block });
    }
    if head.version != VERSION {
        let file = window.path.to_path_buf();
        return Err(OpenError::Version { file, version: head.version });
    }
    if head.size as u64 > size - offset {
        return bad(format!("a batch of {} bytes", head.size), block);
    }
    match decode(window.at(offset, head.size).await?) {
        Ok(batch) => Ok(Look::Batch(batch)),
        // The header is whole, so its extent is known: nothing inside it is a batch of its own.
        Err(error) => bad(error.0, head.size as u64),
    }
}

/// Follows the chain through the segments.
pub(super) fn walk(scans: &mut [Scan], mark: &Mark) -> Walk {
    drop_what_was_cut(scans);
    let existing = scans.iter().flat_map(|scan| &scan.batches);
    let watermark =
        existing.map(|(_, batch)| batch.header.watermark).fold(mark.watermark, u64::max);
    let mut accepted = vec![0; scans.len()];
    let mut end: Option<(u64, u64)> = None;
    let mut stop = None;
    for (at, scan) in scans.iter().enumerate() {
        let mut offset = 0;
        for (place, batch) in &scan.batches {
            if *place != offset || !follows(end, at, offset, batch, scans) {
                break;
            }
            accepted[at] += 1;
            offset += batch.size as u64;
            end = Some((batch.header.sequence, batch.chain));
        }
        if accepted[at] == 0 && at > 0 {
            // Nothing of this segment follows. Where the chain broke: here, when the one before is
            // whole by what this one says of it or by what stands behind its last batch.
            let before: &Scan = &scans[at - 1];
            let behind = before.size_of(accepted[at - 1]);
            let whole = match scan.first_sequence() {
                Some(first) => end.is_some_and(|(last, _)| first == last + 1),
                None => before.untouched_at(behind) && !scan.untouched_at(0),
            };
            if whole {
                stop = Some(stop_at(scan, 0, end));
            }
            break;
        }
        stop = Some(stop_at(scan, offset, end));
        // What lies behind a cut does not matter, whatever it is: the next start says so.
        let cut_here = scans.get(at + 1).and_then(|next| next.batches.first());
        let cut_here = cut_here
            .is_some_and(|(place, batch)| *place == 0 && follows(end, at + 1, 0, batch, scans));
        if accepted[at] < scan.batches.len() && !cut_here {
            break;
        }
    }
    let stop = stop.unwrap_or_else(|| {
        Corruption::new(Path::new(super::mark::MARK_FILE), 0, "a segment", "none in the list")
    });
    let torn = accepted.iter().zip(scans.iter()).any(|(count, scan)| {
        scan.batches.len() > *count || !scan.untouched_at(scan.size_of(*count))
    });
    Walk { accepted, end, watermark, stop, torn }
}

/// A later segment that was begun names the first sequence it holds: what an older one holds from
/// there on was cut off and does not exist, nor do the watermarks in it.
fn drop_what_was_cut(scans: &mut [Scan]) {
    let mut limit = u64::MAX;
    for scan in scans.iter_mut().rev() {
        let first = scan.first_sequence();
        scan.batches.retain(|(_, batch)| batch.header.sequence < limit);
        limit = first.map_or(limit, |first| first.min(limit));
    }
}

/// Whether `batch`, at `offset` of segment `at`, is the one after `end`.
fn follows(end: Option<(u64, u64)>, at: usize, offset: u64, batch: &Decoded, all: &[Scan]) -> bool {
    let start = match batch.records.first() {
        Some(Record::Start(start)) if offset == 0 => Some(start),
        _ => None,
    };
    if (offset == 0) != start.is_some() {
        return false;
    }
    let Some((sequence, chain)) = end else {
        // The oldest segment kept: what came before it was released.
        return at == 0;
    };
    let header = &batch.header;
    if header.sequence != sequence + 1 || header.chain != chain {
        return false;
    }
    start.is_none_or(|start| {
        let before = &all[at - 1].listed;
        start.previous == u64::from(before.number)
            && start.salt == before.salt
            && (start.sequence, start.chain) == (sequence, chain)
    })
}

fn stop_at(scan: &Scan, offset: u64, end: Option<(u64, u64)>) -> Corruption {
    let expected = match end {
        Some((sequence, chain)) => format!("batch {} with chain {chain:016x}", sequence + 1),
        None => "the start of the log".into(),
    };
    let found = match scan.batches.iter().find(|(place, _)| *place == offset) {
        Some((_, batch)) => {
            format!("batch {} with chain {:016x}", batch.header.sequence, batch.header.chain)
        }
        None => match scan.found_at(offset) {
            Some(bad) => bad.found.clone(),
            None => "the end of the segment".into(),
        },
    };
    Corruption::new(&scan.path, offset, expected, found)
}

//! A mark file made anew from the headers of the segments: the way out when both of its slots are
//! bad or it is gone.
//!
//! What only the mark knew is put together again, or replaced by what is safe:
//!
//! ```text
//! segments    those whose starts name each other, back from the one with the greatest sequence;
//!             the others are free
//! log id      of any intact batch          epoch       above every one found
//! watermark   0: the batches carry theirs  clean       no
//! identity    asked of the owner           incarnation far above what opens could have counted
//! ceiling     0: unknown, which makes the fence jump further than any log could have gone
//! shortened   yes: revisions are fenced before anybody is served
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use ringbolt_io::{AlignedBuffer, File, Io, OpenHow};

use crate::corruption::Corruption;
use crate::types::Revision;
use crate::wal::format::{BLOCK_BYTES, Decoded, Peek, Record, Start, decode, peek};
use crate::wal::mark::{Listed, MARK_FILE, Mark};
use crate::wal::recover::failed;
use crate::wal::segment::number_of;
use crate::wal::types::{Identity, OpenError, WalConfig};

/// Opens that an incarnation can have counted, at most.
const INCARNATIONS_MAX: u64 = 1 << 32;

/// A segment file as its first intact batch tells of it.
struct Found {
    number: u32,
    blocks: u32,
    first: Option<First>,
}

/// The first intact batch of a segment.
struct First {
    header: crate::wal::format::Header,
    /// When it is the start that belongs there.
    start: Option<Start>,
}

/// A mark for the segments in `directory`. `identity` is asked with the raft id that the log voted
/// for last, 0 if for nobody.
///
/// # Errors
/// `Corrupt` when no segment holds an intact batch, `Io`.
pub(super) async fn rebuild(
    io: &Io,
    directory: &Path,
    config: &WalConfig,
    identity: &dyn Fn(u64) -> Identity,
) -> Result<Mark, OpenError> {
    let found = look(io, directory).await?;
    let firsts = || found.iter().filter_map(|found| found.first.as_ref());
    // Several logs never share a directory; rot cannot make a header that is whole.
    let Some(newest) = firsts().max_by_key(|first| first.header.sequence) else {
        let path = directory.join(MARK_FILE);
        return Err(Corruption::new(&path, 0, "a mark file", "none, nor any batch of a log").into());
    };
    let vote = newest.header.hard_state.vote;
    let mark = Mark {
        serial: 0,
        epoch: firsts().map(|first| first.header.epoch).max().unwrap_or(0),
        log_id: newest.header.log_id,
        identity: identity(vote),
        incarnation: newest.header.epoch.saturating_add(INCARNATIONS_MAX),
        boot_id: [0; 16],
        mode: config.mode,
        clean: false,
        shortened: true,
        ceiling: Revision(0),
        watermark: 0,
        end_sequence: 0,
        end_offset: 0,
        spare: 0,
        segments: chain(&found, newest.header.log_id),
    };
    Ok(Mark { spare: count_free(&mark.segments), ..mark })
}

/// The segments of the log, oldest first, then the free ones.
fn chain(found: &[Found], log_id: u64) -> Vec<Listed> {
    let of_log =
        |found: &&Found| found.first.as_ref().is_some_and(|first| first.header.log_id == log_id);
    let mut left: BTreeMap<u32, &Found> = found.iter().map(|found| (found.number, found)).collect();
    let last = found.iter().filter(of_log);
    let mut last = last.max_by_key(|found| found.first.as_ref().map(|first| first.header.sequence));
    let mut salt = last.and_then(|found| found.first.as_ref()).map_or(0, |first| first.header.salt);
    let mut begun = Vec::new();
    while let Some(segment) = last {
        left.remove(&segment.number);
        begun.push(Listed { number: segment.number, blocks: segment.blocks, salt });
        let start = segment.first.as_ref().and_then(|first| first.start);
        // What came before was released and used again when its salt is another.
        let before = start.and_then(|start| {
            let number = u32::try_from(start.previous).ok()?;
            let before = *left.get(&number)?;
            let known = before.first.as_ref().map(|first| first.header.salt);
            (known.is_none() || known == Some(start.salt)).then_some((before, start.salt))
        });
        last = before.map(|(before, _)| before);
        salt = before.map_or(0, |(_, salt)| salt);
    }
    begun.reverse();
    let free =
        left.values().map(|free| Listed { number: free.number, blocks: free.blocks, salt: 0 });
    begun.into_iter().chain(free).collect()
}

fn count_free(segments: &[Listed]) -> u32 {
    let count = segments.iter().filter(|listed| listed.salt == 0).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Every segment file, by number.
async fn look(io: &Io, directory: &Path) -> Result<Vec<Found>, OpenError> {
    let mut found = Vec::new();
    for name in io.disk().read_dir(directory).await.map_err(failed(directory))? {
        let Some(number) = number_of(&name) else { continue };
        let path = directory.join(&name);
        let file = io.disk().open(&path, OpenHow::READ).await.map_err(failed(&path))?;
        // A file that was cut is a segment of what is left of it.
        let blocks = u32::try_from(file.size_at_open() / BLOCK_BYTES as u64).unwrap_or(u32::MAX);
        let first = first_batch(&file, &path, blocks).await?;
        found.push(Found { number, blocks, first });
    }
    Ok(found)
}

/// The first intact batch of a file. Where a block is bad the next one is looked at.
async fn first_batch(file: &File, path: &Path, blocks: u32) -> Result<Option<First>, OpenError> {
    for block in 0..u64::from(blocks) {
        let offset = block * BLOCK_BYTES as u64;
        let bytes = read(file, path, offset, BLOCK_BYTES).await?;
        let Ok(Peek { size, .. }) = peek(&bytes) else { continue };
        if size as u64 > u64::from(blocks) * BLOCK_BYTES as u64 - offset {
            continue;
        }
        let Ok(Decoded { header, records, .. }) = decode(&read(file, path, offset, size).await?)
        else {
            continue;
        };
        let start = match records.first() {
            Some(Record::Start(start)) if offset == 0 => Some(*start),
            _ => None,
        };
        return Ok(Some(First { header, start }));
    }
    Ok(None)
}

async fn read(
    file: &File,
    path: &Path,
    offset: u64,
    len: usize,
) -> Result<AlignedBuffer, OpenError> {
    let (result, mut buffer) = file.read_at(AlignedBuffer::zeroed(len), offset).await;
    let count = result.map_err(failed(path))?;
    if count < len {
        return Err(failed(path)(std::io::ErrorKind::UnexpectedEof.into()));
    }
    buffer.set_len(len);
    Ok(buffer)
}

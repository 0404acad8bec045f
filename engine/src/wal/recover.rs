//! Making, opening and repairing a log (W6).
//!
//! ```text
//! lock ─► read the mark ─► scan every listed segment ─► walk the chain
//!      ─► acknowledged and bad: refuse, nothing changed
//!      ─► otherwise: flush what was read ─► mark (new epoch, list) ─► start of a fresh segment
//! ```
//!
//! The tail of the old segment is never written again: the start of the fresh one names the last
//! batch that exists. Only a log that was closed in order goes on in the segment it ended in.

use ringbolt_io::planted::{self, Planted};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringbolt_io::bulk::{BulkWriter, zero_file};
use ringbolt_io::{AlignedBuffer, Durability, File, Io, MonoTime, OpenHow};

use crate::corruption::Corruption;
use crate::limits::{WAL_LOCK_WAIT_MS, WAL_READ_BYTES};
use crate::types::{RaftIndex, Revision};
use crate::wal::format::{BLOCK_BYTES, ENTRY_OVERHEAD_BYTES, Record, Start, batch_size};
use crate::wal::log::{Constant, Log};
use crate::wal::mark::{MARK_FILE, Mark, MarkFile, fresh};
use crate::wal::place::report;
use crate::wal::rebuild::rebuild;
use crate::wal::replay::{Content, replay};
use crate::wal::room::is_reserve;
use crate::wal::scan::{Scan, Walk, scan, walk};
use crate::wal::segment::{Free, Segment, file_name, lock, number_of, open_file, zero_what_fits};
use crate::wal::types::{
    Checkpoint, Cut, HardState, Identity, Mode, OpenError, Recovered, WalConfig,
};

/// End of the name of a file whose writing was not finished.
const PARTIAL: &str = ".partial";
/// What the name of a checkpoint holds, which only a log can name.
const CHECKPOINT_SUFFIX: &str = ".checkpoint";
/// Where Linux tells which boot this is.
const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

/// What to do about damage below the watermark.
#[derive(Clone, Copy)]
pub(super) enum Loss<'a> {
    /// Refuse to open.
    Refuse,
    /// Cut there, and say so in the mark.
    Accept(&'a Known<'a>),
}

/// What the owner of a log whose loss is accepted knows beside it.
pub struct Known<'a> {
    /// Whose log it is when no mark tells, by the raft id it voted for last; 0 is nobody.
    pub identity: &'a dyn Fn(u64) -> Identity,
    /// The newest whole checkpoint that lies in the directory: the log may have lost its name.
    pub checkpoint: Option<Checkpoint>,
}

/// An opened log.
pub(super) struct Opened {
    pub log: Log,
    pub marks: MarkFile,
    pub recovered: Recovered,
}

/// Whether `directory` holds a log.
pub(super) async fn exists(io: &Io, directory: &Path) -> Result<bool, OpenError> {
    let path = directory.join(MARK_FILE);
    let size = io.disk().size(&path).await.map_err(failed(&path))?;
    Ok(size.is_some())
}

/// Makes an empty log. The mark file comes last and whole: without it there is no log.
pub(super) async fn create(
    io: &Io,
    directory: &Path,
    identity: Identity,
    config: &WalConfig,
) -> Result<(), OpenError> {
    let disk = io.disk();
    if exists(io, directory).await? {
        return Err(OpenError::Exists(directory.to_path_buf()));
    }
    disk.create_dir_all(directory).await.map_err(failed(directory))?;
    if let Some(parent) = directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        disk.sync_dir(parent).await.map_err(failed(parent))?;
    }
    let number = clear_unfinished(io, directory).await?;
    let mut segments = Vec::new();
    if config.mode != Mode::Memory {
        let size = config.segment_bytes_first.max(segment_bytes_min(config));
        let path = directory.join(file_name(number));
        zero_file(io, &path, size).await.map_err(failed(&path))?;
        segments.push(Free { number, size }.listed());
    }
    let mark = Mark {
        serial: 0,
        epoch: 0,
        log_id: io.random_u64(),
        identity,
        incarnation: 0,
        boot_id: [0; 16],
        mode: config.mode,
        clean: false,
        shortened: false,
        ceiling: Revision(0),
        watermark: 0,
        end_sequence: 0,
        end_offset: 0,
        spare: u32::from(!segments.is_empty()),
        segments,
    };
    // A name of its own until it is whole: what a process that died was about to rename is not it.
    let path = directory.join(format!("{MARK_FILE}-{:016x}", io.random_u64()));
    let mut writer = BulkWriter::create(io, &path).await.map_err(failed(&path))?;
    writer.write(&fresh(&mark)).await.map_err(failed(&path))?;
    writer.finish().await.map_err(failed(&path))?;
    disk.rename(&path, &directory.join(MARK_FILE)).await.map_err(failed(&path))?;
    disk.sync_dir(directory).await.map_err(failed(directory))
}

/// Removes what an unfinished `create` left; gives a number no file there has. An operation of the
/// process that died may still happen, so no name of it is used again, and marks go first: once
/// they are gone nothing can become the mark file but ours. Segments with batches and no mark file
/// are a log whose mark was lost: they are kept.
async fn clear_unfinished(io: &Io, directory: &Path) -> Result<u32, OpenError> {
    let mut names = io.disk().read_dir(directory).await.map_err(failed(directory))?;
    let mut number = 1;
    // A log is found before anything of it is removed.
    let of_log = |name: &&String| number_of(name).is_some() || name.ends_with(CHECKPOINT_SUFFIX);
    for name in names.iter().filter(of_log) {
        refuse_batches(io, directory, name).await?;
    }
    names.sort_by_key(|name| number_of(name).is_some());
    for name in names {
        let path = directory.join(&name);
        if let Some(segment) = number_of(name.strip_suffix(PARTIAL).unwrap_or(&name)) {
            number = number.max(segment.saturating_add(1));
        }
        if number_of(&name).is_some() || is_unfinished(&name) {
            remove(io, &path).await?;
        }
    }
    if exists(io, directory).await? {
        return Err(OpenError::Exists(directory.to_path_buf()));
    }
    Ok(number)
}

async fn refuse_batches(io: &Io, directory: &Path, name: &str) -> Result<(), OpenError> {
    let path = directory.join(name);
    let opened = io.disk().open(&path, OpenHow::READ).await;
    let file = match opened {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(failed(&path))?,
    };
    // What an unfinished `create` leaves is zeros from end to end; rot may have taken any header.
    let mut offset = 0;
    loop {
        let (result, mut buffer) =
            file.read_at(AlignedBuffer::zeroed(WAL_READ_BYTES), offset).await;
        buffer.set_len(result.map_err(failed(&path))?);
        if buffer.is_empty() {
            return Ok(());
        }
        if buffer.iter().any(|byte| *byte != 0) {
            let found = format!("no file, though {name} holds a log");
            let mark = directory.join(MARK_FILE);
            return Err(Corruption::new(&mark, 0, "a mark file", found).into());
        }
        offset += buffer.len() as u64;
    }
}

/// Removes a file that may be gone already, by the hand of a process that died.
async fn remove(io: &Io, path: &Path) -> Result<(), OpenError> {
    match io.disk().remove(path).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(path)(error)),
        _ => Ok(()),
    }
}

/// Whether a file of that name is a segment or a mark that did not get its final name.
fn is_unfinished(name: &str) -> bool {
    let segment = name.strip_suffix(PARTIAL).and_then(number_of);
    segment.is_some() || name.strip_prefix(MARK_FILE).is_some_and(|rest| rest.starts_with('-'))
}

/// Opens a log and recovers what it holds.
pub(super) async fn open(
    io: &Io,
    directory: &Path,
    config: WalConfig,
    loss: Loss<'_>,
) -> Result<Opened, OpenError> {
    if !exists(io, directory).await? {
        make_mark_file(io, directory, &config, loss).await?;
    }
    let until = io.now() + Duration::from_millis(WAL_LOCK_WAIT_MS);
    let path = directory.join(MARK_FILE);
    // The mark file decides for all: direct where the file system takes it, else buffered (W8).
    let file = io.disk().open(&path, OpenHow::LOG).await.map_err(failed(&path))?;
    let direct = file.is_direct();
    lock(io, &file, &path, until).await?;
    report(io, directory, direct).await;
    let (mut marks, mark) = match (MarkFile::read(file.clone(), &path).await, loss) {
        (Err(OpenError::Corrupt(_)), Loss::Accept(known)) => {
            write_anew(io, directory, &config, file, known).await?
        }
        (read, _) => read?,
    };
    if config.mode == Mode::Memory && !mark.segments.is_empty() {
        return Err(OpenError::Mode(directory.to_path_buf()));
    }
    let boot_id = match config.boot_id {
        Some(boot_id) => boot_id,
        None => boot_id(io).await?,
    };
    let constant = Constant {
        log_id: mark.log_id,
        epoch: mark.epoch + 1,
        identity: mark.identity,
        incarnation: mark.incarnation + 1,
        boot_id,
        direct,
        segment_bytes_min: segment_bytes_min(&config),
    };
    let mut log = Log::new(config, constant, &mark);
    // Written down at once: a second crash before the fence must not forget the loss.
    log.shortened |= lost_acknowledged(&mark, boot_id);
    if log.config.mode == Mode::Memory {
        marks.write_both(&log.mark(0, None)).await.map_err(failed(&path))?;
        let recovered = recovered(&mark, &log, Content::default(), None);
        return Ok(Opened { log, marks, recovered });
    }
    let mut scans = scan_listed(io, directory, &mark, direct, until, loss).await?;
    let mut checkpoint_alone = None;
    if let Loss::Accept(known) = loss {
        // Whatever the watermarks say: the last batch, of which none of them tells, may be gone.
        log.shortened = true;
        let begin = best_beginning(io, directory, &mut scans, (&mark, &log), known).await?;
        checkpoint_alone = begin.keep(&mut scans, &mut log);
    }
    let walk = walk(&mut scans, &mark);
    refuse_loss(&walk, &mark, loss)?;
    log.shortened |= is_short(&walk, &mark);
    let content = match checkpoint_alone {
        Some(content) => content,
        None => replay(&scans, &walk, (mark.identity, log.config.check))?,
    };
    if !planted::is(Planted::RecoveryWithoutSync) {
        make_durable(&scans, &walk).await?;
    }
    let cut = cut(&mark, &walk);
    let place = Place { io, directory, until };
    go_on(&place, &mut log, &mut marks, &mark, (scans, walk), &content).await?;
    let recovered = recovered(&mark, &log, content, cut);
    Ok(Opened { log, marks, recovered })
}

/// What was read may so far live only in the device's cache: it is flushed. What no watermark
/// covers is first written once more, byte for byte: after a flush that failed the system may hold
/// it for clean, so that no later flush would write it out (as Linux does after an error of
/// write-back).
async fn make_durable(scans: &[Scan], walk: &Walk) -> Result<(), OpenError> {
    for (scan, accepted) in scans.iter().zip(&walk.accepted) {
        let Some(file) = &scan.file else { continue };
        for (offset, batch) in scan.batches.iter().take(*accepted) {
            if batch.header.sequence > walk.watermark {
                let buffer = AlignedBuffer::zeroed(batch.size);
                let (result, buffer) = file.read_at(buffer, *offset).await;
                let whole = result.and_then(|count| match count == batch.size {
                    true => Ok(()),
                    false => Err(std::io::ErrorKind::UnexpectedEof.into()),
                });
                whole.map_err(failed(&scan.path))?;
                let written = file.write_at(buffer, *offset, Durability::Disk).await.0;
                written.map_err(failed(&scan.path))?;
            }
        }
        file.sync().await.map_err(failed(&scan.path))?;
    }
    Ok(())
}

/// A mark made anew, in both slots of the file.
async fn write_anew(
    io: &Io,
    directory: &Path,
    config: &WalConfig,
    file: File,
    known: &Known<'_>,
) -> Result<(MarkFile, Mark), OpenError> {
    let mark = rebuild(io, directory, config, known.identity).await?;
    let path = directory.join(MARK_FILE);
    let mut marks = MarkFile::over(file, &path);
    marks.write_both(&mark).await.map_err(failed(&path))?;
    Ok((marks, mark))
}

/// Where loss is accepted, an empty mark file stands for the one that is gone, if there is a log.
async fn make_mark_file(
    io: &Io,
    directory: &Path,
    config: &WalConfig,
    loss: Loss<'_>,
) -> Result<(), OpenError> {
    let Loss::Accept(known) = loss else {
        return Err(OpenError::Missing(directory.to_path_buf()));
    };
    rebuild(io, directory, config, known.identity).await?;
    let path = directory.join(MARK_FILE);
    io.disk().open(&path, OpenHow::CREATE).await.map_err(failed(&path))?;
    io.disk().sync_dir(directory).await.map_err(failed(directory))
}

/// Whether the mode the log was last open in may have lost acknowledged state since. A log that was
/// made and never opened has acknowledged nothing.
fn lost_acknowledged(mark: &Mark, boot_id: [u8; 16]) -> bool {
    match mark.mode {
        Mode::Safe => false,
        Mode::NoFsync => mark.incarnation > 0 && !mark.clean && mark.boot_id != boot_id,
        Mode::Memory => mark.incarnation > 0,
    }
}

/// Whether acknowledged batches are missing.
fn is_short(walk: &Walk, mark: &Mark) -> bool {
    let last = walk.end.map_or(0, |(sequence, _)| sequence);
    last < walk.watermark || (mark.clean && last != mark.end_sequence)
}

fn refuse_loss(walk: &Walk, mark: &Mark, loss: Loss<'_>) -> Result<(), OpenError> {
    if matches!(loss, Loss::Refuse) && is_short(walk, mark) {
        return Err(walk.stop.clone().into());
    }
    Ok(())
}

fn cut(mark: &Mark, walk: &Walk) -> Option<Cut> {
    let gone = walk.torn && !mark.clean;
    gone.then(|| Cut {
        file: walk.stop.file.clone(),
        offset: walk.stop.offset,
        sequence: walk.end.map_or(0, |(sequence, _)| sequence),
        found: walk.stop.found.clone(),
    })
}

fn recovered(mark: &Mark, log: &Log, content: Content, cut: Option<Cut>) -> Recovered {
    Recovered {
        hard_state: content.hard_state,
        entries: content.entries,
        checkpoint: content.checkpoint,
        clean: mark.clean,
        boot_id: log.constant.boot_id,
        previous_boot_id: mark.boot_id,
        previous_mode: mark.mode,
        revision_ceiling: mark.ceiling,
        identity: mark.identity,
        incarnation: log.constant.incarnation,
        shortened: log.shortened,
        cut,
        places: content.places,
    }
}

/// What is left of a log whose loss is accepted.
enum Beginning {
    /// What follows from the start of this segment.
    At(usize),
    /// Nothing but a checkpoint.
    Checkpoint(Content),
}

impl Beginning {
    /// Leaves what is kept of the scans; the content, when that is a checkpoint alone.
    fn keep(self, scans: &mut Vec<Scan>, log: &mut Log) -> Option<Content> {
        match self {
            Beginning::At(from) => {
                scans.drain(..from);
                None
            }
            Beginning::Checkpoint(content) => {
                log.restore_end(greatest_sequence(scans), 0);
                scans.clear();
                Some(content)
            }
        }
    }
}

/// Where loss is accepted: the segment from which the log reaches furthest. One behind the damage
/// names the newest checkpoint in its start: what it covers is not lost with what lies before.
/// Where no segment leads anywhere, the newest checkpoint any batch names is what is left.
async fn best_beginning(
    io: &Io,
    directory: &Path,
    scans: &mut [Scan],
    (mark, log): (&Mark, &Log),
    known: &Known<'_>,
) -> Result<Beginning, OpenError> {
    let mut best: Option<(u64, usize)> = None;
    for from in 0..scans.len() {
        let tail = &mut scans[from..];
        let walk = walk(tail, mark);
        let Ok(content) = replay(tail, &walk, (mark.identity, log.config.check)) else { continue };
        if walk.end.is_none() || !is_grounded(io, directory, &content).await? {
            continue;
        }
        let last = content.last_index();
        if best.is_none_or(|(furthest, _)| last > furthest) {
            best = Some((last, from));
        }
        if from == 0 && !is_short(&walk, mark) {
            break;
        }
    }
    let alone = newest_checkpoint(io, directory, scans, known).await?;
    let reaches = |content: &Content| best.is_none_or(|(last, _)| content.last_index() > last);
    match alone.filter(reaches) {
        Some(content) => Ok(Beginning::Checkpoint(content)),
        None => Ok(Beginning::At(best.map_or(0, |(_, from)| from))),
    }
}

/// The newest checkpoint that is there, as a batch names it or the owner knows it.
async fn newest_checkpoint(
    io: &Io,
    directory: &Path,
    scans: &[Scan],
    known: &Known<'_>,
) -> Result<Option<Content>, OpenError> {
    let batches = || scans.iter().flat_map(|scan| &scan.batches).map(|(_, batch)| batch);
    let last = batches().max_by_key(|batch| batch.header.sequence);
    let hard_state = last.map(|batch| batch.header.hard_state).unwrap_or_default();
    let records = batches().flat_map(|batch| &batch.records);
    let named = records.filter_map(|record| match record {
        Record::Checkpoint(named) => Some(named),
        _ => None,
    });
    let mut newest: Option<Content> = None;
    for checkpoint in named.chain(&known.checkpoint) {
        let newer = newest.as_ref().is_none_or(|one| one.last_index() < checkpoint.index.0);
        let hard_state = HardState {
            term: hard_state.term.max(checkpoint.term),
            commit: checkpoint.index,
            ..hard_state
        };
        let checkpoint = Some(checkpoint.clone());
        let content = Content { hard_state, checkpoint, ..Content::default() };
        if newer && is_grounded(io, directory, &content).await? {
            newest = Some(content);
        }
    }
    Ok(newest)
}

fn greatest_sequence(scans: &[Scan]) -> u64 {
    let batches = scans.iter().flat_map(|scan| &scan.batches);
    batches.map(|(_, batch)| batch.header.sequence).max().unwrap_or(0)
}

/// Whether what a log holds begins somewhere: at its first entry, or at a checkpoint that is there.
async fn is_grounded(io: &Io, directory: &Path, content: &Content) -> Result<bool, OpenError> {
    let Some(named) = &content.checkpoint else {
        return Ok(content.entries.first().is_none_or(|first| first.index == RaftIndex(1)));
    };
    let path = directory.join(&named.file);
    Ok(io.disk().size(&path).await.map_err(failed(&path))?.is_some())
}

/// Opens, locks and scans the listed segments.
async fn scan_listed(
    io: &Io,
    directory: &Path,
    mark: &Mark,
    direct: bool,
    until: MonoTime,
    loss: Loss<'_>,
) -> Result<Vec<Scan>, OpenError> {
    let mut scans = Vec::with_capacity(mark.segments.len());
    let spare = usize::try_from(mark.spare).unwrap_or(usize::MAX);
    let begun = mark.segments.iter().copied().enumerate();
    for (at, mut listed) in begun.filter(|(_, listed)| listed.salt != 0) {
        let path = directory.join(file_name(listed.number));
        let wanted = u64::from(listed.blocks) * BLOCK_BYTES as u64;
        let size = io.disk().size(&path).await.map_err(failed(&path))?;
        if size != Some(wanted) {
            if matches!(loss, Loss::Refuse) {
                let found = size.map_or("no file".into(), |size| format!("{size} bytes"));
                let wanted = format!("a segment of {wanted} bytes");
                return Err(Corruption::new(&path, 0, wanted, found).into());
            }
            listed.blocks = u32::try_from(size.unwrap_or(0) / BLOCK_BYTES as u64).unwrap_or(0);
            if listed.blocks == 0 {
                scans.push(Scan::missing(listed, path));
                continue;
            }
        }
        let file = open_file(io, &path, direct).await?;
        lock(io, &file, &path, until).await?;
        let whole = u64::from(listed.blocks) * BLOCK_BYTES as u64;
        if size != Some(whole) {
            // Loss is accepted: what is left of the file is the segment from now on.
            file.truncate(whole).await.map_err(failed(&path))?;
        }
        // A log that was closed in order has nothing behind its end.
        let behind_end = mark.segments.len() - at;
        let end = match behind_end.checked_sub(spare + 1) {
            None if mark.clean => Some(0),
            // An end inside a block leaves that block out, and is then found too short.
            Some(0) if mark.clean => Some(mark.end_offset & !(BLOCK_BYTES as u64 - 1)),
            _ => None,
        };
        scans.push(scan(listed, &path, &file, mark.log_id, end).await?);
    }
    Ok(scans)
}

/// Where a recovery works.
struct Place<'a> {
    io: &'a Io,
    directory: &'a Path,
    until: MonoTime,
}

/// Makes the log ready to append: in place after a clean stop, else in a fresh segment.
async fn go_on(
    place: &Place<'_>,
    log: &mut Log,
    marks: &mut MarkFile,
    mark: &Mark,
    (scans, walk): (Vec<Scan>, Walk),
    content: &Content,
) -> Result<(), OpenError> {
    let (mut sequence, mut chain) = walk.end.unwrap_or((log.last_sequence, 0));
    let mut ended_at = walk.accepted.iter().rposition(|count| *count > 0);
    while let Some(start) = bare_start(&scans, &walk, ended_at).filter(|_| !mark.clean) {
        // A start with nothing behind it: the fresh one says the same, and this segment is free.
        (sequence, chain) = (start.sequence, start.chain);
        ended_at = ended_at.map(|end| end - 1);
    }
    let last_index = content.last_index();
    log.restore_end(sequence, chain);
    let mut unused = listed_free(place, mark).await?;
    for (at, scan) in scans.into_iter().enumerate() {
        let size = scan.size();
        let (number, count) = (scan.listed.number, walk.accepted[at]);
        let kept = ended_at.is_some_and(|end| at <= end);
        if !kept {
            unused.extend(scan.file.is_some().then_some(Free { number, size }));
            continue;
        }
        let offset = scan.size_of(count);
        let segment = kept_segment(scan, count, log);
        log.sealed_bytes += size;
        log.offset = offset;
        log.sealed.push_back(segment);
    }
    let ordered = mark.clean && !log.shortened;
    let in_place =
        (ordered || planted::is(Planted::RecoveryWritesBehindCut)) && !log.sealed.is_empty();
    if in_place {
        log.active = log.sealed.pop_back();
        log.sealed_bytes -= log.active.as_ref().map_or(0, |active| active.size);
    } else {
        log.offset = 0;
    }
    log.restore(content.hard_state, content.checkpoint.as_ref(), last_index);
    let needless = find_free(place, log, mark, unused).await?;
    if in_place {
        let path = marks.path().to_path_buf();
        marks.write_both(&log.mark(0, None)).await.map_err(failed(&path))?;
    } else {
        begin_fresh(place, log, marks).await?;
    }
    for path in needless {
        remove(place.io, &path).await?;
    }
    log.marked = log.durable;
    Ok(())
}

/// The start of segment `at` when the log holds nothing else of it, and others before it.
fn bare_start(scans: &[Scan], walk: &Walk, at: Option<usize>) -> Option<Start> {
    let at = at.filter(|at| *at > 0 && walk.accepted[*at] == 1)?;
    let (_, batch) = scans[at].batches.first()?;
    match batch.records.first() {
        Some(Record::Start(start)) => Some(*start),
        _ => None,
    }
}

/// A scanned segment of which the first `count` batches are part of the log.
fn kept_segment(scan: Scan, count: usize, log: &mut Log) -> Segment {
    let size = scan.size();
    let batches = scan.batches.iter().take(count);
    let mut segment = Segment {
        number: scan.listed.number,
        salt: scan.listed.salt,
        size,
        file: scan.file.clone().expect("a segment with batches was read"),
        path: scan.path.clone(),
        first_sequence: 0,
        last_sequence: 0,
        first_index: 0,
        max_index: 0,
    };
    for (offset, batch) in batches {
        if segment.first_sequence == 0 {
            segment.first_sequence = batch.header.sequence;
        }
        segment.last_sequence = batch.header.sequence;
        for index in batch.indexes() {
            segment.note_index(index);
        }
        let position = log.sealed_bytes + offset + batch.size as u64;
        log.sample(segment.max_index, position);
    }
    segment
}

/// The free segments the mark lists, as far as they are there.
async fn listed_free(place: &Place<'_>, mark: &Mark) -> Result<Vec<Free>, OpenError> {
    let mut free = Vec::new();
    for listed in mark.segments.iter().filter(|listed| listed.salt == 0) {
        let (number, size) = (listed.number, u64::from(listed.blocks) * BLOCK_BYTES as u64);
        let path = place.directory.join(file_name(number));
        let found = place.io.disk().size(&path).await.map_err(failed(&path))?;
        if found == Some(size) {
            free.push(Free { number, size });
        }
    }
    Ok(free)
}

/// Takes the unused segments that are large enough; removes unfinished files, reserves of earlier
/// lives, and segments that no mark lists. Gives those that the mark lists and nobody needs: they
/// may go only when a mark without them is durable, or a start that fails would be the last.
async fn find_free(
    place: &Place<'_>,
    log: &mut Log,
    mark: &Mark,
    unused: Vec<Free>,
) -> Result<Vec<PathBuf>, OpenError> {
    let mut needless = Vec::new();
    let (io, directory) = (place.io, place.directory);
    let least = log.constant.segment_bytes_min;
    log.free = unused.into_iter().filter(|free| free.size >= least).collect();
    for name in io.disk().read_dir(directory).await.map_err(failed(directory))? {
        let path = directory.join(&name);
        let unfinished = is_unfinished(&name) || is_reserve(&name);
        if is_reserve(&name) || name.contains(CHECKPOINT_SUFFIX) {
            // The next checkpoint needs as much: no segment takes it meanwhile.
            let bytes = io.disk().size(&path).await.map_err(failed(&path))?;
            log.room.expect(bytes.unwrap_or(0));
        }
        if unfinished {
            remove(io, &path).await?;
        }
        let Some(number) = number_of(name.strip_suffix(PARTIAL).unwrap_or(&name)) else { continue };
        log.next_number = log.next_number.max(number.saturating_add(1));
        let in_log = log.sealed.iter().chain(&log.active).any(|kept| kept.number == number);
        if in_log || log.free.iter().any(|free| free.number == number) {
            continue;
        }
        if mark.segments.iter().any(|listed| file_name(listed.number) == name) {
            needless.push(path);
        } else {
            remove(io, &path).await?;
        }
    }
    Ok(needless)
}

/// Seals what there is and begins a fresh segment. Its start is durable when this returns.
async fn begin_fresh(
    place: &Place<'_>,
    log: &mut Log,
    marks: &mut MarkFile,
) -> Result<(), OpenError> {
    let (io, directory) = (place.io, place.directory);
    let free = match log.free.pop_front() {
        Some(free) => free,
        None => {
            let number = log.next_number;
            log.next_number += 1;
            let path = directory.join(file_name(number));
            let sizes = (log.zero_size(), log.segment_bytes_least());
            let size = zero_what_fits(io, &path, sizes).await.map_err(failed(&path))?;
            Free { number, size }
        }
    };
    let path = directory.join(file_name(free.number));
    let file = open_file(io, &path, log.constant.direct).await?;
    lock(io, &file, &path, place.until).await?;
    let start = log.sealed.back().map_or(Start::default(), |before| Start {
        previous: u64::from(before.number),
        salt: before.salt,
        sequence: log.last_sequence,
        chain: log.chain,
    });
    log.active = Some(Segment::fresh(io, free, file.clone(), path.clone()));
    log.offset = 0;
    let mark_path = marks.path().to_path_buf();
    marks.write_both(&log.mark(0, None)).await.map_err(failed(&mark_path))?;
    let mut buffer = AlignedBuffer::zeroed(BLOCK_BYTES);
    let records = log.start_records(start);
    log.write_batch(&records, &mut buffer);
    file.write_at(buffer, 0, Durability::Disk).await.0.map_err(failed(&path))?;
    log.restore_end(log.last_sequence, log.chain);
    log.offset = BLOCK_BYTES as u64;
    marks.write_both(&log.mark(0, None)).await.map_err(failed(&mark_path))
}

/// The least size of a segment: its start and the largest entry.
fn segment_bytes_min(config: &WalConfig) -> u64 {
    (BLOCK_BYTES + batch_size(ENTRY_OVERHEAD_BYTES + config.entry_bytes_max)) as u64
}

/// Which boot of the machine this is. Where nobody tells, each open counts as another boot: that
/// errs on the side of having lost something. A failed read tells nothing, neither this nor that:
/// it is an error, for a fence that nothing needs makes every client list anew.
async fn boot_id(io: &Io) -> Result<[u8; 16], OpenError> {
    let path = Path::new(BOOT_ID_FILE);
    let file = match io.disk().open(path, OpenHow::READ).await {
        Ok(file) => file,
        Err(error) if is_not_told(&error) => return Ok(fresh_boot_id(io)),
        Err(error) => return Err(failed(path)(error)),
    };
    let (result, buffer) = file.read_at(AlignedBuffer::zeroed(BLOCK_BYTES), 0).await;
    let count = result.map_err(failed(path))?;
    Ok(parse_boot_id(&buffer[..count]).unwrap_or_else(|| fresh_boot_id(io)))
}

/// Whether a system without this file, or one that hides it, answered so.
fn is_not_told(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}

fn fresh_boot_id(io: &Io) -> [u8; 16] {
    (u128::from(io.random_u64()) << 64 | u128::from(io.random_u64())).to_le_bytes()
}

fn parse_boot_id(text: &[u8]) -> Option<[u8; 16]> {
    let text = std::str::from_utf8(text).ok()?.trim().replace('-', "");
    let id = u128::from_str_radix(&text, 16).ok()?;
    (text.len() == 32).then_some(id.to_be_bytes())
}

pub(super) fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> OpenError + use<> {
    let file: PathBuf = path.to_path_buf();
    move |source| OpenError::Io { file, source }
}

impl Content {
    /// The last index the log knows of.
    fn last_index(&self) -> u64 {
        let entry = self.entries.last().map_or(0, |entry| entry.index.0);
        let checkpoint = self.checkpoint.as_ref().map_or(RaftIndex(0), |named| named.index);
        entry.max(checkpoint.0)
    }
}

//! What goes on beside the commit path: preparing and releasing segments, marks, zeroing, flushing.
//!
//! One task owns the mark file, so marks are written one after the other. Nothing here is on the
//! way of an acknowledgement, but for the flush that `NoFsync` owes a changed vote.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ringbolt_io::{File, Io, plain};

use crate::limits::WAL_SEGMENTS_SPARE;
use crate::wal::mark::{MARK_FILE, MarkFile};
use crate::wal::room::grow_when_short;
use crate::wal::segment::{Free, Segment, file_name, lock, open_file, zero_what_fits};
use crate::wal::types::{Failure, Mode, OpenError};
use crate::wal::writer::Inner;

/// Looks after segments and marks until the log is closed or fails.
pub(super) async fn keep(inner: Rc<Inner>) {
    let mut marks = inner.marks.borrow_mut().take().expect("one keeper per log");
    if let Err(error) = keep_until_closed(&inner, &mut marks).await {
        let path = marks.path().to_path_buf();
        inner.fail(&path, &error);
    }
    *inner.marks.borrow_mut() = Some(marks);
}

/// # Errors
/// Of a mark: the log has failed (W7).
async fn keep_until_closed(inner: &Rc<Inner>, marks: &mut MarkFile) -> io::Result<()> {
    let io = inner.io.clone();
    let mut idle_since = io.now();
    loop {
        if inner.log.borrow().stopping || inner.log.borrow().failure.is_some() {
            return Ok(());
        }
        zero_when_short(inner);
        grow_when_short(inner);
        let mut worked = release(inner, marks).await?;
        worked |= give_up_spare(inner, marks).await?;
        worked |= prepare(inner, marks).await?;
        worked |= mark_when_wanted(inner, marks).await?;
        if worked {
            idle_since = io.now();
            continue;
        }
        if !inner.log.borrow().is_idle_unmarked() {
            inner.keep.heard().await;
            continue;
        }
        let wait = inner.log.borrow().config.mark_idle;
        let due = idle_since + wait;
        if io.now() >= due {
            let mark = inner.log.borrow().mark(0, None);
            marks.write_one(&mark).await?;
            inner.log.borrow_mut().marked = mark.watermark;
            idle_since = io.now();
        } else {
            inner.mark_is_due.set(true);
            io.timeout(due - io.now(), inner.keep.heard()).await;
            inner.mark_is_due.set(false);
        }
    }
}

/// Takes the oldest segments out of the log: first out of the mark, then out of use.
async fn release(inner: &Rc<Inner>, marks: &mut MarkFile) -> io::Result<bool> {
    let count = inner.log.borrow().releasable();
    if count == 0 {
        return Ok(false);
    }
    let mark = inner.log.borrow().mark(count, None);
    marks.write_both(&mark).await?;
    let mut stale = Vec::new();
    {
        let mut log = inner.log.borrow_mut();
        log.marked = log.marked.max(mark.watermark);
        let wanted = log.zero_size();
        for _ in 0..count {
            let segment = log.sealed.pop_front().expect("only this task takes segments out");
            let free = Free { number: segment.number, size: segment.size };
            if segment.size >= wanted || log.unused() < WAL_SEGMENTS_SPARE {
                log.free.push_back(free);
            } else {
                stale.push(segment.path);
            }
        }
    }
    remove_all(&inner.io, &stale).await;
    inner.tell();
    Ok(true)
}

/// Removes free segments beyond the spare ones when the next checkpoint finds no space without
/// them: first out of the mark, then off the disk.
async fn give_up_spare(inner: &Rc<Inner>, marks: &mut MarkFile) -> io::Result<bool> {
    let mut paths = Vec::new();
    let mark = {
        let mut log = inner.log.borrow_mut();
        if !log.room.is_short(log.config.segment_bytes_first) {
            return Ok(false);
        }
        while log.unused() > WAL_SEGMENTS_SPARE
            && let Some(free) = log.free.pop_back()
        {
            paths.push(inner.directory.join(file_name(free.number)));
        }
        log.mark(0, None)
    };
    if paths.is_empty() {
        return Ok(false);
    }
    marks.write_both(&mark).await?;
    {
        let mut log = inner.log.borrow_mut();
        log.marked = log.marked.max(mark.watermark);
    }
    remove_all(&inner.io, &paths).await;
    Ok(true)
}

/// Small segments of a log that has outgrown them go. A file that stays is found at the next open.
async fn remove_all(io: &Io, paths: &[PathBuf]) {
    for path in paths {
        if let Err(error) = io.disk().remove(path).await {
            let error = plain(&error);
            tracing::warn!(file = %path.display(), %error, "a released segment was not removed");
        }
    }
}

/// Makes the next segment ready: opened, locked, salted, named in the mark.
async fn prepare(inner: &Rc<Inner>, marks: &mut MarkFile) -> io::Result<bool> {
    let (free, direct) = {
        let mut log = inner.log.borrow_mut();
        if log.config.mode == Mode::Memory || log.next.is_some() || log.list_is_full() {
            return Ok(false);
        }
        let least = log.constant.segment_bytes_min;
        let Some(at) = log.free.iter().position(|free| free.size >= least) else {
            return Ok(false);
        };
        (log.free.remove(at).expect("looked at"), log.constant.direct)
    };
    let segment = match open_free(inner, free, direct).await {
        Ok(segment) => segment,
        Err(OpenError::Io { source, .. }) if inner.log.borrow().is_stuck() => return Err(source),
        Err(error) => {
            tracing::warn!(%error, "a free segment could not be opened");
            inner.log.borrow_mut().free.push_back(free);
            let wait = inner.log.borrow().config.zero_retry;
            inner.io.sleep(wait).await;
            return Ok(true);
        }
    };
    let mark = inner.log.borrow().mark(0, Some(&segment));
    marks.write_both(&mark).await?;
    let mut log = inner.log.borrow_mut();
    log.next = Some(segment);
    log.marked = log.marked.max(mark.watermark);
    let stopping = log.stopping;
    drop(log);
    if !stopping {
        inner.submit();
        inner.tell();
    }
    Ok(true)
}

async fn open_free(inner: &Inner, free: Free, direct: bool) -> Result<Segment, OpenError> {
    let path = inner.directory.join(file_name(free.number));
    let file = open_file(&inner.io, &path, direct).await?;
    lock(&inner.io, &file, &path, inner.io.now()).await?;
    Ok(Segment::fresh(&inner.io, free, file, path))
}

/// Writes a mark when somebody waits for one.
async fn mark_when_wanted(inner: &Rc<Inner>, marks: &mut MarkFile) -> io::Result<bool> {
    let wanted = inner.marks_wanted.get();
    if inner.marks_written.get() >= wanted {
        return Ok(false);
    }
    let mark = inner.log.borrow().mark(0, None);
    marks.write_both(&mark).await?;
    inner.log.borrow_mut().marked = mark.watermark;
    inner.marks_written.set(wanted);
    inner.tell();
    Ok(true)
}

/// Starts the zeroing of a segment when fewer than the spare ones are there. One at a time.
fn zero_when_short(inner: &Rc<Inner>) {
    let running = inner.zeroing.borrow().as_ref().is_some_and(|task| !task.is_finished());
    let log = inner.log.borrow();
    let enough = log.config.mode == Mode::Memory || log.unused() >= WAL_SEGMENTS_SPARE;
    if running || enough {
        return;
    }
    drop(log);
    let task = inner.io.spawn("wal zeroing", zero(inner.clone()));
    *inner.zeroing.borrow_mut() = Some(task);
}

/// Zeroes one segment, a smaller one where there is no room for the usual size. A full disk is
/// waited for: it never stops the log, only ordinary writes. A broken one stops it once there is
/// no other segment to write to (W7).
async fn zero(inner: Rc<Inner>) {
    let (number, wait) = {
        let mut log = inner.log.borrow_mut();
        log.next_number += 1;
        (log.next_number - 1, log.config.zero_retry)
    };
    let path = inner.directory.join(file_name(number));
    let size = loop {
        match zero_beside_reserve(&inner, &path).await {
            Ok(size) => break size,
            Err(error) => {
                let mut log = inner.log.borrow_mut();
                if !log.zeroing_failed {
                    let error = plain(&error);
                    tracing::warn!(file = %path.display(), %error, "no room for a segment");
                }
                log.zeroing_failed = true;
                let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
                if log.is_stuck() && log.free.is_empty() && !full.contains(&error.kind()) {
                    drop(log);
                    inner.fail(&path, &error);
                    return;
                }
            }
        }
        inner.keep.ring();
        inner.tell();
        inner.io.sleep(wait).await;
        if inner.log.borrow().unused() >= WAL_SEGMENTS_SPARE {
            return;
        }
    };
    let mut log = inner.log.borrow_mut();
    log.zeroing_failed = false;
    log.free.push_back(Free { number, size });
    drop(log);
    inner.keep.ring();
    inner.tell();
}

/// Zeroes a segment in the space that the reserve leaves; gives its size.
async fn zero_beside_reserve(inner: &Inner, path: &Path) -> io::Result<u64> {
    let (mut size, least, kept) = {
        let log = inner.log.borrow();
        let kept = log.room.missing(log.config.segment_bytes_first);
        (log.zero_size(), log.segment_bytes_least(), kept)
    };
    if kept > 0 {
        // The reserve of the next checkpoint comes first: it has yet to find its space.
        let free = inner.io.disk().free_bytes(&inner.directory).await?;
        while free < size + kept && size / 2 >= least {
            size /= 2;
        }
        if free < size + kept {
            return Err(io::ErrorKind::StorageFull.into());
        }
    }
    zero_what_fits(&inner.io, path, (size, least)).await
}

/// Flushes a `NoFsync` log: every interval, and at once for what asked for it.
pub(super) async fn flush(inner: Rc<Inner>) {
    loop {
        let (dirty, stop) = {
            let log = inner.log.borrow();
            (log.completed > log.durable, log.stopping || log.failure.is_some())
        };
        if stop {
            return;
        }
        if !dirty {
            inner.flush.heard().await;
            continue;
        }
        let due = inner.io.now() + inner.log.borrow().config.flush_interval;
        while inner.io.now() < due {
            if inner.log.borrow().flush_is_urgent() || inner.log.borrow().stopping {
                break;
            }
            inner.io.timeout(due - inner.io.now(), inner.flush.heard()).await;
        }
        flush_now(&inner).await;
    }
}

/// Makes every completed batch durable.
pub(super) async fn flush_now(inner: &Inner) {
    let (target, files) = {
        let log = inner.log.borrow();
        let durable = log.durable;
        let begun = log.sealed.iter().chain(&log.active);
        let dirty = begun.filter(|segment| segment.last_sequence > durable);
        let files: Vec<(File, PathBuf)> =
            dirty.map(|segment| (segment.file.clone(), segment.path.clone())).collect();
        (log.completed, files)
    };
    for (file, path) in files {
        if let Err(error) = file.sync().await {
            inner.fail(&path, &error);
            return;
        }
    }
    let mut log = inner.log.borrow_mut();
    if log.failure.is_none() && target > log.durable {
        log.flushed(target);
    }
    drop(log);
    inner.keep.ring();
    inner.tell();
}

/// The last mark of a log in order. Every task has ended.
pub(super) async fn mark_clean(inner: &Inner) -> Result<(), Failure> {
    let mut marks = inner.marks.borrow_mut().take().expect("the keeper gave the marks back");
    if let Some(failure) = &inner.log.borrow().failure {
        return Err(failure.clone());
    }
    let mark = {
        let mut log = inner.log.borrow_mut();
        log.drop_waiting();
        assert_eq!(log.durable, log.last_sequence, "a clean log is durable to its end");
        log.mark(0, None)
    };
    let result = marks.write_both(&super::mark::Mark { clean: true, ..mark }).await;
    result.map_err(|error| Failure {
        file: inner.directory.join(MARK_FILE),
        offset: None,
        kind: error.kind(),
        text: plain(&error),
    })
}

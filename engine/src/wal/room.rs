//! The reserve of space for one checkpoint (§5.3 of the design): on a full disk a checkpoint can
//! still be written, and what it lets go of is what service goes on with.
//!
//! ```text
//!          grow                       lend                       back
//!   none ────────► held (a file) ─────────────► lent ──────────────────────────► held, or none
//!    │                │ grow                 it becomes the     the checkpoint before becomes
//!    └── refused: ordinary writes wait       checkpoint's file  the reserve of the next
//! ```
//!
//! Segments do not take what it needs: `missing`. Refused, it takes the segments that nobody needs:
//! `keeper::give_up_spare`.
//!
//! The file has a name that is drawn for it and never used again, so that nothing a process that
//! died still does can touch it; the next open removes it. It needs no sync: it holds nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ringbolt_io::{Io, OpenHow, plain};

use crate::wal::types::Mode;
use crate::wal::writer::Inner;

/// End of the name of a reserve.
const SUFFIX: &str = ".reserve";

/// What holds space for the next checkpoint.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// What the next checkpoint takes at most; 0 while nobody said.
    checkpoint_bytes: u64,
    held: Option<Held>,
    /// The next checkpoint is being written in it.
    lent: bool,
    /// The disk is being asked.
    growing: bool,
    /// The last attempt was refused.
    refused: bool,
    /// A file that was lent and may be left over.
    left: Option<PathBuf>,
}

#[derive(Clone, Debug)]
struct Held {
    bytes: u64,
    /// `None` where the file system cannot set space aside: it was seen to be free, no more.
    file: Option<PathBuf>,
}

impl Room {
    /// Whether ordinary writes must wait for the reserve. `margin` is what may be written between
    /// two looks at it.
    pub fn is_short(&self, margin: u64) -> bool {
        self.refused && self.is_wanted(margin)
    }

    /// A checkpoint of an earlier life took `bytes`.
    pub fn expect(&mut self, bytes: u64) {
        self.checkpoint_bytes = self.checkpoint_bytes.max(bytes);
    }

    /// Bytes of the disk that are meant for it and that it has not got yet.
    pub fn missing(&self, margin: u64) -> u64 {
        if self.lent || self.is_wanted(margin) {
            return self.target(margin).saturating_sub(self.held_bytes());
        }
        0
    }

    /// Whether there should be more of it.
    fn is_wanted(&self, margin: u64) -> bool {
        !self.lent && self.checkpoint_bytes > 0 && self.held_bytes() < self.needed(margin)
    }

    /// What the next checkpoint takes at most.
    pub fn checkpoint_bytes(&self) -> u64 {
        self.checkpoint_bytes
    }

    /// Bytes set aside.
    pub fn held_bytes(&self) -> u64 {
        self.held.as_ref().map_or(0, |held| held.bytes)
    }

    fn needed(&self, margin: u64) -> u64 {
        self.checkpoint_bytes + margin / 2
    }

    /// What is asked for, so that a growing state does not ask each time.
    fn target(&self, margin: u64) -> u64 {
        self.checkpoint_bytes + self.checkpoint_bytes / 8 + margin
    }
}

/// Whether a file of that name is a reserve: of an earlier life, unless this one made it.
pub(super) fn is_reserve(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

impl Inner {
    /// The next checkpoint takes `bytes` at most.
    pub fn keep_room(&self, bytes: u64) {
        let mut log = self.log.borrow_mut();
        if log.config.mode == Mode::Memory {
            return;
        }
        log.room.checkpoint_bytes = bytes;
        let wanted = log.room.is_wanted(log.config.segment_bytes_first) && !log.room.growing;
        drop(log);
        if wanted {
            self.keep.ring();
        }
    }

    /// Gives the reserve to a checkpoint: the file to write it in, where there is one.
    pub async fn lend_room(&self) -> Option<PathBuf> {
        self.log.borrow_mut().room.lent = true;
        std::future::poll_fn(|context| {
            if !self.log.borrow().room.growing {
                return std::task::Poll::Ready(());
            }
            self.await_progress(context);
            std::task::Poll::Pending
        })
        .await;
        let room = &mut self.log.borrow_mut().room;
        let file = room.held.take().and_then(|held| held.file);
        room.left.clone_from(&file);
        file
    }

    /// The checkpoint is written or given up. `before`, a file of this life that nobody needs any
    /// more, and its bytes: it is the reserve from now on.
    pub async fn room_is_back(&self, before: Option<(&Path, u64)>) {
        let mut held = None;
        if let Some((before, bytes)) = before {
            let file = fresh_path(&self.io, &self.directory);
            let renamed = self.io.disk().rename(before, &file).await;
            held = renamed.is_ok().then_some(Held { bytes, file: Some(file) });
        }
        {
            let mut log = self.log.borrow_mut();
            log.room.lent = false;
            log.room.held = held;
        }
        // One that waits after a refusal need not wait any longer.
        if let Some(waiting) = self.reserving.borrow_mut().take() {
            waiting.abort();
        }
        self.keep.ring();
    }
}

/// Starts to make or grow the reserve when it is short. One at a time.
pub(super) fn grow_when_short(inner: &Rc<Inner>) {
    let running = inner.reserving.borrow().as_ref().is_some_and(|task| !task.is_finished());
    let wanted = {
        let log = inner.log.borrow();
        log.room.is_wanted(log.config.segment_bytes_first)
    };
    if !running && wanted {
        let task = inner.io.spawn("wal reserve", grow(inner.clone()));
        *inner.reserving.borrow_mut() = Some(task);
    }
}

/// Makes or grows the reserve. A full disk is waited for.
async fn grow(inner: Rc<Inner>) {
    loop {
        let (wait, margin) = {
            let mut log = inner.log.borrow_mut();
            let margin = log.config.segment_bytes_first;
            if !log.room.is_wanted(margin) || log.stopping {
                return;
            }
            log.room.growing = true;
            (log.config.zero_retry, margin)
        };
        let result = grow_once(&inner, margin).await;
        {
            let mut log = inner.log.borrow_mut();
            if let Err(error) = &result
                && !log.room.refused
            {
                let error = plain(error);
                tracing::warn!(%error, "no room to set aside for the next checkpoint");
            }
            log.room.refused = result.is_err();
            log.room.growing = false;
        }
        inner.tell();
        inner.keep.ring();
        if result.is_ok() {
            return;
        }
        inner.io.sleep(wait).await;
    }
}

/// As much as is asked for, or at least as much as is needed.
async fn grow_once(inner: &Inner, margin: u64) -> io::Result<()> {
    let (held, left, target, needed) = {
        let mut log = inner.log.borrow_mut();
        let room = &mut log.room;
        (room.held.clone(), room.left.take(), room.target(margin), room.needed(margin))
    };
    if let Some(left) = left {
        // It became a checkpoint, or it still lies there.
        let _ = inner.io.disk().remove(&left).await;
    }
    let mut result = hold(&inner.io, &inner.directory, held.as_ref(), target).await;
    if result.is_err() {
        result = hold(&inner.io, &inner.directory, held.as_ref(), needed).await;
    }
    inner.log.borrow_mut().room.held = Some(result?);
    Ok(())
}

/// Sets `bytes` aside, in the file that is there or in a fresh one. What is refused changes
/// nothing.
async fn hold(io: &Io, directory: &Path, held: Option<&Held>, bytes: u64) -> io::Result<Held> {
    let known = held.and_then(|held| held.file.clone());
    let (path, before) = match known {
        Some(path) => (path, held.map_or(0, |held| held.bytes)),
        None => (fresh_path(io, directory), 0),
    };
    let file = io.disk().open(&path, OpenHow::CREATE).await?;
    let error = match file.allocate(bytes).await {
        Ok(()) => return Ok(Held { bytes, file: Some(path) }),
        Err(error) => error,
    };
    if before > 0 {
        // A part of what was refused may have been given: it goes back.
        file.truncate(before).await?;
    } else {
        drop(file);
        io.disk().remove(&path).await?;
    }
    if error.kind() == io::ErrorKind::Unsupported && io.disk().free_bytes(directory).await? >= bytes
    {
        return Ok(Held { bytes, file: None });
    }
    Err(error)
}

fn fresh_path(io: &Io, directory: &Path) -> PathBuf {
    directory.join(format!("{:016x}{SUFFIX}", io.random_u64()))
}

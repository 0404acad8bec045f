//! Checkpoints: the state at one index, written while writes go on, named in the log, and read back
//! at open.
//!
//! ```text
//! log grew beyond max(minimum, state) ─► pause removal ─► stream ─► durable file ─► named in the
//!     log ─► durable ─► segments below it released, older files removed
//! ```
//!
//! It is written in the space that the log keeps for it, so a full disk does not prevent it. One
//! that cannot be written is tried again later; it never stops the member. One that cannot be read
//! does: the log behind it is gone.

use ringbolt_io::planted::{self, Planted};
use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use ringbolt_io::local::Bell;
use ringbolt_io::{Io, MonoTime, plain};

use super::Replica;
use super::config::OpenError;
use super::stage::Observation;
use crate::corruption::Corruption;
use crate::limits::{
    CHECKPOINT_EXPORT_BYTES, CHECKPOINT_LOOK_BYTES_MAX, CHECKPOINT_PIECES_PER_TURN_MAX,
    CHECKPOINT_RETRY,
};
use crate::mvcc::{ExportCursor, Importer};
use crate::replica::portion::Portion;
use crate::snapshot::{self, Head, LoadError, Section, Written};
use crate::state::{State, StateConfig};
use crate::types::RaftIndex;
use crate::wal::{Checkpoint, Failure, Identity, Wal};

/// When the next checkpoint starts.
#[derive(Default)]
pub(super) struct Checkpoints {
    bell: Bell,
    /// Bytes appended since the log was last asked how much it holds.
    unseen_bytes: Cell<u64>,
    /// The index of the newest one.
    last: Cell<RaftIndex>,
    /// The newest one that this life wrote: file and bytes.
    kept: RefCell<Option<(String, u64)>>,
    /// When the last one was done.
    done: Cell<MonoTime>,
}

/// A checkpoint that the log names.
struct Made {
    written: Written,
    index: RaftIndex,
    took: Duration,
}

/// Why a checkpoint was not made.
enum Miss {
    /// The disk; tried again later.
    Disk(io::Error),
    /// The log stopped: so does the member.
    Log(Failure),
    /// The replica is being closed.
    Closed,
}

impl Checkpoints {
    pub(super) fn new(last: RaftIndex) -> Checkpoints {
        // The log may be long already: the first append asks it.
        let unseen_bytes = Cell::new(u64::MAX);
        Checkpoints { unseen_bytes, last: Cell::new(last), ..Checkpoints::default() }
    }

    /// There is no room in the log: what a checkpoint lets go of may help. Not asked for again and
    /// again by each write that is refused.
    pub(super) fn want_space(&self, now: MonoTime) {
        if now.since(self.done.get()) >= CHECKPOINT_RETRY {
            self.bell.ring();
        }
    }
}

impl Replica {
    /// Bytes were appended: starts a checkpoint when the log has outgrown the state.
    pub(super) fn note_appended(&self, log: &Wal, bytes: u64) {
        let minimum = self.config.checkpoint_log_bytes_min;
        let unseen = self.checkpoints.unseen_bytes.get().saturating_add(bytes);
        self.checkpoints.unseen_bytes.set(unseen);
        if unseen < CHECKPOINT_LOOK_BYTES_MAX.min(minimum / 4) {
            return;
        }
        self.checkpoints.unseen_bytes.set(0);
        if log.bytes_since_checkpoint() > minimum.max(self.state.borrow().size_bytes()) {
            self.checkpoints.bell.ring();
        }
    }

    /// The task that writes checkpoints, one at a time.
    pub(super) async fn write_checkpoints(self: Rc<Self>) {
        loop {
            self.checkpoints.bell.heard().await;
            match self.checkpoint().await {
                Ok(()) => {}
                Err(Miss::Disk(error)) => {
                    let error = plain(&error);
                    tracing::warn!(%error, "no checkpoint was written; trying again later");
                    self.io.sleep(CHECKPOINT_RETRY).await;
                    self.checkpoints.bell.ring();
                }
                // The next turn finds it and stops the member (W7).
                Err(Miss::Log(failure)) => {
                    tracing::error!(%failure, "the log stopped under a checkpoint");
                    self.bell.ring();
                    return;
                }
                Err(Miss::Closed) => return,
            }
        }
    }

    /// Writes one checkpoint of this moment, names it in the log and lets go of what it replaces.
    async fn checkpoint(&self) -> Result<(), Miss> {
        let Some(log) = self.core.borrow().log.clone() else { return Err(Miss::Closed) };
        if self.state.borrow().applied() == self.checkpoints.last.get() {
            return Ok(());
        }
        let room = log.lend_room().await;
        let made = self.checkpoint_in(&log, room.as_deref()).await;
        let made = match made {
            Ok(made) => made,
            Err(miss) => {
                log.room_is_back(None).await;
                return Err(miss);
            }
        };
        // The one before becomes the room of the next.
        let kept = (made.written.file.clone(), made.written.bytes);
        let before = self.checkpoints.kept.replace(Some(kept));
        let before = before.map(|(file, bytes)| (self.config.directory.join(file), bytes));
        let before = before.as_ref().map(|(path, bytes)| (path.as_path(), *bytes));
        log.room_is_back(before).await;
        clean(&self.io, &self.config.directory, Some(&made.written.file)).await;
        self.report(&made);
        Ok(())
    }

    /// When it returns, the checkpoint is named in the log, and durable that.
    async fn checkpoint_in(&self, log: &Wal, room: Option<&Path>) -> Result<Made, Miss> {
        let start = self.io.now();
        let (head, rest, cursor) = self.pin_state();
        let written = self.stream(head, &rest, cursor, room).await;
        self.unpin_state();
        let written = written.map_err(Miss::Disk)?;
        let checkpoint = Checkpoint {
            index: head.index,
            term: head.term,
            root: written.root,
            file: written.file.clone(),
        };
        let ticket = log.mark_snapshot(checkpoint);
        log.wait_durable(ticket).await.map_err(Miss::Log)?;
        self.checkpoints.last.set(head.index);
        self.checkpoints.done.set(self.io.now());
        log.release_before(head.index.next());
        let took = self.io.now().since(start);
        Ok(Made { written, index: head.index, took })
    }

    /// Fixes what the stream will hold. Removal waits until `unpin_state`.
    fn pin_state(&self) -> (Head, Vec<u8>, ExportCursor) {
        let mut state = self.state.borrow_mut();
        state.mvcc.pause_removal(true);
        self.compaction.pause(true);
        let head = Head {
            cluster_id: self.identity.cluster_id,
            index: state.applied(),
            term: state.applied_term(),
            revision: state.mvcc.revision(),
            compacted: state.mvcc.compacted(),
        };
        (head, state.export_rest(), ExportCursor::new(&state.mvcc))
    }

    fn unpin_state(&self) {
        self.state.borrow_mut().mvcc.pause_removal(false);
        self.compaction.pause(false);
    }

    /// Each piece is a slice of bounded work; others run between two of them.
    async fn stream(
        &self,
        head: Head,
        rest: &[u8],
        mut cursor: ExportCursor,
        room: Option<&Path>,
    ) -> io::Result<Written> {
        let directory = &self.config.directory;
        let mut writer = snapshot::Writer::create(&self.io, directory, head, room).await?;
        let mut portion = Portion::new(self.io.now(), CHECKPOINT_PIECES_PER_TURN_MAX);
        loop {
            let piece = self.state.borrow().mvcc.export(&mut cursor, CHECKPOINT_EXPORT_BYTES);
            let Some(piece) = piece else { break };
            if let Err(error) = writer.piece(Section::Mvcc, &piece).await {
                let _ = writer.discard().await;
                return Err(error);
            }
            if portion.is_over(self.io.now()) {
                self.io.yield_now().await;
                portion.begin(self.io.now());
            }
        }
        let mixed = planted::is(Planted::LeasesOfAnotherIndex).then(|| {
            // All but the head: index, term and rolling hash stay.
            [&rest[..28], &self.state.borrow().export_rest()[28..]].concat()
        });
        let rest = mixed.as_deref().unwrap_or(rest);
        if let Err(error) = writer.piece(Section::Rest, rest).await {
            let _ = writer.discard().await;
            return Err(error);
        }
        writer.finish().await
    }

    fn report(&self, made: &Made) {
        let Made { written: Written { file, bytes, .. }, index, took } = made;
        tracing::info!(file, bytes, index = index.0, ?took, "checkpoint written");
        self.observe(&Observation::Checkpoint { bytes: *bytes, took: *took });
    }
}

/// The state a checkpoint holds.
///
/// # Errors
/// What is wrong with the file; it is left as it is.
pub(super) async fn load(
    io: &Io,
    directory: &Path,
    identity: Identity,
    named: &Checkpoint,
    config: StateConfig,
) -> Result<State, OpenError> {
    let mut importer = Importer::new();
    let mut rest = Vec::new();
    let consume = |section, piece: &[u8]| match section {
        Section::Mvcc => importer.feed(piece),
        Section::Rest => {
            rest = piece.to_vec();
            Ok(())
        }
    };
    let head = snapshot::load(io, directory, &named.file, Some(named.root), consume)
        .await
        .map_err(OpenError::Checkpoint)?;
    let state = importer.finish().and_then(|mvcc| State::import_rest(config, mvcc, &rest));
    let path = directory.join(&named.file);
    let corrupt = |expected: String, found: String| {
        OpenError::Checkpoint(LoadError::Corrupt(Corruption::new(&path, 0, expected, found)))
    };
    let state = state.map_err(|found| corrupt("a whole state".to_string(), found))?;
    if !state.members.is_empty() {
        let checked = super::log::check_members(identity, &state.members);
        checked.map_err(|found| corrupt("the members of this log".to_string(), found))?;
    }
    let expected = (identity.cluster_id, named.index, named.term);
    let found = (head.cluster_id, state.applied(), state.applied_term());
    if expected != found {
        return Err(corrupt(format!("the state of {expected:?}"), format!("{found:?}")));
    }
    Ok(state)
}

/// The newest whole checkpoint in `directory`, as a log would name it.
pub(super) async fn newest(io: &Io, directory: &Path) -> Option<Checkpoint> {
    let mut files = snapshot::list(io, directory).await.unwrap_or_default();
    files.sort_unstable();
    while let Some((_, file)) = files.pop() {
        if let Ok((head, root)) = snapshot::inspect(io, directory, &file).await {
            return Some(Checkpoint { index: head.index, term: head.term, root, file });
        }
    }
    None
}

/// Removes checkpoint files that nothing names. A file that stays costs only space.
pub(super) async fn clean(io: &Io, directory: &Path, keep: Option<&str>) {
    if let Err(error) = snapshot::clean(io, directory, keep).await {
        let error = plain(&error);
        tracing::warn!(%error, "old checkpoint files stay");
    }
}

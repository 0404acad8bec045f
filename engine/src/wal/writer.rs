//! The face of an open log: append, wait, name a checkpoint, release, close.
//!
//! ```text
//! append ─► waiting ─► form ─► in flight (at most K) ─► completed ─► durable ─► acknowledged
//! ```
//!
//! No timers: a batch is formed at once while fewer than K are in flight (W3); otherwise entries
//! gather until one comes back.

use ringbolt_io::planted::{self, Planted};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use ringbolt_io::local::Bell;
use ringbolt_io::{Durability, Io, TaskHandle, plain};

use crate::limits::REVISIONS_RESERVED_BLOCK;
use crate::types::{RaftIndex, Revision};
use crate::wal::keeper;
use crate::wal::log::{Flight, Formed, Log};
use crate::wal::mark::MarkFile;
use crate::wal::recover::{self, Known};
use crate::wal::types::{
    Batch, Checkpoint, Failure, Gauges, Identity, Mode, OpenError, Recovered, Ticket, WalConfig,
};

/// An open log. Clones are handles to the same log; it stays on its shard.
#[derive(Clone)]
pub struct Writer {
    inner: Rc<Inner>,
}

pub(super) struct Inner {
    pub io: Io,
    pub directory: PathBuf,
    pub log: RefCell<Log>,
    pub marks: RefCell<Option<MarkFile>>,
    pub marks_wanted: Cell<u64>,
    pub marks_written: Cell<u64>,
    /// The keeper waits for the moment of an idle mark: nobody needs to tell it that one is due.
    pub mark_is_due: Cell<bool>,
    pub zeroing: RefCell<Option<TaskHandle>>,
    pub reserving: RefCell<Option<TaskHandle>>,
    tasks: RefCell<Vec<TaskHandle>>,
    /// Rung when a write was submitted.
    work: Bell,
    /// Rung when the keeper may have something to do.
    pub keep: Bell,
    /// Rung when the flusher may have something to do.
    pub flush: Bell,
    /// The owner's bell.
    owner: RefCell<Option<Rc<Bell>>>,
    waiters: RefCell<Vec<Waker>>,
}

impl Writer {
    /// Makes a log in `directory`, which is made too, and opens it.
    ///
    /// # Errors
    /// `Exists` when there is one, `Corrupt` when segments lie there without a mark file, `Io`.
    pub async fn create(
        io: &Io,
        directory: &Path,
        identity: Identity,
        config: WalConfig,
    ) -> Result<(Writer, Recovered), OpenError> {
        recover::create(io, directory, identity, &config).await?;
        Writer::open(io, directory, config).await
    }

    /// Opens the log in `directory` and recovers what it holds (W6). When it returns, all of that
    /// is durable and nobody else writes the log.
    ///
    /// # Errors
    /// `Missing`, `Busy`, `Corrupt`, `Version`, `Mode`, `Io`: the log is as it was.
    pub async fn open(
        io: &Io,
        directory: &Path,
        config: WalConfig,
    ) -> Result<(Writer, Recovered), OpenError> {
        let opened = recover::open(io, directory, config, recover::Loss::Refuse).await?;
        Ok((Writer::start(io, directory, opened.log, opened.marks), opened.recovered))
    }

    /// Opens a log whose acknowledged records are damaged and gives up everything from the first
    /// damaged batch on: `ringbolt recover --accept-loss`. A mark file that is gone, or has no
    /// whole slot, is made anew from the segments. A checkpoint that reaches further than any
    /// part of the log that is left stands alone. The log says so (`Recovered::shortened`) until
    /// `fenced` is called.
    ///
    /// # Errors
    /// As `open`; `Corrupt` only where there is neither a mark nor any batch of a log.
    pub async fn accept_loss(
        io: &Io,
        directory: &Path,
        config: WalConfig,
        known: &Known<'_>,
    ) -> Result<(Writer, Recovered), OpenError> {
        let opened = recover::open(io, directory, config, recover::Loss::Accept(known)).await?;
        Ok((Writer::start(io, directory, opened.log, opened.marks), opened.recovered))
    }

    /// Whether `directory` holds a log.
    ///
    /// # Errors
    /// `Io`.
    pub async fn exists(io: &Io, directory: &Path) -> Result<bool, OpenError> {
        recover::exists(io, directory).await
    }

    fn start(io: &Io, directory: &Path, log: Log, marks: MarkFile) -> Writer {
        let mode = log.config.mode;
        let inner = Rc::new(Inner {
            io: io.clone(),
            directory: directory.to_path_buf(),
            log: RefCell::new(log),
            marks: RefCell::new(Some(marks)),
            marks_wanted: Cell::new(0),
            marks_written: Cell::new(0),
            mark_is_due: Cell::new(false),
            zeroing: RefCell::new(None),
            reserving: RefCell::new(None),
            tasks: RefCell::default(),
            work: Bell::default(),
            keep: Bell::default(),
            flush: Bell::default(),
            owner: RefCell::new(None),
            waiters: RefCell::default(),
        });
        let mut tasks = vec![io.spawn("wal keeper", keeper::keep(inner.clone()))];
        if mode != Mode::Memory {
            tasks.push(io.spawn("wal writes", complete(inner.clone())));
        }
        if mode == Mode::NoFsync {
            tasks.push(io.spawn("wal flush", keeper::flush(inner.clone())));
        }
        *inner.tasks.borrow_mut() = tasks;
        Writer { inner }
    }

    /// Appends. Submitted at once while fewer than K batches are in flight. Dropping the ticket
    /// forgets the answer, never the act. After a failure the ticket is never acknowledged.
    pub fn append(&self, batch: Batch) -> Ticket {
        tracing::trace!(target: "path", "Writer::append");
        let ticket = self.inner.log.borrow_mut().append(batch);
        self.inner.submit();
        ticket
    }

    /// Names a checkpoint whose file is durable. Its ticket is acknowledged once the record is
    /// flushed, in every mode: only then are older checkpoint files stale.
    pub fn mark_snapshot(&self, checkpoint: Checkpoint) -> Ticket {
        let ticket = self.inner.log.borrow_mut().append_checkpoint(checkpoint);
        self.inner.submit();
        ticket
    }

    /// The last ticket that is acknowledged; all before it are too.
    #[must_use]
    pub fn durable(&self) -> Ticket {
        self.inner.log.borrow().acknowledged
    }

    /// Rings `bell` whenever `durable`, `failure` or `accepts` may have changed.
    pub fn set_bell(&self, bell: Rc<Bell>) {
        *self.inner.owner.borrow_mut() = Some(bell);
    }

    /// Waits for durability of `ticket`.
    ///
    /// # Errors
    /// The failure that stopped the log.
    pub async fn wait_durable(&self, ticket: Ticket) -> Result<(), Failure> {
        std::future::poll_fn(|context| {
            let log = self.inner.log.borrow();
            if log.acknowledged >= ticket {
                return Poll::Ready(Ok(()));
            }
            if let Some(failure) = &log.failure {
                return Poll::Ready(Err(failure.clone()));
            }
            self.inner.await_progress(context);
            Poll::Pending
        })
        .await
    }

    /// Why the log stopped, once it has (W7).
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        self.inner.log.borrow().failure.clone()
    }

    /// Whether an ordinary write of `bytes` may be proposed. False is etcd's NOSPACE: only what
    /// gives space back (compact, delete, revoke) and consensus may still append. It becomes true
    /// by itself when space returns.
    #[must_use]
    pub fn accepts(&self, bytes: usize) -> bool {
        self.inner.log.borrow().accepts(bytes)
    }

    /// Keeps space for a checkpoint of at most `bytes`: while the disk has none, `accepts` is
    /// false. Cheap.
    pub fn keep_room(&self, bytes: u64) {
        self.inner.keep_room(bytes);
    }

    /// Gives the space that is kept to a checkpoint that begins now: the file to write it in, if
    /// there is one. `room_is_back` ends that.
    pub async fn lend_room(&self) -> Option<PathBuf> {
        self.inner.lend_room().await
    }

    /// The checkpoint is there, or it was given up: space is kept for the next. `before` is a
    /// checkpoint file, and its size, that this log's owner wrote since open and needs no more:
    /// its space is kept without going back to the disk.
    pub async fn room_is_back(&self, before: Option<(&Path, u64)>) {
        self.inner.room_is_back(before).await;
    }

    /// Entries below `index` are not needed any more. Segments that hold nothing else are recycled,
    /// but for the reserve of slow followers, and never past the newest durable checkpoint.
    pub fn release_before(&self, index: RaftIndex) {
        let mut log = self.inner.log.borrow_mut();
        log.released = log.released.max(index.0);
        drop(log);
        self.inner.keep.ring();
    }

    /// Whether there is anybody for whom entries below a checkpoint are kept: not for a sole voter.
    pub fn keep_for_followers(&self, has_followers: bool) {
        self.inner.log.borrow_mut().has_followers = has_followers;
    }

    /// The revision ceiling: none above it may be given out yet.
    #[must_use]
    pub fn ceiling(&self) -> Revision {
        self.inner.log.borrow().ceiling
    }

    /// Raises the ceiling to at least `up_to`, by whole blocks. Durable when it returns.
    ///
    /// # Errors
    /// The failure that stopped the log.
    pub async fn reserve_revisions(&self, up_to: Revision) -> Result<(), Failure> {
        let block = REVISIONS_RESERVED_BLOCK;
        {
            let mut log = self.inner.log.borrow_mut();
            if up_to <= log.ceiling {
                return Ok(());
            }
            log.ceiling = Revision(up_to.0.saturating_add(block - 1) / block * block);
        }
        self.mark_now().await
    }

    /// The fence that follows lost history is committed. Durable when it returns.
    ///
    /// # Errors
    /// The failure that stopped the log.
    pub async fn fenced(&self) -> Result<(), Failure> {
        self.inner.log.borrow_mut().shortened = false;
        self.mark_now().await
    }

    /// Writes a mark of this moment and waits for it.
    async fn mark_now(&self) -> Result<(), Failure> {
        let wanted = self.inner.marks_wanted.get() + 1;
        self.inner.marks_wanted.set(wanted);
        self.inner.keep.ring();
        std::future::poll_fn(|context| {
            if self.inner.marks_written.get() >= wanted {
                return Poll::Ready(Ok(()));
            }
            if let Some(failure) = self.failure() {
                return Poll::Ready(Err(failure));
            }
            self.inner.await_progress(context);
            Poll::Pending
        })
        .await
    }

    /// Whether the files of the log are read and written past the page cache: all or none (W8).
    #[must_use]
    pub fn is_direct(&self) -> bool {
        let log = self.inner.log.borrow();
        let open = log.sealed.iter().chain(&log.active).chain(&log.next);
        let direct = log.constant.direct;
        for segment in open {
            assert_eq!(segment.file.is_direct(), direct, "W8: never mixed");
        }
        direct
    }

    /// What an operator sees.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        self.inner.log.borrow().gauges()
    }

    /// Log space taken since the newest checkpoint, in bytes.
    #[must_use]
    pub fn bytes_since_checkpoint(&self) -> u64 {
        self.gauges().bytes_since_checkpoint
    }

    /// Writes out what waits, flushes, marks the log clean and lets go of its files. Nothing may
    /// be appended afterwards. What waits for a segment on a full disk is dropped: it was never
    /// acknowledged.
    ///
    /// # Errors
    /// The failure that stopped the log; it is then not clean.
    pub async fn close(&self) -> Result<(), Failure> {
        let inner = &self.inner;
        std::future::poll_fn(|context| inner.poll_drained(context)).await;
        if inner.log.borrow().config.mode == Mode::NoFsync {
            keeper::flush_now(inner).await;
        }
        inner.log.borrow_mut().stopping = true;
        for task in [&inner.zeroing, &inner.reserving] {
            if let Some(task) = task.borrow_mut().take() {
                task.abort();
            }
        }
        for bell in [&inner.work, &inner.keep, &inner.flush] {
            bell.ring();
        }
        let tasks = std::mem::take(&mut *inner.tasks.borrow_mut());
        for task in tasks {
            task.await;
        }
        let result = keeper::mark_clean(inner).await;
        let mut log = inner.log.borrow_mut();
        log.sealed.clear();
        (log.active, log.next) = (None, None);
        result
    }
}

impl Inner {
    /// Forms and submits batches while fewer than K are in flight (W3).
    pub fn submit(&self) {
        let mut submitted = false;
        let mut log = self.log.borrow_mut();
        assert!(!log.stopping, "nothing is appended to a closed log");
        while log.flights.len() < log.config.batches_in_flight_max {
            let (sealed, waits) = (log.sealed.len(), log.has_waiting());
            let formed = log.form();
            if log.sealed.len() != sealed || (formed.is_none() && waits) {
                self.keep.ring();
            }
            let Some(Formed { file, path, buffer, offset, sequence }) = formed else { break };
            let durability = match log.config.mode {
                Mode::Safe if planted::is(Planted::AcknowledgedBeforeDurable) => Durability::System,
                Mode::Safe => Durability::Disk,
                Mode::NoFsync | Mode::Memory => Durability::System,
            };
            let writing = Box::pin(file.write_at(buffer, offset, durability));
            log.flights.push_back(Flight { sequence, offset, path, writing: Some(writing) });
            submitted = true;
        }
        let memory = log.config.mode == Mode::Memory;
        drop(log);
        if submitted {
            self.work.ring();
        }
        if memory {
            self.tell();
        }
    }

    /// Polls every write in flight; true when one came back.
    fn collect(&self, context: &mut Context<'_>) -> bool {
        let mut log = self.log.borrow_mut();
        let mut flights = std::mem::take(&mut log.flights);
        let mut back = false;
        for flight in &mut flights {
            let Some(writing) = &mut flight.writing else { continue };
            let Poll::Ready((result, buffer)) = writing.as_mut().poll(context) else { continue };
            back = true;
            match result {
                Ok(()) => {
                    flight.writing = None;
                    log.keep_buffer(buffer);
                }
                Err(error) => {
                    // W7: it stays in flight for ever, so nothing behind it is acknowledged.
                    flight.writing = Some(Box::pin(std::future::pending()));
                    if log.failure.is_none() {
                        let (file, offset) = (flight.path.clone(), Some(flight.offset));
                        let (kind, text) = (error.kind(), plain(&error));
                        log.failure = Some(Failure { file, offset, kind, text });
                    }
                }
            }
        }
        log.flights = flights;
        back
    }

    fn poll_writes(&self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let rung = self.work.poll_heard(context).is_ready();
            if self.collect(context) {
                self.log.borrow_mut().advance();
                if !self.log.borrow().stopping {
                    self.submit();
                }
                self.tell();
                self.flush.ring();
                let log = self.log.borrow();
                let unmarked = log.is_idle_unmarked() && !self.mark_is_due.get();
                if unmarked || log.releasable() > 0 || log.failure.is_some() {
                    self.keep.ring();
                }
                continue;
            }
            if self.log.borrow().stopping {
                return Poll::Ready(());
            }
            if !rung {
                return Poll::Pending;
            }
        }
    }

    fn poll_drained(&self, context: &mut Context<'_>) -> Poll<()> {
        let log = self.log.borrow();
        let idle = log.flights.is_empty() && (!log.has_waiting() || log.is_short_of_space());
        if idle || log.failure.is_some() || log.stopping {
            return Poll::Ready(());
        }
        self.await_progress(context);
        Poll::Pending
    }

    /// Stops the log (W7).
    pub fn fail(&self, file: &Path, error: &std::io::Error) {
        let mut log = self.log.borrow_mut();
        if log.failure.is_none() {
            let (kind, text) = (error.kind(), plain(error));
            log.failure = Some(Failure { file: file.to_path_buf(), offset: None, kind, text });
        }
        drop(log);
        self.tell();
    }

    /// Wakes the caller when something changes.
    pub fn await_progress(&self, context: &Context<'_>) {
        self.waiters.borrow_mut().push(context.waker().clone());
    }

    /// Tells everybody who waits that something changed.
    pub fn tell(&self) {
        let waiters = std::mem::take(&mut *self.waiters.borrow_mut());
        for waiter in waiters {
            waiter.wake();
        }
        let owner = self.owner.borrow().clone();
        if let Some(bell) = owner {
            bell.ring();
        }
    }
}

/// Takes completions until the log is closed.
async fn complete(inner: Rc<Inner>) {
    std::future::poll_fn(|context| inner.poll_writes(context)).await;
}

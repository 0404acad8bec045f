//! The thread of a bulk job: a glommio executor, or plain calls where io_uring is refused.
//!
//! It exists as long as its job. A job that writes a checkpoint gives way to everything else
//! (`BULK_NICE`, the lowest best-effort I/O priority), yet is never starved
//! (`docs/decisions/bulk-threads-give-way-but-never-starve.md`). Jobs that somebody waits for keep
//! their priority: a start that loads, and the zeroing of segments, without which writes stop.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use glommio::io::{DmaFile, OpenOptions};
use glommio::{GlommioError, LocalExecutorBuilder, Placement};

use super::job::{Job, Kind, Reply, Request, Requests};
use super::{directory, temporary};
use crate::buffer::AlignedBuffer;
use crate::disk::{Durability, OpenHow};
use crate::driver::{BulkPlane, Call};
use crate::limits::{
    BULK_BURST, BULK_CHUNK_BYTES, BULK_NICE, BULK_RATE_BYTES_PER_S, BULK_SYNC_BYTES,
    DIRECT_ALIGN_BYTES,
};
use crate::mailbox::Sender;
use crate::system::files::{self, Outcome, SharedFile, short_write};

/// Memory that glommio registers with its rings: a chunk to write and one to spare.
const REGISTERED_BYTES: usize = 2 * BULK_CHUNK_BYTES;
/// Entries of its rings: a job has one operation in flight.
const RING_ENTRIES: usize = 16;

/// Starts the thread of a job.
pub(super) fn start(plane: BulkPlane, job: Job) -> io::Result<()> {
    let thread = thread::Builder::new().name("ringbolt-bulk".into());
    thread.spawn(move || {
        if matches!(job.kind, Kind::Write { .. }) {
            step_back();
        }
        match plane {
            BulkPlane::Glommio => on_glommio(job),
            BulkPlane::Thread | BulkPlane::Inline => block_on(serve::<Plain>(job)),
        }
    })?;
    Ok(())
}

fn on_glommio(job: Job) {
    let executor = LocalExecutorBuilder::new(Placement::Unbound)
        .name("ringbolt-bulk")
        .io_memory(REGISTERED_BYTES)
        .ring_depth(RING_ENTRIES)
        .make();
    match executor {
        Ok(executor) if direct_works(&job.kind) => executor.run(serve::<Dma>(job)),
        Ok(_) => block_on(serve::<Plain>(job)),
        Err(error) => {
            let error = crate::plain(&error);
            tracing::warn!(%error, "a bulk job runs on a plain thread: no glommio executor");
            block_on(serve::<Plain>(job));
        }
    }
}

/// Whether the job's file system takes direct I/O. What else is wrong, opening the file will tell.
fn direct_works(kind: &Kind) -> bool {
    let (path, how) = match kind {
        Kind::Write { target, .. } | Kind::Zero { target, .. } => {
            (temporary(target), Plain::CREATE)
        }
        Kind::Read { path } => (path.clone(), Plain::READ),
    };
    match files::execute(&Call::Open { path, how }, None) {
        Ok(Outcome::File { direct, .. }) => direct,
        _ => true,
    }
}

/// Gives way to every other thread. Failure leaves the job at normal priority.
fn step_back() {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_SHIFT: libc::c_int = 13;
    const CLASS_BEST_EFFORT: libc::c_int = 2;
    const LOWEST: libc::c_int = 7;
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), BULK_NICE);
    let priority = (CLASS_BEST_EFFORT << CLASS_SHIFT) | LOWEST;
    // SAFETY: three plain numbers; 0 names the calling thread.
    // JUSTIFICATION: neither rustix nor libc wraps ioprio_set.
    let _ = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, priority) };
}

/// A file that is written or read front to back.
trait Sequential: Sized {
    /// Makes a file, or takes one over with its content, to write.
    async fn create(path: &Path) -> io::Result<Self>;
    /// Opens a file to read; with its size in bytes.
    async fn open(path: &Path) -> io::Result<(Self, u64)>;
    /// Writes whole blocks.
    async fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Fills the buffer, less only at the end of the file.
    async fn read(&self, buffer: &mut AlignedBuffer, offset: u64) -> io::Result<usize>;
    async fn sync(&self) -> io::Result<()>;
    /// Finds the space of a file that will be `size` bytes long.
    async fn allocate(&self, size: u64) -> io::Result<()>;
    async fn truncate(&self, size: u64) -> io::Result<()>;
    async fn close(self) -> io::Result<()>;
    async fn pause(wait: Duration);
}

async fn serve<F: Sequential>(job: Job) {
    let Job { kind, requests, replies } = job;
    match kind {
        Kind::Write { target, room } => match Writing::<F>::create(target, room).await {
            Ok(writing) => {
                reply(&replies, Reply::Opened(Ok(0)));
                serve_writes(writing, &requests, &replies).await;
            }
            Err(error) => reply(&replies, Reply::Opened(Err(error))),
        },
        Kind::Read { path } => match F::open(&path).await {
            Ok((file, size)) => {
                reply(&replies, Reply::Opened(Ok(size)));
                serve_reads(file, &requests, &replies).await;
            }
            Err(error) => reply(&replies, Reply::Opened(Err(error))),
        },
        Kind::Zero { target, size } => match Writing::<F>::create(target, None).await {
            Ok(writing) => {
                reply(&replies, Reply::Opened(Ok(0)));
                reply(&replies, Reply::Ended(zero(writing, size).await));
            }
            Err(error) => reply(&replies, Reply::Opened(Err(error))),
        },
    }
}

/// There is room for every reply that can be outstanding. A shard that is gone needs none.
fn reply(replies: &Sender<Reply>, reply: Reply) {
    let _ = replies.try_send(reply);
}

async fn serve_writes<F: Sequential>(
    mut writing: Writing<F>,
    requests: &Requests,
    replies: &Sender<Reply>,
) {
    // After a failure nothing is written any more: a later chunk must not close the gap.
    let mut failed: Option<io::ErrorKind> = None;
    while let Some(request) = requests.next().await {
        match (request, failed) {
            (Request::Write { .. }, Some(kind)) => reply(replies, Reply::Chunk(Err(kind.into()))),
            (Request::Write { buffer, filled }, None) => {
                let result = writing.append(&buffer, filled).await;
                failed = result.as_ref().err().map(io::Error::kind);
                reply(replies, Reply::Chunk(result.map(|()| buffer)));
            }
            (Request::Finish, Some(kind)) => reply(replies, Reply::Ended(Err(kind.into()))),
            (Request::Finish, None) => {
                reply(replies, Reply::Ended(writing.finish().await));
                return;
            }
            (Request::Discard, _) => {
                reply(replies, Reply::Ended(writing.discard().await));
                return;
            }
            (Request::Read(_), _) => unreachable!("a writer does not read"),
        }
    }
    let _ = writing.file.close().await;
}

async fn serve_reads<F: Sequential>(file: F, requests: &Requests, replies: &Sender<Reply>) {
    let mut offset = 0u64;
    while let Some(request) = requests.next().await {
        let Request::Read(mut buffer) = request else {
            unreachable!("a reader only reads");
        };
        let result = file.read(&mut buffer, offset).await;
        offset += BULK_CHUNK_BYTES as u64;
        reply(
            replies,
            Reply::Chunk(result.map(|count| {
                buffer.set_len(count);
                buffer
            })),
        );
    }
    let _ = file.close().await;
}

async fn zero<F: Sequential>(mut writing: Writing<F>, size: u64) -> io::Result<u64> {
    // A disk without room for all of it is found out before any of it is filled.
    match writing.file.allocate(size).await {
        Err(error) if error.kind() != io::ErrorKind::Unsupported => {
            let _ = writing.discard().await;
            return Err(error);
        }
        _ => {}
    }
    let zeros = AlignedBuffer::zeroed(BULK_CHUNK_BYTES);
    while writing.size < size {
        let left = usize::try_from(size - writing.size).unwrap_or(usize::MAX);
        let filled = left.min(BULK_CHUNK_BYTES);
        let padded = filled.next_multiple_of(DIRECT_ALIGN_BYTES);
        if let Err(error) = writing.append(&zeros[..padded], filled).await {
            let _ = writing.discard().await;
            return Err(error);
        }
    }
    writing.finish().await
}

/// A file on its way to its name.
struct Writing<F> {
    file: F,
    temporary: PathBuf,
    target: PathBuf,
    size: u64,
    unsynced: u64,
    pace: Pace,
}

impl<F: Sequential> Writing<F> {
    async fn create(target: PathBuf, room: Option<PathBuf>) -> io::Result<Writing<F>> {
        let temporary = temporary(&target);
        // A fresh file: the thread of a job that was given up may still write to the old one.
        match files::execute(&Call::Remove(temporary.clone()), None) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if let Some(from) = room {
            // Where it is gone the file finds its own space.
            let _ = files::execute(&Call::Rename { from, to: temporary.clone() }, None);
        }
        let file = F::create(&temporary).await?;
        Ok(Writing { file, temporary, target, size: 0, unsynced: 0, pace: Pace::new() })
    }

    /// Appends whole blocks of which the first `filled` bytes count.
    async fn append(&mut self, blocks: &[u8], filled: usize) -> io::Result<()> {
        assert!(self.size.is_multiple_of(DIRECT_ALIGN_BYTES as u64), "only the last is not full");
        self.file.write(blocks, self.size).await?;
        self.size += filled as u64;
        self.unsynced += filled as u64;
        if self.unsynced >= BULK_SYNC_BYTES {
            self.file.sync().await?;
            self.unsynced = 0;
        }
        if let Some(wait) = self.pace.after(filled) {
            F::pause(wait).await;
        }
        Ok(())
    }

    async fn finish(self) -> io::Result<u64> {
        self.file.truncate(self.size).await?;
        self.file.sync().await?;
        self.file.close().await?;
        let rename = Call::Rename { from: self.temporary, to: self.target.clone() };
        files::execute(&rename, None)?;
        files::execute(&Call::SyncDir(directory(&self.target).to_path_buf()), None)?;
        Ok(self.size)
    }

    async fn discard(self) -> io::Result<u64> {
        let _ = self.file.close().await;
        files::execute(&Call::Remove(self.temporary), None)?;
        Ok(self.size)
    }
}

/// The rate limit of one job.
struct Pace {
    /// When the bytes so far are due.
    due: Instant,
}

impl Pace {
    fn new() -> Pace {
        Pace { due: Instant::now() }
    }

    /// How long to wait after `bytes` were written.
    fn after(&mut self, bytes: usize) -> Option<Duration> {
        let now = Instant::now();
        let earliest = now.checked_sub(BULK_BURST).unwrap_or(now);
        let cost = bytes as u64 * 1_000_000_000 / BULK_RATE_BYTES_PER_S;
        self.due = self.due.max(earliest) + Duration::from_nanos(cost);
        self.due.checked_duration_since(now).filter(|wait| !wait.is_zero())
    }
}

/// Blocking calls.
struct Plain {
    file: SharedFile,
}

impl Plain {
    const CREATE: OpenHow = OpenHow { create: true, exclusive: false, write: true, direct: true };
    const READ: OpenHow = OpenHow { direct: true, ..OpenHow::READ };

    fn opened(path: &Path, how: OpenHow) -> io::Result<(Plain, u64)> {
        match files::execute(&Call::Open { path: path.to_path_buf(), how }, None)? {
            Outcome::File { file, size, .. } => Ok((Plain { file }, size)),
            _ => unreachable!("an open gives a file"),
        }
    }
}

impl Sequential for Plain {
    async fn create(path: &Path) -> io::Result<Plain> {
        Plain::opened(path, Plain::CREATE).map(|(plain, _)| plain)
    }

    async fn open(path: &Path) -> io::Result<(Plain, u64)> {
        Plain::opened(path, Plain::READ)
    }

    async fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        files::write(&self.file, bytes, offset, Durability::System)
    }

    async fn read(&self, buffer: &mut AlignedBuffer, offset: u64) -> io::Result<usize> {
        files::read(&self.file, buffer, offset)
    }

    async fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    async fn allocate(&self, size: u64) -> io::Result<()> {
        files::allocate(&self.file, size)
    }

    async fn truncate(&self, size: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(&self.file, size)?)
    }

    async fn close(self) -> io::Result<()> {
        Ok(())
    }

    async fn pause(wait: Duration) {
        thread::sleep(wait);
    }
}

/// glommio's DMA files.
struct Dma {
    file: DmaFile,
}

impl Sequential for Dma {
    async fn create(path: &Path) -> io::Result<Dma> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        let file = options.dma_open(path).await.map_err(plain_error)?;
        Ok(Dma { file })
    }

    async fn open(path: &Path) -> io::Result<(Dma, u64)> {
        let file = DmaFile::open(path).await.map_err(plain_error)?;
        let size = file.file_size().await.map_err(plain_error)?;
        Ok((Dma { file }, size))
    }

    async fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut written = 0;
        while written < bytes.len() {
            let rest = &bytes[written..];
            let mut buffer = self.file.alloc_dma_buffer(rest.len());
            buffer.as_bytes_mut()[..rest.len()].copy_from_slice(rest);
            let from = offset + written as u64;
            let count = self.file.write_at(buffer, from).await.map_err(plain_error)?;
            written += count;
            // A rest that is no whole block could not be written directly.
            if count == 0 || !written.is_multiple_of(DIRECT_ALIGN_BYTES) {
                return Err(short_write(written, bytes.len()));
            }
        }
        Ok(())
    }

    async fn read(&self, buffer: &mut AlignedBuffer, offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let (from, room) = (offset + filled as u64, buffer.len() - filled);
            let piece = self.file.read_at_aligned(from, room).await.map_err(plain_error)?;
            let count = piece.len().min(room);
            buffer[filled..filled + count].copy_from_slice(&piece[..count]);
            filled += count;
            if count == 0 || !count.is_multiple_of(DIRECT_ALIGN_BYTES) {
                break;
            }
        }
        Ok(filled)
    }

    async fn sync(&self) -> io::Result<()> {
        self.file.fdatasync().await.map_err(plain_error)
    }

    async fn allocate(&self, size: u64) -> io::Result<()> {
        match self.file.pre_allocate(size, false).await.map_err(plain_error) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            other => other,
        }
    }

    async fn truncate(&self, size: u64) -> io::Result<()> {
        self.file.truncate(size).await.map_err(plain_error)
    }

    async fn close(self) -> io::Result<()> {
        self.file.close().await.map_err(plain_error)
    }

    async fn pause(wait: Duration) {
        glommio::timer::sleep(wait).await;
    }
}

/// The system's own error, with its number, out of glommio's wrapping.
fn plain_error(error: GlommioError<()>) -> io::Error {
    match error {
        GlommioError::IoError(source) | GlommioError::EnhancedIoError { source, .. } => source,
        other => other.into(),
    }
}

/// Runs a future on the calling thread.
fn block_on(future: impl Future<Output = ()>) {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    while future.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Pending {
        thread::park();
    }
}

//! Bulk jobs on a thread of their own, seen from the shard.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::job::{Job, Kind, Reply, Request, Requests};
use super::plane;
use crate::buffer::AlignedBuffer;
use crate::driver::BulkPlane;
use crate::exec::Io;
use crate::limits::{BULK_CHUNK_BYTES, BULK_CHUNKS_MAX, DIRECT_ALIGN_BYTES};
use crate::mailbox::{Receiver, mailbox};

/// Replies that may wait: one for each chunk, of the opening and of the end.
const REPLIES_MAX: usize = BULK_CHUNKS_MAX + 2;

/// The line to a job's thread. The thread ends when it is dropped.
struct Line {
    requests: Arc<Requests>,
    replies: Receiver<Reply>,
}

impl Line {
    fn start(io: &Io, plane: BulkPlane, kind: Kind) -> io::Result<Line> {
        let (sender, replies) = mailbox(io, REPLIES_MAX);
        let requests = Arc::new(Requests::default());
        plane::start(plane, Job { kind, requests: requests.clone(), replies: sender })?;
        Ok(Line { requests, replies })
    }

    async fn opened(&self) -> io::Result<u64> {
        match self.replies.receive().await {
            Some(Reply::Opened(result)) => result,
            Some(_) => unreachable!("a job first says whether its file is open"),
            None => Err(gone()),
        }
    }

    async fn chunk(&self) -> io::Result<AlignedBuffer> {
        match self.replies.receive().await {
            Some(Reply::Chunk(result)) => result,
            Some(_) => unreachable!("each chunk is answered by a chunk"),
            None => Err(gone()),
        }
    }

    async fn ended(&self) -> io::Result<u64> {
        match self.replies.receive().await {
            Some(Reply::Ended(result)) => result,
            Some(_) => unreachable!("the end is answered last"),
            None => Err(gone()),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.requests.close();
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread of a bulk job ended before its job")
}

/// Writes one file.
pub(super) struct RemoteWriter {
    line: Line,
    /// Chunks that the thread has.
    away: usize,
    /// Chunks that came back.
    spare: Vec<AlignedBuffer>,
    buffer: Option<AlignedBuffer>,
    filled: usize,
}

impl RemoteWriter {
    pub(super) async fn create(
        io: &Io,
        plane: BulkPlane,
        target: &Path,
        room: Option<&Path>,
    ) -> io::Result<RemoteWriter> {
        let (target, room) = (target.to_path_buf(), room.map(Path::to_path_buf));
        let line = Line::start(io, plane, Kind::Write { target, room })?;
        line.opened().await?;
        Ok(RemoteWriter { line, away: 0, spare: Vec::new(), buffer: None, filled: 0 })
    }

    pub(super) async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut buffer = match self.buffer.take() {
                Some(buffer) => buffer,
                None => self.empty_chunk().await?,
            };
            let take = bytes.len().min(BULK_CHUNK_BYTES - self.filled);
            buffer[self.filled..self.filled + take].copy_from_slice(&bytes[..take]);
            self.filled += take;
            bytes = &bytes[take..];
            self.buffer = Some(buffer);
            if self.filled == BULK_CHUNK_BYTES {
                self.flush();
            }
        }
        Ok(())
    }

    /// Waits for a chunk to come back when all are away.
    async fn empty_chunk(&mut self) -> io::Result<AlignedBuffer> {
        if let Some(buffer) = self.spare.pop() {
            return Ok(buffer);
        }
        if self.away < BULK_CHUNKS_MAX {
            return Ok(AlignedBuffer::zeroed(BULK_CHUNK_BYTES));
        }
        self.take_back().await?;
        Ok(self.spare.pop().expect("it came back in the line above"))
    }

    async fn take_back(&mut self) -> io::Result<()> {
        let result = self.line.chunk().await;
        self.away -= 1;
        let mut buffer = result?;
        buffer.set_len(BULK_CHUNK_BYTES);
        self.spare.push(buffer);
        Ok(())
    }

    fn flush(&mut self) {
        let Some(mut buffer) = self.buffer.take() else { return };
        let filled = std::mem::take(&mut self.filled);
        let padded = filled.next_multiple_of(DIRECT_ALIGN_BYTES);
        buffer[filled..padded].fill(0);
        buffer.set_len(padded);
        self.away += 1;
        self.line.requests.push(Request::Write { buffer, filled });
    }

    pub(super) async fn finish(mut self) -> io::Result<u64> {
        self.flush();
        while self.away > 0 {
            self.take_back().await?;
        }
        self.line.requests.push(Request::Finish);
        self.line.ended().await
    }

    pub(super) async fn discard(mut self) -> io::Result<()> {
        while self.away > 0 {
            // The file goes; why some of it failed was told before, or is of no more use.
            let _ = self.take_back().await;
        }
        self.line.requests.push(Request::Discard);
        self.line.ended().await.map(drop)
    }
}

/// Reads one file, ahead of its reader.
pub(super) struct RemoteReader {
    line: Line,
    size: u64,
    /// Bytes handed out.
    position: u64,
    /// Bytes asked for.
    asked: u64,
}

impl RemoteReader {
    pub(super) async fn open(io: &Io, plane: BulkPlane, path: &Path) -> io::Result<RemoteReader> {
        let line = Line::start(io, plane, Kind::Read { path: path.to_path_buf() })?;
        let size = line.opened().await?;
        let mut reader = RemoteReader { line, size, position: 0, asked: 0 };
        for _ in 0..BULK_CHUNKS_MAX {
            reader.ask();
        }
        Ok(reader)
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    fn ask(&mut self) {
        if self.asked < self.size {
            self.asked += BULK_CHUNK_BYTES as u64;
            self.line.requests.push(Request::Read(AlignedBuffer::zeroed(BULK_CHUNK_BYTES)));
        }
    }

    pub(super) async fn next(&mut self) -> io::Result<Option<AlignedBuffer>> {
        if self.position >= self.size {
            return Ok(None);
        }
        let buffer = self.line.chunk().await?;
        self.position += buffer.len() as u64;
        // A short chunk before the end: the file was cut while it was read.
        if buffer.is_empty() || (buffer.len() < BULK_CHUNK_BYTES && self.position < self.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.ask();
        Ok(Some(buffer))
    }
}

pub(super) async fn zero_file(
    io: &Io,
    plane: BulkPlane,
    target: &Path,
    size: u64,
) -> io::Result<()> {
    let kind = Kind::Zero { target: PathBuf::from(target), size };
    let line = Line::start(io, plane, kind)?;
    line.opened().await?;
    line.ended().await.map(drop)
}

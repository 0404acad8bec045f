//! The bulk plane: long sequential streams that must not disturb the shard.
//!
//! Contract: chunks are written or read in order; a finished writer's file is synced and renamed to
//! its final name, and the directory is synced. Which plane runs the job is the driver's choice:
//! a glommio executor, a plain thread, or the shard's own operations (simulation).
//!
//! ```text
//! shard: BulkWriter ──requests (at most BULK_CHUNKS_MAX chunks)──► thread of the job
//!                   ◄──────────── replies by mailbox ─────────────
//! ```

mod inline;
mod job;
mod plane;
mod remote;

use std::io;
use std::path::{Path, PathBuf};

use crate::buffer::AlignedBuffer;
use crate::driver::BulkPlane;
use crate::exec::Io;
use crate::limits::BULK_CHUNK_BYTES;

use inline::{InlineReader, InlineWriter};
use remote::{RemoteReader, RemoteWriter};

/// Writes one new file front to back.
pub struct BulkWriter {
    way: Writer,
}

enum Writer {
    Inline(InlineWriter),
    Remote(RemoteWriter),
}

impl BulkWriter {
    /// Starts a file that will be named `target`; until `finish` it is `target` with `.partial`.
    ///
    /// # Errors
    /// The system's; a full disk is `StorageFull`.
    pub async fn create(io: &Io, target: &Path) -> io::Result<BulkWriter> {
        BulkWriter::create_in(io, target, None).await
    }

    /// As `create`, in the space of `room`, a file that nobody else uses: it becomes the new one.
    /// Without `room`, or when it is gone, the new file finds its own space.
    ///
    /// # Errors
    /// As `create`.
    pub async fn create_in(io: &Io, target: &Path, room: Option<&Path>) -> io::Result<BulkWriter> {
        let way = match io.driver().bulk_plane() {
            BulkPlane::Inline => Writer::Inline(InlineWriter::create(io, target, room).await?),
            plane => Writer::Remote(RemoteWriter::create(io, plane, target, room).await?),
        };
        Ok(BulkWriter { way })
    }

    /// Appends bytes. They are on their way when it returns, not yet durable.
    ///
    /// # Errors
    /// The system's, also of earlier bytes. The file is then removed by `discard`.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.way {
            Writer::Inline(writer) => writer.write(bytes).await,
            Writer::Remote(writer) => writer.write(bytes).await,
        }
    }

    /// Ends the file: cut to its real size, synced, renamed, directory synced. Durable when it
    /// returns. Gives the size in bytes.
    ///
    /// # Errors
    /// The system's.
    pub async fn finish(self) -> io::Result<u64> {
        match self.way {
            Writer::Inline(writer) => writer.finish().await,
            Writer::Remote(writer) => writer.finish().await,
        }
    }

    /// Removes what was written so far.
    ///
    /// # Errors
    /// The system's.
    pub async fn discard(self) -> io::Result<()> {
        match self.way {
            Writer::Inline(writer) => writer.discard().await,
            Writer::Remote(writer) => writer.discard().await,
        }
    }
}

/// Reads one file front to back.
pub struct BulkReader {
    way: Reader,
}

enum Reader {
    Inline(InlineReader),
    Remote(RemoteReader),
}

impl BulkReader {
    /// Opens a file.
    ///
    /// # Errors
    /// The system's.
    pub async fn open(io: &Io, path: &Path) -> io::Result<BulkReader> {
        let way = match io.driver().bulk_plane() {
            BulkPlane::Inline => Reader::Inline(InlineReader::open(io, path).await?),
            plane => Reader::Remote(RemoteReader::open(io, plane, path).await?),
        };
        Ok(BulkReader { way })
    }

    /// Size of the file in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.way {
            Reader::Inline(reader) => reader.size(),
            Reader::Remote(reader) => reader.size(),
        }
    }

    /// The next chunk, `None` at the end.
    ///
    /// # Errors
    /// The system's; `UnexpectedEof` when the file became shorter.
    pub async fn next(&mut self) -> io::Result<Option<AlignedBuffer>> {
        match &mut self.way {
            Reader::Inline(reader) => reader.next().await,
            Reader::Remote(reader) => reader.next().await,
        }
    }
}

/// Makes a file of `size` zero bytes under its final name `target`, durable in content and name
/// when it returns.
///
/// # Errors
/// The system's; a full disk is `StorageFull`.
pub async fn zero_file(io: &Io, target: &Path, size: u64) -> io::Result<()> {
    match io.driver().bulk_plane() {
        BulkPlane::Inline => {}
        plane => return remote::zero_file(io, plane, target, size).await,
    }
    let mut writer = InlineWriter::create(io, target, None).await?;
    let zeros = vec![0u8; BULK_CHUNK_BYTES];
    let mut left = size;
    while left > 0 {
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(BULK_CHUNK_BYTES);
        if let Err(error) = writer.write(&zeros[..take]).await {
            let _ = writer.discard().await;
            return Err(error);
        }
        left -= take as u64;
    }
    writer.finish().await.map(|_| ())
}

/// The name of a file until it is whole.
fn temporary(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}

/// The directory whose names must be durable for `target` to be.
fn directory(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

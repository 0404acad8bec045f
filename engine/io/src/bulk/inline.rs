//! Bulk jobs over the shard's own operations: the plane of the simulation.

use crate::planted::{self, Planted};
use std::io;
use std::path::{Path, PathBuf};

use super::{directory, temporary};
use crate::buffer::AlignedBuffer;
use crate::disk::{Durability, File, OpenHow};
use crate::exec::Io;
use crate::limits::{BULK_CHUNK_BYTES, BULK_SYNC_BYTES, DIRECT_ALIGN_BYTES};

/// Writes one new file front to back.
pub(super) struct InlineWriter {
    io: Io,
    file: File,
    temporary: PathBuf,
    target: PathBuf,
    buffer: Option<AlignedBuffer>,
    filled: usize,
    written: u64,
    unsynced: u64,
}

impl InlineWriter {
    /// Starts a file that will be named `target`; until `finish` it is `target` with `.partial`.
    /// It takes over the file `room`, if there is one.
    pub(super) async fn create(
        io: &Io,
        target: &Path,
        room: Option<&Path>,
    ) -> io::Result<InlineWriter> {
        let temporary = temporary(target);
        let how = OpenHow { create: true, exclusive: false, write: true, direct: true };
        let taken = match room {
            Some(room) => io.disk().rename(room, &temporary).await.is_ok(),
            None => false,
        };
        let file = io.disk().open(&temporary, how).await?;
        if !taken {
            file.truncate(0).await?;
        }
        Ok(InlineWriter {
            io: io.clone(),
            file,
            temporary,
            target: target.to_path_buf(),
            buffer: None,
            filled: 0,
            written: 0,
            unsynced: 0,
        })
    }

    /// Appends bytes.
    pub(super) async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let buffer = self.buffer.get_or_insert_with(|| AlignedBuffer::zeroed(BULK_CHUNK_BYTES));
            let take = bytes.len().min(BULK_CHUNK_BYTES - self.filled);
            buffer[self.filled..self.filled + take].copy_from_slice(&bytes[..take]);
            self.filled += take;
            bytes = &bytes[take..];
            if self.filled == BULK_CHUNK_BYTES {
                self.flush().await?;
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        let Some(mut buffer) = self.buffer.take() else { return Ok(()) };
        let padded = self.filled.next_multiple_of(DIRECT_ALIGN_BYTES);
        buffer[self.filled..padded].fill(0);
        buffer.set_len(padded);
        let (result, mut buffer) =
            self.file.write_at(buffer, self.written, Durability::System).await;
        result?;
        self.written += self.filled as u64;
        self.unsynced += self.filled as u64;
        self.filled = 0;
        buffer.set_len(BULK_CHUNK_BYTES);
        self.buffer = Some(buffer);
        if self.unsynced >= BULK_SYNC_BYTES {
            self.file.sync().await?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Ends the file: cut to its real size, synced, renamed, directory synced. Durable when it
    /// returns. Gives the size in bytes.
    pub(super) async fn finish(mut self) -> io::Result<u64> {
        self.flush().await?;
        self.file.truncate(self.written).await?;
        if !planted::is(Planted::CheckpointNotSynced) {
            self.file.sync().await?;
        }
        self.io.disk().rename(&self.temporary, &self.target).await?;
        self.io.disk().sync_dir(directory(&self.target)).await?;
        Ok(self.written)
    }

    /// Removes what was written so far.
    pub(super) async fn discard(self) -> io::Result<()> {
        let InlineWriter { io, file, temporary, .. } = self;
        drop(file);
        io.disk().remove(&temporary).await
    }
}

/// Reads one file front to back.
pub(super) struct InlineReader {
    file: File,
    position: u64,
    size: u64,
}

impl InlineReader {
    /// Opens a file.
    pub(super) async fn open(io: &Io, path: &Path) -> io::Result<InlineReader> {
        let file = io.disk().open(path, OpenHow { direct: true, ..OpenHow::READ }).await?;
        let size = file.size_at_open();
        Ok(InlineReader { file, position: 0, size })
    }

    /// Size of the file in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The next chunk, `None` at the end.
    pub(super) async fn next(&mut self) -> io::Result<Option<AlignedBuffer>> {
        if self.position >= self.size {
            return Ok(None);
        }
        let (result, mut buffer) =
            self.file.read_at(AlignedBuffer::zeroed(BULK_CHUNK_BYTES), self.position).await;
        let count = result?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.set_len(count);
        self.position += count as u64;
        Ok(Some(buffer))
    }
}

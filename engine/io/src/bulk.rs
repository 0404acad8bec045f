//! The bulk plane: long sequential streams that must not disturb the shard.
//!
//! Contract: chunks are written or read in order; a finished writer's file is synced and renamed to
//! its final name, and the directory is synced. Which plane runs the job is the driver's choice:
//! a glommio executor, a plain thread, or the shard's own operations (simulation).

use std::io;
use std::path::{Path, PathBuf};

use crate::buffer::AlignedBuffer;
use crate::disk::{Durability, File, OpenHow};
use crate::exec::Io;
use crate::limits::{BULK_CHUNK_BYTES, BULK_SYNC_BYTES, DIRECT_ALIGN_BYTES};

/// Writes one new file front to back.
pub struct BulkWriter {
    io: Io,
    file: File,
    temporary: PathBuf,
    target: PathBuf,
    buffer: Option<AlignedBuffer>,
    filled: usize,
    written: u64,
    unsynced: u64,
}

impl BulkWriter {
    /// Starts a file that will be named `target`; until `finish` it is `target` with `.partial`.
    ///
    /// # Errors
    /// The system's; a full disk is `StorageFull`.
    pub async fn create(io: &Io, target: &Path) -> io::Result<BulkWriter> {
        let mut name = target.as_os_str().to_owned();
        name.push(".partial");
        let temporary = PathBuf::from(name);
        let how = OpenHow { create: true, exclusive: false, write: true, direct: true };
        let file = io.disk().open(&temporary, how).await?;
        file.truncate(0).await?;
        Ok(BulkWriter {
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
    ///
    /// # Errors
    /// The system's. The file is then removed by `discard`.
    pub async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
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
    ///
    /// # Errors
    /// The system's.
    pub async fn finish(mut self) -> io::Result<u64> {
        self.flush().await?;
        self.file.truncate(self.written).await?;
        self.file.sync().await?;
        self.io.disk().rename(&self.temporary, &self.target).await?;
        let directory = self.target.parent().unwrap_or(Path::new("."));
        self.io.disk().sync_dir(directory).await?;
        Ok(self.written)
    }

    /// Removes what was written so far.
    ///
    /// # Errors
    /// The system's.
    pub async fn discard(self) -> io::Result<()> {
        let BulkWriter { io, file, temporary, .. } = self;
        drop(file);
        io.disk().remove(&temporary).await
    }
}

/// Reads one file front to back.
pub struct BulkReader {
    file: File,
    position: u64,
    size: u64,
}

impl BulkReader {
    /// Opens a file.
    ///
    /// # Errors
    /// The system's.
    pub async fn open(io: &Io, path: &Path) -> io::Result<BulkReader> {
        let file = io.disk().open(path, OpenHow { direct: true, ..OpenHow::READ }).await?;
        let size = file.size_at_open();
        Ok(BulkReader { file, position: 0, size })
    }

    /// Size of the file in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The next chunk, `None` at the end.
    ///
    /// # Errors
    /// The system's; `UnexpectedEof` when the file became shorter.
    pub async fn next(&mut self) -> io::Result<Option<AlignedBuffer>> {
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

/// Makes a file of `size` zero bytes under its final name `target`, durable in content and name
/// when it returns.
///
/// # Errors
/// The system's; a full disk is `StorageFull`.
pub async fn zero_file(io: &Io, target: &Path, size: u64) -> io::Result<()> {
    let mut writer = BulkWriter::create(io, target).await?;
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

//! Writing a checkpoint, piece by piece.

use std::io;
use std::path::Path;

use ringbolt_io::Io;
use ringbolt_io::bulk::BulkWriter;

use crate::limits::{CHECKPOINT_CHUNK_BYTES_MAX, CHECKPOINT_PIECE_BYTES_MAX};
use crate::snapshot::files::file_name;
use crate::snapshot::format::{
    CHUNK_HEAD_BYTES, End, HEAD_BYTES, Head, Section, chunk_head, root_of_head, root_with,
};

/// A checkpoint being written. Nothing of it counts before `finish`.
pub struct Writer {
    bulk: BulkWriter,
    file: String,
    chunks: u64,
    bytes: u64,
    root: u64,
}

/// A checkpoint that is durable and has its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its file name in the directory.
    pub file: String,
    /// Its root hash, to be named in the log.
    pub root: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

impl Writer {
    /// Starts a checkpoint in `directory`, under a name of its own (S2), in the space of the file
    /// `room` if there is one.
    ///
    /// # Errors
    /// The system's; a full disk is `StorageFull`. Never stops the log: try again later.
    pub async fn create(
        io: &Io,
        directory: &Path,
        head: Head,
        room: Option<&Path>,
    ) -> io::Result<Writer> {
        let file = file_name(head.index, io.random_u64());
        let mut bulk = BulkWriter::create_in(io, &directory.join(&file), room).await?;
        let bytes: [u8; HEAD_BYTES] = head.encode();
        if let Err(error) = bulk.write(&bytes).await {
            let _ = bulk.discard().await;
            return Err(error);
        }
        Ok(Writer { bulk, file, chunks: 0, bytes: 0, root: root_of_head(&bytes) })
    }

    /// Appends one piece of a section; `load` hands on the same pieces in the same order.
    ///
    /// # Errors
    /// The system's. The caller then discards.
    pub async fn piece(&mut self, section: Section, piece: &[u8]) -> io::Result<()> {
        assert!(piece.len() <= CHECKPOINT_PIECE_BYTES_MAX, "a piece of {} bytes", piece.len());
        let mut rest = piece;
        loop {
            let (data, left) = rest.split_at(rest.len().min(CHECKPOINT_CHUNK_BYTES_MAX));
            let head = chunk_head(Some(section), !left.is_empty(), data);
            self.chunk(&head, data).await?;
            rest = left;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    async fn chunk(&mut self, head: &[u8; CHUNK_HEAD_BYTES], data: &[u8]) -> io::Result<()> {
        self.bulk.write(head).await?;
        self.bulk.write(data).await?;
        self.chunks += 1;
        self.bytes += data.len() as u64;
        self.root = root_with(self.root, head);
        Ok(())
    }

    /// Ends the checkpoint: durable in content and name when it returns (S1).
    ///
    /// # Errors
    /// The system's. What was written is then stale; `clean` removes it.
    pub async fn finish(self) -> io::Result<Written> {
        let Writer { mut bulk, file, chunks, bytes, root } = self;
        let end = End { chunks, bytes, root }.encode();
        let written = async {
            bulk.write(&chunk_head(None, false, &end)).await?;
            bulk.write(&end).await
        };
        if let Err(error) = written.await {
            let _ = bulk.discard().await;
            return Err(error);
        }
        let bytes = bulk.finish().await?;
        Ok(Written { file, root, bytes })
    }

    /// Gives the checkpoint up.
    ///
    /// # Errors
    /// The system's; `clean` removes what stays.
    pub async fn discard(self) -> io::Result<()> {
        self.bulk.discard().await
    }
}

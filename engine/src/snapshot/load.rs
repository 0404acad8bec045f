//! Loading a checkpoint: everything is verified, pieces are handed on in order.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use ringbolt_io::bulk::BulkReader;
use ringbolt_io::{Io, plain};

use crate::corruption::Corruption;
use crate::limits::{CHECKPOINT_CHUNK_BYTES_MAX, CHECKPOINT_PIECE_BYTES_MAX};
use crate::snapshot::format::{
    CHUNK_HEAD_BYTES, END_BYTES, End, HEAD_BYTES, Head, Section, checksum_of_chunk,
    read_chunk_head, root_of_head, root_with,
};

/// Why a checkpoint was not loaded. What was handed on of it must be thrown away.
#[derive(Debug)]
pub enum LoadError {
    /// Its bytes are wrong; the file is left as it is.
    Corrupt(Corruption),
    /// Written by a later version.
    Version {
        /// The file.
        file: PathBuf,
        /// Its format version.
        version: u16,
    },
    /// The system refused.
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Corrupt(corruption) => write!(
                f,
                "checkpoint {corruption}; the file was left as it is; restore this directory from \
                 a copy"
            ),
            LoadError::Version { file, version } => write!(
                f,
                "{}: format version {version} is of a later release; start that release",
                file.display()
            ),
            LoadError::Io { file, source } => {
                write!(f, "{}: {}", file.display(), plain(source))
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// Loads the checkpoint `file` of `directory`, whose root hash is `root` as the log names it
/// (`None`: not named anywhere, as a file that a peer sent). Every verified piece goes to
/// `consume`, which says in words what is wrong with it.
///
/// # Errors
/// `Corrupt` with file and offset, `Version`, `Io`.
pub async fn load(
    io: &Io,
    directory: &Path,
    file: &str,
    root: Option<u64>,
    consume: impl FnMut(Section, &[u8]) -> Result<(), String>,
) -> Result<Head, LoadError> {
    read_through(io, directory, file, root, consume).await.map(|(head, _)| head)
}

/// Reads the checkpoint `file` of `directory` through and gives its head and its root hash, as the
/// log would name it.
///
/// # Errors
/// As `load`.
pub async fn inspect(io: &Io, directory: &Path, file: &str) -> Result<(Head, u64), LoadError> {
    read_through(io, directory, file, None, |_, _| Ok(())).await
}

async fn read_through(
    io: &Io,
    directory: &Path,
    file: &str,
    root: Option<u64>,
    mut consume: impl FnMut(Section, &[u8]) -> Result<(), String>,
) -> Result<(Head, u64), LoadError> {
    let path = directory.join(file);
    let mut source = Source::open(io, &path).await?;
    let head_bytes = source.take::<HEAD_BYTES>("a head").await?;
    let head = match Head::decode(&head_bytes) {
        Ok(Ok(head)) => head,
        Ok(Err(version)) => return Err(LoadError::Version { file: path, version }),
        Err((expected, found)) => return Err(source.corrupt(0, expected, found)),
    };
    let mut sum = End { root: root_of_head(&head_bytes), ..End::default() };
    let mut piece = Vec::new();
    let mut going_on = None;
    loop {
        let at = source.position;
        let chunk_head = source.take::<CHUNK_HEAD_BYTES>("a chunk").await?;
        let chunk = match read_chunk_head(&chunk_head) {
            Ok(chunk) if chunk.size <= CHECKPOINT_CHUNK_BYTES_MAX => chunk,
            Ok(chunk) => {
                return Err(source.corrupt(at, "a chunk", format!("{} bytes", chunk.size)));
            }
            Err(found) => return Err(source.corrupt(at, "a chunk", found)),
        };
        if going_on.is_none() {
            piece.clear();
        }
        let from = piece.len();
        source.read(&mut piece, chunk.size, "a chunk's data").await?;
        let checksum = checksum_of_chunk(&chunk_head, &piece[from..]);
        if checksum != chunk.checksum {
            let expected = format!("checksum {:08x}", chunk.checksum);
            return Err(source.corrupt(at, expected, format!("checksum {checksum:08x}")));
        }
        let follows = going_on.is_none_or(|section| chunk.section == Some(section));
        if !follows || piece.len() > CHECKPOINT_PIECE_BYTES_MAX {
            return Err(source.corrupt(at, "the piece's next chunk", "another one"));
        }
        let Some(section) = chunk.section else {
            check_end(&mut source, at, &piece, sum, root).await?;
            return Ok((head, sum.root));
        };
        sum.chunks += 1;
        sum.bytes += chunk.size as u64;
        sum.root = root_with(sum.root, &chunk_head);
        going_on = chunk.more.then_some(section);
        if !chunk.more {
            let taken = consume(section, &piece);
            taken.map_err(|found| source.corrupt(at, "a piece that can be taken in", found))?;
        }
    }
}

async fn check_end(
    source: &mut Source,
    at: u64,
    data: &[u8],
    sum: End,
    root: Option<u64>,
) -> Result<(), LoadError> {
    let Ok(bytes) = <&[u8; END_BYTES]>::try_from(data) else {
        let found = format!("an end of {} bytes", data.len());
        return Err(source.corrupt(at, "the end", found));
    };
    let end = End::decode(bytes);
    if end != sum {
        return Err(source.corrupt(at, format!("{end:x?}"), format!("{sum:x?}")));
    }
    if let Some(root) = root.filter(|root| *root != end.root) {
        let found = format!("root hash {:016x}", end.root);
        return Err(source.corrupt(at, format!("root hash {root:016x}"), found));
    }
    if source.position != source.reader.size() {
        let found = format!("{} bytes", source.reader.size() - source.position);
        return Err(source.corrupt(source.position, "the end of the file", found));
    }
    Ok(())
}

/// A file read front to back in whatever sizes are asked for.
struct Source {
    reader: BulkReader,
    path: PathBuf,
    buffer: Vec<u8>,
    taken: usize,
    /// Where in the file the next byte comes from.
    position: u64,
}

impl Source {
    async fn open(io: &Io, path: &Path) -> Result<Source, LoadError> {
        let opened = BulkReader::open(io, path).await;
        let path = path.to_path_buf();
        match opened {
            Ok(reader) => Ok(Source { reader, path, buffer: Vec::new(), taken: 0, position: 0 }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(LoadError::Corrupt(Corruption::new(&path, 0, "a checkpoint", "no file")))
            }
            Err(source) => Err(LoadError::Io { file: path, source }),
        }
    }

    async fn take<const N: usize>(&mut self, what: &str) -> Result<[u8; N], LoadError> {
        let mut bytes = Vec::with_capacity(N);
        self.read(&mut bytes, N, what).await?;
        Ok(bytes.try_into().expect("read gives what was asked for"))
    }

    /// Appends `size` bytes to `into`.
    async fn read(&mut self, into: &mut Vec<u8>, size: usize, what: &str) -> Result<(), LoadError> {
        let mut left = size;
        while left > 0 {
            if self.taken == self.buffer.len() {
                let next = self.reader.next().await;
                let failed = |source| LoadError::Io { file: self.path.clone(), source };
                let Some(bytes) = next.map_err(failed)? else {
                    return Err(self.corrupt(self.position, what, "the end of the file"));
                };
                self.buffer.clear();
                self.buffer.extend_from_slice(&bytes);
                self.taken = 0;
            }
            let count = left.min(self.buffer.len() - self.taken);
            into.extend_from_slice(&self.buffer[self.taken..self.taken + count]);
            self.taken += count;
            self.position += count as u64;
            left -= count;
        }
        Ok(())
    }

    fn corrupt(
        &self,
        offset: u64,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> LoadError {
        LoadError::Corrupt(Corruption::new(&self.path, offset, expected, found))
    }
}

//! Files as tasks see them.

use std::io;
use std::path::Path;
use std::rc::Rc;

use crate::buffer::AlignedBuffer;
use crate::driver::{Call, Done, HandleId, Op, Reply};
use crate::exec::Io;

/// What must be true of a write when it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On stable storage: this write only, not others (`pwritev2(2)` RWF_DSYNC).
    Disk,
    /// Handed to the system: survives the death of this process, not of the machine.
    System,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenHow {
    /// Makes the file when it is missing.
    pub create: bool,
    /// With `create`: fails when the file is there already.
    pub exclusive: bool,
    /// Opens for writing too.
    pub write: bool,
    /// Asks for O_DIRECT. Where the file system refuses it the file is opened buffered, and
    /// `File::is_direct` says so.
    pub direct: bool,
}

impl OpenHow {
    /// An existing file, to read.
    pub const READ: OpenHow =
        OpenHow { create: false, exclusive: false, write: false, direct: false };
    /// An existing file, to read and write past the page cache.
    pub const LOG: OpenHow = OpenHow { create: false, exclusive: false, write: true, direct: true };
    /// A fresh or existing file, to read and write.
    pub const CREATE: OpenHow =
        OpenHow { create: true, exclusive: false, write: true, direct: false };
}

/// What kind of file system a path lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemKind {
    /// Its name, where it is one worth naming.
    pub name: &'static str,
    /// What is written over a block goes to another place of the disk: each write of the log then
    /// writes metadata too, and space that was set aside is no promise.
    pub copies_on_write: bool,
}

/// The file system of a shard.
#[derive(Clone)]
pub struct Disk {
    io: Io,
}

impl Disk {
    pub(crate) fn new(io: Io) -> Disk {
        Disk { io }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// The system's.
    pub async fn open(&self, path: &Path, how: OpenHow) -> io::Result<File> {
        match self.call(Call::Open { path: path.to_path_buf(), how }).await? {
            Reply::File { file, size, direct } => {
                Ok(File { inner: Rc::new(Inner { io: self.io.clone(), file, direct }), size })
            }
            other => unreachable!("open answered {other:?}"),
        }
    }

    /// Makes a directory and its parents.
    ///
    /// # Errors
    /// The system's.
    pub async fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.call(Call::CreateDirAll(path.to_path_buf())).await.map(|_| ())
    }

    /// Lists a directory, sorted by name.
    ///
    /// # Errors
    /// The system's; `NotFound` when there is no such directory.
    pub async fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        match self.call(Call::ReadDir(path.to_path_buf())).await? {
            Reply::Names(names) => Ok(names),
            other => unreachable!("read_dir answered {other:?}"),
        }
    }

    /// Renames `from` over `to`. Durable only after `sync_dir` of both directories.
    ///
    /// # Errors
    /// The system's.
    pub async fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let call = Call::Rename { from: from.to_path_buf(), to: to.to_path_buf() };
        self.call(call).await.map(|_| ())
    }

    /// Removes a file. Durable only after `sync_dir`.
    ///
    /// # Errors
    /// The system's.
    pub async fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(Call::Remove(path.to_path_buf())).await.map(|_| ())
    }

    /// Makes the names of a directory durable.
    ///
    /// # Errors
    /// The system's.
    pub async fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.call(Call::SyncDir(path.to_path_buf())).await.map(|_| ())
    }

    /// The size of a file in bytes, `None` when there is none.
    ///
    /// # Errors
    /// The system's.
    pub async fn size(&self, path: &Path) -> io::Result<Option<u64>> {
        match self.call(Call::Size(path.to_path_buf())).await? {
            Reply::Size(size) => Ok(size),
            other => unreachable!("size answered {other:?}"),
        }
    }

    /// Bytes that are free on the file system that holds `path`.
    ///
    /// # Errors
    /// The system's.
    pub async fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        match self.call(Call::FreeBytes(path.to_path_buf())).await? {
            Reply::Bytes(bytes) => Ok(bytes),
            other => unreachable!("free_bytes answered {other:?}"),
        }
    }

    /// What kind of file system holds `path`.
    ///
    /// # Errors
    /// The system's.
    pub async fn file_system(&self, path: &Path) -> io::Result<FileSystemKind> {
        match self.call(Call::FileSystem(path.to_path_buf())).await? {
            Reply::FileSystem(kind) => Ok(kind),
            other => unreachable!("file_system answered {other:?}"),
        }
    }

    async fn call(&self, call: Call) -> io::Result<Reply> {
        match self.io.op(Op::Call(call)).await {
            Done::Called(result) => result,
            other => unreachable!("call answered {other:?}"),
        }
    }
}

struct Inner {
    io: Io,
    file: HandleId,
    direct: bool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.io.driver().close(self.file);
    }
}

/// An open file. Closed when the last clone is dropped.
#[derive(Clone)]
pub struct File {
    inner: Rc<Inner>,
    size: u64,
}

impl File {
    /// The size when it was opened, in bytes.
    #[must_use]
    pub fn size_at_open(&self) -> u64 {
        self.size
    }

    /// Whether reads and writes bypass the page cache. They must then be whole aligned blocks.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.inner.direct
    }

    /// Writes all of `buffer` at `offset` bytes. The buffer comes back with the answer. Dropping
    /// the future forgets the answer, never the write.
    pub fn write_at(
        &self,
        buffer: AlignedBuffer,
        offset: u64,
        durability: Durability,
    ) -> impl Future<Output = (io::Result<()>, AlignedBuffer)> + 'static {
        let op = Op::Write { file: self.inner.file, buffer, offset, durability };
        let done = self.inner.io.op(op);
        let keep = self.inner.clone();
        async move {
            let _keep = keep;
            match done.await {
                Done::Written(result, buffer) => (result, buffer),
                other => unreachable!("write answered {other:?}"),
            }
        }
    }

    /// Reads up to `buffer.len()` bytes at `offset`.
    pub async fn read_at(
        &self,
        buffer: AlignedBuffer,
        offset: u64,
    ) -> (io::Result<usize>, AlignedBuffer) {
        match self.inner.io.op(Op::Read { file: self.inner.file, buffer, offset }).await {
            Done::Read(result, buffer) => (result, buffer),
            other => unreachable!("read answered {other:?}"),
        }
    }

    /// Makes every completed write of this file durable.
    ///
    /// # Errors
    /// The system's. After an error the state of the file is unknown.
    pub async fn sync(&self) -> io::Result<()> {
        match self.inner.io.op(Op::Sync { file: self.inner.file }).await {
            Done::Synced(result) => result,
            other => unreachable!("sync answered {other:?}"),
        }
    }

    /// Takes the advisory lock of this file (`flock(2)` LOCK_EX, without waiting).
    ///
    /// # Errors
    /// `WouldBlock` when somebody else holds it.
    pub async fn lock(&self) -> io::Result<()> {
        self.control(Call::Lock(self.inner.file)).await
    }

    /// Sets the size of the file.
    ///
    /// # Errors
    /// The system's.
    pub async fn truncate(&self, size: u64) -> io::Result<()> {
        self.control(Call::Truncate { file: self.inner.file, size }).await
    }

    /// Makes the file `size` bytes long, at least as long as it is, with room on the disk for all
    /// of it: later writes within it find their space.
    ///
    /// # Errors
    /// `StorageFull`, `Unsupported` where the file system cannot promise it, others of the
    /// system's. The file may then be longer than it was.
    pub async fn allocate(&self, size: u64) -> io::Result<()> {
        self.control(Call::Allocate { file: self.inner.file, size }).await
    }

    async fn control(&self, call: Call) -> io::Result<()> {
        match self.inner.io.op(Op::Call(call)).await {
            Done::Called(result) => result.map(|_| ()),
            other => unreachable!("control answered {other:?}"),
        }
    }
}

//! The seam itself: what a driver is asked and what it answers.
//!
//! Rules every driver keeps:
//! - D1 An `Op` is owned by the driver until its `Done` is delivered, even if nobody waits for it
//!   any more: no memory handed to the kernel is ever freed early.
//! - D2 Each submitted token is answered exactly once.
//! - D3 `park` never blocks while an answer is ready, and always makes progress on submitted ops.
//! - D4 A short write is reported as an error of kind `WriteZero`; a short read is the size read.
//! - D5 Ops on one stream keep their order per direction. Disk ops may complete in any order.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::buffer::AlignedBuffer;
use crate::disk::{Durability, FileSystemKind, OpenHow};
use crate::net::{Address, ListenHow, Peer};
use crate::time::{MonoTime, WallTime};

/// Names one submitted operation on its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

/// Names an open file, stream or listener inside one driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HandleId(pub u64);

/// A request to the world.
#[derive(Debug)]
pub enum Op {
    /// Writes the whole of `buffer` at `offset`.
    Write {
        /// An open file.
        file: HandleId,
        /// The bytes; its length is what is written.
        buffer: AlignedBuffer,
        /// Where, in bytes.
        offset: u64,
        /// What must be true when the answer comes.
        durability: Durability,
    },
    /// Reads up to the length of `buffer` at `offset`.
    Read {
        /// An open file.
        file: HandleId,
        /// Room for the bytes; its length is how many are wanted.
        buffer: AlignedBuffer,
        /// Where, in bytes.
        offset: u64,
    },
    /// Makes every write of this file that completed before durable (fdatasync).
    Sync {
        /// An open file.
        file: HandleId,
    },
    /// A control call on the file system.
    Call(Call),
    /// Waits for the next connection of a listener.
    Accept {
        /// An open listener.
        listener: HandleId,
    },
    /// Opens a connection.
    Connect {
        /// Where to.
        address: Address,
    },
    /// Waits for bytes and appends at most `READ_BYTES_MAX` of them to `into`.
    Receive {
        /// An open stream.
        stream: HandleId,
        /// The caller's vector; an empty one costs an idle connection nothing.
        into: Vec<u8>,
    },
    /// Sends every byte of `buffers`, in order.
    Send {
        /// An open stream.
        stream: HandleId,
        /// At most `SEND_SLICES_MAX` slices.
        buffers: Vec<Bytes>,
    },
    /// Reads from a listener's file descriptor of another kind is not offered; waits for nothing
    /// but the next time `Driver::waker` is called from any thread.
    AwaitWake,
}

/// A control call on the file system. Executed off the shard's thread by real drivers.
#[derive(Debug)]
pub enum Call {
    /// Opens a file.
    Open {
        /// Path of the file.
        path: PathBuf,
        /// In which way.
        how: OpenHow,
    },
    /// Makes a directory and its missing parents.
    CreateDirAll(PathBuf),
    /// Lists the names in a directory, sorted.
    ReadDir(PathBuf),
    /// Renames a file over whatever `to` was.
    Rename {
        /// Present name.
        from: PathBuf,
        /// Future name.
        to: PathBuf,
    },
    /// Removes a file.
    Remove(PathBuf),
    /// Makes the names in a directory durable.
    SyncDir(PathBuf),
    /// Size of a file, or `None` where there is none.
    Size(PathBuf),
    /// Free bytes of the file system that holds `path`.
    FreeBytes(PathBuf),
    /// What kind of file system holds `path`.
    FileSystem(PathBuf),
    /// Takes the advisory lock of an open file; `WouldBlock` when another process holds it.
    Lock(HandleId),
    /// Cuts or extends an open file to a size.
    Truncate {
        /// An open file.
        file: HandleId,
        /// Its new size in bytes.
        size: u64,
    },
    /// Makes an open file this long, with room on the disk for all of it.
    Allocate {
        /// An open file.
        file: HandleId,
        /// Its size in bytes afterwards, not below its present one.
        size: u64,
    },
}

/// The answer to a control call.
#[derive(Debug)]
pub enum Reply {
    /// Nothing more to say.
    Unit,
    /// An opened file: its handle, its size, and whether direct I/O is really on.
    File {
        /// The handle.
        file: HandleId,
        /// Size in bytes at open.
        size: u64,
        /// True when reads and writes bypass the page cache.
        direct: bool,
    },
    /// Names in a directory.
    Names(Vec<String>),
    /// A size, where there is a file.
    Size(Option<u64>),
    /// A byte count.
    Bytes(u64),
    /// A kind of file system.
    FileSystem(FileSystemKind),
}

/// The answer to an `Op`, with everything the op owned.
#[derive(Debug)]
pub enum Done {
    /// Of `Write`.
    Written(io::Result<()>, AlignedBuffer),
    /// Of `Read`: how many bytes.
    Read(io::Result<usize>, AlignedBuffer),
    /// Of `Sync`.
    Synced(io::Result<()>),
    /// Of `Call`.
    Called(io::Result<Reply>),
    /// Of `Accept`.
    Accepted(io::Result<(HandleId, Peer)>),
    /// Of `Connect`.
    Connected(io::Result<HandleId>),
    /// Of `Receive`: how many bytes were appended; 0 is the end of the stream.
    Received(io::Result<usize>, Vec<u8>),
    /// Of `Send`.
    Sent(io::Result<()>),
    /// Of `AwaitWake`.
    Woken,
}

/// Where bulk jobs of a shard run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkPlane {
    /// On the shard, by its own operations.
    Inline,
    /// On a plain thread per job.
    Thread,
    /// On a thread per job with a glommio executor.
    Glommio,
}

/// Wakes a parked driver from any thread; answers its pending `AwaitWake`.
pub type RemoteWaker = Arc<dyn Fn() + Send + Sync>;

/// One way to reach the world. Lives on its shard's thread.
pub trait Driver {
    /// Short name for logs: `uring`, `epoll` or `sim`.
    fn name(&self) -> &'static str;
    /// Takes an op. Its answer comes from a later `park`.
    fn submit(&self, token: Token, op: Op);
    /// Asks that a waiting `Accept`, `Receive` or `Connect` end early; it is answered all the same.
    fn cancel(&self, token: Token);
    /// Submits what is queued and waits until an answer is ready, `until` has passed or the waker
    /// is called; appends the answers. `until == Some(now or earlier)` only polls.
    fn park(&self, until: Option<MonoTime>, done: &mut Vec<(Token, Done)>);
    /// Closes a file, stream or listener. Ops in flight on it are answered first or with an error.
    fn close(&self, handle: HandleId);
    /// Ends both directions of a stream; its pending receive answers 0 or an error.
    fn shutdown(&self, stream: HandleId);
    /// Gives up a stream that nothing was asked of yet; `None` when it cannot leave.
    fn detach(&self, _stream: HandleId) -> Option<OwnedFd> {
        None
    }
    /// Takes a socket that another driver gave up.
    ///
    /// # Errors
    /// The system's; `Unsupported` where sockets are not the system's.
    fn adopt(&self, _socket: OwnedFd) -> io::Result<HandleId> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Binds a listener.
    ///
    /// # Errors
    /// The system's: address in use, no permission, no such directory.
    fn listen(&self, address: &Address, how: &ListenHow) -> io::Result<(HandleId, Address)>;
    /// Monotonic time.
    fn now(&self) -> MonoTime;
    /// Wall-clock time.
    fn wall(&self) -> WallTime;
    /// Next number of this shard's seeded generator.
    fn random_u64(&self) -> u64;
    /// A waker that other threads may hold.
    fn waker(&self) -> RemoteWaker;
    /// Lets another thread have this core, if one waits for it.
    fn give_way(&self) {}
    /// Where bulk jobs run.
    fn bulk_plane(&self) -> BulkPlane {
        BulkPlane::Inline
    }
}

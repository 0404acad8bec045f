//! The medium as a file system of one file.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr,
    ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

use super::medium::{Medium, Refusal};
use crate::corrupt::rng::Rng;

/// The name of the file.
pub const FILE: &str = "disk";
const FILE_NODE: INodeNo = INodeNo(2);
/// How long the kernel may believe what it was told of the file: nothing of it ever changes.
const TTL: Duration = Duration::from_secs(3600);
/// Requests that are worked on at once.
const THREADS: usize = 4;

/// How slow the disk is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// The longest time a write takes, in microseconds.
    pub write_us_max: u64,
    /// The longest time a flush takes, in microseconds.
    pub flush_us_max: u64,
}

struct Inside {
    medium: Mutex<Medium>,
    pace: Mutex<(Pace, Rng)>,
}

/// A disk in use. Clones are the same disk; the file system and the one who cuts share it.
#[derive(Clone)]
pub struct Disk {
    inside: Arc<Inside>,
}

impl Disk {
    /// Over a medium, as fast as it can.
    #[must_use]
    pub fn new(medium: Medium) -> Disk {
        let pace = Mutex::new((Pace::default(), Rng::new(0)));
        Disk { inside: Arc::new(Inside { medium: Mutex::new(medium), pace }) }
    }

    /// The medium, held by nobody else meanwhile.
    pub fn medium(&self) -> MutexGuard<'_, Medium> {
        self.inside.medium.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes it slow, or fast again.
    pub fn set_pace(&self, pace: Pace, seed: u64) {
        let mut inside = self.inside.pace.lock().unwrap_or_else(PoisonError::into_inner);
        *inside = (pace, Rng::new(seed));
    }

    /// Shows it as the file `disk` in a directory, until the session is dropped.
    ///
    /// # Errors
    /// No FUSE here.
    pub fn mount(&self, directory: &Path) -> io::Result<BackgroundSession> {
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("ringbolt-powercut".to_owned())];
        config.n_threads = Some(THREADS);
        fuser::spawn_mount(Files { disk: self.clone() }, directory, &config)
    }

    fn wait(&self, longest: impl Fn(Pace) -> u64) {
        let mut inside = self.inside.pace.lock().unwrap_or_else(PoisonError::into_inner);
        let longest = longest(inside.0);
        let time = if longest == 0 { 0 } else { inside.1.below(longest) };
        drop(inside);
        if time > 0 {
            sleep(Duration::from_micros(time));
        }
    }
}

struct Files {
    disk: Disk,
}

impl Files {
    fn attributes(&self, node: INodeNo) -> FileAttr {
        let (kind, size) = match node {
            FILE_NODE => (FileType::RegularFile, self.disk.medium().size()),
            _ => (FileType::Directory, 0),
        };
        FileAttr {
            ino: node,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 4096,
        }
    }
}

fn errno(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::Broken => Errno::EIO,
        Refusal::Full => Errno::ENOSPC,
    }
}

// The trait gives the parameters.
impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without it the kernel sends one write of the device after the other.
        let _not_everywhere = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == FILE {
            reply.entry(&TTL, &self.attributes(FILE_NODE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(node));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The page cache would hold writes that the medium does not know of.
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let read = self.disk.medium().read(offset, size);
        match read {
            Ok(data) => reply.data(&data),
            Err(refusal) => reply.error(errno(refusal)),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.disk.wait(|pace| pace.write_us_max);
        let written = self.disk.medium().write(offset, data);
        match written {
            Ok(size) => reply.written(u32::try_from(size).unwrap_or(u32::MAX)),
            Err(refusal) => reply.error(errno(refusal)),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let flush = self.disk.medium().flush_begins();
        self.disk.wait(|pace| pace.flush_us_max);
        let ended = self.disk.medium().flush_ends(&flush);
        match ended {
            Ok(()) => reply.ok(),
            Err(refusal) => reply.error(errno(refusal)),
        }
    }
}

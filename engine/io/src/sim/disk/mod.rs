//! One machine's file system: names, files, open files, locks and the faults of its disk.
//!
//! Invariants:
//! - F1 An open file goes away only when it is closed and no operation on it is in flight, and its
//!   lock only with it: so a process that was killed holds its lock until its last write landed.
//! - F2 Every change takes effect at the moment its operation completes, never at submission.
//! - F3 A read or write of a direct file is of whole aligned blocks; anything else is our bug.

mod content;
mod names;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use content::Content;
pub use content::Damage;
pub(super) use content::Loss;
use names::{InodeId, Names};

use super::limits::BLOCK_BYTES;
use super::rng::Rng;
use crate::disk::{Durability, FileSystemKind, OpenHow};
use crate::driver::{Call, HandleId, Reply};

/// Where Linux tells which boot this is. A power loss changes it.
pub const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";

/// Faults of one machine's disk. All off by default; chances are in parts per million.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFaults {
    /// Bytes the disk holds; a write that needs more is `StorageFull` and changes nothing.
    pub capacity_bytes: Option<u64>,
    /// Files whose names end so take no direct I/O; the empty end is every file's.
    pub refuse_direct: Option<&'static str>,
    /// A read fails with an I/O error.
    pub read_error_ppm: u32,
    /// A write fails with an I/O error; nothing, the front or all of it is in the cache then.
    pub write_error_ppm: u32,
    /// A sync fails with an I/O error; what it should have covered may never become durable.
    pub sync_error_ppm: u32,
    /// The write or sync after this many more fails, once.
    pub fail_after: Option<u64>,
    /// A write is acknowledged, yet lands on another block of the same file.
    pub misdirect_ppm: u32,
    /// An operation takes `slow_us` instead of the usual time.
    pub slow_ppm: u32,
    /// Microseconds of a slow operation, from and to.
    pub slow_us: (u64, u64),
    /// Microseconds after the death of its process at which a write in flight may still land.
    pub late_us: (u64, u64),
}

impl Default for DiskFaults {
    fn default() -> DiskFaults {
        DiskFaults {
            capacity_bytes: None,
            refuse_direct: None,
            read_error_ppm: 0,
            write_error_ppm: 0,
            sync_error_ppm: 0,
            fail_after: None,
            misdirect_ppm: 0,
            slow_ppm: 0,
            slow_us: (50_000, 2_000_000),
            late_us: (0, 50_000),
        }
    }
}

/// How often each fault of a disk happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Reads that failed.
    pub failed_reads: u64,
    /// Writes that failed.
    pub failed_writes: u64,
    /// Syncs that failed.
    pub failed_syncs: u64,
    /// Writes that found the disk full.
    pub full: u64,
    /// Writes that landed on another block.
    pub misdirected: u64,
    /// Operations that took long.
    pub slow: u64,
    /// Writes that landed after the death of their process.
    pub late: u64,
    /// Blocks that fell back to what was on the medium when power was lost.
    pub lost: u64,
    /// Sectors that were torn when power was lost.
    pub torn: u64,
}

/// What fate a disk operation was given when it was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Right,
    Fail,
    Misdirect,
}

struct Inode {
    content: Content,
    lock: Option<HandleId>,
}

struct OpenFile {
    inode: InodeId,
    /// The name it was opened by.
    path: PathBuf,
    how: OpenHow,
    closed: bool,
    in_flight: u64,
}

/// The disk of one machine.
pub(super) struct FileSystem {
    names: Names,
    inodes: BTreeMap<InodeId, Inode>,
    open: BTreeMap<HandleId, OpenFile>,
    next_inode: u64,
    /// Counts completed changes: a sync covers those that completed before it was submitted.
    sequence: u64,
    pub(super) faults: DiskFaults,
    pub(super) counts: FaultCounts,
}

impl FileSystem {
    pub(super) fn new(rng: &mut Rng) -> FileSystem {
        let mut files = FileSystem {
            names: Names::new(),
            inodes: BTreeMap::new(),
            open: BTreeMap::new(),
            next_inode: 1,
            sequence: 0,
            faults: DiskFaults::default(),
            counts: FaultCounts::default(),
        };
        let boot = Path::new(BOOT_ID_PATH);
        files.make_dir(boot.parent().expect("a path with parents"));
        files.make_file(boot, b"");
        files.new_boot(rng);
        files
    }

    /// Gives this boot its id.
    fn new_boot(&mut self, rng: &mut Rng) {
        let (high, low) = (rng.next_u64(), rng.next_u64());
        let id = format!(
            "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}\n",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            low >> 52,
            low & 0xffff_ffff_ffff
        );
        self.make_file(Path::new(BOOT_ID_PATH), id.as_bytes());
    }

    /// Makes a directory with its parents, durable at once: how a world is set up.
    pub(super) fn make_dir(&mut self, path: &Path) {
        self.names.create_dir_all(path, 0).expect("a directory can be made here");
        self.names.settle();
    }

    /// Makes or replaces a file, durable at once.
    pub(super) fn make_file(&mut self, path: &Path, bytes: &[u8]) {
        let inode = self.names.file(path).unwrap_or_else(|_| self.create(path, 0));
        self.names.settle();
        let mut content = Content::default();
        content.write(0, bytes, 0, Durability::Disk);
        content.cover(0);
        self.inodes.get_mut(&inode).expect("a named inode exists").content = content;
    }

    fn create(&mut self, path: &Path, sequence: u64) -> InodeId {
        let inode = InodeId(self.next_inode);
        self.next_inode += 1;
        self.names.create(path, inode, sequence).expect("its directory exists");
        self.inodes.insert(inode, Inode { content: Content::default(), lock: None });
        inode
    }

    /// What a reader of the file sees now, `None` where there is no file.
    pub(super) fn look(&self, path: &Path) -> Option<Vec<u8>> {
        let inode = self.names.file(path).ok()?;
        let content = &self.inodes[&inode].content;
        let mut bytes = vec![0; usize::try_from(content.size()).expect("files are bounded")];
        content.read(0, &mut bytes);
        Some(bytes)
    }

    pub(super) fn list(&self, path: &Path) -> Vec<String> {
        self.names.list(path).unwrap_or_default()
    }

    pub(super) fn damage(&mut self, path: &Path, offset: u64, damage: Damage) -> bool {
        let Ok(inode) = self.names.file(path) else { return false };
        let content = &mut self.inodes.get_mut(&inode).expect("named").content;
        if offset >= content.size() {
            return false;
        }
        content.damage(offset, damage);
        true
    }

    /// An operation on an open file was submitted: gives what a sync submitted now would cover.
    pub(super) fn begin(&mut self, handle: HandleId) {
        let file = self.open.get_mut(&handle).expect("an operation names an open file");
        assert!(!file.closed, "an operation on a closed file");
        file.in_flight += 1;
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// F3, checked at submission so that the panic shows the caller.
    pub(super) fn assert_aligned(
        &self,
        handle: HandleId,
        offset: u64,
        len: usize,
        start: *const u8,
    ) {
        let Some(file) = self.open.get(&handle) else { return };
        if !file.how.direct {
            return;
        }
        assert!(offset.is_multiple_of(BLOCK_BYTES as u64), "direct I/O at offset {offset}");
        assert!(len.is_multiple_of(BLOCK_BYTES), "direct I/O of {len} bytes");
        assert!(start.align_offset(BLOCK_BYTES) == 0, "direct I/O with unaligned memory");
    }

    /// The operation is over (or will never happen).
    pub(super) fn end(&mut self, handle: HandleId) {
        if let Some(file) = self.open.get_mut(&handle) {
            file.in_flight -= 1;
            self.forget_if_free(handle);
        }
    }

    /// The name an open file was opened by.
    pub(super) fn path_of(&self, handle: HandleId) -> Option<&Path> {
        self.open.get(&handle).map(|file| file.path.as_path())
    }

    pub(super) fn is_open(&self, handle: HandleId) -> bool {
        self.open.contains_key(&handle)
    }

    pub(super) fn close(&mut self, handle: HandleId) {
        if let Some(file) = self.open.get_mut(&handle) {
            file.closed = true;
            self.forget_if_free(handle);
        }
    }

    /// Every file of the process is closed by its death; those with I/O in flight live on (F1).
    pub(super) fn close_all(&mut self) {
        let handles: Vec<HandleId> = self.open.keys().copied().collect();
        handles.into_iter().for_each(|handle| self.close(handle));
    }

    fn forget_if_free(&mut self, handle: HandleId) {
        let file = &self.open[&handle];
        if !file.closed || file.in_flight > 0 {
            return;
        }
        let inode = file.inode;
        self.open.remove(&handle);
        let file = self.inodes.get_mut(&inode).expect("an open inode exists");
        if file.lock == Some(handle) {
            file.lock = None;
        }
        self.collect(inode);
    }

    fn collect(&mut self, inode: InodeId) {
        let open = self.open.values().any(|file| file.inode == inode);
        if !open && !self.names.named().contains(&inode) {
            self.inodes.remove(&inode);
        }
    }

    pub(in crate::sim) fn used_bytes(&self) -> u64 {
        self.inodes.values().map(|inode| inode.content.allocated_bytes()).sum()
    }

    fn content(&mut self, handle: HandleId) -> &mut Content {
        let inode = self.open.get(&handle).expect("F1: open while in flight").inode;
        &mut self.inodes.get_mut(&inode).expect("an open inode exists").content
    }

    pub(super) fn read(&mut self, handle: HandleId, offset: u64, into: &mut [u8]) -> usize {
        self.content(handle).read(offset, into)
    }

    /// Carries out a write whose moment has come.
    pub(super) fn write(
        &mut self,
        handle: HandleId,
        (offset, bytes): (u64, &[u8]),
        durability: Durability,
        fate: Fate,
        rng: &mut Rng,
    ) -> io::Result<()> {
        assert!(self.open[&handle].how.write, "a write through a file that was opened to read");
        if let Some(capacity) = self.faults.capacity_bytes {
            let growth = self.content(handle).growth_bytes(offset, bytes.len());
            if growth > 0 && self.used_bytes() + growth > capacity {
                self.counts.full += 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        self.sequence += 1;
        let sequence = self.sequence;
        let content = self.content(handle);
        match fate {
            Fate::Right => content.write(offset, bytes, sequence, durability),
            Fate::Fail => {
                let blocks = bytes.len() / BLOCK_BYTES;
                let landed = rng.index(blocks + 1) * BLOCK_BYTES;
                content.write(offset, &bytes[..landed], sequence, Durability::System);
                return Err(io::Error::other("simulated write error"));
            }
            Fate::Misdirect => {
                let block = BLOCK_BYTES as u64;
                let places = (content.size().saturating_sub(bytes.len() as u64) / block).max(1);
                content.write(rng.below(places) * block, bytes, sequence, durability);
            }
        }
        Ok(())
    }

    /// Carries out a sync that covers what completed up to `covers`.
    pub(super) fn sync(
        &mut self,
        handle: HandleId,
        covers: u64,
        fate: Fate,
        rng: &mut Rng,
    ) -> io::Result<()> {
        if fate == Fate::Fail {
            self.content(handle).forsake(covers, rng);
            return Err(io::Error::other("simulated sync error"));
        }
        self.content(handle).cover(covers);
        Ok(())
    }

    /// Carries out a control call. `fresh` is the handle an opened file will have.
    pub(super) fn call(&mut self, call: &Call, covers: u64, fresh: HandleId) -> io::Result<Reply> {
        self.sequence += 1;
        let sequence = self.sequence;
        match call {
            Call::Open { path, how } => self.open(path, *how, fresh),
            Call::CreateDirAll(path) => {
                self.names.create_dir_all(path, sequence).map(|()| Reply::Unit)
            }
            Call::ReadDir(path) => self.names.list(path).map(Reply::Names),
            Call::Rename { from, to } => {
                self.names.rename(from, to, sequence).map(|()| Reply::Unit)
            }
            Call::Remove(path) => {
                let inode = self.names.file(path)?;
                self.names.remove(path, sequence)?;
                self.collect(inode);
                Ok(Reply::Unit)
            }
            Call::SyncDir(path) => {
                self.names.cover(path, covers)?;
                self.collect_all();
                Ok(Reply::Unit)
            }
            Call::Size(path) => match self.names.file(path) {
                Ok(inode) => Ok(Reply::Size(Some(self.inodes[&inode].content.size()))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Reply::Size(None)),
                Err(error) => Err(error),
            },
            Call::FreeBytes(_) => {
                let capacity = self.faults.capacity_bytes.unwrap_or(1 << 40);
                Ok(Reply::Bytes(capacity.saturating_sub(self.used_bytes())))
            }
            Call::FileSystem(_) => {
                let kind = FileSystemKind { name: "simulated", copies_on_write: false };
                Ok(Reply::FileSystem(kind))
            }
            Call::Lock(handle) => self.lock(*handle),
            Call::Truncate { file, size } => {
                assert!(self.open[file].how.write, "a truncate through a file opened to read");
                self.content(*file).truncate(*size, sequence);
                Ok(Reply::Unit)
            }
            Call::Allocate { file, size } => self.allocate(*file, *size, sequence),
        }
    }

    fn open(&mut self, path: &Path, how: OpenHow, fresh: HandleId) -> io::Result<Reply> {
        let inode = match self.names.file(path) {
            Ok(_) if how.create && how.exclusive => {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            Ok(inode) => inode,
            Err(error) if error.kind() == io::ErrorKind::NotFound && how.create => {
                let directory = path.parent().unwrap_or(Path::new("/"));
                self.names.list(directory)?;
                self.create(path, self.sequence)
            }
            Err(error) => return Err(error),
        };
        let refused = |end: &str| path.to_string_lossy().ends_with(end);
        let direct = how.direct && !self.faults.refuse_direct.is_some_and(refused);
        let how = OpenHow { direct, ..how };
        self.open.insert(
            fresh,
            OpenFile { inode, path: path.to_path_buf(), how, closed: false, in_flight: 0 },
        );
        // A file of procfs has no size until it is read.
        let size =
            if path == Path::new(BOOT_ID_PATH) { 0 } else { self.inodes[&inode].content.size() };
        Ok(Reply::File { file: fresh, size, direct: how.direct })
    }

    /// As `fallocate(2)`: room for all of it or nothing, zeros where nothing was written.
    fn allocate(&mut self, handle: HandleId, size: u64, sequence: u64) -> io::Result<Reply> {
        assert!(self.open[&handle].how.write, "an allocation through a file opened to read");
        let from = self.content(handle).size();
        let more = usize::try_from(size.saturating_sub(from)).expect("files are bounded");
        let growth = self.content(handle).growth_bytes(from, more);
        if self.faults.capacity_bytes.is_some_and(|room| self.used_bytes() + growth > room) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.content(handle).write(from, &vec![0; more], sequence, Durability::System);
        Ok(Reply::Unit)
    }

    fn lock(&mut self, handle: HandleId) -> io::Result<Reply> {
        let inode = self.open[&handle].inode;
        let file = self.inodes.get_mut(&inode).expect("an open inode exists");
        match file.lock {
            Some(holder) if holder != handle => Err(io::ErrorKind::WouldBlock.into()),
            _ => {
                file.lock = Some(handle);
                Ok(Reply::Unit)
            }
        }
    }

    fn collect_all(&mut self) {
        let named = self.names.named();
        let open = &self.open;
        self.inodes.retain(|inode, _| {
            named.contains(inode) || open.values().any(|file| file.inode == *inode)
        });
    }

    /// The power goes: open files and locks are gone, what is not durable has its luck, and the
    /// next boot has a new id.
    pub(super) fn lose_power(&mut self, loss: Loss, sector_bytes: usize, rng: &mut Rng) {
        self.open.clear();
        for inode in self.inodes.values_mut() {
            inode.lock = None;
            inode.content.lose(loss, sector_bytes, rng, &mut self.counts);
        }
        self.names.lose(loss, rng);
        self.collect_all();
        self.new_boot(rng);
    }
}

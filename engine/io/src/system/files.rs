//! Files of the real drivers: opening, control calls, and blocking reads and writes.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::disk::{Durability, FileSystemKind, OpenHow};
use crate::driver::Call;
use crate::limits::DIRECT_ALIGN_BYTES;

/// Permission bits of new files: nobody but the owner, as etcd's data files.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Permission bits of new directories.
const DIRECTORY_MODE: u32 = 0o700;

/// An open file. Shared with the operations in flight, so that it is closed after the last one.
pub(crate) type SharedFile = Arc<OwnedFd>;

/// What an executed control call gives, before handles are made of it.
pub(crate) enum Outcome {
    Unit,
    File { file: SharedFile, size: u64, direct: bool },
    Names(Vec<String>),
    Size(Option<u64>),
    Bytes(u64),
    FileSystem(FileSystemKind),
}

/// Executes a control call on the calling thread. `file` is the open file that `Lock`,
/// `Truncate` and `Allocate` name; without it they answer EBADF.
pub(crate) fn execute(call: &Call, file: Option<&SharedFile>) -> io::Result<Outcome> {
    match call {
        Call::Open { path, how } => open(path, *how),
        Call::CreateDirAll(path) => {
            use std::os::unix::fs::DirBuilderExt;
            fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
            Ok(Outcome::Unit)
        }
        Call::ReadDir(path) => read_dir(path).map(Outcome::Names),
        Call::Rename { from, to } => fs::rename(from, to).map(|()| Outcome::Unit),
        Call::Remove(path) => fs::remove_file(path).map(|()| Outcome::Unit),
        Call::SyncDir(path) => sync_dir(path).map(|()| Outcome::Unit),
        Call::Size(path) => size(path).map(Outcome::Size),
        Call::FreeBytes(path) => free_bytes(path).map(Outcome::Bytes),
        Call::FileSystem(path) => file_system(path).map(Outcome::FileSystem),
        Call::Lock(_) => {
            rustix::fs::flock(known(file)?, FlockOperation::NonBlockingLockExclusive)?;
            Ok(Outcome::Unit)
        }
        Call::Truncate { size, .. } => {
            rustix::fs::ftruncate(known(file)?, *size)?;
            Ok(Outcome::Unit)
        }
        Call::Allocate { size, .. } => allocate(known(file)?, *size).map(|()| Outcome::Unit),
    }
}

fn known(file: Option<&SharedFile>) -> io::Result<&SharedFile> {
    file.ok_or_else(|| Errno::BADF.into())
}

/// Opens a file. Where direct I/O is asked for and the file system refuses it (EINVAL at open, or
/// statx(2) STATX_DIOALIGN says no or wants more than our block), it is opened buffered.
fn open(path: &Path, how: OpenHow) -> io::Result<Outcome> {
    let mut flags = OFlags::CLOEXEC | if how.write { OFlags::RDWR } else { OFlags::RDONLY };
    if how.create {
        flags |= OFlags::CREATE;
    }
    if how.create && how.exclusive {
        flags |= OFlags::EXCL;
    }
    let (file, direct) = open_flags(path, flags, how.direct)?;
    let size = rustix::fs::fstat(&file)?.st_size;
    let size = u64::try_from(size).map_err(|_| io::Error::from(Errno::OVERFLOW))?;
    Ok(Outcome::File { file: Arc::new(file), size, direct })
}

fn open_flags(path: &Path, flags: OFlags, direct: bool) -> io::Result<(OwnedFd, bool)> {
    if direct {
        match rustix::fs::open(path, flags | OFlags::DIRECT, FILE_MODE) {
            Ok(file) if direct_works(&file) => return Ok((file, true)),
            Ok(file) => {
                // The same file goes on without O_DIRECT: opening it again could meet EXCL.
                let now = rustix::fs::fcntl_getfl(&file)?;
                rustix::fs::fcntl_setfl(&file, now - OFlags::DIRECT)?;
                return Ok((file, false));
            }
            Err(Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
        // Before it refuses, a file system may have made the file: EXCL has done its work then.
        return match rustix::fs::open(path, flags, FILE_MODE) {
            Err(Errno::EXIST) if flags.contains(OFlags::EXCL) => {
                Ok((rustix::fs::open(path, flags - OFlags::EXCL, FILE_MODE)?, false))
            }
            other => Ok((other?, false)),
        };
    }
    Ok((rustix::fs::open(path, flags, FILE_MODE)?, false))
}

/// Whether blocks of ours suit the file's direct I/O. A kernel that does not tell is believed by
/// its answer to open.
fn direct_works(file: &OwnedFd) -> bool {
    let Ok(status) = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return true;
    };
    if !StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::DIOALIGN) {
        return true;
    }
    let fits = |align: u32| {
        usize::try_from(align)
            .is_ok_and(|align| align > 0 && DIRECT_ALIGN_BYTES.is_multiple_of(align))
    };
    fits(status.stx_dio_offset_align) && fits(status.stx_dio_mem_align)
}

fn read_dir(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        let name = name.into_string().map_err(|name| {
            let text = format!("a name that is not UTF-8 in {}: {name:?}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        names.push(name);
    }
    names.sort_unstable();
    Ok(names)
}

fn sync_dir(path: &Path) -> io::Result<()> {
    // The parent of a bare name is the empty path.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty())?;
    Ok(rustix::fs::fsync(&directory)?)
}

fn size(path: &Path) -> io::Result<Option<u64>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a file `size` bytes long, with blocks of its own for all of it; `Unsupported` where the
/// file system cannot promise that. After a refusal the file may be longer than it was.
pub(crate) fn allocate(file: &OwnedFd, size: u64) -> io::Result<()> {
    let flags = rustix::fs::FallocateFlags::empty();
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, 0, size)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Err(io::ErrorKind::Unsupported.into()),
        other => Ok(other?),
    }
}

fn free_bytes(path: &Path) -> io::Result<u64> {
    let status = rustix::fs::statvfs(path)?;
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

/// The file systems worth a word, by the magic number that statfs(2) tells. Source:
/// linux/magic.h and each file system's own.
const KINDS: [(u64, FileSystemKind); 7] = [
    (0x9123_683e, FileSystemKind { name: "btrfs", copies_on_write: true }),
    (0x2fc1_2fc1, FileSystemKind { name: "zfs", copies_on_write: true }),
    (0xca45_1a4e, FileSystemKind { name: "bcachefs", copies_on_write: true }),
    (0x3434, FileSystemKind { name: "nilfs2", copies_on_write: true }),
    (0xf2f5_2010, FileSystemKind { name: "f2fs", copies_on_write: true }),
    (0x794c_7630, FileSystemKind { name: "overlayfs", copies_on_write: false }),
    (0x0102_1994, FileSystemKind { name: "tmpfs", copies_on_write: false }),
];

fn file_system(path: &Path) -> io::Result<FileSystemKind> {
    // The field is signed on some machines; the numbers are of 32 bits.
    let magic = u64::from_le_bytes(rustix::fs::statfs(path)?.f_type.to_le_bytes());
    let known = KINDS.iter().find(|(number, _)| *number == magic & 0xffff_ffff);
    let other = FileSystemKind { name: "another", copies_on_write: false };
    Ok(known.map_or(other, |(_, kind)| *kind))
}

/// Flags of one write.
pub(crate) fn write_flags(durability: Durability) -> ReadWriteFlags {
    match durability {
        Durability::Disk => ReadWriteFlags::DSYNC,
        Durability::System => ReadWriteFlags::empty(),
    }
}

/// Writes all of `bytes` at `offset`, blocking. After a short write the rest is tried once, only
/// to learn the system's reason (a full disk is short first); it is an error in any case (D4).
pub(crate) fn write(
    file: &OwnedFd,
    bytes: &[u8],
    offset: u64,
    durability: Durability,
) -> io::Result<()> {
    let count = write_once(file, bytes, offset, durability)?;
    if count == bytes.len() {
        return Ok(());
    }
    let rest = offset.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
    write_once(file, &bytes[count..], rest, durability)?;
    Err(short_write(count, bytes.len()))
}

fn write_once(
    file: &OwnedFd,
    bytes: &[u8],
    offset: u64,
    durability: Durability,
) -> io::Result<usize> {
    let flags = write_flags(durability);
    let result = rustix::io::retry_on_intr(|| {
        rustix::io::pwritev2(file, &[IoSlice::new(bytes)], offset, flags)
    });
    match result {
        // A kernel or file system that knows no flags: the write, then its flush.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) if !flags.is_empty() => {
            let count = rustix::io::retry_on_intr(|| rustix::io::pwrite(file, bytes, offset))?;
            rustix::fs::fdatasync(file)?;
            Ok(count)
        }
        other => Ok(other?),
    }
}

/// The error of a write that ended early.
pub(crate) fn short_write(count: usize, wanted: usize) -> io::Error {
    let text = format!("short write: {count} of {wanted} bytes");
    io::Error::new(io::ErrorKind::WriteZero, text)
}

/// Reads up to `bytes.len()` at `offset`, blocking; less only at the end of the file.
pub(crate) fn read(file: &OwnedFd, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        let from = offset.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX));
        let room = &mut bytes[filled..];
        let count = rustix::io::retry_on_intr(|| {
            rustix::io::preadv(file.as_fd(), &mut [IoSliceMut::new(room)], from)
        })?;
        filled += count;
        // A count off the block is the end: a direct read could not go on from there anyhow.
        if count == 0 || !count.is_multiple_of(DIRECT_ALIGN_BYTES) {
            break;
        }
    }
    Ok(filled)
}

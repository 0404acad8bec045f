//! Files: direct and buffered, durable writes, short reads, full disks, locks, names.

use std::io::ErrorKind;
use std::path::Path;

use super::{Directory, over_each};
use crate::buffer::AlignedBuffer;
use crate::bulk::{BulkReader, BulkWriter, zero_file};
use crate::disk::{Durability, OpenHow};
use crate::limits::{BULK_CHUNK_BYTES, DIRECT_ALIGN_BYTES};

const BLOCK: usize = DIRECT_ALIGN_BYTES;
const FRESH: OpenHow = OpenHow { create: true, exclusive: true, write: true, direct: true };

fn filled(len: usize, byte: u8) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(len);
    buffer.fill(byte);
    buffer
}

/// Four durable direct writes in flight at once are all read back, whatever order they end in.
#[test]
fn durable_direct_writes_overlap_and_read_back() {
    over_each(|io, directory| async move {
        let file = io.disk().open(&directory.join("log"), FRESH).await.unwrap();
        assert_eq!(file.size_at_open(), 0);
        let writes: Vec<_> = (0u8..4)
            .map(|number| {
                let offset = u64::from(number) * BLOCK as u64;
                file.write_at(filled(BLOCK, number + 1), offset, Durability::Disk)
            })
            .collect();
        for write in writes {
            write.await.0.unwrap();
        }
        file.sync().await.unwrap();
        let (count, buffer) = file.read_at(AlignedBuffer::zeroed(4 * BLOCK), 0).await;
        assert_eq!(count.unwrap(), 4 * BLOCK);
        for (block, number) in buffer.chunks(BLOCK).zip(1u8..) {
            assert!(block.iter().all(|byte| *byte == number));
        }
    });
}

/// A read past the end gives what there is; a read at the end gives nothing.
#[test]
fn reads_are_short_at_the_end() {
    over_each(|io, directory| async move {
        let file = io.disk().open(&directory.join("f"), FRESH).await.unwrap();
        file.write_at(filled(2 * BLOCK, 7), 0, Durability::System).await.0.unwrap();
        file.truncate(BLOCK as u64 + 10).await.unwrap();
        let (count, _) = file.read_at(AlignedBuffer::zeroed(8 * BLOCK), 0).await;
        assert_eq!(count.unwrap(), BLOCK + 10);
        let (count, _) = file.read_at(AlignedBuffer::zeroed(BLOCK), 2 * BLOCK as u64).await;
        assert_eq!(count.unwrap(), 0);
        assert_eq!(io.disk().size(&directory.join("f")).await.unwrap(), Some(BLOCK as u64 + 10));
        assert_eq!(io.disk().size(&directory.join("none")).await.unwrap(), None);
    });
}

/// Writes of any length work in a buffered file, and dropping the future does not stop the write.
#[test]
fn a_forgotten_write_still_happens() {
    over_each(|io, directory| async move {
        let path = directory.join("f");
        let file = io.disk().open(&path, OpenHow::CREATE).await.unwrap();
        assert!(!file.is_direct());
        drop(file.write_at(filled(5000, 3), 0, Durability::Disk));
        drop(file);
        loop {
            let file = io.disk().open(&path, OpenHow::READ).await.unwrap();
            let (count, buffer) = file.read_at(AlignedBuffer::zeroed(6000), 0).await;
            if count.unwrap() == 5000 {
                assert!(buffer[..5000].iter().all(|byte| *byte == 3));
                break;
            }
        }
    });
}

/// The errors of the system come through with their kinds and numbers.
#[test]
fn errors_keep_their_numbers() {
    over_each(|io, directory| async move {
        let disk = io.disk();
        let missing = directory.join("missing");
        let error = disk.open(&missing, OpenHow::LOG).await.err().unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
        let error = disk.open(&directory, OpenHow::LOG).await.err().unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::EISDIR));
        let file = disk.open(&directory.join("f"), FRESH).await.unwrap();
        let error = disk.open(&directory.join("f"), FRESH).await.err().unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::EEXIST));
        let reader = disk.open(&directory.join("f"), OpenHow::READ).await.unwrap();
        let (result, _) = reader.write_at(filled(BLOCK, 1), 0, Durability::Disk).await;
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EBADF));
        if file.is_direct() {
            let (result, _) = file.write_at(filled(100, 1), 0, Durability::Disk).await;
            assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        }
        assert_eq!(disk.remove(&missing).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(disk.read_dir(&missing).await.unwrap_err().kind(), ErrorKind::NotFound);
    });
}

/// Names are made, listed in order, moved, removed; free space is told.
#[test]
fn names_and_space() {
    over_each(|io, directory| async move {
        let disk = io.disk();
        let deep = directory.join("a/b/c");
        disk.create_dir_all(&deep).await.unwrap();
        disk.create_dir_all(&deep).await.unwrap();
        for name in ["two", "one", "three"] {
            disk.open(&deep.join(name), OpenHow::CREATE).await.unwrap();
        }
        assert_eq!(disk.read_dir(&deep).await.unwrap(), ["one", "three", "two"]);
        disk.rename(&deep.join("one"), &deep.join("two")).await.unwrap();
        disk.remove(&deep.join("three")).await.unwrap();
        disk.sync_dir(&deep).await.unwrap();
        assert_eq!(disk.read_dir(&deep).await.unwrap(), ["two"]);
        assert!(disk.free_bytes(&deep).await.unwrap() > 0);
    });
}

/// A lock keeps others out until its file is closed.
#[test]
fn locks_exclude_until_closed() {
    over_each(|io, directory| async move {
        let path = directory.join("lock");
        let first = io.disk().open(&path, OpenHow::CREATE).await.unwrap();
        first.lock().await.unwrap();
        let second = io.disk().open(&path, OpenHow::CREATE).await.unwrap();
        assert_eq!(second.lock().await.unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(first);
        second.lock().await.unwrap();
    });
}

/// Bulk files: whole and durable under their final name, read back in chunks, removable half-way.
#[test]
fn bulk_files_round_trip() {
    over_each(|io, directory| async move {
        let target = directory.join("7.checkpoint");
        let bytes: Vec<u8> = (0u32..900_001).map(|number| (number % 251) as u8).collect();
        let mut writer = BulkWriter::create(&io, &target).await.unwrap();
        for piece in bytes.chunks(70_001) {
            writer.write(piece).await.unwrap();
        }
        assert_eq!(io.disk().size(&target).await.unwrap(), None);
        assert_eq!(writer.finish().await.unwrap(), bytes.len() as u64);
        assert_eq!(io.disk().read_dir(&directory).await.unwrap(), ["7.checkpoint"]);

        let mut reader = BulkReader::open(&io, &target).await.unwrap();
        assert_eq!(reader.size(), bytes.len() as u64);
        let mut back = Vec::new();
        while let Some(chunk) = reader.next().await.unwrap() {
            back.extend_from_slice(&chunk);
        }
        assert!(back == bytes);

        let mut writer = BulkWriter::create(&io, &directory.join("8.checkpoint")).await.unwrap();
        writer.write(&bytes).await.unwrap();
        writer.discard().await.unwrap();
        assert_eq!(io.disk().read_dir(&directory).await.unwrap(), ["7.checkpoint"]);
    });
}

/// A bulk writer that is dropped half-way leaves only its partial file; a bulk reader of a file
/// that was cut says so.
#[test]
fn bulk_jobs_end_half_way() {
    over_each(|io, directory| async move {
        let target = directory.join("9.checkpoint");
        let bytes = vec![5u8; 10 * BULK_CHUNK_BYTES];
        let mut writer = BulkWriter::create(&io, &target).await.unwrap();
        writer.write(&bytes).await.unwrap();
        drop(writer);
        assert_eq!(io.disk().read_dir(&directory).await.unwrap(), ["9.checkpoint.partial"]);
        let mut writer = BulkWriter::create(&io, &target).await.unwrap();
        writer.write(&bytes).await.unwrap();
        writer.finish().await.unwrap();
        let mut reader = BulkReader::open(&io, &target).await.unwrap();
        assert_eq!(reader.next().await.unwrap().unwrap().len(), BULK_CHUNK_BYTES);
        let file = io.disk().open(&target, OpenHow::CREATE).await.unwrap();
        file.truncate(7 * BULK_CHUNK_BYTES as u64 + 1).await.unwrap();
        let error = loop {
            match reader.next().await {
                Ok(Some(chunk)) => assert_eq!(chunk.len(), BULK_CHUNK_BYTES),
                Ok(None) => panic!("the file is shorter than it was"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        let missing = BulkReader::open(&io, &directory.join("none")).await.err().unwrap();
        assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
    });
}

/// A zeroed file has its exact size and nothing but zeros, over an older one of that name too.
#[test]
fn zero_file_is_exact() {
    over_each(|io, directory| async move {
        let target = directory.join("0001.wal");
        std::fs::write(&target, [1u8; 10]).unwrap();
        let size = 3 * BULK_CHUNK_BYTES as u64 + BLOCK as u64;
        zero_file(&io, &target, size).await.unwrap();
        let content = std::fs::read(&target).unwrap();
        assert_eq!(content.len() as u64, size);
        assert!(content.iter().all(|byte| *byte == 0));
    });
}

/// A small file system of our own; `None` where mounting is not allowed.
struct Tmpfs(Directory);

impl Tmpfs {
    fn mount(bytes: &str) -> Option<Tmpfs> {
        let directory = Directory::new();
        let options = format!("size={bytes}");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(directory.path())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Tmpfs(directory))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// A full disk is `StorageFull` for a write that does not fit at all, for one that fits in part,
/// and for a bulk job; what was there stays readable.
#[test]
fn a_full_disk_is_storage_full() {
    over_each(|io, _| async move {
        let Some(mount) = Tmpfs::mount("1m") else { return };
        let file = io.disk().open(&mount.path().join("f"), FRESH).await.unwrap();
        let (result, _) = file.write_at(filled(1 << 19, 1), 0, Durability::Disk).await;
        result.unwrap();
        let (result, _) = file.write_at(filled(1 << 20, 2), 1 << 19, Durability::Disk).await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::StorageFull);
        let (result, _) = file.write_at(filled(BLOCK, 2), 4 << 20, Durability::Disk).await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::StorageFull);
        let error = zero_file(&io, &mount.path().join("z"), 8 << 20).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert_eq!(io.disk().read_dir(mount.path()).await.unwrap(), ["f"]);
        let mut writer = BulkWriter::create(&io, &mount.path().join("c")).await.unwrap();
        let error = loop {
            if let Err(error) = writer.write(&[1; 1 << 16]).await {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        while writer.write(&[1; 1 << 16]).await.is_ok() {}
        writer.discard().await.unwrap();
        assert_eq!(io.disk().read_dir(mount.path()).await.unwrap(), ["f"]);
        let (count, _) = file.read_at(AlignedBuffer::zeroed(1 << 19), 0).await;
        assert_eq!(count.unwrap(), 1 << 19);
        drop(file);
    });
}

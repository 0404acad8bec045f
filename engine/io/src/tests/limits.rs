//! What happens past the limits of rings, buffers and descriptors, and when a shard ends early.

use std::cell::Cell;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use super::{Directory, SEED, engines, on, over_each};
use crate::buffer::AlignedBuffer;
use crate::disk::{Durability, OpenHow};
use crate::exec::Executor;
use crate::limits::{DIRECT_ALIGN_BYTES, RING_BUFFERS, RING_COMPLETIONS};
use crate::net::{Address, ListenHow, Stream};
use crate::select::{self, Engine};

const BLOCK: usize = DIRECT_ALIGN_BYTES;

/// More reads in one turn than a ring has places for submissions and completions are all answered,
/// each with its own bytes.
#[test]
fn more_reads_at_once_than_a_ring_holds() {
    const BLOCKS: u64 = 16;
    over_each(|io, directory| async move {
        let file = io.disk().open(&directory.join("f"), OpenHow::CREATE).await.unwrap();
        for number in 0..BLOCKS {
            let mut buffer = AlignedBuffer::zeroed(BLOCK);
            buffer.fill(u8::try_from(number).unwrap());
            let offset = number * BLOCK as u64;
            file.write_at(buffer, offset, Durability::System).await.0.unwrap();
        }
        let count = Rc::new(Cell::new(0u64));
        let total = u64::from(RING_COMPLETIONS) + 2000;
        let tasks: Vec<_> = (0..total)
            .map(|number| {
                let (file, count) = (file.clone(), count.clone());
                io.spawn("reader", async move {
                    let buffer = AlignedBuffer::zeroed(64);
                    let (result, buffer) =
                        file.read_at(buffer, number % BLOCKS * BLOCK as u64).await;
                    assert_eq!(result.unwrap(), 64);
                    assert!(buffer.iter().all(|byte| u64::from(*byte) == number % BLOCKS));
                    count.set(count.get() + 1);
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        assert_eq!(count.get(), total);
    });
}

/// More streams that have something to read at once than there are lent buffers all get their
/// bytes.
#[test]
fn more_streams_at_once_than_lent_buffers() {
    over_each(|io, directory| async move {
        let count = usize::from(RING_BUFFERS) * 3;
        let address = Address::Unix(directory.join("s"));
        let listener = io.listen(&address, &ListenHow::default()).unwrap();
        let mut pairs: Vec<(Stream, Stream)> = Vec::new();
        for _ in 0..count {
            let client = io.connect(&address).await.unwrap();
            pairs.push((client, listener.accept().await.unwrap().0));
        }
        for round in 0u8..4 {
            let readers: Vec<_> = pairs
                .iter()
                .map(|(client, _)| {
                    let client = client.clone();
                    io.spawn("reader", async move {
                        let mut all = Vec::new();
                        while all.len() < 20_000 {
                            let (count, back) = client.read(all).await;
                            assert!(count.unwrap() > 0);
                            all = back;
                        }
                        assert!(all.iter().all(|byte| *byte == round));
                    })
                })
                .collect();
            let bytes = Bytes::from(vec![round; 20_000]);
            for (_, server) in &pairs {
                server.write(vec![bytes.clone()]).await.unwrap();
            }
            for reader in readers {
                reader.await;
            }
        }
    });
}

/// Names the engine to a copy of this test process that may spoil its own descriptor limit.
const CHILD: &str = "RINGBOLT_IO_TEST_DESCRIPTORS";

/// Out of descriptors, accept gives an error; the connection is not lost, and is accepted once
/// there is room.
#[test]
fn accept_out_of_descriptors() {
    if let Ok(name) = std::env::var(CHILD) {
        return accept_without_descriptors(name.parse().unwrap());
    }
    for (name, engine) in Engine::NAMES {
        if engines().contains(&engine) {
            let child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "tests::limits::accept_out_of_descriptors", "--nocapture"])
                .env(CHILD, name)
                .output()
                .unwrap();
            let told = String::from_utf8_lossy(&child.stdout);
            assert!(told.contains("1 passed"), "{told}{}", String::from_utf8_lossy(&child.stderr));
        }
    }
}

fn accept_without_descriptors(engine: Engine) {
    on(engine, |io, directory| async move {
        let path = directory.join("s");
        let address = Address::Unix(path.clone());
        let listener = io.listen(&address, &ListenHow::default()).unwrap();
        let clients: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let highest = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        let mut fillers = Vec::new();
        let limit =
            rustix::process::Rlimit { current: Some(highest + 8), maximum: Some(highest + 8) };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
        while let Ok(filler) = rustix::io::dup(&clients[0]) {
            fillers.push(filler);
        }
        let error = listener.accept().await.err().unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
        assert_eq!(listener.accept().await.err().unwrap().raw_os_error(), Some(libc::EMFILE));
        fillers.truncate(fillers.len() - 3);
        let mut streams = Vec::new();
        for _ in 0..3 {
            streams.push(listener.accept().await.unwrap().0);
        }
        streams[2].write(vec![Bytes::from_static(b"in")]).await.unwrap();
    });
}

/// A shard that ends while everything is in flight: writes still reach their file, sockets are
/// closed, their files removed, and the end does not hang.
#[test]
fn a_shard_that_ends_early_leaves_nothing_behind() {
    for engine in engines() {
        let directory = Directory::new();
        let (log, socket) = (directory.path().join("log"), directory.path().join("s"));
        let executor = Executor::new(select::driver(engine, SEED).unwrap().0);
        let (io, path) = (executor.io(), log.clone());
        let address = Address::Unix(socket.clone());
        let peer = executor.run(async move {
            let listener = io.listen(&address, &ListenHow::default()).unwrap();
            let client = UnixStream::connect(match &address {
                Address::Unix(path) => path,
                _ => unreachable!(),
            })
            .unwrap();
            let (server, _) = listener.accept().await.unwrap();
            let reader = server.clone();
            io.spawn("reads for ever", async move {
                let _ = reader.read(Vec::new()).await;
            });
            io.spawn("writes for ever", async move {
                let _ = server.write(vec![Bytes::from(vec![1; 16 << 20])]).await;
            });
            io.spawn("accepts for ever", async move {
                let _ = listener.accept().await;
            });
            let handle = io.clone();
            io.spawn("sleeps for ever", async move { handle.sleep(Duration::MAX).await });
            io.sleep(Duration::from_millis(5)).await;
            let file = io.disk().open(&path, OpenHow::CREATE).await.unwrap();
            for number in 0..8u64 {
                let mut buffer = AlignedBuffer::zeroed(BLOCK);
                buffer.fill(9);
                drop(file.write_at(buffer, number * BLOCK as u64, Durability::Disk));
            }
            client
        });
        drop(executor);
        let written = std::fs::read(&log).unwrap();
        assert_eq!(written.len(), 8 * BLOCK);
        assert!(written.iter().all(|byte| *byte == 9));
        assert!(!socket.exists());
        // The other end finds what was sent, and then the end or a reset.
        let mut peer = peer;
        let mut sink = Vec::new();
        let ended = std::io::Read::read_to_end(&mut peer, &mut sink);
        assert!(ended.is_ok_and(|count| count > 0) || !sink.is_empty());
        let refused = UnixStream::connect(&socket).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotFound);
    }
}

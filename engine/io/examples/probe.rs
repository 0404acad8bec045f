//! What a driver costs over the system calls it makes.
//!
//! `cargo run --release --example probe DIR [threads|tasks|writes|depth]`: DIR lies on the file
//! system to measure. Each figure stands beside the same exchange in a bare loop in the same run,
//! alternating in rounds, so that drift of the machine meets both.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use io_uring::{IoUring, opcode, types};
use ringbolt_io::net::ListenHow;
use ringbolt_io::{
    Address, AlignedBuffer, Durability, Engine, Executor, Io, OpenHow, make_driver as driver,
};
use rustix::event::epoll;
use rustix::fs::{Mode, OFlags};
use rustix::io::ReadWriteFlags;

const ROUNDS: usize = 5;
const EXCHANGES: usize = 4_000;
const WRITES: usize = 800;
const BLOCK: usize = 4096;
const FILE_BLOCKS: usize = 2048;
const MESSAGE: [u8; 64] = [7; 64];

/// Times of one kind of exchange, over all rounds.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn percentile(&mut self, hundredths: usize) -> f64 {
        self.0.sort_unstable();
        let at = (self.0.len() - 1) * hundredths / 100;
        self.0[at].as_secs_f64() * 1e6
    }
}

fn report(title: &str, rows: &mut [(&str, Times)]) {
    println!("{title}");
    for (name, times) in rows {
        let (p50, p99) = (times.percentile(50), times.percentile(99));
        println!("  {name:<28} p50 {p50:>8.1} us   p99 {p99:>8.1} us");
    }
}

fn main() {
    let directory = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = directory.join(format!("ringbolt-probe-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("DIR can be written");
    let only = std::env::args().nth(2);
    type Part = (&'static str, fn(&Path));
    let parts: [Part; 4] = [
        ("threads", ping_pong_across_threads),
        ("tasks", ping_pong_in_one_thread),
        ("writes", durable_writes),
        ("depth", durable_writes_at_depth_four),
    ];
    for (name, part) in parts {
        if only.as_deref().is_none_or(|only| only == name) {
            part(&directory);
        }
    }
    std::fs::remove_dir_all(&directory).expect("it was made above");
}

// ---- sockets ----

/// The peer is a thread with blocking calls; each side sleeps while the other works.
fn ping_pong_across_threads(directory: &Path) {
    let mut rows = [
        ("blocking read and write", Times::default()),
        ("bare epoll loop", Times::default()),
        ("epoll driver", Times::default()),
        ("bare io_uring loop", Times::default()),
        ("uring driver", Times::default()),
    ];
    for _ in 0..ROUNDS {
        with_echo(|stream| bare_blocking(stream, &mut rows[0].1));
        with_echo(|stream| bare_epoll(stream, &mut rows[1].1));
        driven_ping_pong(Engine::Epoll, directory, Peer::Thread, &mut rows[2].1);
        with_echo(|stream| bare_uring(stream, &mut rows[3].1));
        driven_ping_pong(Engine::Uring, directory, Peer::Thread, &mut rows[4].1);
    }
    report("Unix socket, 64 bytes there and back, two threads", &mut rows);
}

/// Both ends are tasks of one shard: no sleep, only the cost of calls and turns.
fn ping_pong_in_one_thread(directory: &Path) {
    let mut rows = [
        ("blocking read and write", Times::default()),
        ("epoll driver", Times::default()),
        ("uring driver", Times::default()),
    ];
    for _ in 0..ROUNDS {
        let (mut one, mut two) = UnixStream::pair().expect("a pair of sockets");
        timed(EXCHANGES, &mut rows[0].1, || {
            let mut room = MESSAGE;
            one.write_all(&MESSAGE).expect("the pair is open");
            two.read_exact(&mut room).expect("the pair is open");
            two.write_all(&room).expect("the pair is open");
            one.read_exact(&mut room).expect("the pair is open");
        });
        driven_ping_pong(Engine::Epoll, directory, Peer::Task, &mut rows[1].1);
        driven_ping_pong(Engine::Uring, directory, Peer::Task, &mut rows[2].1);
    }
    report("Unix socket, 64 bytes there and back, one thread", &mut rows);
}

fn timed(count: usize, times: &mut Times, mut exchange: impl FnMut()) {
    for _ in 0..count {
        let start = Instant::now();
        exchange();
        times.0.push(start.elapsed());
    }
}

fn with_echo(act: impl FnOnce(UnixStream)) {
    let (here, there) = UnixStream::pair().expect("a pair of sockets");
    let echo = std::thread::spawn(move || echo(there));
    act(here);
    echo.join().expect("the echo ends with its stream");
}

fn echo(mut stream: UnixStream) {
    let mut room = MESSAGE;
    while stream.read_exact(&mut room).is_ok() {
        if stream.write_all(&room).is_err() {
            return;
        }
    }
}

fn bare_blocking(mut stream: UnixStream, times: &mut Times) {
    let mut room = MESSAGE;
    timed(EXCHANGES, times, || {
        stream.write_all(&MESSAGE).expect("the echo lives");
        stream.read_exact(&mut room).expect("the echo lives");
    });
}

fn bare_epoll(mut stream: UnixStream, times: &mut Times) {
    stream.set_nonblocking(true).expect("a socket of ours");
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&poll, &stream, epoll::EventData::new_u64(0), flags).expect("a socket of ours");
    let mut events = Vec::with_capacity(8);
    let mut room = MESSAGE;
    timed(EXCHANGES, times, || {
        stream.write_all(&MESSAGE).expect("the echo lives");
        events.clear();
        let wait = || epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None);
        rustix::io::retry_on_intr(wait).expect("an epoll of ours");
        stream.read_exact(&mut room).expect("the echo lives");
    });
}

fn bare_ring() -> IoUring {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(8)
        .expect("io_uring is allowed here")
}

fn bare_uring(stream: UnixStream, times: &mut Times) {
    let mut ring = bare_ring();
    let mut room = MESSAGE;
    let fd = types::Fd(stream.as_raw_fd());
    timed(EXCHANGES, times, || {
        let send = opcode::Send::new(fd, MESSAGE.as_ptr(), 64).build();
        let receive = opcode::Recv::new(fd, room.as_mut_ptr(), 64).build();
        // SAFETY: message and room outlive the wait for both completions below.
        // JUSTIFICATION: the bare loop is the yardstick of the driver.
        unsafe {
            ring.submission().push(&send).expect("the queue is empty");
            ring.submission().push(&receive).expect("the queue has room");
        }
        ring.submit_and_wait(2).expect("a ring of ours");
        assert!(ring.completion().all(|entry| entry.result() == 64));
    });
}

#[derive(Clone, Copy, PartialEq)]
enum Peer {
    Thread,
    Task,
}

fn driven_ping_pong(engine: Engine, directory: &Path, peer: Peer, times: &mut Times) {
    let path = directory.join("socket");
    let taken = std::mem::take(times);
    *times = on_shard(engine, move |io| async move {
        let listener = io.listen(&Address::Unix(path.clone()), &ListenHow::default());
        let listener = listener.expect("DIR can be written");
        let thread = (peer == Peer::Thread).then(|| {
            let path = path.clone();
            std::thread::spawn(move || echo(UnixStream::connect(path).expect("it listens")))
        });
        if peer == Peer::Task {
            let (io, address) = (io.clone(), listener.address().clone());
            io.clone().spawn("echo", async move {
                let stream = io.connect(&address).await.expect("it listens");
                loop {
                    let (count, bytes) = stream.read(Vec::new()).await;
                    if count.is_err() || bytes.is_empty() {
                        return;
                    }
                    stream.write(vec![Bytes::from(bytes)]).await.expect("the other end lives");
                }
            });
        }
        let (stream, _) = listener.accept().await.expect("the peer comes");
        let mut times = taken;
        let mut room = Vec::new();
        for _ in 0..EXCHANGES {
            let start = Instant::now();
            stream.write(vec![Bytes::from_static(&MESSAGE)]).await.expect("the echo lives");
            room.clear();
            while room.len() < MESSAGE.len() {
                let (count, back) = stream.read(room).await;
                room = back;
                assert!(count.is_ok_and(|count| count > 0), "the echo lives");
            }
            times.0.push(start.elapsed());
        }
        stream.shutdown();
        drop(stream);
        // The descriptor is closed in the next turn.
        io.sleep(Duration::from_millis(1)).await;
        if let Some(thread) = thread {
            thread.join().expect("the echo ends with its stream");
        }
        times
    });
}

fn on_shard<T: 'static, F>(engine: Engine, task: impl FnOnce(Io) -> F) -> T
where
    F: Future<Output = T> + 'static,
{
    let (driver, _) = driver(engine, 1).expect("the engine is allowed here");
    let executor = Executor::new(driver);
    executor.run(task(executor.io()))
}

// ---- disk ----

/// A file whose blocks have all been written: recycled segments look like this.
fn zeroed_file(directory: &Path) -> PathBuf {
    let path = directory.join("log");
    if !path.exists() {
        std::fs::write(&path, vec![0u8; FILE_BLOCKS * BLOCK]).expect("DIR has room");
        std::fs::File::open(&path).and_then(|file| file.sync_all()).expect("DIR can be synced");
    }
    path
}

fn offset(number: usize) -> u64 {
    (number % FILE_BLOCKS * BLOCK) as u64
}

fn durable_writes(directory: &Path) {
    let path = zeroed_file(directory);
    let mut rows = [
        ("pwritev2", Times::default()),
        ("epoll driver", Times::default()),
        ("bare io_uring loop", Times::default()),
        ("uring driver", Times::default()),
    ];
    for _ in 0..ROUNDS {
        bare_pwritev2(&path, &mut rows[0].1);
        driven_writes(Engine::Epoll, &path, 1, &mut rows[1].1);
        bare_uring_writes(&path, &mut rows[2].1);
        driven_writes(Engine::Uring, &path, 1, &mut rows[3].1);
    }
    report("4 KiB, O_DIRECT and RWF_DSYNC, one at a time", &mut rows);
}

fn durable_writes_at_depth_four(directory: &Path) {
    let path = zeroed_file(directory);
    let mut rows = [("epoll driver", Times::default()), ("uring driver", Times::default())];
    for _ in 0..ROUNDS {
        driven_writes(Engine::Epoll, &path, 4, &mut rows[0].1);
        driven_writes(Engine::Uring, &path, 4, &mut rows[1].1);
    }
    report("4 KiB, O_DIRECT and RWF_DSYNC, four at a time (each)", &mut rows);
}

fn bare_open(path: &Path) -> rustix::fd::OwnedFd {
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).expect("the file was made above")
}

fn bare_pwritev2(path: &Path, times: &mut Times) {
    let file = bare_open(path);
    let buffer = AlignedBuffer::zeroed(BLOCK);
    let mut number = 0;
    timed(WRITES, times, || {
        let slices = [std::io::IoSlice::new(&buffer)];
        let flags = ReadWriteFlags::DSYNC;
        let written = rustix::io::pwritev2(&file, &slices, offset(number), flags);
        assert_eq!(written, Ok(BLOCK));
        number += 1;
    });
}

fn bare_uring_writes(path: &Path, times: &mut Times) {
    let file = bare_open(path);
    let buffer = AlignedBuffer::zeroed(BLOCK);
    let mut ring = bare_ring();
    let mut number = 0;
    timed(WRITES, times, || {
        let write = opcode::Write::new(types::Fd(file.as_raw_fd()), buffer.as_ptr(), 4096)
            .offset(offset(number))
            .rw_flags(libc::RWF_DSYNC)
            .build();
        // SAFETY: the buffer outlives the wait for the completion below.
        // JUSTIFICATION: the bare loop is the yardstick of the driver.
        unsafe { ring.submission().push(&write).expect("the queue is empty") };
        ring.submit_and_wait(1).expect("a ring of ours");
        assert!(ring.completion().all(|entry| entry.result() == 4096));
        number += 1;
    });
}

fn driven_writes(engine: Engine, path: &Path, depth: usize, times: &mut Times) {
    let path = path.to_path_buf();
    let taken = std::mem::take(times);
    *times = on_shard(engine, move |io| async move {
        let file = io.disk().open(&path, OpenHow::LOG).await.expect("the file was made above");
        let times = Rc::new(RefCell::new(taken));
        let tasks: Vec<_> = (0..depth)
            .map(|lane| {
                let (file, times) = (file.clone(), times.clone());
                io.spawn("writer", async move {
                    let mut buffer = AlignedBuffer::zeroed(BLOCK);
                    for number in 0..WRITES / depth {
                        let start = Instant::now();
                        let at = offset(number * depth + lane);
                        let (result, back) = file.write_at(buffer, at, Durability::Disk).await;
                        result.expect("the disk works");
                        buffer = back;
                        times.borrow_mut().0.push(start.elapsed());
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        times.take()
    });
}

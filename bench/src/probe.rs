//! What the machine itself gives: the floor under every figure.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use hdrhistogram::Histogram;

use crate::limits::LATENCY_US_MAX;

const BLOCK: usize = 4096;
const FILE_BLOCKS: u64 = 1024;
const WRITES: u64 = 1500;
const PINGS: u64 = 5000;
const O_DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();
const O_DSYNC: u32 = rustix::fs::OFlags::DSYNC.bits();

/// Latencies in microseconds of durable 4 KiB writes, one at a time, into a file that was zeroed
/// before: O_DIRECT and O_DSYNC.
pub fn durable_writes(directory: &Path) -> io::Result<Histogram<u64>> {
    let path = directory.join("ringbolt-bench.probe");
    std::fs::write(&path, vec![0u8; BLOCK * usize::try_from(FILE_BLOCKS).expect("small")])?;
    std::fs::File::open(&path)?.sync_all()?;
    let flags = i32::try_from(O_DIRECT | O_DSYNC).expect("flags are small");
    let file = OpenOptions::new().write(true).custom_flags(flags).open(&path)?;
    let room = vec![7u8; 2 * BLOCK];
    let skip = room.as_ptr().align_offset(BLOCK);
    let mut histogram = latencies();
    for number in 0..WRITES {
        let start = Instant::now();
        file.write_all_at(&room[skip..skip + BLOCK], number % FILE_BLOCKS * BLOCK as u64)?;
        histogram.saturating_record(u64::try_from(start.elapsed().as_micros()).unwrap_or(0));
    }
    drop(file);
    std::fs::remove_file(&path)?;
    Ok(histogram)
}

fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("sound bounds")
}

/// Latencies in microseconds of a byte to another thread and back over a Unix socket.
pub fn ping_pong() -> io::Result<Histogram<u64>> {
    let (mut here, mut there) = UnixStream::pair()?;
    let echo = std::thread::spawn(move || {
        let mut byte = [0u8; 1];
        while there.read_exact(&mut byte).is_ok() && there.write_all(&byte).is_ok() {}
    });
    let mut histogram = latencies();
    let mut byte = [1u8; 1];
    for _ in 0..PINGS {
        let start = Instant::now();
        here.write_all(&byte)?;
        here.read_exact(&mut byte)?;
        histogram.saturating_record(u64::try_from(start.elapsed().as_micros()).unwrap_or(0));
    }
    drop(here);
    let _ = echo.join();
    Ok(histogram)
}

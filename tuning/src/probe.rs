//! The probes and their table.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use hdrhistogram::Histogram;
use ringbolt_io::bulk::zero_file;
use ringbolt_io::net::ListenHow;
use ringbolt_io::{Address, AlignedBuffer, Durability, File, Io, OpenHow};

/// Bytes of one durable write.
const BLOCK_BYTES: usize = 4096;
/// Size of the file that is written: as a first log segment.
const FILE_BYTES: u64 = 4 * 1024 * 1024;
/// Writes at each depth.
const WRITES: u64 = 2000;
/// Bytes sent back and forth.
const PINGS: usize = 5000;
/// Writes in flight.
const DEPTHS: [u64; 4] = [1, 4, 8, 16];

type Latencies = Rc<RefCell<Histogram<u64>>>;

/// Runs every probe in `directory` and gives the table.
///
/// # Errors
/// The system's.
pub async fn table(io: &Io, directory: &Path) -> io::Result<Table> {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["probe", "p50 µs", "p99 µs", "slowest µs", "per second"]);
    let path = directory.join("ringbolt-tuning.probe");
    zero_file(io, &path, FILE_BYTES).await?;
    let file = io.disk().open(&path, OpenHow::LOG).await?;
    let kind = if file.is_direct() { "direct" } else { "buffered" };
    for depth in DEPTHS {
        let begin = io.now();
        let latencies = durable_writes(io, &file, depth).await?;
        let took = io.now().since(begin).as_secs_f64();
        row(&mut table, &format!("durable 4 KiB write, {kind}, depth {depth}"), &latencies, took);
    }
    drop(file);
    io.disk().remove(&path).await?;
    let begin = io.now();
    let latencies = ping_pong(io, directory).await?;
    let took = io.now().since(begin).as_secs_f64();
    row(&mut table, "ping-pong over a Unix socket, one core", &latencies, took);
    Ok(table)
}

fn row(table: &mut Table, name: &str, latencies: &Histogram<u64>, took_s: f64) {
    let count = u32::try_from(latencies.len()).map_or(f64::MAX, f64::from);
    let per_second = if took_s > 0.0 { count / took_s } else { 0.0 };
    table.add_row([
        name.to_owned(),
        latencies.value_at_quantile(0.5).to_string(),
        latencies.value_at_quantile(0.99).to_string(),
        latencies.max().to_string(),
        format!("{per_second:.0}"),
    ]);
}

/// `depth` tasks, each with one durable write in flight, over blocks of their own.
async fn durable_writes(io: &Io, file: &File, depth: u64) -> io::Result<Histogram<u64>> {
    let latencies: Latencies = Rc::new(RefCell::new(Histogram::new(3).expect("three digits")));
    let failure = Rc::new(RefCell::new(None));
    let blocks = FILE_BYTES / BLOCK_BYTES as u64;
    let mut tasks = Vec::new();
    for lane in 0..depth {
        let (io_of_task, file) = (io.clone(), file.clone());
        let (latencies, failure) = (latencies.clone(), failure.clone());
        tasks.push(io.spawn("probe", async move {
            let mut buffer = AlignedBuffer::zeroed(BLOCK_BYTES);
            for number in 0..WRITES / depth {
                let block = (number * depth + lane) % blocks;
                let begin = io_of_task.now();
                let offset = block * BLOCK_BYTES as u64;
                let (result, returned) = file.write_at(buffer, offset, Durability::Disk).await;
                buffer = returned;
                if let Err(error) = result {
                    *failure.borrow_mut() = Some(error);
                    return;
                }
                let us = io_of_task.now().since(begin).as_micros();
                latencies.borrow_mut().saturating_record(u64::try_from(us).unwrap_or(u64::MAX));
            }
        }));
    }
    for task in tasks {
        task.await;
    }
    match failure.take() {
        Some(error) => Err(error),
        None => Ok(latencies.borrow().clone()),
    }
}

async fn ping_pong(io: &Io, directory: &Path) -> io::Result<Histogram<u64>> {
    let address = Address::Unix(directory.join("ringbolt-tuning.sock"));
    let listener = io.listen(&address, &ListenHow::default())?;
    let echo = io.spawn("echo", async move {
        let Ok((stream, _)) = listener.accept().await else { return };
        loop {
            let (result, bytes) = stream.read(Vec::new()).await;
            if !matches!(result, Ok(count) if count > 0)
                || stream.write(vec![bytes.into()]).await.is_err()
            {
                return;
            }
        }
    });
    let stream = io.connect(&address).await?;
    let mut latencies = Histogram::new(3).expect("three digits");
    let mut received = Vec::new();
    for _ in 0..PINGS {
        let begin = io.now();
        stream.write(vec![bytes::Bytes::from_static(b".")]).await?;
        received.clear();
        let (result, buffer) = stream.read(received).await;
        received = buffer;
        result?;
        let us = io.now().since(begin).as_micros();
        latencies.saturating_record(u64::try_from(us).unwrap_or(u64::MAX));
    }
    stream.shutdown();
    drop(stream);
    echo.await;
    Ok(latencies)
}

//! Load generator and comparison. A black box: it speaks the wire protocol and links no engine.
//!
//! `ringbolt-bench compare` starts a real etcd and this project's server in turns, measures both in
//! the same run, interleaved, with a raw-device and a raw-socket probe beside them, and prints
//! ratios with their spread. `ringbolt-bench soak` drives this project's server for hours and says
//! whether it stays as it is. `ringbolt-bench load` drives a server that is already there.

mod compare;
mod crowd;
mod fanout;
mod limits;
mod lists;
mod load;
mod measures;
mod probe;
mod report;
mod server;
mod soak;
mod strain;
mod wire;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use load::Shape;
use wire::Target;
use workload::Workload;

/// What the client spends is missing on the cores that it shares with the server it measures.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(
    name = "ringbolt-bench",
    about = "Measures etcd v3 servers: lean, interleaved, black box"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures a real etcd and this server side by side.
    Compare(CompareArguments),
    /// Drives this server at a steady rate for a long time and judges errors, memory and disk.
    Soak(soak::Arguments),
    /// Drives one server that is already running.
    Load {
        /// host:port, or unix:///path of a socket.
        #[arg(long, default_value = "127.0.0.1:2379")]
        endpoint: String,
        /// What is asked for.
        #[arg(long, value_enum, default_value = "put")]
        workload: Workload,
        /// Connections.
        #[arg(long, default_value_t = 1)]
        connections: usize,
        /// Calls in flight on each.
        #[arg(long, default_value_t = 1)]
        streams: usize,
        /// Seconds of measuring.
        #[arg(long, default_value_t = 5)]
        seconds: u64,
        /// Bytes of each value.
        #[arg(long, default_value_t = 256)]
        value_bytes: usize,
    },
}

/// What `compare` needs to know.
#[derive(clap::Args)]
pub struct CompareArguments {
    /// The real etcd.
    #[arg(long)]
    etcd: PathBuf,
    /// This project's server.
    #[arg(long, default_value = "target/release/ringbolt")]
    ours: PathBuf,
    /// Where data directories are made: the disk that is measured.
    #[arg(long, default_value = ".")]
    directory: PathBuf,
    /// Interleaved rounds.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds for each measure in each round.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Keys of the large-store measures; 0 leaves them out.
    #[arg(long, default_value_t = 1_000_000)]
    keys: usize,
    /// Leases that expire together; 0 leaves the measure out.
    #[arg(long, default_value_t = 100_000)]
    leases: u64,
    /// Revisions that are compacted; 0 leaves the measure out.
    #[arg(long, default_value_t = 1_000_000)]
    revisions: u64,
    /// Idle connections with a watcher each; 0 leaves the measure out.
    #[arg(long, default_value_t = 19_000)]
    connections: usize,
    /// Only measures whose name has one of these words in it: "put, 1 client", "event",
    /// "large store", "idle", "connections", "leases", "compaction"; and "slow lists", which takes
    /// a minute and a half and is measured only when it is asked for here.
    #[arg(long)]
    only: Vec<String>,
    /// The first port of etcd; ours is a hundred above. Each takes two.
    #[arg(long, default_value_t = 26790, value_parser = clap::value_parser!(u16).range(1..65_000))]
    port: u16,
    /// Writes an SVG plot of the latencies here.
    #[arg(long)]
    plot: Option<PathBuf>,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Soak(arguments) => soak::run(&arguments),
        Command::Load { endpoint, workload, connections, streams, seconds, value_bytes } => {
            let shape = Shape { connections, streams, value_bytes };
            let target = Target::parse(&endpoint);
            load::run(&target, workload, shape, Duration::from_secs(seconds))
                .map(|outcome| println!("{}", outcome.line()))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ringbolt-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

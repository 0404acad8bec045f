//! Probes the machine under a store: what a durable write costs at each depth, and what a byte to
//! another task and back costs, over the io seam the server itself uses.
//!
//! ```text
//! ringbolt-tuning probe [--directory DIR] [--io-engine auto|uring|epoll]
//! ```

mod probe;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ringbolt_io::select::{Engine, driver};
use ringbolt_io::{Executor, plain};

#[derive(Parser)]
#[command(name = "ringbolt-tuning", about = "Measures what a machine gives a store")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Durable writes at several depths, and a socket ping-pong.
    Probe {
        /// A directory on the disk that the data will lie on.
        #[arg(long, default_value = ".")]
        directory: PathBuf,
        /// auto, uring or epoll.
        #[arg(long, default_value = "auto")]
        io_engine: String,
    },
}

fn main() -> ExitCode {
    let Command::Probe { directory, io_engine } = Arguments::parse().command;
    match probe(directory, &io_engine) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ringbolt-tuning: {error}");
            ExitCode::FAILURE
        }
    }
}

fn probe(directory: PathBuf, io_engine: &str) -> Result<(), String> {
    let engine: Engine = io_engine.parse()?;
    let (driver, why) = driver(engine, 1).map_err(|error| error.to_string())?;
    println!("{why}");
    let executor = Executor::new(driver);
    let io = executor.io();
    executor.run(async move {
        let shown = directory.display().to_string();
        let table = probe::table(&io, &directory).await;
        table
            .map(|table| println!("{table}"))
            .map_err(|error| format!("{shown}: {}", plain(&error)))
    })
}

//! `powercut`: cuts the power under a server, again and again, on ext4 or xfs, and compares what
//! comes back with what clients were told.
//!
//! ```text
//!   cargo run --release -p tests --bin powercut -- --server target/release/ringbolt \
//!       --directory /tmp/cuts --file-system ext4 --fsync safe --io-engine uring --lives 40
//! ```
//! It needs root, /dev/fuse, loop devices and the file system's mkfs. `tests/suites/powercut.sh`
//! says what is missing.
//! Exit code 0: everything was as the mode promises; 1: not; 2: it could not be tried.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{ExitCode, exit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use clap::Parser;
use tests::disk::cycle::{Chain, End, Life, Plan, Planted};
use tests::disk::rig::{BootId, Kind, enter_namespace};

/// Lives on one disk before a new one is made: long enough for a log to be recycled.
const LIVES_PER_DISK: u64 = 40;
/// No life may take longer, whatever the kernel does.
const LIFE_S_MAX: u64 = 400;

#[derive(Debug, Parser)]
#[command(about = "Cuts the power under a server on a real file system")]
struct Options {
    /// The server.
    #[arg(long)]
    server: PathBuf,
    /// Where disks are mounted and logs written.
    #[arg(long)]
    directory: PathBuf,
    /// The file system.
    #[arg(long)]
    file_system: Kind,
    /// The server's mode.
    #[arg(long, default_value = "safe")]
    fsync: String,
    /// Make something wrong that must be found.
    #[arg(long)]
    planted: Option<Planted>,
    /// The server's io engine.
    #[arg(long, default_value = "uring")]
    io_engine: String,
    /// Lives to end; most of them by a cut.
    #[arg(long, default_value_t = 40)]
    lives: u64,
    /// What decides everything but times.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The first of two TCP ports.
    #[arg(long, default_value_t = 26_990)]
    port: u16,
    /// Where the disk of a failure is written.
    #[arg(long)]
    keep: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Err(error) = enter_namespace() {
        eprintln!("{error}");
        return ExitCode::from(2);
    }
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Trouble::Wrong(error)) => {
            println!("FAILED {error}");
            ExitCode::from(1)
        }
        Err(Trouble::Unable(error)) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

enum Trouble {
    /// The server did something wrong.
    Wrong(String),
    /// There was no way to tell.
    Unable(String),
}

fn run(options: &Options) -> Result<(), Trouble> {
    let plan = Plan {
        binary: options.server.clone(),
        directory: options.directory.clone(),
        kind: options.file_system,
        mode: options.fsync.clone(),
        planted: options.planted,
        engine: options.io_engine.clone(),
        seed: options.seed,
        port: options.port,
    };
    std::fs::create_dir_all(&plan.directory).map_err(|error| Trouble::Unable(error.to_string()))?;
    let mut boot = BootId::new(&plan.directory).map_err(Trouble::Unable)?;
    let (mut sums, began) = (Sums::default(), Instant::now());
    let beat = watch_over();
    let mut number = 0;
    while number < options.lives {
        let mut chain = Chain::new(&plan, boot, number).map_err(Trouble::Unable)?;
        for _ in 0..LIVES_PER_DISK.min(options.lives - number) {
            number += 1;
            beat.fetch_add(1, Ordering::Relaxed);
            match chain.life() {
                Ok(life) => sums.add(&life),
                Err(error) => {
                    if let Some(Err(error)) = options.keep.as_ref().map(|path| chain.save(path)) {
                        eprintln!("the disk is not kept: {error}");
                    }
                    return Err(Trouble::Wrong(told(options, number, &error)));
                }
            }
            if number.is_multiple_of(50) {
                println!("{number} lives in {} s, {}", began.elapsed().as_secs(), sums.line());
            }
        }
        let closed = chain.close();
        let (found, checkpoints, again) =
            closed.map_err(|error| Trouble::Wrong(told(options, number, &error)))?;
        sums.compared += found.compared;
        sums.checkpoints += checkpoints;
        boot = again;
    }
    let name = plan.kind.name();
    let (mode, engine, seed) = (&plan.mode, &plan.engine, plan.seed);
    println!("{name}, {mode}, {engine}, seed {seed}: {number} lives, {}", sums.line());
    println!("    ends: {}", sums.ends());
    Ok(())
}

/// A failure with the command that tries it again.
fn told(options: &Options, number: u64, error: &str) -> String {
    let Options { file_system, fsync, io_engine, seed, .. } = options;
    let name = file_system.name();
    format!(
        "life {number} of seed {seed} on {name}, {fsync}, {io_engine}: {error}\n  again: bash \
         tests/suites/powercut.sh --file-system {name} --fsync {fsync} --io-engine {io_engine} \
         --seed {seed} --lives {number}"
    )
}

/// Ends the process if no life begins for too long: whatever hangs then ends with it.
fn watch_over() -> Arc<AtomicU64> {
    let beat = Arc::new(AtomicU64::new(0));
    let watched = beat.clone();
    spawn(move || {
        let (mut seen, mut since) = (0, Instant::now());
        loop {
            sleep(Duration::from_secs(1));
            let now = watched.load(Ordering::Relaxed);
            if now != seen {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() > Duration::from_secs(LIFE_S_MAX) {
                println!("FAILED life {now} hangs for {LIFE_S_MAX} s");
                exit(1);
            }
        }
    });
    beat
}

/// What all lives did.
#[derive(Default)]
struct Sums {
    ends: BTreeMap<End, u64>,
    losses: BTreeMap<String, u64>,
    cuts: u64,
    sectors: usize,
    sectors_lost: usize,
    acknowledged: u64,
    compared: usize,
    checkpoints: usize,
    tails: u64,
    lost: usize,
    lost_age_max: Duration,
}

impl Sums {
    fn add(&mut self, life: &Life) {
        *self.ends.entry(life.end).or_default() += 1;
        self.acknowledged += life.acknowledged;
        if let Some(cut) = &life.cut {
            self.cuts += 1;
            *self.losses.entry(format!("{:?}", cut.loss)).or_default() += 1;
            self.sectors += cut.sectors;
            self.sectors_lost += cut.sectors_lost;
        }
        if let Some(found) = &life.found {
            self.compared += found.compared;
            self.lost += found.lost;
            self.tails += u64::from(found.lost > 0);
            self.lost_age_max = self.lost_age_max.max(found.lost_age);
        }
    }

    fn line(&self) -> String {
        format!(
            "{} cuts took {} of {} sectors; {} calls acknowledged, {} facts compared; {} tails \
             lost with {} facts, the oldest {} ms before its cut",
            self.cuts,
            self.sectors_lost,
            self.sectors,
            self.acknowledged,
            self.compared,
            self.tails,
            self.lost,
            self.lost_age_max.as_millis()
        )
    }

    fn ends(&self) -> String {
        let ends = self.ends.iter().map(|(end, count)| format!("{count} {end:?}"));
        let losses = self.losses.iter().map(|(loss, count)| format!("{count} {loss}"));
        let (ends, losses): (Vec<_>, Vec<_>) = (ends.collect(), losses.collect());
        let (ends, losses) = (ends.join(", "), losses.join(", "));
        format!("{ends}; cuts: {losses}; {} checkpoints", self.checkpoints)
    }
}

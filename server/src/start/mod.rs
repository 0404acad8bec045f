//! From settings to a running server, and back.
//!
//! The main thread is the coordinator: it makes the shards, hears what becomes of them, and waits
//! for a signal. Keyspaces are spread over shards by their number; connections of a keyspace may
//! live on any shard.
//!
//! ```text
//! check directory ─► make shards ─► all bound ─► open ─► all ready ─► notify init ─► signal
//!                                                                                      │
//! die by the same signal ◄─ "closed etcd server" ◄─ all closed ◄─ order: stop ◄────────┘
//! ```

mod compaction;
mod directory;
mod facts;
mod limits;
mod listen;
mod shard;
mod signals;
mod spread;
mod words;

use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use ringbolt_io::{mailbox, plain, process};

use crate::config::keyspace::Fsync;
use crate::config::notice::Notice;
use crate::config::{Config, check};
use crate::{budget, log};
use directory::{Found, Refusal};
use limits::STOP_TIME_MAX;
use spread::Arrival;

/// What a shard or the signal thread tells the coordinator.
enum Report {
    /// All listeners of a shard are bound; it waits for orders.
    Bound(Bound),
    /// All keyspaces of a shard serve.
    Ready,
    /// The start failed: the text behind "discovery failed".
    Failed(String),
    /// A log failed (W7): the cause.
    LogFailed(String),
    /// A shard broke an invariant: its thread is gone, and the process goes with it.
    Panicked,
    /// A shard's thread has ended, whatever it had closed.
    Ended,
    /// SIGTERM or SIGINT.
    Signal(i32),
}

/// A shard that waits for orders.
struct Bound {
    /// Its number.
    shard: usize,
    /// Where orders go.
    orders: mailbox::Sender<Order>,
    /// Where connections from other shards go.
    arrivals: mailbox::Sender<Arrival>,
}

/// What the coordinator tells a shard.
enum Order {
    /// Open the keyspaces and serve. These are the other shards' places for connections.
    Open(Vec<mailbox::Sender<Arrival>>),
    /// Stop serving and close.
    Stop,
}

/// Runs the server until it is told to stop.
#[must_use]
pub fn run(config: Config, notices: &[Notice], command_line: Vec<String>) -> ExitCode {
    for notice in notices {
        log::write(notice);
    }
    match serve(&config, command_line) {
        Ok(signal) => {
            signals::die(signal);
            ExitCode::SUCCESS
        }
        Err(refusal) => {
            let mut fields = vec![("error", refusal.error.into())];
            if refusal.message == "failed to list data directory" {
                fields.insert(0, ("dir", config.data_dir.display().to_string().into()));
            }
            log::fatal(refusal.message, fields);
            ExitCode::FAILURE
        }
    }
}

/// The signal that ended it.
fn serve(config: &Config, command_line: Vec<String>) -> Result<i32, Refusal> {
    let failed = |error: String| Refusal { message: "discovery failed", error };
    let found = prepare(config)?;
    process::raise_open_files_limit();
    words::starting(config, found == Found::Member);
    check::start(config).map_err(failed)?;
    if found == Found::Empty {
        check::bootstrap(config).map_err(bootstrap_failed)?;
    }
    directory::claim(&config.data_dir, found).map_err(bootstrap_failed)?;
    let (sender, reports) = channel();
    signals::watch(sender.clone()).map_err(|error| failed(plain(&error)))?;
    let shards = make_shards(config, &command_line, &sender).map_err(failed)?;
    let outcome = coordinate(config, shards, &reports);
    log::info("closed etcd server", words::closing(config));
    outcome
}

fn bootstrap_failed(error: String) -> Refusal {
    log::error("bootstrap failed", vec![("error", error.clone().into())]);
    Refusal { message: "discovery failed", error }
}

/// Looks at the data directory and says what was found.
fn prepare(config: &Config) -> Result<Found, Refusal> {
    let directory = config.data_dir.display().to_string();
    let fields = || vec![("data-dir", directory.as_str().into())];
    if config.data_dir_is_default {
        log::warn("'data-dir' was empty; using default", fields());
    }
    let mut notices = Vec::new();
    let found = directory::identify(&config.data_dir, &mut notices)?;
    for notice in &notices {
        log::write(notice);
    }
    let mut fields = fields();
    fields.push(("dir-type", found.word().into()));
    match found {
        Found::Empty => log::info("Initialize and start etcd server", fields),
        Found::Member => log::info("server has already been initialized", fields),
    }
    for keyspace in config.keyspaces.iter().filter(|keyspace| keyspace.fsync != Fsync::Safe) {
        let lost = match keyspace.fsync {
            Fsync::Memory => "everything, when the process ends",
            _ => "the last flush interval, when the power fails",
        };
        let fields = vec![
            ("keyspace", keyspace.name.as_str().into()),
            ("fsync", keyspace.fsync.word().into()),
            ("can-be-lost", lost.into()),
        ];
        log::warn("acknowledged writes can be lost", fields);
    }
    Ok(found)
}

/// How many threads serve.
fn shard_count(config: &Config) -> usize {
    match (config.shards, process::cores()) {
        // One core is left to the clients and to the kernel, unless a keyspace needs it.
        (0, cores @ ..=2) => cores.min(config.keyspaces.len()).max(1),
        (0, cores) => cores,
        (asked, _) => asked,
    }
}

/// One keyspace's part of the memory budget on one shard.
fn share_bytes(config: &Config) -> usize {
    let memory = process::memory_bytes().unwrap_or(0);
    let all = budget::process_bytes(config.memory_budget_bytes, memory);
    all / (shard_count(config) * config.keyspaces.len())
}

/// Starts the threads; returns how many.
fn make_shards(
    config: &Config,
    command_line: &[String],
    reports: &Sender<Report>,
) -> Result<usize, String> {
    let count = shard_count(config);
    for shard in 0..count {
        let keyspaces = (0..config.keyspaces.len()).filter(|index| index % count == shard);
        let plan = shard::Plan {
            shard,
            config: config.clone(),
            keyspaces: keyspaces.collect(),
            command_line: command_line.to_vec(),
            seed: process::seed(),
        };
        let reports = reports.clone();
        std::thread::Builder::new()
            .name(format!("shard-{shard}"))
            .spawn(move || {
                let _guard = Guard { reports: reports.clone() };
                shard::run(plan, reports);
            })
            .map_err(|error| format!("shard {shard}: {}", plain(&error)))?;
    }
    Ok(count)
}

/// Lives as long as a shard's thread, and tells when and how that ends.
struct Guard {
    reports: Sender<Report>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _nobody_listens_at_the_end = self.reports.send(Report::Panicked);
        }
        let _nobody_listens_at_the_end = self.reports.send(Report::Ended);
    }
}

/// Hears reports from the start to the end; gives the signal that ended it.
fn coordinate(config: &Config, shards: usize, reports: &Receiver<Report>) -> Result<i32, Refusal> {
    let mut crew = Crew { bound: Vec::new(), alive: shards };
    let mut ready = 0;
    loop {
        match reports.recv().expect("the coordinator holds a sender of its own") {
            Report::Bound(bound) => {
                crew.bound.push(bound);
                if crew.bound.len() == shards {
                    crew.open();
                }
            }
            Report::Ready => {
                ready += 1;
                if ready == shards {
                    signals::ready();
                }
            }
            Report::Ended => crew.alive -= 1,
            Report::Failed(error) => {
                crew.stop(config, reports);
                return Err(Refusal { message: "discovery failed", error });
            }
            Report::LogFailed(cause) => {
                // W7: what the file holds is unknown, so nothing more is written, not even a mark.
                return Err(Refusal { message: "log failed", error: cause });
            }
            Report::Panicked => {
                // The panic itself is on standard error. Other shards may hold what it broke.
                let error = "a shard panicked; see standard error".to_owned();
                return Err(Refusal { message: "server failed", error });
            }
            Report::Signal(signal) => {
                let fields = vec![("signal", signals::word(signal).into())];
                log::info("received signal; shutting down", fields);
                signals::stopping();
                crew.stop(config, reports);
                return Ok(signal);
            }
        }
    }
}

/// The shards, as the coordinator sees them.
struct Crew {
    /// Those that are bound.
    bound: Vec<Bound>,
    /// Threads that have not ended.
    alive: usize,
}

impl Crew {
    /// Tells every shard to open its keyspaces, and where the others are.
    fn open(&self) {
        for one in &self.bound {
            let others = self.bound.iter().filter(|other| other.shard != one.shard);
            let places = others.map(|other| other.arrivals.clone()).collect();
            // A shard that is gone needs no order; its mailbox is never full of two.
            let _gone = one.orders.try_send(Order::Open(places));
        }
    }

    /// Stops the shards and waits until they have closed.
    fn stop(&mut self, config: &Config, reports: &Receiver<Report>) {
        log::info("closing etcd server", words::closing(config));
        log::info("skipped leadership transfer for single voting member cluster", vec![]);
        for one in &self.bound {
            // As in `open`.
            let _gone = one.orders.try_send(Order::Stop);
        }
        while self.alive > 0 {
            match reports.recv_timeout(STOP_TIME_MAX) {
                Ok(Report::Ended) => self.alive -= 1,
                Ok(Report::Bound(late)) => {
                    let _gone = late.orders.try_send(Order::Stop);
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let fields = vec![("shards", self.alive.into())];
                    return log::error("gave up waiting for shards to close", fields);
                }
            }
        }
    }
}

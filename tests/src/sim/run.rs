//! One seeded run: lives of a process and the ways they end, then quiet, then the last judgement.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use ringbolt_io::sim::{CrashKind, DiskFaults, MachineId, Rng, SimConfig, World};

use super::blocks::Blocks;
use super::faults::{Coverage, Fault, FaultSet};
use super::pace::Pace;
use super::recovery::Ending;
use super::site::{Load, Site, Stage};
use super::store::{Mode, Place, Store};
use super::workload::Mix;

/// What a run is made of, all drawn from its seed.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed.
    pub seed: u64,
    /// Virtual time of crashing and restarting, before the quiet.
    pub span: Duration,
    /// Modes of the keyspaces; `None` draws them.
    pub modes: Option<Vec<Mode>>,
    /// Kinds of faults; `None` draws them.
    pub faults: Option<FaultSet>,
    /// How fast its clients are; `None` draws it.
    pub pace: Option<Pace>,
}

impl Options {
    /// The kinds of faults of the run.
    #[must_use]
    pub fn faults(&self) -> FaultSet {
        self.faults.unwrap_or_else(|| FaultSet::draw(self.seed))
    }

    /// The pace of the run.
    #[must_use]
    pub fn pace(&self) -> Pace {
        self.pace.unwrap_or_else(|| Pace::draw(self.seed))
    }
}

/// How a run went.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Stands for everything that happened.
    pub trace_hash: u64,
    /// What went wrong, if anything did.
    pub failure: Option<String>,
    /// Virtual time.
    pub span: Duration,
    /// Disk and network operations.
    pub ops: u64,
    /// Requests of clients.
    pub requests: u64,
    /// Events given to watchers.
    pub events: u64,
    /// Answers judged.
    pub checks: u64,
    /// Processes killed and power cut.
    pub crashes: u64,
    /// Which faults happened.
    pub coverage: Coverage,
}

/// A world with one machine and its keyspaces.
pub(super) struct Run<S: Store> {
    pub(super) world: World,
    pub(super) machine: MachineId,
    pub(super) sites: Vec<Rc<Site<S>>>,
    pub(super) rng: Rng,
    pub(super) shards: usize,
    pub(super) crashes: u64,
    pub(super) faults: FaultSet,
    pub(super) pace: Pace,
    pub(super) coverage: Coverage,
    blocks: Rc<RefCell<Blocks>>,
}

const ELECTION: Duration = Duration::from_secs(1);
/// Longer than a store may take to open, close or stop, and than a process is paused.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long clients go on without faults before the quiet: longer than the slowest one thinks.
const PROGRESS_SPAN: Duration = Duration::from_secs(2);

impl<S: Store> Run<S> {
    /// An empty machine and its keyspaces.
    pub(super) fn new(options: &Options, load: Option<Load>) -> Run<S> {
        super::plain::empty_vault();
        let (seed, faults, pace) = (options.seed, options.faults(), options.pace());
        let mut rng = Rng::new(seed ^ 0x0072_696e_6762_6f6c);
        let sector_bytes = if rng.coin() { 512 } else { 4096 };
        let config = SimConfig { sector_bytes, ..SimConfig::default() };
        let mut world = World::new(seed, config);
        let machine = world.add_machine();
        world.make_dir(machine, "/data".as_ref());
        let all = [Mode::Safe, Mode::Safe, Mode::NoFsync, Mode::Memory];
        let drawn = [Mode::Safe, all[rng.index(all.len())], all[rng.index(all.len())]];
        let count = 1 + rng.index(drawn.len());
        let modes = options.modes.as_deref().unwrap_or(&drawn[..count]);
        let mut sites = Vec::new();
        for (number, mode) in modes.iter().enumerate() {
            let name = ["default", "events", "third"][number];
            let place = Place {
                directory: format!("/data/{name}").into(),
                mode: *mode,
                flush_interval: Duration::from_millis(rng.between((20, 300))),
                election_timeout: ELECTION,
            };
            let load = load.clone().unwrap_or_else(|| draw_load(&mut rng, faults, pace));
            sites.push(Site::new(name, place, load, rng.fork()));
        }
        let shards = if rng.coin() { 1 } else { sites.len() };
        let coverage = Coverage::default();
        let blocks = Rc::new(RefCell::new(Blocks::default()));
        let seen = blocks.clone();
        let see = move |path: &Path, at, bytes: &[u8]| seen.borrow_mut().write(path, at, bytes);
        world.on_write(machine, Rc::new(see));
        Run { world, machine, sites, rng, shards, crashes: 0, faults, pace, coverage, blocks }
    }

    /// Starts the process: every keyspace on its home shard.
    pub(super) fn start(&mut self) {
        let (sites, shards) = (&self.sites, self.shards);
        self.world.start_shards(self.machine, shards, |shard, io| {
            for (_, site) in sites.iter().enumerate().filter(|(at, _)| at % shards == shard) {
                io.spawn("keyspace", site.clone().live(io.clone()));
            }
        });
    }

    /// Kills the process if it still runs, and tells everybody that it is gone.
    pub(super) fn end(&mut self, kind: CrashKind) {
        if self.world.is_running(self.machine) {
            self.world.crash(self.machine, kind);
        }
        self.crashes += 1;
        let ending = match kind {
            CrashKind::Process => Ending::Killed,
            CrashKind::Power => Ending::PowerLost,
        };
        let now = self.world.ended_at(self.machine);
        for site in &self.sites {
            // A keyspace that was closed first has nothing in flight to lose.
            let closed = site.stage.get() == Stage::Closed;
            site.ended(if closed { Ending::Closed } else { ending }, now);
        }
    }

    pub(super) fn failure(&self) -> Option<String> {
        let wrong = self.sites.iter().find_map(|site| site.failure());
        wrong.or_else(|| self.blocks.borrow().wrong())
    }

    /// Runs until every keyspace is at one of these stages.
    pub(super) fn run_to(&mut self, stages: &[Stage]) -> Result<(), String> {
        let sites = self.sites.clone();
        let machine = self.machine;
        let mut wrong = None;
        let there = self.world.run_until(PATIENCE, |world| {
            wrong = sites.iter().find_map(|site| site.wrong_at(stages));
            wrong.is_some()
                || !world.is_running(machine)
                || sites.iter().all(|site| stages.contains(&site.stage.get()))
        });
        match wrong {
            Some(wrong) => Err(wrong),
            None if there => Ok(()),
            None => {
                let stages: Vec<Stage> = sites.iter().map(|site| site.stage.get()).collect();
                let tasks = self.world.tasks_alive(machine);
                let refused: Vec<_> =
                    sites.iter().map(|site| site.refused.borrow().clone()).collect();
                Err(format!(
                    "no progress in {PATIENCE:?}: {stages:?}, {refused:?}, tasks {tasks:?}"
                ))
            }
        }
    }

    /// The store must not have refused or stopped.
    pub(super) fn no_refusal(&self) -> Result<(), String> {
        for site in &self.sites {
            if let Some(why) = &*site.refused.borrow() {
                return Err(format!("keyspace {} refuses: {why}", site.name));
            }
        }
        Ok(())
    }

    /// Runs for a while, or until the process is dead.
    pub(super) fn run_for(&mut self, span: Duration) -> Result<(), String> {
        let sites = self.sites.clone();
        let machine = self.machine;
        self.world.run_until(span, |world| {
            !world.is_running(machine) || sites.iter().any(|site| site.failure().is_some())
        });
        self.failure().map_or(Ok(()), Err)
    }

    /// Lets clients finish and closes the stores.
    pub(super) fn close(&mut self) -> Result<(), String> {
        self.run_to(&[Stage::Serving, Stage::Idle, Stage::Refused])?;
        self.sites.iter().for_each(|site| site.stop());
        self.run_to(&[Stage::Closed])
    }

    /// No clients any more: every lease ends, every watcher gets the rest, and a last restart shows
    /// the same.
    fn quiet(&mut self) -> Result<(), String> {
        self.start();
        self.run_to(&[Stage::Serving, Stage::Idle])?;
        self.progress()?;
        self.sites.iter().for_each(|site| site.quiet());
        let ttl = self.sites.iter().map(|site| site.load.mix.lease_ttl_s.1).max().unwrap_or(0);
        let thought = Duration::from_micros(self.think_us());
        self.run_for(Duration::from_secs(ttl + 4) + thought + 2 * ELECTION)?;
        self.no_refusal()?;
        self.sites.iter().for_each(|site| site.judge_quiet());
        self.close()?;
        self.end(CrashKind::Power);
        self.start();
        self.close()?;
        self.no_refusal()?;
        self.end(CrashKind::Process);
        self.audit()
    }

    /// How long the slowest client thinks, at most.
    fn think_us(&self) -> u64 {
        self.sites.iter().map(|site| site.load.think_us).max().unwrap_or(0)
    }

    /// Without a fault every keyspace does what clients ask.
    fn progress(&mut self) -> Result<(), String> {
        let done = |sites: &[Rc<Site<S>>]| -> Vec<u64> {
            sites.iter().map(|site| site.done.get()).collect()
        };
        let before = done(&self.sites);
        self.run_for(PROGRESS_SPAN + 8 * Duration::from_micros(self.think_us()))?;
        let after = done(&self.sites);
        match before.iter().zip(&after).position(|(before, after)| before >= after) {
            Some(at) => Err(format!("keyspace {} does nothing", self.sites[at].name)),
            None => Ok(()),
        }
    }

    /// Replays what is stored: at every index it must come to the hash that was seen there.
    fn audit(&mut self) -> Result<(), String> {
        let sites = &self.sites;
        self.world.start_shards(self.machine, 1, |_, io| {
            for site in sites {
                io.spawn("audit", site.clone().audit(io.clone()));
            }
        });
        self.run_to(&[Stage::Closed])?;
        self.failure().map_or(Ok(()), Err)
    }

    fn whole(&mut self, options: &Options) -> Result<(), String> {
        while self.world.now() < self.pace.stretch(options.span) {
            if !self.life()? {
                return self.failure().map_or(Ok(()), Err);
            }
        }
        self.world.disk_faults(self.machine, |disk| *disk = DiskFaults::default());
        self.quiet()?;
        self.failure().map_or(Ok(()), Err)
    }

    pub(super) fn report(&self, outcome: Result<(), String>) -> Report {
        Report {
            trace_hash: self.world.trace_hash(),
            failure: outcome.err(),
            span: self.world.now(),
            ops: self.world.ops(),
            requests: self.sites.iter().map(|site| site.requests.get()).sum(),
            events: self.sites.iter().map(|site| site.events_count()).sum(),
            checks: self.sites.iter().map(|site| site.oracle.borrow().checks()).sum(),
            crashes: self.crashes,
            coverage: Coverage { disk: self.world.fault_counts(self.machine), ..self.coverage },
        }
    }
}

fn draw_load(rng: &mut Rng, faults: FaultSet, pace: Pace) -> Load {
    Load {
        clients: usize::try_from(pace.clients(rng)).expect("few"),
        watchers: usize::try_from(rng.between((0, 5))).expect("few"),
        think_us: pace.think_us(rng),
        requests: None,
        mix: Mix {
            value_bytes_max: [100, 3_000, 40_000][rng.index(3)],
            keys: [14, 14, 400][rng.index(3)],
            lease_ttl_s: pace.lease_ttl_s(rng),
            compactions_percent: [100, 20, 3][rng.index(3)],
        },
        cancels: faults.has(Fault::CancelledCalls),
        slow_readers: faults.has(Fault::SlowReaders),
        mute_watchers: if faults.has(Fault::HalfClosedStreams) { 3 } else { 0 },
    }
}

/// Runs one seed to its end or to the first thing that cannot be.
#[must_use]
pub fn simulate<S: Store>(options: &Options) -> Report {
    guarded(|| {
        let mut run = Run::<S>::new(options, None);
        let outcome = run.whole(options);
        run.report(outcome)
    })
}

/// Turns a panic (an assertion of the engine) into a failure of the run.
pub(super) fn guarded(act: impl FnOnce() -> Report) -> Report {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let failure = Some(format!("panic: {}", text.unwrap_or_default()));
        Report { failure, ..Report::default() }
    })
}

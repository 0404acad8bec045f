//! Life after life of one server on one disk, each ended another way.
//!
//! ```text
//! attach ─► start ─► judge ─► load ─► end ─► detach ─► what is durable ─► attach …
//!              └── cut or kill while it starts ──┘
//! ```
//! Seed and number of a life decide how long its load lasts, how it ends and what a cut takes.
//! Times are the machine's: a life that is replayed has the same end, not the same writes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::fuse::{Disk, Pace};
use super::judge::{Fence, Found, judge};
use super::load::{Doors, Load};
use super::medium::{Cut, Fault, Medium, pick};
use super::process::{Process, Recipe};
use super::record::{Known, Record};
use super::rig::{BootId, Kind, Rig};
use crate::corrupt::rng::Rng;

/// Size of a disk: xfs wants no less than 300 MiB.
const DISK_BYTES: u64 = 640 << 20;
/// How long a start, a stop or an end may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// How many lives before it a failure tells of.
const STORY_LIVES: usize = 4;
/// How often one flush is to fail, and how long the server may take to end for it.
const FLUSH_TRIES: usize = 20;
const FLUSH_TIME: Duration = Duration::from_secs(5);
/// The revision of a store that nobody has written to. Source: etcd.
const FIRST_REVISION: i64 = 1;

/// How slow a disk is. While a flush lasts, writes gather that a cut may take.
const PACES: [Pace; 5] = [
    Pace { write_us_max: 0, flush_us_max: 0 },
    Pace { write_us_max: 0, flush_us_max: 0 },
    Pace { write_us_max: 0, flush_us_max: 6000 },
    Pace { write_us_max: 500, flush_us_max: 6000 },
    Pace { write_us_max: 3000, flush_us_max: 20_000 },
];

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The power goes while it works.
    Cut,
    /// It is killed, and the power goes a moment later.
    KillThenCut,
    /// It is killed.
    Kill,
    /// It is stopped in order, and the power goes at once.
    StopThenCut,
    /// The power goes while it starts.
    CutAtStart,
    /// It is killed while it starts.
    KillAtStart,
    /// Flushes or writes fail, and the power goes when it has stopped for that.
    FaultThenCut,
    /// A flush or write fails until it has stopped for that; it is started again.
    FaultOnce,
    /// There is no room for anything new for a while; then the power goes.
    FullThenCut,
}

/// How often each end happens.
const ENDS: [(End, u64); 9] = [
    (End::Cut, 46),
    (End::KillThenCut, 12),
    (End::Kill, 6),
    (End::StopThenCut, 5),
    (End::CutAtStart, 10),
    (End::KillAtStart, 3),
    (End::FaultThenCut, 7),
    (End::FaultOnce, 7),
    (End::FullThenCut, 4),
];

impl End {
    fn draw(rng: &mut Rng) -> End {
        let mut number = rng.below(ENDS.iter().map(|(_, weight)| weight).sum());
        for (end, weight) in ENDS {
            if number < weight {
                return end;
            }
            number -= weight;
        }
        End::Cut
    }
}

/// Something wrong that the comparison must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Planted {
    /// The disk says that the log is durable and it is not.
    LyingDisk,
    /// The server cannot tell that the machine was off: in `unsafe-no-fsync` it fences nothing.
    SameBoot,
}

/// What is to be run.
#[derive(Clone)]
pub struct Plan {
    /// The server.
    pub binary: PathBuf,
    /// Where disks and logs are.
    pub directory: PathBuf,
    /// The file system.
    pub kind: Kind,
    /// `safe` or `unsafe-no-fsync`.
    pub mode: String,
    /// What is made wrong, to see that it is found.
    pub planted: Option<Planted>,
    /// `uring` or `epoll`.
    pub engine: String,
    /// What everything of chance is drawn from.
    pub seed: u64,
    /// The first of the server's two ports.
    pub port: u16,
}

/// What a life did.
#[derive(Clone, Debug)]
pub struct Life {
    /// How it ended.
    pub end: End,
    /// What the cut took, if there was one.
    pub cut: Option<Cut>,
    /// What the comparison at its start found.
    pub found: Option<Found>,
    /// Calls that were answered.
    pub acknowledged: u64,
}

/// A disk and what is known of it.
pub struct Chain {
    plan: Plan,
    rig: Rig,
    recipe: Recipe,
    boot: BootId,
    boots: u64,
    number: u64,
    device: Option<String>,
    record: Arc<Record>,
    base: Known,
    checkpoints: BTreeSet<String>,
    fence: Fence,
    /// How the lives so far ended.
    story: Vec<String>,
    /// What went wrong in the life that goes on.
    fault: Option<Fault>,
    /// Of the first cut since the last comparison: when the last flush before it began, and when
    /// it came.
    times: Option<(Option<Instant>, Instant)>,
}

impl Chain {
    /// A new disk with an empty file system. `number` is that of its first life.
    ///
    /// # Errors
    /// There is no FUSE, no loop device or no such file system here.
    pub fn new(plan: &Plan, boot: BootId, number: u64) -> Result<Chain, String> {
        let mut rng = Rng::new(plan.seed ^ number.wrapping_mul(0x5851_f42d));
        let sector_bytes = pick(&[512, 4096], &mut rng);
        let mut medium = Medium::new(DISK_BYTES, sector_bytes);
        medium.set_lying(plan.planted == Some(Planted::LyingDisk));
        let disk = Disk::new(medium);
        let directory = plan.directory.join(format!("disk-{number}"));
        let rig = Rig::new(disk, plan.kind, sector_bytes, &directory)?;
        rig.format()?;
        let doors =
            Doors { address: format!("127.0.0.1:{}", plan.port), socket: directory.join("socket") };
        let recipe = Recipe {
            binary: plan.binary.clone(),
            data: rig.mounted.join("data"),
            log: directory.join("log"),
            doors,
            peer: format!("127.0.0.1:{}", plan.port + 1),
            flags: vec![format!("--fsync={}", plan.mode), format!("--io-engine={}", plan.engine)],
        };
        Ok(Chain {
            plan: plan.clone(),
            rig,
            recipe,
            boot,
            boots: number << 8,
            number,
            device: None,
            record: Arc::default(),
            base: Known { revision: FIRST_REVISION, ..Known::default() },
            checkpoints: BTreeSet::new(),
            fence: Fence::MustNot,
            story: Vec::new(),
            fault: None,
            times: None,
        })
    }

    /// One life, drawn by its number.
    ///
    /// # Errors
    /// What is wrong with what the server did, or with the disk.
    pub fn life(&mut self) -> Result<Life, String> {
        let mut rng = Rng::new(self.plan.seed.wrapping_add(self.number.wrapping_mul(0x9e37_79b9)));
        self.number += 1;
        let end = End::draw(&mut rng);
        let lived = self.live(end, &mut rng);
        let story = self.story.split_off(self.story.len().saturating_sub(STORY_LIVES));
        let told = |error: String| {
            format!("a life that was to end by {end:?}, after {}: {error}", story.join("; "))
        };
        let life = lived.map_err(told)?;
        let cut = life.cut.map(|cut| format!(" that took {:?}", cut.loss)).unwrap_or_default();
        let fault = self.fault.take().map(|fault| format!(" of {fault:?}")).unwrap_or_default();
        self.story = story;
        self.story.push(format!("{end:?}{fault}{cut}"));
        Ok(life)
    }

    /// Starts once more, compares, and stops in order; gives the checkpoints that were seen too.
    ///
    /// # Errors
    /// As `life`.
    pub fn close(mut self) -> Result<(Found, usize, BootId), String> {
        self.attach()?;
        let mut server = self.recipe.start()?;
        let found = self.ready(&mut server)?;
        server.stop(PATIENCE)?;
        self.detach()?;
        Ok((found, self.checkpoints.len(), self.boot))
    }

    /// Writes what is durable to a file.
    ///
    /// # Errors
    /// The system's.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::create(path)?;
        let medium = self.rig.disk.medium();
        file.set_len(medium.size())?;
        medium.durable().try_for_each(|(offset, data)| file.write_all_at(data, offset))
    }

    fn live(&mut self, end: End, rng: &mut Rng) -> Result<Life, String> {
        self.attach()?;
        self.rig.disk.set_pace(pick(&PACES, rng), rng.next_u64());
        let mut server = self.recipe.start()?;
        if matches!(end, End::CutAtStart | End::KillAtStart) {
            sleep(Duration::from_micros(rng.below(120_000)));
            let before = self.fence;
            let cut = (end == End::CutAtStart).then(|| self.cut(false, rng));
            // It may have come before the server said anywhere that it runs again.
            let either = cut.is_some() && before != Fence::Must && self.plan.mode != "safe";
            self.fence = if either { Fence::May } else { before };
            server.kill(PATIENCE)?;
            self.power_on(cut)?;
            return Ok(Life { end, cut, found: None, acknowledged: 0 });
        }
        let found = self.ready(&mut server)?;
        let life = format!("{}", self.number);
        let load = Load::start(&self.recipe.doors, &self.record, &life, rng.next_u64());
        let long = rng.below(16) == 0;
        sleep(Duration::from_millis(if long { 1500 } else { 20 + rng.below(250) }));
        let ended = self.end(end, &mut server, rng);
        // Killed already, unless something went wrong: the clients must end.
        let killed = server.kill(PATIENCE);
        let acknowledged = load.stop(&self.record);
        let cut = ended?;
        killed?;
        self.power_on(cut)?;
        match self.record.failure() {
            Some(failure) => Err(failure),
            None => Ok(Life { end, cut, found: Some(found), acknowledged }),
        }
    }

    /// Ends a life that works.
    fn end(
        &mut self,
        end: End,
        server: &mut Process,
        rng: &mut Rng,
    ) -> Result<Option<Cut>, String> {
        match end {
            End::Cut | End::CutAtStart | End::KillAtStart => {
                if let Some(status) = server.ended() {
                    return Err(format!("the server ended ({status}):\n{}", server.tail()));
                }
                let cut = self.cut(false, rng);
                // It goes on for a moment with a disk that has failed.
                sleep(Duration::from_millis(rng.below(20)));
                server.kill(PATIENCE)?;
                Ok(Some(cut))
            }
            End::KillThenCut => {
                server.kill(PATIENCE)?;
                sleep(Duration::from_micros(rng.below(3000)));
                Ok(Some(self.cut(false, rng)))
            }
            End::Kill => server.kill(PATIENCE).map(|()| None),
            End::StopThenCut => {
                server.stop(PATIENCE)?;
                Ok(Some(self.cut(true, rng)))
            }
            End::FaultThenCut => {
                self.fault(pick(&[Fault::Flushes, Fault::Writes], rng), server, rng)?;
                Ok(Some(self.cut(false, rng)))
            }
            End::FaultOnce => {
                let faults = [Fault::FlushOnce, Fault::FlushesForget, Fault::LogWriteOnce];
                self.fault(pick(&faults, rng), server, rng)?;
                // The same boot, but the file system may have given up too.
                self.rig.disk.medium().heal();
                self.detach().map(|()| None)
            }
            End::FullThenCut => {
                self.rig.disk.medium().set_fault(Fault::Full, rng.below(100));
                sleep(Duration::from_millis(300 + rng.below(1200)));
                Ok(Some(self.cut(false, rng)))
            }
        }
    }

    /// Lets something fail; the server must end by itself. The one flush that fails may be one
    /// that the file system asked for and whose failure it told nobody (ext4 at a commit): then
    /// the server rightly goes on, and another fails.
    fn fault(&mut self, fault: Fault, server: &mut Process, rng: &mut Rng) -> Result<(), String> {
        self.fault = Some(fault);
        let tries = if fault == Fault::FlushOnce { FLUSH_TRIES } else { 1 };
        let time = if fault == Fault::FlushOnce { FLUSH_TIME } else { PATIENCE };
        for left in (0..tries).rev() {
            self.rig.disk.medium().set_fault(fault, rng.below(60));
            // One that took long to end for the flush before never meets this one.
            self.until_fault(fault, server).or_else(|error| match left + 1 == tries {
                true => Err(error),
                false => Ok(()),
            })?;
            let status = match server.end(time) {
                Err(_) if left > 0 => continue,
                ended => ended.map_err(|error| format!("after {fault:?} {error}"))?,
            };
            return match status.contains("signal") {
                true => Err(format!("{fault:?} ended it by {status}:\n{}", server.tail())),
                false => Ok(()),
            };
        }
        Ok(())
    }

    fn until_fault(&self, fault: Fault, server: &mut Process) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let ended = server.ended().is_some();
            if self.rig.disk.medium().fault_fired() {
                return Ok(());
            }
            if ended || Instant::now() > until {
                return Err(format!("{fault:?} is never met:\n{}", server.tail()));
            }
            sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the server serves, and compares.
    fn ready(&mut self, server: &mut Process) -> Result<Found, String> {
        server.ready(PATIENCE)?;
        let times = self.times.unwrap_or((None, Instant::now()));
        let judged = judge(&self.recipe.doors, &self.record, &self.base, self.fence, times);
        let (now, found) = judged.map_err(|error| format!("{error}\n{}", server.tail()))?;
        let names = self.rig.names()?;
        self.checkpoints.extend(names.into_iter().filter(|name| name.ends_with(".checkpoint")));
        self.base = now;
        self.times = None;
        self.fence = Fence::MustNot;
        Ok(found)
    }

    /// The power goes.
    fn cut(&mut self, stopped: bool, rng: &mut Rng) -> Cut {
        let at = Instant::now();
        let cut = self.rig.disk.medium().cut(rng);
        self.times.get_or_insert((cut.flushed, at));
        if self.plan.mode != "safe" && !stopped {
            self.fence = Fence::Must;
        }
        cut
    }

    /// After a cut: everything is detached and the disk begins again with what is durable.
    fn power_on(&mut self, cut: Option<Cut>) -> Result<(), String> {
        if cut.is_some() {
            self.detach()?;
            self.rig.disk.medium().restart();
            self.boots += u64::from(self.plan.planted != Some(Planted::SameBoot));
            self.boot.set(self.boots)?;
        }
        self.rig.disk.medium().heal();
        Ok(())
    }

    fn attach(&mut self) -> Result<(), String> {
        if self.device.is_none() {
            self.device = Some(self.rig.attach()?);
        }
        Ok(())
    }

    fn detach(&mut self) -> Result<(), String> {
        match self.device.take() {
            Some(device) => self.rig.detach(&device),
            None => Ok(()),
        }
    }
}

//! The lives of a run's process: what happens in each, and how it ends.
//!
//! Every kind of fault happens only in runs that have it switched on. What a fault allows is said
//! where it happens: a store may stop when its log fails, refuse when its files rot, and nothing
//! else.

use std::time::Duration;

use ringbolt_io::sim::{CrashKind, Damage, DiskFaults};

use super::faults::Fault;
use super::run::Run;
use super::site::Stage;
use super::store::Store;

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Now,
    Closed,
    AtOperation,
    AtWrite,
    LogFails,
    FlushFails,
    Rot(Fault),
    Misdirect,
}

/// What follows a misdirected write until the log knows that it should be durable.
const MARKED_AFTER: Duration = Duration::from_secs(4);

impl<S: Store> Run<S> {
    /// One life: starts, runs, ends in some way. False when a store rightly refuses a disk that
    /// nobody can mend: the run is over.
    pub(super) fn life(&mut self) -> Result<bool, String> {
        let kind = self.draw_kind();
        let busy = self.sites.iter().any(|site| site.load.think_us <= 10_000);
        let span = self.pace.life(&mut self.rng, busy);
        self.spoil_disk();
        if self.wants(Fault::CrashInRecovery, 6) {
            let ops = self.rng.between((1, 60));
            self.start();
            self.world.crash_after_ops(self.machine, ops, kind);
            self.run_for(span)?;
            self.no_refusal()?;
            return self.finish(kind);
        }
        if self.wants(Fault::FailedRead, 8) {
            return self.fail_reads(kind);
        }
        if self.wants(Fault::FailedFlush, 10) {
            return self.fail_flushes(kind, span);
        }
        self.start();
        self.run_to(&[Stage::Serving, Stage::Idle])?;
        self.disturb(span)?;
        match self.draw_end() {
            End::Now => self.run_for(span)?,
            End::Closed => self.close()?,
            End::AtOperation => {
                let ops = self.rng.between((1, 400));
                self.world.crash_after_ops(self.machine, ops, kind);
                self.run_for(self.pace.patience())?;
            }
            End::AtWrite => {
                // Of one block or of several, which can be torn.
                let bytes_min = if self.rng.below(4) == 0 { 1 } else { 8192 };
                let others = self.rng.below(12);
                self.world.crash_at_write(self.machine, (bytes_min, others), kind);
                self.run_for(self.pace.patience())?;
            }
            End::FlushFails => {
                self.world.disk_faults(self.machine, |disk| disk.sync_error_ppm = 300_000);
                self.run_for(2 * span)?;
                return self.finish(kind);
            }
            End::LogFails => {
                let after = self.rng.below(100);
                self.world.disk_faults(self.machine, |disk| disk.fail_after = Some(after));
                self.run_for(2 * span)?;
                return self.finish(kind);
            }
            End::Rot(fault) => return self.rot(kind, fault),
            End::Misdirect => return self.misdirect(kind),
        }
        self.no_refusal()?;
        self.finish(kind)
    }

    fn finish(&mut self, kind: CrashKind) -> Result<bool, String> {
        self.coverage.count(if kind == CrashKind::Power { Fault::Power } else { Fault::Kill });
        self.end(kind);
        // What is in flight may land late; everything else about the disk is well again.
        let late_us = if self.faults.has(Fault::LateWrites) { (0, 1_500_000) } else { (0, 50_000) };
        self.world.disk_faults(self.machine, |disk| *disk = DiskFaults { late_us, ..disk.clone() });
        let pause = Duration::from_millis(self.rng.between((0, 20)));
        self.world.run_for(pause);
        Ok(true)
    }

    /// Whether a fault is on and it is its turn, once in so many times.
    fn wants(&mut self, fault: Fault, once_in: u64) -> bool {
        let now = self.faults.has(fault) && self.rng.below(once_in) == 0;
        if now {
            self.coverage.count(fault);
        }
        now
    }

    fn draw_kind(&mut self) -> CrashKind {
        match (self.faults.has(Fault::Kill), self.faults.has(Fault::Power)) {
            (true, true) if self.rng.coin() => CrashKind::Power,
            (false, true) => CrashKind::Power,
            _ => CrashKind::Process,
        }
    }

    fn draw_end(&mut self) -> End {
        if self.wants(Fault::Misdirected, 20) {
            return End::Misdirect;
        }
        for (fault, end) in [
            (Fault::CrashAtOperation, End::AtOperation),
            (Fault::CrashAtWrite, End::AtWrite),
            (Fault::FailedWrite, End::LogFails),
            (Fault::FailedFlush, End::FlushFails),
            (Fault::RottenBit, End::Rot(Fault::RottenBit)),
            (Fault::ZeroedBlock, End::Rot(Fault::ZeroedBlock)),
        ] {
            if self.wants(fault, 6) {
                return end;
            }
        }
        if self.rng.below(5) == 0 { End::Closed } else { End::Now }
    }

    /// Faults of the disk that last for a life.
    fn spoil_disk(&mut self) {
        let slow = self.wants(Fault::Slow, 4);
        if self.faults.has(Fault::LateWrites) {
            self.coverage.count(Fault::LateWrites);
        }
        let late_us = if self.faults.has(Fault::LateWrites) { (0, 1_500_000) } else { (0, 50_000) };
        let slow_ppm = if slow { 20_000 } else { 0 };
        self.world.disk_faults(self.machine, |disk| {
            *disk =
                DiskFaults { slow_ppm, slow_us: (1_000, 60_000), late_us, ..DiskFaults::default() };
        });
    }

    /// Up to three things happen while clients are served.
    fn disturb(&mut self, span: Duration) -> Result<(), String> {
        for fault in [Fault::CancelledCalls, Fault::HalfClosedStreams, Fault::SlowReaders] {
            if self.faults.has(fault) {
                self.coverage.count(fault);
            }
        }
        for _ in 0..self.rng.below(4) {
            self.run_for(span / 2)?;
            let by = self.pace.jump(&mut self.rng);
            if self.wants(Fault::ClockJump, 4) {
                self.world.jump_monotonic(self.machine, by);
                self.sites.iter().for_each(|site| site.skipped(by));
            }
            if self.wants(Fault::WallJump, 4) {
                let hours = if self.rng.coin() { 3_600_000_000_000 } else { -3_600_000_000_000 };
                self.world.jump_wall(self.machine, hours);
            }
            if self.wants(Fault::Drift, 4) {
                let ppm = i64::try_from(self.rng.below(601)).expect("small") - 300;
                self.world.set_clock_drift(self.machine, ppm);
            }
            if self.wants(Fault::Pause, 4) {
                self.world.pause(self.machine, by);
                self.sites.iter().for_each(|site| site.skipped(by));
            }
            if self.wants(Fault::ReconnectStorm, 4) {
                self.sites.iter().for_each(|site| site.storm());
            }
            if self.wants(Fault::FullDisk, 8) {
                self.fill_disk(span)?;
            }
        }
        Ok(())
    }

    /// The disk is full for a while: writes may be refused, and service goes on by itself.
    fn fill_disk(&mut self, span: Duration) -> Result<(), String> {
        let room = self.rng.below(600_000);
        let capacity = self.world.used_bytes(self.machine) + room;
        self.world.disk_faults(self.machine, |disk| disk.capacity_bytes = Some(capacity));
        self.run_for(2 * span)?;
        self.no_refusal()?;
        self.world.disk_faults(self.machine, |disk| disk.capacity_bytes = None);
        self.run_for(Duration::from_secs(3))
    }

    /// The disk cannot be read now and then: the store may refuse to open, and opens later.
    fn fail_reads(&mut self, kind: CrashKind) -> Result<bool, String> {
        self.world.disk_faults(self.machine, |disk| disk.read_error_ppm = 100_000);
        self.start();
        self.run_to(&[Stage::Serving, Stage::Idle, Stage::Refused])?;
        self.world.disk_faults(self.machine, |disk| disk.read_error_ppm = 0);
        self.finish(kind)
    }

    /// Flushes fail now and then, also those of a recovery: the store may refuse to open or stop.
    fn fail_flushes(&mut self, kind: CrashKind, span: Duration) -> Result<bool, String> {
        self.world.disk_faults(self.machine, |disk| disk.sync_error_ppm = 100_000);
        self.start();
        self.run_to(&[Stage::Serving, Stage::Idle, Stage::Refused])?;
        self.run_for(span)?;
        self.finish(kind)
    }

    /// One bit or one block of one file rots while the store is closed: it must refuse to open, or
    /// show that nothing is missing. Mended, it must open.
    fn rot(&mut self, kind: CrashKind, fault: Fault) -> Result<bool, String> {
        self.close()?;
        self.finish(kind)?;
        let site = self.sites[self.rng.index(self.sites.len())].clone();
        let directory = site.place.directory.clone();
        let names = self.world.list(self.machine, &directory);
        if names.is_empty() {
            return Ok(true);
        }
        let path = directory.join(&names[self.rng.index(names.len())]);
        let whole = self.world.look(self.machine, &path).unwrap_or_default();
        if whole.is_empty() {
            return Ok(true);
        }
        let offset = u64::try_from(self.rng.index(whole.len())).expect("a file offset");
        let bit = u8::try_from(self.rng.below(8)).expect("below eight");
        let damage = match fault {
            Fault::ZeroedBlock => Damage::ZeroBlock,
            _ => Damage::FlipBit(bit),
        };
        self.world.damage(self.machine, &path, offset, damage);
        self.start();
        let stages = [Stage::Serving, Stage::Idle, Stage::Refused];
        self.run_to(&stages)
            .map_err(|wrong| format!("{wrong}\n  after {damage:?} at {offset} of {path:?}"))?;
        for other in self.sites.iter().filter(|other| other.name != site.name) {
            if let Some(why) = &*other.refused.borrow() {
                return Err(format!("{} refuses for damage of {}: {why}", other.name, site.name));
            }
        }
        let refused = site.refused.borrow().is_some();
        self.finish(kind)?;
        if refused {
            self.world.make_file(self.machine, &path, &whole);
        }
        Ok(true)
    }

    /// Some writes land in the wrong place of their file. The store cannot know; when it is opened
    /// again, it refuses or nothing is missing.
    fn misdirect(&mut self, kind: CrashKind) -> Result<bool, String> {
        let before = self.world.fault_counts(self.machine).misdirected;
        self.world.disk_faults(self.machine, |disk| disk.misdirect_ppm = 50_000);
        let span = Duration::from_millis(self.rng.between((20, 400)));
        self.run_for(span)?;
        self.world.disk_faults(self.machine, |disk| disk.misdirect_ppm = 0);
        self.run_for(MARKED_AFTER)?;
        self.no_refusal()?;
        self.finish(kind)?;
        if self.world.fault_counts(self.machine).misdirected == before {
            return Ok(true);
        }
        self.start();
        self.run_to(&[Stage::Serving, Stage::Idle, Stage::Refused])?;
        let refused = self.sites.iter().any(|site| site.refused.borrow().is_some());
        self.coverage.refused += u64::from(refused);
        self.finish(kind)?;
        Ok(!refused)
    }
}

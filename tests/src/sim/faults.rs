//! The kinds of faults a run can switch on or off, and how often each happened.
//!
//! Swarm testing: a run draws which kinds it has, so that some runs have a fault alone and long,
//! and faults that hide each other are apart often enough.

use std::fmt;

use ringbolt_io::sim::{FaultCounts, Rng};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "`NAMES` says what each is called, `run` what it does")]
pub enum Fault {
    Kill,
    Power,
    CrashAtOperation,
    CrashInRecovery,
    LateWrites,
    Slow,
    FailedWrite,
    FailedRead,
    FullDisk,
    Misdirected,
    RottenBit,
    ZeroedBlock,
    ClockJump,
    WallJump,
    Drift,
    Pause,
    CancelledCalls,
    HalfClosedStreams,
    SlowReaders,
    ReconnectStorm,
    CrashAtWrite,
    FailedFlush,
}

use Fault::{
    CancelledCalls, ClockJump, CrashAtOperation, CrashAtWrite, CrashInRecovery, Drift, FailedFlush,
    FailedRead, FailedWrite, FullDisk, HalfClosedStreams, Kill, LateWrites, Misdirected, Pause,
    Power, ReconnectStorm, RottenBit, Slow, SlowReaders, WallJump, ZeroedBlock,
};

/// Every kind, with its name on the command line.
pub const NAMES: [(Fault, &str); 22] = [
    (Kill, "kill"),
    (Power, "power"),
    (CrashAtOperation, "crash-at-operation"),
    (CrashInRecovery, "crash-in-recovery"),
    (LateWrites, "late-writes"),
    (Slow, "slow"),
    (FailedWrite, "failed-write"),
    (FailedRead, "failed-read"),
    (FullDisk, "full-disk"),
    (Misdirected, "misdirected"),
    (RottenBit, "rotten-bit"),
    (ZeroedBlock, "zeroed-block"),
    (ClockJump, "clock-jump"),
    (WallJump, "wall-jump"),
    (Drift, "drift"),
    (Pause, "pause"),
    (CancelledCalls, "cancelled-calls"),
    (HalfClosedStreams, "half-closed-streams"),
    (SlowReaders, "slow-readers"),
    (ReconnectStorm, "reconnect-storm"),
    (CrashAtWrite, "crash-at-write"),
    (FailedFlush, "failed-flush"),
];

/// Some kinds of faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultSet(u32);

impl FaultSet {
    /// None at all.
    pub const NONE: FaultSet = FaultSet(0);

    /// Half of them, drawn from the seed.
    #[must_use]
    pub fn draw(seed: u64) -> FaultSet {
        let mut rng = Rng::new(seed ^ 0x7377_6172_6d00);
        let mut set = FaultSet::NONE;
        for (fault, _) in NAMES.iter().filter(|_| rng.coin()) {
            set.insert(*fault);
        }
        if !set.has(Kill) && !set.has(Power) {
            set.insert(if rng.coin() { Kill } else { Power });
        }
        set
    }

    /// Whether a kind is in it.
    #[must_use]
    pub fn has(self, fault: Fault) -> bool {
        self.0 & FaultSet::bit(fault) != 0
    }

    /// Adds a kind.
    pub fn insert(&mut self, fault: Fault) {
        self.0 |= FaultSet::bit(fault);
    }

    /// Without a kind.
    #[must_use]
    pub fn without(self, fault: Fault) -> FaultSet {
        FaultSet(self.0 & !FaultSet::bit(fault))
    }

    /// The kinds in it.
    pub fn iter(self) -> impl Iterator<Item = Fault> {
        NAMES.iter().map(|(fault, _)| *fault).filter(move |fault| self.has(*fault))
    }

    /// From names with commas; `none` and the empty text are no fault.
    ///
    /// # Errors
    /// A name that is none.
    pub fn parse(text: &str) -> Result<FaultSet, String> {
        let mut set = FaultSet::NONE;
        for name in text.split(',').filter(|name| !name.is_empty() && *name != "none") {
            let known = NAMES.iter().find(|(_, known)| *known == name);
            set.insert(known.ok_or_else(|| format!("{name} is no kind of fault"))?.0);
        }
        Ok(set)
    }

    fn bit(fault: Fault) -> u32 {
        1 << (fault as u32)
    }
}

impl fmt::Display for FaultSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = NAMES.iter().filter(|(fault, _)| self.has(*fault));
        let names: Vec<&str> = names.map(|(_, name)| *name).collect();
        f.write_str(if names.is_empty() { "none".into() } else { names.join(",") }.as_str())
    }
}

/// How often each kind happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// By the order of [`NAMES`].
    pub faults: [u64; NAMES.len()],
    /// What the disk counted by itself.
    pub disk: FaultCounts,
    /// Runs that ended because a misdirected write was found.
    pub refused: u64,
}

impl Coverage {
    /// One more.
    pub fn count(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Coverage) {
        for (sum, count) in self.faults.iter_mut().zip(other.faults) {
            *sum += count;
        }
        let (sum, disk) = (&mut self.disk, other.disk);
        sum.failed_reads += disk.failed_reads;
        sum.failed_writes += disk.failed_writes;
        sum.failed_syncs += disk.failed_syncs;
        sum.full += disk.full;
        sum.misdirected += disk.misdirected;
        sum.slow += disk.slow;
        sum.late += disk.late;
        sum.lost += disk.lost;
        sum.torn += disk.torn;
        self.refused += other.refused;
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((_, name), count) in NAMES.iter().zip(self.faults) {
            writeln!(f, "  {name:<20} {count:>9}")?;
        }
        let disk = &self.disk;
        for (name, count) in [
            ("blocks lost", disk.lost),
            ("sectors torn", disk.torn),
            ("writes misdirected", disk.misdirected),
            ("writes landed late", disk.late),
            ("writes failed", disk.failed_writes),
            ("flushes failed", disk.failed_syncs),
            ("reads failed", disk.failed_reads),
            ("writes without room", disk.full),
            ("operations slow", disk.slow),
            ("stores refused", self.refused),
        ] {
            writeln!(f, "  {name:<20} {count:>9}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is printed is what is read; every seed can end a process.
    #[test]
    fn names_go_both_ways() {
        for seed in 0..200 {
            let set = FaultSet::draw(seed);
            assert_eq!(FaultSet::parse(&set.to_string()), Ok(set));
            assert!(set.has(Kill) || set.has(Power));
        }
        for (at, (fault, _)) in NAMES.iter().enumerate() {
            assert_eq!(*fault as usize, at);
        }
        assert!(FaultSet::parse("kil").is_err());
    }
}

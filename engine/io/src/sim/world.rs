//! The world as a test drives it.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use super::core::{Core, CrashAtWrite, ShardRef, Shared, WriteHook};
use super::disk::{Damage, DiskFaults, FaultCounts};
use super::driver::SimDriver;
use super::limits::TURNS_WITHOUT_TIME_MAX;
use super::net::address_of;
use super::{CrashKind, SimConfig};
use crate::exec::{Executor, Io};
use crate::net::Address;
use crate::time::MonoTime;

/// Names a machine of its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MachineId(pub usize);

/// A seeded world. It lives on the thread that made it; several worlds may run on several threads.
pub struct World {
    core: Shared,
    machines: Vec<Vec<Shard>>,
    turns: u64,
}

struct Shard {
    executor: Executor,
    at: ShardRef,
    busy_until: u64,
    /// The last turn ended with tasks still ready.
    more: bool,
}

impl World {
    /// An empty world at time zero.
    #[must_use]
    pub fn new(seed: u64, config: SimConfig) -> World {
        let sector = config.sector_bytes;
        assert!(sector == 512 || sector == 4096, "a sector has 512 or 4096 bytes, not {sector}");
        let core = Rc::new(RefCell::new(Core::new(seed, config)));
        World { core, machines: Vec::new(), turns: 0 }
    }

    /// A new machine: an empty disk, right clocks, nothing running.
    pub fn add_machine(&mut self) -> MachineId {
        self.machines.push(Vec::new());
        MachineId(self.core.borrow_mut().add_machine())
    }

    /// Starts a process of one shard on a machine; `main` spawns its first tasks. The same after a
    /// crash.
    pub fn start(&mut self, machine: MachineId, main: impl FnOnce(&Io)) {
        let mut main = Some(main);
        self.start_shards(machine, 1, |_, io| {
            if let Some(main) = main.take() {
                main(io);
            }
        });
    }

    /// Starts a process of several shards; `main` is called for each with its number.
    pub fn start_shards(
        &mut self,
        machine: MachineId,
        count: usize,
        mut main: impl FnMut(usize, &Io),
    ) {
        let life = self.core.borrow_mut().begin_life(machine.0, count);
        for shard in 0..count {
            let at = ShardRef { machine: machine.0, shard, life };
            let driver = SimDriver { core: self.core.clone(), shard: at };
            let executor = Executor::new(Rc::new(driver));
            main(shard, &executor.io());
            self.machines[machine.0].push(Shard { executor, at, busy_until: 0, more: true });
        }
    }

    /// As `start`; says that the machine had crashed before.
    pub fn restart(&mut self, machine: MachineId, main: impl FnOnce(&Io)) {
        assert!(!self.is_running(machine), "it still runs");
        self.start(machine, main);
    }

    /// Whether a process runs on the machine.
    #[must_use]
    pub fn is_running(&self, machine: MachineId) -> bool {
        self.core.borrow().machines[machine.0].alive
    }

    /// Ends the machine's process without a word, now.
    pub fn crash(&mut self, machine: MachineId, kind: CrashKind) {
        {
            let mut core = self.core.borrow_mut();
            let life = core.machines[machine.0].life;
            let facts = [core.now, machine.0 as u64, life, kind as u64];
            core.trace.fold_all(&facts);
            let now = core.now;
            let state = &mut core.machines[machine.0];
            state.ended_at = state.clock.mono(now);
            core.drop_sockets(machine.0, kind == CrashKind::Process);
            match kind {
                CrashKind::Process => core.kill_process(machine.0),
                CrashKind::Power => core.cut_power(machine.0),
            }
        }
        // Tasks are dropped outside the borrow: their files close through the (dead) driver.
        drop(std::mem::take(&mut self.machines[machine.0]));
    }

    /// What the machine's monotonic clock showed when its last process was crashed.
    #[must_use]
    pub fn ended_at(&self, machine: MachineId) -> MonoTime {
        self.core.borrow().machines[machine.0].ended_at
    }

    /// Crashes the machine at its `count`-th operation from now (1 is the next one), which is then
    /// in flight. `is_running` tells when it has happened; a crash before clears it.
    pub fn crash_after_ops(&mut self, machine: MachineId, count: u64, kind: CrashKind) {
        assert!(count > 0, "the next operation is number 1");
        let mut core = self.core.borrow_mut();
        let machine = &mut core.machines[machine.0];
        machine.crash_at = Some((machine.ops + count, kind));
    }

    /// Crashes the machine with a write of at least `bytes_min` in flight, after `others` of that
    /// size. As `crash_after_ops` otherwise.
    pub fn crash_at_write(
        &mut self,
        machine: MachineId,
        (bytes_min, others): (usize, u64),
        kind: CrashKind,
    ) {
        let due = CrashAtWrite { bytes_min, others, kind };
        self.core.borrow_mut().machines[machine.0].crash_at_write = Some(due);
    }

    /// Shows `hook` each write of the machine from now on, when it is asked for: whether it will
    /// ever land is not known then. The hook must not touch the world.
    pub fn on_write(&mut self, machine: MachineId, hook: WriteHook) {
        self.core.borrow_mut().machines[machine.0].on_write = Some(hook);
    }

    /// Lets the world run for a span of virtual time.
    pub fn run_for(&mut self, span: Duration) {
        self.run_until(span, |_| false);
    }

    /// Runs until `done`, asked after each step, says so (then true) or `span` has passed.
    pub fn run_until(&mut self, span: Duration, mut done: impl FnMut(&World) -> bool) -> bool {
        let end = self.core.borrow().now.saturating_add(nanos(span));
        loop {
            if done(self) {
                return true;
            }
            if !self.step(end) {
                return false;
            }
        }
    }

    /// One event or one turn, whichever is due first; false when nothing is due before `end`, and
    /// it is `end` then.
    fn step(&mut self, end: u64) -> bool {
        let now = self.core.borrow().now;
        let event = self.core.borrow().next_event();
        let turn = self.next_turn();
        let turn_first = match (turn, event) {
            (Some((due, _, _)), Some(event)) => due <= event,
            (turn, _) => turn.is_some(),
        };
        let due = if turn_first { turn.map(|(due, _, _)| due) } else { event };
        let Some(due) = due.filter(|due| *due <= end) else {
            self.core.borrow_mut().now = now.max(end);
            return false;
        };
        self.turns = if due > now { 0 } else { self.turns + 1 };
        assert!(self.turns < TURNS_WITHOUT_TIME_MAX, "the world stands still at {now} ns");
        match turn {
            Some((_, machine, shard)) if turn_first => self.turn(machine, shard, due),
            _ => self.core.borrow_mut().happen(),
        }
        true
    }

    /// The shard whose turn is due first.
    fn next_turn(&self) -> Option<(u64, usize, usize)> {
        let core = self.core.borrow();
        let mut first: Option<(u64, usize, usize)> = None;
        for (machine, shards) in self.machines.iter().enumerate() {
            let state = &core.machines[machine];
            for (index, shard) in shards.iter().enumerate() {
                let due = if shard.more || state.ports[index].has_news() {
                    Some(core.now)
                } else {
                    shard.executor.next_timer().map(|when| state.clock.world(when, core.now))
                };
                let due = due.map(|due| (due.max(shard.busy_until), machine, index));
                first = match (first, due) {
                    (Some(first), Some(due)) => Some(first.min(due)),
                    (first, due) => first.or(due),
                };
            }
        }
        first
    }

    fn turn(&mut self, machine: usize, index: usize, due: u64) {
        let shard = &mut self.machines[machine][index];
        {
            let mut core = self.core.borrow_mut();
            core.now = due;
            let span = core.config.turn_ns;
            shard.busy_until = due + core.rng.between(span);
            core.trace.fold_all(&[due, machine as u64, index as u64]);
        }
        shard.more = shard.executor.turn();
        let crash = self.core.borrow().machines[machine].crash_due;
        if let Some(kind) = crash {
            self.crash(MachineId(machine), kind);
        }
    }

    /// Stops the machine's process for a while (SIGSTOP): its clocks run on, its I/O completes.
    pub fn pause(&mut self, machine: MachineId, span: Duration) {
        let until = self.core.borrow().now + nanos(span);
        for shard in &mut self.machines[machine.0] {
            shard.busy_until = shard.busy_until.max(until);
        }
    }

    /// From now on the machine's clocks run fast by so many parts per million (slow if negative).
    pub fn set_clock_drift(&mut self, machine: MachineId, ppm: i64) {
        let mut core = self.core.borrow_mut();
        let now = core.now;
        core.machines[machine.0].clock.set_drift(now, ppm);
    }

    /// Both clocks of the machine jump forward.
    pub fn jump_monotonic(&mut self, machine: MachineId, by: Duration) {
        let mut core = self.core.borrow_mut();
        let now = core.now;
        core.machines[machine.0].clock.jump_mono(now, nanos(by));
    }

    /// The wall clock of the machine moves by so many nanoseconds, either way.
    pub fn jump_wall(&mut self, machine: MachineId, by_ns: i64) {
        self.core.borrow_mut().machines[machine.0].clock.jump_wall(by_ns);
    }

    /// Both clocks of the machine stand still for a span of world time; its shards run on.
    pub fn pause_clock(&mut self, machine: MachineId, span: Duration) {
        let mut core = self.core.borrow_mut();
        let now = core.now;
        core.machines[machine.0].clock.freeze(now, nanos(span));
    }

    /// Changes the faults of the machine's disk.
    pub fn disk_faults(&mut self, machine: MachineId, change: impl FnOnce(&mut DiskFaults)) {
        change(&mut self.core.borrow_mut().machines[machine.0].files.faults);
    }

    /// How often each fault of the machine's disk happened so far.
    #[must_use]
    pub fn fault_counts(&self, machine: MachineId) -> FaultCounts {
        self.core.borrow().machines[machine.0].files.counts
    }

    /// Makes a directory and its parents, durable at once. Everything else on the disk becomes
    /// durable too: meant for setting up.
    pub fn make_dir(&mut self, machine: MachineId, path: &Path) {
        self.core.borrow_mut().machines[machine.0].files.make_dir(path);
    }

    /// Makes or replaces a file, durable at once; as `make_dir`.
    pub fn make_file(&mut self, machine: MachineId, path: &Path, bytes: &[u8]) {
        self.core.borrow_mut().machines[machine.0].files.make_file(path, bytes);
    }

    /// What a reader of the file would see now.
    #[must_use]
    pub fn look(&self, machine: MachineId, path: &Path) -> Option<Vec<u8>> {
        self.core.borrow().machines[machine.0].files.look(path)
    }

    /// The names in a directory, sorted; none when there is no such directory.
    #[must_use]
    pub fn list(&self, machine: MachineId, path: &Path) -> Vec<String> {
        self.core.borrow().machines[machine.0].files.list(path)
    }

    /// Bytes that are allocated on the machine's disk.
    #[must_use]
    pub fn used_bytes(&self, machine: MachineId) -> u64 {
        self.core.borrow().machines[machine.0].files.used_bytes()
    }

    /// Rots the medium under a file; false when the file does not reach to `offset`.
    pub fn damage(&mut self, machine: MachineId, path: &Path, offset: u64, how: Damage) -> bool {
        self.core.borrow_mut().machines[machine.0].files.damage(path, offset, how)
    }

    /// The address of a TCP port of a machine.
    #[must_use]
    pub fn address(&self, machine: MachineId, port: u16) -> Address {
        address_of(machine.0, port)
    }

    /// Cuts the link in one direction: what is sent waits for the heal.
    pub fn cut_link(&mut self, from: MachineId, to: MachineId) {
        self.core.borrow_mut().net.cut.insert((from.0, to.0));
    }

    /// Heals a link that was cut.
    pub fn heal_link(&mut self, from: MachineId, to: MachineId) {
        self.core.borrow_mut().heal(from.0, to.0);
    }

    /// Breaks every connection between two machines at once.
    pub fn break_connections(&mut self, one: MachineId, two: MachineId) {
        self.core.borrow_mut().break_connections(one.0, two.0);
    }

    /// Chance, in parts per million, that a send breaks its connection.
    pub fn set_reset_ppm(&mut self, ppm: u32) {
        self.core.borrow_mut().net.reset_ppm = ppm;
    }

    /// Virtual time since the world began.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.core.borrow().now)
    }

    /// A number that stands for everything that happened so far.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.core.borrow().trace.hash()
    }

    /// Disk and network operations of all machines so far.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.core.borrow().ops
    }

    /// Disk and network operations of one machine so far.
    #[must_use]
    pub fn ops_of(&self, machine: MachineId) -> u64 {
        self.core.borrow().machines[machine.0].ops
    }

    /// A random number of the world, for what a test does to it.
    pub fn random(&mut self) -> u64 {
        self.core.borrow_mut().rng.next_u64()
    }

    /// Names and counts of the tasks alive on one shard: for tests that look for leaks.
    #[must_use]
    pub fn tasks_alive(&self, machine: MachineId) -> Vec<(&'static str, usize)> {
        let shards = self.machines[machine.0].iter();
        shards.flat_map(|shard| shard.executor.tasks_alive()).collect()
    }
}

impl Drop for World {
    /// Tasks go first, while the core they reach through their drivers is still whole.
    fn drop(&mut self) {
        for machine in 0..self.machines.len() {
            let life_over =
                |at: &ShardRef| self.core.borrow_mut().machines[at.machine].alive = false;
            self.machines[machine].iter().for_each(|shard| life_over(&shard.at));
            drop(std::mem::take(&mut self.machines[machine]));
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX / 2)
}

//! What all drivers of one world share: time, events, machines, and the way of a disk operation.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::clock::Clock;
use super::disk::{Fate, FileSystem, Loss};
use super::net::{NetEvent, Network};
use super::rng::Rng;
use super::trace::Trace;
use super::{CrashKind, SimConfig};
use crate::disk::Durability;
use crate::driver::{Call, Done, HandleId, Op, Token};
use crate::time::MonoTime;

pub(super) type Shared = Rc<RefCell<Core>>;

/// One shard of one life of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShardRef {
    pub(super) machine: usize,
    pub(super) shard: usize,
    pub(super) life: u64,
}

/// Where the answers for a shard wait until its next turn.
pub(super) struct Port {
    done: Vec<(Token, Done)>,
    await_wake: Option<Token>,
    pub(super) woken: Arc<AtomicBool>,
    pub(super) rng: Rng,
}

/// A disk operation between submission and completion.
struct Flight {
    from: ShardRef,
    token: Token,
    op: Op,
    fate: Fate,
    /// What a sync covers: the changes completed when it was submitted.
    covers: u64,
    fresh: HandleId,
}

/// Sees the path, the offset and the bytes of a write.
pub type WriteHook = Rc<dyn Fn(&Path, u64, &[u8])>;

/// A crash with a write of at least so many bytes in flight, after so many others of that size.
#[derive(Clone, Copy)]
pub(super) struct CrashAtWrite {
    pub(super) bytes_min: usize,
    pub(super) others: u64,
    pub(super) kind: CrashKind,
}

pub(super) struct Machine {
    pub(super) clock: Clock,
    pub(super) files: FileSystem,
    pub(super) alive: bool,
    pub(super) life: u64,
    pub(super) ended_at: MonoTime,
    pub(super) ops: u64,
    pub(super) crash_at: Option<(u64, CrashKind)>,
    pub(super) crash_at_write: Option<CrashAtWrite>,
    /// Shown each write when it is asked for.
    pub(super) on_write: Option<WriteHook>,
    pub(super) crash_due: Option<CrashKind>,
    pub(super) ports: Vec<Port>,
    flights: BTreeMap<u64, Flight>,
}

pub(super) enum Event {
    Disk { machine: usize, flight: u64 },
    Net(NetEvent),
}

pub(super) struct Core {
    pub(super) now: u64,
    pub(super) rng: Rng,
    pub(super) trace: Trace,
    pub(super) config: SimConfig,
    pub(super) machines: Vec<Machine>,
    pub(super) net: Network,
    pub(super) ops: u64,
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    next_handle: u64,
}

impl Core {
    pub(super) fn new(seed: u64, config: SimConfig) -> Core {
        Core {
            now: 0,
            rng: Rng::new(seed),
            trace: Trace::default(),
            config,
            machines: Vec::new(),
            net: Network::default(),
            ops: 0,
            events: BTreeMap::new(),
            sequence: 0,
            next_handle: 0,
        }
    }

    pub(super) fn add_machine(&mut self) -> usize {
        let machine = Machine {
            clock: Clock::new(self.now),
            files: FileSystem::new(&mut self.rng),
            alive: false,
            life: 0,
            ended_at: MonoTime(0),
            ops: 0,
            crash_at: None,
            crash_at_write: None,
            on_write: None,
            crash_due: None,
            ports: Vec::new(),
            flights: BTreeMap::new(),
        };
        self.machines.push(machine);
        self.machines.len() - 1
    }

    pub(super) fn begin_life(&mut self, machine: usize, shards: usize) -> u64 {
        let rngs: Vec<Rng> = (0..shards).map(|_| self.rng.fork()).collect();
        let machine = &mut self.machines[machine];
        assert!(!machine.alive, "a machine runs one process at a time");
        machine.alive = true;
        machine.life += 1;
        machine.crash_due = None;
        machine.ports = rngs.into_iter().map(Port::new).collect();
        machine.life
    }

    pub(super) fn fresh_handle(&mut self) -> HandleId {
        self.next_handle += 1;
        HandleId(self.next_handle)
    }

    pub(super) fn is_current(&self, shard: ShardRef) -> bool {
        let machine = &self.machines[shard.machine];
        machine.alive && machine.life == shard.life
    }

    pub(super) fn port(&mut self, shard: ShardRef) -> Option<&mut Port> {
        if !self.is_current(shard) {
            return None;
        }
        self.machines[shard.machine].ports.get_mut(shard.shard)
    }

    pub(super) fn schedule(&mut self, wait_ns: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((self.now + wait_ns, self.sequence), event);
    }

    pub(super) fn next_event(&self) -> Option<u64> {
        self.events.keys().next().map(|(time, _)| *time)
    }

    /// Lets the earliest event happen.
    pub(super) fn happen(&mut self) {
        let Some(((time, sequence), event)) = self.events.pop_first() else { return };
        assert!(time >= self.now, "time never goes back");
        self.now = time;
        self.trace.fold_all(&[time, sequence]);
        match event {
            Event::Disk { machine, flight } => self.land(machine, flight),
            Event::Net(event) => self.net_event(event),
        }
    }

    /// Gives an answer to a shard, if the process that asked still lives.
    pub(super) fn answer(&mut self, shard: ShardRef, token: Token, done: Done) {
        let facts = [self.now, shard.machine as u64, token.0, outcome_of(&done)];
        if let Some(port) = self.port(shard) {
            port.done.push((token, done));
            self.trace.fold_all(&facts);
        }
    }

    pub(super) fn submit(&mut self, shard: ShardRef, token: Token, op: Op) {
        if matches!(op, Op::AwaitWake) {
            if let Some(port) = self.port(shard) {
                port.await_wake = Some(token);
            }
            return;
        }
        if !self.is_current(shard) || !self.count(shard) {
            return;
        }
        self.trace.fold_all(&[self.now, shard.machine as u64, shard.shard as u64, token.0]);
        if let Op::Write { file, buffer, offset, .. } = &op {
            self.see_write(shard.machine, *file, (*offset, buffer));
        }
        match op {
            Op::Accept { listener } => self.accept(shard, token, listener),
            Op::Connect { address } => self.connect(shard, token, address),
            Op::Receive { stream, into } => self.receive(shard, token, stream, into),
            Op::Send { stream, buffers } => self.send(shard, token, stream, buffers),
            op => self.take_off(shard, token, op),
        }
    }

    /// Counts an operation; false when the machine died at an earlier one of this turn.
    fn count(&mut self, shard: ShardRef) -> bool {
        let machine = &mut self.machines[shard.machine];
        if machine.crash_due.is_some() {
            return false;
        }
        machine.ops += 1;
        self.ops += 1;
        if let Some((_, kind)) = machine.crash_at.filter(|(at, _)| machine.ops >= *at) {
            machine.crash_at = None;
            machine.crash_due = Some(kind);
        }
        true
    }

    /// Shows a write to who watches, and ends the process with it in flight when that is due.
    fn see_write(&mut self, machine: usize, file: HandleId, (offset, bytes): (u64, &[u8])) {
        let machine = &mut self.machines[machine];
        if let (Some(hook), Some(path)) = (&machine.on_write, machine.files.path_of(file)) {
            hook(path, offset, bytes);
        }
        let Some(due) = machine.crash_at_write.filter(|due| bytes.len() >= due.bytes_min) else {
            return;
        };
        machine.crash_at_write = match due.others.checked_sub(1) {
            Some(others) => Some(CrashAtWrite { others, ..due }),
            None => {
                machine.crash_due = Some(due.kind);
                None
            }
        };
    }

    /// Submission of a disk operation: its time and its fate are drawn here.
    fn take_off(&mut self, from: ShardRef, token: Token, op: Op) {
        let config = self.config.clone();
        let files = &mut self.machines[from.machine].files;
        let usual = match &op {
            Op::Read { .. } => config.read_ns,
            Op::Write { durability: Durability::Disk, .. } => config.durable_write_ns,
            Op::Write { .. } => config.write_ns,
            Op::Sync { .. } => config.sync_ns,
            _ => config.call_ns,
        };
        if let Some(handle) = handle_of(&op) {
            files.begin(handle);
        }
        match &op {
            Op::Write { file, buffer, offset, .. } => {
                files.assert_aligned(*file, *offset, buffer.len(), buffer.as_ptr());
                self.trace.fold_all(&[*offset, buffer.len() as u64]);
                if config.trace_contents {
                    self.trace.fold_bytes(buffer);
                }
            }
            Op::Read { file, buffer, offset } => {
                files.assert_aligned(*file, *offset, buffer.len(), buffer.as_ptr());
                self.trace.fold_all(&[*offset, buffer.len() as u64]);
            }
            _ => {}
        }
        let faults = &mut files.faults;
        let fate = fate_of(&op, faults, &mut self.rng);
        let counts = &mut files.counts;
        match (&op, fate) {
            (_, Fate::Right) => {}
            (_, Fate::Misdirect) => counts.misdirected += 1,
            (Op::Read { .. }, Fate::Fail) => counts.failed_reads += 1,
            (Op::Write { .. }, Fate::Fail) => counts.failed_writes += 1,
            (_, Fate::Fail) => counts.failed_syncs += 1,
        }
        let faults = &files.faults;
        let wait = if self.rng.chance(faults.slow_ppm) {
            files.counts.slow += 1;
            self.rng.between((faults.slow_us.0 * 1000, faults.slow_us.1 * 1000))
        } else {
            self.rng.between(usual)
        };
        let covers = files.sequence();
        let fresh = self.fresh_handle();
        self.put_in_flight(wait, Flight { from, token, op, fate, covers, fresh });
    }

    fn put_in_flight(&mut self, wait: u64, flight: Flight) {
        let machine = flight.from.machine;
        let id = self.sequence + 1;
        self.machines[machine].flights.insert(id, flight);
        self.schedule(wait, Event::Disk { machine, flight: id });
    }

    /// Completion of a disk operation: it takes effect now, and is answered.
    fn land(&mut self, machine: usize, flight: u64) {
        let Some(flight) = self.machines[machine].flights.remove(&flight) else { return };
        let handle = handle_of(&flight.op);
        let files = &mut self.machines[machine].files;
        let (from, token) = (flight.from, flight.token);
        let done = flight.carry_out(files, &mut self.rng);
        if let Some(handle) = handle {
            files.end(handle);
        }
        self.answer(from, token, done);
    }

    /// The process dies. Its operations in flight may still land for a while; until they have, the
    /// files they go to are not free.
    pub(super) fn kill_process(&mut self, index: usize) {
        let machine = &mut self.machines[index];
        machine.alive = false;
        machine.ports.clear();
        (machine.crash_at, machine.crash_at_write) = (None, None);
        machine.crash_due = None;
        let flights = std::mem::take(&mut machine.flights);
        machine.files.close_all();
        for (_, flight) in flights {
            let files = &self.machines[index].files;
            let late = (files.faults.late_us.0 * 1000, files.faults.late_us.1 * 1000);
            if flight.changes_disk() && self.rng.coin() {
                let wait = self.rng.between(late);
                self.machines[index].files.counts.late += 1;
                self.put_in_flight(wait, flight);
            } else if let Some(handle) = handle_of(&flight.op) {
                self.machines[index].files.end(handle);
            }
        }
    }

    /// The power goes: what was in flight happened or not, then the disk loses what is not stable.
    pub(super) fn cut_power(&mut self, index: usize) {
        let sector_bytes = self.config.sector_bytes;
        let machine = &mut self.machines[index];
        machine.alive = false;
        machine.ports.clear();
        (machine.crash_at, machine.crash_at_write) = (None, None);
        machine.crash_due = None;
        let flights = std::mem::take(&mut machine.flights);
        for (_, mut flight) in flights {
            if flight.changes_disk() && self.rng.coin() {
                if let Op::Write { durability, .. } = &mut flight.op {
                    *durability = Durability::System;
                }
                flight.carry_out(&mut machine.files, &mut self.rng);
            }
        }
        let loss = match self.rng.below(4) {
            0 => Loss::Everything,
            1 => Loss::Nothing,
            _ => Loss::Sectors,
        };
        machine.files.lose_power(loss, sector_bytes, &mut self.rng);
        machine.clock.reboot(self.now);
    }
}

impl Port {
    fn new(rng: Rng) -> Port {
        Port { done: Vec::new(), await_wake: None, woken: Arc::new(AtomicBool::new(false)), rng }
    }

    /// Whether a turn of the shard would find something.
    pub(super) fn has_news(&self) -> bool {
        !self.done.is_empty() || self.woken.load(Ordering::Relaxed)
    }

    pub(super) fn collect(&mut self, done: &mut Vec<(Token, Done)>) {
        done.append(&mut self.done);
        if self.await_wake.is_some() && self.woken.swap(false, Ordering::Relaxed) {
            done.extend(self.await_wake.take().map(|token| (token, Done::Woken)));
        }
    }
}

impl Flight {
    fn changes_disk(&self) -> bool {
        match &self.op {
            Op::Write { .. } | Op::Sync { .. } => true,
            Op::Call(call) => !matches!(
                call,
                Call::Open { .. }
                    | Call::ReadDir(_)
                    | Call::Size(_)
                    | Call::FreeBytes(_)
                    | Call::FileSystem(_)
                    | Call::Lock(_)
            ),
            _ => false,
        }
    }

    fn carry_out(self, files: &mut FileSystem, rng: &mut Rng) -> Done {
        let failed = self.fate == Fate::Fail;
        match self.op {
            Op::Write { file, buffer, offset, durability } => {
                let place = (offset, &buffer[..]);
                let result = files.write(file, place, durability, self.fate, rng);
                Done::Written(result, buffer)
            }
            Op::Read { buffer, .. } if failed => {
                Done::Read(Err(io::Error::other("simulated read error")), buffer)
            }
            Op::Read { file, mut buffer, offset } => {
                let count = files.read(file, offset, &mut buffer);
                Done::Read(Ok(count), buffer)
            }
            Op::Sync { file } => Done::Synced(files.sync(file, self.covers, self.fate, rng)),
            Op::Call(Call::SyncDir(_)) if failed => {
                Done::Called(Err(io::Error::other("simulated sync error")))
            }
            Op::Call(call) => Done::Called(files.call(&call, self.covers, self.fresh)),
            other => unreachable!("{other:?} does not go to the disk"),
        }
    }
}

/// The open file an operation works on.
fn handle_of(op: &Op) -> Option<HandleId> {
    match op {
        Op::Write { file, .. } | Op::Read { file, .. } | Op::Sync { file } => Some(*file),
        Op::Call(Call::Lock(file) | Call::Truncate { file, .. } | Call::Allocate { file, .. }) => {
            Some(*file)
        }
        _ => None,
    }
}

fn fate_of(op: &Op, faults: &mut super::DiskFaults, rng: &mut Rng) -> Fate {
    let (ppm, misdirect) = match op {
        Op::Write { .. } => (faults.write_error_ppm, faults.misdirect_ppm),
        Op::Read { .. } => (faults.read_error_ppm, 0),
        Op::Sync { .. } | Op::Call(Call::SyncDir(_)) => (faults.sync_error_ppm, 0),
        _ => return Fate::Right,
    };
    if !matches!(op, Op::Read { .. }) {
        match faults.fail_after {
            Some(0) => {
                faults.fail_after = None;
                return Fate::Fail;
            }
            Some(left) => faults.fail_after = Some(left - 1),
            None => {}
        }
    }
    if rng.chance(ppm) {
        Fate::Fail
    } else if rng.chance(misdirect) {
        Fate::Misdirect
    } else {
        Fate::Right
    }
}

/// A number that tells answers apart in the trace.
fn outcome_of(done: &Done) -> u64 {
    let of = |failed: bool, count: usize| (count as u64) << 1 | u64::from(failed);
    match done {
        Done::Written(result, _) => of(result.is_err(), 1),
        Done::Read(result, _) => of(result.is_err(), *result.as_ref().unwrap_or(&0)),
        Done::Synced(result) => of(result.is_err(), 2),
        Done::Called(result) => of(result.is_err(), 3),
        Done::Accepted(result) => of(result.is_err(), 4),
        Done::Connected(result) => of(result.is_err(), 5),
        Done::Received(result, _) => of(result.is_err(), *result.as_ref().unwrap_or(&0)),
        Done::Sent(result) => of(result.is_err(), 6),
        Done::Woken => 7,
    }
}

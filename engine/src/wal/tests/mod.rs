//! The log against a model, over a simulated disk and over a real one.

mod crash;
mod damage;
mod history;
mod life;
mod real;
mod space;

use std::cell::RefCell;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use ringbolt_io::Io;
use ringbolt_io::sim::{CrashKind, MachineId, SimConfig, World};

use crate::types::{ClusterId, MemberId, RaftIndex, Term};
use crate::wal::{
    Batch, Entry, HardState, Identity, Mode, OpenError, Recovered, WalConfig, Writer,
};

pub(super) const IDENTITY: Identity =
    Identity { cluster_id: ClusterId(0xc1), member_id: MemberId(0xe1) };

/// Work that waits for the process of a rig.
type Inbox = Rc<RefCell<Vec<Pin<Box<dyn Future<Output = ()>>>>>>;

/// One machine of a simulated world, with a directory for a log.
pub(super) struct Rig {
    pub world: World,
    pub machine: MachineId,
    inbox: Inbox,
}

impl Rig {
    pub fn new(seed: u64) -> Rig {
        let config = SimConfig { trace_contents: false, ..SimConfig::default() };
        let mut world = World::new(seed, config);
        let machine = world.add_machine();
        world.make_dir(machine, Path::new("/data"));
        Rig { world, machine, inbox: Inbox::default() }
    }

    /// Runs a process until `main` ends or the process crashes (`None`). The process lives on.
    pub fn run<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        main: impl FnOnce(Io) -> F,
    ) -> Option<T> {
        self.inbox.borrow_mut().clear();
        let (mut io, inbox) = (None, self.inbox.clone());
        self.world.start(self.machine, |started| {
            io = Some(started.clone());
            started.spawn("inbox", take_in(started.clone(), inbox));
        });
        self.go_on(&io.expect("started"), main)
    }

    /// Runs more in a living process.
    pub fn go_on<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        io: &Io,
        main: impl FnOnce(Io) -> F,
    ) -> Option<T> {
        let slot = Rc::new(RefCell::new(None));
        let (filled, future) = (slot.clone(), main(io.clone()));
        self.inbox.borrow_mut().push(Box::pin(async move {
            let value = future.await;
            *filled.borrow_mut() = Some(value);
        }));
        let machine = self.machine;
        let ended = self.world.run_until(Duration::from_secs(300), |world| {
            slot.borrow().is_some() || !world.is_running(machine)
        });
        assert!(ended, "a process that never ends");
        slot.borrow_mut().take()
    }

    /// As `run`, then kill -9.
    pub fn run_and_kill<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        main: impl FnOnce(Io) -> F,
    ) -> Option<T> {
        let value = self.run(main);
        self.world.crash(self.machine, CrashKind::Process);
        value
    }

    pub fn look(&self, name: &str) -> Vec<u8> {
        self.world.look(self.machine, &directory().join(name)).expect("the file is there")
    }

    pub fn segments(&self) -> Vec<String> {
        let names = self.world.list(self.machine, &directory()).into_iter();
        names.filter(|name| name.ends_with(".wal")).collect()
    }
}

/// Starts what comes into the inbox: a process that sleeps hears nothing else from outside.
async fn take_in(io: Io, inbox: Inbox) {
    loop {
        let work = std::mem::take(&mut *inbox.borrow_mut());
        for future in work {
            io.spawn("test", future);
        }
        io.sleep(Duration::from_millis(1)).await;
    }
}

pub(super) fn directory() -> PathBuf {
    PathBuf::from("/data/log")
}

/// Tiny segments, so that every transition happens soon.
pub(super) fn tiny(mode: Mode) -> WalConfig {
    WalConfig {
        segment_bytes_first: 16 * 1024,
        segment_bytes_max: 32 * 1024,
        batch_bytes_max: 6 * 1024,
        entry_bytes_max: 4 * 1024,
        flush_interval: Duration::from_millis(20),
        mark_idle: Duration::from_millis(50),
        catch_up_entries: 4,
        catch_up_bytes_max: 48 * 1024,
        ..WalConfig::new(mode)
    }
}

pub(super) async fn open_or_create(
    io: &Io,
    config: WalConfig,
) -> Result<(Writer, Recovered), OpenError> {
    if Writer::exists(io, &directory()).await? {
        Writer::open(io, &directory(), config).await
    } else {
        Writer::create(io, &directory(), IDENTITY, config).await
    }
}

pub(super) fn entry(index: u64, term: u64, size: usize) -> Entry {
    let byte = u8::try_from((index * 31 + term * 7) % 251).expect("below 251");
    let data = Bytes::from(vec![byte; size]);
    Entry { index: RaftIndex(index), term: Term(term), kind: 1, data }
}

pub(super) fn entries(range: std::ops::RangeInclusive<u64>) -> Batch {
    Batch { entries: range.map(|index| entry(index, 1, 100)).collect(), ..Batch::default() }
}

pub(super) fn hard_state(term: u64, vote: u64, commit: u64) -> HardState {
    HardState { term: Term(term), vote, commit: RaftIndex(commit) }
}

//! What every test needs: a world with one machine, and short ways to ask a replica.

use std::cell::RefCell;
use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use ringbolt_io::Io;
use ringbolt_io::sim::{MachineId, SimConfig, World};
use ringbolt_proto::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, LeaseGrantRequest, LeaseRevokeRequest, PutRequest,
};

use crate::error::Error;
use crate::replica::{Mode, Replica, ReplicaConfig};
use crate::state::{Command, Reply};
use crate::types::Revision;
use crate::wal::WalConfig;

/// One machine in one world.
pub(super) struct Bench {
    pub(super) world: World,
    pub(super) machine: MachineId,
}

impl Bench {
    pub(super) fn new(seed: u64) -> Bench {
        let mut world = World::new(seed, SimConfig::default());
        let machine = world.add_machine();
        world.make_dir(machine, "/data".as_ref());
        Bench { world, machine }
    }

    /// Starts a process on the machine and runs `main` in it to its end; gives what it gave.
    pub(super) fn run<F, T>(&mut self, main: impl FnOnce(Io) -> F) -> T
    where
        F: Future<Output = T> + 'static,
        T: 'static,
    {
        let slot = self.start(main);
        let done = self.world.run_until(Duration::from_secs(600), |_| slot.borrow().is_some());
        assert!(done, "the process never ends");
        self.world.crash(self.machine, ringbolt_io::sim::CrashKind::Process);
        let value = slot.borrow_mut().take();
        value.expect("the process ended")
    }

    /// Starts a process; what it gives at its end appears in the slot.
    pub(super) fn start<F, T>(&mut self, main: impl FnOnce(Io) -> F) -> Rc<RefCell<Option<T>>>
    where
        F: Future<Output = T> + 'static,
        T: 'static,
    {
        let slot = Rc::new(RefCell::new(None));
        let filled = slot.clone();
        self.world.start(self.machine, move |io| {
            let work = main(io.clone());
            io.spawn("main", async move {
                let value = work.await;
                *filled.borrow_mut() = Some(value);
            });
        });
        slot
    }
}

/// A small store: the simulated disk writes every byte of a segment.
pub(super) fn config(mode: Mode) -> ReplicaConfig {
    let mut config = ReplicaConfig::new("one", PathBuf::from("/data"), mode);
    config.max_request_bytes = 16 * 1024;
    let mut wal = WalConfig::new(mode);
    wal.segment_bytes_first = 128 * 1024;
    wal.segment_bytes_max = 512 * 1024;
    wal.entry_bytes_max = 32 * 1024;
    wal.batch_bytes_max = 32 * 1024;
    wal.catch_up_entries = 50;
    wal.catch_up_bytes_max = 128 * 1024;
    config.wal = Some(wal);
    config
}

pub(super) fn put(key: &str, value: &str) -> Command {
    let (key, value) = (key.to_owned().into(), value.to_owned().into());
    Command::Put(PutRequest { key, value, ..PutRequest::default() })
}

pub(super) fn put_with_lease(key: &str, lease: i64) -> Command {
    let key = key.to_owned().into();
    Command::Put(PutRequest { key, lease, ..PutRequest::default() })
}

pub(super) fn delete(key: &str) -> Command {
    let key = key.to_owned().into();
    Command::DeleteRange(DeleteRangeRequest { key, ..DeleteRangeRequest::default() })
}

pub(super) fn grant(id: i64, ttl: i64) -> Command {
    Command::LeaseGrant(LeaseGrantRequest { id, ttl })
}

pub(super) fn revoke(id: i64) -> Command {
    Command::LeaseRevoke(LeaseRevokeRequest { id })
}

pub(super) fn compact(revision: i64, physical: bool) -> Command {
    Command::Compact(CompactionRequest { revision, physical })
}

/// The revision an answered put has.
pub(super) fn put_revision(answer: &Result<Reply, Error>) -> Revision {
    match answer {
        Ok(Reply::Put(response)) => {
            Revision(response.header.as_ref().map_or(0, |header| header.revision))
        }
        other => panic!("a put answered {other:?}"),
    }
}

/// The value of a key now.
pub(super) fn value(replica: &Replica, key: &str) -> Option<String> {
    let state = replica.state();
    let found = state.mvcc.get(key.as_bytes(), state.mvcc.revision());
    found.map(|kv| String::from_utf8_lossy(&kv.value).into_owned())
}

//! The files to damage: a member's life on a simulated disk, from one seed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use ringbolt_engine::Revision;
use ringbolt_engine::mvcc::HashKv;
use ringbolt_engine::replica::{Mode, OpenError, Replica, ReplicaConfig};
use ringbolt_engine::state::Command;
use ringbolt_engine::wal::WalConfig;
use ringbolt_io::Io;
use ringbolt_io::sim::{CrashKind, MachineId, SimConfig, World};
use ringbolt_proto::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, LeaseGrantRequest, LeaseRevokeRequest, PutRequest,
};

use super::rng::Rng;

/// Where the member keeps its data.
pub const DIRECTORY: &str = "/data";
/// Virtual time one start may take.
const START_MAX: Duration = Duration::from_secs(120);

/// The files of a directory, by name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// How the life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// In order.
    Closed,
    /// Killed or without power after a while without writes.
    Idle(CrashKind),
    /// Killed or without power right after its last write was acknowledged.
    Busy(CrashKind),
}

/// What a client could see of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The store's revision.
    pub revision: Revision,
    /// Its compacted revision.
    pub compacted: Revision,
    /// The hash of everything stored.
    pub hash: HashKv,
    /// Every lease: its time and its keys.
    pub leases: Vec<(i64, i64, usize)>,
}

/// A stopped member.
pub struct Base {
    /// The seed of its life.
    pub seed: u64,
    /// How it ended.
    pub end: End,
    /// Its files.
    pub files: Files,
    /// What it held.
    pub seen: Seen,
    /// What it held before its last write.
    pub before_last: Seen,
}

/// How every member here is kept: small segments, early checkpoints.
#[must_use]
pub fn config() -> ReplicaConfig {
    let mut config = ReplicaConfig::new("one", PathBuf::from(DIRECTORY), Mode::Safe);
    config.max_request_bytes = 16 * 1024;
    config.checkpoint_log_bytes_min = 96 * 1024;
    let mut wal = WalConfig::new(Mode::Safe);
    wal.segment_bytes_first = 64 * 1024;
    wal.segment_bytes_max = 128 * 1024;
    wal.entry_bytes_max = 24 * 1024;
    wal.batch_bytes_max = 24 * 1024;
    wal.catch_up_entries = 30;
    wal.catch_up_bytes_max = 128 * 1024;
    config.wal = Some(wal);
    config
}

/// A machine with these files.
#[must_use]
pub fn machine_with(seed: u64, files: &Files) -> (World, MachineId) {
    let config = SimConfig { trace_contents: false, ..SimConfig::default() };
    let mut world = World::new(seed, config);
    let machine = world.add_machine();
    world.make_dir(machine, Path::new(DIRECTORY));
    for (name, bytes) in files {
        world.make_file(machine, &Path::new(DIRECTORY).join(name), bytes);
    }
    (world, machine)
}

/// Runs a process to the end of `main`.
pub fn run<T: 'static, F: Future<Output = T> + 'static>(
    (world, machine): (&mut World, MachineId),
    main: impl FnOnce(Io) -> F,
) -> T {
    let slot = Rc::new(RefCell::new(None));
    let filled = slot.clone();
    world.start(machine, move |io| {
        let work = main(io.clone());
        io.spawn("main", async move {
            let value = work.await;
            *filled.borrow_mut() = Some(value);
        });
    });
    assert!(world.run_until(START_MAX, |_| slot.borrow().is_some()), "a start that never ends");
    let value = slot.borrow_mut().take();
    value.expect("it ended")
}

/// The files that are there now.
#[must_use]
pub fn files_of(world: &World, machine: MachineId) -> Files {
    let directory = Path::new(DIRECTORY);
    let names = world.list(machine, directory).into_iter();
    names
        .filter_map(|name| world.look(machine, &directory.join(&name)).map(|bytes| (name, bytes)))
        .collect()
}

/// What a client sees of `replica`.
#[must_use]
pub fn see(replica: &Replica) -> Seen {
    let state = replica.state();
    let leases = state.leases.iter().map(|(id, lease)| (id.0, lease.ttl_s(), lease.keys().len()));
    Seen {
        revision: state.mvcc.revision(),
        compacted: state.mvcc.compacted(),
        hash: state.mvcc.hash_kv(0).expect("the newest revision has a hash"),
        leases: leases.collect(),
    }
}

/// Opens what is there, looks, and lets the process die.
///
/// # Errors
/// As `Replica::open`.
pub fn open_and_see(world: &mut World, machine: MachineId) -> Result<Seen, OpenError> {
    let seen = run((world, machine), |io| async move {
        let replica = Replica::open(io, config()).await?;
        replica.state().check();
        Ok(see(&replica))
    });
    world.crash(machine, CrashKind::Process);
    seen
}

impl Base {
    /// Lives the life of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Base {
        let mut rng = Rng::new(seed);
        let (mut world, machine) = machine_with(seed, &Files::new());
        let lives = 1 + rng.below(3);
        for _ in 1..lives {
            let seed = rng.next_u64();
            run((&mut world, machine), move |io| async move {
                let (replica, _) = live(io, seed).await;
                if seed.is_multiple_of(2) {
                    replica.close().await;
                }
            });
            let kind = if rng.below(2) == 0 { CrashKind::Process } else { CrashKind::Power };
            world.crash(machine, kind);
        }
        let kind = if rng.below(2) == 0 { CrashKind::Process } else { CrashKind::Power };
        let end = match rng.below(4) {
            0 => End::Closed,
            1 | 2 => End::Idle(kind),
            _ => End::Busy(kind),
        };
        let last = rng.next_u64();
        let (seen, before_last) = run((&mut world, machine), move |io| async move {
            let (replica, before_last) = live(io.clone(), last).await;
            let seen = see(&replica);
            match end {
                End::Closed => replica.close().await,
                End::Idle(_) => io.sleep(Duration::from_secs(5)).await,
                End::Busy(_) => {}
            }
            (seen, before_last)
        });
        match end {
            End::Closed => world.crash(machine, CrashKind::Process),
            End::Idle(kind) | End::Busy(kind) => world.crash(machine, kind),
        }
        // What a process that died still does, it has done by now.
        world.run_for(Duration::from_secs(1));
        let files = files_of(&world, machine);
        let base = Base { seed, end, files, seen, before_last };
        let (mut world, machine) = machine_with(seed, &base.files);
        let whole = open_and_see(&mut world, machine).expect("an undamaged member starts");
        assert_eq!(whole, base.seen, "base {seed}: a start changes nothing");
        base
    }
}

/// Some hundred requests, one after the other. Gives the replica, and what it held before the last.
async fn live(io: Io, seed: u64) -> (Rc<Replica>, Seen) {
    let replica = Replica::open(io.clone(), config()).await.expect("a sound directory");
    let mut rng = Rng::new(seed);
    let count = 20 + rng.below(160);
    for _ in 0..count {
        let request = request(&replica, &mut rng);
        // A refusal, of a lease that is not there, is an answer too.
        let _ = replica.propose(request).await;
        if rng.below(60) == 0 {
            io.sleep(Duration::from_millis(1 + rng.below(3000))).await;
        }
    }
    let before_last = see(&replica);
    replica.propose(put(&mut rng, 0)).await.expect("a put");
    (replica, before_last)
}

fn request(replica: &Replica, rng: &mut Rng) -> Command {
    let id = 1 + i64::try_from(rng.below(5)).expect("small");
    match rng.below(20) {
        0 => Command::LeaseGrant(LeaseGrantRequest { id, ttl: 100_000 }),
        1 => Command::LeaseRevoke(LeaseRevokeRequest { id }),
        2 | 3 => {
            let key = format!("k{}", rng.below(25)).into();
            Command::DeleteRange(DeleteRangeRequest { key, ..DeleteRangeRequest::default() })
        }
        4 => {
            let back = i64::try_from(rng.below(30)).expect("small");
            let revision = (replica.status().revision.0 - back).max(1);
            Command::Compact(CompactionRequest { revision, physical: false })
        }
        5 | 6 => put(rng, id),
        _ => put(rng, 0),
    }
}

fn put(rng: &mut Rng, lease: i64) -> Command {
    let key = format!("k{}", rng.below(25)).into();
    let size = usize::try_from(rng.below(4000)).expect("small");
    let value = vec![b'a' + u8::try_from(rng.below(26)).expect("small"); size].into();
    Command::Put(PutRequest { key, value, lease, ..PutRequest::default() })
}

//! A whole member in a simulated world, and one client that asks it for anything.
//!
//! ```text
//! input: | mode (1) | step | step | …      see `Session::step`
//!
//! client ─► network ─► connection ─► http2 ─► grpc ─► handlers ─► replica ─► log ─► state
//! ```
//!
//! - R1 Every call is answered, and a connection whose frames are sound is not closed.
//! - R2 The revision in the headers of answers never goes back.
//! - R3 A watcher's events come in the order of their revisions, each once.
//! - R4 The structures hold together: subtree counts, leases and their keys, watchers.
//! - R5 A member that is killed opens again with everything it acknowledged.

mod client;
pub mod samples;
mod session;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::corrupt::base::{self, see};
use ringbolt_engine::replica::{Mode, Replica, ReplicaConfig};
use ringbolt_engine::state::Limits;
use ringbolt_engine::wal::WalConfig;
use ringbolt_engine::watch::Hub;
use ringbolt_io::net::ListenHow;
use ringbolt_io::sim::{CrashKind, MachineId, SimConfig, World};
use ringbolt_io::{Address, Io};
use ringbolt_server::budget::Share;
use ringbolt_server::connection::{Connection, Parts, PeerInfo};
use ringbolt_server::metrics::KeyCounts;
use ringbolt_server::services::{Dispatcher, Keyspace, Settings};

pub use self::samples::{seeds, words};

use self::session::Session;
use crate::script::Script;

const PORT: u16 = 2379;
const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Virtual time after which a client that is not done never will be.
const SESSION_MAX: Duration = Duration::from_secs(3600);

/// What a member shows of itself.
#[derive(Clone)]
struct Member {
    replica: Rc<Replica>,
    hub: Rc<RefCell<Hub>>,
}

type Slot = Rc<RefCell<Option<Member>>>;

/// Takes one input.
pub fn run(input: &[u8]) {
    let mut script = Script::new(input);
    let mode = match script.byte() % 4 {
        0 | 1 => Mode::Safe,
        2 => Mode::NoFsync,
        _ => Mode::Memory,
    };
    let sim = SimConfig { trace_contents: false, ..SimConfig::default() };
    let mut world = World::new(7, sim);
    let (server, client) = (world.add_machine(), world.add_machine());
    world.make_dir(server, base::DIRECTORY.as_ref());
    let address = world.address(server, PORT);
    let slot = Slot::default();
    let (filled, here) = (slot.clone(), address.clone());
    world.start(server, |io| {
        io.spawn("member", member(io.clone(), here, mode, filled));
    });
    let opened = world.run_until(SESSION_MAX, |_| slot.borrow().is_some());
    assert!(opened, "R1: the member does not open");
    let steps = script.rest().to_vec();
    let outcome = Rc::new(RefCell::new(None));
    let told = outcome.clone();
    world.start(client, |io| {
        let inner = io.clone();
        io.spawn("client", async move {
            let session = Session::connect(inner, &address).await;
            *told.borrow_mut() = Some(session.play(&steps).await);
        });
    });
    let done = world.run_until(SESSION_MAX, |_| outcome.borrow().is_some());
    assert!(done, "R1: the client waits for ever");
    let leases_granted = outcome.borrow_mut().take().expect("it is done");
    let member = slot.borrow_mut().take().expect("it has opened");
    member.replica.state().check();
    member.hub.borrow().check();
    let before = see(&member.replica);
    drop(member);
    if mode != Mode::Memory {
        let after = reopened(&mut world, server, mode);
        assert!(after.revision >= before.revision, "R5: {before:?}, now {after:?}");
        // A lease may have expired just then; its end was not seen yet.
        assert!(leases_granted || before == after, "R5: {before:?}, now {after:?}");
    }
}

fn config(mode: Mode) -> ReplicaConfig {
    let mut config = base::config();
    let small = config.wal.take().expect("it is given");
    config.mode = mode;
    config.wal = Some(WalConfig { mode, ..small });
    config
}

fn reopened(world: &mut World, server: MachineId, mode: Mode) -> base::Seen {
    world.crash(server, CrashKind::Process);
    base::run((world, server), move |io| async move {
        let replica = Replica::open(io, config(mode)).await.expect("R5: it opens again");
        replica.state().check();
        see(&replica)
    })
}

/// A member that serves connections.
async fn member(io: Io, address: Address, mode: Mode, slot: Slot) {
    let replica = Replica::open(io.clone(), config(mode)).await.expect("an empty directory");
    let max_request_bytes = replica.config().max_request_bytes;
    let settings = Settings {
        limits: Limits { max_txn_ops: 128, max_request_bytes },
        progress_interval: Duration::from_secs(3),
        quota_bytes: -1,
        lease_ttl_min_s: 2,
    };
    let (counts, share) = (Rc::new(KeyCounts::default()), Share::new(64 << 20));
    let keyspace = Keyspace::new(io.clone(), replica.clone(), settings, counts, share.clone());
    let hub = keyspace.hub.clone();
    let parts = Parts {
        service: Dispatcher::new(keyspace),
        web: None,
        http2: ringbolt_server::http2::Limits::default(),
        message_bytes_max: MESSAGE_BYTES_MAX,
        share,
    };
    let listener = io.listen(&address, &ListenHow::default()).expect("a free port");
    *slot.borrow_mut() = Some(Member { replica, hub });
    while let Ok((stream, peer)) = listener.accept().await {
        let connection = Connection::new(&io, stream, PeerInfo::from(peer), parts.clone());
        io.spawn("connection", connection.serve());
    }
}

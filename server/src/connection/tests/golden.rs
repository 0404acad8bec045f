//! The path of a Put: the functions a reader opens, in the order in which one Put enters them.
//!
//! A whole member on a simulated disk and network gets one Put; each function of the path leaves a
//! trace event of target `path`. What is compared is the order of their first appearances, so that
//! further turns of the replica, for a heartbeat or a completed write, do not matter.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prost::Message;
use ringbolt_engine::replica::{Mode, Replica, ReplicaConfig};
use ringbolt_engine::state::Limits;
use ringbolt_io::net::ListenHow;
use ringbolt_io::sim::{SimConfig, World};
use ringbolt_proto::etcdserverpb::{PutRequest, PutResponse};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::client::Client;
use super::{MESSAGE_BYTES_MAX, PORT};
use crate::budget::Share;
use crate::connection::{Connection, Parts, PeerInfo};
use crate::metrics::KeyCounts;
use crate::services::{Dispatcher, Keyspace, Settings};

const GOLDEN: &str = include_str!("testdata/path_of_a_put.txt");

/// Collects the events of the path.
#[derive(Clone, Default)]
struct Path(Arc<Mutex<Vec<String>>>);

impl Path {
    fn steps(&self) -> Vec<String> {
        self.0.lock().expect("no holder panics").clone()
    }
}

impl Subscriber for Path {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "path"
    }

    fn event(&self, event: &Event<'_>) {
        struct Name(String);
        impl Visit for Name {
            fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
                self.0 = format!("{value:?}");
            }
        }
        let mut name = Name(String::new());
        event.record(&mut name);
        let mut steps = self.0.lock().expect("no holder panics");
        if !steps.contains(&name.0) {
            steps.push(name.0);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// A member that serves one connection.
pub(super) async fn member(io: ringbolt_io::Io, address: ringbolt_io::Address, max_txn_ops: usize) {
    let mut config = ReplicaConfig::new("n1", "/data".into(), Mode::Safe);
    config.max_txn_ops = max_txn_ops;
    let replica = Replica::open(io.clone(), config).await.expect("an empty directory");
    let settings = Settings {
        limits: Limits { max_txn_ops, max_request_bytes: MESSAGE_BYTES_MAX },
        progress_interval: Duration::from_secs(600),
        quota_bytes: -1,
        lease_ttl_min_s: 2,
    };
    let counts = Rc::new(KeyCounts::default());
    let parts = Parts {
        service: Dispatcher::new(Keyspace::new(
            io.clone(),
            replica,
            settings,
            counts,
            Share::new(64 << 20),
        )),
        web: None,
        http2: crate::http2::Limits::default(),
        message_bytes_max: MESSAGE_BYTES_MAX,
        share: Share::new(64 << 20),
    };
    let listener = io.listen(&address, &ListenHow::default()).expect("a free port");
    let (stream, peer) = listener.accept().await.expect("a connection");
    Connection::new(&io, stream, PeerInfo::from(peer), parts).serve().await;
}

/// A Put enters the nine functions in the order the documents tell.
#[test]
fn path_of_a_put() {
    let mut world = World::new(9, SimConfig::default());
    let (server, client) = (world.add_machine(), world.add_machine());
    world.make_dir(server, "/data".as_ref());
    let address = world.address(server, PORT);
    let here = address.clone();
    world.start(server, |io| {
        io.spawn("member", member(io.clone(), here, 128));
    });
    // The member is open and leads: what follows is the Put's alone.
    world.run_for(Duration::from_secs(5));
    let done = Rc::new(Cell::new(false));
    let finished = done.clone();
    let path = Path::default();
    let recording = tracing::subscriber::set_default(path.clone());
    world.start(client, |io| {
        let inner = io.clone();
        io.spawn("client", async move {
            let stream = inner.connect(&address).await.expect("a server");
            let mut client = Client::new(inner, stream).hello();
            let put = PutRequest { key: "k".into(), value: "v".into(), ..PutRequest::default() };
            client.call(1, "KV/Put", &[]);
            client.message(1, &put.encode_to_vec(), true);
            let answer = client.answer(1).await;
            assert_eq!(answer.status().0, "0", "{answer:?}");
            let response = PutResponse::decode(answer.messages()[0]).expect("a response");
            assert_eq!(response.header.expect("a header").revision, 2);
            finished.set(true);
        });
    });
    assert!(world.run_until(Duration::from_secs(60), |_| done.get()), "the put is not answered");
    drop(recording);
    let golden: Vec<&str> = GOLDEN.lines().collect();
    assert_eq!(path.steps(), golden);
}

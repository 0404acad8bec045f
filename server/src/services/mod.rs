//! The RPCs: decode, check, ask the replica, encode. One file for each service of the contract.
//!
//! A handler is an `async fn`. It is polled once where it is called; only one that has to wait
//! becomes a task, so that a read that needs no disk costs no spawn.

mod cluster;
mod health;
mod kv;
mod lease;
mod list;
mod maintenance;
mod pieces;
mod watch;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use ringbolt_engine::lease::choose_id;
use ringbolt_engine::replica::Replica;
use ringbolt_engine::state::Limits;
use ringbolt_engine::watch::Hub;
use ringbolt_engine::{LeaseId, Revision};
use ringbolt_io::{Io, LocalTask};
use ringbolt_proto::etcdserverpb::ResponseHeader;
use ringbolt_proto::method::Name;
use ringbolt_proto::schema::Described;

use crate::budget::{Pressure, Share};
use crate::connection::{Call, Service};
use crate::grpc::{Code, Status, unmarshal};
use crate::metrics::KeyCounts;

/// What the services of one keyspace need to know.
pub struct Keyspace {
    /// The shard the keyspace lives on.
    pub io: Io,
    /// Its replica.
    pub replica: Rc<Replica>,
    /// Its watchers.
    pub hub: Rc<RefCell<Hub>>,
    /// Settings of the services.
    pub settings: Settings,
    /// Operations done for clients.
    pub counts: Rc<KeyCounts>,
    /// What clients make this shard hold for the keyspace.
    pub share: Rc<Share>,
    /// How many lease ids were chosen here.
    lease_ids: Cell<u64>,
}

/// Settings of the services, from flags.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Limits on requests.
    pub limits: Limits,
    /// `--watch-progress-notify-interval`; 0 has become the default.
    pub progress_interval: Duration,
    /// Effective quota in bytes as `Status` shows it.
    pub quota_bytes: i64,
    /// The smallest lease TTL in seconds: 1.5 election timeouts, rounded up.
    pub lease_ttl_min_s: i64,
}

impl Keyspace {
    /// Joins a replica and its watchers: from now on what the replica publishes is shown.
    #[must_use]
    pub fn new(
        io: Io,
        replica: Rc<Replica>,
        settings: Settings,
        counts: Rc<KeyCounts>,
        share: Rc<Share>,
    ) -> Rc<Keyspace> {
        let hub = Rc::new(RefCell::new(Hub::new(replica.state().mvcc.revision())));
        let (shown, source) = (hub.clone(), Rc::downgrade(&replica));
        replica.on_publish(move |_, _| {
            if let Some(replica) = source.upgrade() {
                shown.borrow_mut().publish(&replica.state().mvcc);
            }
        });
        Rc::new(Keyspace { io, replica, hub, settings, counts, share, lease_ids: Cell::new(0) })
    }

    /// Whether clients hold so much that less should be handed out at once.
    fn is_tight(&self) -> bool {
        self.share.pressure() >= Pressure::Tight
    }

    /// The current revision of the store.
    fn revision(&self) -> Revision {
        self.replica.state().mvcc.revision()
    }

    /// A full header at `revision`.
    fn header_at(&self, revision: i64) -> ResponseHeader {
        let identity = self.replica.identity();
        ResponseHeader {
            cluster_id: identity.cluster_id.0,
            member_id: identity.member_id.0,
            revision,
            raft_term: self.replica.term(),
        }
    }

    /// A full header at the current revision.
    fn header(&self) -> ResponseHeader {
        self.header_at(self.revision().0)
    }

    /// An id for a lease whose client chose none.
    fn next_lease_id(&self) -> LeaseId {
        let counter = self.lease_ids.replace(self.lease_ids.get() + 1);
        choose_id(self.replica.identity().member_id, self.io.wall(), counter)
    }

    /// Completes the header a reply came with: a revision it left open is the current one.
    fn complete(&self, header: &mut Option<ResponseHeader>) {
        let revision = header.as_ref().map_or(0, |header| header.revision);
        *header = Some(if revision == 0 { self.header() } else { self.header_at(revision) });
    }
}

/// Gives each call to its handler.
pub struct Dispatcher {
    keyspace: Rc<Keyspace>,
}

impl Dispatcher {
    /// A dispatcher for one keyspace.
    #[must_use]
    pub fn new(keyspace: Rc<Keyspace>) -> Rc<Dispatcher> {
        Rc::new(Dispatcher { keyspace })
    }
}

impl Service for Dispatcher {
    fn call(self: Rc<Self>, call: Call) {
        tracing::trace!(target: "path", "Dispatcher::call");
        let keyspace = self.keyspace.clone();
        let io = keyspace.io.clone();
        match call.method.name {
            Name::Range => run(&io, "range", kv::range(keyspace, call)),
            Name::RangeStream => run(&io, "range-stream", kv::range_stream(keyspace, call)),
            Name::Put => run(&io, "put", kv::put(keyspace, call)),
            Name::DeleteRange => run(&io, "delete-range", kv::delete_range(keyspace, call)),
            Name::Txn => run(&io, "txn", kv::txn(keyspace, call)),
            Name::Compact => run(&io, "compact", kv::compact(keyspace, call)),
            Name::Watch => run(&io, "watch", watch::watch(keyspace, call)),
            Name::LeaseGrant => run(&io, "lease-grant", lease::grant(keyspace, call)),
            Name::LeaseRevoke => run(&io, "lease-revoke", lease::revoke(keyspace, call)),
            Name::LeaseKeepAlive => run(&io, "keep-alive", lease::keep_alive(keyspace, call)),
            Name::LeaseTimeToLive => run(&io, "time-to-live", lease::time_to_live(keyspace, call)),
            Name::LeaseLeases => run(&io, "leases", lease::leases(keyspace, call)),
            Name::MemberList => run(&io, "member-list", cluster::member_list(keyspace, call)),
            Name::Alarm => run(&io, "alarm", maintenance::alarm(keyspace, call)),
            Name::Status => run(&io, "status", maintenance::status(keyspace, call)),
            Name::Defragment => run(&io, "defragment", maintenance::defragment(keyspace, call)),
            Name::Hash => run(&io, "hash", maintenance::hash(keyspace, call)),
            Name::HashKV => run(&io, "hash-kv", maintenance::hash_kv(keyspace, call)),
            Name::HealthCheck => run(&io, "health-check", health::check(call)),
            Name::HealthWatch => run(&io, "health-watch", health::watch(call)),
            Name::HealthList => run(&io, "health-list", health::list(call)),
            _ => refuse_unserved(call),
        }
    }
}

/// Methods of the contract this server does not serve answer as a server that never had them.
fn refuse_unserved(call: Call) {
    let (service, method) = (call.method.service, call.method.method);
    let served =
        !matches!(service, "etcdserverpb.Auth" | "v3lockpb.Lock" | "v3electionpb.Election");
    let text = if served {
        format!("unknown method {method} for service {service}")
    } else {
        format!("unknown service {service}")
    };
    call.responder.unary(Err(Status::new(Code::Unimplemented, text)));
}

/// Polls a handler once; one that has to wait goes on as a task.
fn run(io: &Io, name: &'static str, handler: impl Future<Output = ()> + 'static) {
    let mut handler: LocalTask = Box::pin(handler);
    let mut context = Context::from_waker(Waker::noop());
    if handler.as_mut().poll(&mut context).is_pending() {
        io.spawn_boxed(name, handler);
    }
}

/// The one message of a unary call, decoded.
async fn request<M: Message + Described + Default>(call: &mut Call) -> Result<M, Status> {
    let bytes = match call.requests.try_next() {
        Some(bytes) => bytes?,
        None => match call.requests.next().await {
            Some(bytes) => bytes?,
            None => return Err(Status::new(Code::Internal, "EOF")),
        },
    };
    unmarshal(bytes, call.method.mode)
}

/// Answers a unary call.
fn answer<M: Message>(call: Call, result: Result<M, Status>) {
    call.responder.unary(result.map(|message| Bytes::from(message.encode_to_vec())));
}

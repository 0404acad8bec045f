//! The engine's replica as a store under test, with its watch hub beside it as a server has it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use prost::Message as _;
use ringbolt_engine::lease::ttl_min_s;
use ringbolt_engine::mvcc::{self, KeyRange};
use ringbolt_engine::replica::{self, Replica, ReplicaConfig};
use ringbolt_engine::state::{Command, Reply, State, StateConfig, read, validate};
use ringbolt_engine::wal::WalConfig;
use ringbolt_engine::watch::{Hub, Pull, Spec, StreamEnd, WatcherKey};
use ringbolt_engine::{Error, LeaseId, Reason, Revision};
use ringbolt_io::{Io, MonoTime};
use ringbolt_proto::etcdserverpb::{
    HashKvResponse, LeaseTimeToLiveRequest, RangeRequest, RangeResponse, WatchResponse,
};
use ringbolt_proto::mvccpb::event::EventType;
use ringbolt_proto::mvccpb::{Event, KeyValue};

use super::audit;
use super::oracle::Sight;
use super::recovery::Stored;
use super::request::{Failure, Outcome, Request, Response, header};
use super::store::{Message, Mode, Place, Store, WatchSpec};

/// Bytes of events a watcher pulls at once: few, so that batches are cut often.
const PULL_BYTES: usize = 2_000;
/// How long a client waits for an event before it asks how far its watcher is.
const PROGRESS_ASKED_AFTER: Duration = Duration::from_secs(1);
/// Segments are small, so that a short life goes through several.
const SEGMENT_BYTES: u64 = 160 * 1024;

/// A replica and its watchers.
pub struct Ours {
    io: Io,
    replica: Rc<Replica>,
    hub: Rc<RefCell<Hub>>,
    limits: validate::Limits,
}

/// One watcher of a hub, on a stream of its own.
pub struct OurWatch {
    io: Io,
    replica: Rc<Replica>,
    hub: Rc<RefCell<Hub>>,
    end: Rc<StreamEnd>,
    key: WatcherKey,
    /// The last progress it was told.
    progress: Cell<i64>,
}

impl Drop for OurWatch {
    fn drop(&mut self) {
        self.hub.borrow_mut().cancel(self.key);
    }
}

fn config(place: &Place) -> ReplicaConfig {
    let mode = match place.mode {
        Mode::Safe => replica::Mode::Safe,
        Mode::NoFsync => replica::Mode::NoFsync,
        Mode::Memory => replica::Mode::Memory,
    };
    let mut config = ReplicaConfig::new("sim", place.directory.clone(), mode);
    config.flush_interval = place.flush_interval;
    config.election_ticks = 10;
    config.heartbeat_interval = place.election_timeout / 10;
    config.max_request_bytes = 60 * 1024;
    config.checkpoint_log_bytes_min = 3 * SEGMENT_BYTES;
    let mut wal = WalConfig::new(mode);
    wal.segment_bytes_first = SEGMENT_BYTES;
    wal.segment_bytes_max = 2 * SEGMENT_BYTES;
    wal.batch_bytes_max = 64 * 1024;
    wal.entry_bytes_max = 128 * 1024;
    wal.flush_interval = place.flush_interval;
    config.wal = Some(wal);
    config
}

impl Ours {
    async fn propose(&self, command: Command) -> Result<Reply, Failure> {
        self.replica.propose(command).await.map_err(failure)
    }

    async fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Failure> {
        validate::range(request, &self.limits).map_err(Failure::Refused)?;
        self.replica.read_barrier().await.map_err(failure)?;
        let state = self.replica.state();
        read::range(&state, request).map_err(Failure::Refused)
    }

    async fn change(&self, request: Request) -> Outcome {
        let command = match request {
            Request::Put(put) => {
                validate::put(&put, &self.limits).map_err(Failure::Refused)?;
                Command::Put(put)
            }
            Request::Delete(delete) => {
                validate::delete_range(&delete, &self.limits).map_err(Failure::Refused)?;
                Command::DeleteRange(delete)
            }
            Request::Txn(txn) => {
                validate::txn(&txn, &self.limits).map_err(Failure::Refused)?;
                if validate::is_read_only(&txn) {
                    self.replica.read_barrier().await.map_err(failure)?;
                    let state = self.replica.state();
                    return read::txn(&state, &txn).map(Response::Txn).map_err(Failure::Refused);
                }
                Command::Txn(txn)
            }
            Request::Compact(compact) => Command::Compact(compact),
            Request::Grant(grant) => Command::LeaseGrant(grant),
            Request::Revoke(revoke) => Command::LeaseRevoke(revoke),
            Request::Range(_) | Request::Renew(_) | Request::TimeToLive(_) | Request::HashKv(_) => {
                unreachable!("not a change")
            }
        };
        Ok(match self.propose(command).await? {
            Reply::Put(response) => Response::Put(response),
            Reply::DeleteRange(response) => Response::Delete(response),
            Reply::Txn(response) => Response::Txn(response),
            Reply::Compact(response) => Response::Compact(response),
            Reply::LeaseGrant(response) => Response::Grant(response),
            Reply::LeaseRevoke(response) => Response::Revoke(response),
            Reply::Alarm(_) | Reply::Done => unreachable!("nobody asked for that"),
        })
    }
}

/// Whether the request may still happen.
fn failure(error: Error) -> Failure {
    match error {
        Error::Stop => Failure::Stopped,
        Error::Refuse(Reason::DeadlineExceeded) => Failure::Unknown,
        Error::Refuse(reason) | Error::Retry(reason @ Reason::TooManyRequests) => {
            Failure::Refused(reason)
        }
        Error::Retry(_) | Error::Redirect(_) => Failure::Unknown,
    }
}

impl Store for Ours {
    type Watch = OurWatch;

    async fn open(io: &Io, place: &Place, stored: impl FnOnce(Stored)) -> Result<Rc<Self>, String> {
        let config = config(place);
        let limits = validate::Limits {
            max_txn_ops: config.max_txn_ops,
            max_request_bytes: config.max_request_bytes,
        };
        let now = io.now();
        let show = |state: &State| stored(shown(state, now));
        let opened = Replica::open_shown(io.clone(), config, show).await;
        let replica = opened.map_err(|error| error.to_string())?;
        let revision = replica.state().mvcc.revision();
        let hub = Rc::new(RefCell::new(Hub::new(revision)));
        let (shown, weak) = (hub.clone(), Rc::downgrade(&replica));
        replica.on_publish(move |_, _| {
            if let Some(replica) = weak.upgrade() {
                shown.borrow_mut().publish(&replica.state().mvcc);
            }
        });
        Ok(Rc::new(Ours { io: io.clone(), replica, hub, limits }))
    }

    async fn ask(&self, request: Request) -> Outcome {
        match request {
            Request::Range(range) => self.range(&range).await.map(Response::Range),
            Request::Renew(id) => {
                let renewed = self.replica.lease_renew(LeaseId(id)).await;
                renewed.map(Response::Renew).map_err(failure)
            }
            Request::TimeToLive(id) => {
                let request = LeaseTimeToLiveRequest { id, keys: true };
                let deadlines = self.replica.deadlines().map_err(failure)?;
                let state = self.replica.state();
                let told = read::lease_time_to_live(&state, &deadlines, &request, self.io.now());
                Ok(Response::TimeToLive(told))
            }
            Request::HashKv(revision) => {
                let state = self.replica.state();
                let hash = state.mvcc.hash_kv(revision).map_err(Failure::Refused)?;
                Ok(Response::HashKv(HashKvResponse {
                    header: header(state.mvcc.revision().0),
                    hash: hash.hash,
                    compact_revision: hash.compact_revision,
                    hash_revision: hash.hash_revision,
                }))
            }
            change => self.change(change).await,
        }
    }

    fn revision(&self) -> i64 {
        self.replica.state().mvcc.revision().0
    }

    fn compacted(&self) -> i64 {
        self.replica.state().mvcc.compacted().0
    }

    fn events(&self, from: i64) -> Vec<(i64, Vec<Event>)> {
        events(&self.replica.state(), from)
    }

    fn state(&self) -> Vec<KeyValue> {
        keys(&self.replica.state())
    }

    fn leases(&self) -> Vec<(i64, i64)> {
        self.replica.state().leases.iter().map(|(id, lease)| (id.0, lease.ttl_s())).collect()
    }

    fn on_publish(&self, hook: Box<dyn Fn()>) {
        self.replica.on_publish(move |_, _| hook());
    }

    fn watch(self: &Rc<Self>, spec: &WatchSpec, start: Option<i64>) -> (i64, Self::Watch) {
        let end = Rc::new(StreamEnd::default());
        let range = KeyRange::from_wire(&spec.key, &spec.range_end);
        let spec =
            Spec { range, no_put: spec.no_put, no_delete: spec.no_delete, prev_kv: spec.prev_kv };
        let header = self.revision();
        let key = self.hub.borrow_mut().create(&end, spec, start.map(Revision));
        let (replica, hub) = (self.replica.clone(), self.hub.clone());
        let io = self.io.clone();
        (header, OurWatch { io, replica, hub, end, key, progress: Cell::new(0) })
    }

    async fn next(watch: &Self::Watch) -> Message {
        loop {
            if let Some(message) = watch.look() {
                return message;
            }
            // A client that hears nothing asks for progress.
            watch.io.timeout(PROGRESS_ASKED_AFTER, watch.end.bell.heard()).await;
        }
    }

    fn hash(&self) -> Option<(u64, u64)> {
        let state = self.replica.state();
        Some((state.applied().0, state.rolling().value()))
    }

    fn bytes(&self) -> u64 {
        self.replica.state().size_bytes()
    }

    async fn audit(io: &Io, place: &Place, seen: &BTreeMap<u64, u64>) -> Result<(), String> {
        let config = config(place);
        let Some(mut wal) = config.wal.filter(|_| place.mode != Mode::Memory) else {
            return Ok(());
        };
        wal.entry_bytes_max = wal.entry_bytes_max.max(2 * config.max_request_bytes);
        let state = StateConfig {
            max_txn_ops: config.max_txn_ops,
            max_request_bytes: config.max_request_bytes,
            quota_bytes: config.quota_bytes,
            min_lease_ttl_s: ttl_min_s(place.election_timeout),
            ..StateConfig::default()
        };
        audit::replay(io, place, (wal, state), seen).await.map(|_| ())
    }

    async fn failed(&self) -> String {
        self.replica.failed().await
    }

    fn check(&self) {
        self.replica.state().check();
        self.hub.borrow().check();
    }

    async fn close(&self) {
        self.replica.close().await;
    }
}

/// What a state shows of itself.
fn shown(state: &State, now: MonoTime) -> Stored {
    let (revision, compacted) = (state.mvcc.revision().0, state.mvcc.compacted().0);
    Stored {
        sight: Sight { revision, compacted, now },
        events: events(state, compacted.max(0)),
        state: keys(state),
    }
}

fn keys(state: &State) -> Vec<KeyValue> {
    let revision = state.mvcc.revision();
    state.mvcc.range(&KeyRange::everything(), revision, 0, mvcc::Values::Full)
}

fn events(state: &State, from: i64) -> Vec<(i64, Vec<Event>)> {
    let mut all: Vec<(i64, Vec<Event>)> = Vec::new();
    for event in state.mvcc.events(Revision(from)) {
        let kind = match event.kind {
            mvcc::Kind::Put => EventType::Put,
            mvcc::Kind::Delete => EventType::Delete,
        };
        let shown = Event { r#type: kind.into(), kv: Some(event.kv()), prev_kv: None };
        match all.last_mut() {
            Some((revision, events)) if *revision == event.main.0 => events.push(shown),
            _ => all.push((event.main.0, vec![shown])),
        }
    }
    all
}

impl OurWatch {
    /// What there is now: events while there are any, then progress once, as a stream would answer
    /// a request for it.
    fn look(&self) -> Option<Message> {
        while let Some(key) = self.end.next_dirty() {
            let state = self.replica.state();
            match self.hub.borrow_mut().pull(key, &state.mvcc, PULL_BYTES) {
                Pull::Nothing => {}
                Pull::Events { header, batch } => {
                    let bytes = batch.encoded(0, batch.ends.len());
                    let decoded = WatchResponse::decode(bytes).expect("it was encoded by us");
                    return Some(Message::Events { header: header.0, events: decoded.events });
                }
                Pull::Compacted(revision) => return Some(Message::Compacted(revision.0)),
            }
        }
        let hub = self.hub.borrow();
        let published = hub.published().0;
        if hub.is_synced(self.key) && self.progress.get() < published {
            self.progress.set(published);
            return Some(Message::Progress(published));
        }
        None
    }
}

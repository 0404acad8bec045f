//! The Watch service: one task for each stream of watchers.
//!
//! Everything a client sees of a stream leaves through this one task in order: created answers,
//! events, progress, cancels. So a progress answer can never overtake an event, and a client that
//! does not read stops its own task and nothing else.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use ringbolt_engine::Revision;
use ringbolt_engine::mvcc::KeyRange;
use ringbolt_engine::watch::{Batch, Hub, Pull, Spec, StreamEnd, WatcherKey};
use ringbolt_io::MonoTime;
use ringbolt_proto::etcdserverpb::{
    ResponseHeader, WatchCreateRequest, WatchRequest, WatchResponse,
    watch_create_request::FilterType, watch_request::RequestUnion,
};
use ringbolt_proto::method::Mode;

use super::Keyspace;
use crate::budget::{Owner, Pressure, Share};
use crate::connection::{Call, Gone, Requests, Responder};
use crate::grpc::{Status, unmarshal};
use crate::limits::{
    WATCH_RESPONSE_BYTES, WATCH_RESPONSE_TIGHT_BYTES, WATCHER_BYTES, WATCHERS_PER_STREAM_MAX,
};

const NO_RANGE: &str = "mvcc: watcher range is empty";
const DUPLICATE_ID: &str = "mvcc: duplicate watch ID provided on the WatchStream";
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
const TOO_MANY: &str = "ringbolt: too many watchers on one stream";

const NO_MEMORY: &str = "ringbolt: memory budget of the server is used up";

/// The watch id of answers that belong to no watcher.
const NO_WATCH_ID: i64 = -1;

/// `Watch/Watch`
pub(super) async fn watch(keyspace: Rc<Keyspace>, call: Call) {
    let Call { requests, responder, .. } = call;
    let interval = keyspace.settings.progress_interval;
    let jitter = keyspace.io.random_u64() % (jitter_max_ns(interval) + 1);
    let end = Rc::<StreamEnd>::default();
    let mut stream = WatchStream {
        end: end.clone(),
        watchers: Watchers {
            end,
            hub: keyspace.hub.clone(),
            share: keyspace.share.clone(),
            by_key: BTreeMap::new(),
        },
        ids: BTreeMap::new(),
        next_id: 0,
        progress_asked: false,
        heads: Heads::default(),
        tick_every: interval + Duration::from_nanos(jitter),
        tick_at: keyspace.io.now() + interval + Duration::from_nanos(jitter),
        keyspace,
        responder,
    };
    // However the stream ends, there is nobody left to tell but the client.
    match stream.serve(requests).await {
        Ok(status) | Err(End::Status(status)) => stream.responder.finish(status),
        Err(End::Gone) => {}
    }
}

fn jitter_max_ns(interval: Duration) -> u64 {
    u64::try_from(interval.as_nanos() / 10).unwrap_or(u64::MAX - 1)
}

/// Why a stream stops before its time.
enum End {
    Gone,
    Status(Status),
}

impl From<Gone> for End {
    fn from(_: Gone) -> End {
        End::Gone
    }
}

struct Watcher {
    id: i64,
    progress_notify: bool,
    fragment: bool,
    /// Whether an event left since the last progress tick.
    recent: bool,
    /// What it is charged.
    bytes: usize,
}

/// The watchers of a stream. However its task ends, they leave the hub with it.
struct Watchers {
    hub: Rc<RefCell<Hub>>,
    share: Rc<Share>,
    end: Rc<StreamEnd>,
    by_key: BTreeMap<WatcherKey, Watcher>,
}

impl Drop for Watchers {
    fn drop(&mut self) {
        let mut hub = self.hub.borrow_mut();
        self.end.clear();
        for (key, watcher) in &self.by_key {
            hub.cancel(*key);
            self.share.recharge(Owner::Watchers, watcher.bytes, 0);
        }
    }
}

impl Watchers {
    fn insert(&mut self, key: WatcherKey, watcher: Watcher) {
        self.share.recharge(Owner::Watchers, 0, watcher.bytes);
        self.by_key.insert(key, watcher);
    }

    fn remove(&mut self, key: WatcherKey) -> Option<Watcher> {
        let watcher = self.by_key.remove(&key)?;
        self.share.recharge(Owner::Watchers, watcher.bytes, 0);
        Some(watcher)
    }
}

/// What comes before the events of a response. The header is the same for all watchers that get a
/// revision: it is encoded once.
#[derive(Default)]
struct Heads {
    header: Option<ResponseHeader>,
    /// The encoded header, and behind it the rest of the last response.
    bytes: Vec<u8>,
    header_bytes: usize,
}

impl Heads {
    /// The encoded fields of a response with this header; `rest` has none, and no events.
    fn before_events(&mut self, header: ResponseHeader, rest: &WatchResponse) -> &[u8] {
        if self.header != Some(header) {
            let alone = WatchResponse { header: Some(header), ..WatchResponse::default() };
            self.bytes = alone.encode_to_vec();
            self.header_bytes = self.bytes.len();
            self.header = Some(header);
        }
        self.bytes.truncate(self.header_bytes);
        rest.encode_raw(&mut self.bytes);
        &self.bytes
    }
}

struct WatchStream {
    keyspace: Rc<Keyspace>,
    responder: Responder,
    end: Rc<StreamEnd>,
    watchers: Watchers,
    ids: BTreeMap<i64, WatcherKey>,
    next_id: i64,
    progress_asked: bool,
    heads: Heads,
    tick_every: Duration,
    tick_at: MonoTime,
}

/// What woke the stream's task.
enum Wake {
    Request(Option<Result<Bytes, Status>>),
    Dirty,
    Tick,
    Gone,
}

impl WatchStream {
    /// Serves until the client is gone. A client that has only ended its side stays a watcher.
    async fn serve(&mut self, mut requests: Requests) -> Result<Status, End> {
        let mut half_closed = false;
        loop {
            let wake = match self.at_once(&mut requests) {
                Some(wake) => wake,
                None => self.wait(&mut requests, half_closed).await,
            };
            match wake {
                Wake::Gone => return Err(End::Gone),
                Wake::Request(None) => half_closed = true,
                Wake::Request(Some(message)) => {
                    let request = message.and_then(|bytes| unmarshal(bytes, Mode::Bidi));
                    let request: WatchRequest = request.map_err(End::Status)?;
                    self.handle(request).await?;
                }
                Wake::Dirty => self.deliver_one().await?,
                Wake::Tick => self.tick().await?,
            }
            if self.progress_asked && !self.end.has_dirty() {
                self.progress_asked = false;
                self.answer_progress().await?;
            }
        }
    }

    /// What there is to do without waiting, while events are due: thousands of watchers of one
    /// stream have theirs one after the other, and a wait costs more than a delivery.
    fn at_once(&self, requests: &mut Requests) -> Option<Wake> {
        if !self.end.has_dirty() || self.responder.is_gone() {
            return None;
        }
        Some(requests.try_next().map_or(Wake::Dirty, |message| Wake::Request(Some(message))))
    }

    /// Waits for the next thing to do. A request goes before events, so that a cancel is not held
    /// up by the very stream of events it is to end.
    async fn wait(&mut self, requests: &mut Requests, half_closed: bool) -> Wake {
        let mut gone = pin!(self.responder.gone());
        let mut sleep = pin!(self.keyspace.io.sleep_until(self.tick_at));
        let mut request = pin!(async {
            if half_closed { std::future::pending().await } else { requests.next().await }
        });
        let end = &self.end;
        std::future::poll_fn(|context| {
            if let Poll::Ready(message) = request.as_mut().poll(context) {
                return Poll::Ready(Wake::Request(message));
            }
            if Pin::new(&mut gone).as_mut().poll(context).is_ready() {
                return Poll::Ready(Wake::Gone);
            }
            if end.has_dirty() {
                return Poll::Ready(Wake::Dirty);
            }
            if end.bell.poll_heard(context).is_ready() {
                // The bell only says "look": with nothing to pull, wait on.
                if end.has_dirty() {
                    return Poll::Ready(Wake::Dirty);
                }
                let _ = end.bell.poll_heard(context);
            }
            sleep.as_mut().poll(context).map(|()| Wake::Tick)
        })
        .await
    }

    async fn handle(&mut self, request: WatchRequest) -> Result<(), End> {
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => self.create(create).await,
            Some(RequestUnion::CancelRequest(cancel)) => self.cancel(cancel.watch_id).await,
            Some(RequestUnion::ProgressRequest(_)) => {
                self.progress_asked = true;
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn create(&mut self, create: WatchCreateRequest) -> Result<(), End> {
        let header = self.keyspace.header();
        let range = match self.check(&create) {
            Ok(range) => range,
            Err(reason) => return self.refuse(header, reason).await,
        };
        let id = if create.watch_id == 0 { self.free_id() } else { create.watch_id };
        let wants = |kind: FilterType| create.filters.contains(&i32::from(kind));
        let spec = Spec {
            range,
            no_put: wants(FilterType::Noput),
            no_delete: wants(FilterType::Nodelete),
            prev_kv: create.prev_kv,
        };
        let start = (create.start_revision > 0).then_some(Revision(create.start_revision));
        let key = self.keyspace.hub.borrow_mut().create(&self.end, spec, start);
        self.ids.insert(id, key);
        let watcher = Watcher {
            id,
            progress_notify: create.progress_notify,
            fragment: create.fragment,
            recent: false,
            bytes: WATCHER_BYTES + create.key.len() + create.range_end.len(),
        };
        self.watchers.insert(key, watcher);
        let created = WatchResponse {
            header: Some(header),
            watch_id: id,
            created: true,
            ..WatchResponse::default()
        };
        self.send(&created).await
    }

    /// What makes a create fail, in etcd's order; the range it watches otherwise.
    fn check(&self, create: &WatchCreateRequest) -> Result<KeyRange, &'static str> {
        let key = if create.key.is_empty() { Bytes::from_static(&[0]) } else { create.key.clone() };
        let range = KeyRange::from_wire(&key, &create.range_end);
        if range.is_empty_interval() {
            return Err(NO_RANGE);
        }
        if create.start_revision < 0 {
            return Err(COMPACTED);
        }
        if create.watch_id != 0 && self.ids.contains_key(&create.watch_id) {
            return Err(DUPLICATE_ID);
        }
        if self.watchers.by_key.len() >= WATCHERS_PER_STREAM_MAX {
            return Err(TOO_MANY);
        }
        if self.keyspace.share.pressure() >= Pressure::Over {
            return Err(NO_MEMORY);
        }
        Ok(range)
    }

    async fn refuse(&mut self, header: ResponseHeader, reason: &str) -> Result<(), End> {
        let refused = WatchResponse {
            header: Some(header),
            watch_id: NO_WATCH_ID,
            created: true,
            canceled: true,
            cancel_reason: reason.to_owned(),
            ..WatchResponse::default()
        };
        self.send(&refused).await
    }

    /// Ids go up from 0 and skip those in use; a freed one is not given again.
    fn free_id(&mut self) -> i64 {
        while self.ids.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        self.next_id - 1
    }

    async fn cancel(&mut self, id: i64) -> Result<(), End> {
        let Some(key) = self.ids.remove(&id) else { return Ok(()) };
        self.watchers.remove(key);
        self.keyspace.hub.borrow_mut().cancel(key);
        let canceled = WatchResponse {
            header: Some(self.keyspace.header()),
            watch_id: id,
            canceled: true,
            ..WatchResponse::default()
        };
        self.send(&canceled).await
    }

    /// Pulls and sends for the watcher that has waited longest.
    async fn deliver_one(&mut self) -> Result<(), End> {
        let Some(key) = self.end.next_dirty() else { return Ok(()) };
        let tight = self.keyspace.is_tight();
        let most = if tight { WATCH_RESPONSE_TIGHT_BYTES } else { WATCH_RESPONSE_BYTES };
        let pulled = {
            let state = self.keyspace.replica.state();
            self.keyspace.hub.borrow_mut().pull(key, &state.mvcc, most)
        };
        match pulled {
            Pull::Nothing => Ok(()),
            Pull::Events { header, batch } => self.send_events(key, header, &batch).await,
            Pull::Compacted(revision) => self.send_compacted(key, revision).await,
        }
    }

    async fn send_events(
        &mut self,
        key: WatcherKey,
        header: Revision,
        batch: &Batch,
    ) -> Result<(), End> {
        let header = self.keyspace.header_at(header.0);
        let watcher = self.watchers.by_key.get_mut(&key).expect("only live watchers are pulled");
        watcher.recent = true;
        let mut rest = WatchResponse { watch_id: watcher.id, ..WatchResponse::default() };
        let count = batch.ends.len();
        let limit = self.keyspace.settings.limits.max_request_bytes + 512 * 1024;
        if !watcher.fragment || batch.events.len() < limit || count < 2 {
            let head = self.heads.before_events(header, &rest);
            return Ok(self.responder.send_joined(head, &batch.events).await?);
        }
        let mut from = 0;
        while from < count {
            let to = fragment_end(batch, from, limit);
            rest.fragment = to < count;
            let head = self.heads.before_events(header, &rest);
            self.responder.send_joined(head, &batch.encoded(from, to)).await?;
            from = to;
        }
        Ok(())
    }

    async fn send_compacted(&mut self, key: WatcherKey, revision: Revision) -> Result<(), End> {
        let watcher = self.watchers.remove(key).expect("only live watchers are pulled");
        self.ids.remove(&watcher.id);
        let compacted = WatchResponse {
            header: Some(self.keyspace.header_at(0)),
            watch_id: watcher.id,
            canceled: true,
            compact_revision: revision.0,
            ..WatchResponse::default()
        };
        self.send(&compacted).await
    }

    /// The periodic progress of every watcher that asked for it and has been quiet.
    async fn tick(&mut self) -> Result<(), End> {
        self.tick_at = self.keyspace.io.now() + self.tick_every;
        let revision = self.keyspace.hub.borrow().published();
        let mut quiet = Vec::new();
        for (key, watcher) in &mut self.watchers.by_key {
            let recent = std::mem::replace(&mut watcher.recent, false);
            if watcher.progress_notify && !recent && self.keyspace.hub.borrow().is_synced(*key) {
                quiet.push(watcher.id);
            }
        }
        for id in quiet {
            self.send_progress(id, revision).await?;
        }
        Ok(())
    }

    /// The answer to a progress request: true for every watcher of the stream, or silence.
    async fn answer_progress(&mut self) -> Result<(), End> {
        let revision = {
            let hub = self.keyspace.hub.borrow();
            let synced = self.watchers.by_key.keys().all(|key| hub.is_synced(*key));
            if self.watchers.by_key.is_empty() || !synced {
                return Ok(());
            }
            hub.published()
        };
        self.send_progress(NO_WATCH_ID, revision).await
    }

    async fn send_progress(&mut self, watch_id: i64, revision: Revision) -> Result<(), End> {
        let header = Some(self.keyspace.header_at(revision.0));
        self.send(&WatchResponse { header, watch_id, ..WatchResponse::default() }).await
    }

    async fn send(&mut self, message: &WatchResponse) -> Result<(), End> {
        Ok(self.responder.send(Bytes::from(message.encode_to_vec())).await?)
    }
}

/// The end of the fragment that begins at event `from`: at least one event, as many as fit.
fn fragment_end(batch: &Batch, from: usize, limit: usize) -> usize {
    let start = if from == 0 { 0 } else { batch.ends[from - 1] as usize };
    let fits = |end: u32| end as usize - start < limit;
    let mut to = from + 1;
    while to < batch.ends.len() && fits(batch.ends[to]) {
        to += 1;
    }
    to
}

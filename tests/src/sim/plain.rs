//! Plain stores over the model: one that is right, and many that are wrong in one way each, to show
//! that the checkers can fail.
//!
//! What survives a crash lies in a vault of the thread, outside of every process. A plain store in
//! `Mode::NoFsync` copies itself there now and then and notices by the boot id that power was lost.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use ringbolt_engine::Reason;
use ringbolt_io::local::Bell;
use ringbolt_io::sim::BOOT_ID_PATH;
use ringbolt_io::{AlignedBuffer, Io, MonoTime, OpenHow};
use ringbolt_proto::etcdserverpb::{
    HashKvResponse, LeaseRevokeRequest, LeaseTimeToLiveResponse, RangeRequest,
};
use ringbolt_proto::mvccpb::event::EventType;
use ringbolt_proto::mvccpb::{Event, KeyValue};

use super::evaluate::evaluate;
use super::hashes::hash_kv;
use super::model::{Model, contains};
use super::oracle::Sight;
use super::recovery::Stored;
use super::request::{Failure, Outcome, Request, Response, header};
use super::store::{Message, Mode, Place, Store, WatchSpec};

/// In which way a plain store is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each name says it")]
pub enum Wrong {
    Nothing,
    LosesAcknowledged,
    ReadsThePast,
    ReadsWrongCount,
    TearsTransactions,
    AppliesTwice,
    ForgetsPreviousValue,
    WatchSkips,
    WatchRepeats,
    WatchSplits,
    WatchWrongPrevious,
    WatchSilentAfterCompaction,
    WatchRunsAhead,
    LeaseTooShort,
    LeaseForEver,
    LeaseLost,
    LeaseRises,
    NoFence,
    CompactionForgotten,
    RefusesWithoutReason,
    HashIsWrong,
    LeaseKeysWrong,
    WatchSilent,
}

/// Every way to be wrong, by the number of its store.
pub const WRONGS: [Wrong; 23] = [
    Wrong::Nothing,
    Wrong::LosesAcknowledged,
    Wrong::ReadsThePast,
    Wrong::ReadsWrongCount,
    Wrong::TearsTransactions,
    Wrong::AppliesTwice,
    Wrong::ForgetsPreviousValue,
    Wrong::WatchSkips,
    Wrong::WatchRepeats,
    Wrong::WatchSplits,
    Wrong::WatchWrongPrevious,
    Wrong::WatchSilentAfterCompaction,
    Wrong::WatchRunsAhead,
    Wrong::LeaseTooShort,
    Wrong::LeaseForEver,
    Wrong::LeaseLost,
    Wrong::LeaseRises,
    Wrong::NoFence,
    Wrong::CompactionForgotten,
    Wrong::RefusesWithoutReason,
    Wrong::HashIsWrong,
    Wrong::LeaseKeysWrong,
    Wrong::WatchSilent,
];

#[derive(Clone)]
struct Contents {
    model: Model,
    compacted: i64,
    leases: BTreeMap<i64, i64>,
    boot: Vec<u8>,
    ceiling: i64,
    clean: bool,
}

/// What the page cache has, and what the medium has of it in `Mode::NoFsync`.
#[derive(Clone)]
struct Kept {
    cached: Rc<RefCell<Contents>>,
    stable: Option<Contents>,
}

thread_local! {
    static VAULT: RefCell<BTreeMap<PathBuf, Kept>> = const { RefCell::new(BTreeMap::new()) };
}

/// Empties the vault: a new world begins.
pub fn empty_vault() {
    VAULT.with_borrow_mut(BTreeMap::clear);
}

/// The plain store that is wrong in way number `WRONG` of [`WRONGS`].
pub struct Plain<const WRONG: usize> {
    io: Io,
    place: Place,
    contents: Rc<RefCell<Contents>>,
    deadlines: RefCell<BTreeMap<i64, MonoTime>>,
    hooks: RefCell<Vec<Rc<dyn Fn()>>>,
    bells: RefCell<Vec<Rc<Bell>>>,
    count: Cell<u64>,
}

/// A watcher of a plain store.
pub struct PlainWatch<const WRONG: usize> {
    store: Rc<Plain<WRONG>>,
    spec: WatchSpec,
    next: Cell<i64>,
    bell: Rc<Bell>,
    held: RefCell<Option<Message>>,
    progress: Cell<i64>,
}

const WHOLE: &[u8] = &[0];

impl Contents {
    fn shown(&self, now: MonoTime) -> Stored {
        let revision = self.model.revision();
        let log = self.model.log(self.compacted);
        Stored {
            sight: Sight { revision, compacted: self.compacted, now },
            events: log.map(|(at, events)| (at, events.to_vec())).collect(),
            state: self.model.state(revision),
        }
    }
}

impl<const WRONG: usize> Plain<WRONG> {
    fn is(&self, wrong: Wrong) -> bool {
        WRONGS[WRONG] == wrong
    }

    /// True every few times: a wrong store is mostly right.
    fn now_and_then(&self) -> bool {
        self.count.set(self.count.get() + 1);
        self.count.get().is_multiple_of(7)
    }

    /// The medium gets what the page cache has.
    fn flush(&self) {
        let stable = Some(self.contents.borrow().clone());
        let kept = Kept { cached: self.contents.clone(), stable };
        VAULT.with_borrow_mut(|vault| vault.insert(self.place.directory.clone(), kept));
    }

    /// Shows a change.
    fn publish(&self) {
        let hooks = self.hooks.borrow().clone();
        hooks.iter().for_each(|hook| hook());
        self.bells.borrow().iter().for_each(|bell| bell.ring());
    }

    fn apply(&self, request: &Request) -> Outcome {
        let mut contents = self.contents.borrow_mut();
        let at = contents.model.revision();
        self.allowed(&contents, request).map_err(Failure::Refused)?;
        let effect = evaluate(&contents.model, at, request).map_err(Failure::Refused)?;
        let mut events = effect.events;
        let mut response = effect.response;
        if self.is(Wrong::TearsTransactions) && events.len() > 1 {
            events.pop();
        }
        if !events.is_empty() {
            contents.model.push(at + 1, events.clone()).expect("an effect fits its state");
        }
        match request {
            Request::Grant(grant) => {
                contents.leases.insert(grant.id, grant.ttl);
                self.renew(grant.id, grant.ttl);
            }
            Request::Revoke(revoke) => {
                contents.leases.remove(&revoke.id);
                self.deadlines.borrow_mut().remove(&revoke.id);
            }
            Request::Compact(compact) => contents.compacted = compact.revision,
            Request::TimeToLive(id) => response = self.time_to_live(&contents, *id),
            Request::HashKv(asked) => {
                let revision = if *asked == 0 { at } else { *asked };
                let compact_revision = contents.compacted;
                let hash = hash_kv(&contents.model, revision, compact_revision, false);
                response = Response::HashKv(HashKvResponse {
                    header: header(at),
                    hash: hash ^ u32::from(self.is(Wrong::HashIsWrong)),
                    compact_revision,
                    hash_revision: revision,
                });
            }
            Request::Renew(id) => {
                let risen = self.is(Wrong::LeaseRises);
                let ttl = contents.leases.get(id).copied().or(risen.then_some(5)).unwrap_or(0);
                if ttl > 0 {
                    self.renew(*id, ttl);
                }
                response = Response::Renew(ttl);
            }
            _ => {}
        }
        if self.is(Wrong::AppliesTwice) && matches!(request, Request::Put(_)) && self.now_and_then()
        {
            let again = evaluate(&contents.model, at + 1, request).expect("as before");
            contents.model.push(at + 2, again.events).expect("an effect fits its state");
        }
        drop(contents);
        self.spoil(&mut response);
        self.publish();
        Ok(response)
    }

    fn time_to_live(&self, contents: &Contents, id: i64) -> Response {
        let mut told = LeaseTimeToLiveResponse {
            header: header(contents.model.revision()),
            id,
            ttl: -1,
            ..LeaseTimeToLiveResponse::default()
        };
        let left = self.deadlines.borrow().get(&id).map(|at| at.since(self.io.now()).as_secs());
        if let (Some(left), Some(ttl)) = (left, contents.leases.get(&id)) {
            told.ttl = i64::try_from(left).expect("short");
            told.granted_ttl = *ttl;
            let mut live = contents.model.state(contents.model.revision());
            live.retain(|kv| kv.lease == id);
            told.keys = live.into_iter().map(|kv| kv.key).collect();
            if self.is(Wrong::LeaseKeysWrong) {
                told.keys.pop();
            }
        }
        Response::TimeToLive(told)
    }

    fn spoil(&self, response: &mut Response) {
        match response {
            Response::Put(put) if self.is(Wrong::ForgetsPreviousValue) => put.prev_kv = None,
            Response::Range(range) if self.is(Wrong::ReadsWrongCount) && range.more => {
                range.count = 0;
            }
            _ => {}
        }
    }

    fn allowed(&self, contents: &Contents, request: &Request) -> Result<(), Reason> {
        let at = contents.model.revision();
        let reads = |range: &RangeRequest| match range.revision {
            revision if revision > at => Err(Reason::FutureRevision),
            revision if revision > 0 && revision < contents.compacted => Err(Reason::Compacted),
            _ => Ok(()),
        };
        if self.is(Wrong::RefusesWithoutReason) && self.now_and_then() {
            return Err(Reason::LeaseNotFound);
        }
        match request {
            Request::Range(range) => reads(range),
            Request::HashKv(revision) if *revision > at => Err(Reason::FutureRevision),
            Request::HashKv(revision) if *revision > 0 && *revision < contents.compacted => {
                Err(Reason::Compacted)
            }
            Request::Put(put) if put.lease != 0 && !contents.leases.contains_key(&put.lease) => {
                Err(Reason::LeaseNotFound)
            }
            Request::Compact(compact) if compact.revision > at => Err(Reason::FutureRevision),
            Request::Compact(compact) if compact.revision <= contents.compacted => {
                Err(Reason::Compacted)
            }
            Request::Grant(grant) if contents.leases.contains_key(&grant.id) => {
                Err(Reason::LeaseExists)
            }
            Request::Revoke(revoke) if !contents.leases.contains_key(&revoke.id) => {
                Err(Reason::LeaseNotFound)
            }
            _ => Ok(()),
        }
    }

    fn renew(&self, id: i64, ttl_s: i64) {
        let mut ttl = Duration::from_secs(u64::try_from(ttl_s).expect("a positive time"));
        if self.is(Wrong::LeaseTooShort) {
            ttl /= 2;
        }
        self.deadlines.borrow_mut().insert(id, self.io.now() + ttl);
    }

    async fn tick(self: Rc<Self>) {
        let mut flushed = self.io.now();
        loop {
            self.io.sleep(Duration::from_millis(50)).await;
            if self.contents.borrow().clean {
                return;
            }
            let now = self.io.now();
            let due: Vec<i64> = {
                let deadlines = self.deadlines.borrow();
                deadlines.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect()
            };
            for id in due {
                if !self.is(Wrong::LeaseForEver) {
                    let _ = self.apply(&Request::Revoke(LeaseRevokeRequest { id }));
                }
            }
            if self.place.mode == Mode::NoFsync && now.since(flushed) >= self.place.flush_interval {
                flushed = now;
                self.flush();
            }
        }
    }

    /// What this process finds: the contents to go on with.
    fn found(
        place: &Place,
        boot: &[u8],
        fresh: Contents,
        stored: impl FnOnce(&Contents),
    ) -> Rc<RefCell<Contents>> {
        let kept = VAULT.with_borrow(|vault| vault.get(&place.directory).cloned());
        let Some(Kept { cached, stable }) = kept else {
            stored(&fresh);
            return Rc::new(RefCell::new(fresh));
        };
        let (same_boot, clean, ceiling) = {
            let cached = cached.borrow();
            (cached.boot == boot, cached.clean, cached.ceiling)
        };
        let whole = place.mode == Mode::Safe || same_boot || clean;
        let found = match (place.mode, stable) {
            (Mode::Memory, _) => Rc::new(RefCell::new(fresh)),
            (Mode::NoFsync, Some(stable)) if !whole => Rc::new(RefCell::new(stable)),
            _ => cached,
        };
        let wrong = WRONGS[WRONG];
        let mut contents = found.borrow_mut();
        match wrong {
            Wrong::LosesAcknowledged if contents.model.revision() > 1 => {
                let revision = contents.model.revision() - 1;
                contents.model.truncate(revision);
            }
            Wrong::CompactionForgotten => contents.compacted = -1,
            Wrong::LeaseLost => contents.leases.clear(),
            _ => {}
        }
        stored(&contents);
        if (place.mode == Mode::Memory || !whole) && wrong != Wrong::NoFence {
            contents.model.jump(ceiling);
            contents.compacted = ceiling;
            contents.ceiling = ceiling + (1 << 20);
        }
        contents.boot = boot.to_vec();
        contents.clean = false;
        drop(contents);
        found
    }
}

async fn boot_id(io: &Io) -> Vec<u8> {
    let file = io.disk().open(Path::new(BOOT_ID_PATH), OpenHow::READ).await.expect("it is there");
    let (count, buffer) = file.read_at(AlignedBuffer::zeroed(64), 0).await;
    buffer[..count.expect("it reads")].to_vec()
}

impl<const WRONG: usize> Store for Plain<WRONG> {
    type Watch = PlainWatch<WRONG>;

    async fn open(io: &Io, place: &Place, stored: impl FnOnce(Stored)) -> Result<Rc<Self>, String> {
        let boot = boot_id(io).await;
        let fresh = Contents {
            model: Model::new(),
            compacted: -1,
            leases: BTreeMap::new(),
            boot: boot.clone(),
            ceiling: 1 << 20,
            clean: false,
        };
        let store = Rc::new(Plain {
            io: io.clone(),
            place: place.clone(),
            contents: Self::found(place, &boot, fresh, |contents| stored(contents.shown(io.now()))),
            deadlines: RefCell::default(),
            hooks: RefCell::default(),
            bells: RefCell::default(),
            count: Cell::new(0),
        });
        let leases = store.contents.borrow().leases.clone();
        for (id, ttl) in leases {
            let election = i64::try_from(place.election_timeout.as_secs()).expect("short") + 1;
            store.renew(id, ttl + election);
        }
        store.flush();
        io.spawn("plain", store.clone().tick());
        Ok(store)
    }

    async fn ask(&self, request: Request) -> Outcome {
        let wait = self.io.random_u64() % 3000;
        let stale = self.contents.borrow().model.revision();
        self.io.sleep(Duration::from_micros(wait)).await;
        let outcome = match &request {
            Request::Range(range) if self.is(Wrong::ReadsThePast) => {
                let old = self.contents.borrow().model.answer_range(range, (stale - 1).max(1));
                Ok(Response::Range(old))
            }
            _ => self.apply(&request),
        };
        self.io.sleep(Duration::from_micros(wait / 2)).await;
        outcome
    }

    fn revision(&self) -> i64 {
        self.contents.borrow().model.revision()
    }

    fn compacted(&self) -> i64 {
        self.contents.borrow().compacted
    }

    fn events(&self, from: i64) -> Vec<(i64, Vec<Event>)> {
        let contents = self.contents.borrow();
        contents.model.log(from).map(|(revision, events)| (revision, events.to_vec())).collect()
    }

    fn state(&self) -> Vec<KeyValue> {
        let contents = self.contents.borrow();
        contents.model.range(WHOLE, WHOLE, contents.model.revision())
    }

    fn leases(&self) -> Vec<(i64, i64)> {
        self.contents.borrow().leases.iter().map(|(id, ttl)| (*id, *ttl)).collect()
    }

    fn on_publish(&self, hook: Box<dyn Fn()>) {
        self.hooks.borrow_mut().push(Rc::from(hook));
    }

    fn watch(self: &Rc<Self>, spec: &WatchSpec, start: Option<i64>) -> (i64, Self::Watch) {
        let bell = Rc::new(Bell::default());
        self.bells.borrow_mut().push(bell.clone());
        let revision = self.revision();
        let next = Cell::new(start.unwrap_or(revision + 1));
        let held = RefCell::new(None);
        let watch = PlainWatch {
            store: self.clone(),
            spec: spec.clone(),
            next,
            bell,
            held,
            progress: Cell::new(0),
        };
        (revision, watch)
    }

    async fn next(watch: &Self::Watch) -> Message {
        loop {
            if let Some(message) = watch.look() {
                return message;
            }
            watch.bell.heard().await;
        }
    }

    fn hash(&self) -> Option<(u64, u64)> {
        None
    }

    fn bytes(&self) -> u64 {
        0
    }

    async fn audit(_: &Io, _: &Place, _: &BTreeMap<u64, u64>) -> Result<(), String> {
        Ok(())
    }

    async fn failed(&self) -> String {
        std::future::pending().await
    }

    fn check(&self) {
        assert!(self.compacted() <= self.revision());
    }

    async fn close(&self) {
        self.contents.borrow_mut().clean = true;
        self.flush();
    }
}

impl<const WRONG: usize> PlainWatch<WRONG> {
    fn look(&self) -> Option<Message> {
        if let Some(held) = self.held.borrow_mut().take() {
            return Some(held);
        }
        let contents = self.store.contents.borrow();
        let next = self.next.get();
        if next < contents.compacted && next <= contents.model.revision() {
            if !self.store.is(Wrong::WatchSilentAfterCompaction) {
                self.next.set(i64::MAX);
                return Some(Message::Compacted(contents.compacted));
            }
            self.next.set(contents.compacted);
        }
        for (revision, events) in contents.model.log(self.next.get()) {
            let wanted: Vec<Event> =
                events.iter().filter(|event| self.wants(event)).cloned().collect();
            self.next.set(revision + 1);
            if !wanted.is_empty() {
                return Some(self.tell(&contents.model, revision, wanted));
            }
        }
        let revision = contents.model.revision();
        if self.next.get() <= revision + 1 && self.progress.get() < revision {
            self.progress.set(revision);
            if !self.store.is(Wrong::WatchSilent) {
                return Some(Message::Progress(revision));
            }
        }
        None
    }

    fn tell(&self, model: &Model, revision: i64, mut events: Vec<Event>) -> Message {
        let store = &self.store;
        for event in &mut events {
            let kv = event.kv.clone().unwrap_or_default();
            let wrong = i64::from(store.is(Wrong::WatchWrongPrevious));
            if self.spec.prev_kv && kv.create_revision != revision {
                event.prev_kv = model.get(&kv.key, revision - 1 + wrong).cloned();
            }
        }
        let header = revision;
        if store.is(Wrong::WatchSkips) && events.len() > 1 {
            events.remove(0);
        }
        if store.is(Wrong::WatchRepeats) && store.now_and_then() {
            *self.held.borrow_mut() = Some(Message::Events { header, events: events.clone() });
        }
        if store.is(Wrong::WatchSplits) && events.len() > 1 {
            let rest = events.split_off(1);
            *self.held.borrow_mut() = Some(Message::Events { header, events: rest });
        }
        if store.is(Wrong::WatchRunsAhead) && store.now_and_then() {
            *self.held.borrow_mut() = Some(Message::Progress(model.revision() + 1));
        }
        Message::Events { header, events }
    }

    fn wants(&self, event: &Event) -> bool {
        let key = event.kv.as_ref().map(|kv| kv.key.clone()).unwrap_or_default();
        let kept = match event.r#type() {
            EventType::Put => !self.spec.no_put,
            EventType::Delete => !self.spec.no_delete,
        };
        kept && contains(&self.spec.key, &self.spec.range_end, &key)
    }
}

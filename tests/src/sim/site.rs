//! One keyspace under test: its store, its clients and watchers, its judge. It outlives processes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use ringbolt_io::local::Bell;
use ringbolt_io::sim::Rng;
use ringbolt_io::{Io, MonoTime};

use super::oracle::{Oracle, Sight, Verdict};
use super::recovery::{Ending, Recovery, Stored};
use super::request::Failure;
use super::store::{Message, Place, Store, WatchSpec};
use super::watches::WatchLog;
use super::workload::{Mix, Writer};

/// What a flush takes at most on a simulated disk that is slow: so much older than the flush
/// interval may be what a power loss takes.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// How busy the clients of a keyspace are.
#[derive(Clone, Debug)]
pub struct Load {
    /// Clients at once.
    pub clients: usize,
    /// Watchers at once.
    pub watchers: usize,
    /// Microseconds a client thinks between two requests, at most.
    pub think_us: u64,
    /// Requests of each client in one life; `None` is no end.
    pub requests: Option<u64>,
    /// What they ask.
    pub mix: Mix,
    /// Clients often go away before their answer comes.
    pub cancels: bool,
    /// Watchers often read nothing for a long time.
    pub slow_readers: bool,
    /// Watchers that never read anything.
    pub mute_watchers: usize,
}

/// Watchers that come and go at once in a storm.
const STORM_WATCHERS: usize = 40;
/// Hashes that are kept to be met again.
const HASHES_MAX: usize = 50_000;

/// One keyspace under test.
pub struct Site<S: Store> {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) load: Load,
    pub(super) oracle: RefCell<Oracle>,
    rng: RefCell<Rng>,
    store: RefCell<Weak<S>>,
    watches: RefCell<Vec<WatchLog>>,
    failure: RefCell<Option<String>>,
    before: Cell<(Ending, MonoTime)>,
    /// How far this life has come.
    pub(super) stage: Cell<Stage>,
    /// This life came to serve.
    served: Cell<bool>,
    stopping: Cell<bool>,
    stop: Bell,
    clients_alive: Cell<usize>,
    /// Why the store refused to open or stopped, where a fault allows that.
    pub(super) refused: RefCell<Option<String>>,
    pub(super) requests: Cell<u64>,
    /// Requests that were done.
    pub(super) done: Cell<u64>,
    storm: Bell,
    storms: Cell<u64>,
    /// The rolling hash at indexes at which it was seen.
    hashes: RefCell<BTreeMap<u64, u64>>,
}

/// Of one life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The store is being opened.
    Opening,
    /// Clients are served.
    Serving,
    /// Every client has done its requests.
    Idle,
    /// Closed in good order.
    Closed,
    /// The store refused to open, or stopped.
    Refused,
}

impl<S: Store> Site<S> {
    /// A keyspace that has not begun yet.
    #[must_use]
    pub fn new(name: &str, place: Place, load: Load, mut rng: Rng) -> Rc<Site<S>> {
        let flush_bound = place.flush_interval + FLUSH_TIME_MAX;
        let oracle = Oracle::new(place.mode, flush_bound, place.election_timeout);
        let mut writer = Writer::new(rng.fork(), String::new(), load.mix);
        let watches = (0..load.watchers).map(|_| WatchLog::new(writer.watch_spec(), None));
        let watches = watches.collect();
        Rc::new(Site {
            name: name.to_owned(),
            place,
            load,
            oracle: RefCell::new(oracle),
            rng: RefCell::new(rng),
            store: RefCell::new(Weak::new()),
            watches: RefCell::new(watches),
            failure: RefCell::new(None),
            before: Cell::new((Ending::Fresh, MonoTime(0))),
            stage: Cell::new(Stage::Opening),
            served: Cell::new(false),
            stopping: Cell::new(false),
            stop: Bell::default(),
            clients_alive: Cell::new(0),
            refused: RefCell::new(None),
            requests: Cell::new(0),
            done: Cell::new(0),
            storm: Bell::default(),
            storms: Cell::new(0),
            hashes: RefCell::default(),
        })
    }

    /// What went wrong first.
    pub fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    /// What is wrong while a run waits for one of these stages: a store that refuses comes to no
    /// other one.
    pub(super) fn wrong_at(&self, stages: &[Stage]) -> Option<String> {
        let refuses = self.stage.get() == Stage::Refused && !stages.contains(&Stage::Refused);
        let why = if refuses { self.refused.borrow().clone() } else { None };
        self.failure().or(why.map(|why| format!("keyspace {} refuses: {why}", self.name)))
    }

    /// Puts a verdict on record; the first one that fails counts.
    pub(super) fn judge(&self, verdict: Verdict) {
        if let Err(wrong) = verdict {
            let name = &self.name;
            let mode = self.place.mode;
            self.failure.borrow_mut().get_or_insert(format!("keyspace {name} ({mode:?}): {wrong}"));
        }
    }

    /// The process ended at `now` of its clock.
    pub(super) fn ended(&self, ending: Ending, now: MonoTime) {
        let (before, ended) = self.before.get();
        let served = self.served.replace(false);
        let ending = match before {
            // It never came to serve: what the life before it may have lost is still to be judged.
            Ending::PowerLost if !served => (Ending::PowerLost, ended),
            Ending::Closed | Ending::Killed if !served => (ending, ended),
            _ => (ending, now),
        };
        if served {
            self.oracle.borrow_mut().crashed(now);
        }
        *self.store.borrow_mut() = Weak::new();
        self.before.set(ending);
        self.stage.set(Stage::Opening);
        self.stopping.set(false);
        self.clients_alive.set(0);
        *self.refused.borrow_mut() = None;
    }

    /// The clock goes on by `span` in which nothing of the process runs.
    pub(super) fn skipped(&self, span: Duration) {
        self.oracle.borrow_mut().skipped(span);
    }

    /// Every watcher goes away and comes back, and many others with them.
    pub(super) fn storm(&self) {
        self.storm.ring();
    }

    /// Asks clients to finish, and the store to close after them.
    pub(super) fn stop(&self) {
        self.stopping.set(true);
        self.stop.ring();
    }

    /// Asks clients to finish.
    pub(super) fn quiet(&self) {
        self.stopping.set(true);
    }

    /// The store, while a process has it open.
    pub(super) fn store(&self) -> Option<Rc<S>> {
        self.store.borrow().upgrade()
    }

    fn sight(store: &S, io: &Io) -> Sight {
        Sight { revision: store.revision(), compacted: store.compacted(), now: io.now() }
    }

    /// The life of the keyspace in one process: open, serve, close.
    pub(super) async fn live(self: Rc<Self>, io: Io) {
        let asked_at = io.now();
        let (before, ended) = self.before.get();
        let site = self.clone();
        let show = move |stored: Stored| {
            if !Oracle::is_lossless(site.place.mode, before) {
                site.hashes.borrow_mut().clear();
            }
            site.judge(site.oracle.borrow_mut().stored(&stored, before, ended));
        };
        let store = match S::open(&io, &self.place, show).await {
            Ok(store) => store,
            Err(why) => {
                *self.refused.borrow_mut() = Some(why);
                self.stage.set(Stage::Refused);
                return;
            }
        };
        let sight = Self::sight(&store, &io);
        let recovery = Recovery { asked_at, sight, state: store.state(), leases: store.leases() };
        self.judge(self.oracle.borrow_mut().recovered(&recovery, before));
        self.hear(&store, &io);
        *self.store.borrow_mut() = Rc::downgrade(&store);
        self.served.set(true);
        self.stage.set(Stage::Serving);
        self.spawn_all(&io, &store);
        self.stop.heard().await;
        while self.clients_alive.get() > 0 {
            io.sleep(Duration::from_millis(1)).await;
        }
        store.check();
        store.close().await;
        self.stage.set(Stage::Closed);
    }

    /// Judges what the store publishes from now on.
    fn hear(self: &Rc<Self>, store: &Rc<S>, io: &Io) {
        let (site, weak, clock) = (self.clone(), Rc::downgrade(store), io.clone());
        store.on_publish(Box::new(move || {
            let Some(store) = weak.upgrade() else { return };
            let sight = Self::sight(&store, &clock);
            let mut oracle = site.oracle.borrow_mut();
            let known = oracle.model().revision();
            site.judge(oracle.published(&sight, store.events(known + 1)));
            let mut hashes = site.hashes.borrow_mut();
            hashes.extend(store.hash());
            if hashes.len() > HASHES_MAX {
                hashes.pop_first();
            }
        }));
    }

    fn spawn_all(self: &Rc<Self>, io: &Io, store: &Rc<S>) {
        for number in 0..self.load.clients {
            let rng = self.rng.borrow_mut().fork();
            let name = format!("{number}.{}", self.requests.get());
            let writer = Writer::new(rng, name, self.load.mix);
            self.clients_alive.set(self.clients_alive.get() + 1);
            io.spawn("client", self.clone().client(io.clone(), store.clone(), writer));
        }
        let (site, clock, failing) = (self.clone(), io.clone(), store.clone());
        io.spawn("end of the store", async move {
            let cause = failing.failed().await;
            site.stopped(&clock, &cause);
        });
        io.spawn("storms", self.clone().storms(io.clone(), store.clone()));
        for _ in 0..self.load.mute_watchers {
            let mut spec = Writer::new(self.rng.borrow_mut().fork(), String::new(), self.load.mix);
            let spec = spec.watch_spec();
            let (_, watch) = store.watch(&spec, None);
            io.spawn("mute watcher", async move {
                let _held = watch;
                std::future::pending::<()>().await;
            });
        }
        for number in 0..self.load.watchers {
            let rng = self.rng.borrow_mut().fork();
            let writer = Writer::new(rng, String::new(), self.load.mix);
            io.spawn("watcher", self.clone().watcher(io.clone(), store.clone(), number, writer));
        }
    }

    /// In a storm many watchers come, read a little from some past revision on, and go.
    async fn storms(self: Rc<Self>, io: Io, store: Rc<S>) {
        loop {
            self.storm.heard().await;
            self.storms.set(self.storms.get() + 1);
            for _ in 0..STORM_WATCHERS {
                let rng = self.rng.borrow_mut().fork();
                let mut writer = Writer::new(rng, String::new(), self.load.mix);
                let start = writer.watch_start(&self.oracle.borrow());
                let floor = self.oracle.borrow().floor();
                let mut log = WatchLog::new(writer.watch_spec(), start);
                let (header, watch) = store.watch(&log.spec, start);
                let verdict = log.created(header, floor, self.oracle.borrow().model());
                self.judge(verdict);
                let span = Duration::from_micros(writer.rng().below(300));
                let Some(message) = io.timeout(span, S::next(&watch)).await else { continue };
                let (oracle, compacted) = (self.oracle.borrow(), store.compacted());
                let verdict = log.told(&message, oracle.model(), compacted);
                drop(oracle);
                self.judge(verdict.map_err(|wrong| format!("watcher in a storm: {wrong}")));
            }
        }
    }

    async fn client(self: Rc<Self>, io: Io, store: Rc<S>, mut writer: Writer) {
        let mut left = self.load.requests.unwrap_or(u64::MAX);
        while left > 0 && !self.stopping.get() && self.stage.get() == Stage::Serving {
            left -= 1;
            let think = writer.rng().below(self.load.think_us + 1);
            if !think.is_multiple_of(3) {
                io.sleep(Duration::from_micros(think)).await;
            }
            if !self.request(&io, &store, &mut writer).await {
                self.stopped(&io, "it stopped");
            }
        }
        self.clients_alive.set(self.clients_alive.get() - 1);
        if self.clients_alive.get() == 0 && self.stage.get() == Stage::Serving {
            self.stage.set(Stage::Idle);
        }
    }

    /// The store stopped by itself: nobody is served any more.
    fn stopped(&self, io: &Io, cause: &str) {
        *self.refused.borrow_mut() = Some(cause.to_owned());
        self.stage.set(Stage::Refused);
        self.oracle.borrow_mut().stopped(io.now());
    }

    /// One request from call to verdict; false when the store has stopped.
    async fn request(&self, io: &Io, store: &Rc<S>, writer: &mut Writer) -> bool {
        let (request, id) = {
            let mut oracle = self.oracle.borrow_mut();
            let request = writer.request(&oracle);
            let id = oracle.call(&request, io.now());
            (request, id)
        };
        self.requests.set(self.requests.get() + 1);
        // Now and then a client goes away before its answer comes.
        let impatient = self.load.cancels && writer.rng().below(12) == 0;
        let outcome = if impatient {
            let patience = Duration::from_micros(writer.rng().below(2000));
            io.timeout(patience, store.ask(request)).await.unwrap_or(Err(Failure::Unknown))
        } else {
            store.ask(request).await
        };
        let sight = Self::sight(store, io);
        self.done.set(self.done.get() + u64::from(outcome.is_ok()));
        self.judge(self.oracle.borrow_mut().returned(id, &outcome, &sight));
        outcome != Err(Failure::Stopped)
    }

    async fn watcher(self: Rc<Self>, io: Io, store: Rc<S>, number: usize, mut writer: Writer) {
        loop {
            let (spec, start, floor) = self.watch_place(number, &mut writer);
            let (header, watch) = store.watch(&spec, start);
            self.judge_watch(number, |log, oracle| log.created(header, floor, oracle.model()));
            // A client that resumes now and then, reads slowly now and then.
            let messages = writer.rng().between((1, 60));
            let storms = self.storms.get();
            for _ in 0..messages {
                if self.storms.get() != storms {
                    break;
                }
                if writer.rng().below(10) == 0 && !self.stopping.get() {
                    let longest = if self.load.slow_readers { 3_000 } else { 30 };
                    io.sleep(Duration::from_millis(writer.rng().below(longest))).await;
                }
                let message = S::next(&watch).await;
                let compacted = store.compacted();
                let over = matches!(message, Message::Compacted(_));
                self.judge_watch(number, |log, oracle| {
                    log.told(&message, oracle.model(), compacted)
                });
                if over {
                    break;
                }
            }
        }
    }

    /// Where watcher `number` starts or goes on.
    fn watch_place(&self, number: usize, writer: &mut Writer) -> (WatchSpec, Option<i64>, i64) {
        let oracle = self.oracle.borrow();
        let mut watches = self.watches.borrow_mut();
        let log = &mut watches[number];
        if log.next.is_none() {
            log.next = writer.watch_start(&oracle);
        }
        (log.spec.clone(), log.next, oracle.floor())
    }

    fn judge_watch(&self, number: usize, act: impl FnOnce(&mut WatchLog, &Oracle) -> Verdict) {
        let oracle = self.oracle.borrow();
        let mut watches = self.watches.borrow_mut();
        let log = &mut watches[number];
        let verdict = act(log, &oracle);
        let spec = log.spec.clone();
        self.judge(verdict.map_err(|wrong| format!("watcher {number} {spec:?}: {wrong}")));
    }

    /// Everybody has been idle for longer than any lease lives: nothing may be owed to anybody.
    pub(super) fn judge_quiet(&self) {
        let Some(store) = self.store() else { return };
        let mut oracle = self.oracle.borrow_mut();
        self.judge(oracle.settle());
        self.judge(oracle.leases_over(&store.leases()));
        for (number, log) in self.watches.borrow().iter().enumerate() {
            let verdict = log.finished(oracle.model());
            self.judge(verdict.map_err(|wrong| format!("watcher {number} at the end: {wrong}")));
        }
        let (bytes, bound) = (store.bytes(), oracle.bytes_bound());
        if bytes > bound {
            self.judge(Err(format!("{bytes} bytes for what takes {bound} at most")));
        }
        let state = store.state();
        if state != oracle.model().state(oracle.model().revision()) {
            self.judge(Err("the state at the end is another one".to_owned()));
        }
        store.check();
    }

    /// The life of the keyspace in the last process: nothing is served, all is replayed.
    pub(super) async fn audit(self: Rc<Self>, io: Io) {
        let hashes = self.hashes.borrow().clone();
        let verdict = S::audit(&io, &self.place, &hashes).await;
        self.judge(verdict.map_err(|wrong| format!("replayed: {wrong}")));
        self.stage.set(Stage::Closed);
    }

    /// Events that watchers were given.
    pub(super) fn events_count(&self) -> u64 {
        self.watches.borrow().iter().map(|log| log.events_count).sum()
    }
}

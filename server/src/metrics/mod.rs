//! Counters of one keyspace and the text of `/metrics`.
//!
//! Everything here lives on the keyspace's shard as plain cells. Gauges are read from the replica
//! when somebody scrapes, so the path of a request touches nothing but a few counters.

pub mod count;
pub mod rpc;
pub mod text;

mod catalogue;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ringbolt_engine::replica::{Observation, Replica};
use ringbolt_engine::watch::Hub;
use ringbolt_proto::etcdserverpb::TxnResponse;
use ringbolt_proto::etcdserverpb::response_op::Response;

use crate::budget::Held;
use crate::config::Config;
use crate::config::gates::Gates;
use crate::config::keyspace::{Fsync, Keyspace};
use crate::config::number::GoDuration;
use crate::log;
use count::{Counter, Histogram};
use rpc::Rpcs;

/// Operations on keys that were done for clients.
#[derive(Debug, Default)]
pub struct KeyCounts {
    /// Puts, those in transactions included.
    pub puts: Counter,
    /// Deletes, those in transactions included.
    pub deletes: Counter,
    /// Ranges, those in transactions included.
    pub ranges: Counter,
    /// Transactions of more than one operation.
    pub txns: Counter,
}

impl KeyCounts {
    /// Counts what a transaction did, the transactions in it included.
    pub fn count_txn(&self, response: &TxnResponse) {
        if self.count_operations(response) > 1 {
            self.txns.increment();
        }
    }

    /// Nesting is bounded by what the request's check admits.
    fn count_operations(&self, response: &TxnResponse) -> usize {
        let mut count = 0;
        for operation in response.responses.iter().filter_map(|one| one.response.as_ref()) {
            count += 1;
            match operation {
                Response::ResponseRange(_) => self.ranges.increment(),
                Response::ResponsePut(_) => self.puts.increment(),
                Response::ResponseDeleteRange(_) => self.deletes.increment(),
                Response::ResponseTxn(inner) => count += self.count_operations(inner),
            }
        }
        count
    }
}

/// What is known of the keyspace before it is open.
struct About {
    keyspace: String,
    fsync: Fsync,
    quota_bytes: u64,
    gates: Gates,
    io_engine: &'static str,
}

/// `livez` or `readyz`, and the check's own name.
type CheckName = (&'static str, &'static str);

/// Counters of one keyspace. They live on its shard.
pub struct Metrics {
    about: About,
    /// gRPC calls.
    pub rpcs: Rc<Rpcs>,
    /// Operations on keys.
    pub keys: Rc<KeyCounts>,
    stages: Stages,
    health: [Counter; 2],
    /// By kind and name: failures, successes, whether the last one succeeded.
    checks: RefCell<BTreeMap<CheckName, (u64, u64, bool)>>,
    scrapes: Counter,
    census: RefCell<Option<Census>>,
}

/// Gauges that others keep, looked at when somebody scrapes.
pub type Census = Box<dyn Fn() -> Population>;

/// How many of what there are now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Population {
    /// Connections on the home shard of the keyspace.
    pub connections_home: usize,
    /// Its connections on other shards.
    pub connections_away: usize,
    /// Its part of the memory budget, on all shards.
    pub budget_bytes: usize,
    /// What its clients make the process hold.
    pub held: Held,
}

/// What the replica's stage clock told.
struct Stages {
    queued: Histogram,
    durable: Histogram,
    applied: Histogram,
    log_write: Histogram,
    turn_apply: Histogram,
    checkpoint: Histogram,
    checkpoint_bytes: Counter,
    slow_applies: Counter,
    /// By what was asked for and whether it was done.
    entries: RefCell<BTreeMap<(&'static str, bool), Histogram>>,
}

impl Metrics {
    /// Counters at zero.
    #[must_use]
    pub fn new(config: &Config, keyspace: &Keyspace, io_engine: &'static str) -> Rc<Metrics> {
        let about = About {
            keyspace: keyspace.name.clone(),
            fsync: keyspace.fsync,
            quota_bytes: keyspace.quota_bytes.unwrap_or(0),
            gates: config.feature_gates.clone(),
            io_engine,
        };
        let stage = || Histogram::exponential(0.000_01, 2.0, 20);
        let disk = || Histogram::exponential(0.001, 2.0, 14);
        let stages = Stages {
            queued: stage(),
            durable: stage(),
            applied: stage(),
            log_write: disk(),
            turn_apply: disk(),
            checkpoint: Histogram::exponential(0.01, 2.0, 17),
            checkpoint_bytes: Counter::default(),
            slow_applies: Counter::default(),
            entries: RefCell::default(),
        };
        Rc::new(Metrics {
            about,
            rpcs: Rc::new(Rpcs::new(config.metrics_extensive)),
            keys: Rc::new(KeyCounts::default()),
            stages,
            health: Default::default(),
            checks: RefCell::default(),
            scrapes: Counter::default(),
            census: RefCell::default(),
        })
    }

    /// From now on gauges of connections come from `census`.
    pub fn look_at(&self, census: Census) {
        *self.census.borrow_mut() = Some(census);
    }

    /// Takes what the replica's stage clock tells. An apply slower than `slow` is counted.
    pub fn observe(self: &Rc<Self>, replica: &Replica, slow: std::time::Duration) {
        let metrics = Rc::downgrade(self);
        replica.on_observe(move |observation| {
            let Some(metrics) = metrics.upgrade() else { return };
            let stages = &metrics.stages;
            match observation {
                Observation::Proposal(times) => {
                    stages.queued.observe_time(times.proposed.since(times.queued));
                    stages.durable.observe_time(times.durable.since(times.proposed));
                    stages.applied.observe_time(times.applied.since(times.durable));
                }
                Observation::Entry { name, success, took } => {
                    let mut entries = stages.entries.borrow_mut();
                    let fresh = || Histogram::exponential(0.0001, 2.0, 20);
                    entries.entry((name, *success)).or_insert_with(fresh).observe_time(*took);
                }
                Observation::Durable(took) => stages.log_write.observe_time(*took),
                Observation::Applied { took, count } => {
                    stages.turn_apply.observe_time(*took);
                    if *took > slow {
                        stages.slow_applies.increment();
                        let fields = vec![
                            ("took", GoDuration::of(*took).to_string().into()),
                            ("expected-duration", GoDuration::of(slow).to_string().into()),
                            ("entries", (*count).into()),
                        ];
                        log::warn("apply request took too long", fields);
                    }
                }
                Observation::Checkpoint { bytes, took } => {
                    stages.checkpoint.observe_time(*took);
                    stages.checkpoint_bytes.add(*bytes);
                }
            }
        });
    }

    /// The whole text of `/metrics`.
    #[must_use]
    pub fn render(&self, replica: &Replica, hub: &Hub) -> String {
        let text = catalogue::render(self, replica, hub);
        self.scrapes.increment();
        text
    }

    /// Counts the outcome of `/health`.
    pub fn count_health(&self, healthy: bool) {
        self.health[usize::from(healthy)].increment();
    }

    /// Counts one check of `/livez` or `/readyz`.
    pub fn count_check(&self, kind: &'static str, name: &'static str, passed: bool) {
        let mut checks = self.checks.borrow_mut();
        let counts = checks.entry((kind, name)).or_default();
        if passed {
            counts.1 += 1;
        } else {
            counts.0 += 1;
        }
        counts.2 = passed;
    }
}

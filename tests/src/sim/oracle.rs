//! The judge of one keyspace: it hears every call, answer, publication and recovery, and says what
//! cannot be.
//!
//! The witness is the revision. Every change that happened has exactly one revision; what a
//! revision holds is taken from what the store publishes, checked against the state before it, and
//! must be explained by exactly one request (or the end of a lease). An answer must be what its
//! request gives at the revision in its header, and that revision must lie between what was known
//! when the request was made and what is known when it is answered. That is strict serializability.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ringbolt_engine::Reason;
use ringbolt_io::MonoTime;
use ringbolt_proto::etcdserverpb::{HashKvResponse, LeaseRevokeRequest, LeaseTimeToLiveResponse};
use ringbolt_proto::mvccpb::{Event, KeyValue};

use super::evaluate::{Effect, evaluate};
use super::hashes::hash_kv;
use super::leases::{Known, LeaseBook};
use super::model::{Model, strip};
use super::recovery::Fence;
use super::request::{Failure, Outcome, Request, Response};
use super::store::Mode;

/// A request that is no larger than this is never too large. The limit itself counts the encoding
/// of the store.
const REQUEST_BYTES_SURE: usize = 55 * 1024;

/// What a version or a lease costs at most beside its bytes.
const RECORD_BYTES_SURE: u64 = 512;

/// A verdict: what cannot be.
pub type Verdict = Result<(), String>;

/// A request somebody made.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) request: Request,
    /// The revision that had been shown to somebody when it was made.
    floor: i64,
    compacted_floor: i64,
    at: MonoTime,
    lease: Known,
    /// A grant of a lease that nobody can have.
    fresh: bool,
}

/// What the store says of itself at one moment.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    /// Its revision.
    pub revision: i64,
    /// Its compacted revision.
    pub compacted: i64,
    /// The machine's monotonic clock.
    pub now: MonoTime,
}

/// The judge of one keyspace.
pub struct Oracle {
    pub(super) mode: Mode,
    pub(super) flush_bound: Duration,
    pub(super) election: Duration,
    pub(super) model: Model,
    pub(super) leases: LeaseBook,
    next_call: u64,
    pending: BTreeMap<u64, Call>,
    /// Calls whose end nobody knows: they may still happen in this life.
    pub(super) unknown: BTreeMap<u64, Call>,
    /// Revisions nobody has claimed yet, with the moment they were published.
    pub(super) unclaimed: BTreeMap<i64, MonoTime>,
    /// When revisions of this life were published: what a flush must have covered.
    pub(super) published: Vec<(MonoTime, i64)>,
    pub(super) floor: i64,
    pub(super) compacted_floor: i64,
    pub(super) compactions: BTreeSet<i64>,
    /// It has served before.
    pub(super) opened: bool,
    /// The highest revision of the life before: nothing may be below it.
    pub(super) highest: i64,
    pub(super) fence: Fence,
    /// When the store stopped in this life.
    pub(super) stopped: Option<MonoTime>,
    checks: u64,
}

impl Oracle {
    /// A judge of a store in `mode`. `flush_bound` is how old what a power loss takes may be at
    /// most, `election` the election timeout.
    #[must_use]
    pub fn new(mode: Mode, flush_bound: Duration, election: Duration) -> Oracle {
        Oracle {
            mode,
            flush_bound,
            election,
            model: Model::new(),
            leases: LeaseBook::default(),
            next_call: 0,
            pending: BTreeMap::new(),
            unknown: BTreeMap::new(),
            unclaimed: BTreeMap::new(),
            published: Vec::new(),
            floor: 0,
            compacted_floor: -1,
            compactions: BTreeSet::from([-1]),
            opened: false,
            highest: 0,
            fence: Fence::default(),
            stopped: None,
            checks: 0,
        }
    }

    /// How many answers were judged.
    #[must_use]
    pub fn checks(&self) -> u64 {
        self.checks
    }

    /// The highest revision somebody was shown.
    #[must_use]
    pub fn floor(&self) -> i64 {
        self.floor
    }

    /// Bytes a store may take at most for what it has to keep: history since the compaction, live
    /// keys, leases, and what each costs beside its bytes.
    #[must_use]
    pub fn bytes_bound(&self) -> u64 {
        let cost = |kv: &KeyValue| (kv.key.len() + kv.value.len()) as u64 + RECORD_BYTES_SURE;
        let history = self.model.log(self.compacted_floor).flat_map(|(_, events)| events);
        let history: u64 = history.filter_map(|event| event.kv.as_ref()).map(cost).sum();
        // A read at the compacted revision itself is answered, too.
        let live = |at: i64| self.model.state(at).iter().map(cost).sum::<u64>();
        let live = live(self.compacted_floor) + live(self.model.revision());
        let leases = self.leases.maybe_alive().count() as u64 * RECORD_BYTES_SURE;
        history + live + leases + 64 * RECORD_BYTES_SURE
    }

    /// The highest compacted revision somebody was shown.
    #[must_use]
    pub fn compacted(&self) -> i64 {
        self.compacted_floor
    }

    /// What is known of the state.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Leases that may be there.
    #[must_use]
    pub fn lease_ids(&self) -> Vec<i64> {
        self.leases.maybe_alive().collect()
    }

    /// A client makes a request.
    pub fn call(&mut self, request: &Request, now: MonoTime) -> u64 {
        let lease = lease_of(request);
        let fresh = lease.is_none_or(|id| self.leases.is_dead(id));
        match request {
            Request::Grant(request) => self.leases.grant_called(request.id, request.ttl),
            Request::Revoke(request) => self.leases.revoke_called(request.id),
            Request::Compact(request) => {
                self.compactions.insert(request.revision);
            }
            Request::Renew(id) => self.leases.renew_called(*id),
            _ => {}
        }
        let call = Call {
            request: request.clone(),
            floor: self.floor,
            compacted_floor: self.compacted_floor,
            at: now,
            lease: lease.map(|id| self.leases.known(id, now)).unwrap_or_default(),
            fresh,
        };
        self.next_call += 1;
        self.pending.insert(self.next_call, call);
        self.next_call
    }

    /// The store made its state visible: `events` are the revisions above what was known.
    ///
    /// # Errors
    /// What cannot be.
    pub fn published(&mut self, sight: &Sight, events: Vec<(i64, Vec<Event>)>) -> Verdict {
        for (revision, events) in events {
            self.model.push(revision, events)?;
            self.unclaimed.insert(revision, sight.now);
        }
        let known = self.model.revision();
        if known != sight.revision {
            return Err(format!("events up to {known}, but the revision is {}", sight.revision));
        }
        self.published.push((sight.now, sight.revision));
        self.see_compaction(sight.compacted)
    }

    pub(super) fn see_compaction(&mut self, compacted: i64) -> Verdict {
        if compacted < self.compacted_floor {
            let floor = self.compacted_floor;
            return Err(format!("compacted went back from {floor} to {compacted}"));
        }
        if !self.compactions.contains(&compacted) {
            return Err(format!("compacted at {compacted}, which nobody asked for"));
        }
        Ok(())
    }

    /// A client is told how its request ended.
    ///
    /// # Errors
    /// What cannot be.
    pub fn returned(&mut self, id: u64, outcome: &Outcome, sight: &Sight) -> Verdict {
        let call = self.pending.remove(&id).expect("a call returns once");
        self.checks += 1;
        let verdict = match outcome {
            Ok(response) => self.judge(&call, response, sight),
            Err(Failure::Refused(reason)) => self.judge_refusal(&call, *reason, sight),
            Err(Failure::Unknown | Failure::Stopped) => {
                self.unknown.insert(id, call.clone());
                Ok(())
            }
        };
        verdict.map_err(|wrong| {
            format!("{wrong}\n  request: {:?}\n  floor {}: {outcome:?}", call.request, call.floor)
        })
    }

    fn judge(&mut self, call: &Call, response: &Response, sight: &Sight) -> Verdict {
        if let (Request::Renew(id), Response::Renew(ttl)) = (&call.request, response) {
            return self.leases.renewed(*id, *ttl, (call.at, call.lease), sight.now);
        }
        let revision = response.revision().ok_or("an answer without a revision")?;
        if revision < call.floor || revision > sight.revision {
            let (low, high) = (call.floor, sight.revision);
            return Err(format!("revision {revision} is not in {low}..={high}"));
        }
        match response {
            Response::TimeToLive(told) => return self.judge_left(call, told, sight),
            Response::HashKv(told) => return self.judge_hash(call, told, sight),
            _ => {}
        }
        let request = &call.request;
        let changing = self.change_at(call, revision);
        let right = match &changing {
            Some(effect) if same_answer(request, &effect.response, response) => {
                self.claim(revision)?;
                true
            }
            _ => match evaluate(&self.model, revision, request) {
                Ok(still) => {
                    still.events.is_empty() && same_answer(request, &still.response, response)
                }
                Err(_) => false,
            },
        };
        if !right {
            let still = evaluate(&self.model, revision, request);
            return Err(format!("right would be {changing:?} or unchanged {still:?}"));
        }
        self.floor = self.floor.max(revision);
        self.judge_side(call, response, sight)
    }

    /// What the request gives when it made this revision; `None` when it cannot have.
    fn change_at(&self, call: &Call, revision: i64) -> Option<Effect> {
        if revision <= call.floor || matches!(call.request, Request::Range(_)) {
            return None;
        }
        let effect = evaluate(&self.model, revision - 1, &call.request).ok()?;
        let made = !effect.events.is_empty() && effect.events == self.model.events(revision);
        let free = self.unclaimed.contains_key(&revision);
        (made && free).then_some(effect)
    }

    fn claim(&mut self, revision: i64) -> Verdict {
        match self.unclaimed.remove(&revision) {
            Some(_) => Ok(()),
            None => Err(format!("revision {revision} has two owners")),
        }
    }

    /// Leases and compactions: what an answer says beyond the keys.
    fn judge_side(&mut self, call: &Call, response: &Response, sight: &Sight) -> Verdict {
        match (&call.request, response) {
            (Request::Grant(request), _) => {
                if self.leases.was_alive(request.id, call.lease, sight.now) {
                    return Err(format!("lease {} was granted while it lives", request.id));
                }
                self.leases.granted(request.id, call.at, sight.now);
            }
            (Request::Revoke(request), _) => {
                if self.leases.was_dead(request.id, call.lease) {
                    return Err(format!("lease {} was revoked twice", request.id));
                }
                self.leases.revoked(request.id, call.lease);
            }
            (Request::Compact(request), _) => {
                if request.revision <= call.compacted_floor || sight.compacted < request.revision {
                    return Err("a compaction that is none".to_owned());
                }
                self.compacted_floor = self.compacted_floor.max(request.revision);
            }
            (Request::Range(request), _)
                if request.revision > 0 && request.revision < call.compacted_floor =>
            {
                return Err("a read below the compacted revision".to_owned());
            }
            (Request::Put(request), _)
                if request.lease != 0 && self.leases.was_dead(request.lease, call.lease) =>
            {
                return Err(format!("a key was put under the dead lease {}", request.lease));
            }
            _ => {}
        }
        Ok(())
    }

    fn judge_refusal(&mut self, call: &Call, reason: Reason, sight: &Sight) -> Verdict {
        let possible = match (reason, &call.request) {
            (Reason::Compacted, Request::Range(request)) => {
                request.revision > 0 && request.revision < sight.compacted
            }
            (Reason::Compacted, Request::Compact(request)) => request.revision <= sight.compacted,
            (Reason::Compacted, Request::HashKv(revision)) => *revision < sight.compacted,
            (Reason::FutureRevision, Request::HashKv(revision)) => *revision > call.floor,
            (Reason::FutureRevision, Request::Range(request)) => request.revision > call.floor,
            (Reason::FutureRevision, Request::Compact(request)) => request.revision > call.floor,
            (Reason::LeaseNotFound, request) => {
                let id = lease_of(request);
                id.is_some_and(|id| !self.leases.was_alive(id, call.lease, sight.now))
            }
            (Reason::LeaseExists, Request::Grant(request)) => {
                !(call.fresh && self.leases.is_only_grant(request.id, call.lease))
            }
            (Reason::KeyNotFound, request) => (call.floor..=sight.revision)
                .any(|at| evaluate(&self.model, at, request).err() == Some(reason)),
            (Reason::RequestTooLarge, request) => request.encoded_len() > REQUEST_BYTES_SURE,
            (Reason::TooManyRequests | Reason::NoSpace, _) => true,
            _ => false,
        };
        match &call.request {
            Request::Grant(request) => self.leases.grant_refused(request.id),
            Request::Revoke(request) => self.leases.revoke_refused(request.id),
            _ => {}
        }
        if possible { Ok(()) } else { Err(format!("no reason for {reason:?}")) }
    }

    fn judge_left(&self, call: &Call, told: &LeaseTimeToLiveResponse, sight: &Sight) -> Verdict {
        let id = told.id;
        if told.ttl < 0 {
            return match self.leases.was_alive(id, call.lease, sight.now) {
                true => Err(format!("lease {id} was called gone within its time")),
                false => Ok(()),
            };
        }
        let mut keys = told.keys.clone();
        keys.sort();
        let at = told.header.as_ref().map_or(0, |header| header.revision);
        let mut due = self.model.state(at);
        due.retain(|kv| kv.lease == id);
        if !due.iter().map(|kv| &kv.key).eq(keys.iter()) {
            return Err(format!("lease {id} has the keys {due:?}"));
        }
        self.leases.told_left(id, (told.ttl, told.granted_ttl), call.lease, sight.now)
    }

    fn judge_hash(&self, call: &Call, told: &HashKvResponse, sight: &Sight) -> Verdict {
        let asked = match call.request {
            Request::HashKv(asked) if asked != 0 => asked,
            _ => told.header.as_ref().map_or(0, |header| header.revision),
        };
        let compacted = told.compact_revision;
        let now = (call.compacted_floor..=sight.compacted).contains(&compacted);
        let remembered = !now && compacted < asked && self.compactions.contains(&asked);
        if told.hash_revision != asked || !(now || remembered) {
            return Err(format!("a hash of {asked} compacted at up to {}", sight.compacted));
        }
        // A compaction remembers the hash it took; the answer does not say which of both it is.
        let right = hash_kv(&self.model, asked, compacted, remembered);
        if told.hash == right || told.hash == hash_kv(&self.model, asked, compacted, true) {
            return Ok(());
        }
        Err(format!("the hash is {right}"))
    }

    /// The clock went on by `span` in which the store had no time to do anything: it jumped, or the
    /// process was stopped. What waits for a flush is not older for it.
    pub fn skipped(&mut self, span: Duration) {
        let known = self.published.iter_mut().filter(|(at, _)| at.0 > 0);
        known.for_each(|(at, _)| *at = *at + span);
    }

    /// The store stopped at `now`: from then on nothing is flushed.
    pub fn stopped(&mut self, now: MonoTime) {
        self.stopped.get_or_insert(now);
    }

    /// The process is gone. `now` is its clock at that moment.
    pub fn crashed(&mut self, now: MonoTime) {
        self.unknown.append(&mut self.pending);
        self.leases.crashed(now);
        self.highest = self.highest.max(self.model.revision());
    }

    /// Everything has been answered: each revision must have an owner.
    ///
    /// # Errors
    /// A revision nobody owns, or a lease that ended too early.
    pub fn settle(&mut self) -> Verdict {
        super::claims::settle(self)
    }

    /// What explains a revision that no client was told about: gives the unknown calls that may own
    /// it.
    pub(super) fn owners(&self, revision: i64) -> Vec<u64> {
        let owns = |call: &Call| {
            let effect = evaluate(&self.model, revision - 1, &call.request);
            call.floor < revision
                && effect.is_ok_and(|effect| effect.events == self.model.events(revision))
        };
        let calls = self.unknown.iter().filter(|(_, call)| owns(call));
        calls.map(|(id, _)| *id).collect()
    }

    /// The lease whose end made this revision, when one did, and whether it was time.
    pub(super) fn lease_end(&self, revision: i64, at: MonoTime) -> Option<Verdict> {
        let events = self.model.events(revision);
        let key = &events.first()?.kv.as_ref()?.key;
        let id = self.model.get(key, revision - 1)?.lease;
        let revoke = Request::Revoke(LeaseRevokeRequest { id });
        let effect = evaluate(&self.model, revision - 1, &revoke).ok()?;
        (id != 0 && effect.events == events).then(|| self.leases.expired(id, at))
    }

    /// Everybody has been quiet for longer than any lease: none may be left.
    ///
    /// # Errors
    /// What is left.
    pub fn leases_over(&self, left: &[(i64, i64)]) -> Verdict {
        let keys = self.model.state(self.model.revision());
        match keys.iter().find(|kv| kv.lease != 0) {
            Some(kv) => Err(format!("{kv:?} outlived its lease")),
            None if left.is_empty() => Ok(()),
            None => Err(format!("leases {left:?} never ended")),
        }
    }
}

/// The lease a request names.
fn lease_of(request: &Request) -> Option<i64> {
    match request {
        Request::Put(request) if request.lease != 0 => Some(request.lease),
        Request::Grant(request) => Some(request.id),
        Request::Revoke(request) => Some(request.id),
        Request::Renew(id) | Request::TimeToLive(id) => Some(*id),
        _ => None,
    }
}

fn same_answer(request: &Request, right: &Response, given: &Response) -> bool {
    match (request, right, given) {
        (Request::Range(request), Response::Range(right), Response::Range(given))
            if request.keys_only =>
        {
            let mut given = given.clone();
            given.kvs.iter_mut().for_each(strip);
            *right == given
        }
        _ => right == given,
    }
}

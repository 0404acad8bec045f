//! One keyspace on one member: consensus, log, state and the leader's clocks, joined in `turn`.
//!
//! Invariants:
//! - R1 A proposal is answered only after its entry is durable as the mode says, committed, applied
//!   and published; in that order.
//! - R2 Entries are applied in index order, each once; a reader sees the state only between turns.
//! - R3 A proposal that was dropped, refused or expired before it was given to consensus has not
//!   happened and never will; once given, it happens whatever its proposer does.
//! - R4 After a failed write or sync of the log nothing is answered but `Stop` (W7).
//! - R5 No revision is given out above the ceiling that is durable in the mark file.
//! - R6 Where acknowledged history may be missing, a fence is applied before anybody is served.
//!
//! ```text
//! submit ─► queue ─┐                       ┌─► publish ─► watchers
//! read_barrier ────┼─► turn: drain, step, append, apply, publish, reply ─► receipts
//! log completions ─┤                       └─► deadlines of leases, compaction
//! ticks ───────────┘
//! ```

mod apply;
mod checkpoint;
mod config;
mod leases;
mod life;
mod log;
mod open;
mod portion;
mod queue;
mod reads;
mod stage;
mod tasks;
#[cfg(test)]
mod tests;

use std::cell::{Cell, Ref, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use ringbolt_consensus::{Effects, Entry, Inputs, Node, Role};
use ringbolt_io::local::{Bell, Receipt, receipt};
use ringbolt_io::{Io, MonoTime, TaskHandle};

use crate::error::{Error, Reason};
use crate::limits::{
    HASH_STEP_RECORDS, PROPOSAL_OVERHEAD_BYTES, PROPOSALS_BYTES_MAX, PROPOSALS_RESERVED,
    PROPOSALS_WAITING_MAX, REVISIONS_RESERVED_BLOCK, TURN_BYTES_MAX, TURN_ENTRIES_MAX,
    TURN_STEPS_MAX,
};
use crate::mvcc::HashKv;
use crate::state::format::COMMAND_HEADER_SIZE;
use crate::state::quota::cost_bytes;
use crate::state::{Command, Reply, State};
use crate::types::{MemberId, Revision};
use crate::wal::{Gauges, Ticket, Wal};

pub use crate::wal::Identity;
pub use config::{Mode, OpenError, ReplicaConfig};
pub use log::check_entry;
pub use open::accept_loss;
pub use queue::Answer;
pub use stage::{Observation, StageTimes};

use apply::Outcome;
use checkpoint::Checkpoints;
use leases::Leases;
use life::Life;
use queue::{InFlight, NEVER, Queue, Waiting};
use reads::Reads;

/// One keyspace of this member. Lives on its home shard, shared there by `Rc`; never crosses.
pub struct Replica {
    io: Io,
    config: ReplicaConfig,
    identity: Identity,
    /// Rung by everything that gives the turn something to do.
    bell: Rc<Bell>,
    queue: RefCell<Queue>,
    reads: RefCell<Reads>,
    core: RefCell<Core>,
    state: RefCell<State>,
    leases: RefCell<Leases>,
    hooks: RefCell<Hooks>,
    view: Cell<View>,
    life: Life,
    /// Rung at the end of a turn that leaves no proposal behind.
    drained: Bell,
    /// Rung when the next block of revisions should be reserved.
    reserve: Bell,
    compaction: tasks::Compaction,
    checkpoints: Checkpoints,
    handles: RefCell<Vec<TaskHandle>>,
}

/// What only a turn touches.
struct Core {
    node: Node,
    /// `None` once it is closed.
    log: Option<Wal>,
    /// Writes handed to the log and not durable yet, oldest first.
    writes: VecDeque<Write>,
    /// Committed, not applied.
    to_apply: VecDeque<Entry>,
    applied: u64,
    applied_term: u64,
    ticks: u32,
    campaign: bool,
}

/// A step on its way to the disk.
struct Write {
    ticket: Ticket,
    number: u64,
    at: MonoTime,
}

/// What a reader may ask without a turn. Refreshed at the end of each.
#[derive(Clone, Copy, Default)]
struct View {
    term: u64,
    leader: u64,
    commit: u64,
    last: u64,
    applied: u64,
    applied_term: u64,
    leads: bool,
    sole_voter: bool,
    commit_in_term: bool,
}

type Published = Box<dyn Fn(Revision, Revision)>;
type Observed = Box<dyn Fn(&Observation)>;

#[derive(Default)]
struct Hooks {
    publish: Vec<Rc<Published>>,
    observe: Option<Rc<Observed>>,
}

/// Where a replica stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The cluster it belongs to.
    pub cluster_id: crate::types::ClusterId,
    /// This member.
    pub member_id: MemberId,
    /// The current term.
    pub term: u64,
    /// The leader; `None` is none known.
    pub leader: Option<MemberId>,
    /// Whether this member leads and may serve.
    pub leads: bool,
    /// Highest index known committed.
    pub commit: u64,
    /// Last index of the log.
    pub last: u64,
    /// Last index applied.
    pub applied: u64,
    /// The store's revision.
    pub revision: Revision,
    /// Its compacted revision.
    pub compacted: Revision,
    /// Accounted bytes of keys, values, history and leases.
    pub db_size_bytes: u64,
    /// Live keys.
    pub keys_count: u64,
    /// Proposals between submit and answer.
    pub proposals_waiting: usize,
    /// Steps handed to the log and not durable yet.
    pub writes_in_flight: usize,
    /// What an operator sees of the log; all zero once it is closed.
    pub log: Gauges,
    /// Why the log stopped, when it did (W7).
    pub failure: Option<String>,
}

impl Replica {
    /// Asks the group to do `command`. When it returns `Ok` the command is durable as the mode
    /// says, applied and published. A compaction that asks for physical removal waits for that too.
    ///
    /// *Errors*: `Retry(TooManyRequests)` with a full queue, `Refuse` with the reason the state or
    /// a limit has, `Stop` when this member has stopped. After a timeout the command may still
    /// happen (R3). Dropping the future forgets the answer, never the command.
    pub async fn propose(&self, command: Command) -> Result<Reply, Error> {
        self.propose_before(command, None).await
    }

    /// As `propose`; the command is dropped if it was not given to consensus by `deadline`.
    ///
    /// # Errors
    /// As `propose`, and `Refuse(DeadlineExceeded)` when it was dropped.
    pub async fn propose_before(
        &self,
        command: Command,
        deadline: Option<MonoTime>,
    ) -> Result<Reply, Error> {
        tracing::trace!(target: "path", "Replica::propose");
        let physical = matches!(&command, Command::Compact(request) if request.physical);
        let answer = self.submit(command, deadline)?.await.unwrap_or(Err(Error::Stop));
        if physical && matches!(&answer, Ok(_) | Err(Error::Refuse(Reason::Compacted))) {
            self.compaction.idle().await;
        }
        answer
    }

    /// The first half of `propose`, without waiting: the command is queued when it returns, behind
    /// every command queued before.
    ///
    /// # Errors
    /// As `propose`; nothing was queued.
    pub fn submit(
        &self,
        command: Command,
        deadline: Option<MonoTime>,
    ) -> Result<Receipt<Answer>, Error> {
        self.life.check()?;
        self.check_space(&command)?;
        let limit = self.io.now() + self.config.request_timeout();
        let deadline = deadline.map_or(limit, |deadline| deadline.min(limit));
        self.enqueue(command, deadline, PROPOSALS_WAITING_MAX)
    }

    /// What this replica proposes for itself: it may use the reserve of the queue and waits as long
    /// as it takes.
    fn submit_own(&self, command: Command) -> Result<Receipt<Answer>, Error> {
        self.enqueue(command, NEVER, PROPOSALS_WAITING_MAX + PROPOSALS_RESERVED)
    }

    fn enqueue(
        &self,
        command: Command,
        deadline: MonoTime,
        room: usize,
    ) -> Result<Receipt<Answer>, Error> {
        let mut queue = self.queue.borrow_mut();
        if queue.len() >= room {
            return Err(Reason::TooManyRequests.into());
        }
        let encoded = command.encode();
        // Measured as etcd does, so that the same request is too large here and there.
        let size = encoded.len().saturating_sub(COMMAND_HEADER_SIZE) + PROPOSAL_OVERHEAD_BYTES;
        let is_own = deadline == NEVER;
        if size > self.config.max_request_bytes && !is_own {
            return Err(Reason::RequestTooLarge.into());
        }
        if !is_own && queue.bytes() + encoded.len() > PROPOSALS_BYTES_MAX {
            return Err(Reason::TooManyRequests.into());
        }
        let queued = self.io.now();
        let (promise, receipt) = receipt();
        queue.push(Waiting { command, bytes: encoded.len(), encoded, promise, queued, deadline });
        self.bell.ring();
        Ok(receipt)
    }

    /// Refuses what adds data when there is no room for it. Over the quota an alarm is raised, as
    /// etcd does: only an operator clears it. Without room in the log nothing is raised: service
    /// resumes by itself when space returns.
    fn check_space(&self, command: &Command) -> Result<(), Error> {
        let cost = cost_bytes(command);
        if cost == 0 {
            return self.state.borrow().admit(command).map_err(Error::from);
        }
        let state = self.state.borrow();
        if let Err(reason) = state.admit(command) {
            let raise = state.exceeds_quota(command) && !state.alarms.no_space();
            drop(state);
            if raise {
                // Nobody waits for it: the alarm shows in the state once it is applied.
                let _ = self.submit_own(State::no_space_alarm(self.identity.member_id));
            }
            return Err(reason.into());
        }
        let bytes = usize::try_from(cost).unwrap_or(usize::MAX);
        let bytes = bytes.saturating_add(self.queue.borrow().waiting_bytes);
        // Between turns the core is never borrowed.
        let checkpoint_bytes = state.checkpoint_bytes();
        match &self.core.borrow().log {
            Some(log) if self.has_room(log, bytes, checkpoint_bytes) => Ok(()),
            Some(_) => {
                self.checkpoints.want_space(self.io.now());
                Err(Reason::NoSpace.into())
            }
            None => Err(Error::Stop),
        }
    }

    /// Whether the log takes `bytes` more and leaves room for the checkpoint that would follow.
    fn has_room(&self, log: &Wal, bytes: usize, checkpoint_bytes: u64) -> bool {
        log.keep_room(checkpoint_bytes);
        log.accepts(bytes)
    }

    /// Waits until the state shows everything that was acknowledged anywhere before the call. For a
    /// sole voter that costs no I/O, and nothing at all between turns.
    ///
    /// Source: etcd linearizable reads; Raft thesis 6.4.
    ///
    /// # Errors
    /// `Retry(Timeout)` without a leader, `Stop`.
    pub async fn read_barrier(&self) -> Result<(), Error> {
        self.life.check()?;
        let view = self.view.get();
        let alone = view.sole_voter && view.leads && view.commit_in_term;
        if alone && view.applied >= view.commit {
            return Ok(());
        }
        let receipt = self.reads.borrow_mut().wait(self.io.now())?;
        self.bell.ring();
        receipt.await.unwrap_or(Err(Error::Stop))
    }

    /// The state, between turns. The borrow must not live over an await.
    pub fn state(&self) -> Ref<'_, State> {
        self.state.borrow()
    }

    /// The hash of the store's records up to `revision` (0: the newest), taken in pieces between
    /// which others run.
    ///
    /// # Errors
    /// `FutureRevision`, `Compacted`. Source: contract 12.5, 12.6.
    pub async fn hash_kv(&self, revision: i64) -> Result<HashKv, Reason> {
        let mut walk = self.state.borrow().mvcc.hash_walk(revision)?;
        loop {
            let step = self.state.borrow().mvcc.hash_step(&mut walk, HASH_STEP_RECORDS)?;
            if let Some(hash) = step {
                return Ok(hash);
            }
            self.io.yield_now().await;
        }
    }

    /// Where this replica stands. Local, without I/O.
    #[must_use]
    pub fn status(&self) -> Status {
        let view = self.view.get();
        let state = self.state.borrow();
        let core = self.core.borrow();
        Status {
            cluster_id: self.identity.cluster_id,
            member_id: self.identity.member_id,
            term: view.term,
            leader: state.members.iter().find(|member| member.raft_id == view.leader).map(|m| m.id),
            leads: view.leads && view.commit_in_term,
            commit: view.commit,
            last: view.last,
            applied: view.applied,
            revision: state.mvcc.revision(),
            compacted: state.mvcc.compacted(),
            db_size_bytes: state.size_bytes(),
            keys_count: state.mvcc.keys_count(),
            proposals_waiting: self.queue.borrow().len(),
            writes_in_flight: core.writes.len(),
            log: core.log.as_ref().map(Wal::gauges).unwrap_or_default(),
            failure: self.life.failure(),
        }
    }

    /// The current term. Cheap: every answer's header shows it.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.view.get().term
    }

    /// Whose store this is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// How this replica was told to be.
    #[must_use]
    pub fn config(&self) -> &ReplicaConfig {
        &self.config
    }

    /// Calls `callback(from, to)` after each turn that changed the revision from `from` to `to` or
    /// compacted (then both may be equal), before any of the turn's proposers is answered. It runs
    /// on this shard outside all borrows, must not wait, and may read `state`.
    pub fn on_publish(&self, callback: impl Fn(Revision, Revision) + 'static) {
        self.hooks.borrow_mut().publish.push(Rc::new(Box::new(callback)));
    }

    /// Gives every observation of the stage clock to `observer`, on this shard.
    pub fn on_observe(&self, observer: impl Fn(&Observation) + 'static) {
        self.hooks.borrow_mut().observe = Some(Rc::new(Box::new(observer)));
    }

    /// Waits until this member stops because its log failed (W7); gives the cause. The process must
    /// then exit.
    pub async fn failed(&self) -> String {
        self.life.failed().await
    }

    /// One turn: everything that arrived since the last one passes every stage it can.
    fn turn(&self) {
        tracing::trace!(target: "path", "Replica::turn");
        let now = self.io.now();
        let outcome = {
            let mut core = self.core.borrow_mut();
            let core = &mut *core;
            self.check_log(core);
            if self.life.has_failed() {
                return;
            }
            // Drain: what became durable, ticks, reads, and a batch of proposals.
            let (inputs, batch) = self.drain(core, now);
            // Step and append; again while the log answers at once.
            self.step_and_append(core, inputs, batch, now);
            // Apply what is durable and committed, in index order.
            let outcome = self.apply(core, now);
            self.refresh(core);
            outcome
        };
        // Publish, then reply. No borrow is held: callbacks and woken tasks read the state.
        self.publish(&outcome);
        self.reply(outcome);
        if let Some(cause) = self.life.failure() {
            // An entry that cannot be applied: what was applied before it is answered.
            self.stop(cause);
        }
    }

    /// W7: a log that failed stops the member before it answers anybody again.
    fn check_log(&self, core: &Core) {
        if let Some(failure) = core.log.as_ref().and_then(Wal::failure) {
            self.stop(failure.to_string());
        }
    }

    /// Stops for good: everybody who waits is told so.
    fn stop(&self, cause: String) {
        self.life.fail(cause);
        self.queue.borrow_mut().fail_all(&Error::Stop);
        self.reads.borrow_mut().fail_all(&Error::Stop);
    }

    fn drain(&self, core: &mut Core, now: MonoTime) -> (Inputs, Vec<Waiting>) {
        let (reads, reads_forgotten) = self.reads.borrow_mut().ask();
        let mut inputs = Inputs {
            persisted: self.newly_durable(core, now),
            applied: (core.applied > 0).then_some(core.applied),
            ticks: std::mem::take(&mut core.ticks),
            campaign: std::mem::take(&mut core.campaign),
            reads,
            reads_forgotten,
            ..Inputs::default()
        };
        let mut batch = Vec::new();
        if core.node.status().role != Role::Leader {
            return (inputs, batch);
        }
        let mut queue = self.queue.borrow_mut();
        // R5: every proposal may take a revision.
        let mut room = self.revisions_left(core).saturating_sub(queue.in_flight());
        let mut bytes = 0;
        while room > 0 && bytes < TURN_BYTES_MAX && batch.len() < TURN_ENTRIES_MAX {
            let Some(mut waiting) = queue.pop() else { break };
            if waiting.deadline <= now {
                waiting.promise.fulfil(Err(Reason::DeadlineExceeded.into()));
                continue;
            }
            bytes += waiting.bytes;
            room -= 1;
            // Given away whole: bytes that nobody shares go into the log without a copy.
            inputs.proposals.push(std::mem::take(&mut waiting.encoded));
            batch.push(waiting);
        }
        if queue.is_waiting() && room > 0 {
            self.bell.ring();
        }
        (inputs, batch)
    }

    fn step_and_append(
        &self,
        core: &mut Core,
        mut inputs: Inputs,
        mut batch: Vec<Waiting>,
        now: MonoTime,
    ) {
        for _ in 0..TURN_STEPS_MAX {
            let effects = core.node.step(inputs);
            self.note_proposed(core, &effects, std::mem::take(&mut batch), now);
            self.append(core, &effects, now);
            self.reads.borrow_mut().ready(&effects.read_ready);
            core.to_apply.extend(effects.committed);
            let persisted = self.newly_durable(core, now);
            if persisted.is_none() && !effects.more {
                return;
            }
            inputs = Inputs { persisted, ..Inputs::default() };
        }
        self.bell.ring();
    }

    /// How many revisions may be given out before the next block is reserved.
    fn revisions_left(&self, core: &Core) -> usize {
        let Some(log) = &core.log else { return 0 };
        let left = log.ceiling().0 - self.state.borrow().mvcc.revision().0;
        if left < REVISIONS_RESERVED_BLOCK / 2 {
            self.reserve.ring();
        }
        usize::try_from(left).unwrap_or(0)
    }

    /// Gives the batch its places in the log.
    fn note_proposed(&self, core: &Core, effects: &Effects, batch: Vec<Waiting>, now: MonoTime) {
        if batch.is_empty() {
            return;
        }
        let Some(first) = effects.proposed else {
            for waiting in batch {
                waiting.promise.fulfil(Err(Reason::ProposalDropped.into()));
            }
            return;
        };
        let term = core.node.status().term;
        let mut queue = self.queue.borrow_mut();
        for (index, waiting) in (first..).zip(batch) {
            let times =
                StageTimes { queued: waiting.queued, proposed: now, ..StageTimes::default() };
            let Waiting { command, bytes, promise, deadline, .. } = waiting;
            let promise = Some(promise);
            queue.fly(InFlight { index, term, command, bytes, deadline, promise, times });
        }
    }

    fn append(&self, core: &mut Core, effects: &Effects, now: MonoTime) {
        assert!(
            effects.send.is_empty() && effects.send_after_durable.messages.is_empty(),
            "a sole voter has nobody to write to"
        );
        assert!(effects.restore.is_none(), "nobody sends a sole voter a checkpoint");
        if !effects.must_write {
            return;
        }
        let Some(log) = &core.log else { return };
        let ticket = log.append(log::batch(&effects.append, core.node.hard_state()));
        core.writes.push_back(Write { ticket, number: effects.number, at: now });
        let bytes = effects.append.iter().map(|entry| entry.data.len() as u64).sum();
        self.note_appended(log, bytes);
    }

    /// The last step whose write completed since the last look.
    fn newly_durable(&self, core: &mut Core, now: MonoTime) -> Option<u64> {
        let durable = core.log.as_ref()?.durable();
        let mut number = None;
        while let Some(write) = core.writes.pop_front_if(|write| write.ticket <= durable) {
            self.observe(&Observation::Durable(now.since(write.at)));
            number = Some(write.number);
        }
        number
    }

    fn refresh(&self, core: &mut Core) {
        let status = core.node.status();
        let sole_voter = core.node.is_sole_voter();
        let alone = sole_voter && core.node.membership().learners.is_empty();
        if alone {
            // Nobody will ever ask for these entries again.
            core.node.compact(core.applied);
        }
        if let Some(log) = &core.log {
            log.keep_for_followers(!alone);
        }
        let leads = status.role == Role::Leader;
        if leads && !self.view.get().leads {
            // Proposals waited for this.
            self.bell.ring();
        }
        self.view.set(View {
            term: status.term,
            leader: status.leader,
            commit: status.commit,
            last: status.last,
            applied: core.applied,
            applied_term: core.applied_term,
            leads,
            sole_voter,
            commit_in_term: status.commit_in_term,
        });
    }

    fn publish(&self, outcome: &Outcome) {
        self.lead_leases();
        if !outcome.changed() {
            return;
        }
        let callbacks = self.hooks.borrow().publish.clone();
        for callback in callbacks {
            callback(outcome.from, outcome.to);
        }
    }

    fn reply(&self, outcome: Outcome) {
        let ready = self.reads.borrow_mut().take_applied(self.view.get().applied);
        for promise in ready {
            promise.fulfil(Ok(()));
        }
        for (promise, answer) in outcome.answers {
            promise.fulfil(answer);
        }
        let queue = self.queue.borrow();
        if queue.len() == 0 {
            self.drained.ring();
        }
    }

    fn observe(&self, observation: &Observation) {
        let observer = self.hooks.borrow().observe.clone();
        if let Some(observer) = observer {
            observer(observation);
        }
    }
}

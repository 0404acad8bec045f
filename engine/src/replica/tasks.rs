//! The tasks beside the turn: each is named, owned by the replica and ended by `close`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ringbolt_io::MonoTime;
use ringbolt_io::local::{Bell, Promise, receipt};

use super::Replica;
use super::portion::Portion;
use crate::limits::{
    COMPACTION_HELD_PAUSE, COMPACTION_STEPS, COMPACTION_STEPS_PER_SLICE_MAX, IDLE_TICKS,
    LEASE_TICK, REVISIONS_RESERVED_BLOCK,
};
use crate::state::Removal;
use crate::types::Revision;

impl Replica {
    /// Starts every task.
    pub(super) fn spawn_tasks(self: &Rc<Self>) {
        let io = &self.io;
        let tasks = [
            io.spawn("replica", self.clone().run()),
            io.spawn("replica-ticks", self.clone().keep_ticking()),
            io.spawn("replica-leases", self.clone().end_leases()),
            io.spawn("replica-revisions", self.clone().reserve_revisions()),
            io.spawn("replica-compaction", self.clone().remove_history()),
            io.spawn("replica-checkpoints", self.clone().write_checkpoints()),
        ];
        self.handles.borrow_mut().extend(tasks);
    }

    /// The replica's own task: a turn whenever the bell was rung. Whoever rings wakes it behind
    /// everything that is ready already, so a turn serves all of it.
    async fn run(self: Rc<Self>) {
        loop {
            self.bell.heard().await;
            if self.life.has_failed() {
                return;
            }
            self.turn();
        }
    }

    /// Ticks of consensus, and the end of what waits too long. A sole voter that leads needs no
    /// ticks: nobody else could lead.
    async fn keep_ticking(self: Rc<Self>) {
        loop {
            let view = self.view.get();
            let alone = view.sole_voter && view.leads;
            let interval = self.config.heartbeat_interval;
            let wait = if alone { interval * IDLE_TICKS } else { interval };
            self.io.sleep(wait).await;
            if !alone {
                self.core.borrow_mut().ticks += 1;
                self.bell.ring();
            }
            self.expire();
        }
    }

    /// Ends what waits for longer than a request may.
    fn expire(&self) {
        let now = self.io.now();
        let age = now.since(MonoTime::default());
        let timeout = self.config.request_timeout();
        if age > timeout {
            let since = MonoTime::default() + (age - timeout);
            self.queue.borrow_mut().expire(now, since);
            self.reads.borrow_mut().expire(since);
        }
    }

    /// Proposes the end of leases whose time has passed.
    async fn end_leases(self: Rc<Self>) {
        let answered = Rc::new(Bell::default());
        loop {
            self.io.sleep(LEASE_TICK).await;
            // All that ended together go together, a few at a time, as fast as the log takes them.
            while self.leases_due() {
                while self.propose_revocations(&answered) {
                    answered.heard().await;
                }
            }
        }
    }

    /// Fills the window of revocations; true while some lease still waits for its place in it.
    fn propose_revocations(self: &Rc<Self>, answered: &Rc<Bell>) -> bool {
        while let Some((id, command)) = self.next_revocation() {
            match self.submit_own(command) {
                Ok(receipt) => {
                    let (replica, answered) = (self.clone(), answered.clone());
                    self.io.spawn("replica-revoke", async move {
                        // Whatever the answer: a lease that is still there comes due again.
                        let _ = receipt.await;
                        replica.revoked(id);
                        answered.ring();
                    });
                }
                Err(_) => self.revoked(id),
            }
        }
        self.revocations_wait()
    }

    /// R5: keeps a block of revisions reserved ahead of what is given out.
    async fn reserve_revisions(self: Rc<Self>) {
        loop {
            self.reserve.heard().await;
            let Some(log) = self.core.borrow().log.clone() else { return };
            let revision = self.state.borrow().mvcc.revision();
            // A failure shows in the next turn too, which stops the member.
            let _ = log.reserve_revisions(ahead_of(revision)).await;
            self.bell.ring();
        }
    }

    /// Removes compacted history in slices that never hold the shard for long.
    async fn remove_history(self: Rc<Self>) {
        let parts_max = COMPACTION_STEPS_PER_SLICE_MAX / COMPACTION_STEPS;
        loop {
            self.compaction.bell.heard().await;
            let mut portion = Portion::new(self.io.now(), parts_max);
            loop {
                match self.remove_slice(&mut portion) {
                    Removal::Done => break,
                    Removal::Held => self.io.sleep(COMPACTION_HELD_PAUSE).await,
                    Removal::More => self.io.yield_now().await,
                }
                portion.begin(self.io.now());
            }
            if !self.compaction.paused.get() {
                self.compaction.finish();
            }
        }
    }

    /// One slice.
    fn remove_slice(&self, portion: &mut Portion) -> Removal {
        let start = self.io.now();
        let mut state = self.state.borrow_mut();
        loop {
            let removal = state.compact_slice(COMPACTION_STEPS, start);
            if portion.is_over(self.io.now()) || removal != Removal::More {
                return removal;
            }
        }
    }
}

/// What must be reserved when the store is at `revision`.
pub(super) fn ahead_of(revision: Revision) -> Revision {
    Revision(revision.0.saturating_add(REVISIONS_RESERVED_BLOCK))
}

/// Whether history is being removed, and who waits for its end.
#[derive(Default)]
pub(super) struct Compaction {
    bell: Bell,
    busy: Cell<bool>,
    /// A checkpoint streams: removal goes on when it is done.
    paused: Cell<bool>,
    waiters: RefCell<Vec<Promise<()>>>,
}

impl Compaction {
    /// There is history to remove.
    pub(super) fn start(&self) {
        self.busy.set(true);
        self.bell.ring();
    }

    /// Holds removal back, or lets it go on.
    pub(super) fn pause(&self, paused: bool) {
        self.paused.set(paused);
        if !paused && self.busy.get() {
            self.bell.ring();
        }
    }

    fn finish(&self) {
        self.busy.set(false);
        for waiter in std::mem::take(&mut *self.waiters.borrow_mut()) {
            waiter.fulfil(());
        }
    }

    /// Waits until nothing is left to remove.
    pub(super) async fn idle(&self) {
        if !self.busy.get() {
            return;
        }
        let (promise, done) = receipt();
        self.waiters.borrow_mut().push(promise);
        done.await;
    }
}

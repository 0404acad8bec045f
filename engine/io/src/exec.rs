//! One shard's executor: local tasks, timers and operations over a driver.
//!
//! Everything here lives on one thread. Wake-ups are ordered by the ready queue (first woken, first
//! polled), timers by (time, sequence), so a run over the simulated driver repeats exactly.
//!
//! ```text
//! turn:  run ready tasks ──► park (submit, wait) ──► deliver answers ──► fire timers ──► again
//! ```

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use slab::Slab;

use crate::disk::Disk;
use crate::driver::{Done, Driver, Op, Reply, Token};
use crate::limits::{POLLS_PER_TURN_MAX, TASKS_MAX};
use crate::net::{Address, Detached, ListenHow, Listener, Stream};
use crate::time::{MonoTime, WallTime};

/// Runs the tasks of one shard. Dropping it drops every task; operations in flight stay with the
/// driver.
pub struct Executor {
    core: Rc<Core>,
}

/// A task's handle to its shard: clock, disk, network, tasks. Cheap to clone, never crosses cores.
#[derive(Clone)]
pub struct Io {
    core: Rc<Core>,
}

struct Core {
    driver: Rc<dyn Driver>,
    tasks: RefCell<Slab<Task>>,
    ready: Arc<ReadyQueue>,
    ops: RefCell<Slab<OpState>>,
    timers: RefCell<BTreeMap<(MonoTime, u64), Waker>>,
    timer_sequence: Cell<u64>,
    generation: Cell<u64>,
    mail: RefCell<Vec<Waker>>,
    /// Tasks that go on after the next visit to the driver.
    yielded: RefCell<Vec<Waker>>,
    /// Answers of one visit; kept for its memory.
    done: RefCell<Vec<(Token, Done)>>,
    spin: Cell<Duration>,
}

struct Task {
    name: &'static str,
    /// Out while it is polled.
    body: Option<Body>,
    generation: u64,
    end: Rc<End>,
}

struct Body {
    future: LocalTask,
    waker: Waker,
}

/// A task's future, on the heap.
pub type LocalTask = Pin<Box<dyn Future<Output = ()>>>;

/// What a `TaskHandle` and its task share.
#[derive(Default)]
struct End {
    finished: Cell<bool>,
    waiter: RefCell<Option<Waker>>,
}

enum OpState {
    Pending(Option<Waker>),
    Ready(Done),
    Abandoned,
}

/// Tasks to poll, in the order they were woken. Touched only by its owner thread.
struct ReadyQueue {
    owner: usize,
    queue: UnsafeCell<VecDeque<Arc<TaskWaker>>>,
}

// SAFETY: every access to `queue` first asserts that it runs on the owner thread.
// JUSTIFICATION: `Waker` must be Send + Sync; a mutex here would cost every wake-up two atomics.
unsafe impl Send for ReadyQueue {}
// SAFETY: as above.
// JUSTIFICATION: as above.
unsafe impl Sync for ReadyQueue {}

impl ReadyQueue {
    fn with<R>(&self, act: impl FnOnce(&mut VecDeque<Arc<TaskWaker>>) -> R) -> R {
        assert_eq!(self.owner, this_thread(), "a task was woken from another thread");
        // SAFETY: only the owner thread gets here, and `act` never calls back into `with`.
        // JUSTIFICATION: see the impls above.
        act(unsafe { &mut *self.queue.get() })
    }
}

/// What tells this thread from every other that lives: the address of a variable of its own.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

struct TaskWaker {
    index: usize,
    generation: u64,
    queued: AtomicBool,
    ready: Arc<ReadyQueue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.ready.clone().with(|queue| queue.push_back(self));
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.ready.with(|queue| queue.push_back(self.clone()));
        }
    }
}

impl Executor {
    /// An executor over `driver`, on the calling thread.
    #[must_use]
    pub fn new(driver: Rc<dyn Driver>) -> Executor {
        let ready = ReadyQueue {
            owner: this_thread(),
            queue: UnsafeCell::new(VecDeque::with_capacity(256)),
        };
        let core = Core {
            driver,
            tasks: RefCell::default(),
            ready: Arc::new(ready),
            ops: RefCell::default(),
            timers: RefCell::default(),
            timer_sequence: Cell::new(0),
            generation: Cell::new(0),
            mail: RefCell::default(),
            yielded: RefCell::default(),
            done: RefCell::default(),
            spin: Cell::new(Duration::ZERO),
        };
        let executor = Executor { core: Rc::new(core) };
        executor.core.await_wake();
        executor
    }

    /// A handle for tasks.
    #[must_use]
    pub fn io(&self) -> Io {
        Io { core: self.core.clone() }
    }

    /// Polls the driver this long before it parks. Zero by default: right where cores are shared.
    pub fn set_spin(&self, spin: Duration) {
        self.core.spin.set(spin);
    }

    /// Runs until `root` ends. Other tasks that still live then are dropped with the executor.
    pub fn run<T: 'static>(&self, root: impl Future<Output = T> + 'static) -> T {
        let slot = Rc::new(RefCell::new(None));
        let filled = slot.clone();
        self.io().spawn("root", async move {
            let value = root.await;
            *filled.borrow_mut() = Some(value);
        });
        loop {
            let more = self.run_ready();
            if let Some(value) = slot.borrow_mut().take() {
                return value;
            }
            let now = self.core.driver.now();
            let until = if more { Some(now) } else { self.next_timer() };
            self.park(until, now);
        }
    }

    /// Polls ready tasks until none is left or the turn's budget is spent; true when some are left
    /// or have yielded.
    pub fn run_ready(&self) -> bool {
        for _ in 0..POLLS_PER_TURN_MAX {
            let Some(next) = self.core.ready.with(VecDeque::pop_front) else { break };
            next.queued.store(false, Ordering::Relaxed);
            self.core.poll_task(next.index, next.generation);
        }
        self.core.ready.with(|queue| !queue.is_empty()) || !self.core.yielded.borrow().is_empty()
    }

    /// One visit to the driver without waiting, then everything that became ready. For simulation.
    /// True when some task ran out of turn and more is ready.
    pub fn turn(&self) -> bool {
        self.visit(Some(self.core.driver.now()));
        self.run_ready()
    }

    /// When the earliest timer is due.
    #[must_use]
    pub fn next_timer(&self) -> Option<MonoTime> {
        self.core.timers.borrow().keys().next().map(|(time, _)| *time)
    }

    /// How many tasks are alive, and their names with counts: for tests that look for leaks.
    #[must_use]
    pub fn tasks_alive(&self) -> BTreeMap<&'static str, usize> {
        let mut names = BTreeMap::new();
        for (_, task) in self.core.tasks.borrow().iter() {
            *names.entry(task.name).or_insert(0) += 1;
        }
        names
    }

    fn park(&self, until: Option<MonoTime>, now: MonoTime) {
        let spin = self.core.spin.get();
        if !spin.is_zero() && until != Some(now) {
            let end = now + spin;
            while self.core.driver.now() < end {
                if self.visit(Some(now)) {
                    return;
                }
                std::hint::spin_loop();
            }
        }
        self.visit(until);
    }

    /// Parks once and delivers; true when anything came of it.
    fn visit(&self, until: Option<MonoTime>) -> bool {
        if !self.core.yielded.borrow().is_empty() {
            // A long job takes the core from nobody: its clients wait for other threads too.
            self.core.driver.give_way();
        }
        let mut done = self.core.done.take();
        self.core.driver.park(until, &mut done);
        let mut progress = !done.is_empty();
        for (token, answer) in done.drain(..) {
            self.core.deliver(token, answer);
        }
        self.core.done.replace(done);
        progress |= self.core.fire_timers();
        // Behind what the visit brought: a long job in pieces lets it go first.
        for waker in self.core.yielded.borrow_mut().drain(..) {
            waker.wake();
        }
        progress
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // Tasks own handles to the core, so they are taken out before they are dropped.
        let tasks = std::mem::take(&mut *self.core.tasks.borrow_mut());
        drop(tasks);
        self.core.timers.borrow_mut().clear();
        self.core.mail.borrow_mut().clear();
        self.core.ready.with(VecDeque::clear);
    }
}

impl Core {
    fn poll_task(self: &Rc<Self>, index: usize, generation: u64) {
        let mut body = {
            let mut tasks = self.tasks.borrow_mut();
            let Some(task) = tasks.get_mut(index) else { return };
            if task.generation != generation {
                return;
            }
            let Some(body) = task.body.take() else { return };
            body
        };
        let outcome = body.future.as_mut().poll(&mut Context::from_waker(&body.waker));
        let ended = match outcome {
            Poll::Pending => {
                let mut tasks = self.tasks.borrow_mut();
                match tasks.get_mut(index) {
                    Some(task) if task.generation == generation => {
                        task.body = Some(body);
                        return;
                    }
                    // Aborted by itself while it was polled: its future goes now.
                    _ => None,
                }
            }
            Poll::Ready(()) => self.remove_task(index, generation),
        };
        drop(body);
        if let Some(end) = ended {
            end.finish();
        }
    }

    fn remove_task(&self, index: usize, generation: u64) -> Option<Rc<End>> {
        let removed = {
            let mut tasks = self.tasks.borrow_mut();
            match tasks.get(index) {
                Some(task) if task.generation == generation => Some(tasks.remove(index)),
                _ => None,
            }
        };
        // The future is dropped here, outside the borrow: its destructor may touch the core.
        removed.map(|task| task.end.clone())
    }

    fn deliver(self: &Rc<Self>, token: Token, done: Done) {
        if matches!(done, Done::Woken) {
            self.ops.borrow_mut().remove(key(token));
            self.await_wake();
            for waker in std::mem::take(&mut *self.mail.borrow_mut()) {
                waker.wake();
            }
            return;
        }
        let mut ops = self.ops.borrow_mut();
        let state = ops.get_mut(key(token)).expect("a driver answers only tokens it was given");
        match std::mem::replace(state, OpState::Abandoned) {
            OpState::Pending(waker) => {
                *state = OpState::Ready(done);
                drop(ops);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            OpState::Abandoned => {
                ops.remove(key(token));
                drop(ops);
                self.close_unclaimed(&done);
            }
            OpState::Ready(_) => unreachable!("a driver answers each token once"),
        }
    }

    /// A handle that arrives after its waiter has gone would never be closed.
    fn close_unclaimed(&self, done: &Done) {
        match done {
            Done::Accepted(Ok((handle, _))) | Done::Connected(Ok(handle)) => {
                self.driver.close(*handle);
            }
            Done::Called(Ok(Reply::File { file, .. })) => self.driver.close(*file),
            _ => {}
        }
    }

    fn fire_timers(&self) -> bool {
        if self.timers.borrow().is_empty() {
            return false;
        }
        let now = self.driver.now();
        let mut fired = false;
        loop {
            let waker = {
                let mut timers = self.timers.borrow_mut();
                match timers.first_entry() {
                    Some(entry) if entry.key().0 <= now => entry.remove(),
                    _ => return fired,
                }
            };
            fired = true;
            waker.wake();
        }
    }

    fn await_wake(&self) {
        let index = self.ops.borrow_mut().insert(OpState::Pending(None));
        self.driver.submit(token(index), Op::AwaitWake);
    }
}

impl End {
    fn finish(&self) {
        self.finished.set(true);
        if let Some(waiter) = self.waiter.borrow_mut().take() {
            waiter.wake();
        }
    }
}

fn token(index: usize) -> Token {
    Token(u64::try_from(index).expect("an index fits 64 bits"))
}

fn key(token: Token) -> usize {
    usize::try_from(token.0).expect("tokens come from indexes")
}

impl Io {
    /// Starts a task. Its owner keeps the handle and waits for its end, or lets it run alone.
    pub fn spawn(
        &self,
        name: &'static str,
        future: impl Future<Output = ()> + 'static,
    ) -> TaskHandle {
        self.spawn_boxed(name, Box::pin(future))
    }

    /// As `spawn`, for a future that is on the heap already.
    pub fn spawn_boxed(&self, name: &'static str, future: LocalTask) -> TaskHandle {
        let core = &self.core;
        let mut tasks = core.tasks.borrow_mut();
        assert!(tasks.len() < TASKS_MAX, "more than {TASKS_MAX} tasks on one shard");
        let generation = core.generation.get() + 1;
        core.generation.set(generation);
        let entry = tasks.vacant_entry();
        let index = entry.key();
        let waker = Arc::new(TaskWaker {
            index,
            generation,
            queued: AtomicBool::new(false),
            ready: core.ready.clone(),
        });
        let end = Rc::new(End::default());
        entry.insert(Task {
            name,
            body: Some(Body { future, waker: Waker::from(waker.clone()) }),
            generation,
            end: end.clone(),
        });
        drop(tasks);
        waker.wake();
        TaskHandle { core: Rc::downgrade(core), index, generation, end }
    }

    /// Monotonic time of this shard.
    #[must_use]
    pub fn now(&self) -> MonoTime {
        self.core.driver.now()
    }

    /// Wall-clock time.
    #[must_use]
    pub fn wall(&self) -> WallTime {
        self.core.driver.wall()
    }

    /// Next number of the shard's seeded generator.
    #[must_use]
    pub fn random_u64(&self) -> u64 {
        self.core.driver.random_u64()
    }

    /// The driver's name.
    #[must_use]
    pub fn engine_name(&self) -> &'static str {
        self.core.driver.name()
    }

    /// Waits until `when`.
    pub fn sleep_until(&self, when: MonoTime) -> Sleep {
        Sleep { core: self.core.clone(), when, registered: None }
    }

    /// Waits for `wait`.
    pub fn sleep(&self, wait: Duration) -> Sleep {
        self.sleep_until(self.now() + wait)
    }

    /// Lets every other ready task run once, and what the driver has for them meanwhile: between
    /// two pieces of a long job, however short, nobody waits longer than a piece.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        std::future::poll_fn(|context| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            self.core.yielded.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Runs `future` for at most `wait`; `None` when time ran out (the future is dropped).
    pub async fn timeout<T>(&self, wait: Duration, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        let mut sleep = std::pin::pin!(self.sleep(wait));
        std::future::poll_fn(|context| {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                return Poll::Ready(Some(value));
            }
            sleep.as_mut().poll(context).map(|()| None)
        })
        .await
    }

    /// The file system.
    #[must_use]
    pub fn disk(&self) -> Disk {
        Disk::new(self.clone())
    }

    /// Binds a listener.
    ///
    /// # Errors
    /// The system's.
    pub fn listen(&self, address: &Address, how: &ListenHow) -> std::io::Result<Listener> {
        Listener::bind(self.clone(), address, how)
    }

    /// Takes a socket that another shard detached.
    ///
    /// # Errors
    /// The system's; the socket is closed then.
    pub fn adopt(&self, socket: Detached) -> std::io::Result<Stream> {
        let handle = self.core.driver.adopt(socket.0)?;
        Ok(Stream::new(self.clone(), handle))
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// The system's.
    pub async fn connect(&self, address: &Address) -> std::io::Result<Stream> {
        match self.op(Op::Connect { address: address.clone() }).await {
            Done::Connected(result) => result.map(|stream| Stream::new(self.clone(), stream)),
            other => unreachable!("connect answered {other:?}"),
        }
    }

    /// Submits an operation at once; the future gives its answer.
    pub fn op(&self, op: Op) -> OpFuture {
        let cancellable = matches!(op, Op::Accept { .. } | Op::Connect { .. } | Op::Receive { .. });
        let index = self.core.ops.borrow_mut().insert(OpState::Pending(None));
        self.core.driver.submit(token(index), op);
        OpFuture { core: self.core.clone(), index: Some(index), cancellable }
    }

    pub(crate) fn driver(&self) -> &Rc<dyn Driver> {
        &self.core.driver
    }

    /// Wakes `waker` at the next remote wake of this shard.
    pub(crate) fn await_mail(&self, waker: &Waker) {
        let mut mail = self.core.mail.borrow_mut();
        if !mail.iter().any(|known| known.will_wake(waker)) {
            mail.push(waker.clone());
        }
    }
}

/// Waits for a point in time.
pub struct Sleep {
    core: Rc<Core>,
    when: MonoTime,
    registered: Option<(MonoTime, u64)>,
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.core.driver.now() >= self.when {
            return Poll::Ready(());
        }
        let core = self.core.clone();
        let mut timers = core.timers.borrow_mut();
        let when = self.when;
        let id = *self.registered.get_or_insert_with(|| {
            core.timer_sequence.set(core.timer_sequence.get() + 1);
            (when, core.timer_sequence.get())
        });
        timers.insert(id, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.registered {
            self.core.timers.borrow_mut().remove(&id);
        }
    }
}

/// The answer to come of one operation. Dropping it forgets the answer, never the act; a waiting
/// accept, connect or receive is asked to end.
pub struct OpFuture {
    core: Rc<Core>,
    index: Option<usize>,
    cancellable: bool,
}

impl Future for OpFuture {
    type Output = Done;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Done> {
        let index = self.index.expect("an operation is not polled after its answer");
        let core = self.core.clone();
        let mut ops = core.ops.borrow_mut();
        let state = ops.get_mut(index).expect("an operation lives until its answer is taken");
        if let OpState::Pending(waker) = state {
            *waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        self.index = None;
        match ops.remove(index) {
            OpState::Ready(done) => Poll::Ready(done),
            _ => unreachable!("an operation that is waited for is not abandoned"),
        }
    }
}

impl Drop for OpFuture {
    fn drop(&mut self) {
        let Some(index) = self.index else { return };
        let unclaimed = {
            let mut ops = self.core.ops.borrow_mut();
            match ops.get_mut(index) {
                Some(state @ OpState::Pending(_)) => {
                    *state = OpState::Abandoned;
                    None
                }
                Some(_) => Some(ops.remove(index)),
                None => None,
            }
        };
        match unclaimed {
            Some(OpState::Ready(done)) => self.core.close_unclaimed(&done),
            Some(_) => {}
            None if self.cancellable => self.core.driver.cancel(token(index)),
            None => {}
        }
    }
}

/// A started task. Awaiting it waits for its end, however it ends.
pub struct TaskHandle {
    core: Weak<Core>,
    index: usize,
    generation: u64,
    end: Rc<End>,
}

impl TaskHandle {
    /// Drops the task's future at once.
    pub fn abort(&self) {
        let Some(core) = self.core.upgrade() else { return };
        if let Some(end) = core.remove_task(self.index, self.generation) {
            end.finish();
        }
    }

    /// Whether the task has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.end.finished.get()
    }
}

impl Future for TaskHandle {
    type Output = ();
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.end.finished.get() {
            return Poll::Ready(());
        }
        *self.end.waiter.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

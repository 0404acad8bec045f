//! The epoll driver: non-blocking sockets under edge-triggered epoll, disk and control calls on
//! helper threads. For where io_uring is refused.
//!
//! ```text
//! submit ─┬─ socket op ──► tried at once ──► ready, or waits in its stream for an event
//!         └─ disk, call ─► helper thread ──► answers ──► wake line (eventfd)
//! park: take ready and answers ──► epoll_wait (0 when there are any) ──► drive what has events
//! ```

mod sockets;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::driver::{BulkPlane, Call, Done, Driver, HandleId, Op, RemoteWaker, Reply, Token};
use crate::limits::{CONNECT_RETRY, DISK_THREADS_MAX, EPOLL_EVENTS_MAX};
use crate::net::{Address, ListenHow};
use crate::system::clock::{self, Seeded};
use crate::system::files::{self, Outcome, SharedFile};
use crate::system::handles::Handles;
use crate::system::pool::{Answer, Answers, Pool};
use crate::system::sockets::{Waits, listen, unknown};
use crate::system::wake::WakeLine;
use crate::system::way::Way;
use crate::time::{MonoTime, WallTime};

use sockets::{Connecting, Listening, Streaming};

/// Marks the event of the wake line; no handle has it, their indexes are smaller.
const WAKE_DATA: u64 = u64::MAX;

/// The driver. Lives on its shard's thread.
pub struct Epoll {
    line: Arc<WakeLine>,
    waker: RemoteWaker,
    answers: Arc<Answers>,
    random: Seeded,
    way: Way,
    state: RefCell<State>,
}

struct State {
    epoll: OwnedFd,
    handles: Handles<Entry>,
    /// Where the ops wait that `cancel` may name.
    waiting: HashMap<Token, HandleId>,
    /// Connections to full Unix sockets, to be tried again.
    retries: Vec<HandleId>,
    ready: Vec<(Token, Done)>,
    await_wake: Option<Token>,
    events: Vec<epoll::Event>,
    scratch: Vec<u8>,
    /// False once the system has refused a timeout finer than milliseconds.
    fine_timeouts: bool,
    disk: Pool,
    control: Pool,
}

enum Entry {
    File(SharedFile),
    Stream(Streaming),
    Listener(Listening),
    Connecting(Connecting),
}

impl Epoll {
    /// A driver on the calling thread.
    ///
    /// # Errors
    /// The system's: out of file descriptors or memory.
    pub fn new(seed: u64) -> io::Result<Epoll> {
        let line = WakeLine::new()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(WAKE_DATA);
        epoll::add(&epoll, line.event(), data, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        let answers = Answers::new(line.clone());
        let ring = line.clone();
        let state = State {
            epoll,
            handles: Handles::new(),
            waiting: HashMap::new(),
            retries: Vec::new(),
            ready: Vec::new(),
            await_wake: None,
            events: Vec::with_capacity(EPOLL_EVENTS_MAX),
            scratch: vec![0; crate::limits::READ_BYTES_MAX],
            fine_timeouts: true,
            disk: Pool::new("ringbolt-disk", DISK_THREADS_MAX, answers.clone()),
            control: Pool::new("ringbolt-file", 1, answers.clone()),
        };
        Ok(Epoll {
            line,
            waker: Arc::new(move || ring.ring()),
            answers,
            random: Seeded::new(seed),
            way: Way::new(),
            state: RefCell::new(state),
        })
    }

    /// Moves every answer there is into `done`.
    fn collect(&self, state: &mut State, done: &mut Vec<(Token, Done)>) {
        done.append(&mut state.ready);
        for (token, answer) in self.answers.take() {
            done.push((token, state.finish(answer)));
        }
        if state.await_wake.is_some() && self.line.take() {
            let token = state.await_wake.take().expect("looked at in the line above");
            done.push((token, Done::Woken));
        }
    }
}

impl Driver for Epoll {
    fn name(&self) -> &'static str {
        "epoll"
    }

    fn submit(&self, token: Token, op: Op) {
        self.state.borrow_mut().submit(token, op);
    }

    fn cancel(&self, token: Token) {
        self.state.borrow_mut().cancel(token);
    }

    fn park(&self, until: Option<MonoTime>, done: &mut Vec<(Token, Done)>) {
        let state = &mut *self.state.borrow_mut();
        self.collect(state, done);
        let mut wait = state.wait_at_most(until);
        if !done.is_empty() {
            wait = Some(ZERO);
        }
        if wait != Some(ZERO) {
            self.line.fall_asleep();
            if self.line.is_rung() || !self.answers.is_empty() {
                wait = Some(ZERO);
            }
        }
        state.wait(wait);
        self.line.awaken();
        state.drive_events();
        state.retry_connects();
        self.collect(state, done);
    }

    fn close(&self, handle: HandleId) {
        self.state.borrow_mut().close(handle);
    }

    fn shutdown(&self, stream: HandleId) {
        self.state.borrow_mut().shutdown(stream);
    }

    fn detach(&self, stream: HandleId) -> Option<OwnedFd> {
        self.state.borrow_mut().detach(stream)
    }

    fn adopt(&self, socket: OwnedFd) -> io::Result<HandleId> {
        self.state.borrow_mut().adopt(socket.into())
    }

    fn listen(&self, address: &Address, how: &ListenHow) -> io::Result<(HandleId, Address)> {
        let bound = listen(address, how, Waits::No)?;
        let address = bound.address.clone();
        let handle = self.state.borrow_mut().add_listener(bound)?;
        Ok((handle, address))
    }

    fn now(&self) -> MonoTime {
        clock::now()
    }

    fn wall(&self) -> WallTime {
        clock::wall()
    }

    fn random_u64(&self) -> u64 {
        self.random.next()
    }

    fn waker(&self) -> RemoteWaker {
        self.waker.clone()
    }

    fn give_way(&self) {
        self.way.give();
    }

    fn bulk_plane(&self) -> BulkPlane {
        BulkPlane::Thread
    }
}

const ZERO: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

impl State {
    fn submit(&mut self, token: Token, op: Op) {
        match op {
            Op::Write { file, buffer, offset, durability } => {
                let Some(file) = self.file(file) else {
                    return self.answer(token, Done::Written(Err(unknown()), buffer));
                };
                self.disk.run(Box::new(move || {
                    let result = files::write(&file, &buffer, offset, durability);
                    Some((token, Answer::Done(Done::Written(result, buffer))))
                }));
            }
            Op::Read { file, mut buffer, offset } => {
                let Some(file) = self.file(file) else {
                    return self.answer(token, Done::Read(Err(unknown()), buffer));
                };
                self.disk.run(Box::new(move || {
                    let result = files::read(&file, &mut buffer, offset);
                    Some((token, Answer::Done(Done::Read(result, buffer))))
                }));
            }
            Op::Sync { file } => {
                let Some(file) = self.file(file) else {
                    return self.answer(token, Done::Synced(Err(unknown())));
                };
                self.disk.run(Box::new(move || {
                    let result = rustix::fs::fdatasync(&file).map_err(io::Error::from);
                    Some((token, Answer::Done(Done::Synced(result))))
                }));
            }
            Op::Call(call) => self.call(token, call),
            Op::Accept { listener } => self.accept(token, listener),
            Op::Connect { address } => self.connect(token, &address),
            Op::Receive { stream, into } => self.receive(token, stream, into),
            Op::Send { stream, buffers } => self.send(token, stream, buffers),
            Op::AwaitWake => {
                assert!(self.await_wake.is_none(), "one AwaitWake is pending at a time");
                self.await_wake = Some(token);
            }
        }
    }

    fn call(&mut self, token: Token, call: Call) {
        let file = match &call {
            Call::Lock(file) | Call::Truncate { file, .. } | Call::Allocate { file, .. } => {
                self.file(*file)
            }
            _ => None,
        };
        self.control.run(Box::new(move || {
            Some((token, Answer::Called(files::execute(&call, file.as_ref()))))
        }));
    }

    fn file(&self, handle: HandleId) -> Option<SharedFile> {
        match self.handles.get(handle)? {
            Entry::File(file) => Some(file.clone()),
            _ => None,
        }
    }

    /// Makes an answer of what a helper thread gave.
    fn finish(&mut self, answer: Answer) -> Done {
        let outcome = match answer {
            Answer::Done(done) => return done,
            Answer::Called(outcome) => outcome,
        };
        Done::Called(outcome.map(|outcome| match outcome {
            Outcome::Unit => Reply::Unit,
            Outcome::Names(names) => Reply::Names(names),
            Outcome::Size(size) => Reply::Size(size),
            Outcome::Bytes(bytes) => Reply::Bytes(bytes),
            Outcome::FileSystem(kind) => Reply::FileSystem(kind),
            Outcome::File { file, size, direct } => {
                Reply::File { file: self.handles.insert(Entry::File(file)), size, direct }
            }
        }))
    }

    fn answer(&mut self, token: Token, done: Done) {
        self.ready.push((token, done));
    }

    fn close(&mut self, handle: HandleId) {
        match self.handles.remove(handle) {
            // Closing the last name of a removed file frees its blocks, which may take long.
            Some(Entry::File(file)) => self.control.run(Box::new(move || {
                drop(file);
                None
            })),
            Some(Entry::Stream(stream)) => self.end_stream(stream),
            Some(Entry::Listener(listener)) => self.end_listener(listener),
            Some(Entry::Connecting(connecting)) => self.end_connecting(connecting),
            None => {}
        }
    }

    fn wait_at_most(&self, until: Option<MonoTime>) -> Option<Timespec> {
        let now = clock::now();
        let retry = (!self.retries.is_empty()).then(|| now + CONNECT_RETRY);
        let until = match (until, retry) {
            (Some(until), Some(retry)) => until.min(retry),
            (until, retry) => until.or(retry)?,
        };
        Some(clock::timespec_until(now, until))
    }

    /// Fills `events`. Signals and refusals leave it empty.
    fn wait(&mut self, wait: Option<Timespec>) {
        self.events.clear();
        let wait = match wait {
            Some(wait) if !self.fine_timeouts => Some(whole_milliseconds(wait)),
            other => other,
        };
        let events = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, events, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::NOSYS | Errno::PERM) if self.fine_timeouts => self.fine_timeouts = false,
            Err(error) => panic!("epoll_wait on a descriptor of ours: {error}"),
        }
    }
}

/// Rounded up, so that a timer never fires early and never spins.
fn whole_milliseconds(wait: Timespec) -> Timespec {
    let milliseconds = (wait.tv_nsec + 999_999) / 1_000_000;
    Timespec {
        tv_sec: wait.tv_sec.saturating_add(milliseconds / 1000),
        tv_nsec: milliseconds % 1000 * 1_000_000,
    }
}

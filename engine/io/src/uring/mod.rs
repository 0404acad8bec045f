//! The io_uring driver: one ring per shard, entered once per turn.
//!
//! ```text
//! submit ─┬─ disk op ─────────► flight on the ring
//!         ├─ send ────────────► its stream; one message per stream and turn
//!         ├─ receive, accept ─► served from the inbox, filled by a multishot flight
//!         └─ control call ────► helper thread ──► answers ──► wake line (eventfd, polled by ring)
//! park: parcels ──► enter ──► completions ──► serve what they touched ──► answers
//! ```
//! It needs the features of Linux 6.1, all or nothing: single issuer, deferred task work, multishot
//! accept and receive, rings of lent buffers.

mod buffers;
mod flight;
mod ring;
mod sockets;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::Timespec;

use crate::driver::{BulkPlane, Call, Done, Driver, HandleId, Op, RemoteWaker, Reply, Token};
use crate::limits::DIRECT_ALIGN_BYTES;
use crate::net::{Address, ListenHow};
use crate::system::clock::{self, Seeded};
use crate::system::files::{self, Outcome, SharedFile, short_write};
use crate::system::handles::Handles;
use crate::system::pool::{Answer, Answers, Pool};
use crate::system::sockets::{Waits, listen, unknown};
use crate::system::wake::WakeLine;
use crate::system::way::Way;
use crate::time::{MonoTime, WallTime};

use buffers::Buffers;
use flight::{Flight, Parcel, Reading, Writing};
pub(crate) use ring::Refused;
use ring::{Completion, Ring};
use sockets::{Connecting, Listening, Streaming};

const ZERO: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The driver. Lives on its shard's thread.
pub struct Uring {
    line: Arc<WakeLine>,
    waker: RemoteWaker,
    answers: Arc<Answers>,
    random: Seeded,
    way: Way,
    state: RefCell<State>,
}

struct State {
    /// Dropped first: it drains what is in flight. The lent buffers follow.
    ring: Ring,
    buffers: Buffers,
    handles: Handles<Entry>,
    /// Where the ops wait that `cancel` may name.
    waiting: HashMap<Token, HandleId>,
    /// Streams that have something to send and nothing in flight.
    senders: Vec<HandleId>,
    /// Sockets whose completions this visit has seen.
    touched: Vec<HandleId>,
    /// Empty parcels with their allocations.
    parcels: Vec<Parcel>,
    reaped: Vec<Completion>,
    ready: Vec<(Token, Done)>,
    await_wake: Option<Token>,
    control: Pool,
}

enum Entry {
    File(SharedFile),
    Stream(Streaming),
    Listener(Listening),
    Connecting(Connecting),
}

impl Uring {
    /// A driver on the calling thread; only this thread may use it.
    pub(crate) fn new(seed: u64) -> Result<Uring, Refused> {
        let refused = |step| move |error| Refused { step, error };
        let mut ring = Ring::new()?;
        let buffers = Buffers::register(ring.uring())
            .map_err(refused("io_uring_register of a buffer ring"))?;
        let line = WakeLine::new().map_err(refused("eventfd"))?;
        ring.launch(Flight::Wake { line: line.clone() });
        let answers = Answers::new(line.clone());
        let state = State {
            ring,
            buffers,
            handles: Handles::new(),
            waiting: HashMap::new(),
            senders: Vec::new(),
            touched: Vec::new(),
            parcels: Vec::new(),
            reaped: Vec::new(),
            ready: Vec::new(),
            await_wake: None,
            control: Pool::new("ringbolt-file", 1, answers.clone()),
        };
        let bell = line.clone();
        Ok(Uring {
            line,
            waker: Arc::new(move || bell.ring()),
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

impl Driver for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn submit(&self, token: Token, op: Op) {
        self.state.borrow_mut().submit(token, op);
    }

    fn cancel(&self, token: Token) {
        self.state.borrow_mut().cancel(token);
    }

    fn park(&self, until: Option<MonoTime>, done: &mut Vec<(Token, Done)>) {
        let state = &mut *self.state.borrow_mut();
        state.send_parcels();
        self.collect(state, done);
        let mut wait = until.map(|until| clock::timespec_until(clock::now(), until));
        if !done.is_empty() {
            wait = Some(ZERO);
        }
        if wait != Some(ZERO) {
            self.line.fall_asleep();
            if self.line.is_rung() || !self.answers.is_empty() {
                wait = Some(ZERO);
            }
        }
        state.ring.enter(wait);
        self.line.awaken();
        state.land_all();
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
        let bound = listen(address, how, Waits::Yes)?;
        let address = bound.address.clone();
        let listener = Entry::Listener(Listening::new(bound));
        Ok((self.state.borrow_mut().handles.insert(listener), address))
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
        BulkPlane::Glommio
    }
}

impl State {
    fn submit(&mut self, token: Token, op: Op) {
        match op {
            Op::Write { file, buffer, offset, durability } => match self.file(file) {
                Some(file) => {
                    let writing = Writing { token, file, buffer, offset, durability, written: 0 };
                    self.ring.launch(Flight::Write(writing));
                }
                None => self.answer(token, Done::Written(Err(unknown()), buffer)),
            },
            Op::Read { file, buffer, offset } => match self.file(file) {
                Some(file) => {
                    let reading = Reading { token, file, buffer, offset, filled: 0 };
                    self.ring.launch(Flight::Read(reading));
                }
                None => self.answer(token, Done::Read(Err(unknown()), buffer)),
            },
            Op::Sync { file } => match self.file(file) {
                Some(file) => {
                    self.ring.launch(Flight::Sync { token, file });
                }
                None => self.answer(token, Done::Synced(Err(unknown()))),
            },
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
            Some(Entry::Connecting(_)) => unreachable!("a connection has no handle before it is"),
            None => {}
        }
    }

    /// Takes every completion there is and serves what they touched.
    fn land_all(&mut self) {
        loop {
            let mut reaped = std::mem::take(&mut self.reaped);
            self.ring.reap(&mut reaped);
            if reaped.is_empty() {
                self.reaped = reaped;
                break;
            }
            for completion in reaped.drain(..) {
                if completion.more() {
                    self.go_on(&completion);
                } else {
                    self.land(&completion);
                }
            }
            self.reaped = reaped;
        }
        self.buffers.publish();
        for handle in std::mem::take(&mut self.touched) {
            self.serve(handle);
        }
    }

    /// One of several completions of a multishot flight.
    fn go_on(&mut self, completion: &Completion) {
        match self.ring.flight(completion) {
            Flight::Receive { handle, .. } => {
                let handle = *handle;
                self.received(handle, completion);
            }
            Flight::Accept { handle, .. } => {
                let handle = *handle;
                self.accepted(handle, completion);
            }
            Flight::Wake { .. } => {}
            _ => unreachable!("only multishot flights have more completions"),
        }
    }

    /// The last completion of a flight.
    fn land(&mut self, completion: &Completion) {
        match self.ring.land(completion) {
            Flight::Write(writing) => self.written(writing, completion.result()),
            Flight::Read(reading) => self.read(reading, completion.result()),
            Flight::Sync { token, file } => match completion.result() {
                Err(error) if is_interrupted(&error) => {
                    self.ring.launch(Flight::Sync { token, file });
                }
                result => self.answer(token, Done::Synced(result.map(drop))),
            },
            Flight::Connect { handle, .. } => self.connected(handle, completion.result()),
            Flight::Accept { handle, .. } => self.accepted(handle, completion),
            Flight::Receive { handle, .. } => self.received(handle, completion),
            Flight::Send { handle, parcel, .. } => self.sent(handle, parcel, completion.result()),
            Flight::Wake { line } => {
                self.ring.launch(Flight::Wake { line });
            }
        }
    }

    /// After a short write the rest is tried once, only to learn the system's reason (a full disk
    /// is short first); it is an error in any case (D4).
    fn written(&mut self, mut writing: Writing, result: io::Result<usize>) {
        let wanted = writing.buffer.len();
        let first = writing.written == 0;
        let result = match result {
            Ok(count) if first && count == wanted => Ok(()),
            Ok(count) if first && count > 0 => {
                writing.written = count;
                self.ring.launch(Flight::Write(writing));
                return;
            }
            Ok(_) => Err(short_write(writing.written, wanted)),
            Err(error) if is_interrupted(&error) => {
                self.ring.launch(Flight::Write(writing));
                return;
            }
            Err(error) => Err(error),
        };
        self.answer(writing.token, Done::Written(result, writing.buffer));
    }

    /// A read goes on until it is full or at the end; a count off the block is the end.
    fn read(&mut self, mut reading: Reading, result: io::Result<usize>) {
        let again = match result {
            Ok(count) => {
                reading.filled += count;
                let full = reading.filled == reading.buffer.len();
                count > 0 && count.is_multiple_of(DIRECT_ALIGN_BYTES) && !full
            }
            Err(ref error) => is_interrupted(error),
        };
        if again {
            self.ring.launch(Flight::Read(reading));
            return;
        }
        let result = result.map(|_| reading.filled);
        self.answer(reading.token, Done::Read(result, reading.buffer));
    }
}

/// A kernel worker was interrupted before it began.
fn is_interrupted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN))
}

//! The side of the keyspace: calls that came from other shards, run by the same handlers.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};
use std::task::Waker;

use bytes::Bytes;
use ringbolt_io::local::{Promise, receipt};
use ringbolt_io::{Io, mailbox};
use ringbolt_proto::method::Mode;

use super::outbox::Outbox;
use super::{Asked, Asking, CallId, ConnectionId, Told};
use crate::budget::Held;
use crate::connection::link::Waiters;
use crate::connection::{Call, Gone, Metadata, PeerInfo, Requests, Responder, Service};
use crate::grpc::{Code, Status};
use crate::http1::Desk;
use crate::limits::{
    RELAY_BATCH_MAX, RELAY_MAILBOX_MAX, RELAY_PIECES_MAX, STREAM_AHEAD_BYTES_MAX,
    STREAM_AHEAD_TIGHT_BYTES,
};
use crate::metrics::rpc::Rpcs;

/// A keyspace that other shards have connections of.
pub struct Home {
    io: Io,
    service: Rc<dyn Service>,
    rpcs: Rc<Rpcs>,
    lanes: RefCell<Vec<Weak<Lane>>>,
}

/// What joins a keyspace to one other shard.
pub struct Lane {
    io: Io,
    service: Rc<dyn Service>,
    rpcs: Rc<Rpcs>,
    /// Known once the other shard has said its first word.
    out: RefCell<Option<Rc<Outbox<Told>>>>,
    calls: RefCell<Vec<Option<Rc<FarCall>>>>,
    calls_open: Cell<usize>,
    peers: RefCell<BTreeMap<ConnectionId, Rc<PeerInfo>>>,
    next_connection: Cell<ConnectionId>,
    counting: RefCell<VecDeque<Promise<()>>>,
    /// Memory is tight on the other shard.
    tight: Cell<bool>,
    /// What its share held when it was last counted.
    held: Cell<Held>,
    over: Cell<bool>,
}

impl Home {
    /// A home whose calls are answered by `service`; calls of other shards are added to `rpcs`.
    #[must_use]
    pub fn new(io: &Io, service: Rc<dyn Service>, rpcs: Rc<Rpcs>) -> Rc<Home> {
        Rc::new(Home { io: io.clone(), service, rpcs, lanes: RefCell::default() })
    }

    /// Opens a lane; the sender is for the [`super::Edge`] on the other shard. `desk` answers its
    /// requests that are not gRPC.
    pub fn open(&self, desk: Option<Rc<Desk>>) -> (Rc<Lane>, mailbox::Sender<Asked>) {
        let (sender, mail) = mailbox::mailbox(&self.io, RELAY_MAILBOX_MAX);
        let lane = Rc::new(Lane {
            io: self.io.clone(),
            service: self.service.clone(),
            rpcs: self.rpcs.clone(),
            out: RefCell::default(),
            calls: RefCell::default(),
            calls_open: Cell::new(0),
            peers: RefCell::default(),
            next_connection: Cell::new(0),
            counting: RefCell::default(),
            tight: Cell::new(false),
            held: Cell::default(),
            over: Cell::new(false),
        });
        self.lanes.borrow_mut().push(Rc::downgrade(&lane));
        self.io.spawn("relay lane", serve(lane.clone(), desk, mail));
        (lane, sender)
    }

    /// Calls of other shards that are not answered yet.
    #[must_use]
    pub fn calls_open(&self) -> usize {
        self.lanes().iter().map(|lane| lane.calls_open.get()).sum()
    }

    /// Connections that live on other shards.
    #[must_use]
    pub fn connections_open(&self) -> usize {
        self.lanes().iter().map(|lane| lane.connections_open()).sum()
    }

    /// What the shares of other shards held at the last `gather`.
    #[must_use]
    pub fn held(&self) -> Held {
        let lanes = self.lanes();
        std::array::from_fn(|owner| lanes.iter().map(|lane| lane.held.get()[owner]).sum())
    }

    /// Whether a lane still leads somewhere.
    #[must_use]
    pub fn is_joined(&self) -> bool {
        self.lanes().iter().any(|lane| !lane.over.get())
    }

    /// Waits until everything the other shards have counted is in `rpcs`.
    pub async fn gather(&self) {
        for lane in self.lanes() {
            let out = lane.out.borrow().clone();
            let Some(out) = out.filter(|_| !lane.over.get()) else { continue };
            let (promise, counted) = receipt();
            lane.counting.borrow_mut().push_back(promise);
            out.push(Told::Count);
            // Receipt: the other shard's counts, or its end.
            let _gone_is_counted_too = counted.await;
        }
    }

    fn lanes(&self) -> Vec<Rc<Lane>> {
        self.lanes.borrow().iter().filter_map(Weak::upgrade).collect()
    }
}

impl Lane {
    /// Notes a connection that goes to the other shard; its number goes with it.
    pub fn welcome(&self, peer: PeerInfo) -> ConnectionId {
        let number = self.next_connection.get();
        self.next_connection.set(number.wrapping_add(1));
        self.peers.borrow_mut().insert(number, Rc::new(peer));
        number
    }

    /// Forgets a connection that could not go.
    pub fn farewell(&self, connection: ConnectionId) {
        self.peers.borrow_mut().remove(&connection);
    }

    /// Connections that went to the other shard and have not ended.
    #[must_use]
    pub fn connections_open(&self) -> usize {
        self.peers.borrow().len()
    }

    fn tell(&self, told: Told) {
        if let Some(out) = &*self.out.borrow() {
            out.push(told);
        }
    }

    fn call(&self, call: CallId) -> Option<Rc<FarCall>> {
        self.calls.borrow().get(usize::try_from(call).ok()?)?.clone()
    }

    fn take(self: &Rc<Self>, asked: Asked, desk: Option<&Rc<Desk>>) {
        match asked {
            Asked::Here(sender) => *self.out.borrow_mut() = Some(Outbox::new(&self.io, sender)),
            Asked::Call(asking) => self.begin(asking),
            Asked::Message(call, message) => {
                if let Some(call) = self.call(call) {
                    call.inbox.borrow_mut().push_back(message);
                    call.wake(|waiters| waiters.next.take());
                }
            }
            Asked::Ended(call) => {
                if let Some(call) = self.call(call) {
                    call.ended.set(true);
                    call.wake(|waiters| waiters.next.take());
                }
            }
            Asked::Gone(call, code) => {
                if let Some(call) = self.call(call) {
                    call.leave(code);
                }
            }
            Asked::Room(call, bytes, pieces) => {
                if let Some(call) = self.call(call) {
                    let (ahead, count) = call.ahead.get();
                    call.ahead.set((ahead.saturating_sub(bytes), count.saturating_sub(pieces)));
                    call.wake(|waiters| waiters.room.take());
                }
            }
            Asked::Web(call, request) => {
                let (lane, desk) = (self.clone(), desk.cloned());
                self.io.spawn("relay request", async move {
                    let answer = match desk {
                        Some(desk) => desk.answer(&request).await,
                        None => crate::http1::answer::Answer::not_found(),
                    };
                    lane.tell(Told::Web(call, Box::new(answer)));
                });
            }
            Asked::Tight(tight) => self.tight.set(tight),
            Asked::Counts(counts, held) => {
                self.rpcs.absorb(&counts);
                self.held.set(held);
                let promise = self.counting.borrow_mut().pop_front();
                if let Some(promise) = promise {
                    promise.fulfil(());
                }
            }
            Asked::Closed(connection) => {
                self.peers.borrow_mut().remove(&connection);
            }
        }
    }

    fn begin(self: &Rc<Self>, asking: Asking) {
        let Asking { call, connection, method, metadata, deadline, request } = asking;
        let peer = self.peers.borrow().get(&connection).cloned();
        let far = Rc::new(FarCall {
            id: call,
            lane: self.clone(),
            streams: method.mode == Mode::Bidi,
            inbox: RefCell::new(request.into_iter().collect()),
            ended: Cell::new(method.mode != Mode::Bidi),
            gone: Cell::new(None),
            over: Cell::new(false),
            ahead: Cell::new((0, 0)),
            waiters: RefCell::default(),
        });
        let index = usize::try_from(call).expect("a call's number fits an index");
        {
            let mut calls = self.calls.borrow_mut();
            if calls.len() <= index {
                calls.resize(index + 1, None);
            }
            assert!(calls[index].is_none(), "the number of call {call} is in use");
            calls[index] = Some(far.clone());
        }
        self.calls_open.set(self.calls_open.get() + 1);
        let call = Call {
            method,
            metadata: Metadata::carried(metadata),
            deadline,
            peer: peer.expect("a connection has no calls after its end"),
            requests: Requests::far(far.clone()),
            responder: Responder::far(far),
        };
        self.service.clone().call(call);
    }
}

/// Serves a lane until the other shard has gone.
async fn serve(lane: Rc<Lane>, desk: Option<Rc<Desk>>, mail: mailbox::Receiver<Asked>) {
    let mut batch = Vec::new();
    // Receipt: the other shard has something to ask.
    while mail.receive_all(&mut batch).await {
        for (index, asked) in batch.drain(..).enumerate() {
            lane.take(asked, desk.as_ref());
            if index % RELAY_BATCH_MAX == RELAY_BATCH_MAX - 1 {
                lane.io.yield_now().await;
            }
        }
    }
    lane.over.set(true);
    lane.counting.borrow_mut().clear();
    lane.peers.borrow_mut().clear();
    let left: Vec<_> = lane.calls.borrow().iter().flatten().cloned().collect();
    for call in left {
        call.leave(Code::Canceled);
    }
    let out = lane.out.borrow_mut().take();
    if let Some(out) = out {
        out.close();
    }
}

/// A call of another shard: the far kind of `Requests` and `Responder`.
pub(in crate::connection) struct FarCall {
    id: CallId,
    lane: Rc<Lane>,
    /// The client may send more than one message.
    streams: bool,
    inbox: RefCell<VecDeque<Result<Bytes, Status>>>,
    /// The client has sent all.
    ended: Cell<bool>,
    gone: Cell<Option<Code>>,
    /// The other shard was told the end.
    over: Cell<bool>,
    /// Bytes and pieces on their way or without room.
    ahead: Cell<(usize, usize)>,
    pub waiters: RefCell<Waiters>,
}

impl FarCall {
    /// The next message of the client if it is here.
    pub fn take(&self) -> Option<Result<Bytes, Status>> {
        let message = self.inbox.borrow_mut().pop_front()?;
        if self.streams {
            self.lane.tell(Told::Taken(self.id));
        }
        Some(message)
    }

    /// The client has sent all.
    pub fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// Why nobody waits for the answer any more.
    pub fn gone_because(&self) -> Option<Code> {
        self.gone.get()
    }

    /// The other shard was told the end.
    pub fn is_over(&self) -> bool {
        self.over.get()
    }

    /// Whether a piece may be sent now.
    pub fn has_room(&self) -> bool {
        let (bytes, pieces) = self.ahead.get();
        let tight = self.lane.tight.get();
        let most = if tight { STREAM_AHEAD_TIGHT_BYTES } else { STREAM_AHEAD_BYTES_MAX };
        bytes < most && pieces < RELAY_PIECES_MAX
    }

    /// Sends payload; with `total`, the first piece of a message of that size.
    pub fn send(&self, total: Option<usize>, bytes: Bytes) -> Result<(), Gone> {
        if self.gone.get().is_some() || self.over.get() {
            return Err(Gone);
        }
        let (ahead, pieces) = self.ahead.get();
        self.ahead.set((ahead + bytes.len(), pieces + 1));
        self.lane.tell(Told::Piece { call: self.id, total, bytes });
        Ok(())
    }

    /// Answers a unary call.
    pub fn answer(&self, answer: Result<Bytes, Status>) {
        self.close(|call| Told::Answer(call, answer));
    }

    /// Ends the call.
    pub fn end(&self, status: Status) {
        self.close(|call| Told::End(call, status));
    }

    fn close(&self, told: impl FnOnce(CallId) -> Told) {
        if self.over.replace(true) {
            return;
        }
        let index = usize::try_from(self.id).expect("a call's number fits an index");
        self.lane.calls.borrow_mut()[index] = None;
        self.lane.calls_open.set(self.lane.calls_open.get() - 1);
        self.lane.tell(told(self.id));
    }

    fn leave(&self, code: Code) {
        self.gone.set(Some(code));
        let waiters = std::mem::take(&mut *self.waiters.borrow_mut());
        for waiter in [waiters.next, waiters.room, waiters.gone].into_iter().flatten() {
            waiter.wake();
        }
    }

    fn wake(&self, which: impl FnOnce(&mut Waiters) -> Option<Waker>) {
        let waiter = which(&mut self.waiters.borrow_mut());
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

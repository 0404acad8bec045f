//! The side of the connection: calls go out, answers come back.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ringbolt_engine::Reason;
use ringbolt_io::local::{Promise, receipt};
use ringbolt_io::{Io, mailbox};
use ringbolt_proto::method::Mode;
use slab::Slab;

use super::outbox::Outbox;
use super::{Asked, Asking, CARRIED_FIELDS, CallId, ConnectionId, Told};
use crate::budget::{Pressure, Share};
use crate::connection::{Call, CallEvent, Metadata, Requests, Responder, Service};
use crate::error;
use crate::grpc::Code;
use crate::http1::answer::Answer;
use crate::http1::parse::Request;
use crate::limits::{
    RELAY_CALLS_MAX, RELAY_MAILBOX_MAX, RELAY_MESSAGES_AHEAD_MAX, STREAM_AHEAD_BYTES_MAX,
};
use crate::metrics::rpc::{Rpcs, warn_if_slow};

/// One keyspace as seen from a shard that is not its home.
pub struct Edge {
    io: Io,
    out: Rc<Outbox<Asked>>,
    calls: RefCell<Slab<Entry>>,
    rpcs: Rpcs,
    share: Rc<Share>,
    /// What the home knows.
    tight: Cell<bool>,
    slow: Duration,
    /// The home has gone.
    orphaned: Cell<bool>,
}

/// A call that the home has not ended yet.
enum Entry {
    /// One answer is awaited.
    Unary(Responder),
    /// Messages may go both ways.
    Flow(Rc<Flow>),
    /// A request that is not gRPC.
    Web(Promise<Answer>),
}

/// A call whose messages are on their way in either direction.
struct Flow {
    responder: RefCell<Option<Responder>>,
    /// Bytes and pieces that came and were not given back as credit.
    owed: Cell<(usize, usize)>,
    /// Sizes of the messages the home has not taken.
    ahead: RefCell<VecDeque<usize>>,
    ahead_bytes: Cell<usize>,
    pump: RefCell<Option<Waker>>,
}

impl Edge {
    /// Joins a shard to the home of a keyspace, whose mailbox is `asked`.
    #[must_use]
    pub fn open(
        io: &Io,
        asked: mailbox::Sender<Asked>,
        rpcs: Rpcs,
        share: Rc<Share>,
        slow: Duration,
    ) -> Rc<Edge> {
        let (sender, mail) = mailbox::mailbox(io, RELAY_MAILBOX_MAX);
        let out = Outbox::new(io, asked);
        out.push(Asked::Here(sender));
        let edge = Rc::new(Edge {
            io: io.clone(),
            out,
            calls: RefCell::default(),
            rpcs,
            share,
            tight: Cell::new(false),
            slow,
            orphaned: Cell::new(false),
        });
        io.spawn("relay edge", listen(edge.clone(), mail));
        edge
    }

    /// What serves one connection of this shard.
    #[must_use]
    pub fn service(self: &Rc<Self>, connection: ConnectionId) -> Rc<EdgeService> {
        Rc::new(EdgeService { edge: self.clone(), connection })
    }

    /// Asks the home to answer a request that is not gRPC; `None` when it cannot.
    pub fn web(&self, request: Request) -> impl Future<Output = Option<Answer>> + use<> {
        let (promise, answer) = receipt();
        if self.has_room() {
            let call = self.insert(Entry::Web(promise));
            self.out.push(Asked::Web(call, Box::new(request)));
        }
        answer
    }

    /// A connection has ended.
    pub fn closed(&self, connection: ConnectionId) {
        self.out.push(Asked::Closed(connection));
    }

    /// Ends the calls that are left and lets the home go.
    pub fn close(&self) {
        self.tell_counts();
        self.out.close();
    }

    fn tell_counts(&self) {
        self.out.push(Asked::Counts(Box::new(self.rpcs.take()), self.share.held()));
    }

    fn tell_tightness(&self) {
        let tight = self.share.pressure() >= Pressure::Tight;
        if self.tight.replace(tight) != tight {
            self.out.push(Asked::Tight(tight));
        }
    }

    fn has_room(&self) -> bool {
        !self.orphaned.get() && self.calls.borrow().len() < RELAY_CALLS_MAX
    }

    fn insert(&self, entry: Entry) -> CallId {
        let call = self.calls.borrow_mut().insert(entry);
        CallId::try_from(call).expect("RELAY_CALLS_MAX fits a call's number")
    }

    fn remove(&self, call: CallId) -> Option<Entry> {
        self.calls.borrow_mut().try_remove(usize::try_from(call).ok()?)
    }

    fn take(self: &Rc<Self>, told: Told) {
        match told {
            Told::Answer(call, answer) => match self.remove(call) {
                Some(Entry::Unary(responder)) => responder.unary(answer),
                Some(Entry::Flow(flow)) => flow.end(|responder| responder.unary(answer)),
                _ => {}
            },
            Told::Piece { call, total, bytes } => {
                if let Some(flow) = self.flow(call) {
                    flow.take(total, bytes);
                }
            }
            Told::End(call, status) => match self.remove(call) {
                Some(Entry::Unary(responder)) => responder.finish(status),
                Some(Entry::Flow(flow)) => flow.end(|responder| responder.finish(status)),
                _ => {}
            },
            Told::Taken(call) => {
                if let Some(flow) = self.flow(call) {
                    let size = flow.ahead.borrow_mut().pop_front().unwrap_or(0);
                    flow.ahead_bytes.set(flow.ahead_bytes.get().saturating_sub(size));
                    flow.wake();
                }
            }
            Told::Web(call, answer) => {
                if let Some(Entry::Web(promise)) = self.remove(call) {
                    promise.fulfil(*answer);
                }
            }
            Told::Count => self.tell_counts(),
        }
    }

    /// The flow of a call; one that was thought to have a single answer becomes one.
    fn flow(self: &Rc<Self>, call: CallId) -> Option<Rc<Flow>> {
        let mut calls = self.calls.borrow_mut();
        let entry = calls.get_mut(usize::try_from(call).ok()?)?;
        if let Entry::Flow(flow) = entry {
            return Some(flow.clone());
        }
        let flow = Rc::new(Flow::new());
        match std::mem::replace(entry, Entry::Flow(flow.clone())) {
            Entry::Unary(responder) => *flow.responder.borrow_mut() = Some(responder),
            other => {
                *entry = other;
                return None;
            }
        }
        drop(calls);
        self.io.spawn("relay flow", pump(self.clone(), call, flow.clone(), None));
        Some(flow)
    }
}

/// Takes what the home says until it has gone.
async fn listen(edge: Rc<Edge>, mail: mailbox::Receiver<Told>) {
    let mut batch = Vec::new();
    // Receipt: the home has something to say.
    while mail.receive_all(&mut batch).await {
        for told in batch.drain(..) {
            edge.take(told);
        }
        edge.tell_tightness();
    }
    edge.orphaned.set(true);
    let left: Vec<Entry> = edge.calls.borrow_mut().drain().collect();
    for entry in left {
        match entry {
            Entry::Unary(responder) => responder.finish(error::status_of(Reason::Stopped)),
            Entry::Flow(flow) => {
                flow.end(|responder| responder.finish(error::status_of(Reason::Stopped)))
            }
            Entry::Web(promise) => drop(promise),
        }
    }
}

impl Flow {
    fn new() -> Flow {
        Flow {
            responder: RefCell::default(),
            owed: Cell::default(),
            ahead: RefCell::default(),
            ahead_bytes: Cell::default(),
            pump: RefCell::default(),
        }
    }

    fn wake(&self) {
        let pump = self.pump.borrow_mut().take();
        if let Some(pump) = pump {
            pump.wake();
        }
    }

    fn take(&self, total: Option<usize>, bytes: bytes::Bytes) {
        let (owed, pieces) = self.owed.get();
        self.owed.set((owed + bytes.len(), pieces + 1));
        if let Some(responder) = &*self.responder.borrow() {
            // A client that has gone is told of by the pump.
            let _ = responder.send_piece(total, bytes);
        }
        self.wake();
    }

    fn end(&self, finish: impl FnOnce(Responder)) {
        let responder = self.responder.borrow_mut().take();
        if let Some(responder) = responder {
            finish(responder);
        }
        self.wake();
    }

    fn may_send_ahead(&self) -> bool {
        let count = self.ahead.borrow().len();
        count == 0
            || (count < RELAY_MESSAGES_AHEAD_MAX && self.ahead_bytes.get() < STREAM_AHEAD_BYTES_MAX)
    }
}

/// Brings the client's messages, its going and its room to the home, until the call is over.
async fn pump(edge: Rc<Edge>, call: CallId, flow: Rc<Flow>, mut requests: Option<Requests>) {
    // Receipt: whatever comes first.
    std::future::poll_fn(|context| {
        *flow.pump.borrow_mut() = Some(context.waker().clone());
        let responder = flow.responder.borrow();
        let Some(responder) = &*responder else { return Poll::Ready(()) };
        if responder.poll_gone(context).is_ready() {
            let code = responder.gone_because().expect("a call that is gone says why");
            edge.out.push(Asked::Gone(call, code));
            return Poll::Ready(());
        }
        take_messages(&edge, call, &flow, &mut requests, context);
        let (bytes, pieces) = flow.owed.get();
        if pieces > 0 && responder.poll_ready(context).is_ready() {
            flow.owed.set((0, 0));
            edge.out.push(Asked::Room(call, bytes, pieces));
        }
        Poll::Pending
    })
    .await;
}

fn take_messages(
    edge: &Edge,
    call: CallId,
    flow: &Flow,
    requests: &mut Option<Requests>,
    context: &mut Context<'_>,
) {
    while let Some(source) = requests
        && flow.may_send_ahead()
    {
        match source.poll_next(context) {
            Poll::Pending => return,
            Poll::Ready(Some(message)) => {
                let size = message.as_ref().map_or(0, bytes::Bytes::len);
                if message.is_err() {
                    *requests = None;
                }
                flow.ahead.borrow_mut().push_back(size);
                flow.ahead_bytes.set(flow.ahead_bytes.get() + size);
                edge.out.push(Asked::Message(call, message));
            }
            Poll::Ready(None) => {
                *requests = None;
                edge.out.push(Asked::Ended(call));
            }
        }
    }
}

/// The service of one connection whose keyspace lives elsewhere.
pub struct EdgeService {
    edge: Rc<Edge>,
    connection: ConnectionId,
}

impl Service for EdgeService {
    fn call(self: Rc<Self>, call: Call) {
        let edge = &self.edge;
        let Call { method, metadata, deadline, mut requests, responder, .. } = call;
        if !edge.has_room() {
            let orphaned = edge.orphaned.get();
            let status = if orphaned {
                error::status_of(Reason::Stopped)
            } else {
                error::status_of(Reason::TooManyRequests)
            };
            return responder.finish(status);
        }
        let request = if method.mode == Mode::Bidi { None } else { requests.try_next() };
        let metadata = carried(&metadata);
        let connection = self.connection;
        let asking = |call| Asking { call, connection, method, metadata, deadline, request };
        if method.mode == Mode::Unary {
            let entry = edge.calls.borrow().vacant_key();
            responder.mark(CallId::try_from(entry).expect("RELAY_CALLS_MAX fits it"));
            let call = edge.insert(Entry::Unary(responder));
            return edge.out.push(Asked::Call(asking(call)));
        }
        let flow = Rc::new(Flow::new());
        *flow.responder.borrow_mut() = Some(responder);
        let call = edge.insert(Entry::Flow(flow.clone()));
        edge.out.push(Asked::Call(asking(call)));
        let requests = (method.mode == Mode::Bidi).then_some(requests);
        edge.io.spawn("relay flow", pump(edge.clone(), call, flow, requests));
    }

    fn gone(&self, call: u32, code: Code) {
        // One that has its answer is off the table already.
        let index = usize::try_from(call).expect("a call's number fits an index");
        let waits = matches!(self.edge.calls.borrow().get(index), Some(Entry::Unary(_)));
        if waits {
            self.edge.out.push(Asked::Gone(call, code));
        }
    }

    fn observe(&self, event: &CallEvent<'_>) {
        self.edge.tell_tightness();
        self.edge.rpcs.observe(event);
        warn_if_slow(event, self.edge.slow);
    }
}

fn carried(metadata: &Metadata) -> super::Carried {
    let mut fields = Vec::new();
    for name in CARRIED_FIELDS {
        if let Some(value) = metadata.field(name) {
            fields.push((name, value.clone()));
        }
    }
    fields
}

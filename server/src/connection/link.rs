//! What the tasks and calls of one connection share.
//!
//! - L1 No borrow of `http` or `slots` is held while a waker, a service or a web handler runs.
//! - L2 Every received payload byte is given back to the flow-control window exactly once: when it
//!   is handed over, or when its call goes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::task::Waker;

use bytes::Bytes;
use hashbrown::HashMap;
use ringbolt_engine::Reason;
use ringbolt_io::local::Bell;
use ringbolt_io::{Io, MonoTime};
use ringbolt_proto::method::{Method, Mode};

use super::{CallEvent, Parts, PeerInfo};
use crate::budget::{Owner, Pressure};
use crate::error;
use crate::grpc::{Assembler, Code, Encoding, Message, Request, Status, respond};
use crate::http2::hash::FixedHash;
use crate::http2::{ErrorCode, Head, Http2, StreamId};
use crate::limits::{
    ASSEMBLY_BYTES_PER_CONNECTION_MAX, CALL_BYTES, CONNECTION_BYTES, CONNECTION_HELD_FULL_BYTES,
    HEADER_CACHE_ENTRIES, HEADS_PER_CONNECTION_BYTES_MAX, OUTPUT_STOPS_READING_BYTES,
    OUTPUT_STOPS_READING_TIGHT_BYTES, STREAM_AHEAD_BYTES_MAX, STREAM_AHEAD_TIGHT_BYTES,
};

/// One connection, shared by its tasks and its calls.
pub(super) struct Link {
    pub io: Io,
    pub peer: Rc<PeerInfo>,
    pub parts: Parts,
    pub http: RefCell<Http2>,
    /// Rung when there may be something to write.
    pub output: Bell,
    /// Rung when written output made room for reading on.
    pub drained: Bell,
    /// Rung when an earlier deadline came.
    pub alarm: Bell,
    /// Nothing is written any more.
    pub lost: Cell<bool>,
    slots: RefCell<HashMap<StreamId, Rc<Slot>, FixedHash>>,
    deadlines: RefCell<BTreeSet<(MonoTime, StreamId)>>,
    assembling_bytes: Cell<usize>,
    /// Whole messages that wait or were taken by calls that are open.
    request_bytes: Cell<usize>,
    /// Header lists of calls that are open.
    head_bytes: Cell<usize>,
    /// What the share was charged: connection, calls, output.
    charged: Cell<(usize, usize, usize)>,
    requests: RefCell<RequestCache>,
}

/// One call, shared by its connection, its `Requests` and its `Responder`.
pub(super) struct Slot {
    pub id: StreamId,
    pub request: Rc<Request>,
    /// Why the call went before it was answered.
    pub gone: Cell<Option<Code>>,
    /// The service asked to be told when it goes.
    pub mark: Cell<Option<u32>>,
    /// Response headers were sent.
    pub answering: Cell<bool>,
    pub deadline: Cell<Option<MonoTime>>,
    pub opened: MonoTime,
    pub inbox: RefCell<Inbox>,
    pub waiters: RefCell<Waiters>,
    deadline_listed: Cell<bool>,
    head_bytes: usize,
    /// What the call was charged for its requests.
    request_bytes: Cell<usize>,
}

/// Tasks to wake.
#[derive(Default)]
pub(super) struct Waiters {
    pub next: Option<Waker>,
    pub room: Option<Waker>,
    pub gone: Option<Waker>,
}

/// What came of a call's payload.
#[derive(Default)]
pub(super) struct Inbox {
    /// Whole messages not yet taken.
    pub messages: VecDeque<Result<Message, Status>>,
    /// Body of a request that is not gRPC.
    pub body: Vec<u8>,
    /// The client has sent everything.
    pub ended: bool,
    /// The service has the call.
    pub dispatched: bool,
    assembler: Assembler,
    held_bytes: usize,
}

/// Heads understood before, by the identity of the head the HTTP/2 layer shares.
#[derive(Default)]
struct RequestCache {
    entries: Vec<Rc<Request>>,
    next: usize,
}

impl Link {
    pub(super) fn new(io: Io, peer: PeerInfo, parts: Parts) -> Rc<Link> {
        let http = Http2::new(parts.http2.clone(), io.now());
        Rc::new(Link {
            io,
            peer: Rc::new(peer),
            parts,
            http: RefCell::new(http),
            output: Bell::default(),
            drained: Bell::default(),
            alarm: Bell::default(),
            lost: Cell::new(false),
            slots: RefCell::new(HashMap::with_hasher(FixedHash)),
            deadlines: RefCell::default(),
            assembling_bytes: Cell::new(0),
            request_bytes: Cell::new(0),
            head_bytes: Cell::new(0),
            charged: Cell::new((0, 0, 0)),
            requests: RefCell::default(),
        })
    }

    pub(super) fn calls_open(&self) -> usize {
        self.slots.borrow().len()
    }

    pub(super) fn slot(&self, id: StreamId) -> Option<Rc<Slot>> {
        self.slots.borrow().get(&id).cloned()
    }

    /// Reads a head, or finds what was read before.
    pub(super) fn understand(&self, head: &Rc<Head>) -> Rc<Request> {
        let mut cache = self.requests.borrow_mut();
        if let Some(known) = cache.entries.iter().find(|known| Rc::ptr_eq(&known.head, head)) {
            return known.clone();
        }
        let request = Rc::new(Request::parse(head.clone()));
        // Held by the event and by us only: the block was not remembered, so it will not come back.
        if Rc::strong_count(head) > 2 {
            if cache.entries.len() < HEADER_CACHE_ENTRIES {
                cache.entries.push(request.clone());
            } else {
                let next = cache.next;
                cache.entries[next] = request.clone();
            }
            cache.next = (cache.next + 1) % HEADER_CACHE_ENTRIES;
        }
        request
    }

    pub(super) fn open(
        &self,
        id: StreamId,
        request: Rc<Request>,
        deadline: Option<MonoTime>,
        now: MonoTime,
    ) -> Rc<Slot> {
        if let Some(method) = request.method() {
            let client_version = request.head.get("client-api-version").map(|value| &value[..]);
            self.parts.service.observe(&CallEvent::Started { method, client_version });
        }
        // Held by its reader and by us only; one that is remembered too costs nothing more.
        let head_bytes = if Rc::strong_count(&request) > 2 { 0 } else { request.head.size() };
        let slot = Rc::new(Slot {
            id,
            request,
            gone: Cell::new(None),
            mark: Cell::new(None),
            answering: Cell::new(false),
            deadline: Cell::new(deadline),
            opened: now,
            inbox: RefCell::default(),
            waiters: RefCell::default(),
            deadline_listed: Cell::new(false),
            head_bytes,
            request_bytes: Cell::new(0),
        });
        self.head_bytes.set(self.head_bytes.get() + head_bytes);
        self.slots.borrow_mut().insert(id, slot.clone());
        slot
    }

    /// The deadline of a call that is not answered at once is watched.
    pub(super) fn watch_deadline(&self, slot: &Slot) {
        let Some(deadline) = slot.deadline.get() else { return };
        if slot.deadline_listed.get() || !self.slots.borrow().contains_key(&slot.id) {
            return;
        }
        slot.deadline_listed.set(true);
        let mut deadlines = self.deadlines.borrow_mut();
        let earliest = deadlines.first().is_none_or(|(first, _)| deadline < *first);
        deadlines.insert((deadline, slot.id));
        if earliest {
            self.alarm.ring();
        }
    }

    pub(super) fn next_deadline(&self) -> Option<MonoTime> {
        self.deadlines.borrow().first().map(|(first, _)| *first)
    }

    /// Ends the calls whose deadline has passed.
    pub(super) fn expire(&self, now: MonoTime) {
        loop {
            let due = self.deadlines.borrow().first().copied().filter(|(when, _)| *when <= now);
            let Some((_, id)) = due else { return };
            let slot = self.slot(id).expect("a listed deadline belongs to an open call");
            self.fail(&slot, Code::DeadlineExceeded, &Status::deadline_exceeded());
        }
    }

    /// Ends a call from our side with an error, whatever it was doing.
    pub(super) fn fail(&self, slot: &Slot, gone: Code, status: &Status) {
        if self.remove(slot, gone) {
            let mut http = self.http.borrow_mut();
            if http.all_sent(slot.id) {
                let block = end_block(slot, status);
                // A stream that closed meanwhile needs no status.
                let _ = http.send_block(slot.id, block, true);
            } else {
                http.reset(slot.id, ErrorCode::CANCEL);
            }
            drop(http);
            self.output.ring();
        }
    }

    /// Takes a call off the connection; false when it was off already. What its client sent is
    /// forgotten, whoever waits in it is woken and finds `gone`.
    pub(super) fn remove(&self, slot: &Slot, gone: Code) -> bool {
        if self.slots.borrow_mut().remove(&slot.id).is_none() {
            return false;
        }
        slot.gone.set(Some(gone));
        if slot.deadline_listed.replace(false)
            && let Some(deadline) = slot.deadline.get()
        {
            self.deadlines.borrow_mut().remove(&(deadline, slot.id));
        }
        self.head_bytes.set(self.head_bytes.get() - slot.head_bytes);
        self.request_bytes.set(self.request_bytes.get() - slot.request_bytes.take());
        let held = {
            let mut inbox = slot.inbox.borrow_mut();
            let assembling = inbox.assembler.held_bytes() + inbox.body.capacity();
            self.assembling_bytes.set(self.assembling_bytes.get().saturating_sub(assembling));
            inbox.assembler = Assembler::default();
            inbox.body = Vec::new();
            inbox.messages.clear();
            std::mem::take(&mut inbox.held_bytes)
        };
        if held > 0 {
            self.http.borrow_mut().consumed(slot.id, held);
        }
        slot.wake_all();
        if let Some(mark) = slot.mark.take() {
            self.parts.service.gone(mark, gone);
        }
        if let Some(method) = slot.request.method() {
            let took = self.io.now().since(slot.opened);
            self.parts.service.observe(&CallEvent::Ended { method, code: gone, took });
        }
        true
    }

    /// The connection is over: every call goes, nothing more is written.
    pub(super) fn lose(&self) {
        if self.lost.replace(true) {
            return;
        }
        let mut slots: Vec<Rc<Slot>> = self.slots.borrow().values().cloned().collect();
        slots.sort_unstable_by_key(|slot| slot.id);
        for slot in slots {
            self.remove(&slot, Code::Canceled);
        }
        self.output.ring();
        self.drained.ring();
        self.account();
    }

    /// Payload of a gRPC call came.
    pub(super) fn feed(&self, slot: &Slot, bytes: Bytes) {
        let size_max = self.parts.message_bytes_max;
        let released = {
            let mut inbox = slot.inbox.borrow_mut();
            let inbox = &mut *inbox;
            inbox.held_bytes += bytes.len();
            let before = inbox.assembler.held_bytes();
            let mut whole_bytes = 0;
            inbox.assembler.feed(bytes, size_max, |message| {
                whole_bytes += message.as_ref().map_or(0, Message::size);
                inbox.messages.push_back(message);
            });
            slot.request_bytes.set(slot.request_bytes.get() + whole_bytes);
            self.request_bytes.set(self.request_bytes.get() + whole_bytes);
            self.count_assembling(before, inbox.assembler.held_bytes());
            inbox.release()
        };
        self.give_back(slot.id, released);
        if self.assembling_bytes.get() > ASSEMBLY_BYTES_PER_CONNECTION_MAX {
            let text = "grpc: incomplete messages of this connection exceed its memory budget";
            let status = Status::new(Code::ResourceExhausted, text);
            self.fail(slot, Code::ResourceExhausted, &status);
        }
    }

    /// Body of a request that is not gRPC came; false when it is too long.
    pub(super) fn feed_body(&self, slot: &Slot, bytes: &Bytes) -> bool {
        let size = {
            let mut inbox = slot.inbox.borrow_mut();
            let before = inbox.body.capacity();
            inbox.body.extend_from_slice(bytes);
            self.count_assembling(before, inbox.body.capacity());
            inbox.body.len()
        };
        self.give_back(slot.id, bytes.len());
        size <= self.parts.message_bytes_max
            && self.assembling_bytes.get() <= ASSEMBLY_BYTES_PER_CONNECTION_MAX
    }

    /// Takes the next message, its compression undone.
    pub(super) fn take(&self, slot: &Slot) -> Option<Result<Bytes, Status>> {
        let (message, released) = {
            let mut inbox = slot.inbox.borrow_mut();
            let message = inbox.messages.pop_front()?;
            (message, inbox.release())
        };
        self.give_back(slot.id, released);
        if slot.request.method().is_some_and(|method| method.mode == Mode::Bidi) {
            // A stream is done with a message once it was taken; another call keeps its request.
            let size = message.as_ref().map_or(0, Message::size);
            slot.request_bytes.set(slot.request_bytes.get() - size);
            self.request_bytes.set(self.request_bytes.get() - size);
        }
        let encoding = slot.request.encoding();
        let opened =
            message.and_then(|message| message.open(encoding, self.parts.message_bytes_max));
        if let (Some(method), Ok(message)) = (slot.request.method(), &opened) {
            let bytes = message.len();
            self.parts.service.observe(&CallEvent::Received { method, bytes });
        }
        Some(opened)
    }

    /// Brings what the share is charged up to date.
    pub(super) fn account(&self) {
        let share = &self.parts.share;
        let (connection, calls, output) = self.charged.get();
        if self.lost.get() {
            self.charged.set((0, 0, 0));
            share.recharge(Owner::Connections, connection, 0);
            share.recharge(Owner::Calls, calls, 0);
            return share.recharge(Owner::Output, output, 0);
        }
        let now = (
            CONNECTION_BYTES + self.assembling_bytes.get(),
            self.calls_open() * CALL_BYTES + self.head_bytes.get() + self.request_bytes.get(),
            self.http.borrow().held_bytes(),
        );
        self.charged.set(now);
        share.recharge(Owner::Connections, connection, now.0);
        share.recharge(Owner::Calls, calls, now.1);
        share.recharge(Owner::Output, output, now.2);
    }

    /// Whether its client has to wait, because memory is full and it holds much of it.
    pub(super) fn is_throttled(&self) -> bool {
        let (connection, calls, output) = self.charged.get();
        connection + calls + output > CONNECTION_HELD_FULL_BYTES
            && self.parts.share.pressure() >= Pressure::Full
    }

    /// How a call is turned away when memory is short.
    pub(super) fn refusal(&self, method: &Method) -> Option<Status> {
        let step = self.parts.share.refuses(method)?;
        let reason =
            if step < Pressure::Over { Reason::TooManyRequests } else { Reason::MemoryBudget };
        Some(error::status_of(reason))
    }

    /// Encoded output above which the connection is not read: its client does not read either.
    pub(super) fn output_max(&self) -> usize {
        let tight = self.parts.share.pressure() >= Pressure::Tight;
        if tight { OUTPUT_STOPS_READING_TIGHT_BYTES } else { OUTPUT_STOPS_READING_BYTES }
    }

    /// Whether the header lists of open calls leave no room for more.
    pub(super) fn holds_too_many_heads(&self) -> bool {
        self.head_bytes.get() > HEADS_PER_CONNECTION_BYTES_MAX
    }

    /// Whether a stream may queue more.
    pub(super) fn has_room(&self, id: StreamId) -> bool {
        let tight = self.parts.share.pressure() >= Pressure::Tight;
        let most = if tight { STREAM_AHEAD_TIGHT_BYTES } else { STREAM_AHEAD_BYTES_MAX };
        self.http.borrow_mut().has_room(id, most)
    }

    fn give_back(&self, id: StreamId, size: usize) {
        if size > 0 {
            let mut http = self.http.borrow_mut();
            http.consumed(id, size);
            if http.has_output() {
                self.output.ring();
            }
        }
    }

    fn count_assembling(&self, before: usize, after: usize) {
        let total = self.assembling_bytes.get() + after;
        self.assembling_bytes.set(total.saturating_sub(before));
    }
}

impl Inbox {
    /// How a call ends whose single request will never be whole.
    pub(super) fn cut_short(&self) -> Status {
        self.assembler.cut_short()
    }

    /// Bytes the client may send again: all of them, unless a whole message waits for its reader.
    fn release(&mut self) -> usize {
        if self.messages.is_empty() || !self.dispatched {
            std::mem::take(&mut self.held_bytes)
        } else {
            0
        }
    }
}

impl Slot {
    pub(super) fn wake_next(&self) {
        let waiter = self.waiters.borrow_mut().next.take();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    pub(super) fn wake_room(&self) {
        let waiter = self.waiters.borrow_mut().room.take();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    fn wake_all(&self) {
        let waiters = std::mem::take(&mut *self.waiters.borrow_mut());
        for waiter in [waiters.next, waiters.room, waiters.gone].into_iter().flatten() {
            waiter.wake();
        }
    }
}

impl Request {
    fn encoding(&self) -> Encoding {
        match self.kind {
            crate::grpc::Kind::Call { encoding, .. } => encoding,
            _ => Encoding::Identity,
        }
    }

    /// The RPC it calls.
    pub(super) fn method(&self) -> Option<&'static Method> {
        match &self.kind {
            crate::grpc::Kind::Call { method, .. } => Some(method),
            _ => None,
        }
    }

    /// The content type of the answer, where it is not the plain one.
    pub(super) fn content_type(&self) -> Option<&Bytes> {
        match &self.kind {
            crate::grpc::Kind::Call { content_type, .. } => content_type.as_ref(),
            _ => None,
        }
    }
}

/// The block that ends a call: trailers, or headers and trailers in one.
pub(super) fn end_block(slot: &Slot, status: &Status) -> Bytes {
    if slot.answering.get() {
        respond::trailers(status)
    } else {
        respond::trailers_only(200, slot.request.content_type(), status)
    }
}

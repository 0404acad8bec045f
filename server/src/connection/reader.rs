//! The reading side of a connection: events to calls.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use ringbolt_io::{MonoTime, Stream};
use ringbolt_proto::method::{Method, Mode};

use super::link::{Link, Slot};
use super::{Call, WebCall};
use crate::grpc::{Code, Kind, Status, respond};
use crate::http2::{ErrorCode, Event, Head, StreamId};
use crate::limits::READ_PAUSE;

/// After an error the client gets this long to read why, before its socket is closed.
const LINGER: Duration = Duration::from_millis(250);

/// Reads until the connection ends.
pub(super) async fn read(link: &Rc<Link>, stream: &Stream, first: Bytes) {
    let mut turn = Turn { link, events: Vec::new(), fresh: Vec::new() };
    turn.take(&first);
    drop(first);
    loop {
        if link.lost.get() {
            return;
        }
        if link.http.borrow().is_finished() {
            return linger(link, stream).await;
        }
        while link.http.borrow().output_size() >= link.output_max() && !link.lost.get() {
            // Receipt: the client reads what we owe it before we read more from it.
            link.drained.heard().await;
        }
        if link.is_throttled() {
            link.io.sleep(READ_PAUSE).await;
        }
        // Bytes: the next frames.
        let (outcome, buffer) = stream.read(Vec::new()).await;
        match outcome {
            Ok(size) if size > 0 => turn.take(&Bytes::from(buffer)),
            _ => return,
        }
    }
}

/// Throws away what still comes, so that closing does not destroy the last frames on their way.
async fn linger(link: &Rc<Link>, stream: &Stream) {
    let drain = async {
        loop {
            // Bytes: until the client closes.
            let (outcome, _) = stream.read(Vec::new()).await;
            if !matches!(outcome, Ok(size) if size > 0) {
                return;
            }
        }
    };
    let _ = link.io.timeout(LINGER, drain).await;
}

/// One read's worth of work.
struct Turn<'a> {
    link: &'a Rc<Link>,
    events: Vec<Event>,
    /// Calls that became ready to be served, and calls whose deadline must be watched.
    fresh: Vec<Rc<Slot>>,
}

impl Turn<'_> {
    fn take(&mut self, bytes: &Bytes) {
        let link = self.link;
        let now = link.io.now();
        let mut events = std::mem::take(&mut self.events);
        link.http.borrow_mut().receive(now, bytes, &mut events);
        for event in events.drain(..) {
            self.event(now, event);
        }
        self.events = events;
        let mut fresh = std::mem::take(&mut self.fresh);
        for slot in fresh.drain(..) {
            self.dispatch(now, &slot);
            link.watch_deadline(&slot);
        }
        self.fresh = fresh;
        link.account();
        let http = link.http.borrow();
        if http.has_output() || http.is_finished() {
            drop(http);
            link.output.ring();
        }
    }

    fn event(&mut self, now: MonoTime, event: Event) {
        match event {
            Event::Request { stream, head, end } => self.request(now, stream, &head, end),
            Event::Data { stream, bytes } => match self.link.slot(stream) {
                Some(slot) => self.data(&slot, bytes),
                // Answered or ended before its client had sent all.
                None => self.link.http.borrow_mut().consumed(stream, bytes.len()),
            },
            Event::End { stream } => {
                if let Some(slot) = self.link.slot(stream) {
                    slot.inbox.borrow_mut().ended = true;
                    slot.wake_next();
                    self.note(&slot);
                }
            }
            Event::Reset { stream, .. } => {
                if let Some(slot) = self.link.slot(stream) {
                    self.link.remove(&slot, Code::Canceled);
                }
            }
            Event::Goaway { .. } => {}
        }
    }

    fn request(&mut self, now: MonoTime, id: StreamId, head: &Rc<Head>, end: bool) {
        let request = self.link.understand(head);
        let refusal = match &request.kind {
            Kind::Call { timeout, .. } => {
                let deadline = timeout.map(|timeout| now + timeout);
                return self.open(now, id, &request, deadline, end);
            }
            Kind::Web if self.link.parts.web.is_some() => {
                return self.open(now, id, &request, None, end);
            }
            Kind::Web => request.wrong_content_type(),
            Kind::Refused { http, status } => (*http, status.clone()),
        };
        let block = respond::trailers_only(refusal.0, request.content_type(), &refusal.1);
        // A stream that closed meanwhile needs no answer.
        let _ = self.link.http.borrow_mut().send_block(id, block, true);
    }

    fn open(
        &mut self,
        now: MonoTime,
        id: StreamId,
        request: &Rc<crate::grpc::Request>,
        deadline: Option<MonoTime>,
        end: bool,
    ) {
        if self.link.holds_too_many_heads() {
            // Answered nowhere: it costs more to keep than a client in its right mind would send.
            self.link.http.borrow_mut().reset(id, ErrorCode::ENHANCE_YOUR_CALM);
            return;
        }
        let slot = self.link.open(id, request.clone(), deadline, now);
        slot.inbox.borrow_mut().ended = end;
        self.fresh.push(slot);
    }

    fn data(&mut self, slot: &Rc<Slot>, bytes: Bytes) {
        if matches!(slot.request.kind, Kind::Web) {
            if !self.link.feed_body(slot, &bytes) && self.link.remove(slot, Code::Canceled) {
                self.link.http.borrow_mut().reset(slot.id, ErrorCode::ENHANCE_YOUR_CALM);
            }
            return;
        }
        self.link.feed(slot, bytes);
        if slot.inbox.borrow().messages.is_empty() {
            return;
        }
        slot.wake_next();
        self.note(slot);
    }

    /// A call that is not served yet may have become ready.
    fn note(&mut self, slot: &Rc<Slot>) {
        let dispatched = slot.inbox.borrow().dispatched;
        let noted = self.fresh.last().is_some_and(|last| Rc::ptr_eq(last, slot));
        if !dispatched && !noted {
            self.fresh.push(slot.clone());
        }
    }

    /// Hands a call that is ready to its service. Runs once every event of the turn is known.
    fn dispatch(&self, now: MonoTime, slot: &Rc<Slot>) {
        let link = self.link;
        if slot.gone.get().is_some() || slot.inbox.borrow().dispatched {
            return;
        }
        let method = match &slot.request.kind {
            Kind::Call { method, .. } => *method,
            _ => {
                if slot.inbox.borrow().ended {
                    slot.inbox.borrow_mut().dispatched = true;
                    let web = link.parts.web.clone().expect("web calls are opened for a web only");
                    web.call(WebCall::new(link, slot));
                }
                return;
            }
        };
        if slot.deadline.get().is_some_and(|deadline| deadline <= now) {
            return link.fail(slot, Code::DeadlineExceeded, &Status::deadline_exceeded());
        }
        match ready(method, slot).and_then(|ready| {
            let refused = if ready { link.refusal(method) } else { None };
            refused.map_or(Ok(ready), Err)
        }) {
            Ok(false) => {}
            Ok(true) => {
                slot.inbox.borrow_mut().dispatched = true;
                link.parts.service.clone().call(Call::new(link, slot, method));
            }
            Err(status) => link.fail(slot, status.code, &status),
        }
    }
}

/// Whether a call can be served: a single request must be whole first.
fn ready(method: &Method, slot: &Slot) -> Result<bool, Status> {
    if method.mode == Mode::Bidi {
        return Ok(true);
    }
    let inbox = slot.inbox.borrow();
    match inbox.messages.front() {
        Some(Ok(_)) if method.mode == Mode::ServerStream && inbox.messages.len() > 1 => {
            let text = "cardinality violation: received multiple request messages for \
                        non-client-streaming RPC";
            Err(Status::new(Code::Internal, text))
        }
        Some(Ok(_)) => Ok(true),
        Some(Err(status)) => Err(status.clone()),
        None if inbox.ended => Err(inbox.cut_short()),
        None => Ok(false),
    }
}

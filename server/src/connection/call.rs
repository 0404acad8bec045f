//! A call as services see it.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use ringbolt_io::MonoTime;
use ringbolt_proto::method::Method;
use smallvec::SmallVec;

use super::link::{Link, Slot, Waiters, end_block};
use super::relay::{Carried, FarCall};
use super::{CallEvent, PeerInfo};
use crate::grpc::framing::prefix;
use crate::grpc::{Code, Request, Status, respond};
use crate::http2::{ErrorCode, Gone};

/// Largest message we send. Source: etcd 0.9 of the contract.
const ANSWER_BYTES_MAX: usize = 0x7fff_ffff;
/// Room for a message's prefix and its first fields without an allocation.
const LEAD_BYTES: usize = 128;

/// One RPC.
pub struct Call {
    /// Which.
    pub method: &'static Method,
    /// What its headers say.
    pub metadata: Metadata,
    /// When its caller stops waiting. The connection ends the call then by itself.
    pub deadline: Option<MonoTime>,
    /// Who calls.
    pub peer: Rc<PeerInfo>,
    /// What the caller sends.
    pub requests: Requests,
    /// Where the answer goes.
    pub responder: Responder,
}

/// The metadata of a call. Cheap to clone.
#[derive(Clone)]
pub struct Metadata(Fields);

/// Where metadata is read from.
#[derive(Clone)]
enum Fields {
    /// The request's own head.
    Near(Rc<Request>),
    /// What of it has crossed from another shard.
    Far(Rc<Carried>),
}

/// The messages of a call, in order.
pub struct Requests(End);

/// Where a call is answered. Dropping it without an answer ends the call with `Internal`.
pub struct Responder(End);

/// The service's end of a call.
enum End {
    /// Its connection lives on this shard.
    Near(Near),
    /// Its connection lives on another shard.
    Far(Rc<FarCall>),
}

/// A call of a connection of this shard.
struct Near {
    link: Rc<Link>,
    slot: Rc<Slot>,
}

impl Call {
    pub(super) fn new(link: &Rc<Link>, slot: &Rc<Slot>, method: &'static Method) -> Call {
        Call {
            method,
            metadata: Metadata(Fields::Near(slot.request.clone())),
            deadline: slot.deadline.get(),
            peer: link.peer.clone(),
            requests: Requests(End::Near(Near { link: link.clone(), slot: slot.clone() })),
            responder: Responder(End::Near(Near { link: link.clone(), slot: slot.clone() })),
        }
    }
}

impl Metadata {
    /// The first value of a field, by its lower-case name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.field(name).map(|value| &value[..])
    }

    pub(super) fn carried(fields: Carried) -> Metadata {
        Metadata(Fields::Far(Rc::new(fields)))
    }

    /// The first value of a field as shared bytes.
    pub(super) fn field(&self, name: &str) -> Option<&Bytes> {
        match &self.0 {
            Fields::Near(request) => request.head.get(name),
            Fields::Far(carried) => {
                carried.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
            }
        }
    }

    /// The same as text; `None` also when it is no UTF-8.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The authentication token: `token`, else `authorization` without its "Bearer ".
    /// Source: etcd 0.6 of the contract.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.text("token").or_else(|| {
            let value = self.text("authorization")?;
            Some(value.strip_prefix("Bearer ").unwrap_or(value))
        })
    }

    /// The caller wants an error instead of waiting where there is no leader.
    #[must_use]
    pub fn requires_leader(&self) -> bool {
        self.get("hasleader") == Some(b"true")
    }
}

impl Requests {
    pub(super) fn far(call: Rc<FarCall>) -> Requests {
        Requests(End::Far(call))
    }

    /// The next message if it is here already.
    pub fn try_next(&mut self) -> Option<Result<Bytes, Status>> {
        match &self.0 {
            End::Near(Near { link, slot }) => link.take(slot),
            End::Far(call) => call.take(),
        }
    }

    /// Waits for the next message; `None` when the client has sent all. A call that is gone gives
    /// an error.
    pub async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// As `next`, for hand-written futures.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        if let Some(message) = self.try_next() {
            return Poll::Ready(Some(message));
        }
        let has_ended = match &self.0 {
            End::Near(near) => near.slot.inbox.borrow().ended,
            End::Far(call) => call.has_ended(),
        };
        if has_ended {
            return Poll::Ready(None);
        }
        if let Some(code) = self.0.gone_because() {
            return Poll::Ready(Some(Err(gone_status(code))));
        }
        self.0.waiters().borrow_mut().next = Some(context.waker().clone());
        Poll::Pending
    }
}

impl End {
    fn gone_because(&self) -> Option<Code> {
        match self {
            End::Near(near) => near.slot.gone.get(),
            End::Far(call) => call.gone_because(),
        }
    }

    fn waiters(&self) -> &RefCell<Waiters> {
        match self {
            End::Near(near) => &near.slot.waiters,
            End::Far(call) => &call.waiters,
        }
    }
}

impl Responder {
    pub(super) fn far(call: Rc<FarCall>) -> Responder {
        Responder(End::Far(call))
    }

    /// Answers a unary call.
    pub fn unary(self, answer: Result<Bytes, Status>) {
        let message = match answer {
            Ok(message) if message.len() <= ANSWER_BYTES_MAX => message,
            Ok(message) => return self.finish(too_large(message.len())),
            Err(status) => return self.finish(status),
        };
        match &self.0 {
            End::Near(near) => near.answer(message),
            End::Far(call) => call.answer(Ok(message)),
        }
    }

    /// Answers a unary call with a message of `total_len` bytes that is made piece by piece: `next`
    /// is asked for more only when flow control has room, and must give exactly `total_len` bytes,
    /// or the status with which the call ends in the middle of its answer.
    ///
    /// # Errors
    /// The client went before it had everything.
    pub async fn unary_chunks(
        self,
        total_len: usize,
        mut next: impl AsyncFnMut() -> Result<Option<Bytes>, Status>,
    ) -> Result<(), Gone> {
        if total_len > ANSWER_BYTES_MAX {
            self.finish(too_large(total_len));
            return Ok(());
        }
        let mut total = Some(total_len);
        let mut left = total_len;
        loop {
            // Receipt: room in the stream's queue.
            self.ready().await?;
            let chunk = match if left > 0 { next().await } else { Ok(None) } {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                Err(status) => {
                    self.finish(status);
                    return Ok(());
                }
            };
            let rest = left.checked_sub(chunk.len());
            left = rest.expect("a chunked answer gives no more bytes than it announced");
            self.send_piece(total.take(), chunk)?;
        }
        assert_eq!(left, 0, "a chunked answer gives all the bytes it announced");
        if total.is_some() {
            self.send_piece(total, Bytes::new())?;
        }
        self.finish(Status::OK);
        Ok(())
    }

    /// Sends one message of a stream once there is room for it.
    ///
    /// # Errors
    /// The call is gone.
    pub async fn send(&mut self, message: Bytes) -> Result<(), Gone> {
        // Receipt: room in the stream's queue.
        self.ready().await?;
        self.send_now(message)
    }

    /// Sends one message of a stream that is `head` and then `body`: what many messages have in
    /// common is not put together anew for each.
    ///
    /// # Errors
    /// The call is gone.
    pub async fn send_joined(&mut self, head: &[u8], body: &Bytes) -> Result<(), Gone> {
        self.ready().await?;
        let size = head.len() + body.len();
        assert!(size <= ANSWER_BYTES_MAX, "a stream message has 31 bits of length");
        match &self.0 {
            End::Near(near) => {
                let mut lead = SmallVec::<[u8; LEAD_BYTES]>::from_slice(&prefix(size));
                lead.extend_from_slice(head);
                near.send_payload(&lead, Some(size), body)
            }
            End::Far(call) => call.send(Some(size), [head, body].concat().into()),
        }
    }

    /// Waits until the stream's queue has room.
    ///
    /// # Errors
    /// The call is gone.
    pub async fn ready(&self) -> Result<(), Gone> {
        std::future::poll_fn(|context| self.poll_ready(context)).await
    }

    /// As `ready`, for hand-written futures.
    pub fn poll_ready(&self, context: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        if self.is_gone() {
            return Poll::Ready(Err(Gone));
        }
        if self.has_room() {
            return Poll::Ready(Ok(()));
        }
        self.0.waiters().borrow_mut().room = Some(context.waker().clone());
        Poll::Pending
    }

    /// Whether a message may be sent now without growing the stream's queue past its bound.
    #[must_use]
    pub fn has_room(&self) -> bool {
        match &self.0 {
            End::Near(near) => near.link.has_room(near.slot.id),
            End::Far(call) => call.has_room(),
        }
    }

    /// Sends one message of a stream, room or not: ask [`Responder::has_room`] first.
    ///
    /// # Errors
    /// The call is gone.
    pub fn send_now(&mut self, message: Bytes) -> Result<(), Gone> {
        assert!(message.len() <= ANSWER_BYTES_MAX, "a stream message has 31 bits of length");
        self.send_piece(Some(message.len()), message)
    }

    /// Sends the response headers before there is a first message.
    ///
    /// # Errors
    /// The call is gone.
    pub fn send_headers(&mut self) -> Result<(), Gone> {
        self.send_piece(None, Bytes::new())
    }

    /// Ends the call.
    pub fn finish(self, status: Status) {
        self.end(status);
    }

    /// Whether nobody waits for the answer any more: reset, connection lost, or deadline passed.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone_because().is_some()
    }

    /// Why the call is gone: `Canceled` or `DeadlineExceeded`, as metrics count it.
    #[must_use]
    pub fn gone_because(&self) -> Option<Code> {
        self.0.gone_because()
    }

    /// Has [`super::Service::gone`] called with `mark` when the call is gone: cheaper than a task
    /// that waits for it.
    pub(super) fn mark(&self, mark: u32) {
        if let End::Near(near) = &self.0 {
            near.slot.mark.set(Some(mark));
        }
    }

    /// Waits until the call is gone. One waiter per call.
    pub async fn gone(&self) {
        std::future::poll_fn(|context| self.poll_gone(context)).await;
    }

    /// As `gone`, for hand-written futures.
    pub fn poll_gone(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_gone() {
            return Poll::Ready(());
        }
        self.0.waiters().borrow_mut().gone = Some(context.waker().clone());
        Poll::Pending
    }

    /// Sends payload; with `total`, the first piece of a message of that size.
    pub(super) fn send_piece(&self, total: Option<usize>, bytes: Bytes) -> Result<(), Gone> {
        match &self.0 {
            End::Near(near) => match total {
                Some(total) => near.send_payload(&prefix(total), Some(bytes.len()), &bytes),
                None => near.send_payload(&[], None, &bytes),
            },
            End::Far(call) => call.send(total, bytes),
        }
    }

    fn end(&self, status: Status) {
        match &self.0 {
            End::Near(near) => near.end(&status),
            End::Far(call) => call.end(status),
        }
    }
}

impl Near {
    fn answer(&self, message: Bytes) {
        if self.link.remove(&self.slot, Code::Ok) {
            self.count_sent(message.len());
            let id = self.slot.id;
            let trailers = respond::trailers(&Status::OK);
            let mut http = self.link.http.borrow_mut();
            if !self.slot.answering.replace(true) {
                let headers = respond::headers(self.slot.request.content_type());
                let _ = http.send_block(id, headers, false);
            }
            // A stream that closed meanwhile needs no answer.
            let _ = http
                .send_data(id, &prefix(message.len()), message, false)
                .and_then(|()| http.send_block(id, trailers, true));
            drop(http);
            self.link.output.ring();
        }
    }

    /// Sends `head` and `bytes`; `counted` bytes of a message begin here.
    fn send_payload(&self, head: &[u8], counted: Option<usize>, bytes: &Bytes) -> Result<(), Gone> {
        if self.slot.gone.get().is_some() {
            return Err(Gone);
        }
        let id = self.slot.id;
        let mut http = self.link.http.borrow_mut();
        if !self.slot.answering.replace(true) {
            http.send_block(id, respond::headers(self.slot.request.content_type()), false)?;
        }
        http.send_shared(id, head, bytes)?;
        drop(http);
        if let Some(size) = counted {
            self.count_sent(size);
        }
        // The writer may be waiting for the socket: what is queued meanwhile is held all the same.
        self.link.account();
        self.link.output.ring();
        Ok(())
    }

    /// A message that leaves in pieces is counted with its first one.
    fn count_sent(&self, bytes: usize) {
        if let Some(method) = self.slot.request.method() {
            self.link.parts.service.observe(&CallEvent::Sent { method, bytes });
        }
    }

    fn end(&self, status: &Status) {
        if self.link.remove(&self.slot, status.code) {
            // A stream of no messages that ends well still has headers, then trailers.
            let mut http = self.link.http.borrow_mut();
            let id = self.slot.id;
            if status.code == Code::Ok && !self.slot.answering.replace(true) {
                let headers = respond::headers(self.slot.request.content_type());
                let _ = http.send_block(id, headers, false);
            }
            // A stream that closed meanwhile needs no status.
            if http.send_block(id, end_block(&self.slot, status), true).is_err() {
                http.reset(id, ErrorCode::CANCEL);
            }
            drop(http);
            self.link.output.ring();
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let is_open = match &self.0 {
            End::Near(near) => near.slot.gone.get().is_none(),
            // The other shard waits for the end even if the client does not.
            End::Far(call) => !call.is_over(),
        };
        if is_open {
            self.end(Status::new(Code::Internal, "the call was dropped without an answer"));
        }
    }
}

fn too_large(size: usize) -> Status {
    let text = format!("trying to send message larger than max ({size} vs. {ANSWER_BYTES_MAX})");
    Status::new(Code::ResourceExhausted, text)
}

fn gone_status(code: Code) -> Status {
    match code {
        Code::DeadlineExceeded => Status::deadline_exceeded(),
        _ => Status::new(Code::Canceled, "context canceled"),
    }
}

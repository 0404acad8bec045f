//! Requests over HTTP/2 that are not gRPC.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use super::PeerInfo;
use super::link::{Link, Slot};
use crate::grpc::Code;
use crate::http2::hpack::encode::{put_field, put_status};
use crate::http2::{Gone, Head};

/// One HTTP request, its body complete.
pub struct WebCall {
    /// Method, path and fields.
    pub head: Rc<Head>,
    /// The body.
    pub body: Bytes,
    /// Who asks.
    pub peer: Rc<PeerInfo>,
    /// Where the answer goes.
    pub responder: WebResponder,
}

/// Where an HTTP request is answered: `respond`, or `start`, `send` … and `finish`. Dropping it
/// without an answer resets the stream.
pub struct WebResponder {
    link: Rc<Link>,
    slot: Rc<Slot>,
}

impl WebCall {
    pub(super) fn new(link: &Rc<Link>, slot: &Rc<Slot>) -> WebCall {
        WebCall {
            head: slot.request.head.clone(),
            body: Bytes::from(std::mem::take(&mut slot.inbox.borrow_mut().body)),
            peer: link.peer.clone(),
            responder: WebResponder { link: link.clone(), slot: slot.clone() },
        }
    }
}

impl WebResponder {
    /// Answers whole. Field names are lower case.
    pub fn respond(mut self, status: u16, fields: &[(&str, &str)], body: Bytes) {
        // A stream that closed meanwhile needs no answer.
        let _ = self.put_head(status, fields);
        self.put_body(body, true);
    }

    /// Sends the head of an answer whose body follows.
    ///
    /// # Errors
    /// The client is gone.
    pub fn start(&mut self, status: u16, fields: &[(&str, &str)]) -> Result<(), Gone> {
        self.put_head(status, fields)
    }

    /// Sends some of the body once there is room for it.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn send(&mut self, bytes: Bytes) -> Result<(), Gone> {
        // Receipt: room in the stream's queue.
        std::future::poll_fn(|context| {
            if self.is_gone() || self.link.has_room(self.slot.id) {
                return std::task::Poll::Ready(());
            }
            self.slot.waiters.borrow_mut().room = Some(context.waker().clone());
            std::task::Poll::Pending
        })
        .await;
        if self.is_gone() {
            return Err(Gone);
        }
        self.link.http.borrow_mut().send_data(self.slot.id, &[], bytes, false)?;
        self.link.output.ring();
        Ok(())
    }

    /// Ends the body.
    pub fn finish(self) {
        self.put_body(Bytes::new(), true);
    }

    /// Whether nobody waits for the answer any more.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.slot.gone.get().is_some()
    }

    fn put_head(&mut self, status: u16, fields: &[(&str, &str)]) -> Result<(), Gone> {
        if self.is_gone() {
            return Err(Gone);
        }
        let mut block = BytesMut::new();
        put_status(&mut block, status);
        for (name, value) in fields {
            put_field(&mut block, name.as_bytes(), value.as_bytes());
        }
        self.slot.answering.set(true);
        self.link.http.borrow_mut().send_block(self.slot.id, block.freeze(), false)?;
        self.link.output.ring();
        Ok(())
    }

    fn put_body(&self, body: Bytes, end: bool) {
        if end && !self.link.remove(&self.slot, Code::Ok) {
            return;
        }
        // A stream that closed meanwhile needs no answer.
        let _ = self.link.http.borrow_mut().send_data(self.slot.id, &[], body, end);
        self.link.output.ring();
    }
}

impl Drop for WebResponder {
    fn drop(&mut self) {
        if self.link.remove(&self.slot, Code::Internal) {
            let internal = crate::http2::ErrorCode::INTERNAL;
            self.link.http.borrow_mut().reset(self.slot.id, internal);
            self.link.output.ring();
        }
    }
}

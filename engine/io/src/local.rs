//! Waiting between tasks of one shard.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A bell: `ring` is remembered until the one waiter has heard it.
#[derive(Default)]
pub struct Bell {
    rung: Cell<bool>,
    waiter: RefCell<Option<Waker>>,
}

impl Bell {
    /// Rings; wakes the waiter.
    pub fn ring(&self) {
        if self.rung.replace(true) {
            return;
        }
        let waiter = self.waiter.borrow_mut().take();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Waits for a ring since the last one heard.
    pub async fn heard(&self) {
        std::future::poll_fn(|context| self.poll_heard(context)).await;
    }

    /// As `heard`, for hand-written futures.
    pub fn poll_heard(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.rung.replace(false) {
            return Poll::Ready(());
        }
        *self.waiter.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

struct Slot<T> {
    value: Option<T>,
    waiter: Option<Waker>,
    sender_gone: bool,
    receiver_gone: bool,
}

/// The promise side of one answer.
pub struct Promise<T> {
    slot: Rc<RefCell<Slot<T>>>,
}

/// The waiting side of one answer: `None` when the promise was dropped unfulfilled.
pub struct Receipt<T> {
    slot: Rc<RefCell<Slot<T>>>,
}

/// One answer between two tasks of a shard.
#[must_use]
pub fn receipt<T>() -> (Promise<T>, Receipt<T>) {
    let slot = Slot { value: None, waiter: None, sender_gone: false, receiver_gone: false };
    let slot = Rc::new(RefCell::new(slot));
    (Promise { slot: slot.clone() }, Receipt { slot })
}

impl<T> Promise<T> {
    /// Gives the answer. It is dropped when nobody waits any more.
    pub fn fulfil(self, value: T) {
        self.slot.borrow_mut().value = Some(value);
    }

    /// Whether the waiting side has gone.
    #[must_use]
    pub fn is_forgotten(&self) -> bool {
        self.slot.borrow().receiver_gone
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let waiter = {
            let mut slot = self.slot.borrow_mut();
            slot.sender_gone = true;
            slot.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl<T> Future for Receipt<T> {
    type Output = Option<T>;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut slot = self.slot.borrow_mut();
        if let Some(value) = slot.value.take() {
            return Poll::Ready(Some(value));
        }
        if slot.sender_gone {
            return Poll::Ready(None);
        }
        slot.waiter = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Receipt<T> {
    fn drop(&mut self) {
        self.slot.borrow_mut().receiver_gone = true;
    }
}

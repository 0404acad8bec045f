//! Bounded mailboxes between shards: the only way a value crosses cores.
//!
//! A full mailbox is back-pressure: `try_send` gives the value back, `send` waits for room. Order
//! is kept per sender.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use crate::driver::RemoteWaker;
use crate::exec::Io;

struct State<T> {
    queue: VecDeque<T>,
    waiting: Vec<RemoteWaker>,
    receiver_gone: bool,
    senders: usize,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    capacity: usize,
    receiver: RemoteWaker,
}

impl<T> Shared<T> {
    /// The critical sections below cannot panic, so a poisoned lock still guards a sound queue.
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending side. It may live on any shard; clones feed the same mailbox.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// The receiving side. It stays on the shard that made it.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    io: Io,
}

/// Why a value did not go in; it comes back.
#[derive(Debug, PartialEq, Eq)]
pub enum SendError<T> {
    /// No room now.
    Full(T),
    /// Nobody receives any more.
    Closed(T),
}

/// A mailbox that holds at most `capacity` values and is emptied on `io`'s shard.
#[must_use]
pub fn mailbox<T: Send>(io: &Io, capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a mailbox without room delivers nothing");
    let state =
        State { queue: VecDeque::new(), waiting: Vec::new(), receiver_gone: false, senders: 1 };
    let shared =
        Arc::new(Shared { state: Mutex::new(state), capacity, receiver: io.driver().waker() });
    (Sender { shared: shared.clone() }, Receiver { shared, io: io.clone() })
}

impl<T: Send> Sender<T> {
    /// Puts a value in without waiting.
    ///
    /// # Errors
    /// `Full` or `Closed`, with the value.
    pub fn try_send(&self, value: T) -> Result<(), SendError<T>> {
        let first = {
            let mut state = self.shared.state();
            if state.receiver_gone {
                return Err(SendError::Closed(value));
            }
            if state.queue.len() >= self.shared.capacity {
                return Err(SendError::Full(value));
            }
            state.queue.push_back(value);
            state.queue.len() == 1
        };
        if first {
            (self.shared.receiver)();
        }
        Ok(())
    }

    /// Puts all of `values` in, in their order, under one lock and with at most one wake-up; what
    /// did not go in stays in `values`.
    ///
    /// # Errors
    /// `Full` when some did not find room, `Closed` when nobody receives any more.
    pub fn try_send_all(&self, values: &mut Vec<T>) -> Result<(), SendError<()>> {
        let (first, all) = {
            let mut state = self.shared.state();
            if state.receiver_gone {
                return Err(SendError::Closed(()));
            }
            let first = state.queue.is_empty() && !values.is_empty();
            let room = self.shared.capacity.saturating_sub(state.queue.len());
            let count = room.min(values.len());
            state.queue.extend(values.drain(..count));
            (first && count > 0, values.is_empty())
        };
        if first {
            (self.shared.receiver)();
        }
        if all { Ok(()) } else { Err(SendError::Full(())) }
    }

    /// Puts a value in, waiting for room on `io`'s shard (the caller's).
    ///
    /// # Errors
    /// The value, when nobody receives any more.
    pub async fn send(&self, io: &Io, value: T) -> Result<(), T> {
        let mut value = Some(value);
        std::future::poll_fn(|context| {
            let owned = value.take().expect("the value is here until it is sent");
            match self.try_send(owned) {
                Ok(()) => Poll::Ready(Ok(())),
                Err(SendError::Closed(owned)) => Poll::Ready(Err(owned)),
                Err(SendError::Full(owned)) => {
                    value = Some(owned);
                    io.await_mail(context.waker());
                    let mut state = self.shared.state();
                    state.waiting.push(io.driver().waker());
                    let room = state.queue.len() < self.shared.capacity || state.receiver_gone;
                    drop(state);
                    if room {
                        context.waker().wake_by_ref();
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.state().senders += 1;
        Sender { shared: self.shared.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let last = {
            let mut state = self.shared.state();
            state.senders -= 1;
            state.senders == 0
        };
        if last {
            (self.shared.receiver)();
        }
    }
}

impl<T: Send> Receiver<T> {
    /// Waits for the next value; `None` when it is empty and no sender is left.
    pub async fn receive(&self) -> Option<T> {
        std::future::poll_fn(|context| self.poll_receive(context)).await
    }

    /// Waits until there is something and moves all of it to the end of `into`; false when it is
    /// empty and no sender is left.
    pub async fn receive_all(&self, into: &mut Vec<T>) -> bool {
        std::future::poll_fn(|context| self.poll_receive_all(context, into)).await
    }

    fn poll_receive_all(&self, context: &mut Context<'_>, into: &mut Vec<T>) -> Poll<bool> {
        // Registered first: a value that comes between the look and the wait is not missed.
        self.io.await_mail(context.waker());
        let mut state = self.shared.state();
        if state.queue.is_empty() {
            return if state.senders == 0 { Poll::Ready(false) } else { Poll::Pending };
        }
        into.extend(state.queue.drain(..));
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for waker in waiting {
            waker();
        }
        Poll::Ready(true)
    }

    /// As `receive`, for hand-written futures.
    pub fn poll_receive(&self, context: &mut Context<'_>) -> Poll<Option<T>> {
        // Registered first: a value that comes between the look and the wait is not missed.
        self.io.await_mail(context.waker());
        let mut state = self.shared.state();
        let Some(value) = state.queue.pop_front() else {
            return if state.senders == 0 { Poll::Ready(None) } else { Poll::Pending };
        };
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for waker in waiting {
            waker();
        }
        Poll::Ready(Some(value))
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.shared.state();
            state.receiver_gone = true;
            state.queue.clear();
            std::mem::take(&mut state.waiting)
        };
        for waker in waiting {
            waker();
        }
    }
}

//! What a shard and the thread of a bulk job say to each other.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::buffer::AlignedBuffer;
use crate::mailbox::Sender;

/// One job, as its thread gets it.
pub(super) struct Job {
    pub(super) kind: Kind,
    pub(super) requests: Arc<Requests>,
    pub(super) replies: Sender<Reply>,
}

pub(super) enum Kind {
    /// Writes a new file, in the space of `room` if there is one, chunk by chunk as requested.
    Write { target: PathBuf, room: Option<PathBuf> },
    /// Reads a file, chunk by chunk as requested.
    Read { path: PathBuf },
    /// Makes a file of zeros. It takes no requests.
    Zero { target: PathBuf, size: u64 },
}

/// From the shard.
pub(super) enum Request {
    /// Appends the first `filled` bytes. Only the last chunk of a file is not full.
    Write { buffer: AlignedBuffer, filled: usize },
    /// Reads the next chunk.
    Read(AlignedBuffer),
    /// Makes the file whole, durable and final.
    Finish,
    /// Removes the file.
    Discard,
}

/// From the job's thread, one for each request, in their order.
pub(super) enum Reply {
    /// Of the job itself: the file is open, and this is its size.
    Opened(io::Result<u64>),
    /// Of `Write` and `Read`: the chunk comes back, `Read`'s with the bytes that there are.
    Chunk(io::Result<AlignedBuffer>),
    /// Of `Finish`, `Discard`, and of a zeroing job: the size of the file.
    Ended(io::Result<u64>),
}

/// Requests on their way. Bounded by the shard, which counts the replies that it waits for.
#[derive(Default)]
pub(super) struct Requests {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Request>,
    waker: Option<Waker>,
    closed: bool,
}

impl Requests {
    /// Hands a request over. On the shard.
    pub(super) fn push(&self, request: Request) {
        let waker = {
            let mut state = self.state();
            state.queue.push_back(request);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Says that no more requests come. On the shard.
    pub(super) fn close(&self) {
        let waker = {
            let mut state = self.state();
            state.closed = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The next request; `None` when the shard wants no more. On the job's thread.
    pub(super) async fn next(&self) -> Option<Request> {
        poll_fn(|context| {
            let mut state = self.state();
            match state.queue.pop_front() {
                Some(request) => Poll::Ready(Some(request)),
                None if state.closed => Poll::Ready(None),
                None => {
                    state.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The critical sections cannot panic, so a poisoned lock still guards a sound queue.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

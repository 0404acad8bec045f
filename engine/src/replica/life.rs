//! Whether a replica runs, closes or has failed.
//!
//! ```text
//! Opening ──serve──► Running ──close──► Closed
//!    │                  │
//!    └─────fail─────────┴──► Failed (W7: for good; the process exits)
//! ```

use std::cell::{Cell, RefCell};
use std::task::{Poll, Waker};

use crate::error::Error;
use crate::types::RaftIndex;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Opening,
    Running,
    Closed,
    Failed,
}

/// The life of one replica.
pub(super) struct Life {
    stage: Cell<Stage>,
    cause: RefCell<Option<String>>,
    bad_entry: RefCell<Option<(RaftIndex, String)>>,
    waiters: RefCell<Vec<Waker>>,
}

impl Life {
    pub(super) fn new() -> Life {
        Life {
            stage: Cell::new(Stage::Opening),
            cause: RefCell::default(),
            bad_entry: RefCell::default(),
            waiters: RefCell::default(),
        }
    }

    /// Clients may be served from now on.
    pub(super) fn serve(&self) {
        if self.stage.get() == Stage::Opening {
            self.stage.set(Stage::Running);
        }
    }

    /// No more requests are taken.
    pub(super) fn close(&self) {
        if self.stage.get() != Stage::Failed {
            self.stage.set(Stage::Closed);
        }
    }

    /// Stops for good.
    pub(super) fn fail(&self, cause: String) {
        if self.stage.replace(Stage::Failed) == Stage::Failed {
            return;
        }
        tracing::error!(cause, "this member stops: what it wrote may be lost");
        *self.cause.borrow_mut() = Some(cause);
        let waiters = std::mem::take(&mut *self.waiters.borrow_mut());
        for waiter in waiters {
            waiter.wake();
        }
    }

    /// Stops for good: this entry cannot be applied.
    pub(super) fn refuse_entry(&self, index: RaftIndex, found: String) {
        let cause = format!("log entry {}: {found}", index.0);
        *self.bad_entry.borrow_mut() = Some((index, found));
        self.fail(cause);
    }

    /// The entry that could not be applied.
    pub(super) fn bad_entry(&self) -> Option<(RaftIndex, String)> {
        self.bad_entry.borrow().clone()
    }

    /// Whether a request may be taken.
    ///
    /// # Errors
    /// `Stop`.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self.stage.get() {
            Stage::Running => Ok(()),
            Stage::Opening | Stage::Closed | Stage::Failed => Err(Error::Stop),
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.stage.get() == Stage::Failed
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.cause.borrow().clone()
    }

    /// Waits for the cause of a failure.
    pub(super) async fn failed(&self) -> String {
        std::future::poll_fn(|context| {
            if let Some(cause) = self.failure() {
                return Poll::Ready(cause);
            }
            let mut waiters = self.waiters.borrow_mut();
            if !waiters.iter().any(|known| known.will_wake(context.waker())) {
                waiters.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}

//! What waits to leave for another shard at the end of a turn.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ringbolt_io::local::Bell;
use ringbolt_io::{Io, mailbox};

/// Values for one mailbox of another shard. They leave after the tasks that are ready now, in one
/// batch.
pub(super) struct Outbox<T> {
    batch: RefCell<Vec<T>>,
    bell: Bell,
    closing: Cell<bool>,
    dead: Cell<bool>,
}

impl<T: Send + 'static> Outbox<T> {
    /// An outbox whose values a task of `io`'s shard brings to `sender`.
    pub fn new(io: &Io, sender: mailbox::Sender<T>) -> Rc<Outbox<T>> {
        let outbox = Rc::new(Outbox {
            batch: RefCell::default(),
            bell: Bell::default(),
            closing: Cell::new(false),
            dead: Cell::new(false),
        });
        io.spawn("relay outbox", bring(io.clone(), outbox.clone(), sender));
        outbox
    }

    /// Puts a value in. What is put in after the other side has gone is forgotten.
    pub fn push(&self, value: T) {
        if !self.dead.get() {
            self.batch.borrow_mut().push(value);
            self.bell.ring();
        }
    }

    /// Lets the mailbox go once everything in here has left.
    pub fn close(&self) {
        self.closing.set(true);
        self.bell.ring();
    }
}

async fn bring<T: Send>(io: Io, outbox: Rc<Outbox<T>>, sender: mailbox::Sender<T>) {
    let mut leaving = Vec::new();
    loop {
        // Receipt: somebody has put something in.
        outbox.bell.heard().await;
        std::mem::swap(&mut *outbox.batch.borrow_mut(), &mut leaving);
        let mut gone = false;
        if sender.try_send_all(&mut leaving).is_err() {
            // Full: the other side is behind, and what may still come here is bounded (R2).
            for value in leaving.drain(..) {
                // Receipt: room in the mailbox.
                gone |= sender.send(&io, value).await.is_err();
            }
        }
        let last = outbox.closing.get() && outbox.batch.borrow().is_empty();
        if gone || last {
            outbox.dead.set(true);
            outbox.batch.borrow_mut().clear();
            return;
        }
    }
}

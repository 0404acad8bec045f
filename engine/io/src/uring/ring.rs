//! One io_uring: set-up, submissions that own their memory, completions.
//!
//! ```text
//! launch(flight) ─► slab + SQE ─► enter ─► CQE ─► reap ─► land(CQE) ─► flight, with its memory
//! ```
//! - R1 An SQE points only into heap memory that its flight owns, and the flight stays in the slab
//!   until its last CQE: no memory the kernel uses is freed early.
//! - R2 The descriptor in an SQE stays open until its last CQE, because its flight holds it.
//! - R3 The ring is dropped only when no flight is left (`drain`).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use rustix::event::Timespec;
use slab::Slab;

use super::flight::Flight;
use crate::limits::{RING_COMPLETIONS, RING_SUBMISSIONS};

/// User data of submissions whose completion nobody waits for. No slab index gets there.
const IGNORED: u64 = u64::MAX;

/// Why a ring could not be had: which step the system refused, and how.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) step: &'static str,
    pub(crate) error: io::Error,
}

/// One completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) flight: usize,
    /// What the system call would have returned, or minus the error number.
    result: i32,
    flags: u32,
}

impl Completion {
    /// The result as the standard library tells it.
    pub(super) fn result(&self) -> io::Result<usize> {
        match usize::try_from(self.result) {
            Ok(count) => Ok(count),
            Err(_) => Err(io::Error::from_raw_os_error(-self.result)),
        }
    }

    /// Whether the same flight gives more completions.
    pub(super) fn more(&self) -> bool {
        cqueue::more(self.flags)
    }

    /// The lent buffer that the data is in.
    pub(super) fn buffer(&self) -> Option<u16> {
        cqueue::buffer_select(self.flags)
    }
}

/// The ring and what is in flight on it.
pub(super) struct Ring {
    uring: IoUring,
    flights: Slab<Flight>,
    /// Completions taken from the kernel to make room, not handed out yet.
    backlog: Vec<Completion>,
}

impl Ring {
    /// A ring with the features of Linux 6.1, or which step was refused.
    pub(super) fn new() -> Result<Ring, Refused> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_clamp()
            .setup_cqsize(RING_COMPLETIONS)
            .dontfork()
            .build(RING_SUBMISSIONS)
            .map_err(|error| Refused { step: "io_uring_setup", error })?;
        let parameters = uring.params();
        let features = parameters.is_feature_nodrop()
            && parameters.is_feature_ext_arg()
            && parameters.is_feature_fast_poll();
        if !features {
            return Err(missing("NODROP, EXT_ARG and FAST_POLL"));
        }
        let mut probe = Probe::new();
        uring
            .submitter()
            .register_probe(&mut probe)
            .map_err(|error| Refused { step: "io_uring_register", error })?;
        let needed = [
            opcode::Write::CODE,
            opcode::Read::CODE,
            opcode::Fsync::CODE,
            opcode::RecvMulti::CODE,
            opcode::AcceptMulti::CODE,
            opcode::Send::CODE,
            opcode::SendMsg::CODE,
            opcode::Connect::CODE,
            opcode::PollAdd::CODE,
            opcode::AsyncCancel::CODE,
        ];
        if !needed.iter().all(|code| probe.is_supported(*code)) {
            return Err(missing("one of the operations of Linux 6.1"));
        }
        Ok(Ring { uring, flights: Slab::with_capacity(256), backlog: Vec::new() })
    }

    pub(super) fn uring(&self) -> &IoUring {
        &self.uring
    }

    /// Submits a flight with the next `enter`; gives its index.
    pub(super) fn launch(&mut self, flight: Flight) -> usize {
        let slot = self.flights.vacant_entry();
        let index = slot.key();
        let entry = slot.insert(flight).entry().user_data(user_data(index));
        self.push(&entry);
        index
    }

    /// Asks the kernel to end a flight early; it lands all the same.
    pub(super) fn cancel(&mut self, index: usize) {
        assert!(self.flights.contains(index), "only what is in flight is cancelled");
        self.push(&opcode::AsyncCancel::new(user_data(index)).build().user_data(IGNORED));
    }

    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: R1 and R2: what the entry points to is owned by its flight.
            // JUSTIFICATION: the kernel reads the entry's pointers behind the compiler's back.
            if unsafe { self.uring.submission().push(entry) }.is_ok() {
                return;
            }
            // Full. The kernel takes what is queued; it may first want its completions taken.
            if let Err(error) = self.uring.submit() {
                assert!(is_passing(&error), "io_uring_enter on a ring of ours: {error}");
                self.take_completions();
            }
        }
    }

    /// Enters the kernel once: submits what is queued, and waits until something has completed or
    /// the time is over. With a wait of zero it only polls, and makes no call when there is
    /// nothing to submit and nothing to collect.
    pub(super) fn enter(&mut self, wait: Option<Timespec>) {
        const ZERO: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let wait = if self.backlog.is_empty() { wait } else { Some(ZERO) };
        let result = match wait {
            Some(ZERO) => {
                let submission = self.uring.submission();
                let idle =
                    submission.is_empty() && !submission.taskrun() && !submission.cq_overflow();
                drop(submission);
                if idle {
                    return;
                }
                self.uring.submit()
            }
            Some(wait) => {
                let nanos = u32::try_from(wait.tv_nsec).expect("less than a second");
                let seconds = u64::try_from(wait.tv_sec).expect("waits are not negative");
                let wait = types::Timespec::new().sec(seconds).nsec(nanos);
                let arguments = types::SubmitArgs::new().timespec(&wait);
                self.uring.submitter().submit_with_args(1, &arguments)
            }
            None => self.uring.submit_and_wait(1),
        };
        if let Err(error) = result {
            assert!(is_passing(&error), "io_uring_enter on a ring of ours: {error}");
        }
    }

    /// Moves every completion there is into `reaped`.
    pub(super) fn reap(&mut self, reaped: &mut Vec<Completion>) {
        self.take_completions();
        reaped.append(&mut self.backlog);
    }

    fn take_completions(&mut self) {
        for entry in self.uring.completion() {
            if let Some(flight) = index(entry.user_data()) {
                let (result, flags) = (entry.result(), entry.flags());
                self.backlog.push(Completion { flight, result, flags });
            }
        }
    }

    /// The flight a completion belongs to, while it goes on.
    pub(super) fn flight(&self, completion: &Completion) -> &Flight {
        self.flights.get(completion.flight).expect("a completion belongs to a flight")
    }

    /// Takes the flight of a last completion.
    pub(super) fn land(&mut self, completion: &Completion) -> Flight {
        assert!(!completion.more(), "a flight lands with its last completion");
        self.flights.remove(completion.flight)
    }

    /// Ends every flight that waits for the world, waits for those that write or read the disk,
    /// and forgets all results (R3).
    pub(super) fn drain(&mut self) {
        let waiting: Vec<usize> = self
            .flights
            .iter()
            .filter_map(|(index, flight)| (!flight.ends_by_itself()).then_some(index))
            .collect();
        for index in waiting {
            self.cancel(index);
        }
        let mut reaped = Vec::new();
        while !self.flights.is_empty() {
            self.reap(&mut reaped);
            if reaped.is_empty() {
                self.enter(None);
            }
            for completion in reaped.drain(..) {
                if let (Flight::Accept { .. }, Ok(number)) =
                    (self.flight(&completion), completion.result())
                {
                    drop(adopt(number));
                }
                if !completion.more() {
                    drop(self.land(&completion));
                }
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.drain();
    }
}

/// Takes the descriptor that an accept gave.
pub(super) fn adopt(number: usize) -> OwnedFd {
    let number = RawFd::try_from(number).expect("the kernel gives small descriptors");
    // SAFETY: the kernel has just made the descriptor for us; nobody else knows it.
    // JUSTIFICATION: io_uring gives descriptors as plain numbers.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Errors of `io_uring_enter` that are over by the next call: a signal, the end of the wait, a
/// full completion queue, a shortage.
fn is_passing(error: &io::Error) -> bool {
    let passing = [libc::EINTR, libc::ETIME, libc::EBUSY, libc::EAGAIN, libc::ENOMEM];
    error.raw_os_error().is_some_and(|number| passing.contains(&number))
}

fn missing(what: &str) -> Refused {
    let text = format!("the kernel lacks {what}");
    Refused { step: "probing io_uring", error: io::Error::new(io::ErrorKind::Unsupported, text) }
}

fn user_data(index: usize) -> u64 {
    u64::try_from(index).expect("an index fits 64 bits")
}

fn index(user_data: u64) -> Option<usize> {
    if user_data == IGNORED {
        return None;
    }
    Some(usize::try_from(user_data).expect("user data comes from indexes"))
}

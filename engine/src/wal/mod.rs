//! The log of one keyspace: entries, hard state and checkpoint names, durable in order.
//!
//! Rules, where each is kept and which test demands it:
//! - W1 A record is acknowledged only when every earlier record of its log is durable (`NoFsync`:
//!   when the write of every earlier record has completed). Asserted in `Log::acknowledge` and
//!   `Log::flushed`; `tests/crash`, `tests/history`.
//! - W2 Segments are zeroed once and recycled for ever; the commit path never extends a file.
//!   Asserted in `Log::form`; drawn in `segment`; `tests/life`: `segments_are_recycled`.
//! - W3 At most K batches are in flight and nothing waits for a timer. `Inner::submit`;
//!   `tests/life`: `gathers_while_k_are_in_flight`.
//! - W4 A block is written once in a life of its segment, but for a recovery that writes what it
//!   found there again, byte for byte; batches start on a block. Asserted in `Log::form`;
//!   `tests/life`: `goes_on_in_a_fresh_segment_unless_closed`.
//! - W5 Each batch header carries what `format` draws, the mark file what `mark` draws. Asserted in
//!   `Log::write_batch`; golden tests of both; `tests/damage`: `one_mark_slot_is_enough`.
//! - W6 Damage at or below the watermark refuses to open, above it is a torn tail and cut; recovery
//!   goes on in a fresh segment and makes durable what it read. `scan::walk`, `recover::open`;
//!   `tests/damage`, `tests/crash`.
//! - W7 A failed write or sync of the log stops it, and so does the want of a segment to write to
//!   that a broken disk cannot give; a full disk outside a log write does not. `Inner::collect`,
//!   `Inner::fail`, `keeper::zero`; `tests/crash`, `tests/life`: `a_failed_write_stops_the_log`,
//!   `tests/space`: `a_broken_disk_is_not_waited_for`.
//! - W8 All of a log's reads and writes are direct, or all are buffered: `segment::open_file`. The
//!   lock is on the very files written through: `segment::lock`; `tests/life`:
//!   `the_lock_is_waited_for`, `direct_and_buffered_are_never_mixed`, `tests/real`.
//!
//! The module knows no commands: an entry's data is opaque.

mod format;
mod keeper;
mod log;
mod mark;
mod place;
mod rebuild;
mod recover;
mod replay;
mod room;
mod scan;
mod segment;
#[cfg(test)]
mod tests;
mod types;
mod writer;

pub use recover::Known;
pub use types::{
    Batch, Checkpoint, Cut, Entry, Failure, Gauges, HardState, Identity, Mode, OpenError,
    Recovered, Ticket, WalConfig,
};
pub use writer::Writer;

/// The log as a whole; it has one face.
pub type Wal = Writer;

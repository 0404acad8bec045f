//! The log of one keyspace: entries, hard state and checkpoint names, durable in order.
//!
//! Rules, and where each is kept:
//! - W1 A record is acknowledged only when every earlier record of its log is durable (`NoFsync`:
//!   when the write of every earlier record has completed). `Log::acknowledge`, `Log::flushed`.
//! - W2 Segments are zeroed once and recycled for ever; the commit path never extends a file.
//!   `Log::form` asserts the bound; `segment` draws the states.
//! - W3 At most K batches are in flight and nothing waits for a timer. `Inner::submit`.
//! - W4 A block is written once in a life of its segment; batches start on a block. `Log::form`.
//! - W5 Each batch header carries what `format` draws; the mark file what `mark` draws.
//! - W6 Damage at or below the watermark refuses to open, above it is a torn tail and cut; recovery
//!   goes on in a fresh segment and flushes what it read. `scan::walk`, `recover::open`.
//! - W7 A failed write or sync of the log stops it. `Inner::collect`, `Inner::fail`.
//! - W8 All of a log's reads and writes are direct, or all are buffered. `segment::open_file`. The
//!   lock is on the very files written through. `segment::lock`.
//!
//! The module knows no commands: an entry's data is opaque.

mod format;
mod keeper;
mod log;
mod mark;
mod recover;
mod replay;
mod scan;
mod segment;
#[cfg(test)]
mod tests;
mod types;
mod writer;

pub use types::{
    Batch, Checkpoint, Cut, Entry, Failure, Gauges, HardState, Identity, Mode, OpenError,
    Recovered, Ticket, WalConfig,
};
pub use writer::Writer;

/// The log as a whole; it has one face.
pub type Wal = Writer;

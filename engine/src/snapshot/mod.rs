//! Checkpoint files: the state at one raft index.
//!
//! Rules, and where each is kept:
//! - S1 A file has its name only when all of it is durable: it is written as `.partial`, synced,
//!   renamed, and the directory is synced. `Writer::finish`, over `BulkWriter`.
//! - S2 A name is never used twice, so a checkpoint the log names is never overwritten, and a write
//!   of a process that died never lands in a file of this one. `Writer::create`.
//! - S3 The log names a file with its root hash only after S1, and other checkpoint files go only
//!   when that record is durable: the caller's order, `create` → `finish` → `Writer::mark_snapshot`
//!   of the log → `clean`.
//! - S4 Nothing is handed on unverified: a piece when its chunks' checksums hold, the whole when
//!   the root hash is the one the log names. Whoever consumes pieces throws them away when `load`
//!   fails. `load`.
//!
//! Memory: one chunk while writing, one piece and one read while loading.

mod files;
mod format;
mod load;
mod write;

pub use files::{clean, list};
pub use format::{Head, Section};
pub use load::{LoadError, inspect, load};
pub use write::{Writer, Written};

#[cfg(test)]
mod tests;

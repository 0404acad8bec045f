//! Keys, their versions, and the revision log.
//!
//! Knows no leases beyond their number, no watchers, no clock and no disk: the same calls in the
//! same order give the same store on every member.

mod arena;
mod compaction;
mod format;
mod hash;
mod keys;
mod log;
#[cfg(test)]
mod model;
mod owned;
mod range;
mod store;
mod stream;
mod tree;
mod view;
mod visit;
mod write;

pub use hash::HashWalk;
pub use range::{End, KeyRange};
pub use store::Mvcc;
pub use stream::{ExportCursor, Importer};
pub use view::{EventRef, HashKv, Kind, Values, VersionRef};
pub use visit::{Next, Rest};
pub use write::Write;

#[cfg(test)]
mod tests;

//! Keys, their versions, and the revision log.
//!
//! Knows no leases beyond their number, no watchers, no clock and no disk: the same calls in the
//! same order give the same store on every member.

mod format;
mod hash;
mod model;
mod range;
mod stream;
mod view;

pub use model::{Mvcc, Write};
pub use range::{End, KeyRange};
pub use stream::{ExportCursor, Importer};
pub use view::{EventRef, HashKv, Kind, Values, VersionRef};

#[cfg(test)]
mod tests;

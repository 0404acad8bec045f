//! The store: log, index, leases, watches and the replica that joins them.
//!
//! Arrows: this crate knows `consensus`, `io` and `proto`; nothing here knows a server. `mvcc`,
//! `lease` and `watch` do not know each other: `state` joins them. `wal` knows no commands.

pub mod corruption;
pub mod error;
pub mod lease;
pub mod limits;
pub mod mvcc;
pub mod replica;
pub mod snapshot;
pub mod state;
pub mod types;
pub mod wal;
pub mod watch;

pub use corruption::Corruption;
pub use error::{Error, Reason};
pub use types::{ClusterId, LeaseId, MemberId, RaftIndex, Revision, Term};

//! Leases: who holds which keys until when.
//!
//! Two halves that never mix:
//!
//! * [`LeaseTable`] is replicated. It knows which leases exist, their granted time to live and the
//!   keys attached to each. It has no clock: it changes only when a command is applied, so it is
//!   the same on every member at the same raft index.
//! * [`Deadlines`] is local to a leader. It knows *when* each lease ends, by the leader's own
//!   monotonic clock, and is rebuilt with full times to live whenever a member starts to lead.
//!
//! ```text
//!   LeaseGrant applied ──► LeaseTable::grant ──► Deadlines::grant
//!   LeaseKeepAlive     ──────────────────────► Deadlines::renew      (nothing is logged)
//!   time passes        ──────────────────────► Deadlines::due ──► propose LeaseRevoke
//!   LeaseRevoke applied ─► LeaseTable::revoke ─► Deadlines::forget
//! ```

mod deadlines;
mod id;
mod table;

pub use deadlines::{Deadlines, Renewal};
pub use id::{choose_id, effective_ttl_s, ttl_min_s};
pub use table::{Lease, LeaseTable};

//! Consensus behind one function: `Node::step(inputs) -> Effects`. No disk, clock or socket.
//!
//! Rules kept here, each with a test:
//! - C1 An entry is committed, and handed out to be applied, only when it is durable on this
//!   member and on a quorum. The caller says what is durable by `Inputs::persisted`.
//! - C2 Messages of a step that changes term or vote, or that follows one not yet durable in that
//!   respect, wait for that write, a leader's too.
//! - C3 No tick and no campaign while this member's last entry is not durable, unless it leads.
//! - C4 A sole voter whose log holds a membership change above its commit does not campaign until
//!   it is told that the members named there have answered.
//! - C5 A read is answered only by an index asked for after it arrived, in a term whose first entry
//!   is committed; a lost question is asked again under a new number.
//! - C6 The same seed and the same inputs give the same effects.
//!
//! ```text
//! step:  persisted ─► messages ─► ticks ─► campaign ─► proposals ─► reads
//!           ▼
//!        Effects { append, hard_state, send, send_after_durable, committed, read_ready, … }
//!           │ append + hard_state to the log; when durable: Inputs::persisted = Effects::number
//!           └ apply committed; then Inputs::applied = the last index applied
//! ```

mod limits;
mod log;
mod logger;
mod node;
mod reads;
mod types;

#[cfg(test)]
mod tests;

pub use limits::READS_WAITING_MAX;
pub use node::Node;
pub use types::{
    Change, ChangeKind, Config, Effects, Entry, EntryKind, HardState, Held, Inputs, Membership,
    Message, Role, SnapshotMark, Status, Stored,
};

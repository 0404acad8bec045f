//! Every limit of the engine. Each module adds its own here.

/// Proposals that wait for a turn at most; more are refused with `TooManyRequests`.
pub const PROPOSALS_WAITING_MAX: usize = 16 * 1024;
/// Entries one turn takes from the queue at most.
pub const TURN_ENTRIES_MAX: usize = 4096;

//! Every limit of the consensus crate.

/// Bytes of entries one append message carries at most (one entry may be larger).
pub(crate) const MESSAGE_BYTES_MAX: u64 = 1024 * 1024;
/// Append messages a follower may be sent without an answer.
pub(crate) const MESSAGES_IN_FLIGHT_MAX: usize = 256;
/// Bytes of entries one step hands out as committed at most (one entry may be larger).
pub(crate) const COMMITTED_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Reads that may wait for a read point at once.
pub const READS_WAITING_MAX: usize = 64 * 1024;

const _: () = assert!(MESSAGE_BYTES_MAX <= COMMITTED_BYTES_MAX);

//! Every limit of the load generator.

/// Bytes a connection reads at once at first; it doubles when a frame needs more.
pub const READ_BYTES: usize = 64 * 1024;
/// How long a server may take to become ready, in seconds.
pub const READY_S_MAX: u64 = 120;
/// How long one answer may take before the run is given up, in seconds.
pub const ANSWER_S_MAX: u64 = 30;
/// Latencies are recorded from one microsecond to one minute.
pub const LATENCY_US_MAX: u64 = 60_000_000;
/// Keys that a bulk load puts into one transaction.
pub const BULK_KEYS_PER_TXN: usize = 100;
/// Calls that a bulk of single calls keeps in flight on its one connection.
pub const CALLS_IN_FLIGHT: u64 = 500;
/// How long leases may take to expire before the run is given up, in seconds.
pub const EXPIRY_S_MAX: u64 = 120;
/// How long a fresh server may be busy with itself before it counts as idle, in seconds.
pub const SETTLE_S: u64 = 10;

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

// soak

/// Connections of the load.
pub const SOAK_CONNECTIONS: usize = 8;
/// Calls in flight on each while the capacity is looked for: a closed loop.
pub const SOAK_CLOSED_IN_FLIGHT: usize = 16;
/// Calls in flight on each at most while a rate is driven. Their requests fit into the socket's
/// buffer, so that a write never waits for a server that waits for a reader.
pub const SOAK_OPEN_IN_FLIGHT: usize = 128;
/// Calls that are due for longer are skipped.
pub const SOAK_CATCH_UP: std::time::Duration = std::time::Duration::from_millis(250);
/// Shortest sleep between two looks at what is due.
pub const SOAK_NAP_MIN: std::time::Duration = std::time::Duration::from_micros(100);
/// Compactions in the first third of a run before its memory is judged.
pub const SOAK_COMPACTIONS_MIN: u64 = 3;
/// How much more memory the last third may show, in per cent.
pub const SOAK_GROWTH_PER_CENT_MAX: u64 = 5;
/// Bytes of log after which a checkpoint is due, unless the state is larger. Source: "Space on
/// disk" of docs/OPERATING.md.
pub const SOAK_LOG_BYTES_MIN: u64 = 64 << 20;
/// Bytes of the largest segment of a log. Source: the same.
pub const SOAK_SEGMENT_BYTES: u64 = 64 << 20;
/// Complaints of failed calls that are shown.
pub const SOAK_COMPLAINTS_MAX: usize = 5;
/// How long the clients run before the capacity is looked for.
pub const SOAK_WARM_UP: std::time::Duration = std::time::Duration::from_secs(2);

// strains

/// Memory that clients may cost the server that read their lists slowly.
pub const SLOW_LISTS_BYTES_MAX: u64 = 64 << 20;
/// How much slower the puts of others may get beside them.
pub const SLOW_LISTS_RATIO_MAX: f64 = 1.5;
/// Pause between two reads of a slow reader.
pub const SLOW_READ_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);
/// What each slow reader is given at least of the megabyte it reads each second.
pub const SLOW_READ_MB_PER_S_MIN: f64 = 0.9;
/// What a slow reader that had nothing to read for a while may make up for at once.
pub const SLOW_READ_BYTES_MAX: u64 = 256 * 1024;
/// Memory of a server with a crowd of idle connections.
pub const CROWD_BYTES_MAX: u64 = 500_000_000;
/// Files that the server and its clients open beside the crowd's connections, at most.
pub const FILES_BESIDE_CROWD: u64 = 256;

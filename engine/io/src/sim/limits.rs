//! Every limit of the simulation.

/// Bytes of a block of a simulated file; the page cache and direct I/O work in these.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes of the largest simulated file: beyond it an offset is a mistake.
pub const FILE_BYTES_MAX: u64 = 4 << 30;
/// Bytes on their way to one end of a connection before its sender waits.
pub const WINDOW_BYTES: usize = 256 * 1024;
/// Connections that wait to be accepted by one listener; more are refused.
pub const BACKLOG_MAX: usize = 128;
/// Turns one instant of virtual time may take: more is a task that wakes itself for ever.
pub const TURNS_WITHOUT_TIME_MAX: u64 = 1_000_000;

const _: () = assert!(BLOCK_BYTES == crate::limits::DIRECT_ALIGN_BYTES);

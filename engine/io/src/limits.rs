//! Every limit of the io seam.

use std::time::Duration;

/// Alignment of direct I/O: memory address, offset and size of every log read and write.
pub const DIRECT_ALIGN_BYTES: usize = 4096;
/// Tasks of one shard that may be alive at once.
pub const TASKS_MAX: usize = 1 << 20;
/// Polls between two visits to the driver, so that completions never starve.
pub const POLLS_PER_TURN_MAX: usize = 1024;
/// Bytes one read of a stream hands over at most.
pub const READ_BYTES_MAX: usize = 64 * 1024;
/// Slices one gathered send may hold (IOV_MAX is 1024 on Linux).
pub const SEND_SLICES_MAX: usize = 1024;

const _: () = assert!(DIRECT_ALIGN_BYTES.is_power_of_two());
const _: () = assert!(SEND_SLICES_MAX <= 1024);
/// Bytes of one bulk read or write; below the usual `max_sectors_kb` of block devices.
pub const BULK_CHUNK_BYTES: usize = 512 * 1024;
/// Bytes of bulk writes between two syncs: without FUA each durable log write flushes them too.
pub const BULK_SYNC_BYTES: u64 = 2 * 1024 * 1024;

const _: () = assert!(BULK_CHUNK_BYTES.is_multiple_of(DIRECT_ALIGN_BYTES));

/// Disk operations the epoll driver has in the kernel at once: one per batch the log may have in
/// flight.
pub const DISK_THREADS_MAX: usize = 4;
/// Events taken from epoll in one visit.
pub const EPOLL_EVENTS_MAX: usize = 256;
/// Connections that wait to be accepted; the system cuts it to `net.core.somaxconn`.
pub const LISTEN_BACKLOG: i32 = 4096;
/// Idle time before, and between, keep-alive probes of TCP connections.
pub const TCP_KEEPALIVE: Duration = Duration::from_secs(15);
/// Wait before a Unix socket whose backlog was full is tried again: no event tells of room.
pub const CONNECT_RETRY: Duration = Duration::from_millis(1);

/// A yield that takes as long gave the core to a thread that does not sleep by itself.
pub const WAY_LONG: Duration = Duration::from_millis(1);
/// After such a yield the core is kept for so many times what it took, and no longer than this.
pub const WAY_PAUSE_TIMES: u32 = 20;
/// See `WAY_PAUSE_TIMES`.
pub const WAY_PAUSE_MAX: Duration = Duration::from_millis(100);

/// Attempts at a ring while the kernel has no memory for one: that of a process that was killed
/// comes back a moment after its end.
pub const RING_ATTEMPTS: u32 = 20;
/// Pause between two of them.
pub const RING_ATTEMPT_PAUSE: Duration = Duration::from_millis(50);

/// Submissions a ring takes before it has to enter the kernel in the middle of a turn.
pub const RING_SUBMISSIONS: u32 = 1024;
/// Completions a ring holds before the kernel keeps them on a list of its own.
pub const RING_COMPLETIONS: u32 = 8192;
/// Buffers a ring lends to the kernel for reads of streams; a power of two.
pub const RING_BUFFERS: u16 = 256;
/// Bytes of each: most requests fit, and a shard's buffers stay within a usual L2 cache.
pub const RING_BUFFER_BYTES: usize = 8 * 1024;
/// Bytes a stream of a ring may hold unread before its reads stop. One turn may exceed it by what
/// the lent buffers hold.
pub const INBOX_BYTES_MAX: usize = 2 * READ_BYTES_MAX;
/// Connections a listener of a ring may have taken that nobody has asked for yet.
pub const ARRIVED_MAX: usize = 64;

const _: () = assert!(RING_BUFFERS.is_power_of_two());
const _: () = assert!(RING_COMPLETIONS as usize > 4 * RING_BUFFERS as usize);

/// Chunks of one bulk job that are on their way between the shard and the plane.
pub const BULK_CHUNKS_MAX: usize = 4;
/// Bytes per second that one bulk job writes at most, so that durable log writes find room.
pub const BULK_RATE_BYTES_PER_S: u64 = 128 * 1024 * 1024;
/// Nice value of the thread of a bulk job that nobody waits for.
pub const BULK_NICE: i32 = 5;
/// Unused rate that a bulk job may catch up with.
pub const BULK_BURST: Duration = Duration::from_millis(50);

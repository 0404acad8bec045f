//! Every limit of the io seam.

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

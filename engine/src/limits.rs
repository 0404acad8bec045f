//! Every limit of the engine. Each module adds its own here.

use std::time::Duration;

/// The greatest number a file may have counted to: sequences, indexes, terms, revisions. Whoever
/// counted a billion a second would need a century; one more than it is a number, too.
pub const COUNTER_MAX: u64 = 1 << 62;
/// Bytes of the name of a file. Source: Linux, `NAME_MAX`.
pub const FILE_NAME_BYTES_MAX: usize = 255;
/// The greatest number of a segment.
pub const WAL_SEGMENT_NUMBER_MAX: u32 = 1 << 31;
/// Proposals that wait for a turn at most; more are refused with `TooManyRequests`.
pub const PROPOSALS_WAITING_MAX: usize = 16 * 1024;
/// Bytes of the commands of all proposals that are not answered yet.
pub const PROPOSALS_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Proposals beyond that which the replica itself may make: lease ends and alarms never starve.
pub const PROPOSALS_RESERVED: usize = 1024;
/// Reads that wait for a read point at most; more are refused with `TooManyRequests`.
pub const READS_WAITING_MAX: usize = 32 * 1024;
/// Entries one turn takes from the queue at most.
pub const TURN_ENTRIES_MAX: usize = 4096;
/// Bytes of commands one turn takes from the queue, before the one that completes it.
pub const TURN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Steps of consensus in one turn.
pub const TURN_STEPS_MAX: usize = 16;
/// Time one turn applies for, before it lets others run.
pub const TURN_TIME_MAX: Duration = Duration::from_micros(500);
/// Entries applied between two looks at the clock.
pub const TURN_CLOCK_ENTRIES: usize = 16;
/// How long a proposal or read waits inside, beside two election timeouts. Source: semantics 0.8.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Heartbeat intervals between two looks at what waits too long, where no ticks are needed.
pub const IDLE_TICKS: u32 = 5;
/// How often leases that end are looked for. Source: semantics 8.5.
pub const LEASE_TICK: Duration = Duration::from_millis(500);
/// Revocations of ended leases in flight at most: one write of the log takes them together, and
/// applying them takes a small part of a turn.
pub const LEASE_REVOKES_IN_FLIGHT_MAX: usize = 128;
/// Time a long job (removal, checkpoint) takes between two visits to the driver, however little
/// the others did, at most by about one piece of it.
pub const JOB_TIME_MIN: Duration = Duration::from_micros(20);
/// The others take at least so many times what a job takes, where they want as much.
pub const JOB_TIME_OTHERS: u32 = 1;
/// Time a long job takes at most at once.
pub const JOB_TIME_MAX: Duration = Duration::from_millis(4);
/// Records one part of a slice looks at.
pub const COMPACTION_STEPS: usize = 8;
/// Records one slice looks at in all.
pub const COMPACTION_STEPS_PER_SLICE_MAX: usize = 4096;
/// How often removal looks whether the reads it waits for have ended.
pub const COMPACTION_HELD_PAUSE: Duration = Duration::from_millis(20);
/// Bytes of log after which a checkpoint starts, unless the state is larger.
pub const CHECKPOINT_LOG_BYTES_MIN: u64 = 64 * 1024 * 1024;
/// Bytes appended between two looks at how much log there is, at most.
pub const CHECKPOINT_LOOK_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes of one piece of a checkpoint: what the shard encodes without letting others run.
pub const CHECKPOINT_EXPORT_BYTES: usize = 64 * 1024;
/// Pieces of a checkpoint between two visits to the driver at most.
pub const CHECKPOINT_PIECES_PER_TURN_MAX: usize = 16;
/// Wait before a checkpoint that could not be written is tried again.
pub const CHECKPOINT_RETRY: Duration = Duration::from_secs(10);

const _: () = assert!(READS_WAITING_MAX <= ringbolt_consensus::READS_WAITING_MAX);
const _: () = assert!(LEASE_REVOKES_IN_FLIGHT_MAX < PROPOSALS_RESERVED);

/// The longest time to live a lease can be granted. Unit: seconds. etcd's number.
pub const LEASE_TTL_S_MAX: i64 = 9_000_000_000;
/// Leases that come due taken at once at most; further ones when those are proposed.
pub const LEASES_DUE_PER_TURN_MAX: usize = 500;
/// What etcd's log entry holds besides the request: a header with the request's id, and the tags
/// and lengths of header and request. A proposal is measured with it, so that the same request is
/// too large here and there.
pub const PROPOSAL_OVERHEAD_BYTES: usize = 17;
/// Transactions in each other of which the inner one still has operations. Under etcd's default of
/// 128 operations there are at most that many levels; with a larger `--max-txn-ops` this is the
/// limit, for the stack's sake.
pub const TXN_LEVELS_MAX: usize = 256;
/// Messages in each other that are decoded: each level of a transaction is one in an operation, and
/// one level more shows that there are too many.
pub const TXN_MESSAGES_DEEP_MAX: usize = 2 * (TXN_LEVELS_MAX + 1);
/// Keys one step of a read hands out at most, and keys and versions it looks at: below 200 µs.
pub const RANGE_STEP_KEYS_MAX: usize = 500;
/// How many revisions ago a range may be for its keys to be counted from the newest count and what
/// happened since, in one go; an older one is counted key by key, in steps.
pub const RANGE_COUNT_BACK_MAX: i64 = 1000;
/// Bytes one step of a read hands out before it ends.
pub const RANGE_STEP_BYTES_MAX: usize = 1024 * 1024;
/// Keys in the first message of a `RangeStream`.
pub const RANGE_STREAM_FIRST_KEYS: usize = 10;

// mvcc
/// Records one piece of a `HashKV` takes in.
pub const HASH_STEP_RECORDS: usize = 500;
/// Hashes of past compactions that `HashKV` can still answer. Source: contract 12.6.
pub const COMPACTION_HASHES_KEPT: usize = 10;
/// Compactions whose removal waits for its turn; further ones are joined.
pub const COMPACTIONS_WAITING_MAX: usize = 16;
/// Batches a watch group's ring keeps at most; a watcher further behind reads the revision log.
pub const WATCH_RING_BATCHES_MAX: usize = 1024;
/// Bytes a watch group's ring keeps at most (one batch may be larger).
pub const WATCH_RING_BYTES_MAX: usize = 512 * 1024;
/// Bytes all rings of a hub keep together: each group has an equal share.
pub const WATCH_RINGS_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Ranges of watchers that are looked through, beside a part of all, before they are sorted in.
pub const WATCH_RANGES_FRESH_MIN: usize = 32;
/// Events of one catch-up response, before the revision that completes it.
pub const WATCH_HISTORY_EVENTS_MAX: usize = 1000;
/// Events one catch-up step looks at, before the revision that completes it.
pub const WATCH_HISTORY_SCAN_MAX: usize = 2000;
// wal

/// Batches of one log in flight at most; more entries gather until one completes.
pub const WAL_BATCHES_IN_FLIGHT_MAX: usize = 4;
/// Bytes of records a batch gathers at most. One larger record makes a batch of its own.
pub const WAL_BATCH_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of one record's data at most, whatever the configuration says.
pub const WAL_RECORD_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Size of the first segments of a log.
pub const WAL_SEGMENT_BYTES_FIRST: u64 = 4 * 1024 * 1024;
/// Size segments grow to.
pub const WAL_SEGMENT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Size of a segment at most while the state is smaller than twice as much: whole segments would
/// else be most of what the disk holds.
pub const WAL_SEGMENT_BYTES_SMALL_STATE: u64 = 32 * 1024 * 1024;
/// Segments one log may have: as many as a mark slot names.
pub const WAL_SEGMENTS_MAX: usize = 240;
/// Unused segments kept zeroed: the next one and the reserve for what gives space back.
pub const WAL_SEGMENTS_SPARE: usize = 2;
/// Buffers a log keeps for reuse.
pub const WAL_BUFFERS_KEPT: usize = 4;
/// Bytes of the largest buffer that is kept.
pub const WAL_BUFFER_KEPT_BYTES_MAX: usize = 64 * 1024;
/// Bytes one read of a segment asks for when it is recovered.
pub const WAL_READ_BYTES: usize = 512 * 1024;
/// Segments of the mark's list that only recovery may use.
pub const WAL_LIST_RESERVE: usize = 8;
/// Bytes of a checkpoint's file name in the log at most.
pub const WAL_CHECKPOINT_NAME_BYTES_MAX: usize = 255;
/// Wait between two attempts to zero a segment when the disk is full.
pub const WAL_ZERO_RETRY_MS: u64 = 1_000;
/// Shortest time between two marks of an idle log.
pub const WAL_MARK_IDLE_MS: u64 = 1_000;
/// How long an open waits for the lock of a process that has just died.
pub const WAL_LOCK_WAIT_MS: u64 = 10_000;
/// Pause between two attempts to take the lock.
pub const WAL_LOCK_RETRY_MS: u64 = 50;
/// Revisions reserved ahead at a time.
pub const REVISIONS_RESERVED_BLOCK: i64 = 1 << 20;
/// Revisions that lie at most between what a damaged log still tells and what was given out: as
/// many entries as all its segments could hold, and more.
pub const REVISIONS_UNKNOWN_MAX: i64 = 1 << 32;
/// Entries kept for slow followers below a checkpoint.
pub const WAL_CATCH_UP_ENTRIES: u64 = 5_000;
/// Bytes of segments kept for slow followers below a checkpoint at most.
pub const WAL_CATCH_UP_BYTES_MAX: u64 = 64 * 1024 * 1024;

const _: () = assert!(WAL_SEGMENT_BYTES_FIRST <= WAL_SEGMENT_BYTES_MAX);
const _: () = assert!(WAL_BATCH_BYTES_MAX as u64 + 2 * 4096 <= WAL_SEGMENT_BYTES_FIRST);
const _: () = assert!(WAL_SEGMENTS_SPARE >= 2);
const _: () =
    assert!((WAL_SEGMENTS_MAX as u64 * WAL_SEGMENT_BYTES_MAX / 24) < REVISIONS_UNKNOWN_MAX as u64);

// snapshot

/// Bytes of data one chunk of a checkpoint holds at most.
pub const CHECKPOINT_CHUNK_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of one piece of a checkpoint at most: what the loader puts together before it hands it on.
pub const CHECKPOINT_PIECE_BYTES_MAX: usize = 1024 * 1024 * 1024;

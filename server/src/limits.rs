//! Every limit of the server.

use std::time::Duration;

/// Largest frame payload we accept, as our SETTINGS say. Source: RFC 9113 6.5.2, etcd's own value.
pub const FRAME_BYTES_MAX: usize = 16_384;
/// Largest frame payload we send, whatever more the client would take: fairness between streams.
pub const FRAME_SENT_BYTES_MAX: usize = 16_384;
/// Receive window of a stream until it is given more.
pub const STREAM_WINDOW_BYTES: u32 = 65_535;
/// Receive window of a connection, granted with the first frames.
pub const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
/// Streams one connection may have open, whatever `--max-concurrent-streams` says: the memory of
/// a connection is bounded.
pub const STREAMS_PER_CONNECTION_MAX: usize = 1 << 17;
/// Streams remembered after they closed, to tell a late frame from a wrong one.
pub const CLOSED_REMEMBERED_MAX: usize = 256;
/// Bytes of one header block, CONTINUATION frames included.
pub const HEADER_BLOCK_BYTES_MAX: usize = 64 * 1024;
/// CONTINUATION frames of one header block.
pub const CONTINUATIONS_MAX: usize = 32;
/// Decoded size of one header list, counted as RFC 9113 6.5.2 says.
pub const HEADER_LIST_BYTES_MAX: usize = 256 * 1024;
/// HPACK dynamic table of a connection: the protocol's default, which we never raise.
pub const HEADER_TABLE_BYTES_MAX: usize = 4096;
/// Header blocks remembered per connection, so that a repeated block is not decoded again.
pub const HEADER_CACHE_ENTRIES: usize = 8;
/// A header block above this size is not remembered.
pub const HEADER_CACHE_BLOCK_BYTES_MAX: usize = 2048;
/// Encoded output waiting for the socket above which a connection stops producing more.
pub const OUTPUT_PENDING_BYTES_MAX: usize = 256 * 1024;
/// Encoded output waiting for the socket above which a connection stops reading.
pub const OUTPUT_STOPS_READING_BYTES: usize = 2 * OUTPUT_PENDING_BYTES_MAX;
/// The same while memory is tight.
pub const OUTPUT_STOPS_READING_TIGHT_BYTES: usize = 32 * 1024;
/// Slices handed to one gathered write.
pub const OUTPUT_SLICES_MAX: usize = 512;
/// Payload up to this size is copied next to its frame header; a larger one is passed as it is.
pub const COPIED_PAYLOAD_BYTES_MAX: usize = 2048;
/// Bytes a stream may queue ahead of flow control before its producer waits.
pub const STREAM_AHEAD_BYTES_MAX: usize = 64 * 1024;
/// Client resets in a burst, and how many a second are forgiven (CVE-2023-44487).
pub const RESETS_BURST: u32 = 2_000;
/// See [`RESETS_BURST`].
pub const RESETS_PER_S: u32 = 500;
/// Frames that carry no request (SETTINGS, PING, WINDOW_UPDATE, PRIORITY, empty DATA, unknown) in
/// a burst, how many a second are forgiven, and how many each frame we send forgives.
pub const IDLE_FRAMES_BURST: u32 = 10_000;
/// See [`IDLE_FRAMES_BURST`].
pub const IDLE_FRAMES_PER_S: u32 = 2_000;
/// See [`IDLE_FRAMES_BURST`].
pub const IDLE_FRAMES_PER_SENT_FRAME: u32 = 4;
/// A change of the initial window walks over every open stream: so many cost an idle frame.
pub const WINDOW_CHANGES_PER_IDLE_FRAME: usize = 128;
/// Decoding a header list that is too large costs us as much as so many resets.
pub const OVERSIZE_HEADERS_IN_RESETS: u32 = 400;
/// A client that pings more often than this collects strikes.
pub const PING_INTERVAL_MIN: Duration = Duration::from_secs(5);
/// The same while it has no stream open.
pub const PING_INTERVAL_WITHOUT_STREAM_MIN: Duration = Duration::from_secs(2 * 3600);
/// Strikes forgiven; the next one ends the connection.
pub const PING_STRIKES_MAX: u32 = 2;
/// We ping a connection that was silent this long. Source: etcd `--grpc-keepalive-interval`.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2 * 3600);
/// And give it up when it stays silent this much longer. Source: `--grpc-keepalive-timeout`.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// An HTTP/1 request line, and with it what is read before the protocol is known.
pub const REQUEST_LINE_BYTES_MAX: usize = 8 * 1024;
/// How long a client may take to say what it speaks. Source: grpc-go's connection timeout.
pub const FIRST_BYTES_TIME_MAX: Duration = Duration::from_secs(120);
/// A message may be this much larger than `--max-request-bytes`.
pub const MESSAGE_SLACK_BYTES: usize = 512 * 1024;
/// Request bytes one connection may hold in messages that are still incomplete.
pub const ASSEMBLY_BYTES_PER_CONNECTION_MAX: usize = 64 * 1024 * 1024;
/// Whole messages of one stream that wait for their reader before its window stays closed.
pub const MESSAGES_WAITING_MAX: usize = 1;

const _: () = assert!(FRAME_SENT_BYTES_MAX <= OUTPUT_PENDING_BYTES_MAX);
const _: () = assert!(COPIED_PAYLOAD_BYTES_MAX <= FRAME_SENT_BYTES_MAX);
const _: () = assert!(HEADER_BLOCK_BYTES_MAX >= 2 * FRAME_BYTES_MAX);
const _: () = assert!(OUTPUT_STOPS_READING_BYTES > OUTPUT_PENDING_BYTES_MAX);
const _: () = assert!(STREAM_WINDOW_BYTES <= CONNECTION_WINDOW_BYTES);

/// Bytes of events one watch response holds before the revision that completes it.
pub const WATCH_RESPONSE_BYTES: usize = 64 * 1024;
/// Watchers of one stream at most; each costs about 300 bytes.
pub const WATCHERS_PER_STREAM_MAX: usize = 1 << 20;
/// Bytes of one piece of a list's answer; a list that is smaller is sent whole.
pub const RANGE_CHUNK_BYTES: usize = 64 * 1024;
/// What an answer may hold however full the memory budget is: those calls are turned away as such.
pub const ANSWER_FREE_BYTES: usize = 64 * 1024;
/// Room behind a piece for the key-value that exceeds it, so that common ones do not grow it.
pub const CHUNK_SLACK_BYTES: usize = 4096;

/// Calls one shard may have open at the home of a keyspace on another.
pub const RELAY_CALLS_MAX: usize = 1 << 16;
/// Values in a mailbox between two shards; more wait in the outbox of their shard.
pub const RELAY_MAILBOX_MAX: usize = 1 << 14;
/// Messages of one stream that are on their way to the home.
pub const RELAY_MESSAGES_AHEAD_MAX: usize = 8;
/// Pieces of one streaming answer that are on their way from the home, or wait for room.
pub const RELAY_PIECES_MAX: usize = 256;
/// Values of a batch from another shard that are handled before other tasks have their turn.
pub const RELAY_BATCH_MAX: usize = 256;

/// The memory budget without `--memory-budget`: this part of the memory the process may use.
pub const MEMORY_BUDGET_PART_OF_MEMORY: u64 = 16;
/// See [`MEMORY_BUDGET_PART_OF_MEMORY`]: at least.
pub const MEMORY_BUDGET_BYTES_MIN: u64 = 64 * 1024 * 1024;
/// See [`MEMORY_BUDGET_PART_OF_MEMORY`]: at most.
pub const MEMORY_BUDGET_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// What an idle connection is charged: its tasks, its tables and its lent buffers.
pub const CONNECTION_BYTES: usize = 8 * 1024;
/// What a call is charged besides its head and its request.
pub const CALL_BYTES: usize = 1024;
/// What a watcher is charged besides its range.
pub const WATCHER_BYTES: usize = 512;
/// As [`STREAM_AHEAD_BYTES_MAX`], while memory is tight.
pub const STREAM_AHEAD_TIGHT_BYTES: usize = 4 * 1024;
/// As [`WATCH_RESPONSE_BYTES`], while memory is tight.
pub const WATCH_RESPONSE_TIGHT_BYTES: usize = 4 * 1024;
/// A connection that holds more than this is read from at a trickle while memory is full.
pub const CONNECTION_HELD_FULL_BYTES: usize = 64 * 1024;
/// Time between two reads of such a connection.
pub const READ_PAUSE: Duration = Duration::from_millis(50);
/// Bytes of header lists that the open calls of one connection may hold.
pub const HEADS_PER_CONNECTION_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How long a unary list keeps its revision from being removed; a client that reads slower sees it
/// end as compacted when a compaction passes.
pub const LIST_PIN_TIME_MAX: Duration = Duration::from_secs(60);
/// Bytes of key-values of a list that are held; a longer one is read again as it is sent.
pub const LIST_HELD_BYTES_MAX: usize = 4 * 1024 * 1024;
/// As [`LIST_HELD_BYTES_MAX`], while memory is tight.
pub const LIST_HELD_TIGHT_BYTES: usize = 64 * 1024;
/// Keys that are read again at once for the next pieces of a long list.
pub const LIST_REFILL_KEYS: i64 = 256;

const _: () = assert!(STREAM_AHEAD_TIGHT_BYTES < STREAM_AHEAD_BYTES_MAX);
const _: () = assert!(HEADER_LIST_BYTES_MAX <= HEADS_PER_CONNECTION_BYTES_MAX);
const _: () = assert!(MEMORY_BUDGET_BYTES_MIN <= MEMORY_BUDGET_BYTES_MAX);

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

//! HTTP/2 as a value: bytes and times in, events and bytes out. Source: RFC 9113, RFC 7541.
//!
//! Nothing here reads a clock, touches a socket or awaits. The owner feeds what it received to
//! [`Http2::receive`], answers through `send_headers`, `send_data` and `reset`, and writes what
//! [`Http2::poll_output`] gives.
//!
//! - H1 Output that waits for the socket stays below `OUTPUT_PENDING_BYTES_MAX` plus one frame and
//!   the answers to control frames, which stop being read at `OUTPUT_STOPS_READING_BYTES`.
//! - H2 Payload is encoded only when the windows of its stream and of the connection let it.
//! - H3 Streams that can send take turns, a frame each.
//! - H4 The same bytes give the same events, however they were split.

pub mod flood;
pub mod frame;
pub mod hash;
pub mod head;
pub mod hpack;
mod keepalive;
mod output;
mod receive;
mod send;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use hashbrown::HashMap;
use ringbolt_io::MonoTime;

pub use self::frame::{ErrorCode, StreamId};
pub use self::head::Head;
pub use self::send::Gone;

use self::flood::Flood;
use self::hash::FixedHash;
use self::hpack::BlockCache;
use self::keepalive::Keepalive;
use self::output::Output;
use self::receive::Inbound;
use self::stream::{Closed, Ending, Stream};
use crate::limits::CLOSED_REMEMBERED_MAX;

/// What an operator may set. Shape: copied into each connection.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Streams a client may have open at once. Source: etcd `--max-concurrent-streams`.
    pub concurrent_streams_max: u32,
    /// Ping a connection silent for this long. Source: `--grpc-keepalive-interval`.
    pub keepalive_interval: std::time::Duration,
    /// Give it up when silent this much longer. Source: `--grpc-keepalive-timeout`.
    pub keepalive_timeout: std::time::Duration,
    /// Shortest time between two client pings. Source: `--grpc-keepalive-min-time`.
    pub ping_interval_min: std::time::Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            concurrent_streams_max: u32::MAX,
            keepalive_interval: crate::limits::KEEPALIVE_INTERVAL,
            keepalive_timeout: crate::limits::KEEPALIVE_TIMEOUT,
            ping_interval_min: crate::limits::PING_INTERVAL_MIN,
        }
    }
}

/// Something the client did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request began.
    Request {
        /// Its stream.
        stream: StreamId,
        /// Its head. A repeated header block yields the same `Rc`.
        head: Rc<Head>,
        /// No payload follows.
        end: bool,
    },
    /// Payload came. The bytes count against the receive windows until [`Http2::consumed`].
    Data {
        /// Its stream.
        stream: StreamId,
        /// The payload without padding; not empty.
        bytes: Bytes,
    },
    /// The request is complete.
    End {
        /// Its stream.
        stream: StreamId,
    },
    /// The stream is gone: the client reset it or broke a rule on it.
    Reset {
        /// Its stream.
        stream: StreamId,
        /// Why.
        code: ErrorCode,
    },
    /// The client will open no more streams.
    Goaway {
        /// Why.
        code: ErrorCode,
    },
}

/// One connection's protocol state.
#[derive(Debug)]
pub struct Http2 {
    limits: Limits,
    inbound: Inbound,
    cache: BlockCache,
    flood: Flood,
    keepalive: Keepalive,
    streams: HashMap<StreamId, Stream, FixedHash>,
    closed: Closed,
    /// The greatest stream id the client used.
    last_stream: StreamId,
    /// Streams that can send, in the order of their turns.
    ready: VecDeque<StreamId>,
    /// Streams that could send if the connection's window were open.
    starved: VecDeque<StreamId>,
    output: Output,
    /// Payload bytes in the queues of all streams.
    queued_bytes: usize,
    send_window: i64,
    receive_window: i64,
    unreturned: u32,
    peer: PeerSettings,
    life: Life,
}

/// What the client's SETTINGS say that matters to us.
#[derive(Debug)]
struct PeerSettings {
    initial_window: i64,
    frame_bytes_max: usize,
}

/// How far the end of the connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Streams are accepted.
    Open,
    /// GOAWAY with the greatest id and a PING were sent.
    Warned,
    /// The final GOAWAY was sent; streams above this id are ignored.
    Draining { last: StreamId },
    /// Nothing more is received or sent but what is already encoded.
    Ended(ErrorCode),
}

impl Http2 {
    /// A connection that has seen nothing yet. Its SETTINGS are the first output.
    #[must_use]
    pub fn new(limits: Limits, now: MonoTime) -> Http2 {
        let mut http = Http2 {
            keepalive: Keepalive::new(&limits, now),
            limits,
            inbound: Inbound::default(),
            cache: BlockCache::default(),
            flood: Flood::new(now),
            streams: HashMap::with_hasher(FixedHash),
            closed: Closed::default(),
            last_stream: StreamId::CONNECTION,
            ready: VecDeque::new(),
            starved: VecDeque::new(),
            output: Output::default(),
            queued_bytes: 0,
            send_window: 65_535,
            receive_window: 65_535,
            unreturned: 0,
            peer: PeerSettings { initial_window: 65_535, frame_bytes_max: 16_384 },
            life: Life::Open,
        };
        http.greet();
        http
    }

    /// How many streams are open.
    #[must_use]
    pub fn streams_open(&self) -> usize {
        self.streams.len()
    }

    /// True when nothing more will be exchanged: close the socket once the output is written.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match self.life {
            Life::Ended(_) => true,
            Life::Draining { .. } => self.streams.is_empty(),
            Life::Open | Life::Warned => false,
        }
    }

    /// Why the connection was ended, when it was because of an error.
    #[must_use]
    pub fn ended_by(&self) -> Option<ErrorCode> {
        match self.life {
            Life::Ended(code) => Some(code),
            _ => None,
        }
    }

    /// Encoded bytes that wait to be written.
    #[must_use]
    pub fn output_size(&self) -> usize {
        self.output.size()
    }

    /// Bytes that wait to be written, encoded or not.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.output.size() + self.queued_bytes
    }

    fn close(&mut self, id: StreamId, ending: Ending) {
        if let Some(stream) = self.streams.remove(&id) {
            self.queued_bytes -= stream.queued_bytes;
            self.closed.remember(id, ending, CLOSED_REMEMBERED_MAX);
        }
    }
}

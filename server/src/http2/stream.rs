//! One stream: what each side may still send, and what waits to be sent.
//!
//! ```text
//! idle ──HEADERS──► open ──END_STREAM from client──► half-closed (remote)
//!                    │                                        │
//!                    └──our END_STREAM, then RST NO_ERROR──►  └──our END_STREAM──► closed
//! RST_STREAM from either side leads to closed from anywhere.
//! ```

use std::collections::VecDeque;

use bytes::Bytes;

use super::frame::StreamId;

/// Something to send on a stream.
#[derive(Debug)]
pub(super) enum Piece {
    /// A header block: response headers or trailers.
    Block { block: Bytes, end: bool },
    /// Payload: `head` goes before `bytes`; what is sent is cut off their fronts.
    Data { head: Bytes, bytes: Bytes, end: bool },
}

/// A stream that is not closed.
#[derive(Debug)]
pub(super) struct Stream {
    /// The client may still send.
    pub remote_open: bool,
    /// How much the client lets us send. Negative after it shrank its initial window.
    pub send_window: i64,
    /// How much we let the client send.
    pub receive_window: i64,
    /// Received bytes that were consumed but not yet given back to the client.
    pub unreturned: u32,
    /// Payload bytes received, to hold against `content-length`.
    pub received: u64,
    /// `content-length` of the request.
    pub content_length: Option<u64>,
    /// What waits to be sent, in order.
    pub queue: VecDeque<Piece>,
    /// Payload bytes in `queue`.
    pub queued_bytes: usize,
    /// The stream's id is in the ready or the starved list.
    pub listed: bool,
    /// Its producer waits for room.
    pub wants_room: bool,
}

impl Stream {
    pub(super) fn open(remote_open: bool, send_window: i64, receive_window: i64) -> Stream {
        Stream {
            remote_open,
            send_window,
            receive_window,
            unreturned: 0,
            received: 0,
            content_length: None,
            queue: VecDeque::new(),
            queued_bytes: 0,
            listed: false,
            wants_room: false,
        }
    }
}

/// Streams that closed lately, oldest forgotten first.
#[derive(Debug, Default)]
pub(super) struct Closed {
    ring: VecDeque<(StreamId, Ending)>,
}

/// How a stream closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Both sides ended it, or the client reset it: a later frame on it is wrong.
    Known,
    /// We reset it: frames the client sent before it heard of that may still come.
    ResetByUs,
}

impl Closed {
    pub(super) fn remember(&mut self, stream: StreamId, ending: Ending, most: usize) {
        if self.ring.len() == most {
            self.ring.pop_front();
        }
        self.ring.push_back((stream, ending));
    }

    pub(super) fn find(&self, stream: StreamId) -> Option<Ending> {
        self.ring.iter().rev().find(|(id, _)| *id == stream).map(|(_, ending)| *ending)
    }
}

//! The sending half: answers, flow control and turns between streams.

use bytes::{Buf, BufMut, Bytes};

use super::frame::{self, ErrorCode, FrameHeader, StreamId, flag, kind, setting};
use super::stream::{Ending, Piece, Stream};
use super::{Http2, Life};
use crate::limits::{
    CONNECTION_WINDOW_BYTES, COPIED_PAYLOAD_BYTES_MAX, FRAME_BYTES_MAX, FRAME_SENT_BYTES_MAX,
    OUTPUT_PENDING_BYTES_MAX, STREAM_AHEAD_BYTES_MAX,
};

/// The stream is closed: nobody will read what is sent on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// The payload of the PING that follows the first GOAWAY of a graceful end.
const FAREWELL: [u8; 8] = *b"farewell";

impl Http2 {
    /// SETTINGS as a plaintext etcd sends them, and a wider connection window.
    pub(super) fn greet(&mut self) {
        let frame_bytes = u32::try_from(FRAME_BYTES_MAX).expect("a frame size has 24 bits");
        let streams = self.limits.concurrent_streams_max;
        let widened = CONNECTION_WINDOW_BYTES - 65_535;
        self.output.small(|out| {
            let all = [
                (setting::MAX_FRAME_SIZE, frame_bytes),
                (setting::MAX_CONCURRENT_STREAMS, streams),
            ];
            let told = if streams == u32::MAX { &all[..1] } else { &all[..] };
            frame::put_settings(out, told);
            frame::put_window_update(out, StreamId::CONNECTION, widened);
        });
        self.receive_window = i64::from(CONNECTION_WINDOW_BYTES);
    }

    /// Sends response headers or trailers: an encoded header block. With `end` nothing may follow.
    ///
    /// # Errors
    /// The stream is closed.
    pub fn send_block(&mut self, id: StreamId, block: Bytes, end: bool) -> Result<(), Gone> {
        let frame_bytes_max = self.frame_sent_max();
        let stream = self.streams.get_mut(&id).ok_or(Gone)?;
        let fits = block.len() <= frame_bytes_max;
        if fits && stream.queue.is_empty() && self.output.size() < OUTPUT_PENDING_BYTES_MAX {
            self.emit_block(id, &block, end);
            return Ok(());
        }
        stream.queue.push_back(Piece::Block { block, end });
        self.list(id);
        Ok(())
    }

    /// Sends payload: `head` (small, for example a message prefix) and then `bytes`.
    ///
    /// Everything is accepted at once; a producer of much keeps [`Http2::has_room`] in view.
    ///
    /// # Errors
    /// The stream is closed.
    pub fn send_data(
        &mut self,
        id: StreamId,
        head: &[u8],
        bytes: Bytes,
        end: bool,
    ) -> Result<(), Gone> {
        let size = head.len() + bytes.len();
        if size == 0 && !end {
            return if self.streams.contains_key(&id) { Ok(()) } else { Err(Gone) };
        }
        if self.begins_at_once(id, head, size, end)? {
            self.output.payload(bytes);
            if end {
                self.sent_end(id);
            }
            return Ok(());
        }
        let stream = self.streams.get_mut(&id).ok_or(Gone)?;
        stream.queued_bytes += size;
        self.queued_bytes += size;
        let head = Bytes::copy_from_slice(head);
        stream.queue.push_back(Piece::Data { head, bytes, end });
        self.list(id);
        Ok(())
    }

    /// As [`Http2::send_data`] without an end, for payload that many streams are sent: when it is
    /// small it is copied, and its reference count left alone.
    ///
    /// # Errors
    /// The stream is closed.
    pub fn send_shared(&mut self, id: StreamId, head: &[u8], bytes: &Bytes) -> Result<(), Gone> {
        let small = bytes.len() <= COPIED_PAYLOAD_BYTES_MAX;
        if small && self.begins_at_once(id, head, head.len() + bytes.len(), false)? {
            self.output.copied(bytes);
            return Ok(());
        }
        self.send_data(id, head, bytes.clone(), false)
    }

    /// Emits the begin of a frame of `size` bytes, `head` included, when all of it may leave now;
    /// the caller emits the rest.
    fn begins_at_once(
        &mut self,
        id: StreamId,
        head: &[u8],
        size: usize,
        end: bool,
    ) -> Result<bool, Gone> {
        let frame_bytes_max = self.frame_sent_max();
        let stream = self.streams.get_mut(&id).ok_or(Gone)?;
        let signed = i64::try_from(size).unwrap_or(i64::MAX);
        let at_once = stream.queue.is_empty()
            && size <= frame_bytes_max
            && signed <= stream.send_window
            && signed <= self.send_window
            && self.output.size() < OUTPUT_PENDING_BYTES_MAX;
        if at_once {
            stream.send_window -= signed;
            self.send_window -= signed;
            self.emit_data_header(id, size, end);
            self.output.small(|out| out.put_slice(head));
        }
        Ok(at_once)
    }

    /// Ends a stream at once; what waits to be sent on it is dropped.
    pub fn reset(&mut self, id: StreamId, code: ErrorCode) {
        if self.streams.contains_key(&id) {
            self.output.small(|out| frame::put_reset(out, id, code));
            self.close(id, Ending::ResetByUs);
        }
    }

    /// Whether nothing of this stream waits to be sent.
    #[must_use]
    pub fn all_sent(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_none_or(|stream| stream.queue.is_empty())
    }

    /// Whether a producer may queue more on this stream, whose queue is to stay below `ahead_max`
    /// bytes; when not, the stream is named by a later [`Http2::poll_output`]. A closed stream has
    /// room: sending on it says that it is gone.
    pub fn has_room(&mut self, id: StreamId, ahead_max: usize) -> bool {
        match self.streams.get_mut(&id) {
            Some(stream) if stream.queued_bytes >= ahead_max => {
                stream.wants_room = true;
                false
            }
            _ => true,
        }
    }

    /// Says that `size` payload bytes of a stream were consumed: the client may send as many more.
    pub fn consumed(&mut self, id: StreamId, size: usize) {
        let size = self.returned_to_connection(size);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.unreturned += size;
        let quarter = i64::from(crate::limits::STREAM_WINDOW_BYTES / 4);
        if stream.remote_open && i64::from(stream.unreturned) >= quarter {
            let increment = std::mem::take(&mut stream.unreturned);
            stream.receive_window += i64::from(increment);
            self.output.small(|out| frame::put_window_update(out, id, increment));
        }
    }

    /// Gives bytes back to the connection's window only.
    pub(super) fn returned_to_connection(&mut self, size: usize) -> u32 {
        let size = u32::try_from(size).expect("no more is consumed than a window holds");
        self.unreturned += size;
        if self.unreturned >= CONNECTION_WINDOW_BYTES / 4 {
            let increment = std::mem::take(&mut self.unreturned);
            self.receive_window += i64::from(increment);
            self.output.small(|out| frame::put_window_update(out, StreamId::CONNECTION, increment));
        }
        size
    }

    /// Begins a graceful end: the client is told to open no more streams, and those that it opened
    /// before it heard are served.
    pub fn shut_down(&mut self) {
        if self.life == Life::Open {
            self.life = Life::Warned;
            self.output.small(|out| {
                frame::put_goaway(out, StreamId::MAX, ErrorCode::NO_ERROR, "graceful_stop");
                frame::put_ping(out, false, FAREWELL);
            });
        }
    }

    /// Ends the connection because of an error.
    pub fn fail(&mut self, code: ErrorCode, text: &str) {
        if matches!(self.life, Life::Ended(_)) {
            return;
        }
        let last = self.last_stream;
        self.output.small(|out| frame::put_goaway(out, last, code, text));
        self.life = Life::Ended(code);
        self.streams.clear();
        self.queued_bytes = 0;
        self.ready.clear();
        self.starved.clear();
    }

    /// The client has answered a ping of ours.
    pub(super) fn pong(&mut self, payload: [u8; 8]) {
        if payload == FAREWELL && self.life == Life::Warned {
            let last = self.last_stream;
            self.life = Life::Draining { last };
            self.output.small(|out| frame::put_goaway(out, last, ErrorCode::NO_ERROR, ""));
        }
    }

    /// Encodes what windows and limits allow and moves it to `into`, in the order it must be
    /// written; at most one gathered write. Streams whose producers may go on are added to `room`.
    pub fn poll_output(&mut self, into: &mut Vec<Bytes>, room: &mut Vec<StreamId>) {
        while self.output.size() < OUTPUT_PENDING_BYTES_MAX {
            let Some(id) = self.ready.pop_front() else { break };
            self.take_turn(id, room);
        }
        self.output.take(into);
    }

    /// Whether [`Http2::poll_output`] would give anything.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.output.size() > 0 || !self.ready.is_empty()
    }

    /// One frame of one stream.
    fn take_turn(&mut self, id: StreamId, room: &mut Vec<StreamId>) {
        let frame_bytes_max = self.frame_sent_max();
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.listed = false;
        match stream.queue.front() {
            None => {}
            Some(Piece::Block { .. }) => {
                let Some(Piece::Block { block, end }) = stream.queue.pop_front() else { return };
                self.emit_block(id, &block, end);
            }
            Some(Piece::Data { .. }) => {
                let (size, end) = next_frame(stream, frame_bytes_max, self.send_window);
                if size == 0 && !end {
                    if stream.send_window > 0 {
                        stream.listed = true;
                        self.starved.push_back(id);
                    }
                    return;
                }
                self.emit_queued(id, size, end);
            }
        }
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.wants_room
            && stream.queued_bytes < STREAM_AHEAD_BYTES_MAX
        {
            stream.wants_room = false;
            room.push(id);
        }
        self.list(id);
    }

    /// Sends `size` bytes off the front of a stream's queue as one frame.
    fn emit_queued(&mut self, id: StreamId, size: usize, end: bool) {
        self.emit_data_header(id, size, end);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let signed = i64::try_from(size).expect("a frame has 24 bits");
        stream.send_window -= signed;
        stream.queued_bytes -= size;
        self.queued_bytes -= size;
        self.send_window -= signed;
        let mut left = size;
        while let Some(Piece::Data { head, bytes, .. }) = stream.queue.front_mut() {
            let from_head = left.min(head.len());
            let from_bytes = (left - from_head).min(bytes.len());
            self.output.small(|out| out.put_slice(&head[..from_head]));
            head.advance(from_head);
            if from_bytes > 0 {
                self.output.payload(bytes.split_to(from_bytes));
            }
            left -= from_head + from_bytes;
            if !head.is_empty() || !bytes.is_empty() {
                break;
            }
            stream.queue.pop_front();
            if left == 0 {
                break;
            }
        }
        assert_eq!(left, 0, "a frame is cut to what is queued");
        if end {
            self.sent_end(id);
        }
    }

    fn emit_data_header(&mut self, id: StreamId, length: usize, end: bool) {
        let flags = if end { flag::END_STREAM } else { 0 };
        let header = FrameHeader { length, kind: kind::DATA, flags, stream: id };
        self.output.small(|out| header.put(out));
        self.flood.sent_frame();
        self.keepalive.sent_payload();
    }

    /// A header block, cut into HEADERS and CONTINUATION frames where it is larger than one.
    fn emit_block(&mut self, id: StreamId, block: &Bytes, end: bool) {
        let most = self.frame_sent_max();
        let mut rest = &block[..];
        let mut first = true;
        while first || !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(most));
            let mut flags = if later.is_empty() { flag::END_HEADERS } else { 0 };
            let kind = if first { kind::HEADERS } else { kind::CONTINUATION };
            if first && end {
                flags |= flag::END_STREAM;
            }
            let header = FrameHeader { length: now.len(), kind, flags, stream: id };
            self.output.small(|out| {
                header.put(out);
                out.put_slice(now);
            });
            rest = later;
            first = false;
        }
        self.flood.sent_frame();
        self.keepalive.sent_payload();
        if end {
            self.sent_end(id);
        }
    }

    /// Our side of a stream has ended. A client that is still sending is told to stop.
    fn sent_end(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else { return };
        if stream.remote_open {
            self.output.small(|out| frame::put_reset(out, id, ErrorCode::NO_ERROR));
            self.close(id, Ending::ResetByUs);
        } else {
            self.close(id, Ending::Known);
        }
    }

    /// Gives a stream a place in the order of turns if it has something to send.
    pub(super) fn list(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let blocked = match stream.queue.front() {
            None => true,
            Some(Piece::Block { .. }) => false,
            Some(Piece::Data { head, bytes, .. }) => {
                stream.send_window <= 0 && !(head.is_empty() && bytes.is_empty())
            }
        };
        if !blocked && !stream.listed {
            stream.listed = true;
            self.ready.push_back(id);
        }
    }

    fn frame_sent_max(&self) -> usize {
        self.peer.frame_bytes_max.min(FRAME_SENT_BYTES_MAX)
    }
}

/// How many payload bytes the next DATA frame of a stream holds, and whether it is the last.
/// Consecutive pieces share a frame.
fn next_frame(stream: &Stream, frame_bytes_max: usize, connection_window: i64) -> (usize, bool) {
    let window = stream.send_window.min(connection_window).max(0);
    let most = frame_bytes_max.min(usize::try_from(window).unwrap_or(usize::MAX));
    let mut size = 0;
    for piece in &stream.queue {
        let Piece::Data { head, bytes, end } = piece else { break };
        let whole = size + head.len() + bytes.len();
        if whole > most {
            return (most, false);
        }
        size = whole;
        if *end {
            return (size, true);
        }
    }
    (size, false)
}

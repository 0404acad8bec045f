//! The receiving half: bytes to frames, frames to events, and every rule a client may break.

use std::rc::Rc;

use bytes::Bytes;
use ringbolt_io::MonoTime;

use super::frame::{self, ErrorCode, FrameHeader, HEADER_BYTES, PREFACE, StreamId};
use super::frame::{flag, kind, setting};
use super::hpack::Decoder;
use super::keepalive::Due;
use super::stream::{Ending, Stream};
use super::{Event, Head, Http2, Life};
use crate::limits::{
    CLOSED_REMEMBERED_MAX, CONTINUATIONS_MAX, FRAME_BYTES_MAX, HEADER_BLOCK_BYTES_MAX,
    OVERSIZE_HEADERS_IN_RESETS, STREAM_WINDOW_BYTES, STREAMS_PER_CONNECTION_MAX,
    WINDOW_CHANGES_PER_IDLE_FRAME,
};

const WINDOW_MAX: i64 = 0x7fff_ffff;

/// What was received so far of things that come in parts.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    preface_matched: usize,
    settings_seen: bool,
    /// The beginning of a frame whose end has not come.
    partial: Vec<u8>,
    decoder: Decoder,
    /// A header block whose CONTINUATION frames have not all come.
    block: Option<Block>,
}

#[derive(Debug)]
struct Block {
    stream: StreamId,
    end_stream: bool,
    depends_on_itself: bool,
    bytes: Vec<u8>,
    continuations: usize,
}

/// A rule was broken. Source: RFC 9113 5.4.
#[derive(Debug)]
enum Fault {
    Connection(ErrorCode, &'static str),
    Stream(StreamId, ErrorCode),
}

use Fault::Connection;

type Checked = Result<(), Fault>;

/// A frame whose payload is `whole[start..]`.
struct Frame<'a> {
    header: FrameHeader,
    whole: &'a Bytes,
    start: usize,
}

impl Frame<'_> {
    fn payload(&self) -> &[u8] {
        &self.whole[self.start..self.start + self.header.length]
    }
}

impl Http2 {
    /// Takes what the socket gave and appends what it means to `events`.
    ///
    /// A broken rule ends its stream (`Event::Reset`) or the connection ([`Http2::is_finished`]).
    pub fn receive(&mut self, now: MonoTime, bytes: &Bytes, events: &mut Vec<Event>) {
        tracing::trace!(target: "path", "Http2::receive");
        self.keepalive.received(now);
        let mut at = match self.match_preface(bytes) {
            Ok(at) => at,
            Err(fault) => return self.blame(now, fault, events),
        };
        while !matches!(self.life, Life::Ended(_)) {
            if !self.inbound.partial.is_empty() {
                let missing = self.missing();
                let taken = missing.min(bytes.len() - at);
                self.inbound.partial.extend_from_slice(&bytes[at..at + taken]);
                at += taken;
                if taken < missing {
                    return;
                }
                if self.missing() > 0 {
                    continue;
                }
                let whole = Bytes::from(std::mem::take(&mut self.inbound.partial));
                let header = FrameHeader::parse(&whole).expect("a whole frame has its header");
                self.frame(now, &Frame { header, whole: &whole, start: HEADER_BYTES }, events);
                continue;
            }
            let Some(header) = FrameHeader::parse(&bytes[at..]) else {
                self.inbound.partial.extend_from_slice(&bytes[at..]);
                return;
            };
            let end = at + HEADER_BYTES + header.length;
            if end > bytes.len() && header.length <= FRAME_BYTES_MAX {
                self.inbound.partial.extend_from_slice(&bytes[at..]);
                return;
            }
            self.frame(now, &Frame { header, whole: bytes, start: at + HEADER_BYTES }, events);
            at = end;
        }
    }

    /// Does what time demands and says when to ask again.
    pub fn tick(&mut self, now: MonoTime) -> MonoTime {
        match self.keepalive.due(now) {
            Due::Nothing => {}
            Due::Ping => self.output.small(|out| frame::put_ping(out, false, *b"keepaliv")),
            Due::GiveUp => self.fail(ErrorCode::NO_ERROR, "keepalive timeout"),
        }
        self.keepalive.next()
    }

    /// How many bytes the partial frame still needs: first its header, then its payload.
    fn missing(&self) -> usize {
        let partial = &self.inbound.partial;
        match FrameHeader::parse(partial) {
            None => HEADER_BYTES - partial.len(),
            // One that is too long is refused by its header alone.
            Some(header) if header.length > FRAME_BYTES_MAX => 0,
            Some(header) => HEADER_BYTES + header.length - partial.len(),
        }
    }

    fn match_preface(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let expected = &PREFACE[self.inbound.preface_matched..];
        let size = expected.len().min(bytes.len());
        if expected[..size] != bytes[..size] {
            return Err(Connection(ErrorCode::PROTOCOL, "invalid preface"));
        }
        self.inbound.preface_matched += size;
        Ok(size)
    }

    fn frame(&mut self, now: MonoTime, frame: &Frame<'_>, events: &mut Vec<Event>) {
        if let Err(fault) = self.check_frame(now, frame, events) {
            self.blame(now, fault, events);
        }
    }

    fn blame(&mut self, now: MonoTime, fault: Fault, events: &mut Vec<Event>) {
        match fault {
            Connection(code, text) => self.fail(code, text),
            Fault::Stream(stream, code) => {
                self.output.small(|out| frame::put_reset(out, stream, code));
                if self.streams.contains_key(&stream) {
                    self.close(stream, Ending::ResetByUs);
                    events.push(Event::Reset { stream, code });
                } else {
                    let most = CLOSED_REMEMBERED_MAX;
                    self.closed.remember(stream, Ending::ResetByUs, most);
                }
                if !self.flood.reset(now) {
                    self.fail(ErrorCode::ENHANCE_YOUR_CALM, "too many resets");
                }
            }
        }
    }

    fn check_frame(
        &mut self,
        now: MonoTime,
        frame: &Frame<'_>,
        events: &mut Vec<Event>,
    ) -> Checked {
        let header = frame.header;
        if header.length > FRAME_BYTES_MAX {
            return Err(Connection(ErrorCode::FRAME_SIZE, "frame too large"));
        }
        if let Some(block) = &self.inbound.block
            && (header.kind != kind::CONTINUATION || header.stream != block.stream)
        {
            return Err(Connection(ErrorCode::PROTOCOL, "header block interrupted"));
        }
        if !self.inbound.settings_seen && (header.kind != kind::SETTINGS || header.has(flag::ACK)) {
            return Err(Connection(ErrorCode::PROTOCOL, "first frame is not SETTINGS"));
        }
        match header.kind {
            kind::DATA => self.data(now, frame, events),
            kind::HEADERS => self.headers(now, header, frame.payload(), events),
            kind::CONTINUATION => self.continuation(now, header, frame.payload(), events),
            kind::WINDOW_UPDATE => self.window_update(now, header, frame.payload()),
            kind::PING => self.ping(now, header, frame.payload()),
            kind::SETTINGS => self.settings(now, header, frame.payload()),
            kind::RST_STREAM => self.reset_received(now, header, frame.payload(), events),
            kind::PRIORITY => self.priority(now, header, frame.payload()),
            kind::GOAWAY => goaway(header, frame.payload(), events),
            kind::PUSH_PROMISE => Err(Connection(ErrorCode::PROTOCOL, "push from a client")),
            _ => self.idle_frame(now),
        }
    }

    fn idle_frame(&mut self, now: MonoTime) -> Checked {
        if self.flood.idle_frame(now) {
            Ok(())
        } else {
            Err(Connection(ErrorCode::ENHANCE_YOUR_CALM, "too many control frames"))
        }
    }

    /// Whether a stream id was never used.
    fn is_idle(&self, stream: StreamId) -> bool {
        stream > self.last_stream || stream.0.is_multiple_of(2)
    }

    fn data(&mut self, now: MonoTime, frame: &Frame<'_>, events: &mut Vec<Event>) -> Checked {
        let FrameHeader { length, stream: id, .. } = frame.header;
        let end = frame.header.has(flag::END_STREAM);
        if self.is_idle(id) {
            return Err(Connection(ErrorCode::PROTOCOL, "DATA on an idle stream"));
        }
        let (start, size) = unpad(frame.header, frame.payload())?;
        let signed = i64::try_from(length).expect("a frame has 24 bits");
        if signed > self.receive_window {
            return Err(Connection(ErrorCode::FLOW_CONTROL, "connection window exceeded"));
        }
        self.receive_window -= signed;
        let Some(stream) = self.streams.get_mut(&id) else {
            self.returned_to_connection(length);
            return match self.closed.find(id) {
                Some(Ending::ResetByUs) => self.idle_frame(now),
                _ => Err(Fault::Stream(id, ErrorCode::STREAM_CLOSED)),
            };
        };
        let fault = stream.take_data(signed, size, end).err();
        if let Some(code) = fault {
            self.returned_to_connection(length);
            return Err(Fault::Stream(id, code));
        }
        if length > size {
            self.consumed(id, length - size);
        }
        if size > 0 {
            let start = frame.start + start;
            let bytes = frame.whole.slice(start..start + size);
            events.push(Event::Data { stream: id, bytes });
        } else if !end {
            self.idle_frame(now)?;
        }
        if end {
            events.push(Event::End { stream: id });
        }
        Ok(())
    }

    fn headers(
        &mut self,
        now: MonoTime,
        header: FrameHeader,
        payload: &[u8],
        events: &mut Vec<Event>,
    ) -> Checked {
        let id = header.stream;
        if id.0.is_multiple_of(2) {
            return Err(Connection(ErrorCode::PROTOCOL, "HEADERS on a stream of ours"));
        }
        let (start, size) = unpad(header, payload)?;
        let mut block = &payload[start..start + size];
        let mut depends_on_itself = false;
        if header.has(flag::PRIORITY) {
            let Some((priority, rest)) = block.split_first_chunk::<5>() else {
                return Err(Connection(ErrorCode::FRAME_SIZE, "HEADERS without its priority"));
            };
            depends_on_itself = dependency(priority) == id;
            block = rest;
        }
        let head = Block {
            stream: id,
            end_stream: header.has(flag::END_STREAM),
            depends_on_itself,
            bytes: Vec::new(),
            continuations: 0,
        };
        if header.has(flag::END_HEADERS) {
            return self.block(now, &head, block, events);
        }
        self.inbound.block = Some(Block { bytes: block.to_vec(), ..head });
        Ok(())
    }

    fn continuation(
        &mut self,
        now: MonoTime,
        header: FrameHeader,
        payload: &[u8],
        events: &mut Vec<Event>,
    ) -> Checked {
        let Some(mut block) = self.inbound.block.take() else {
            return Err(Connection(ErrorCode::PROTOCOL, "CONTINUATION without HEADERS"));
        };
        block.continuations += 1;
        block.bytes.extend_from_slice(payload);
        if block.continuations > CONTINUATIONS_MAX || block.bytes.len() > HEADER_BLOCK_BYTES_MAX {
            return Err(Connection(ErrorCode::ENHANCE_YOUR_CALM, "header block too large"));
        }
        if header.has(flag::END_HEADERS) {
            let bytes = std::mem::take(&mut block.bytes);
            return self.block(now, &block, &bytes, events);
        }
        self.inbound.block = Some(block);
        Ok(())
    }

    /// A whole header block: a request or trailers. It is decoded in any case, since later blocks
    /// refer to what it leaves in the table.
    fn block(
        &mut self,
        now: MonoTime,
        block: &Block,
        bytes: &[u8],
        events: &mut Vec<Event>,
    ) -> Checked {
        let id = block.stream;
        let before = self.inbound.decoder.changes();
        let is_new = id > self.last_stream;
        if is_new
            && !block.depends_on_itself
            && let Some(head) = self.cache.find(bytes, before)
        {
            let head = head.clone();
            return self.request(now, block, head, events);
        }
        let mut fields = Vec::with_capacity(16);
        let Ok(fits) = self.inbound.decoder.decode(bytes, &mut fields) else {
            return Err(Connection(ErrorCode::COMPRESSION, "invalid header block"));
        };
        if !is_new {
            return self.trailers(block, &fields, events);
        }
        self.last_stream = id;
        if block.depends_on_itself {
            return Err(Fault::Stream(id, ErrorCode::PROTOCOL));
        }
        if !fits {
            for _ in 0..OVERSIZE_HEADERS_IN_RESETS {
                if !self.flood.reset(now) {
                    return Err(Connection(ErrorCode::ENHANCE_YOUR_CALM, "header list too large"));
                }
            }
            return Err(Fault::Stream(id, ErrorCode::ENHANCE_YOUR_CALM));
        }
        let Some(head) = Head::request(fields) else {
            return Err(Fault::Stream(id, ErrorCode::PROTOCOL));
        };
        let head = Rc::new(head);
        if self.inbound.decoder.changes() == before {
            self.cache.remember(bytes, before, &head);
        }
        self.request(now, block, head, events)
    }

    fn request(
        &mut self,
        now: MonoTime,
        block: &Block,
        head: Rc<Head>,
        events: &mut Vec<Event>,
    ) -> Checked {
        let id = block.stream;
        self.last_stream = id;
        let limit = usize::try_from(self.limits.concurrent_streams_max).unwrap_or(usize::MAX);
        if matches!(self.life, Life::Draining { last } if id > last) {
            self.closed.remember(id, Ending::ResetByUs, CLOSED_REMEMBERED_MAX);
            return self.idle_frame(now);
        }
        if self.streams.len() >= limit.min(STREAMS_PER_CONNECTION_MAX) {
            return Err(Fault::Stream(id, ErrorCode::REFUSED_STREAM));
        }
        let end = block.end_stream;
        if end && head.content_length.is_some_and(|length| length > 0) {
            return Err(Fault::Stream(id, ErrorCode::PROTOCOL));
        }
        let window = i64::from(STREAM_WINDOW_BYTES);
        let mut stream = Stream::open(!end, self.peer.initial_window, window);
        stream.content_length = head.content_length;
        self.streams.insert(id, stream);
        events.push(Event::Request { stream: id, head, end });
        Ok(())
    }

    fn trailers(
        &mut self,
        block: &Block,
        fields: &[(Bytes, Bytes)],
        events: &mut Vec<Event>,
    ) -> Checked {
        let id = block.stream;
        let Some(stream) = self.streams.get_mut(&id) else {
            return match self.closed.find(id) {
                Some(Ending::ResetByUs) => Ok(()),
                Some(Ending::Known) => {
                    Err(Connection(ErrorCode::STREAM_CLOSED, "HEADERS on a closed stream"))
                }
                None => Err(Connection(ErrorCode::PROTOCOL, "stream ids must rise")),
            };
        };
        if !stream.remote_open {
            return Err(Fault::Stream(id, ErrorCode::STREAM_CLOSED));
        }
        let pseudo = fields.iter().any(|(name, _)| name.first() == Some(&b':'));
        if !block.end_stream || pseudo || block.depends_on_itself {
            return Err(Fault::Stream(id, ErrorCode::PROTOCOL));
        }
        if let Err(code) = stream.take_data(0, 0, true) {
            return Err(Fault::Stream(id, code));
        }
        events.push(Event::End { stream: id });
        Ok(())
    }

    fn window_update(&mut self, now: MonoTime, header: FrameHeader, payload: &[u8]) -> Checked {
        let Ok(payload) = <[u8; 4]>::try_from(payload) else {
            return Err(Connection(ErrorCode::FRAME_SIZE, "WINDOW_UPDATE has 4 bytes"));
        };
        let increment = i64::from(u32::from_be_bytes(payload) & StreamId::MAX.0);
        self.idle_frame(now)?;
        let id = header.stream;
        if id == StreamId::CONNECTION {
            if increment == 0 {
                return Err(Connection(ErrorCode::PROTOCOL, "window increment of zero"));
            }
            self.send_window += increment;
            if self.send_window > WINDOW_MAX {
                return Err(Connection(ErrorCode::FLOW_CONTROL, "connection window overflow"));
            }
            self.ready.append(&mut self.starved);
            return Ok(());
        }
        if self.is_idle(id) {
            return Err(Connection(ErrorCode::PROTOCOL, "WINDOW_UPDATE on an idle stream"));
        }
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if increment == 0 {
            return Err(Fault::Stream(id, ErrorCode::PROTOCOL));
        }
        stream.send_window += increment;
        if stream.send_window > WINDOW_MAX {
            return Err(Fault::Stream(id, ErrorCode::FLOW_CONTROL));
        }
        self.list(id);
        Ok(())
    }

    fn ping(&mut self, now: MonoTime, header: FrameHeader, payload: &[u8]) -> Checked {
        let Ok(payload) = <[u8; 8]>::try_from(payload) else {
            return Err(Connection(ErrorCode::FRAME_SIZE, "PING has 8 bytes"));
        };
        if header.stream != StreamId::CONNECTION {
            return Err(Connection(ErrorCode::PROTOCOL, "PING on a stream"));
        }
        self.idle_frame(now)?;
        if header.has(flag::ACK) {
            self.pong(payload);
            return Ok(());
        }
        self.output.small(|out| frame::put_ping(out, true, payload));
        if !self.keepalive.pinged(now, !self.streams.is_empty()) {
            return Err(Connection(ErrorCode::ENHANCE_YOUR_CALM, "too_many_pings"));
        }
        Ok(())
    }

    fn settings(&mut self, now: MonoTime, header: FrameHeader, payload: &[u8]) -> Checked {
        if header.stream != StreamId::CONNECTION {
            return Err(Connection(ErrorCode::PROTOCOL, "SETTINGS on a stream"));
        }
        self.idle_frame(now)?;
        if header.has(flag::ACK) {
            return if payload.is_empty() {
                Ok(())
            } else {
                Err(Connection(ErrorCode::FRAME_SIZE, "SETTINGS acknowledgement with payload"))
            };
        }
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(Connection(ErrorCode::FRAME_SIZE, "SETTINGS come in sixes"));
        }
        self.inbound.settings_seen = true;
        let mut window = None;
        for [a, b, c, d, e, f] in settings {
            let value = u32::from_be_bytes([*c, *d, *e, *f]);
            match u16::from_be_bytes([*a, *b]) {
                setting::INITIAL_WINDOW_SIZE if i64::from(value) > WINDOW_MAX => {
                    let text = "INITIAL_WINDOW_SIZE too large";
                    return Err(Connection(ErrorCode::FLOW_CONTROL, text));
                }
                // Only the last of a frame is seen by any stream, and only it costs a walk.
                setting::INITIAL_WINDOW_SIZE => window = Some(i64::from(value)),
                id => self.setting(id, value)?,
            }
        }
        if let Some(window) = window {
            self.initial_window(now, window)?;
        }
        self.output.small(frame::put_settings_ack);
        Ok(())
    }

    fn setting(&mut self, id: u16, value: u32) -> Checked {
        match id {
            setting::ENABLE_PUSH if value > 1 => {
                Err(Connection(ErrorCode::PROTOCOL, "ENABLE_PUSH is 0 or 1"))
            }
            setting::MAX_FRAME_SIZE => {
                if !(0x4000..=0x00ff_ffff).contains(&value) {
                    return Err(Connection(ErrorCode::PROTOCOL, "MAX_FRAME_SIZE out of range"));
                }
                self.peer.frame_bytes_max = usize::try_from(value).unwrap_or(usize::MAX);
                Ok(())
            }
            // Our encoder uses no table, we never push, and we open no streams.
            _ => Ok(()),
        }
    }

    fn initial_window(&mut self, now: MonoTime, window: i64) -> Checked {
        let change = window - std::mem::replace(&mut self.peer.initial_window, window);
        if change == 0 {
            return Ok(());
        }
        for _ in 0..self.streams.len() / WINDOW_CHANGES_PER_IDLE_FRAME {
            self.idle_frame(now)?;
        }
        let mut waiting = Vec::new();
        for (id, stream) in &mut self.streams {
            stream.send_window += change;
            if stream.send_window > WINDOW_MAX {
                return Err(Connection(ErrorCode::FLOW_CONTROL, "stream window overflow"));
            }
            if !stream.queue.is_empty() {
                waiting.push(*id);
            }
        }
        waiting.sort_unstable();
        for id in waiting {
            self.list(id);
        }
        Ok(())
    }

    fn reset_received(
        &mut self,
        now: MonoTime,
        header: FrameHeader,
        payload: &[u8],
        events: &mut Vec<Event>,
    ) -> Checked {
        let Ok(payload) = <[u8; 4]>::try_from(payload) else {
            return Err(Connection(ErrorCode::FRAME_SIZE, "RST_STREAM has 4 bytes"));
        };
        let id = header.stream;
        if self.is_idle(id) {
            return Err(Connection(ErrorCode::PROTOCOL, "RST_STREAM on an idle stream"));
        }
        if !self.streams.contains_key(&id) {
            return self.idle_frame(now);
        }
        self.close(id, Ending::Known);
        let code = ErrorCode(u32::from_be_bytes(payload));
        events.push(Event::Reset { stream: id, code });
        if self.flood.reset(now) {
            Ok(())
        } else {
            Err(Connection(ErrorCode::ENHANCE_YOUR_CALM, "too many resets"))
        }
    }

    fn priority(&mut self, now: MonoTime, header: FrameHeader, payload: &[u8]) -> Checked {
        let id = header.stream;
        if id == StreamId::CONNECTION {
            return Err(Connection(ErrorCode::PROTOCOL, "PRIORITY without a stream"));
        }
        let Ok(payload) = <[u8; 5]>::try_from(payload) else {
            return Err(Connection(ErrorCode::FRAME_SIZE, "PRIORITY has 5 bytes"));
        };
        if dependency(&payload) == id {
            return Err(Connection(ErrorCode::PROTOCOL, "stream depends on itself"));
        }
        self.idle_frame(now)
    }
}

impl Stream {
    /// Counts a DATA frame of `whole` bytes, padding included, of which `size` are payload.
    fn take_data(&mut self, whole: i64, size: usize, end: bool) -> Result<(), ErrorCode> {
        if !self.remote_open {
            return Err(ErrorCode::STREAM_CLOSED);
        }
        if whole > self.receive_window {
            return Err(ErrorCode::FLOW_CONTROL);
        }
        self.receive_window -= whole;
        self.received += u64::try_from(size).expect("a size fits 64 bits");
        if end {
            self.remote_open = false;
        }
        match self.content_length {
            Some(length) if self.received > length => Err(ErrorCode::PROTOCOL),
            Some(length) if end && self.received != length => Err(ErrorCode::PROTOCOL),
            _ => Ok(()),
        }
    }
}

/// Where the payload of a padded frame begins, and its size.
fn unpad(header: FrameHeader, payload: &[u8]) -> Result<(usize, usize), Fault> {
    if !header.has(flag::PADDED) {
        return Ok((0, payload.len()));
    }
    let wrong = Connection(ErrorCode::PROTOCOL, "padding longer than the frame");
    let Some((padding, rest)) = payload.split_first() else {
        return Err(Connection(ErrorCode::FRAME_SIZE, "padded frame without its length"));
    };
    match rest.len().checked_sub(usize::from(*padding)) {
        Some(size) => Ok((1, size)),
        None => Err(wrong),
    }
}

/// The stream a priority depends on.
fn dependency(priority: &[u8; 5]) -> StreamId {
    let [a, b, c, d, _] = *priority;
    StreamId(u32::from_be_bytes([a, b, c, d]) & StreamId::MAX.0)
}

fn goaway(header: FrameHeader, payload: &[u8], events: &mut Vec<Event>) -> Checked {
    if header.stream != StreamId::CONNECTION {
        return Err(Connection(ErrorCode::PROTOCOL, "GOAWAY on a stream"));
    }
    match payload {
        [_, _, _, _, a, b, c, d, ..] => {
            events.push(Event::Goaway { code: ErrorCode(u32::from_be_bytes([*a, *b, *c, *d])) });
            Ok(())
        }
        _ => Err(Connection(ErrorCode::FRAME_SIZE, "GOAWAY has at least 8 bytes")),
    }
}

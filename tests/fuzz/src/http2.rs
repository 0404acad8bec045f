//! One connection's HTTP/2, all of the server's side: bytes of chance, in pieces of chance, and
//! between them what a server does.
//!
//! ```text
//! input: | how (1) | …
//!        how even: the bytes of a client; bit 1: behind a whole beginning; the rest: cuts
//!        how odd:  a script of `act` and what each takes
//! ```
//!
//! - F1 The same bytes give the same events and the same output, however they were split.
//! - F2 Requests have rising odd ids; data and the end of a stream come between its request and
//!   its end; after the end of the connection comes nothing.
//! - F3 What is sent is whole frames within the client's frame size, and no more data than the
//!   client's windows ever allowed.
//! - F4 What waits is no more than what was handed in and the answers to control frames.

mod client;
mod seeds;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use ringbolt_io::MonoTime;
use ringbolt_server::http2::frame::{PREFACE, kind};
use ringbolt_server::http2::{ErrorCode, Event, Http2, Limits, StreamId};

pub use self::seeds::{seeds, words};

use self::client::{Client, frame};
use crate::hpack;
use crate::script::Script;

/// A whole beginning: the preface and empty SETTINGS.
#[must_use]
pub fn beginning() -> Vec<u8> {
    [&PREFACE[..], &frame(kind::SETTINGS, 0, 0, &[])].concat()
}

/// Takes one input.
pub fn run(input: &[u8]) {
    let mut script = Script::new(input);
    let how = script.byte();
    if how & 1 == 0 {
        splits(how, script.rest());
    } else {
        life(script);
    }
}

fn splits(how: u8, bytes: &[u8]) {
    let mut all = if how & 2 == 0 { vec![] } else { beginning() };
    all.extend(bytes);
    let mut whole = Connection::new();
    whole.receive(&all);
    let mut pieces = Connection::new();
    let mut cut = usize::from(how >> 2) + 1;
    let mut rest = &all[..];
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(cut.min(rest.len()));
        pieces.receive(piece);
        rest = later;
        cut = (cut * 7 + 3) % 61 + 1;
    }
    assert_eq!(whole.seen, pieces.seen, "F1");
    assert_eq!(whole.output(), pieces.output(), "F1");
}

/// A connection and what is known of it.
struct Connection {
    http: Http2,
    now: MonoTime,
    seen: Vec<Event>,
    client: Client,
    /// Streams that have a request and were not reset, with what of their data is not consumed.
    open: BTreeMap<StreamId, Open>,
    last: StreamId,
    /// Payload that was handed in to be sent.
    handed: usize,
}

#[derive(Default)]
struct Open {
    /// The client has sent all.
    ended: bool,
    /// The server has: what it sent last may still wait for a window.
    answered: bool,
    unconsumed: usize,
}

impl Connection {
    fn new() -> Connection {
        let now = MonoTime(1_000_000_000);
        Connection {
            http: Http2::new(Limits::default(), now),
            now,
            seen: vec![],
            client: Client::default(),
            open: BTreeMap::new(),
            last: StreamId::CONNECTION,
            handed: 0,
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        let was_finished = self.http.ended_by().is_some();
        self.client.sends(bytes);
        let mut events = vec![];
        self.http.receive(self.now, &Bytes::copy_from_slice(bytes), &mut events);
        assert!(!was_finished || events.is_empty(), "F2: after the end: {events:?}");
        for event in &events {
            self.check(event);
        }
        self.seen.extend(events);
        if self.http.ended_by().is_some() {
            self.open.clear();
        }
        // Each byte of a client is answered by less than three: a PING of 17 bytes by one.
        let answers = 3 * self.client.sent_bytes() + 4096;
        let held = self.http.held_bytes();
        assert!(held <= self.handed + answers, "F4: {held} of {} and {answers}", self.handed);
    }

    fn check(&mut self, event: &Event) {
        match event {
            Event::Request { stream, end, .. } => {
                assert!(*stream > self.last && stream.0 % 2 == 1, "F2: {event:?}");
                self.last = *stream;
                self.open.insert(*stream, Open { ended: *end, ..Open::default() });
            }
            Event::Data { stream, bytes } => {
                assert!(!bytes.is_empty(), "F2: {event:?}");
                let open = self.open.get_mut(stream).expect("F2: data of a stream without request");
                assert!(!open.ended, "F2: {event:?}");
                open.unconsumed += bytes.len();
            }
            Event::End { stream } => {
                let open = self.open.get_mut(stream).expect("F2: end of a stream without request");
                assert!(!std::mem::replace(&mut open.ended, true), "F2: {event:?}");
            }
            Event::Reset { stream, .. } => {
                let open = self.open.remove(stream).expect("F2: reset of no stream");
                self.http.consumed(*stream, open.unconsumed);
            }
            Event::Goaway { .. } => {}
        }
    }

    /// Everything there is to send now, checked.
    fn output(&mut self) -> Vec<u8> {
        let mut all = vec![];
        while self.http.has_output() {
            let (mut pieces, mut room) = (vec![], vec![]);
            self.http.poll_output(&mut pieces, &mut room);
            if pieces.is_empty() {
                break;
            }
            let bytes = pieces.concat();
            self.client.hears(&bytes);
            all.extend(bytes);
        }
        self.client.heard_whole();
        all
    }

    /// One of the streams that are not answered.
    fn choose(&self, number: u8) -> Option<StreamId> {
        let mut asked = self.open.iter().filter(|(_, open)| !open.answered);
        let count = asked.clone().count().max(1);
        asked.nth(usize::from(number) % count).map(|(stream, _)| *stream)
    }

    fn send(&mut self, stream: StreamId, head: &[u8], size: usize, end: bool) {
        let bytes = Bytes::from(vec![0xa5; size]);
        if self.http.send_data(stream, head, bytes, end).is_ok() {
            self.handed += head.len() + size;
        }
    }

    fn done(&mut self, stream: StreamId) {
        let open = self.open.get_mut(&stream).expect("it was chosen");
        open.answered = true;
        self.http.consumed(stream, std::mem::take(&mut open.unconsumed));
    }
}

fn life(mut script: Script<'_>) {
    let mut connection = Connection::new();
    connection.receive(&beginning());
    let mut next = 1;
    while !script.is_over() && connection.http.ended_by().is_none() {
        act(&mut connection, &mut script, &mut next);
    }
    connection.output();
}

fn act(connection: &mut Connection, script: &mut Script<'_>, next: &mut u32) {
    match script.byte() % 16 {
        0 => connection.receive(script.piece()),
        1 => {
            let (kind, flags, stream) = (script.byte() % 12, script.byte(), script.byte());
            connection.receive(&frame(kind, flags, u32::from(stream), script.piece()));
        }
        2 | 3 => {
            let flags = 4 | script.byte() & 1;
            let block = hpack::request("/etcdserverpb.KV/Put");
            connection.receive(&frame(kind::HEADERS, flags, *next, &block));
            *next += 2;
        }
        4 | 5 => {
            let stream = connection.choose(script.byte()).unwrap_or(StreamId(1));
            let flags = script.byte() & 1;
            let payload = vec![7; usize::from(script.short()) % 16_385];
            connection.receive(&frame(kind::DATA, flags, stream.0, &payload));
        }
        6 => {
            let stream = u32::from(script.byte());
            connection.receive(&frame(
                kind::WINDOW_UPDATE,
                0,
                stream,
                &script.word().to_be_bytes(),
            ));
        }
        7 => {
            let mut setting = vec![0, script.byte() % 7];
            setting.extend(script.word().to_be_bytes());
            connection.receive(&frame(kind::SETTINGS, 0, 0, &setting));
        }
        other => serve(connection, script, other),
    }
}

/// What a server does.
fn serve(connection: &mut Connection, script: &mut Script<'_>, what: u8) {
    if what == 8 {
        connection.now = MonoTime(connection.now.0 + u64::from(script.short()) * 100_000_000);
        connection.http.tick(connection.now);
        return;
    }
    if what == 9 {
        return connection.http.shut_down();
    }
    if what == 10 {
        connection.output();
        return;
    }
    let Some(stream) = connection.choose(script.byte()) else { return };
    match what {
        11 => {
            let size = usize::from(script.short()).min(20_000);
            let block = Bytes::from(vec![0x88; size.max(1)]);
            if connection.http.send_block(stream, block, false).is_ok() {
                connection.handed += size + 64;
            }
        }
        12 | 13 => {
            let size = usize::from(script.short());
            let end = script.byte() & 3 == 3;
            connection.send(stream, &[0; 5], size, end);
            if end {
                connection.done(stream);
            }
        }
        14 => {
            let size = usize::from(script.short());
            let open = connection.open.get_mut(&stream).expect("it was chosen");
            let size = size.min(open.unconsumed);
            open.unconsumed -= size;
            connection.http.consumed(stream, size);
            let _ = connection.http.has_room(stream, size);
        }
        _ => {
            connection.http.reset(stream, ErrorCode::CANCEL);
            connection.done(stream);
        }
    }
}

/// Time that a connection may be silent, for the seeds.
pub(crate) const SILENCE: Duration = Duration::from_secs(6500);

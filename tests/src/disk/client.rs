//! A client that keeps several calls in flight on one connection.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use prost::Message;

use crate::hostile::wire::{End, Wire, flag, kind};

/// Flow control of a connection before the server widens it. Source: RFC 9113 6.9.2.
const WINDOW_BYTES: i64 = 65_535;
/// How long a call may wait for room in the connection's window.
const ROOM_TIME: Duration = Duration::from_secs(5);

/// What came of a call.
#[derive(Debug)]
pub enum Answer {
    /// A message.
    Message(u32, Vec<u8>),
    /// Its end: `0` or a status and its text.
    End(u32, String),
}

/// A connection.
pub struct Client {
    wire: Wire,
    next: u32,
    window: i64,
    bodies: HashMap<u32, Vec<u8>>,
    /// What came while room was waited for.
    early: Vec<Answer>,
}

impl Client {
    /// Over TCP.
    ///
    /// # Errors
    /// The system's.
    pub fn over_tcp(address: &str) -> Result<Client, String> {
        Client::over(Wire::dial_tcp(address)?)
    }

    /// Over a Unix socket.
    ///
    /// # Errors
    /// The system's.
    pub fn over_socket(path: &Path) -> Result<Client, String> {
        Client::over(Wire::dial(path)?)
    }

    fn over(mut wire: Wire) -> Result<Client, String> {
        wire.greet(&[(4, 0x7fff_ffff)]);
        wire.frame(kind::WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes());
        wire.flush()?;
        let (bodies, early) = (HashMap::new(), Vec::new());
        Ok(Client { wire, next: 1, window: WINDOW_BYTES, bodies, early })
    }

    /// Makes a call with one message; gives its stream. One that stays open may be sent more.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send(
        &mut self,
        method: &str,
        message: &impl Message,
        ends: bool,
    ) -> Result<u32, String> {
        let stream = self.next;
        self.next += 2;
        let message = message.encode_to_vec();
        self.window -= i64::try_from(message.len() + 5).unwrap_or(i64::MAX);
        let until = Instant::now() + ROOM_TIME;
        while self.window < 0 {
            if Instant::now() > until {
                return Err("the connection's window stays shut".to_owned());
            }
            if let Some(answer) = self.take(ROOM_TIME)? {
                self.early.push(answer);
            }
        }
        self.wire.call(stream, method, &[]);
        self.wire.message(stream, &message, ends);
        self.wire.flush()?;
        Ok(stream)
    }

    /// What comes next within `time`.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn answer(&mut self, time: Duration) -> Result<Option<Answer>, String> {
        if !self.early.is_empty() {
            return Ok(Some(self.early.remove(0)));
        }
        let until = Instant::now() + time;
        loop {
            if let Some(answer) = self.take(until.saturating_duration_since(Instant::now()))? {
                return Ok(Some(answer));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
        }
    }

    /// Makes a call and waits for its answer.
    ///
    /// # Errors
    /// Its status, or the connection has ended, or it took too long.
    pub fn ask<T: Message + Default>(
        &mut self,
        method: &str,
        message: &impl Message,
        time: Duration,
    ) -> Result<T, String> {
        let (stream, until) = (self.send(method, message, true)?, Instant::now() + time);
        let mut body = Vec::new();
        loop {
            match self.answer(until.saturating_duration_since(Instant::now()))? {
                Some(Answer::Message(of, message)) if of == stream => body = message,
                Some(Answer::End(of, status)) if of == stream && status == "0" => {
                    return T::decode(&body[..]).map_err(|error| error.to_string());
                }
                Some(Answer::End(of, status)) if of == stream => return Err(status),
                Some(_) => {}
                None => return Err(format!("{method} is not answered in {time:?}")),
            }
        }
    }

    /// One frame, if it came; what it completes.
    fn take(&mut self, time: Duration) -> Result<Option<Answer>, String> {
        if let Some(answer) = self.complete(None) {
            return Ok(Some(answer));
        }
        let frame = match self.wire.next(time) {
            Ok(frame) => frame,
            Err(End::Open) => return Ok(None),
            Err(end) => return Err(format!("{end:?}")),
        };
        let stream = frame.stream;
        match frame.kind {
            kind::DATA => {
                self.bodies.entry(stream).or_default().extend(&frame.payload);
                Ok(self.complete(Some(stream)))
            }
            kind::HEADERS if frame.flags & flag::END_STREAM != 0 => {
                self.bodies.remove(&stream);
                let field = |name: &str| frame.field(name).unwrap_or_default();
                let status = format!("{} {}", field("grpc-status"), field("grpc-message"));
                Ok(Some(Answer::End(stream, status.trim().to_owned())))
            }
            kind::RST_STREAM => {
                self.bodies.remove(&stream);
                Ok(Some(Answer::End(stream, format!("reset {}", frame.number(0)))))
            }
            kind::WINDOW_UPDATE if stream == 0 => {
                self.window += i64::from(frame.number(0));
                Ok(None)
            }
            kind::GOAWAY => Err(format!("goaway {}", frame.number(4))),
            _ => Ok(None),
        }
    }

    /// The next whole message, of one stream or of any.
    fn complete(&mut self, of: Option<u32>) -> Option<Answer> {
        let streams: Vec<u32> = match of {
            Some(stream) => vec![stream],
            None => self.bodies.keys().copied().collect(),
        };
        for stream in streams {
            let body = self.bodies.get_mut(&stream)?;
            let Some([_, a, b, c, d]) = body.first_chunk::<5>().copied() else { continue };
            let size = usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?;
            if body.len() >= 5 + size {
                let message = body[5..5 + size].to_vec();
                body.drain(..5 + size);
                return Some(Answer::Message(stream, message));
            }
        }
        None
    }
}

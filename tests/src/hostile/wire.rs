//! HTTP/2 by hand over a blocking socket: enough to send what no client library would.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::server::Server;

/// What HTTP/2 begins with.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Frame types.
pub mod kind {
    #![allow(missing_docs, reason = "the names are those of RFC 9113")]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}
/// Frame flags.
pub mod flag {
    #![allow(missing_docs, reason = "the names are those of RFC 9113")]
    pub const ACK: u8 = 1;
    pub const END_STREAM: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
}
/// `ENHANCE_YOUR_CALM`
pub const CALM: u32 = 11;
const READ_TIME: Duration = Duration::from_secs(10);

/// A frame that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream.
    pub stream: u32,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The big-endian number at an offset of the payload; 0 where there is none.
    #[must_use]
    pub fn number(&self, at: usize) -> u32 {
        let bytes = self.payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_be_bytes)
    }

    /// The value of a field in a header block that holds it in plain.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<String> {
        let at = self.payload.windows(name.len()).position(|part| part == name.as_bytes())?;
        let rest = &self.payload[at + name.len()..];
        let size = usize::from(rest.first()? & 0x7f);
        Some(String::from_utf8_lossy(rest.get(1..=size)?).into_owned())
    }
}

/// How the server ended a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// GOAWAY with this code and text.
    Goaway(u32, String),
    /// Without a word.
    Closed,
    /// It did not, in the time it had.
    Open,
}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A connection.
pub struct Wire {
    socket: Socket,
    received: Vec<u8>,
    /// What `flush` sends.
    pub out: Vec<u8>,
}

impl Wire {
    /// Connects to the Unix socket and says nothing.
    ///
    /// # Errors
    /// The system's.
    pub fn connect(server: &Server) -> Result<Wire, String> {
        Wire::dial(&server.socket())
    }

    /// As `connect`, by the path of the socket.
    ///
    /// # Errors
    /// The system's.
    pub fn dial(path: &Path) -> Result<Wire, String> {
        let socket = UnixStream::connect(path).map_err(|error| error.to_string())?;
        Wire::over(Socket::Unix(socket))
    }

    /// As `connect`, over TCP.
    ///
    /// # Errors
    /// The system's.
    pub fn connect_tcp(server: &Server) -> Result<Wire, String> {
        Wire::dial_tcp(&server.address)
    }

    /// As `connect_tcp`, by the address.
    ///
    /// # Errors
    /// The system's.
    pub fn dial_tcp(address: &str) -> Result<Wire, String> {
        let socket = TcpStream::connect(address).map_err(|error| error.to_string())?;
        Wire::over(Socket::Tcp(socket))
    }

    /// A connection that has said hello.
    ///
    /// # Errors
    /// The system's.
    pub fn hello(server: &Server) -> Result<Wire, String> {
        let mut wire = Wire::connect(server)?;
        wire.greet(&[]);
        wire.flush()?;
        Ok(wire)
    }

    fn over(socket: Socket) -> Result<Wire, String> {
        let set = match &socket {
            Socket::Unix(socket) => socket
                .set_read_timeout(Some(READ_TIME))
                .and_then(|()| socket.set_write_timeout(Some(READ_TIME))),
            Socket::Tcp(socket) => socket
                .set_read_timeout(Some(READ_TIME))
                .and_then(|()| socket.set_write_timeout(Some(READ_TIME))),
        };
        set.map_err(|error| error.to_string())?;
        Ok(Wire { socket, received: Vec::new(), out: Vec::new() })
    }

    /// Gives up a write after `time`.
    ///
    /// # Errors
    /// The system's.
    pub fn write_time(&mut self, time: Duration) -> Result<(), String> {
        let set = match &self.socket {
            Socket::Unix(socket) => socket.set_write_timeout(Some(time)),
            Socket::Tcp(socket) => socket.set_write_timeout(Some(time)),
        };
        set.map_err(|error| error.to_string())
    }

    /// A connection whose windows never close.
    ///
    /// # Errors
    /// The system's.
    pub fn wide(server: &Server) -> Result<Wire, String> {
        let mut wire = Wire::connect(server)?;
        wire.greet(&[(4, 0x7fff_ffff)]);
        wire.frame(kind::WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes());
        wire.flush()?;
        Ok(wire)
    }

    /// Preface and SETTINGS.
    pub fn greet(&mut self, settings: &[(u16, u32)]) {
        self.out.extend(PREFACE);
        self.settings(settings);
    }

    /// SETTINGS.
    pub fn settings(&mut self, settings: &[(u16, u32)]) {
        let mut payload = Vec::new();
        for (id, value) in settings {
            payload.extend(id.to_be_bytes());
            payload.extend(value.to_be_bytes());
        }
        self.frame(kind::SETTINGS, 0, 0, &payload);
    }

    /// Any frame.
    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
        self.out.extend(&length[1..]);
        self.out.extend([kind, flags]);
        self.out.extend(stream.to_be_bytes());
        self.out.extend(payload);
    }

    /// The headers of a gRPC call.
    pub fn call(&mut self, stream: u32, method: &str, fields: &[(&str, &[u8])]) {
        let block = block(method, fields);
        self.frame(kind::HEADERS, flag::END_HEADERS, stream, &block);
    }

    /// A message of a call, in as many frames as it needs.
    pub fn message(&mut self, stream: u32, message: &[u8], end: bool) {
        let size = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
        let all = [&[0][..], &size, message].concat();
        let count = all.chunks(16_384).count();
        for (index, chunk) in all.chunks(16_384).enumerate() {
            let last = end && index + 1 == count;
            self.frame(kind::DATA, if last { flag::END_STREAM } else { 0 }, stream, chunk);
        }
    }

    /// Sends what was written.
    ///
    /// # Errors
    /// The system's: the server has closed, or does not read.
    pub fn flush(&mut self) -> Result<(), String> {
        let out = std::mem::take(&mut self.out);
        let sent = match &mut self.socket {
            Socket::Unix(socket) => socket.write_all(&out),
            Socket::Tcp(socket) => socket.write_all(&out),
        };
        sent.map_err(|error| error.to_string())
    }

    /// The next bytes; `None` at the end or after `time`.
    pub fn read_some(&mut self, time: Duration) -> Result<Option<Vec<u8>>, ErrorKind> {
        let mut buffer = vec![0; 64 * 1024];
        let time = Some(time.max(Duration::from_millis(1)));
        let outcome = match &mut self.socket {
            Socket::Unix(socket) => {
                socket.set_read_timeout(time).and_then(|()| socket.read(&mut buffer))
            }
            Socket::Tcp(socket) => {
                socket.set_read_timeout(time).and_then(|()| socket.read(&mut buffer))
            }
        };
        match outcome {
            Ok(0) => Ok(None),
            Ok(size) => {
                buffer.truncate(size);
                Ok(Some(buffer))
            }
            Err(error) => Err(error.kind()),
        }
    }

    /// The next frame that came within `time`.
    pub fn next(&mut self, time: Duration) -> Result<Frame, End> {
        let until = Instant::now() + time;
        loop {
            if let Some(frame) = self.take_frame() {
                return Ok(frame);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(End::Open);
            }
            match self.read_some(left) {
                Ok(Some(bytes)) => self.received.extend(bytes),
                Ok(None) => return Err(End::Closed),
                Err(ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Err(End::Open),
                Err(_) => return Err(End::Closed),
            }
        }
    }

    fn take_frame(&mut self) -> Option<Frame> {
        let [a, b, c, kind, flags, d, e, f, g] = *self.received.first_chunk::<9>()?;
        let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).ok()?;
        let payload = self.received.get(9..9 + length)?.to_vec();
        self.received.drain(..9 + length);
        Some(Frame { kind, flags, stream: u32::from_be_bytes([d, e, f, g]), payload })
    }

    /// Reads until the server ends the connection.
    pub fn end(&mut self, time: Duration) -> End {
        let until = Instant::now() + time;
        let mut end = End::Open;
        loop {
            match self.next(until.saturating_duration_since(Instant::now())) {
                Ok(frame) if frame.kind == kind::GOAWAY => {
                    let text = String::from_utf8_lossy(&frame.payload[8..]).into_owned();
                    end = End::Goaway(frame.number(4), text);
                }
                Ok(_) => {}
                Err(End::Closed) if end == End::Open => return End::Closed,
                Err(_) => return end,
            }
        }
    }

    /// Sends what was written and reads until a call has ended: its status and text, or the code
    /// of its reset.
    ///
    /// # Errors
    /// The connection ended first.
    pub fn outcome(&mut self, stream: u32) -> Result<String, String> {
        self.flush()?;
        loop {
            let frame = self.next(READ_TIME).map_err(|end| format!("{end:?}"))?;
            if frame.kind == kind::GOAWAY {
                return Err(format!("{:?}", End::Goaway(frame.number(4), String::new())));
            }
            if frame.stream != stream {
                continue;
            }
            if frame.kind == kind::RST_STREAM {
                return Ok(format!("reset {}", frame.number(0)));
            }
            if frame.kind == kind::HEADERS && frame.flags & flag::END_STREAM != 0 {
                let field = |name: &str| frame.field(name).unwrap_or_default();
                return Ok(format!("{} {}", field("grpc-status"), field("grpc-message")));
            }
        }
    }
}

/// The header block of a gRPC call, everything but the first two fields in plain.
#[must_use]
pub fn block(method: &str, fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    let path = format!("/{method}");
    put_field(&mut block, ":path", path.as_bytes());
    put_field(&mut block, ":authority", b"localhost");
    put_field(&mut block, "content-type", b"application/grpc");
    put_field(&mut block, "te", b"trailers");
    for (name, value) in fields {
        put_field(&mut block, name, value);
    }
    block
}

/// A literal field that no table remembers.
pub fn put_field(block: &mut Vec<u8>, name: &str, value: &[u8]) {
    block.push(0);
    put_text(block, name.as_bytes());
    put_text(block, value);
}

/// A text of HPACK in plain.
pub fn put_text(block: &mut Vec<u8>, text: &[u8]) {
    let mut size = text.len();
    if size < 127 {
        block.push(u8::try_from(size).unwrap_or(0));
    } else {
        block.push(127);
        size -= 127;
        while size >= 128 {
            block.push(u8::try_from(size % 128).unwrap_or(0) | 128);
            size /= 128;
        }
        block.push(u8::try_from(size).unwrap_or(0));
    }
    block.extend(text);
}

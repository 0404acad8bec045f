//! Just enough HTTP/2 to ask an etcd server quickly: one header block for all calls of a kind, wide
//! open receive windows, no HPACK state. About a microsecond of client time per call.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use crate::limits::{ANSWER_S_MAX, READ_BYTES};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
const FRAME_HEAD: usize = 9;
/// Bytes before each message.
const PREFIX: usize = 5;
/// Received bytes after which windows are given back.
const RETURN_BYTES: u32 = 64 << 20;
/// The largest frame every peer must take.
const FRAME_BYTES_MAX: usize = 16384;

/// Where a server listens.
#[derive(Clone, Debug)]
pub enum Target {
    /// TCP.
    Tcp(String),
    /// A Unix socket file.
    Unix(PathBuf),
}

impl Target {
    /// Reads `unix://path` or `host:port`, with or without `http://`.
    pub fn parse(text: &str) -> Target {
        match text.strip_prefix("unix://") {
            Some(path) => Target::Unix(PathBuf::from(path)),
            None => Target::Tcp(text.trim_start_matches("http://").to_owned()),
        }
    }
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn as_read(&mut self) -> &mut dyn Read {
        match self {
            Socket::Tcp(socket) => socket,
            Socket::Unix(socket) => socket,
        }
    }

    fn as_write(&mut self) -> &mut dyn Write {
        match self {
            Socket::Tcp(socket) => socket,
            Socket::Unix(socket) => socket,
        }
    }
}

/// One answered call.
pub struct Answer {
    /// The stream it ran on.
    pub stream: u32,
    /// The message, without its five bytes of prefix; empty when the call failed.
    pub message: Vec<u8>,
    /// Why the call failed, as far as that can be read without HPACK tables.
    pub complaint: Option<String>,
}

/// What is kept of the messages that come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// The one message of a call, given when the call ends.
    Whole,
    /// Every message is an answer at once, not only the last of a call.
    Each,
    /// The first bytes, to tell an answer from none: for answers larger than one wants to hold.
    Little,
}

/// What has come of a stream's messages.
struct Body {
    stream: u32,
    bytes: Vec<u8>,
    /// Bytes of the only message's prefix that are still to come.
    prefix_left: usize,
}

/// One connection. Calls run on odd streams, upwards.
pub struct Connection {
    socket: Socket,
    next_stream: u32,
    out: Vec<u8>,
    /// Received bytes are its first `filled` ones; it never shrinks, so that a read zeroes nothing.
    input: Vec<u8>,
    filled: usize,
    bodies: Vec<Body>,
    send_window: i64,
    /// Received bytes the server has not been given back yet.
    unreturned: u32,
    keep: Keep,
}

impl Connection {
    /// Connects, blocking, with Nagle off.
    pub fn open(target: &Target) -> io::Result<Connection> {
        let wait = Some(Duration::from_secs(ANSWER_S_MAX));
        let socket = match target {
            Target::Tcp(address) => {
                let socket = TcpStream::connect(address)?;
                socket.set_nodelay(true)?;
                socket.set_read_timeout(wait)?;
                Socket::Tcp(socket)
            }
            Target::Unix(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_read_timeout(wait)?;
                Socket::Unix(socket)
            }
        };
        Ok(Connection::over(socket))
    }

    /// Connects over TCP from one of this machine's addresses.
    pub fn open_from(source: Ipv4Addr, address: &str) -> io::Result<Connection> {
        let address: SocketAddrV4 = address.parse().map_err(io::Error::other)?;
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        bind(&socket, &SocketAddrV4::new(source, 0))?;
        connect(&socket, &address)?;
        let socket = TcpStream::from(socket);
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(ANSWER_S_MAX)))?;
        Ok(Connection::over(Socket::Tcp(socket)))
    }

    /// Lets go of everything but the socket, which stays connected.
    pub fn into_fd(self) -> OwnedFd {
        match self.socket {
            Socket::Tcp(socket) => socket.into(),
            Socket::Unix(socket) => socket.into(),
        }
    }

    fn over(socket: Socket) -> Connection {
        let mut out = PREFACE.to_vec();
        // SETTINGS_INITIAL_WINDOW_SIZE and the connection's window: as wide as they can be.
        frame(&mut out, SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
        frame(&mut out, WINDOW_UPDATE, 0, 0, &0x7fff_0000u32.to_be_bytes());
        let (input, bodies) = (vec![0; READ_BYTES], Vec::new());
        Connection {
            socket,
            next_stream: 1,
            out,
            input,
            filled: 0,
            bodies,
            send_window: 65535,
            unreturned: 0,
            keep: Keep::Whole,
        }
    }

    /// From now on each message of a call is an answer of its own: for streams that do not end.
    pub fn answer_each_message(&mut self) {
        self.keep = Keep::Each;
    }

    /// From now on answers are counted, not kept: their messages are cut short.
    pub fn cut_answers(&mut self) {
        self.keep = Keep::Little;
    }

    /// Sends one more message on a call opened by [`Connection::open_stream`].
    pub fn send_message(&mut self, stream: u32, message: &[u8]) {
        let body = prefixed(message);
        self.send_window -= i64::try_from(body.len()).expect("a body fits");
        frame(&mut self.out, DATA, 0, stream, &body);
    }

    /// Opens a call whose messages come later.
    pub fn open_stream(&mut self, head: &[u8]) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        frame(&mut self.out, HEADERS, END_HEADERS, stream, head);
        stream
    }

    /// Queues a call; the answer will name the stream it gives.
    pub fn call(&mut self, head: &[u8], message: &[u8]) -> u32 {
        let stream = self.open_stream(head);
        let body = prefixed(message);
        let last = body.len().div_ceil(FRAME_BYTES_MAX) - 1;
        for (index, part) in body.chunks(FRAME_BYTES_MAX).enumerate() {
            frame(&mut self.out, DATA, if index == last { END_STREAM } else { 0 }, stream, part);
        }
        self.send_window -= i64::try_from(body.len()).expect("a body fits");
        stream
    }

    /// Whether the server has room for `bytes` more without a window update.
    pub fn has_window(&self, bytes: usize) -> bool {
        self.send_window > i64::try_from(bytes).unwrap_or(i64::MAX)
    }

    /// Writes everything that is queued.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        let out = std::mem::take(&mut self.out);
        let result = self.socket.as_write().write_all(&out);
        self.out = out;
        self.out.clear();
        result
    }

    /// Reads once, blocking, and gives the calls that ended with it.
    pub fn receive(&mut self, answers: &mut Vec<Answer>) -> io::Result<()> {
        self.receive_at_most(usize::MAX, answers).map(|_| ())
    }

    /// Reads at most `bytes` bytes once, blocking, gives the calls that ended with them and says
    /// how many there were.
    pub fn receive_at_most(
        &mut self,
        bytes: usize,
        answers: &mut Vec<Answer>,
    ) -> io::Result<usize> {
        if self.filled == self.input.len() {
            self.input.resize(self.filled * 2, 0);
        }
        let end = self.filled.saturating_add(bytes).min(self.input.len());
        let count = self.socket.as_read().read(&mut self.input[self.filled..end])?;
        self.filled += count;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server hung up"));
        }
        let input = std::mem::take(&mut self.input);
        let taken = self.take_frames(&input[..self.filled], answers);
        self.input = input;
        let taken = taken?;
        self.input.copy_within(taken..self.filled, 0);
        self.filled -= taken;
        Ok(count)
    }

    /// Takes the whole frames of `input` and says how long they are.
    fn take_frames(&mut self, input: &[u8], answers: &mut Vec<Answer>) -> io::Result<usize> {
        let mut at = 0;
        while let Some((head, rest)) = input[at..].split_first_chunk::<FRAME_HEAD>() {
            let size =
                usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            let Some(payload) = rest.get(..size) else { break };
            self.take(head, payload, answers)?;
            at += FRAME_HEAD + size;
        }
        Ok(at)
    }

    fn take(
        &mut self,
        head: &[u8; FRAME_HEAD],
        payload: &[u8],
        answers: &mut Vec<Answer>,
    ) -> io::Result<()> {
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        match kind {
            DATA => {
                let place = self.bodies.iter().position(|body| body.stream == stream);
                let place = place.unwrap_or_else(|| {
                    self.bodies.push(Body { stream, bytes: Vec::new(), prefix_left: PREFIX });
                    self.bodies.len() - 1
                });
                let body = &mut self.bodies[place];
                match self.keep {
                    Keep::Whole => body.add(payload),
                    Keep::Each => body.split(payload, answers),
                    Keep::Little if body.bytes.is_empty() => {
                        body.bytes.extend_from_slice(&payload[..payload.len().min(2 * PREFIX)]);
                    }
                    Keep::Little => {}
                }
                self.give_back(u32::try_from(payload.len()).expect("a frame has 24 bits"));
            }
            RST_STREAM => {
                let code = payload.try_into().map_or(0, u32::from_be_bytes);
                let complaint = format!("the stream was reset with code {code}");
                self.end(stream, Some(complaint), answers);
            }
            SETTINGS if flags & ACK == 0 => frame(&mut self.out, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => frame(&mut self.out, PING, ACK, 0, payload),
            WINDOW_UPDATE if stream == 0 => {
                let grown = payload.try_into().map_or(0, u32::from_be_bytes);
                self.send_window += i64::from(grown);
            }
            GOAWAY => return Err(io::Error::other("the server says goodbye")),
            _ => {}
        }
        if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            let trailers = if kind == HEADERS { payload } else { &[] };
            self.end(stream, complaint(trailers), answers);
        }
        Ok(())
    }

    /// The connection's window is kept wide open, whatever came through it.
    fn give_back(&mut self, bytes: u32) {
        self.unreturned += bytes;
        if self.unreturned >= RETURN_BYTES {
            let bytes = std::mem::take(&mut self.unreturned);
            frame(&mut self.out, WINDOW_UPDATE, 0, 0, &bytes.to_be_bytes());
            if self.keep == Keep::Each {
                for body in &self.bodies {
                    frame(&mut self.out, WINDOW_UPDATE, 0, body.stream, &bytes.to_be_bytes());
                }
            }
        }
    }

    fn end(&mut self, stream: u32, complaint: Option<String>, answers: &mut Vec<Answer>) {
        let place = self.bodies.iter().position(|body| body.stream == stream);
        let body = place.map(|place| self.bodies.swap_remove(place).bytes);
        answers.push(Answer { stream, message: body.unwrap_or_default(), complaint });
    }

    /// One call and its answer.
    pub fn ask(&mut self, head: &[u8], message: &[u8]) -> io::Result<Vec<u8>> {
        let stream = self.call(head, message);
        self.flush()?;
        let mut answers = Vec::new();
        loop {
            self.receive(&mut answers)?;
            self.flush()?;
            if let Some(answer) = answers.iter().position(|answer| answer.stream == stream) {
                return Ok(answers.swap_remove(answer).message);
            }
        }
    }
}

impl Body {
    /// Adds to the one message of a call. Its prefix stays out, and says how much will come.
    fn add(&mut self, payload: &[u8]) {
        if let Some(size) = message_size(payload).filter(|_| self.prefix_left == PREFIX) {
            self.bytes.reserve_exact(size);
        }
        let prefix = self.prefix_left.min(payload.len());
        self.prefix_left -= prefix;
        self.bytes.extend_from_slice(&payload[prefix..]);
    }

    /// Takes the whole messages off what came before and `payload`.
    fn split(&mut self, payload: &[u8], answers: &mut Vec<Answer>) {
        let stream = self.stream;
        let mut whole = |bytes: &[u8]| {
            let mut at = 0;
            while let Some(size) = message_size(&bytes[at..]) {
                let Some(message) = bytes[at + PREFIX..].get(..size) else { break };
                answers.push(Answer { stream, message: message.to_vec(), complaint: None });
                at += PREFIX + size;
            }
            at
        };
        if self.bytes.is_empty() {
            let taken = whole(payload);
            self.bytes.extend_from_slice(&payload[taken..]);
        } else {
            self.bytes.extend_from_slice(payload);
            let taken = whole(&self.bytes);
            self.bytes.drain(..taken);
        }
    }
}

/// What trailers say of a failed call, when their fields are literal and not compressed.
fn complaint(trailers: &[u8]) -> Option<String> {
    const STATUS: &[u8] = b"grpc-status";
    let at = trailers.windows(STATUS.len()).position(|part| part == STATUS)?;
    let (&size, rest) = trailers[at + STATUS.len()..].split_first()?;
    if rest.get(..usize::from(size)) == Some(b"0") {
        return None;
    }
    let text = String::from_utf8_lossy(&trailers[at..]);
    Some(text.replace(|letter: char| letter.is_control(), " "))
}

/// The size that a message's prefix tells.
fn message_size(bytes: &[u8]) -> Option<usize> {
    let (head, _) = bytes.split_first_chunk::<PREFIX>()?;
    let size = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    Some(usize::try_from(size).expect("a size fits"))
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        }
    }
}

/// A message behind its five bytes of prefix.
fn prefixed(message: &[u8]) -> Vec<u8> {
    let size = u32::try_from(message.len()).expect("messages are below 4 GiB");
    let mut body = Vec::with_capacity(message.len() + 5);
    body.push(0);
    body.extend_from_slice(&size.to_be_bytes());
    body.extend_from_slice(message);
    body
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let size = u32::try_from(payload.len()).expect("frames are small").to_be_bytes();
    out.extend_from_slice(&size[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// The header block of a call: static table names, literal values, nothing remembered.
pub fn head(path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x04];
    literal(&mut block, path);
    block.push(0x01);
    literal(&mut block, "localhost");
    block.extend_from_slice(&[0x0f, 0x10]);
    literal(&mut block, "application/grpc");
    block.push(0x00);
    literal(&mut block, "te");
    literal(&mut block, "trailers");
    block
}

fn literal(block: &mut Vec<u8>, text: &str) {
    block.push(u8::try_from(text.len()).expect("short names and values"));
    block.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::complaint;

    /// Trailers of a good call say nothing, others say their status and text.
    #[test]
    fn trailers_tell_why_a_call_failed() {
        assert_eq!(complaint(b"\x00\x0bgrpc-status\x010\x00\x0cgrpc-message\x00"), None);
        assert_eq!(complaint(b""), None);
        let failed = complaint(b"\x00\x0bgrpc-status\x0214\x00\x0cgrpc-message\x04busy");
        let failed = failed.expect("a complaint");
        assert!(failed.contains("14") && failed.ends_with("busy"), "{failed}");
    }
}

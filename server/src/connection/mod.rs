//! A client's connection: the tasks that join a socket, HTTP/2 and the services.
//!
//! ```text
//! reader:     socket ──► Http2::receive ──► events ──► Service::call (inline) ──► Responder
//! writer:     socket ◄── Http2::poll_output ◄── bell ◄───────────────────────────────┘
//! timekeeper: deadlines of calls, pings to a silent client
//! ```
//!
//! The first bytes decide: an HTTP/2 preface stays here, anything else is HTTP/1 and goes to
//! [`Web::http1`] with what was read. Everything of a connection lives on one shard; where that is
//! not the home of its keyspace, calls go there through a [`relay`].

mod call;
mod link;
mod reader;
pub mod relay;
#[cfg(test)]
mod tests;
mod web;
mod writer;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use ringbolt_io::{Io, Peer, Stream};
use ringbolt_proto::method::Method;

pub use self::call::{Call, Metadata, Requests, Responder};
pub use self::web::{WebCall, WebResponder};
pub use crate::http2::Gone;

use self::link::Link;
use crate::budget::{Pressure, Share};
use crate::grpc::Code;
use crate::http2::frame::PREFACE;
use crate::limits::{FIRST_BYTES_TIME_MAX, MESSAGE_SLACK_BYTES, REQUEST_LINE_BYTES_MAX};

/// What answers gRPC calls. One value serves every connection of a keyspace on a shard.
pub trait Service: 'static {
    /// Takes a call. It runs inside the reader's turn: it answers at once or spawns, and never
    /// blocks. Calls of one connection come in the order their requests became complete.
    ///
    /// A call with one request (`Mode::Unary`, `Mode::ServerStream`) comes when that request is
    /// whole: `requests.try_next()` gives it.
    fn call(self: Rc<Self>, call: Call);

    /// Is told that a call which it had marked with [`Responder::mark`] is off the connection,
    /// answered or not. It must not touch the connection.
    fn gone(&self, _mark: u32, _code: Code) {}

    /// Is told what becomes of calls. It must not touch the connection.
    fn observe(&self, _event: &CallEvent<'_>) {}
}

/// Something that happened to a gRPC call, for counters.
#[derive(Clone, Copy, Debug)]
pub enum CallEvent<'a> {
    /// Its headers came.
    Started {
        /// Which RPC.
        method: &'static Method,
        /// The `client-api-version` its client names.
        client_version: Option<&'a [u8]>,
    },
    /// A message was handed to the service.
    Received {
        /// Which RPC.
        method: &'static Method,
        /// Size of the message.
        bytes: usize,
    },
    /// A message was given to the client's stream.
    Sent {
        /// Which RPC.
        method: &'static Method,
        /// Size of the message.
        bytes: usize,
    },
    /// It is over.
    Ended {
        /// Which RPC.
        method: &'static Method,
        /// How.
        code: Code,
        /// Since its headers came.
        took: Duration,
    },
}

/// A future of one shard.
pub type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// What answers everything that is not gRPC.
pub trait Web: 'static {
    /// Takes over a connection that does not speak HTTP/2. `received` holds what was read; it may
    /// be empty only when the client closed at once.
    fn http1(self: Rc<Self>, stream: Stream, received: Vec<u8>, peer: Rc<PeerInfo>) -> LocalFuture;

    /// Takes a request that came over HTTP/2, its body complete. Runs inside the reader's turn.
    fn call(self: Rc<Self>, call: WebCall);
}

/// Who is at the other end, for access checks and logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Text for logs.
    pub name: String,
    /// Process, user and group of a Unix peer.
    pub credentials: Option<(i32, u32, u32)>,
    /// Common name of a client certificate that was verified.
    pub common_name: Option<String>,
}

impl From<Peer> for PeerInfo {
    fn from(peer: Peer) -> PeerInfo {
        PeerInfo { name: peer.name, credentials: peer.credentials, common_name: None }
    }
}

/// What connections of one listener share.
#[derive(Clone)]
pub struct Parts {
    /// Answers gRPC calls.
    pub service: Rc<dyn Service>,
    /// Answers the rest. Without it only gRPC is served: HTTP/1 is closed, other HTTP/2 gets 415.
    pub web: Option<Rc<dyn Web>>,
    /// Limits of HTTP/2.
    pub http2: crate::http2::Limits,
    /// What clients make this shard hold for the keyspace.
    pub share: Rc<Share>,
    /// Largest request message; see [`message_bytes_max`].
    pub message_bytes_max: usize,
}

/// The largest message for a `--max-request-bytes`. Source: etcd 0.9 of the contract.
#[must_use]
pub fn message_bytes_max(max_request_bytes: usize) -> usize {
    max_request_bytes.saturating_add(MESSAGE_SLACK_BYTES)
}

/// What the first bytes of a connection speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http2,
    Http1,
    /// Neither: it is closed without an answer.
    Unknown,
}

/// Decides by the HTTP/2 preface or a whole HTTP/1 request line; `None` when more must come.
fn sniff(received: &[u8]) -> Option<Protocol> {
    let size = received.len().min(PREFACE.len());
    if received[..size] == PREFACE[..size] {
        return (size == PREFACE.len()).then_some(Protocol::Http2);
    }
    let line = received.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if line.len() == received.len() && line.len() < REQUEST_LINE_BYTES_MAX {
        return None;
    }
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let is_http1 = line
        .split_last()
        .is_some_and(|(minor, rest)| minor.is_ascii_digit() && rest.ends_with(b" HTTP/1."));
    Some(if is_http1 { Protocol::Http1 } else { Protocol::Unknown })
}

/// A handle to one connection. Clones name the same one.
#[derive(Clone)]
pub struct Connection {
    link: Rc<Link>,
    stream: Stream,
}

impl Connection {
    /// A connection over an accepted stream; `serve` does the work.
    #[must_use]
    pub fn new(io: &Io, stream: Stream, peer: PeerInfo, parts: Parts) -> Connection {
        Connection { link: Link::new(io.clone(), peer, parts), stream }
    }

    /// Serves until the connection ends. Spawn it as the connection's task.
    pub async fn serve(self) {
        tracing::trace!(target: "path", "Connection::serve");
        if self.link.parts.share.pressure() >= Pressure::Over {
            return self.stream.shutdown();
        }
        self.link.account();
        let first = self.link.io.timeout(FIRST_BYTES_TIME_MAX, self.first_bytes()).await;
        match first.flatten() {
            Some((Protocol::Http2, received)) => self.serve_http2(Bytes::from(received)).await,
            Some((Protocol::Http1, received)) => {
                if let Some(web) = self.link.parts.web.clone() {
                    web.http1(self.stream.clone(), received, self.link.peer.clone()).await;
                }
            }
            Some((Protocol::Unknown, _)) | None => {}
        }
        self.link.lose();
        self.stream.shutdown();
    }

    /// Reads until it is known what the client speaks; `None` when it went away first.
    async fn first_bytes(&self) -> Option<(Protocol, Vec<u8>)> {
        let mut received = Vec::new();
        loop {
            // Bytes: the first ones decide which protocol this is.
            let (outcome, buffer) = self.stream.read(received).await;
            received = buffer;
            if !matches!(outcome, Ok(size) if size > 0) {
                return None;
            }
            if let Some(protocol) = sniff(&received) {
                return Some((protocol, received));
            }
        }
    }

    /// Asks the client to go: no more streams, then the end when the open ones are done.
    pub fn shut_down(&self) {
        self.link.http.borrow_mut().shut_down();
        self.link.output.ring();
    }

    /// Ends the connection now; its calls are gone.
    pub fn close(&self) {
        self.stream.shutdown();
        self.link.lose();
    }

    /// Calls that are not answered yet.
    #[must_use]
    pub fn calls_open(&self) -> usize {
        self.link.calls_open()
    }

    /// HTTP/2 from the preface on.
    async fn serve_http2(&self, received: Bytes) {
        let io = &self.link.io;
        let writer = io.spawn("writer", writer::write(self.link.clone(), self.stream.clone()));
        let timekeeper = io.spawn("timekeeper", writer::keep_time(self.link.clone()));
        reader::read(&self.link, &self.stream, received).await;
        self.link.lose();
        timekeeper.abort();
        // The last frames, a GOAWAY for example, leave before the socket closes.
        writer.await;
    }
}

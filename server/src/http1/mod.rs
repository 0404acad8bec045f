//! HTTP endpoints that are not gRPC, over HTTP/1.1 and HTTP/2.
//!
//! One connection is one task: read, parse, answer, write, again. Requests that were sent ahead
//! wait in the receive buffer, which holds one head and one body at most, so a client that
//! pipelines is slowed down by its own socket.

pub mod answer;
pub mod limits;
pub mod parse;
pub mod probe;
pub mod target;

mod health;
mod routes;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use ringbolt_io::{Io, Stream};

use crate::connection::relay::Edge;
use crate::connection::{LocalFuture, PeerInfo, Web, WebCall};
use answer::Answer;
use limits::{BODY_BYTES_MAX, HEAD_BYTES_MAX, IDLE_TIME_MAX, REQUEST_TIME_MAX, WRITE_TIME_MAX};
use parse::{Progress, Request};
use probe::Probe;

/// Which set of paths a listener has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// `--listen-client-urls` and `--listen-client-http-urls`.
    Client,
    /// `--listen-metrics-urls`.
    Metrics,
    /// `--listen-peer-urls`.
    Peer,
}

/// Settings of the endpoints, from flags.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--cors`; empty and `*` allow all.
    pub cors: Vec<String>,
    /// `--host-whitelist`; empty and `*` allow all.
    pub host_whitelist: Vec<String>,
    /// `--enable-grpc-gateway`.
    pub gateway: bool,
    /// Time a linearizable read may take: 5 s and two election timeouts.
    pub read_time_max: Duration,
    /// The command line, for `/debug/vars`.
    pub command_line: Vec<String>,
}

/// Answers the requests of one kind of port of one keyspace. It lives on the keyspace's shard.
pub struct Desk {
    io: Io,
    port: Port,
    probe: Rc<dyn Probe>,
    settings: Rc<Settings>,
}

impl Desk {
    /// A desk over the facts of a keyspace.
    #[must_use]
    pub fn new(io: &Io, port: Port, probe: Rc<dyn Probe>, settings: Rc<Settings>) -> Rc<Desk> {
        Rc::new(Desk { io: io.clone(), port, probe, settings })
    }

    /// Answers one request.
    pub async fn answer(&self, request: &Request) -> Answer {
        routes::answer(self, request).await
    }
}

/// The connections of one kind of port of one keyspace, on one shard.
pub struct Front {
    io: Io,
    desk: At,
}

/// Where the desk of a front is.
enum At {
    /// On this shard.
    Here(Rc<Desk>),
    /// On another one.
    Away(Rc<Edge>),
}

impl Front {
    /// Connections whose requests are answered on this shard.
    #[must_use]
    pub fn new(io: &Io, desk: Rc<Desk>) -> Rc<Front> {
        Rc::new(Front { io: io.clone(), desk: At::Here(desk) })
    }

    /// Connections whose requests are answered on another shard.
    #[must_use]
    pub fn away(io: &Io, edge: Rc<Edge>) -> Rc<Front> {
        Rc::new(Front { io: io.clone(), desk: At::Away(edge) })
    }

    async fn answer(&self, request: &Request) -> Answer {
        match &self.desk {
            At::Here(desk) => desk.answer(request).await,
            // Receipt: the answer of the other shard; none when it is full or gone.
            At::Away(edge) => match edge.web(request.clone()).await {
                Some(answer) => answer,
                None => Answer::plain(503, "Service Unavailable\n"),
            },
        }
    }

    /// Serves a connection until it ends. `received` holds what was already read.
    pub async fn serve(&self, stream: &Stream, mut received: Vec<u8>) {
        let mut continued = false;
        loop {
            match parse::parse(&received) {
                Progress::Whole(request, size) => {
                    received.drain(..size);
                    continued = false;
                    if !self.respond(stream, &request).await {
                        return;
                    }
                }
                Progress::Bad(refusal) => {
                    let refusal = vec![answer::refusal(refusal)];
                    // Bytes: the last words; the connection ends either way.
                    let _ = self.io.timeout(WRITE_TIME_MAX, stream.write(refusal)).await;
                    return;
                }
                Progress::More(waits) => {
                    if waits && !std::mem::replace(&mut continued, true) {
                        let go_on = vec![Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\n")];
                        if stream.write(go_on).await.is_err() {
                            return;
                        }
                    }
                    let full = received.len() > HEAD_BYTES_MAX + 2 * BODY_BYTES_MAX;
                    let limit = if received.is_empty() { IDLE_TIME_MAX } else { REQUEST_TIME_MAX };
                    // Bytes: more of the request.
                    let read = self.io.timeout(limit, stream.read(received)).await;
                    match read {
                        Some((Ok(size), buffer)) if size > 0 && !full => received = buffer,
                        _ => return,
                    }
                }
            }
        }
    }

    /// Answers one request; false when the connection ends with it.
    async fn respond(&self, stream: &Stream, request: &Request) -> bool {
        let answer = match (request.method.as_str(), request.path.as_str()) {
            // About the server, not about one of its paths.
            ("OPTIONS", "*") => Answer::empty(200),
            _ => self.answer(request).await,
        };
        let mut parts = answer.encode(self.io.wall(), request);
        while !parts.is_empty() {
            let rest = parts.split_off(parts.len().min(ringbolt_io::limits::SEND_SLICES_MAX));
            // Bytes: a client that does not take its answer is left.
            let sent = self.io.timeout(WRITE_TIME_MAX, stream.write(parts)).await;
            if !matches!(sent, Some(Ok(()))) {
                return false;
            }
            parts = rest;
        }
        answer.keeps_alive(request)
    }

    /// The answer to a request of HTTP/2.
    async fn respond_http2(&self, call: WebCall) {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let head = &call.head;
        let (method, target) = (text(&head.method), text(&head.path));
        let path = target::path(&method, &target);
        let request = Request {
            method,
            target,
            path: path.clone().unwrap_or_default(),
            host: text(&head.authority),
            fields: head.fields.iter().map(|(name, value)| (text(name), text(value))).collect(),
            body: call.body.to_vec(),
            keep_alive: true,
            old: false,
        };
        let answer = match path {
            Some(_) => self.answer(&request).await,
            None => Answer::plain(400, "400 Bad Request"),
        };
        let Answer { status, fields, body, .. } = answer;
        let names: Vec<String> = fields.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        let date = answer::date(self.io.wall());
        let size = body.len().to_string();
        let mut pairs: Vec<(&str, &str)> =
            names.iter().zip(&fields).map(|(name, (_, value))| (&**name, &**value)).collect();
        pairs.push(("date", &date));
        pairs.push(("content-length", &size));
        let body = if request.method == "HEAD" { Bytes::new() } else { body };
        call.responder.respond(status, &pairs, body);
    }
}

impl Web for Front {
    fn http1(self: Rc<Self>, stream: Stream, received: Vec<u8>, _: Rc<PeerInfo>) -> LocalFuture {
        Box::pin(async move { self.serve(&stream, received).await })
    }

    fn call(self: Rc<Self>, call: WebCall) {
        let io = self.io.clone();
        io.spawn("http2 request", async move { self.respond_http2(call).await });
    }
}

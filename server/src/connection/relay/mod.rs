//! Calls of a connection that does not live on the home shard of its keyspace.
//!
//! ```text
//! shard of the connection                          home shard of the keyspace
//! Http2 ─► Edge::call ──► outbox ══ mailbox ══► Lane ─► Service::call (the same handlers)
//! Http2 ◄─ Responder ◄─── Edge    ══ mailbox ══ outbox ◄── Responder (of the far kind)
//! ```
//! - R1 Only owned values cross, in two mailboxes per pair of shards and keyspace; calls of one
//!   connection reach the home in their order.
//! - R2 Nobody waits for room while holding something: a lane bounds its calls, each call bounds
//!   what it may have on its way in either direction, and so the outboxes are bounded.
//! - R3 A streaming answer has credit in bytes and in pieces, given back when the connection's own
//!   stream has room: a client that does not read stops its own stream only.
//! - R4 The home ends a call, exactly once, whatever became of the client; the number of a call is
//!   used again only after that.
//! - R5 What was put into an outbox in one turn leaves in one batch, under one lock and with one
//!   wake-up.

mod edge;
mod home;
mod outbox;

use bytes::Bytes;
use ringbolt_io::{MonoTime, mailbox};
use ringbolt_proto::method::Method;

pub use self::edge::{Edge, EdgeService};
pub(super) use self::home::FarCall;
pub use self::home::{Home, Lane};

use crate::budget::Held;
use crate::grpc::{Code, Status};
use crate::http1::answer::Answer;
use crate::http1::parse::Request;
use crate::metrics::rpc::Rpcs;

/// Names a call of a lane while it lasts.
pub type CallId = u32;
/// Names a connection of a lane.
pub type ConnectionId = u32;

/// Metadata that the services read, and that therefore crosses.
pub(super) const CARRIED_FIELDS: [&str; 3] = ["token", "authorization", "hasleader"];
/// Fields that crossed, with their values.
pub type Carried = Vec<(&'static str, Bytes)>;

/// A call on its way to the home.
pub struct Asking {
    call: CallId,
    connection: ConnectionId,
    method: &'static Method,
    metadata: Carried,
    deadline: Option<MonoTime>,
    /// The one request of a call that has one.
    request: Option<Result<Bytes, Status>>,
}

/// What the shard of a connection tells the home.
pub enum Asked {
    /// The first word: where answers go.
    Here(mailbox::Sender<Told>),
    /// A call began.
    Call(Asking),
    /// The next message of a stream came.
    Message(CallId, Result<Bytes, Status>),
    /// The client has sent all.
    Ended(CallId),
    /// Nobody waits for the answer any more.
    Gone(CallId, Code),
    /// So many bytes in so many pieces of a streaming answer have found room.
    Room(CallId, usize, usize),
    /// A request that is not gRPC.
    Web(CallId, Box<Request>),
    /// The answer to [`Told::Count`]: everything counted since the last time, and what is held.
    Counts(Box<Rpcs>, Held),
    /// Whether memory has become tight where the connections are.
    Tight(bool),
    /// A connection has ended.
    Closed(ConnectionId),
}

/// What the home tells the shard of a connection.
pub enum Told {
    /// The answer of a unary call. The call is over.
    Answer(CallId, Result<Bytes, Status>),
    /// Payload of a streaming answer; with `total`, the first piece of a message of that size.
    Piece {
        /// Which call.
        call: CallId,
        /// Size of the message that begins.
        total: Option<usize>,
        /// The payload.
        bytes: Bytes,
    },
    /// The end of any other call. The call is over.
    End(CallId, Status),
    /// A message of the client has been taken.
    Taken(CallId),
    /// The answer of a request that is not gRPC.
    Web(CallId, Box<Answer>),
    /// Asks for [`Asked::Counts`].
    Count,
}

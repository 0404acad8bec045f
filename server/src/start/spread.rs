//! Which shard a connection lives on, and the shards that have connections of a keyspace whose
//! home they are not.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use ringbolt_io::mailbox::{self, SendError};
use ringbolt_io::{Detached, Io, Stream};

use super::listen::Connections;
use crate::budget::Share;
use crate::config::Config;
use crate::connection::relay::{Asked, Edge, Lane};
use crate::connection::{Connection, Parts, PeerInfo, Web, message_bytes_max};
use crate::http1::Front;
use crate::log;
use crate::metrics::rpc::Rpcs;

/// What comes to a shard from the home of a keyspace.
pub enum Arrival {
    /// The way to the home. It comes before the first connection.
    Lane {
        /// Which keyspace.
        keyspace: usize,
        /// The home's mailbox.
        asked: mailbox::Sender<Asked>,
    },
    /// A connection that is to live here.
    Connection {
        /// Of which keyspace.
        keyspace: usize,
        /// Its number on the lane.
        number: u32,
        /// The socket.
        socket: Detached,
        /// Who is at the other end.
        peer: PeerInfo,
    },
}

/// Places the connections of one listener of a keyspace. Lives at the home.
pub struct Placement {
    /// Which keyspace.
    pub keyspace: usize,
    /// The connections at home.
    pub here: Rc<Connections>,
    /// Below this many connections all stay at home.
    pub home_min: usize,
    /// The other shards.
    pub away: Vec<Place>,
    /// Whose turn it is; the home's comes after all others.
    pub next: Cell<usize>,
}

/// Another shard, as the home sees it.
#[derive(Clone)]
pub struct Place {
    /// Where connections go.
    pub arrivals: mailbox::Sender<Arrival>,
    /// Where their calls come from.
    pub lane: Rc<Lane>,
}

impl Placement {
    /// Connections of the keyspace on all shards.
    #[must_use]
    pub fn open(&self) -> usize {
        let away: usize = self.away.iter().map(|place| place.lane.connections_open()).sum();
        self.here.open() + away
    }

    /// Sends a connection to the shard it is to live on, or gives it back: it stays at home.
    #[must_use]
    pub fn place(&self, stream: Stream, peer: PeerInfo) -> Option<(Stream, PeerInfo)> {
        if self.away.is_empty() || self.open() < self.home_min {
            return Some((stream, peer));
        }
        let turn = self.next.get();
        self.next.set((turn + 1) % (self.away.len() + 1));
        let Some(place) = self.away.get(turn) else {
            return Some((stream, peer));
        };
        let socket = match stream.detach() {
            Ok(socket) => socket,
            Err(stream) => return Some((stream, peer)),
        };
        let keyspace = self.keyspace;
        let number = place.lane.welcome(peer.clone());
        let arrival = Arrival::Connection { keyspace, number, socket, peer };
        if let Err(SendError::Full(_) | SendError::Closed(_)) = place.arrivals.try_send(arrival) {
            // The shard is far behind, or stopping: its socket closes, and the client tries again.
            place.lane.farewell(number);
        }
        None
    }
}

/// A keyspace whose home is elsewhere.
struct Guest {
    edge: Rc<Edge>,
    connections: Rc<Connections>,
    parts: Parts,
}

/// The keyspaces this shard has connections of without being their home.
#[derive(Default)]
pub struct Guests {
    guests: RefCell<BTreeMap<usize, Rc<Guest>>>,
}

impl Guests {
    /// Takes what arrives, for ever.
    pub async fn receive(
        self: Rc<Self>,
        io: Io,
        config: Config,
        arrivals: mailbox::Receiver<Arrival>,
    ) {
        // Receipt: a lane or a connection from another shard.
        while let Some(arrival) = arrivals.receive().await {
            match arrival {
                Arrival::Lane { keyspace, asked } => {
                    let rpcs = Rpcs::new(config.metrics_extensive);
                    let slow = config.warning_unary_request_duration;
                    let share = Share::new(super::share_bytes(&config));
                    let edge = Edge::open(&io, asked, rpcs, share.clone(), slow);
                    let parts = guest_parts(&io, &config, &edge, share);
                    let guest = Guest { edge, connections: Rc::default(), parts };
                    self.guests.borrow_mut().insert(keyspace, Rc::new(guest));
                }
                Arrival::Connection { keyspace, number, socket, peer } => {
                    let guest = self.guests.borrow().get(&keyspace).cloned();
                    let guest = guest.expect("a lane comes before its connections");
                    match io.adopt(socket) {
                        Ok(stream) => guest.serve(&io, number, stream, peer),
                        Err(error) => {
                            guest.edge.closed(number);
                            let fields = vec![("error", ringbolt_io::plain(&error).into())];
                            log::warn("could not take a connection over", fields);
                        }
                    }
                }
            }
        }
    }

    /// Asks every client to go.
    pub fn shut_down(&self) {
        self.guests.borrow().values().for_each(|guest| guest.connections.shut_down());
    }

    /// Calls that are not answered yet.
    #[must_use]
    pub fn calls_open(&self) -> usize {
        self.guests.borrow().values().map(|guest| guest.connections.calls_open()).sum()
    }

    /// Ends every connection now and lets the homes go.
    pub fn close(&self) {
        for guest in self.guests.borrow().values() {
            guest.connections.close();
            guest.edge.close();
        }
    }
}

impl Guest {
    fn serve(self: Rc<Self>, io: &Io, number: u32, stream: Stream, peer: PeerInfo) {
        let parts = Parts { service: self.edge.service(number), ..self.parts.clone() };
        let connection = Connection::new(io, stream, peer, parts);
        let connections = self.connections.clone();
        connections.serve(io, connection, move || self.edge.closed(number));
    }
}

/// What is served on connections of a keyspace whose home is elsewhere.
fn guest_parts(io: &Io, config: &Config, edge: &Rc<Edge>, share: Rc<Share>) -> Parts {
    let web: Rc<dyn Web> = Front::away(io, edge.clone());
    let request_bytes = usize::try_from(config.limits.max_request_bytes).unwrap_or(usize::MAX);
    Parts {
        service: edge.service(0),
        web: config.listen_client_http_urls.is_empty().then_some(web),
        http2: super::shard::http2_limits(config),
        share,
        message_bytes_max: message_bytes_max(request_bytes),
    }
}

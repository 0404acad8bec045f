//! Sockets between simulated machines.
//!
//! A connection is two ends, each with a pipeline of what is on its way to it. Items of a pipeline
//! arrive in order, each after its own latency; over a cut link they wait until it heals, as TCP
//! would send them again. Machine m has the address 10.0.0.(m+1).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;

use super::core::{Core, Event, ShardRef};
use super::limits::{BACKLOG_MAX, WINDOW_BYTES};
use crate::driver::{Done, HandleId, Token};
use crate::limits::READ_BYTES_MAX;
use crate::net::{Address, Peer};

#[derive(Default)]
pub(super) struct Network {
    listeners: BTreeMap<HandleId, Listener>,
    connections: BTreeMap<u64, Connection>,
    /// Which end of which connection a stream is.
    streams: BTreeMap<HandleId, (u64, usize)>,
    pub(super) cut: BTreeSet<(usize, usize)>,
    next_port: u16,
    next_connection: u64,
    /// Chance of each send that its connection breaks.
    pub(super) reset_ppm: u32,
}

struct Listener {
    shard: ShardRef,
    address: Address,
    backlog: VecDeque<u64>,
    accepts: VecDeque<Token>,
}

struct Connection {
    address: Address,
    connecting: Option<(ShardRef, Token)>,
    ends: [End; 2],
}

struct End {
    machine: usize,
    shard: ShardRef,
    /// `None` before it is accepted and after it is closed.
    handle: Option<HandleId>,
    closed: bool,
    inbox: VecDeque<u8>,
    over: Option<Over>,
    receive: Option<(Token, Vec<u8>)>,
    sends: VecDeque<(Token, Vec<Bytes>)>,
    /// What is on its way to this end.
    pipeline: VecDeque<Item>,
    coming_bytes: usize,
    last_arrival: u64,
    stalled: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    Eof,
    Reset,
}

enum Item {
    Bytes(Vec<Bytes>),
    Over(Over),
    /// The first item towards end 1: somebody wants to connect.
    Syn,
    /// The first item towards end 0: accepted by the system, or refused.
    Answer(bool),
}

/// The next item of one end's pipeline arrives.
pub(super) struct NetEvent {
    connection: u64,
    end: usize,
}

impl Core {
    pub(super) fn listen(
        &mut self,
        shard: ShardRef,
        address: &Address,
    ) -> io::Result<(HandleId, Address)> {
        let mut address = address.clone();
        match &mut address {
            Address::Tcp(socket) if socket.port() == 0 => {
                self.net.next_port = self.net.next_port.wrapping_add(1) % 20_000;
                socket.set_port(40_000 + self.net.next_port);
            }
            _ => {}
        }
        let mut others = self.net.listeners.values();
        if others.any(|other| other.shard.machine == shard.machine && other.address == address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let handle = self.fresh_handle();
        let listener = Listener {
            shard,
            address: address.clone(),
            backlog: VecDeque::new(),
            accepts: VecDeque::new(),
        };
        self.net.listeners.insert(handle, listener);
        Ok((handle, address))
    }

    pub(super) fn accept(&mut self, shard: ShardRef, token: Token, listener: HandleId) {
        let Some(known) = self.net.listeners.get_mut(&listener) else {
            return self.answer(shard, token, Done::Accepted(Err(gone())));
        };
        known.accepts.push_back(token);
        self.match_accepts(listener);
    }

    fn match_accepts(&mut self, listener: HandleId) {
        let Some(known) = self.net.listeners.get_mut(&listener) else { return };
        if known.accepts.is_empty() || known.backlog.is_empty() {
            return;
        }
        let (Some(token), Some(id)) = (known.accepts.pop_front(), known.backlog.pop_front()) else {
            return;
        };
        let shard = known.shard;
        let handle = self.fresh_handle();
        self.net.streams.insert(handle, (id, 1));
        let connection = self.net.connections.get_mut(&id).expect("in the backlog");
        connection.ends[1].handle = Some(handle);
        connection.ends[1].shard = shard;
        let name = format!("10.0.0.{}:{}", connection.ends[0].machine + 1, 50_000 + id % 10_000);
        let peer = Peer { name, credentials: None };
        self.answer(shard, token, Done::Accepted(Ok((handle, peer))));
    }

    pub(super) fn connect(&mut self, shard: ShardRef, token: Token, address: Address) {
        let target = self.target_machine(shard.machine, &address);
        self.net.next_connection += 1;
        let id = self.net.next_connection;
        let ends = [End::new(shard.machine, shard), End::new(target, shard)];
        let connection = Connection { address, connecting: Some((shard, token)), ends };
        self.net.connections.insert(id, connection);
        self.dispatch(id, 1, Item::Syn);
    }

    fn target_machine(&self, from: usize, address: &Address) -> usize {
        match address {
            Address::Tcp(socket) => match socket.ip() {
                IpAddr::V4(ip) if ip.octets()[..3] == [10, 0, 0] => {
                    usize::from(ip.octets()[3]).saturating_sub(1)
                }
                _ => from,
            },
            Address::Unix(_) | Address::Abstract(_) => from,
        }
    }

    fn find_listener(&self, machine: usize, from: usize, address: &Address) -> Option<HandleId> {
        let fits = |bound: &Address| match (bound, address) {
            (Address::Tcp(bound), Address::Tcp(wanted)) => {
                let any = bound.ip().is_unspecified();
                bound.port() == wanted.port()
                    && (any || bound.ip() == wanted.ip())
                    && (!bound.ip().is_loopback() || machine == from)
            }
            (bound, wanted) => bound == wanted,
        };
        let mut all = self.net.listeners.iter();
        all.find(|(_, known)| known.shard.machine == machine && fits(&known.address))
            .map(|(handle, _)| *handle)
    }

    /// Puts an item on its way to an end.
    fn dispatch(&mut self, id: u64, end: usize, item: Item) {
        let latency = self.rng.between(self.config.net_ns);
        let now = self.now;
        let Some(connection) = self.net.connections.get_mut(&id) else { return };
        let target = &mut connection.ends[end];
        if let Item::Bytes(buffers) = &item {
            target.coming_bytes += buffers.iter().map(Bytes::len).sum::<usize>();
        }
        target.pipeline.push_back(item);
        target.last_arrival = target.last_arrival.max(now + latency);
        let wait = target.last_arrival - now;
        self.schedule(wait, Event::Net(NetEvent { connection: id, end }));
    }

    pub(super) fn net_event(&mut self, event: NetEvent) {
        let NetEvent { connection: id, end } = event;
        let Some(connection) = self.net.connections.get_mut(&id) else { return };
        let link = (connection.ends[1 - end].machine, connection.ends[end].machine);
        let target = &mut connection.ends[end];
        if self.net.cut.contains(&link) {
            target.stalled += 1;
            return;
        }
        let Some(item) = target.pipeline.pop_front() else { return };
        match item {
            Item::Syn => self.knock(id),
            Item::Answer(accepted) => self.connected(id, accepted),
            Item::Over(over) => {
                if target.over != Some(Over::Reset) {
                    target.over = Some(over);
                }
                self.serve_receive(id, end);
                self.serve_sends(id, 1 - end);
                self.serve_sends(id, end);
            }
            Item::Bytes(buffers) => self.arrive(id, end, &buffers),
        }
    }

    fn knock(&mut self, id: u64) {
        let connection = &self.net.connections[&id];
        let (from, machine) = (connection.ends[0].machine, connection.ends[1].machine);
        let listener = self.find_listener(machine, from, &connection.address);
        let known = listener.and_then(|handle| self.net.listeners.get_mut(&handle));
        let accepted = match known {
            Some(known) if known.backlog.len() < BACKLOG_MAX => {
                known.backlog.push_back(id);
                true
            }
            _ => false,
        };
        self.dispatch(id, 0, Item::Answer(accepted));
        if let (true, Some(listener)) = (accepted, listener) {
            self.match_accepts(listener);
        }
    }

    fn connected(&mut self, id: u64, accepted: bool) {
        let handle = self.fresh_handle();
        let connection = self.net.connections.get_mut(&id).expect("checked by the caller");
        let Some((shard, token)) = connection.connecting.take() else {
            // Nobody waits any more: the other side sees the connection end at once.
            connection.ends[0].closed = true;
            return self.dispatch(id, 1, Item::Over(Over::Eof));
        };
        if !accepted {
            self.net.connections.remove(&id);
            let refused = io::ErrorKind::ConnectionRefused.into();
            return self.answer(shard, token, Done::Connected(Err(refused)));
        }
        connection.ends[0].handle = Some(handle);
        self.net.streams.insert(handle, (id, 0));
        self.answer(shard, token, Done::Connected(Ok(handle)));
    }

    fn arrive(&mut self, id: u64, end: usize, buffers: &[Bytes]) {
        let connection = self.net.connections.get_mut(&id).expect("checked by the caller");
        let target = &mut connection.ends[end];
        let count: usize = buffers.iter().map(Bytes::len).sum();
        if target.closed || target.over.is_some() {
            target.coming_bytes -= count;
            // A machine without power says nothing; any other tells that nobody listens.
            if self.machines[connection.ends[end].machine].alive {
                self.dispatch(id, 1 - end, Item::Over(Over::Reset));
            }
            return;
        }
        buffers.iter().for_each(|bytes| target.inbox.extend(bytes.iter()));
        self.serve_receive(id, end);
    }

    pub(super) fn receive(
        &mut self,
        shard: ShardRef,
        token: Token,
        stream: HandleId,
        into: Vec<u8>,
    ) {
        let Some((id, end)) = self.net.streams.get(&stream).copied() else {
            return self.answer(shard, token, Done::Received(Err(gone()), into));
        };
        let target = &mut self.net.connections.get_mut(&id).expect("a stream has one").ends[end];
        assert!(target.receive.is_none(), "two receives wait on one stream");
        target.receive = Some((token, into));
        self.serve_receive(id, end);
    }

    fn serve_receive(&mut self, id: u64, end: usize) {
        let target = &mut self.net.connections.get_mut(&id).expect("known").ends[end];
        if target.inbox.is_empty() && target.over.is_none() {
            return;
        }
        let Some((token, mut into)) = target.receive.take() else { return };
        let shard = target.shard;
        let count = target.inbox.len().min(READ_BYTES_MAX);
        let result = match target.over {
            Some(Over::Reset) => Err(io::ErrorKind::ConnectionReset.into()),
            _ => Ok(count),
        };
        if result.is_ok() {
            into.extend(target.inbox.drain(..count));
            target.coming_bytes -= count;
            self.trace.fold_bytes(&into[into.len() - count..]);
        }
        self.answer(shard, token, Done::Received(result, into));
        self.serve_sends(id, 1 - end);
    }

    pub(super) fn send(
        &mut self,
        shard: ShardRef,
        token: Token,
        stream: HandleId,
        buffers: Vec<Bytes>,
    ) {
        let Some((id, end)) = self.net.streams.get(&stream).copied() else {
            return self.answer(shard, token, Done::Sent(Err(gone())));
        };
        if self.rng.chance(self.net.reset_ppm) {
            self.break_connection(id);
        }
        let source = &mut self.net.connections.get_mut(&id).expect("a stream has one").ends[end];
        source.sends.push_back((token, buffers));
        self.serve_sends(id, end);
    }

    /// Sends what has room, or fails what can never be sent.
    fn serve_sends(&mut self, id: u64, end: usize) {
        loop {
            let Some(connection) = self.net.connections.get_mut(&id) else { return };
            let room = connection.ends[1 - end].coming_bytes < WINDOW_BYTES;
            let source = &mut connection.ends[end];
            let broken = source.over == Some(Over::Reset) || source.closed;
            if !room && !broken {
                return;
            }
            let Some((token, buffers)) = source.sends.pop_front() else { return };
            let shard = source.shard;
            if broken {
                self.answer(shard, token, Done::Sent(Err(io::ErrorKind::BrokenPipe.into())));
            } else {
                self.dispatch(id, 1 - end, Item::Bytes(buffers));
                self.answer(shard, token, Done::Sent(Ok(())));
            }
        }
    }

    pub(super) fn cancel(&mut self, shard: ShardRef, token: Token) {
        let interrupted = || io::Error::from(io::ErrorKind::Interrupted);
        for listener in self.net.listeners.values_mut() {
            if listener.shard == shard && listener.accepts.contains(&token) {
                listener.accepts.retain(|waiting| *waiting != token);
                return self.answer(shard, token, Done::Accepted(Err(interrupted())));
            }
        }
        for connection in self.net.connections.values_mut() {
            if connection.connecting == Some((shard, token)) {
                connection.connecting = None;
                return self.answer(shard, token, Done::Connected(Err(interrupted())));
            }
            for end in &mut connection.ends {
                let waits = end.receive.as_ref().is_some_and(|(waiting, _)| *waiting == token);
                if waits && end.shard == shard {
                    let (_, into) = end.receive.take().expect("it waits");
                    return self.answer(shard, token, Done::Received(Err(interrupted()), into));
                }
            }
        }
    }

    pub(super) fn shutdown(&mut self, stream: HandleId) {
        let Some((id, end)) = self.net.streams.get(&stream).copied() else { return };
        let own = &mut self.net.connections.get_mut(&id).expect("a stream has one").ends[end];
        if own.closed {
            return;
        }
        own.closed = true;
        own.over = Some(own.over.unwrap_or(Over::Eof));
        self.serve_receive(id, end);
        self.serve_sends(id, end);
        self.dispatch(id, 1 - end, Item::Over(Over::Eof));
    }

    pub(super) fn close_socket(&mut self, handle: HandleId) {
        if let Some(listener) = self.net.listeners.remove(&handle) {
            for token in listener.accepts {
                self.answer(listener.shard, token, Done::Accepted(Err(gone())));
            }
            for id in listener.backlog {
                self.dispatch(id, 0, Item::Over(Over::Reset));
            }
            return;
        }
        self.shutdown(handle);
        let Some((id, end)) = self.net.streams.remove(&handle) else { return };
        let connection = self.net.connections.get_mut(&id).expect("a stream has one");
        connection.ends[end].handle = None;
        if connection.ends.iter().all(|end| end.closed && end.handle.is_none()) {
            self.net.connections.remove(&id);
        }
    }

    fn break_connection(&mut self, id: u64) {
        for end in 0..2 {
            let Some(connection) = self.net.connections.get_mut(&id) else { return };
            connection.ends[end].over = Some(Over::Reset);
            connection.ends[end].inbox.clear();
            self.serve_receive(id, end);
            self.serve_sends(id, end);
        }
    }

    /// Breaks every connection between two machines.
    pub(super) fn break_connections(&mut self, one: usize, two: usize) {
        let between = |connection: &Connection| {
            let ends = [connection.ends[0].machine, connection.ends[1].machine];
            ends == [one, two] || ends == [two, one]
        };
        let all = self.net.connections.iter();
        let ids: Vec<u64> = all.filter(|(_, known)| between(known)).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.break_connection(id));
    }

    /// A healed link carries what waited for it.
    pub(super) fn heal(&mut self, from: usize, to: usize) {
        self.net.cut.remove(&(from, to));
        let mut waiting = Vec::new();
        for (id, connection) in &mut self.net.connections {
            for end in 0..2 {
                let link = (connection.ends[1 - end].machine, connection.ends[end].machine);
                if link == (from, to) {
                    let stalled = std::mem::take(&mut connection.ends[end].stalled);
                    waiting.extend(std::iter::repeat_n((*id, end), stalled));
                }
            }
        }
        for (connection, end) in waiting {
            let latency = self.rng.between(self.config.net_ns);
            self.schedule(latency, Event::Net(NetEvent { connection, end }));
        }
    }

    /// The sockets of a dead process. Its peers hear of it, unless the whole machine went dark.
    pub(super) fn drop_sockets(&mut self, machine: usize, tell: bool) {
        self.net.listeners.retain(|_, listener| listener.shard.machine != machine);
        let mut orphans = Vec::new();
        for (id, connection) in &mut self.net.connections {
            for (index, end) in connection.ends.iter_mut().enumerate() {
                if end.machine == machine {
                    end.closed = true;
                    end.receive = None;
                    end.sends.clear();
                    self.net.streams.retain(|_, place| *place != (*id, index));
                    end.handle = None;
                    orphans.push((*id, 1 - index));
                }
            }
        }
        for (id, end) in orphans {
            if tell {
                let over = if self.rng.coin() { Over::Eof } else { Over::Reset };
                self.dispatch(id, end, Item::Over(over));
            }
        }
        let dead = |end: &End| end.closed && end.handle.is_none();
        self.net.connections.retain(|_, known| !known.ends.iter().all(dead));
    }
}

impl End {
    fn new(machine: usize, shard: ShardRef) -> End {
        End {
            machine,
            shard,
            handle: None,
            closed: false,
            inbox: VecDeque::new(),
            over: None,
            receive: None,
            sends: VecDeque::new(),
            pipeline: VecDeque::new(),
            coming_bytes: 0,
            last_arrival: 0,
            stalled: 0,
        }
    }
}

fn gone() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

/// The address of a port of a machine.
pub(super) fn address_of(machine: usize, port: u16) -> Address {
    let last = u8::try_from(machine + 1).expect("at most 255 machines");
    Address::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), port))
}

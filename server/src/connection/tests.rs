//! Connections over a simulated network: a service of many habits, and a client that writes frames
//! by hand.

mod calls;
mod client;
mod deep;
mod ends;
mod golden;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use ringbolt_io::net::ListenHow;
use ringbolt_io::sim::{SimConfig, World};
use ringbolt_io::{Io, Stream};
use ringbolt_proto::method::Name;

use self::client::Client;
use super::relay::{Edge, Home};
use super::{Call, Connection, LocalFuture, Parts, PeerInfo, Service, Web, WebCall};
use crate::budget::Share;
use crate::grpc::{Code, Status};
use crate::http2::Limits;
use crate::metrics::rpc::Rpcs;

const PORT: u16 = 2379;
/// Small, so that the limit on messages is quickly reached.
const MESSAGE_BYTES_MAX: usize = 100_000;
/// Size of the answer to `RangeStream` and of the chunks it is pulled in.
const HUGE: usize = 3_000_000;
const CHUNK: usize = 10_000;

/// What the service saw, for the tests to look at.
#[derive(Default)]
struct Seen {
    gone: RefCell<Vec<Code>>,
    pulled: Cell<usize>,
    http1: RefCell<Vec<u8>>,
    metadata: RefCell<Vec<String>>,
}

/// Put echoes at once, DeleteRange later; Range fails; Txn never answers; Compact forgets the
/// call; RangeStream gives a huge answer; Watch echoes a stream.
struct Habits {
    io: Io,
    seen: Rc<Seen>,
}

impl Service for Habits {
    fn call(self: Rc<Self>, mut call: Call) {
        self.seen.metadata.borrow_mut().extend(call.metadata.token().map(str::to_owned));
        match call.method.name {
            Name::Put => {
                let message = call.requests.try_next().expect("a unary request is whole");
                call.responder.unary(message);
            }
            Name::Range => {
                let status = Status::new(Code::NotFound, "50% of it");
                call.responder.unary(Err(status));
            }
            Name::Compact => drop(call),
            name => {
                self.io.clone().spawn("call", async move {
                    match name {
                        Name::DeleteRange => self.late(call).await,
                        Name::Txn => self.never(call).await,
                        Name::RangeStream => self.huge(call).await,
                        _ => echo(call).await,
                    }
                });
            }
        }
    }
}

impl Habits {
    async fn late(&self, mut call: Call) {
        let message = call.requests.try_next().expect("a unary request is whole");
        self.io.sleep(Duration::from_millis(50)).await;
        call.responder.unary(message);
    }

    async fn never(&self, call: Call) {
        call.responder.gone().await;
        let code = call.responder.gone_because().expect("it is gone");
        self.seen.gone.borrow_mut().push(code);
    }

    async fn huge(&self, call: Call) {
        let seen = self.seen.clone();
        let outcome = call
            .responder
            .unary_chunks(HUGE, async || {
                seen.pulled.set(seen.pulled.get() + CHUNK);
                Ok(Some(Bytes::from(vec![9; CHUNK])))
            })
            .await;
        if outcome.is_err() {
            self.seen.gone.borrow_mut().push(Code::Canceled);
        }
    }
}

async fn echo(mut call: Call) {
    while let Some(message) = call.requests.next().await {
        let outcome = match message {
            Ok(message) => call.responder.send(message).await,
            Err(status) => return call.responder.finish(status),
        };
        if outcome.is_err() {
            return;
        }
    }
    call.responder.finish(Status::OK);
}

impl Web for Habits {
    fn http1(self: Rc<Self>, stream: Stream, received: Vec<u8>, _: Rc<PeerInfo>) -> LocalFuture {
        Box::pin(async move {
            *self.seen.http1.borrow_mut() = received;
            let _ = stream.write(vec![Bytes::from_static(b"HTTP/1.1 200 OK\r\n\r\n")]).await;
        })
    }

    fn call(self: Rc<Self>, call: WebCall) {
        let fields = [("content-type", "text/plain")];
        call.responder.respond(200, &fields, call.body);
    }
}

/// What a test works with. Each test runs twice: with the service on the connection's own shard,
/// and with it behind a relay.
struct Setting {
    seen: Rc<Seen>,
    connections: Rc<RefCell<Vec<Connection>>>,
    with_web: bool,
}

fn setting() -> Setting {
    Setting { seen: Rc::default(), connections: Rc::default(), with_web: true }
}

impl Setting {
    /// Runs a server on one machine and `test` on another, until `test` ends; then everything of
    /// the server's connections must have gone.
    fn run<F: Future<Output = ()> + 'static>(
        self,
        test: impl FnOnce(Client) -> F + Clone + 'static,
    ) {
        self.run_once(test.clone(), false);
        self.seen.gone.borrow_mut().clear();
        self.seen.pulled.set(0);
        self.seen.http1.borrow_mut().clear();
        self.seen.metadata.borrow_mut().clear();
        self.connections.borrow_mut().clear();
        self.run_once(test, true);
    }

    fn run_once<F: Future<Output = ()> + 'static>(
        &self,
        test: impl FnOnce(Client) -> F + 'static,
        relayed: bool,
    ) {
        let mut world = World::new(7, SimConfig::default());
        let (server, client) = (world.add_machine(), world.add_machine());
        let address = world.address(server, PORT);
        let (seen, connections) = (self.seen.clone(), self.connections.clone());
        let with_web = self.with_web;
        let far = address.clone();
        world.start(server, move |io| {
            let habits = Rc::new(Habits { io: io.clone(), seen });
            let web: Rc<dyn Web> = habits.clone();
            let parts = Parts {
                service: habits,
                web: with_web.then_some(web),
                http2: Limits::default(),
                message_bytes_max: MESSAGE_BYTES_MAX,
                share: Share::new(64 << 20),
            };
            io.spawn("listener", serve(io.clone(), far, parts, connections, relayed));
        });
        world.run_for(Duration::from_millis(10));
        let before = world.tasks_alive(server);
        let done = Rc::new(Cell::new(false));
        let finished = done.clone();
        world.start(client, |io| {
            let inner = io.clone();
            io.spawn("test", async move {
                let stream = inner.connect(&address).await.expect("a server");
                test(Client::new(inner, stream)).await;
                finished.set(true);
            });
        });
        let ended = world.run_until(Duration::from_secs(60), |_| done.get());
        assert!(ended, "the client still waits for something");
        world.run_for(Duration::from_secs(2));
        assert_eq!(world.tasks_alive(server), before, "tasks were left behind");
        assert!(self.connections.borrow().iter().all(|connection| connection.calls_open() == 0));
    }
}

async fn serve(
    io: Io,
    address: ringbolt_io::Address,
    parts: Parts,
    connections: Rc<RefCell<Vec<Connection>>>,
    relayed: bool,
) {
    let listener = io.listen(&address, &ListenHow::default()).expect("a free port");
    let rpcs = Rc::new(Rpcs::new(false));
    let home = Home::new(&io, parts.service.clone(), rpcs.clone());
    let relay = relayed.then(|| {
        let (lane, asked) = home.open(None);
        (
            lane,
            Edge::open(
                &io,
                asked,
                Rpcs::new(false),
                parts.share.clone(),
                Duration::from_secs(3600),
            ),
        )
    });
    loop {
        let (stream, peer) = listener.accept().await.expect("a connection");
        let mut parts = parts.clone();
        let peer = PeerInfo::from(peer);
        let number = relay.as_ref().map(|(lane, edge)| {
            let number = lane.welcome(peer.clone());
            parts.service = edge.service(number);
            number
        });
        let connection = Connection::new(&io, stream, peer, parts);
        connections.borrow_mut().push(connection.clone());
        let (home, rpcs) = (home.clone(), rpcs.clone());
        let edge = relay.as_ref().map(|(_, edge)| edge.clone());
        io.spawn("connection", async move {
            connection.serve().await;
            let Some((number, edge)) = number.zip(edge) else { return };
            edge.closed(number);
            // What the edge counted reaches the home: a test's calls have all ended by now.
            home.gather().await;
            let open = rpcs.open("etcdserverpb.KV", "Put");
            assert_eq!(open, 0, "a put that began was never counted as ended");
        });
    }
}

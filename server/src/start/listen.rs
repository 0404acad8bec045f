//! Listeners: from URLs to bound sockets, and from sockets to connections.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;

use ringbolt_io::local::Bell;
use ringbolt_io::net::ListenHow;
use ringbolt_io::{Address, Io, Listener, plain, process};
use slab::Slab;

use super::limits::{ACCEPT_PAUSE, BIND_PAUSE, BIND_TIME_MAX, FILES_RESERVED};
use super::spread::Placement;
use crate::config::SocketConfig;
use crate::config::url::{Place, Url};
use crate::connection::{Connection, Parts, PeerInfo};
use crate::log;

/// A bound socket and what is served on it.
pub struct Bound {
    /// The URL it was asked for with.
    pub url: Url,
    listener: Listener,
}

/// Binds a URL. An address that is in use is tried again for a moment: after a kill -9 the system
/// still ends the old process's rings, and with them its sockets, when the next one starts.
///
/// # Errors
/// Go's text, `listen tcp 127.0.0.1:2379: bind: address already in use`, and behind it what to do:
/// `flag` is where the URL was asked for.
pub async fn bind(io: &Io, url: &Url, sockets: &SocketConfig, flag: &str) -> Result<Bound, String> {
    let how = ListenHow {
        reuse_port: sockets.reuse_port,
        reuse_address: sockets.reuse_address,
        socket_mode: Some(sockets.unix_mode),
        socket_owner: sockets.unix_owner,
    };
    let (address, network, shown) = match url.place() {
        Place::Tcp(host, port) => {
            let ip = if host == "localhost" {
                IpAddr::V4(Ipv4Addr::LOCALHOST)
            } else {
                host.parse().map_err(|_| format!("listen tcp: {host} is no IP address"))?
            };
            let port = match port.as_str() {
                "" => 0,
                port => {
                    let wrong = || format!("listen tcp: address {port}: invalid port");
                    port.parse().map_err(|_| wrong())?
                }
            };
            let address = SocketAddr::new(ip, port);
            (Address::Tcp(address), "tcp", address.to_string())
        }
        Place::Unix(path) => {
            let shown = path.display().to_string();
            (Address::Unix(path), "unix", shown)
        }
        Place::Abstract(name) => {
            let shown = format!("@{name}");
            (Address::Abstract(name.into_bytes()), "unix", shown)
        }
    };
    let give_up = io.now() + BIND_TIME_MAX;
    loop {
        match io.listen(&address, &how) {
            Ok(listener) => return Ok(Bound { url: url.clone(), listener }),
            Err(error) if error.kind() == ErrorKind::AddrInUse && io.now() < give_up => {
                io.sleep(BIND_PAUSE).await;
            }
            Err(error) => {
                let next = next(error.kind(), &address, &shown);
                return Err(format!(
                    "listen {network} {shown}: bind: {}{next}; or choose another address with \
                     {flag}",
                    plain(&error)
                ));
            }
        }
    }
}

/// The command that shows why an address cannot be had.
fn next(kind: ErrorKind, address: &Address, shown: &str) -> String {
    match (kind, address) {
        (ErrorKind::AddrInUse, Address::Tcp(address)) => {
            format!("; see who holds it with: ss -ltnp 'sport = :{}'", address.port())
        }
        (ErrorKind::AddrInUse, Address::Unix(_)) => {
            let (socket, other) = (format!("ss -lxp src {shown}"), format!("ls -l {shown}"));
            format!("; see who holds it with: {socket} (where it is no socket: {other})")
        }
        (ErrorKind::AddrInUse, Address::Abstract(_)) => {
            format!("; see who holds it with: ss -lxp src {shown}")
        }
        (ErrorKind::AddrNotAvailable, _) => {
            "; see the addresses of this machine with: ip -brief address".to_owned()
        }
        (ErrorKind::PermissionDenied, Address::Tcp(_)) => {
            "; see which ports are free to all with: sysctl net.ipv4.ip_unprivileged_port_start"
                .to_owned()
        }
        (ErrorKind::NotFound | ErrorKind::PermissionDenied, Address::Unix(path)) => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = parent.unwrap_or(Path::new(".")).display();
            format!("; see its directory with: ls -ld {parent}")
        }
        _ => String::new(),
    }
}

/// The connections of one listener.
#[derive(Default)]
pub struct Connections {
    open: RefCell<Slab<Connection>>,
    /// Rung when one ends.
    freed: Bell,
}

impl Connections {
    /// How many are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.borrow().len()
    }

    /// Serves a connection as a task of its own, which calls `ended` last.
    pub fn serve(self: Rc<Self>, io: &Io, connection: Connection, ended: impl FnOnce() + 'static) {
        let key = self.open.borrow_mut().insert(connection.clone());
        io.spawn("connection", async move {
            connection.serve().await;
            self.open.borrow_mut().remove(key);
            self.freed.ring();
            ended();
        });
    }

    /// Asks every client to go.
    pub fn shut_down(&self) {
        for (_, connection) in self.open.borrow().iter() {
            connection.shut_down();
        }
    }

    /// Calls that are not answered yet.
    #[must_use]
    pub fn calls_open(&self) -> usize {
        self.open.borrow().iter().map(|(_, connection)| connection.calls_open()).sum()
    }

    /// Ends every connection now.
    pub fn close(&self) {
        let all: Vec<Connection> =
            self.open.borrow().iter().map(|(_, connection)| connection.clone()).collect();
        for connection in all {
            connection.close();
        }
    }
}

/// Accepts until the task is dropped, which closes the listener.
pub async fn accept(io: Io, bound: Bound, parts: Parts, placement: Placement) {
    let files = process::open_files_limit();
    let room = usize::try_from(files.saturating_sub(FILES_RESERVED)).unwrap_or(usize::MAX).max(1);
    loop {
        while placement.open() >= room {
            // Receipt: a connection has ended. Those of other shards ring no bell here.
            let _ended_or_not = io.timeout(ACCEPT_PAUSE, placement.here.freed.heard()).await;
        }
        // Bytes: a client comes.
        match bound.listener.accept().await {
            Ok((stream, peer)) => {
                if let Some((stream, peer)) = placement.place(stream, PeerInfo::from(peer)) {
                    let connection = Connection::new(&io, stream, peer, parts.clone());
                    placement.here.clone().serve(&io, connection, || ());
                }
            }
            Err(error) => {
                let fields =
                    vec![("address", bound.url.address().into()), ("error", plain(&error).into())];
                log::warn("could not accept a connection", fields);
                io.sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

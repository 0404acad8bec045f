//! Sockets as tasks see them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;

use crate::driver::{Done, HandleId, Op};
use crate::exec::Io;

/// Where a socket is bound or leads to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A Unix socket file.
    Unix(PathBuf),
    /// A Unix socket in the abstract name space, without the leading zero byte.
    Abstract(Vec<u8>),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
            Address::Abstract(name) => write!(f, "@{}", String::from_utf8_lossy(name)),
        }
    }
}

/// How a listener is bound. A stale Unix socket file (nobody accepts on it) is replaced, a live
/// one is `AddrInUse`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenHow {
    /// SO_REUSEPORT.
    pub reuse_port: bool,
    /// SO_REUSEADDR was asked for. TCP listeners have it always, as in Go's net package.
    pub reuse_address: bool,
    /// Permission bits of a Unix socket file.
    pub socket_mode: Option<u32>,
    /// Owner and group of a Unix socket file.
    pub socket_owner: Option<(Option<u32>, Option<u32>)>,
}

/// Who is at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Text for logs.
    pub name: String,
    /// Process, user and group of a Unix peer (`SO_PEERCRED`).
    pub credentials: Option<(i32, u32, u32)>,
}

/// A bound socket. Closed, and its socket file removed, when dropped.
pub struct Listener {
    io: Io,
    listener: HandleId,
    address: Address,
}

impl Listener {
    pub(crate) fn bind(io: Io, address: &Address, how: &ListenHow) -> io::Result<Listener> {
        let (listener, address) = io.driver().listen(address, how)?;
        Ok(Listener { io, listener, address })
    }

    /// Where it is really bound (a port of 0 has become a number).
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// The system's; out of file descriptors is one the caller waits out.
    pub async fn accept(&self) -> io::Result<(Stream, Peer)> {
        match self.io.op(Op::Accept { listener: self.listener }).await {
            Done::Accepted(result) => {
                result.map(|(stream, peer)| (Stream::new(self.io.clone(), stream), peer))
            }
            other => unreachable!("accept answered {other:?}"),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.io.driver().close(self.listener);
    }
}

struct Inner {
    io: Io,
    stream: HandleId,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.io.driver().close(self.stream);
    }
}

/// A connected socket that belongs to no shard, on its way from one to another. Closed when it is
/// dropped. See [`Stream::detach`] and [`Io::adopt`].
#[derive(Debug)]
pub struct Detached(pub(crate) OwnedFd);

/// A connected socket. Clones share it; closed when the last one is dropped.
#[derive(Clone)]
pub struct Stream {
    inner: Rc<Inner>,
}

impl Stream {
    pub(crate) fn new(io: Io, stream: HandleId) -> Stream {
        Stream { inner: Rc::new(Inner { io, stream }) }
    }

    /// Takes the socket off this shard, so that another one may adopt it.
    ///
    /// # Errors
    /// The stream itself: it has clones, it has been read or written, or this driver has no
    /// sockets that could leave it.
    pub fn detach(self) -> Result<Detached, Stream> {
        let inner = Rc::try_unwrap(self.inner).map_err(|inner| Stream { inner })?;
        match inner.io.driver().detach(inner.stream) {
            Some(socket) => Ok(Detached(socket)),
            None => Err(Stream { inner: Rc::new(inner) }),
        }
    }

    /// Waits for bytes and appends them to `into`, which comes back with the count. 0 is the end.
    pub async fn read(&self, into: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        match self.inner.io.op(Op::Receive { stream: self.inner.stream, into }).await {
            Done::Received(result, into) => (result, into),
            other => unreachable!("receive answered {other:?}"),
        }
    }

    /// Sends all of `buffers` in order. True when it returns: the kernel has them.
    ///
    /// # Errors
    /// The system's; the stream is of no more use then.
    pub async fn write(&self, buffers: Vec<Bytes>) -> io::Result<()> {
        match self.inner.io.op(Op::Send { stream: self.inner.stream, buffers }).await {
            Done::Sent(result) => result,
            other => unreachable!("send answered {other:?}"),
        }
    }

    /// Ends both directions at once.
    pub fn shutdown(&self) {
        self.inner.io.driver().shutdown(self.inner.stream);
    }
}

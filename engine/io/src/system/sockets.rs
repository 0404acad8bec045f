//! Sockets of the real drivers: binding, the first step of connecting, who the peer is.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};

use crate::limits::{LISTEN_BACKLOG, TCP_KEEPALIVE};
use crate::net::{Address, ListenHow, Peer};

const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(TCP_KEEPALIVE).with_interval(TCP_KEEPALIVE);

/// Whether system calls on a socket may wait. Under epoll they must not; io_uring waits by itself,
/// and gives up at once (EAGAIN) where a socket says that it must not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    Yes,
    No,
}

/// A bound and listening socket.
pub(crate) struct Bound {
    pub(crate) socket: Socket,
    pub(crate) address: Address,
    /// The socket file to remove at close, with its device and inode: a file that somebody else
    /// has put there since stays.
    pub(crate) file: Option<SocketFile>,
}

/// A socket file of ours.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<SocketFile> {
        let metadata = fs::symlink_metadata(path)?;
        let (device, inode) = (metadata.dev(), metadata.ino());
        Ok(SocketFile { path: path.to_path_buf(), device, inode })
    }

    /// Removes the file if it is still ours.
    pub(crate) fn remove(&self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|now| (now.dev(), now.ino()) == (self.device, self.inode));
        if ours && let Err(error) = fs::remove_file(&self.path) {
            let path = self.path.display();
            let error = crate::plain(&error);
            tracing::warn!(%error, %path, "failed to remove a socket file");
        }
    }
}

/// Binds a listener.
pub(crate) fn listen(address: &Address, how: &ListenHow, waits: Waits) -> io::Result<Bound> {
    let target = socket_address(address)?;
    let socket = new_socket(address, waits)?;
    match address {
        Address::Tcp(_) => {
            if how.reuse_port {
                socket.set_reuse_port(true)?;
            }
            // Always, whatever was asked: otherwise the connections of the last run, which wait out
            // their last minute, would keep a restarted server from its own port. A listener that
            // lives still refuses a second one.
            socket.set_reuse_address(true)?;
            socket.bind(&target)?;
        }
        Address::Abstract(_) => socket.bind(&target)?,
        Address::Unix(path) => bind_file(&socket, &target, path)?,
    }
    let file = match address {
        Address::Unix(path) => Some(SocketFile::of(path)?),
        _ => None,
    };
    let ready = dress(address, how).and_then(|()| socket.listen(LISTEN_BACKLOG));
    if let Err(error) = ready {
        if let Some(file) = file {
            file.remove();
        }
        return Err(error);
    }
    let address = match address {
        Address::Tcp(_) => match socket.local_addr()?.as_socket() {
            Some(bound) => Address::Tcp(bound),
            None => address.clone(),
        },
        _ => address.clone(),
    };
    Ok(Bound { socket, address, file })
}

/// Mode and owner of a socket file, before anybody can connect.
fn dress(address: &Address, how: &ListenHow) -> io::Result<()> {
    let Address::Unix(path) = address else { return Ok(()) };
    if let Some((user, group)) = how.socket_owner {
        std::os::unix::fs::lchown(path, user, group)?;
    }
    if let Some(mode) = how.socket_mode {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Binds to a path. A socket file that nobody listens on is replaced; a live one, or a file of
/// another kind, is `AddrInUse`.
fn bind_file(socket: &Socket, target: &SockAddr, path: &Path) -> io::Result<()> {
    match socket.bind(target) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let is_socket = fs::symlink_metadata(path)?.file_type().is_socket();
            if !is_socket || !is_stale(target) {
                return Err(error);
            }
            fs::remove_file(path)?;
            socket.bind(target)
        }
        other => other,
    }
}

/// Only a refused connection proves that nobody listens. A full backlog (EAGAIN) is a live one.
fn is_stale(target: &SockAddr) -> bool {
    let Ok(probe) = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None) else {
        return false;
    };
    let refused = io::ErrorKind::ConnectionRefused;
    probe.connect(target).is_err_and(|error| error.kind() == refused)
}

/// A stream socket for `address`: close-on-exec, without Nagle's delay and with
/// keep-alive probes (15 s, as Go's net package, so as etcd). A listener passes both on to what it
/// accepts (`tcp(7)`).
pub(crate) fn new_socket(address: &Address, waits: Waits) -> io::Result<Socket> {
    let domain = match address {
        Address::Tcp(address) => Domain::for_address(*address),
        Address::Unix(_) | Address::Abstract(_) => Domain::UNIX,
    };
    let kind = match waits {
        Waits::Yes => Type::STREAM,
        Waits::No => Type::STREAM.nonblocking(),
    };
    let socket = Socket::new(domain, kind, None)?;
    if let Address::Tcp(_) = address {
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_keepalive(&KEEPALIVE)?;
    }
    Ok(socket)
}

/// The system's form of an address.
pub(crate) fn socket_address(address: &Address) -> io::Result<SockAddr> {
    match address {
        Address::Tcp(address) => Ok(SockAddr::from(*address)),
        Address::Unix(path) => {
            if path.as_os_str().is_empty() || path.as_os_str().as_bytes()[0] == 0 {
                let text = "a socket path must not be empty or begin with a zero byte";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            SockAddr::unix(path)
        }
        Address::Abstract(name) => {
            let mut bytes = Vec::with_capacity(name.len() + 1);
            bytes.push(0);
            bytes.extend_from_slice(name);
            SockAddr::unix(OsStr::from_bytes(&bytes))
        }
    }
}

/// Says who is at the other end of an accepted socket.
pub(crate) fn welcome(socket: &Socket, listener: &Address) -> Peer {
    match listener {
        Address::Tcp(_) => {
            let name = match socket.peer_addr().ok().and_then(|address| address.as_socket()) {
                Some(address) => address.to_string(),
                None => "gone".to_owned(),
            };
            Peer { name, credentials: None }
        }
        Address::Unix(_) | Address::Abstract(_) => {
            let credentials = credentials(socket.as_fd());
            let name = match credentials {
                Some((process, user, _)) => format!("{listener} (pid {process}, uid {user})"),
                None => listener.to_string(),
            };
            Peer { name, credentials }
        }
    }
}

/// Process, user and group of a Unix peer (`unix(7)` SO_PEERCRED). The process id is 0 when it
/// lives in another PID namespace.
fn credentials(socket: BorrowedFd<'_>) -> Option<(i32, u32, u32)> {
    let mut found = MaybeUninit::<libc::ucred>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).ok()?;
    // SAFETY: the pointer leads to `length` writable bytes, and any bytes are a valid `ucred`.
    // JUSTIFICATION: rustix gives the process id as a type that must not be zero, yet it may be.
    let (code, found) = unsafe {
        let code = libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            found.as_mut_ptr().cast(),
            &raw mut length,
        );
        (code, found.assume_init())
    };
    (code == 0).then_some((found.pid, found.uid, found.gid))
}

/// Errors that concern a connection that has gone before it was accepted (`accept(2)`).
pub(crate) fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ECONNABORTED | libc::EINTR | libc::EPROTO))
}

/// The error of an op that was asked to end, or whose handle was closed.
pub(crate) fn cancelled() -> io::Error {
    io::Error::from_raw_os_error(libc::ECANCELED)
}

/// The error of an op on a handle that is not open.
pub(crate) fn unknown() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr, TcpStream};

    use super::*;

    /// The server's side of a connection that it closed first waits for a minute (TIME_WAIT). The
    /// port can be bound again all the same, but not while a listener lives.
    #[test]
    fn a_port_with_waiting_connections_can_be_bound_again() {
        let any = Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let how = ListenHow::default();
        let first = listen(&any, &how, Waits::Yes).expect("a free port");
        let Address::Tcp(address) = first.address else { panic!("{:?}", first.address) };
        let client = TcpStream::connect(address).expect("it listens");
        let (accepted, _) = first.socket.accept().expect("one client");
        drop(accepted);
        let second = listen(&Address::Tcp(address), &how, Waits::Yes);
        assert_eq!(second.err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));
        drop(first.socket);
        drop(client);
        listen(&Address::Tcp(address), &how, Waits::Yes).expect("the port is free again");
    }
}

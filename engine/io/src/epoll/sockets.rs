//! Sockets of the epoll driver.
//!
//! Each is registered once, edge-triggered, for both directions. `readable` and `writable` hold
//! what the last event or the last EAGAIN said, so that an op is tried only when it may succeed.
//! A read that did not fill its room has emptied the socket; unless the peer has ended the stream,
//! the next edge is waited for without another call.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};

use bytes::{Buf, Bytes};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use socket2::Socket;

use super::{Entry, State, WAKE_DATA};
use crate::driver::{Done, HandleId, Token};
use crate::limits::SEND_SLICES_MAX;
use crate::net::{Address, Peer};
use crate::system::sockets::{
    Bound, SocketFile, Waits, cancelled, is_of_one_connection, new_socket, socket_address, unknown,
    welcome,
};

/// A connected socket.
pub(super) struct Streaming {
    socket: Socket,
    readable: bool,
    writable: bool,
    /// The peer sends no more, or the connection failed: every read answers at once.
    ended: bool,
    receives: VecDeque<(Token, Vec<u8>)>,
    sends: VecDeque<Sending>,
}

struct Sending {
    token: Token,
    buffers: VecDeque<Bytes>,
}

/// A bound socket.
pub(super) struct Listening {
    socket: Socket,
    address: Address,
    file: Option<SocketFile>,
    readable: bool,
    accepts: VecDeque<Token>,
}

/// A socket on its way.
pub(super) struct Connecting {
    socket: Socket,
    address: Address,
    token: Token,
}

impl State {
    pub(super) fn drive_events(&mut self) {
        let events = std::mem::take(&mut self.events);
        for event in &events {
            // The event is packed; its fields are copied, never borrowed.
            let (flags, data) = (event.flags, event.data.u64());
            if data != WAKE_DATA {
                self.drive_event(HandleId(data), flags);
            }
        }
        self.events = events;
    }

    fn drive_event(&mut self, handle: HandleId, flags: epoll::EventFlags) {
        let failed = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        match self.handles.get_mut(handle) {
            Some(Entry::Stream(stream)) => {
                stream.ended |= failed || flags.contains(epoll::EventFlags::RDHUP);
                stream.readable |= stream.ended || flags.contains(epoll::EventFlags::IN);
                stream.writable |= failed || flags.contains(epoll::EventFlags::OUT);
                self.drive_receives(handle);
                self.drive_sends(handle);
            }
            Some(Entry::Listener(listener)) => {
                listener.readable = true;
                self.drive_accepts(handle);
            }
            Some(Entry::Connecting(_)) => self.drive_connect(handle, flags),
            Some(Entry::File(_)) | None => {}
        }
    }

    fn register(&self, socket: &Socket, handle: HandleId) -> io::Result<()> {
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(handle.0);
        Ok(epoll::add(&self.epoll, socket.as_fd(), data, flags)?)
    }

    fn add_stream(&mut self, socket: Socket) -> io::Result<HandleId> {
        let handle = self.handles.insert(Entry::Stream(Streaming::new(socket)));
        let Some(Entry::Stream(stream)) = self.handles.get(handle) else {
            unreachable!("inserted in the line above")
        };
        match self.register(&stream.socket, handle) {
            Ok(()) => Ok(handle),
            Err(error) => {
                self.handles.remove(handle);
                Err(error)
            }
        }
    }

    // ---- listeners ----

    pub(super) fn add_listener(&mut self, bound: Bound) -> io::Result<HandleId> {
        let Bound { socket, address, file } = bound;
        let listening =
            Listening { socket, address, file, readable: true, accepts: VecDeque::new() };
        let handle = self.handles.insert(Entry::Listener(listening));
        let Some(Entry::Listener(listener)) = self.handles.get(handle) else {
            unreachable!("inserted in the line above")
        };
        if let Err(error) = self.register(&listener.socket, handle) {
            self.close(handle);
            return Err(error);
        }
        Ok(handle)
    }

    pub(super) fn accept(&mut self, token: Token, handle: HandleId) {
        let Some(Entry::Listener(listener)) = self.handles.get_mut(handle) else {
            return self.answer(token, Done::Accepted(Err(unknown())));
        };
        listener.accepts.push_back(token);
        self.waiting.insert(token, handle);
        self.drive_accepts(handle);
    }

    fn drive_accepts(&mut self, handle: HandleId) {
        loop {
            let Some(Entry::Listener(listener)) = self.handles.get_mut(handle) else { return };
            if !listener.readable || listener.accepts.is_empty() {
                return;
            }
            let result = match accept_once(listener) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    listener.readable = false;
                    return;
                }
                Err(error) if is_of_one_connection(&error) => continue,
                other => other,
            };
            let token = listener.accepts.pop_front().expect("looked at above");
            self.waiting.remove(&token);
            let result = result.and_then(|(socket, peer)| Ok((self.add_stream(socket)?, peer)));
            self.answer(token, Done::Accepted(result));
        }
    }

    pub(super) fn end_listener(&mut self, listener: Listening) {
        if let Some(file) = &listener.file {
            file.remove();
        }
        for token in listener.accepts {
            self.waiting.remove(&token);
            self.answer(token, Done::Accepted(Err(cancelled())));
        }
    }

    // ---- connecting ----

    pub(super) fn connect(&mut self, token: Token, address: &Address) {
        let socket = match new_socket(address, Waits::No) {
            Ok(socket) => socket,
            Err(error) => return self.answer(token, Done::Connected(Err(error))),
        };
        let connecting = Connecting { socket, address: address.clone(), token };
        let handle = self.handles.insert(Entry::Connecting(connecting));
        self.waiting.insert(token, handle);
        self.try_connect(handle);
    }

    fn try_connect(&mut self, handle: HandleId) {
        let Some(Entry::Connecting(connecting)) = self.handles.get(handle) else { return };
        let socket = &connecting.socket;
        let tried = socket_address(&connecting.address).and_then(|target| socket.connect(&target));
        match tried {
            Ok(()) => self.end_connect(handle, Ok(())),
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
                if let Err(error) = self.register(socket, handle) {
                    self.end_connect(handle, Err(error));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.retries.push(handle),
            Err(error) => self.end_connect(handle, Err(error)),
        }
    }

    pub(super) fn retry_connects(&mut self) {
        for handle in std::mem::take(&mut self.retries) {
            self.try_connect(handle);
        }
    }

    fn drive_connect(&mut self, handle: HandleId, flags: epoll::EventFlags) {
        let decided = epoll::EventFlags::OUT | epoll::EventFlags::ERR | epoll::EventFlags::HUP;
        if !flags.intersects(decided) {
            return;
        }
        let Some(Entry::Connecting(connecting)) = self.handles.get(handle) else { return };
        let result = match connecting.socket.take_error() {
            Ok(None) => Ok(()),
            Ok(Some(error)) | Err(error) => Err(error),
        };
        self.end_connect(handle, result);
    }

    fn end_connect(&mut self, handle: HandleId, result: io::Result<()>) {
        let Some(Entry::Connecting(Connecting { socket, token, .. })) = self.handles.remove(handle)
        else {
            return;
        };
        self.waiting.remove(&token);
        // Registered anew: the stream has a handle of its own.
        let _ = epoll::delete(&self.epoll, socket.as_fd());
        let result = result.and_then(|()| self.add_stream(socket));
        self.answer(token, Done::Connected(result));
    }

    pub(super) fn end_connecting(&mut self, connecting: Connecting) {
        self.waiting.remove(&connecting.token);
        self.answer(connecting.token, Done::Connected(Err(cancelled())));
    }

    // ---- streams ----

    /// Gives up a stream that nothing waits on.
    pub(super) fn detach(&mut self, handle: HandleId) -> Option<OwnedFd> {
        let Some(Entry::Stream(stream)) = self.handles.get(handle) else { return None };
        if !stream.receives.is_empty() || !stream.sends.is_empty() {
            return None;
        }
        let Some(Entry::Stream(stream)) = self.handles.remove(handle) else {
            unreachable!("looked at above")
        };
        // It fails only for a socket that is not registered, which is what is wanted.
        let _ = epoll::delete(&self.epoll, stream.socket.as_fd());
        Some(stream.socket.into())
    }

    /// Takes a socket that another driver gave up.
    pub(super) fn adopt(&mut self, socket: Socket) -> io::Result<HandleId> {
        socket.set_nonblocking(true)?;
        self.add_stream(socket)
    }

    pub(super) fn receive(&mut self, token: Token, handle: HandleId, into: Vec<u8>) {
        let Some(Entry::Stream(stream)) = self.handles.get_mut(handle) else {
            return self.answer(token, Done::Received(Err(unknown()), into));
        };
        stream.receives.push_back((token, into));
        self.waiting.insert(token, handle);
        self.drive_receives(handle);
    }

    fn drive_receives(&mut self, handle: HandleId) {
        let Some(Entry::Stream(stream)) = self.handles.get_mut(handle) else { return };
        while stream.readable && !stream.receives.is_empty() {
            let result = rustix::net::recv(
                stream.socket.as_fd(),
                self.scratch.as_mut_slice(),
                RecvFlags::empty(),
            );
            let result = match result {
                Ok((count, _)) => {
                    stream.readable = stream.ended || count == self.scratch.len();
                    Ok(count)
                }
                Err(Errno::AGAIN) => {
                    stream.readable = false;
                    return;
                }
                Err(Errno::INTR) => continue,
                Err(error) => Err(error.into()),
            };
            let (token, mut into) = stream.receives.pop_front().expect("looked at above");
            if let Ok(count) = result {
                into.extend_from_slice(&self.scratch[..count]);
            }
            self.waiting.remove(&token);
            self.ready.push((token, Done::Received(result, into)));
        }
    }

    pub(super) fn send(&mut self, token: Token, handle: HandleId, buffers: Vec<Bytes>) {
        let Some(Entry::Stream(stream)) = self.handles.get_mut(handle) else {
            return self.answer(token, Done::Sent(Err(unknown())));
        };
        stream.sends.push_back(Sending { token, buffers: buffers.into() });
        if stream.sends.len() == 1 {
            self.drive_sends(handle);
        }
    }

    fn drive_sends(&mut self, handle: HandleId) {
        let Some(Entry::Stream(stream)) = self.handles.get_mut(handle) else { return };
        while stream.writable {
            let Some(sending) = stream.sends.front_mut() else { return };
            let result = match sending.step(&stream.socket) {
                Ok(true) => Ok(()),
                Ok(false) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    stream.writable = false;
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            self.ready.push((sending.token, Done::Sent(result)));
            stream.sends.pop_front();
        }
    }

    pub(super) fn shutdown(&mut self, handle: HandleId) {
        if let Some(Entry::Stream(stream)) = self.handles.get(handle) {
            // It fails only when the peer has gone already; the next read will tell.
            let _ = stream.socket.shutdown(std::net::Shutdown::Both);
        }
    }

    pub(super) fn end_stream(&mut self, stream: Streaming) {
        for (token, into) in stream.receives {
            self.waiting.remove(&token);
            self.answer(token, Done::Received(Err(cancelled()), into));
        }
        for sending in stream.sends {
            self.answer(sending.token, Done::Sent(Err(cancelled())));
        }
    }

    /// Ends a waiting accept, connect or receive early.
    pub(super) fn cancel(&mut self, token: Token) {
        let Some(handle) = self.waiting.remove(&token) else { return };
        match self.handles.get_mut(handle) {
            Some(Entry::Listener(listener)) => {
                listener.accepts.retain(|waiting| *waiting != token);
                self.answer(token, Done::Accepted(Err(cancelled())));
            }
            Some(Entry::Stream(stream)) => {
                let at = stream.receives.iter().position(|(waiting, _)| *waiting == token);
                let at = at.expect("what waits on a stream is in its queue");
                let (_, into) = stream.receives.remove(at).expect("found in the line above");
                self.answer(token, Done::Received(Err(cancelled()), into));
            }
            Some(Entry::Connecting(_)) => self.close(handle),
            Some(Entry::File(_)) | None => unreachable!("only sockets are waited on"),
        }
    }
}

impl Streaming {
    fn new(socket: Socket) -> Streaming {
        Streaming {
            socket,
            // Registration gives an event for what is there already.
            readable: false,
            writable: true,
            ended: false,
            receives: VecDeque::new(),
            sends: VecDeque::new(),
        }
    }
}

impl Sending {
    /// Sends once; true when nothing is left.
    fn step(&mut self, socket: &Socket) -> io::Result<bool> {
        while self.buffers.front().is_some_and(Bytes::is_empty) {
            self.buffers.pop_front();
        }
        if self.buffers.is_empty() {
            return Ok(true);
        }
        let slices: Vec<IoSlice<'_>> =
            self.buffers.iter().take(SEND_SLICES_MAX).map(|bytes| IoSlice::new(bytes)).collect();
        let mut sent = socket.send_vectored_with_flags(&slices, libc::MSG_NOSIGNAL)?;
        while let Some(front) = self.buffers.front_mut() {
            if sent < front.len() {
                front.advance(sent);
                break;
            }
            sent -= front.len();
            self.buffers.pop_front();
        }
        Ok(self.buffers.is_empty())
    }
}

fn accept_once(listener: &Listening) -> io::Result<(Socket, Peer)> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let (socket, _) = listener.socket.accept4(flags)?;
    let peer = welcome(&socket, &listener.address);
    Ok((socket, peer))
}

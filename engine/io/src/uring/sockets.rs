//! Sockets of the io_uring driver.
//!
//! A multishot flight fills a stream's inbox or a listener's list of arrivals; ops are served from
//! there. Giving up an op therefore loses nothing.
//!
//! ```text
//! arm:  Idle ──launch, somebody waits──► Armed ──inbox full: cancel──► Stopping
//!        ▲                                 └── end, error, no buffers ──┐   │
//!        └────────────────────────── last completion ◄─────────────────┴───┘
//! ```

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use bytes::Bytes;
use socket2::Socket;

use super::flight::{Flight, Parcel, Sending};
use super::ring::{Completion, adopt};
use super::{Entry, State};
use crate::driver::{Done, HandleId, Token};
use crate::limits::{ARRIVED_MAX, INBOX_BYTES_MAX, READ_BYTES_MAX, SEND_SLICES_MAX};
use crate::net::Address;
use crate::system::sockets::{
    Bound, SocketFile, Waits, cancelled, is_of_one_connection, new_socket, socket_address, unknown,
    welcome,
};

/// Empty parcels kept for the next turn.
const PARCELS_KEPT_MAX: usize = 64;

/// The multishot flight of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arm {
    Idle,
    Armed(usize),
    Stopping,
}

/// A connected socket.
pub(super) struct Streaming {
    socket: Rc<Socket>,
    arm: Arm,
    /// Bytes that came and were not asked for yet.
    inbox: Vec<u8>,
    /// How the incoming direction ended, once it has.
    ended: Option<io::Result<()>>,
    touched: bool,
    receives: VecDeque<(Token, Vec<u8>)>,
    sends: VecDeque<Sending>,
    /// The flight that sends.
    sending: Option<usize>,
    /// Whether it stands in `State::senders`.
    queued: bool,
}

/// A bound socket.
pub(super) struct Listening {
    socket: Rc<Socket>,
    address: Address,
    file: Option<SocketFile>,
    arm: Arm,
    arrived: VecDeque<Socket>,
    failed: Option<io::Error>,
    accepts: VecDeque<Token>,
}

/// A socket on its way.
pub(super) struct Connecting {
    socket: Rc<Socket>,
    token: Token,
    flight: Option<usize>,
}

impl State {
    /// Serves what waits on a socket, after something has changed there.
    pub(super) fn serve(&mut self, handle: HandleId) {
        match self.handles.get_mut(handle) {
            Some(Entry::Stream(stream)) => {
                stream.touched = false;
                self.serve_receives(handle);
            }
            Some(Entry::Listener(_)) => self.serve_accepts(handle),
            _ => {}
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
            Some(Entry::Connecting(connecting)) => {
                let flight = connecting.flight.expect("what waits to connect is in flight");
                self.ring.cancel(flight);
            }
            Some(Entry::File(_)) | None => unreachable!("only sockets are waited on"),
        }
    }

    // ---- listeners ----

    pub(super) fn accept(&mut self, token: Token, handle: HandleId) {
        let Some(Entry::Listener(listener)) = self.handles.get_mut(handle) else {
            return self.answer(token, Done::Accepted(Err(unknown())));
        };
        listener.accepts.push_back(token);
        self.waiting.insert(token, handle);
        self.serve_accepts(handle);
    }

    pub(super) fn accepted(&mut self, handle: HandleId, completion: &Completion) {
        let result = completion.result().map(adopt).map(Socket::from);
        let Some(Entry::Listener(listener)) = self.handles.get_mut(handle) else { return };
        if !completion.more() {
            listener.arm = Arm::Idle;
        }
        match result {
            Ok(socket) => listener.arrived.push_back(socket),
            Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => {}
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => listener.failed = Some(error),
        }
        if let (Arm::Armed(flight), true) = (listener.arm, listener.arrived.len() >= ARRIVED_MAX) {
            listener.arm = Arm::Stopping;
            self.ring.cancel(flight);
        }
        self.touched.push(handle);
    }

    fn serve_accepts(&mut self, handle: HandleId) {
        loop {
            let Some(Entry::Listener(listener)) = self.handles.get_mut(handle) else { return };
            let Some(token) = listener.accepts.front().copied() else { return };
            let result = if let Some(socket) = listener.arrived.pop_front() {
                let peer = welcome(&socket, &listener.address);
                Ok((socket, peer))
            } else if let Some(error) = listener.failed.take() {
                Err(error)
            } else {
                if listener.arm == Arm::Idle {
                    let socket = listener.socket.clone();
                    listener.arm = Arm::Armed(self.ring.launch(Flight::Accept { handle, socket }));
                }
                return;
            };
            listener.accepts.pop_front();
            self.waiting.remove(&token);
            let result = result.map(|(socket, peer)| (self.add_stream(Rc::new(socket)), peer));
            self.answer(token, Done::Accepted(result));
        }
    }

    pub(super) fn end_listener(&mut self, listener: Listening) {
        if let Some(file) = &listener.file {
            file.remove();
        }
        if let Arm::Armed(flight) = listener.arm {
            self.ring.cancel(flight);
        }
        for token in listener.accepts {
            self.waiting.remove(&token);
            self.answer(token, Done::Accepted(Err(cancelled())));
        }
    }

    // ---- connecting ----

    pub(super) fn connect(&mut self, token: Token, address: &Address) {
        let made = new_socket(address, Waits::Yes)
            .and_then(|socket| Ok((Rc::new(socket), Box::new(socket_address(address)?))));
        let (socket, target) = match made {
            Ok(made) => made,
            Err(error) => return self.answer(token, Done::Connected(Err(error))),
        };
        let connecting = Connecting { socket: socket.clone(), token, flight: None };
        let handle = self.handles.insert(Entry::Connecting(connecting));
        let flight = self.ring.launch(Flight::Connect { handle, socket, target });
        if let Some(Entry::Connecting(connecting)) = self.handles.get_mut(handle) {
            connecting.flight = Some(flight);
        }
        self.waiting.insert(token, handle);
    }

    pub(super) fn connected(&mut self, handle: HandleId, result: io::Result<usize>) {
        let Some(Entry::Connecting(connecting)) = self.handles.remove(handle) else {
            unreachable!("a connection is kept until its flight lands")
        };
        let Connecting { socket, token, .. } = connecting;
        self.waiting.remove(&token);
        let result = result.map(|_| self.add_stream(socket));
        self.answer(token, Done::Connected(result));
    }

    // ---- streams: moving ----

    /// Gives up a stream that was never read or written.
    pub(super) fn detach(&mut self, handle: HandleId) -> Option<OwnedFd> {
        let Some(Entry::Stream(stream)) = self.handles.get(handle) else { return None };
        let untouched = stream.arm == Arm::Idle
            && stream.sending.is_none()
            && stream.inbox.is_empty()
            && stream.receives.is_empty()
            && stream.sends.is_empty()
            && Rc::strong_count(&stream.socket) == 1;
        if !untouched {
            return None;
        }
        let Some(Entry::Stream(stream)) = self.handles.remove(handle) else {
            unreachable!("looked at above")
        };
        let socket = Rc::try_unwrap(stream.socket).expect("nothing else holds it");
        Some(socket.into())
    }

    /// Takes a socket that another driver gave up.
    pub(super) fn adopt(&mut self, socket: Socket) -> io::Result<HandleId> {
        socket.set_nonblocking(false)?;
        Ok(self.add_stream(Rc::new(socket)))
    }

    // ---- streams: receiving ----

    fn add_stream(&mut self, socket: Rc<Socket>) -> HandleId {
        self.handles.insert(Entry::Stream(Streaming {
            socket,
            arm: Arm::Idle,
            inbox: Vec::new(),
            ended: None,
            touched: false,
            receives: VecDeque::new(),
            sends: VecDeque::new(),
            sending: None,
            queued: false,
        }))
    }

    pub(super) fn receive(&mut self, token: Token, handle: HandleId, into: Vec<u8>) {
        let Some(Entry::Stream(stream)) = self.handles.get_mut(handle) else {
            return self.answer(token, Done::Received(Err(unknown()), into));
        };
        stream.receives.push_back((token, into));
        self.waiting.insert(token, handle);
        self.serve_receives(handle);
    }

    pub(super) fn received(&mut self, handle: HandleId, completion: &Completion) {
        let result = completion.result();
        let stream = match self.handles.get_mut(handle) {
            Some(Entry::Stream(stream)) => Some(stream),
            _ => None,
        };
        if let Some(stream) = stream {
            if !completion.more() {
                stream.arm = Arm::Idle;
            }
            match (&result, completion.buffer()) {
                (Ok(count), Some(id)) if *count > 0 => {
                    stream.inbox.extend_from_slice(self.buffers.bytes(id, *count));
                }
                (Ok(_), _) => stream.ended = Some(Ok(())),
                (Err(error), _) => match error.raw_os_error() {
                    // No buffer was left, or we stopped it: it is armed again when asked for.
                    Some(libc::ENOBUFS | libc::ECANCELED | libc::EINTR | libc::EAGAIN) => {}
                    _ => stream.ended = result.map(drop).err().map(Err),
                },
            }
            if let (Arm::Armed(flight), true) = (stream.arm, stream.inbox.len() >= INBOX_BYTES_MAX)
            {
                stream.arm = Arm::Stopping;
                self.ring.cancel(flight);
            }
            if !std::mem::replace(&mut stream.touched, true) {
                self.touched.push(handle);
            }
        }
        if let Some(id) = completion.buffer() {
            self.buffers.lend(id);
        }
    }

    fn serve_receives(&mut self, handle: HandleId) {
        let Some(Entry::Stream(stream)) = self.handles.get_mut(handle) else { return };
        while !stream.receives.is_empty() {
            let result = if !stream.inbox.is_empty() {
                Ok(stream.inbox.len().min(READ_BYTES_MAX))
            } else if let Some(ended) = &mut stream.ended {
                // An error is told once; after it the stream is at its end.
                std::mem::replace(ended, Ok(())).map(|()| 0)
            } else {
                if stream.arm == Arm::Idle {
                    let socket = stream.socket.clone();
                    stream.arm = Arm::Armed(self.ring.launch(Flight::Receive { handle, socket }));
                }
                return;
            };
            let (token, mut into) = stream.receives.pop_front().expect("looked at above");
            if let Ok(count) = result {
                stream.hand_over(count, &mut into);
            }
            self.waiting.remove(&token);
            self.ready.push((token, Done::Received(result, into)));
        }
    }

    // ---- streams: sending ----

    pub(super) fn send(&mut self, token: Token, handle: HandleId, mut buffers: Vec<Bytes>) {
        let Some(Entry::Stream(stream)) = self.handles.get_mut(handle) else {
            return self.answer(token, Done::Sent(Err(unknown())));
        };
        buffers.retain(|bytes| !bytes.is_empty());
        stream.sends.push_back(Sending { token, buffers: buffers.into() });
        self.queue_sender(handle);
    }

    fn queue_sender(&mut self, handle: HandleId) {
        let Some(Entry::Stream(stream)) = self.handles.get_mut(handle) else { return };
        if stream.sending.is_none() && !stream.sends.is_empty() && !stream.queued {
            stream.queued = true;
            self.senders.push(handle);
        }
    }

    /// Launches one message for each stream that has something to send.
    pub(super) fn send_parcels(&mut self) {
        for handle in std::mem::take(&mut self.senders) {
            let Some(Entry::Stream(stream)) = self.handles.get_mut(handle) else { continue };
            stream.queued = false;
            let mut parcel = self.parcels.pop().unwrap_or_default();
            let mut slices = 0;
            while let Some(send) = stream.sends.front() {
                if slices > 0 && slices + send.buffers.len() > SEND_SLICES_MAX {
                    break;
                }
                slices += send.buffers.len();
                parcel.sends.extend(stream.sends.pop_front());
            }
            if slices == 0 {
                self.sent(handle, parcel, Ok(0));
                continue;
            }
            let socket = stream.socket.clone();
            let flight = self.ring.launch(Flight::Send { handle, socket, parcel });
            stream.sending = Some(flight);
        }
    }

    pub(super) fn sent(&mut self, handle: HandleId, mut parcel: Parcel, result: io::Result<usize>) {
        match result {
            Ok(count) => {
                for token in parcel.advance(count) {
                    self.ready.push((token, Done::Sent(Ok(()))));
                }
            }
            Err(error) if super::is_interrupted(&error) => {}
            Err(error) => {
                for send in parcel.sends.drain(..) {
                    self.ready.push((send.token, Done::Sent(Err(same(&error)))));
                }
            }
        }
        match self.handles.get_mut(handle) {
            Some(Entry::Stream(stream)) => {
                stream.sending = None;
                while let Some(send) = parcel.sends.pop_back() {
                    stream.sends.push_front(send);
                }
                self.queue_sender(handle);
            }
            _ => {
                for send in parcel.sends.drain(..) {
                    self.ready.push((send.token, Done::Sent(Err(cancelled()))));
                }
            }
        }
        if self.parcels.len() < PARCELS_KEPT_MAX {
            self.parcels.push(parcel);
        }
    }

    pub(super) fn shutdown(&mut self, handle: HandleId) {
        if let Some(Entry::Stream(stream)) = self.handles.get(handle) {
            // It fails only when the peer has gone already; the next read will tell.
            let _ = stream.socket.shutdown(std::net::Shutdown::Both);
        }
    }

    pub(super) fn end_stream(&mut self, stream: Streaming) {
        if let Arm::Armed(flight) = stream.arm {
            self.ring.cancel(flight);
        }
        if let Some(flight) = stream.sending {
            self.ring.cancel(flight);
        }
        for (token, into) in stream.receives {
            self.waiting.remove(&token);
            self.answer(token, Done::Received(Err(cancelled()), into));
        }
        for send in stream.sends {
            self.answer(send.token, Done::Sent(Err(cancelled())));
        }
    }
}

impl Streaming {
    /// Moves the first `count` bytes of the inbox to the end of `into`; the whole of it without a
    /// copy where that is possible.
    fn hand_over(&mut self, count: usize, into: &mut Vec<u8>) {
        if count == self.inbox.len() {
            if into.is_empty() {
                std::mem::swap(&mut self.inbox, into);
                return;
            }
            into.append(&mut self.inbox);
        } else {
            into.extend_from_slice(&self.inbox[..count]);
            self.inbox.drain(..count);
        }
    }
}

impl Listening {
    pub(super) fn new(bound: Bound) -> Listening {
        let Bound { socket, address, file } = bound;
        Listening {
            socket: Rc::new(socket),
            address,
            file,
            arm: Arm::Idle,
            arrived: VecDeque::new(),
            failed: None,
            accepts: VecDeque::new(),
        }
    }
}

/// One error for several sends.
fn same(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => error.kind().into(),
    }
}

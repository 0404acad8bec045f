//! Operations in the kernel, with all the memory and descriptors they use.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use io_uring::{opcode, squeue, types};
use socket2::{SockAddr, Socket};

use super::buffers::GROUP;
use crate::buffer::AlignedBuffer;
use crate::disk::Durability;
use crate::driver::{HandleId, Token};
use crate::limits::SEND_SLICES_MAX;
use crate::system::files::{SharedFile, write_flags};
use crate::system::wake::WakeLine;

/// One operation in the kernel. Everything an SQE points to lies on the heap behind these fields,
/// so a flight may be moved while it is in the air.
pub(super) enum Flight {
    Write(Writing),
    Read(Reading),
    Sync {
        token: Token,
        file: SharedFile,
    },
    Connect {
        handle: HandleId,
        socket: Rc<Socket>,
        target: Box<SockAddr>,
    },
    /// Multishot.
    Accept {
        handle: HandleId,
        socket: Rc<Socket>,
    },
    /// Multishot, into lent buffers.
    Receive {
        handle: HandleId,
        socket: Rc<Socket>,
    },
    Send {
        handle: HandleId,
        socket: Rc<Socket>,
        parcel: Parcel,
    },
    /// Multishot poll of the wake line.
    Wake {
        line: Arc<WakeLine>,
    },
}

pub(super) struct Writing {
    pub(super) token: Token,
    pub(super) file: SharedFile,
    pub(super) buffer: AlignedBuffer,
    pub(super) offset: u64,
    pub(super) durability: Durability,
    /// Bytes written by an earlier, short try.
    pub(super) written: usize,
}

pub(super) struct Reading {
    pub(super) token: Token,
    pub(super) file: SharedFile,
    pub(super) buffer: AlignedBuffer,
    pub(super) offset: u64,
    /// Bytes read by earlier tries.
    pub(super) filled: usize,
}

/// Bytes of one send of a task.
pub(super) struct Sending {
    pub(super) token: Token,
    pub(super) buffers: VecDeque<Bytes>,
}

/// What one stream sends in one turn: the first bytes of its sends, as one message.
#[derive(Default)]
pub(super) struct Parcel {
    pub(super) sends: VecDeque<Sending>,
    slices: Vec<libc::iovec>,
    header: Option<Box<libc::msghdr>>,
}

impl Flight {
    /// The submission of this flight. It points into memory that `self` owns (R1).
    pub(super) fn entry(&mut self) -> squeue::Entry {
        match self {
            Flight::Write(writing) => {
                let rest = &writing.buffer[writing.written..];
                let flags = write_flags(writing.durability).bits();
                opcode::Write::new(fd(&writing.file), rest.as_ptr(), length(rest.len()))
                    .offset(past(writing.offset, writing.written))
                    .rw_flags(i32::try_from(flags).expect("RWF_DSYNC is a small number"))
                    .build()
            }
            Flight::Read(reading) => {
                let rest = &mut reading.buffer[reading.filled..];
                let (start, len) = (rest.as_mut_ptr(), length(rest.len()));
                opcode::Read::new(fd(&reading.file), start, len)
                    .offset(past(reading.offset, reading.filled))
                    .build()
            }
            Flight::Sync { file, .. } => {
                opcode::Fsync::new(fd(file)).flags(types::FsyncFlags::DATASYNC).build()
            }
            Flight::Connect { socket, target, .. } => {
                opcode::Connect::new(fd(socket), target.as_ptr().cast(), target.len()).build()
            }
            Flight::Accept { socket, .. } => {
                opcode::AcceptMulti::new(fd(socket)).flags(libc::SOCK_CLOEXEC).build()
            }
            Flight::Receive { socket, .. } => opcode::RecvMulti::new(fd(socket), GROUP).build(),
            Flight::Send { socket, parcel, .. } => parcel.entry(socket),
            Flight::Wake { line } => {
                let events = u32::try_from(libc::POLLIN).expect("a flag");
                opcode::PollAdd::new(types::Fd(line.event().as_raw_fd()), events)
                    .multi(true)
                    .build()
            }
        }
    }

    /// Whether it ends in bounded time without being cancelled.
    pub(super) fn ends_by_itself(&self) -> bool {
        matches!(self, Flight::Write(_) | Flight::Read(_) | Flight::Sync { .. })
    }
}

impl Parcel {
    /// MSG_WAITALL: the kernel goes on after a partial send, without a turn of ours in between.
    fn entry(&mut self, socket: &Rc<Socket>) -> squeue::Entry {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let mut slices = self.sends.iter().flat_map(|send| &send.buffers);
        if let (Some(only), None) = (slices.next(), slices.next()) {
            return opcode::Send::new(fd(socket), only.as_ptr(), length(only.len()))
                .flags(flags)
                .build();
        }
        self.slices.clear();
        let slices = self.sends.iter().flat_map(|send| &send.buffers).take(SEND_SLICES_MAX);
        self.slices.extend(slices.map(|bytes| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        }));
        let header = self.header.get_or_insert_with(|| Box::new(empty_header()));
        header.msg_iov = self.slices.as_mut_ptr();
        header.msg_iovlen = self.slices.len();
        let flags = u32::try_from(flags).expect("flags are positive");
        opcode::SendMsg::new(fd(socket), ptr::from_ref(&**header)).flags(flags).build()
    }

    /// Takes off what was sent; the sends that are whole, in their order.
    pub(super) fn advance(&mut self, mut sent: usize) -> Vec<Token> {
        let mut whole = Vec::new();
        while let Some(send) = self.sends.front_mut() {
            while let Some(front) = send.buffers.front_mut() {
                if sent < front.len() {
                    front.advance(sent);
                    return whole;
                }
                sent -= front.len();
                send.buffers.pop_front();
            }
            whole.push(send.token);
            self.sends.pop_front();
        }
        whole
    }
}

fn empty_header() -> libc::msghdr {
    // SAFETY: zero is a valid value of each field: null pointers and counts.
    // JUSTIFICATION: the struct has private padding and no constructor.
    unsafe { std::mem::zeroed() }
}

fn fd(file: &impl AsRawFd) -> types::Fd {
    types::Fd(file.as_raw_fd())
}

fn past(offset: u64, count: usize) -> u64 {
    offset.saturating_add(u64::try_from(count).unwrap_or(u64::MAX))
}

/// The system cuts a longer operation at 2 GiB anyhow; it then counts as short.
fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Partial sends end exactly the sends they cover, inside and between slices.
    #[test]
    fn parcels_advance_across_slices_and_sends() {
        let send = |token, parts: &[&'static str]| Sending {
            token: Token(token),
            buffers: parts.iter().map(|part| Bytes::from_static(part.as_bytes())).collect(),
        };
        let mut parcel = Parcel::default();
        parcel.sends.push_back(send(1, &["abc", "de"]));
        parcel.sends.push_back(send(2, &["f"]));
        parcel.sends.push_back(send(3, &["ghij"]));
        assert_eq!(parcel.advance(4), []);
        assert_eq!(parcel.sends[0].buffers[0], "e");
        assert_eq!(parcel.advance(2), [Token(1), Token(2)]);
        assert_eq!(parcel.advance(3), []);
        assert_eq!(parcel.sends[0].buffers[0], "j");
        assert_eq!(parcel.advance(1), [Token(3)]);
        assert!(parcel.sends.is_empty());
    }
}

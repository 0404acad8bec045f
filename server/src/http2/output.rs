//! Encoded bytes on their way to the socket: small pieces share one buffer, large ones are passed
//! on without a copy.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::limits::{COPIED_PAYLOAD_BYTES_MAX, OUTPUT_SLICES_MAX};

/// Room made for small pieces at once.
const TAIL_BYTES: usize = 4 * 1024;

/// A buffer of small pieces is closed above this size: one that only grew would be copied and
/// copied while its client does not read.
const TAIL_BYTES_MAX: usize = 32 * 1024;

/// Encoded output, in order.
#[derive(Debug, Default)]
pub struct Output {
    whole: VecDeque<Bytes>,
    tail: BytesMut,
    size: usize,
}

impl Output {
    /// How many bytes wait.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Appends small pieces: `write` puts them at the end of the buffer it is given.
    pub fn small(&mut self, write: impl FnOnce(&mut BytesMut)) {
        if self.tail.capacity() - self.tail.len() < 256 {
            if self.tail.len() >= TAIL_BYTES_MAX {
                self.whole.push_back(self.tail.split().freeze());
            }
            self.tail.reserve(TAIL_BYTES);
        }
        let before = self.tail.len();
        write(&mut self.tail);
        self.size += self.tail.len() - before;
    }

    /// Appends payload, copying it only when it is small.
    pub fn payload(&mut self, bytes: Bytes) {
        if bytes.len() <= COPIED_PAYLOAD_BYTES_MAX {
            return self.copied(&bytes);
        }
        self.size += bytes.len();
        if !self.tail.is_empty() {
            self.whole.push_back(self.tail.split().freeze());
        }
        self.whole.push_back(bytes);
    }

    /// Appends a copy of payload.
    pub fn copied(&mut self, bytes: &[u8]) {
        self.size += bytes.len();
        self.tail.extend_from_slice(bytes);
    }

    /// Moves what one gathered write takes into `into`.
    pub fn take(&mut self, into: &mut Vec<Bytes>) {
        while into.len() < OUTPUT_SLICES_MAX {
            let next = match self.whole.pop_front() {
                Some(next) => next,
                None if self.tail.is_empty() => return,
                None => self.tail.split().freeze(),
            };
            self.size -= next.len();
            into.push(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Order is kept, small pieces are joined, a large one is the very same memory.
    #[test]
    fn joins_small_and_passes_large() {
        let mut output = Output::default();
        output.small(|tail| tail.extend_from_slice(b"ab"));
        output.payload(Bytes::from_static(b"cd"));
        let large = Bytes::from(vec![7_u8; COPIED_PAYLOAD_BYTES_MAX + 1]);
        output.payload(large.clone());
        output.small(|tail| tail.extend_from_slice(b"ef"));
        assert_eq!(output.size(), 4 + large.len() + 2);
        let mut taken = Vec::new();
        output.take(&mut taken);
        assert_eq!(taken.len(), 3);
        assert_eq!((&taken[0][..], &taken[2][..]), (&b"abcd"[..], &b"ef"[..]));
        assert_eq!(taken[1].as_ptr(), large.as_ptr());
        assert_eq!(output.size(), 0);
    }
}

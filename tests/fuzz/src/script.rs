//! How a structured target reads its input: as a script. What is missing at the end reads as zero,
//! so that every input is a script.

/// The rest of a script.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    /// The whole input.
    #[must_use]
    pub fn new(input: &'a [u8]) -> Script<'a> {
        Script(input)
    }

    /// Nothing is left.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// The next two bytes, big-endian.
    pub fn short(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// The next four bytes, big-endian.
    pub fn word(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// The next `count` bytes, or as many as are left.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// As many bytes as the next byte says.
    pub fn piece(&mut self) -> &'a [u8] {
        let count = usize::from(self.byte());
        self.take(count)
    }

    /// As many bytes as the next two bytes say.
    pub fn long_piece(&mut self) -> &'a [u8] {
        let count = usize::from(self.short());
        self.take(count)
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

/// Appends a piece as [`Script::long_piece`] reads it.
///
/// # Panics
/// It is longer than two bytes can say.
pub fn put_long_piece(out: &mut Vec<u8>, piece: &[u8]) {
    let count = u16::try_from(piece.len()).expect("a seed's piece is short");
    out.extend(count.to_be_bytes());
    out.extend(piece);
}

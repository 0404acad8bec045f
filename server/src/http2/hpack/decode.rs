//! Decoding of header blocks.

use bytes::Bytes;

use super::huffman;
use super::table::{Table, field_size};
use crate::limits::HEADER_LIST_BYTES_MAX;

/// The block breaks RFC 7541: the connection's table is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionError;

/// Decodes the blocks of one connection, in the order they came.
#[derive(Debug, Default)]
pub struct Decoder {
    table: Table,
    scratch: Vec<u8>,
}

impl Decoder {
    /// A number that changes whenever the dynamic table does.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.table.changes()
    }

    /// Decodes a whole block and appends its fields. False: the list is longer than we take, and
    /// only the table was kept up to date.
    ///
    /// # Errors
    /// The block is malformed: a connection error.
    pub fn decode(
        &mut self,
        block: &[u8],
        fields: &mut Vec<(Bytes, Bytes)>,
    ) -> Result<bool, CompressionError> {
        let mut rest = Reader(block);
        let mut list_size = 0_usize;
        let mut sizes_allowed = true;
        while let Some(first) = rest.peek() {
            if first & 0xe0 == 0x20 {
                let size = rest.integer(5)?;
                if !sizes_allowed || !self.table.resize(size) {
                    return Err(CompressionError);
                }
                continue;
            }
            sizes_allowed = false;
            let (name, value) = self.field(first, &mut rest)?;
            list_size = list_size.saturating_add(field_size(&name, &value));
            if list_size <= HEADER_LIST_BYTES_MAX {
                fields.push((name, value));
            }
        }
        Ok(list_size <= HEADER_LIST_BYTES_MAX)
    }

    fn field(
        &mut self,
        first: u8,
        rest: &mut Reader<'_>,
    ) -> Result<(Bytes, Bytes), CompressionError> {
        if first & 0x80 != 0 {
            let index = rest.integer(7)?;
            return self.table.get(index).ok_or(CompressionError);
        }
        let indexed = first & 0x40 != 0;
        let name = match rest.integer(if indexed { 6 } else { 4 })? {
            0 => self.string(rest)?,
            index => self.table.get(index).ok_or(CompressionError)?.0,
        };
        let value = self.string(rest)?;
        if indexed {
            self.table.insert(name.clone(), value.clone());
        }
        Ok((name, value))
    }

    /// A string is copied out, so that a long-lived field does not hold a whole receive buffer.
    fn string(&mut self, rest: &mut Reader<'_>) -> Result<Bytes, CompressionError> {
        let huffman = rest.peek().ok_or(CompressionError)? & 0x80 != 0;
        let length = rest.integer(7)?;
        let bytes = rest.take(length)?;
        if !huffman {
            return Ok(Bytes::copy_from_slice(bytes));
        }
        self.scratch.clear();
        huffman::decode(bytes, &mut self.scratch).ok_or(CompressionError)?;
        Ok(Bytes::copy_from_slice(&self.scratch))
    }
}

/// A checked reader of a block.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn byte(&mut self) -> Result<u8, CompressionError> {
        let (byte, rest) = self.0.split_first().ok_or(CompressionError)?;
        self.0 = rest;
        Ok(*byte)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], CompressionError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(CompressionError)?;
        self.0 = rest;
        Ok(taken)
    }

    /// An integer with a prefix of `bits` bits. Source: RFC 7541 5.1. Above 2^28 it is refused.
    fn integer(&mut self, bits: u32) -> Result<usize, CompressionError> {
        let mask = (1_u8 << bits) - 1;
        let prefix = self.byte()? & mask;
        let mut value = usize::from(prefix);
        if prefix < mask {
            return Ok(value);
        }
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(CompressionError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
        digits.chunks(2).map(|digits| pair(digits).unwrap()).collect()
    }

    fn check(decoder: &mut Decoder, block: &str, expected: &[(&str, &str)]) {
        let mut fields = Vec::new();
        assert_eq!(decoder.decode(&hex(block), &mut fields), Ok(true));
        let fields: Vec<(&str, &str)> = fields
            .iter()
            .map(|(name, value)| {
                (std::str::from_utf8(name).unwrap(), std::str::from_utf8(value).unwrap())
            })
            .collect();
        assert_eq!(fields, expected);
    }

    const FIRST: &[(&str, &str)] = &[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "www.example.com"),
    ];
    const SECOND: &[(&str, &str)] = &[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "www.example.com"),
        ("cache-control", "no-cache"),
    ];
    const THIRD: &[(&str, &str)] = &[
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ];

    /// RFC 7541 C.3: three requests without Huffman coding on one connection.
    #[test]
    fn requests_without_huffman() {
        let mut decoder = Decoder::default();
        let block = "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d";
        check(&mut decoder, block, FIRST);
        check(&mut decoder, "8286 84be 5808 6e6f 2d63 6163 6865", SECOND);
        let block = "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65";
        check(&mut decoder, block, THIRD);
    }

    /// RFC 7541 C.4: the same with Huffman coding.
    #[test]
    fn requests_with_huffman() {
        let mut decoder = Decoder::default();
        check(&mut decoder, "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", FIRST);
        check(&mut decoder, "8286 84be 5886 a8eb 1064 9cbf", SECOND);
        let block = "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf";
        check(&mut decoder, block, THIRD);
    }

    /// Broken blocks are errors: truncated, index out of range, index 0, a size update that comes
    /// late or is too large, an integer without end.
    #[test]
    fn broken_blocks() {
        let broken = ["41", "410f77", "be", "80", "8220", "3fe2 1f", "ffff ffff ffff ffff", "0003"];
        for block in broken {
            let mut fields = Vec::new();
            let result = Decoder::default().decode(&hex(block), &mut fields);
            assert_eq!(result, Err(CompressionError), "{block}");
        }
    }

    /// A list above the limit is reported, and the table still learns from it.
    #[test]
    fn long_lists_keep_the_table_right() {
        let mut decoder = Decoder::default();
        let mut block = hex("4001 6101 62");
        block.extend(std::iter::repeat_n(0xbe, HEADER_LIST_BYTES_MAX / 34 + 1));
        let mut fields = Vec::new();
        assert_eq!(decoder.decode(&block, &mut fields), Ok(false));
        check(&mut decoder, "be", &[("a", "b")]);
    }
}

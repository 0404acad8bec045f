//! The Huffman code of header strings. Source: RFC 7541 appendix B.
//!
//! The code is canonical: codes of one length are consecutive, in the order of their symbols, and
//! follow those of the next shorter length. The lengths alone therefore define it.

/// Code length of each symbol in bits. The end-of-string symbol, 256, has 30.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];
const LENGTH_MAX: usize = 30;
const END_OF_STRING: u16 = 256;

/// The code, made from the lengths when the program is compiled.
struct Code {
    /// By the next eight bits: symbol and length, or length 0 where the code is longer.
    short: [(u16, u8); 256],
    /// First code of each length.
    first: [u32; LENGTH_MAX + 1],
    /// How many codes of each length there are.
    count: [u32; LENGTH_MAX + 1],
    /// Where the symbols of each length begin in `symbols`.
    start: [u32; LENGTH_MAX + 1],
    /// Symbols in the order of their codes.
    symbols: [u16; 257],
}

static CODE: Code = Code::build();

impl Code {
    #[allow(clippy::cast_possible_truncation, reason = "symbols are below 257, lengths below 31")]
    const fn build() -> Code {
        let mut code = Code {
            short: [(0, 0); 256],
            first: [0; LENGTH_MAX + 1],
            count: [0; LENGTH_MAX + 1],
            start: [0; LENGTH_MAX + 1],
            symbols: [0; 257],
        };
        let (mut length, mut next, mut placed) = (1, 0_u32, 0_usize);
        while length <= LENGTH_MAX {
            next <<= 1;
            code.first[length] = next;
            code.start[length] = placed as u32;
            let mut symbol = 0;
            while symbol < 257 {
                if LENGTHS[symbol] as usize == length {
                    code.symbols[placed] = symbol as u16;
                    if length <= 8 {
                        let mut low = 0;
                        while low < 1 << (8 - length) {
                            let index = (next << (8 - length)) as usize | low;
                            code.short[index] = (symbol as u16, length as u8);
                            low += 1;
                        }
                    }
                    next += 1;
                    placed += 1;
                }
                symbol += 1;
            }
            code.count[length] = next - code.first[length];
            length += 1;
        }
        code
    }

    /// The symbol whose code starts the `have` low bits of `bits`, with its length.
    fn symbol(&self, bits: u64, have: u32) -> Option<(u16, u32)> {
        for length in 9..=have.min(30) {
            let index = usize::try_from(length).ok()?;
            let value = u32::try_from((bits >> (have - length)) & ((1 << length) - 1)).ok()?;
            let offset = value.wrapping_sub(self.first[index]);
            if offset < self.count[index] {
                let place = usize::try_from(self.start[index] + offset).ok()?;
                return Some((self.symbols[place], length));
            }
        }
        None
    }
}

/// Decodes a string and appends it to `into`; `None` when it is no valid code.
#[must_use]
pub fn decode(mut from: &[u8], into: &mut Vec<u8>) -> Option<()> {
    let (mut bits, mut have) = (0_u64, 0_u32);
    loop {
        while have <= 48 {
            let Some((byte, rest)) = from.split_first() else { break };
            bits = (bits << 8) | u64::from(*byte);
            have += 8;
            from = rest;
        }
        if have == 0 {
            return Some(());
        }
        let index = if have >= 8 {
            (bits >> (have - 8)) & 0xff
        } else {
            ((bits << (8 - have)) | ((1 << (8 - have)) - 1)) & 0xff
        };
        let (mut symbol, length) = CODE.short[usize::try_from(index).ok()?];
        let mut length = u32::from(length);
        if length == 0 || length > have {
            match CODE.symbol(bits, have) {
                Some(found) => (symbol, length) = found,
                // What is left can only be padding: fewer than eight bits, all ones.
                None if have < 8 && bits & ((1 << have) - 1) == (1 << have) - 1 => return Some(()),
                None => return None,
            }
        }
        if symbol == END_OF_STRING {
            return None;
        }
        into.push(u8::try_from(symbol).ok()?);
        have -= length;
    }
}

/// Encodes a string; for tests, since what we send is never Huffman-coded.
#[cfg(test)]
pub fn encode(from: &[u8]) -> Vec<u8> {
    let mut into = Vec::new();
    let (mut bits, mut have) = (0_u64, 0);
    for byte in from {
        let length = usize::from(LENGTHS[usize::from(*byte)]);
        let range = usize::try_from(CODE.start[length]).unwrap()..;
        let offset = CODE.symbols[range].iter().position(|symbol| *symbol == u16::from(*byte));
        let code = u64::from(CODE.first[length]) + u64::try_from(offset.unwrap()).unwrap();
        bits = (bits << length) | code;
        have += length;
        while have >= 8 {
            have -= 8;
            into.push(u8::try_from((bits >> have) & 0xff).unwrap());
        }
    }
    if have > 0 {
        let padding = (1 << (8 - have)) - 1;
        into.push(u8::try_from(((bits << (8 - have)) | padding) & 0xff).unwrap());
    }
    into
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(from: &[u8]) -> Option<Vec<u8>> {
        let mut into = Vec::new();
        decode(from, &mut into).map(|()| into)
    }

    /// The code is complete: the last one, of the end of string, is thirty ones.
    #[test]
    fn code_is_complete() {
        assert_eq!(CODE.first[30] + CODE.count[30], 1 << 30);
        assert_eq!(CODE.symbols[256], END_OF_STRING);
    }

    /// RFC 7541 C.4.1 and C.6.1.
    #[test]
    fn vectors() {
        let coded = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(decoded(&coded).unwrap(), b"www.example.com");
        assert_eq!(decoded(&[0x64, 0x02]).unwrap(), b"302");
        assert_eq!(encode(b"www.example.com"), coded);
    }

    /// Every byte value survives the trip, alone and together.
    #[test]
    fn every_symbol() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decoded(&encode(&all)).unwrap(), all);
        for byte in all {
            assert_eq!(decoded(&encode(&[byte])).unwrap(), [byte]);
        }
    }

    /// Padding of a whole byte, padding with zeros and an end-of-string symbol are refused.
    #[test]
    fn wrong_endings() {
        assert_eq!(decoded(&[0x64, 0x02, 0xff]), None);
        assert_eq!(decoded(&[0x18]), None);
        assert_eq!(decoded(&[0x1f]).unwrap(), b"a");
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), None);
    }
}

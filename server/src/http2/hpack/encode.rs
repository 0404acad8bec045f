//! Encoding of header blocks: static names and literals only, so that a block once encoded is
//! right on every connection and at any time.

use bytes::{BufMut, BytesMut};

/// Appends `:status`.
pub fn put_status(out: &mut BytesMut, status: u16) {
    let indexed = match status {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            put_indexed_name(out, 8, status.to_string().as_bytes());
            return;
        }
    };
    out.put_u8(0x80 | indexed);
}

/// Appends `content-type`.
pub fn put_content_type(out: &mut BytesMut, value: &[u8]) {
    put_indexed_name(out, 31, value);
}

/// Appends any field. The name is lower case.
pub fn put_field(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    out.put_u8(0);
    put_string(out, name);
    put_string(out, value);
}

/// A literal without indexing whose name is in the static table.
fn put_indexed_name(out: &mut BytesMut, index: usize, value: &[u8]) {
    put_integer(out, 0, 4, index);
    put_string(out, value);
}

fn put_string(out: &mut BytesMut, bytes: &[u8]) {
    put_integer(out, 0, 7, bytes.len());
    out.put_slice(bytes);
}

/// An integer with a prefix of `bits` bits below `flags`. Source: RFC 7541 5.1.
fn put_integer(out: &mut BytesMut, flags: u8, bits: u32, value: usize) {
    let mask = (1_u8 << bits) - 1;
    match u8::try_from(value) {
        Ok(value) if value < mask => out.put_u8(flags | value),
        _ => {
            out.put_u8(flags | mask);
            let mut rest = value - usize::from(mask);
            while rest >= 0x80 {
                out.put_u8(0x80 | u8::try_from(rest & 0x7f).expect("seven bits fit a byte"));
                rest >>= 7;
            }
            out.put_u8(u8::try_from(rest).expect("the rest is below 128"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Decoder;
    use super::*;

    /// What is encoded is decoded to the same, short and long.
    #[test]
    fn decoder_reads_it() {
        let mut out = BytesMut::new();
        let long = vec![b'x'; 5000];
        put_status(&mut out, 200);
        put_status(&mut out, 415);
        put_content_type(&mut out, b"application/grpc");
        put_field(&mut out, b"grpc-status", b"0");
        put_field(&mut out, b"long", &long);
        let mut fields = Vec::new();
        assert_eq!(Decoder::default().decode(&out, &mut fields), Ok(true));
        let expected: [(&[u8], &[u8]); 5] = [
            (b":status", b"200"),
            (b":status", b"415"),
            (b"content-type", b"application/grpc"),
            (b"grpc-status", b"0"),
            (b"long", &long),
        ];
        for ((name, value), expected) in fields.iter().zip(expected) {
            assert_eq!((&name[..], &value[..]), expected);
        }
    }
}

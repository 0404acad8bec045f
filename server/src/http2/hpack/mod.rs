//! HPACK: decoding with the dynamic table and Huffman, encoding without either.
//! Source: RFC 7541.

mod cache;
mod decode;
pub mod encode;
mod huffman;
mod table;

pub use self::cache::BlockCache;
pub use self::decode::{CompressionError, Decoder};

//! Limits of HTTP/1 connections.

use std::time::Duration;

/// Bytes of a request line and its fields.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Fields of a request.
pub const FIELDS_MAX: usize = 128;
/// Bytes of a body: the largest gRPC message, with room for its JSON shape.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Time for a head to arrive once its first byte is there, and for each step of a body.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);
/// Time a connection may wait for its next request.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(300);
/// Time a client may take to accept an answer.
pub const WRITE_TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes of one chunk of a chunked answer.
pub const CHUNK_BYTES: usize = 32 * 1024;

const _: () = assert!(HEAD_BYTES_MAX < BODY_BYTES_MAX);

//! gRPC over HTTP/2: statuses, message framing, timeouts.

pub mod status;

pub use self::status::{Code, Status};

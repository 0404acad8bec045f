//! gRPC over HTTP/2: request heads, message framing, statuses. Source: the gRPC over HTTP/2
//! protocol text and etcd's server.

pub mod framing;
pub mod request;
pub mod respond;
pub mod status;

pub use self::framing::{Assembler, Message, unmarshal};
pub use self::request::{Encoding, Kind, Request, Timeout};
pub use self::status::{Code, Status};

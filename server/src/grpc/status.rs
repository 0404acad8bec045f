//! gRPC statuses and how they look in trailers. Source: the gRPC over HTTP/2 protocol text.

use std::borrow::Cow;
use std::fmt;

/// A status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are gRPC's")]
#[repr(u8)]
pub enum Code {
    Ok = 0,
    Canceled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl Code {
    /// The code as a number.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The code's name as gRPC metrics spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Code::Ok => "OK",
            Code::Canceled => "Canceled",
            Code::Unknown => "Unknown",
            Code::InvalidArgument => "InvalidArgument",
            Code::DeadlineExceeded => "DeadlineExceeded",
            Code::NotFound => "NotFound",
            Code::AlreadyExists => "AlreadyExists",
            Code::PermissionDenied => "PermissionDenied",
            Code::ResourceExhausted => "ResourceExhausted",
            Code::FailedPrecondition => "FailedPrecondition",
            Code::Aborted => "Aborted",
            Code::OutOfRange => "OutOfRange",
            Code::Unimplemented => "Unimplemented",
            Code::Internal => "Internal",
            Code::Unavailable => "Unavailable",
            Code::DataLoss => "DataLoss",
            Code::Unauthenticated => "Unauthenticated",
        }
    }
}

/// How a call ended: a code and, unless it is `Ok`, a text for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The code.
    pub code: Code,
    /// The text; clients compare it, so it is etcd's to the letter.
    pub message: Cow<'static, str>,
}

impl Status {
    /// Success.
    pub const OK: Status = Status { code: Code::Ok, message: Cow::Borrowed("") };

    /// A status with a text.
    #[must_use]
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Status {
        Status { code, message: message.into() }
    }

    /// What a caller gets whose deadline has passed.
    #[must_use]
    pub fn deadline_exceeded() -> Status {
        Status::new(Code::DeadlineExceeded, "context deadline exceeded")
    }
}

impl fmt::Display for Status {
    /// As Go clients print it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rpc error: code = {} desc = {}", self.code.name(), self.message)
    }
}

/// Percent-encodes a message for the `grpc-message` trailer: everything but printable ASCII, and
/// the percent sign itself.
#[must_use]
pub fn encode_message(message: &str) -> Cow<'_, str> {
    let plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'%';
    if message.bytes().all(plain) {
        return Cow::Borrowed(message);
    }
    let mut encoded = String::with_capacity(message.len() + 16);
    for byte in message.bytes() {
        if plain(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    Cow::Owned(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only what a header value cannot carry is encoded, byte by byte.
    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(encode_message("etcdserver: no leader"), "etcdserver: no leader");
        assert_eq!(encode_message("50% \u{e9}\n"), "50%25 %C3%A9%0A");
    }

    /// A status prints as Go clients print it, which watch cancel reasons repeat.
    #[test]
    fn prints_like_go() {
        let status = Status::new(Code::PermissionDenied, "etcdserver: permission denied");
        let text = "rpc error: code = PermissionDenied desc = etcdserver: permission denied";
        assert_eq!(status.to_string(), text);
    }
}

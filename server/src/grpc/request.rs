//! What the head of a request asks for.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use ringbolt_proto::method::{self, METHODS, Method};

use super::status::{Code, Status};
use crate::http2::Head;

/// How the client compresses its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Not at all.
    Identity,
    /// With gzip, message by message.
    Gzip,
}

/// How long the client waits, from when it asked.
pub type Timeout = Duration;

/// A request's head, understood. Repeated heads share one.
#[derive(Debug)]
pub struct Request {
    /// The head itself.
    pub head: Rc<Head>,
    /// What it asks for.
    pub kind: Kind,
}

/// What a request asks for.
#[derive(Debug)]
pub enum Kind {
    /// A known RPC.
    Call {
        /// Which.
        method: &'static Method,
        /// `grpc-timeout`.
        timeout: Option<Timeout>,
        /// `grpc-encoding`.
        encoding: Encoding,
        /// The content type of the answer, where it is not plain `application/grpc`.
        content_type: Option<Bytes>,
    },
    /// Something that is refused at once, with an HTTP status and a gRPC status.
    Refused {
        /// `:status`.
        http: u16,
        /// `grpc-status` and `grpc-message`.
        status: Status,
    },
    /// Not gRPC: an HTTP endpoint.
    Web,
}

impl Request {
    /// Reads a head.
    #[must_use]
    pub fn parse(head: Rc<Head>) -> Request {
        let content_type = head.get("content-type").map_or(&b""[..], |value| &value[..]);
        let kind = if is_grpc(content_type) {
            call(&head, content_type)
                .unwrap_or_else(|(http, status)| Kind::Refused { http, status })
        } else {
            Kind::Web
        };
        Request { head, kind }
    }

    /// The refusal a request that is not gRPC gets where only gRPC is served.
    #[must_use]
    pub fn wrong_content_type(&self) -> (u16, Status) {
        let content_type = self.head.get("content-type").cloned().unwrap_or_default();
        let content_type = String::from_utf8_lossy(&content_type);
        let text = format!("invalid gRPC request content-type {content_type:?}");
        (415, Status::new(Code::InvalidArgument, text))
    }
}

/// `application/grpc`, alone or followed by a subtype or parameters.
fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

fn call(head: &Head, content_type: &[u8]) -> Result<Kind, (u16, Status)> {
    if head.method != "POST" {
        let method = String::from_utf8_lossy(&head.method);
        let text = format!("Received a HEADERS frame with :method {method:?} which should be POST");
        return Err((405, Status::new(Code::Internal, text)));
    }
    if head.authority.is_empty() && head.get("host").is_none() {
        return Err((400, Status::new(Code::Internal, "no host or :authority header present")));
    }
    let timeout = match head.get("grpc-timeout") {
        None => None,
        Some(value) => Some(parse_timeout(value).map_err(|why| {
            (400, Status::new(Code::Internal, format!("malformed grpc-timeout: {why}")))
        })?),
    };
    let method = method::find(&head.path).ok_or_else(|| (200, unknown(&head.path)))?;
    let encoding = match head.get("grpc-encoding").map(|value| &value[..]) {
        None | Some(b"" | b"identity") => Encoding::Identity,
        Some(b"gzip") => Encoding::Gzip,
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            let text = format!("grpc: Decompressor is not installed for grpc-encoding {other:?}");
            return Err((200, Status::new(Code::Unimplemented, text)));
        }
    };
    let plain = content_type == b"application/grpc";
    let content_type = (!plain).then(|| Bytes::copy_from_slice(content_type));
    Ok(Kind::Call { method, timeout, encoding, content_type })
}

/// The status of a path that is no method of ours.
fn unknown(path: &[u8]) -> Status {
    let path = String::from_utf8_lossy(path);
    let name = path.strip_prefix('/').unwrap_or(&path);
    let text = match name.rsplit_once('/') {
        None => format!("malformed method name: {path:?}"),
        Some((service, method)) if METHODS.iter().any(|known| known.service == service) => {
            format!("unknown method {method} for service {service}")
        }
        Some((service, _)) => format!("unknown service {service}"),
    };
    Status::new(Code::Unimplemented, text)
}

/// `grpc-timeout`: up to eight digits and a unit. A time too long to count is as good as none.
fn parse_timeout(value: &[u8]) -> Result<Duration, String> {
    let text = String::from_utf8_lossy(value);
    let Some((unit, digits)) = value.split_last().filter(|(_, digits)| !digits.is_empty()) else {
        return Err(format!("transport: timeout string is too short: {text:?}"));
    };
    if digits.len() > 8 {
        return Err(format!("transport: timeout string is too long: {text:?}"));
    }
    let count = digits.iter().try_fold(0_u64, |count, digit| {
        digit.is_ascii_digit().then(|| count * 10 + u64::from(digit - b'0'))
    });
    let per_unit_ns: u64 = match unit {
        b'n' => 1,
        b'u' => 1_000,
        b'm' => 1_000_000,
        b'S' => 1_000_000_000,
        b'M' => 60_000_000_000,
        b'H' => 3_600_000_000_000,
        _ => return Err(format!("transport: timeout unit is not recognized: {text:?}")),
    };
    let count = count.ok_or_else(|| {
        let digits = String::from_utf8_lossy(digits);
        format!("strconv.ParseUint: parsing {digits:?}: invalid syntax")
    })?;
    Ok(Duration::from_nanos(count.saturating_mul(per_unit_ns)))
}

#[cfg(test)]
mod tests {
    use ringbolt_proto::method::Name;

    use super::*;

    fn head(path: &str, fields: &[(&str, &str)]) -> Rc<Head> {
        let field = |(name, value): &(&str, &str)| {
            (Bytes::from(name.to_string()), Bytes::from(value.to_string()))
        };
        Rc::new(Head {
            method: Bytes::from_static(b"POST"),
            authority: Bytes::from_static(b"localhost:2379"),
            path: Bytes::from(path.to_string()),
            fields: fields.iter().map(field).collect(),
            ..Head::default()
        })
    }

    fn refusal(path: &str, fields: &[(&str, &str)]) -> (u16, String) {
        match Request::parse(head(path, fields)).kind {
            Kind::Refused { http, status } => (http, status.to_string()),
            other => panic!("not refused: {other:?}"),
        }
    }

    const GRPC: (&str, &str) = ("content-type", "application/grpc");
    const RANGE: &str = "/etcdserverpb.KV/Range";

    /// A known call with its timeout and encoding.
    #[test]
    fn known_call() {
        let fields = [GRPC, ("grpc-timeout", "250m"), ("grpc-encoding", "gzip")];
        let request = Request::parse(head(RANGE, &fields));
        let Kind::Call { method, timeout, encoding, content_type } = request.kind else {
            panic!("not a call");
        };
        assert_eq!(method.name, Name::Range);
        assert_eq!(timeout, Some(Duration::from_millis(250)));
        assert_eq!((encoding, content_type), (Encoding::Gzip, None));
    }

    /// Every refusal has etcd's text.
    #[test]
    fn refusals() {
        let unimplemented =
            |text: &str| (200, format!("rpc error: code = Unimplemented desc = {text}"));
        assert_eq!(refusal("/x", &[GRPC]), unimplemented("malformed method name: \"/x\""));
        assert_eq!(refusal("/a.B/C", &[GRPC]), unimplemented("unknown service a.B"));
        let text = "unknown method Rango for service etcdserverpb.KV";
        assert_eq!(refusal("/etcdserverpb.KV/Rango", &[GRPC]), unimplemented(text));
        let text = "grpc: Decompressor is not installed for grpc-encoding \"snappy\"";
        assert_eq!(refusal(RANGE, &[GRPC, ("grpc-encoding", "snappy")]), unimplemented(text));
        assert_eq!(refusal(RANGE, &[GRPC, ("grpc-timeout", "1x")]).0, 400);
        let mut head = Head::clone(&head(RANGE, &[GRPC]));
        head.authority = Bytes::new();
        let refused = Request::parse(Rc::new(head)).kind;
        assert!(matches!(refused, Kind::Refused { http: 400, .. }), "{refused:?}");
    }

    /// Only gRPC content types are gRPC.
    #[test]
    fn content_types() {
        for (content_type, grpc) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/json", false),
            ("", false),
        ] {
            assert_eq!(is_grpc(content_type.as_bytes()), grpc, "{content_type}");
        }
    }

    /// Units, limits and nonsense.
    #[test]
    fn timeouts() {
        assert_eq!(parse_timeout(b"1n"), Ok(Duration::from_nanos(1)));
        assert_eq!(parse_timeout(b"99999999S"), Ok(Duration::from_secs(99_999_999)));
        assert_eq!(parse_timeout(b"99999999H"), Ok(Duration::from_nanos(u64::MAX)));
        for wrong in ["", "1", "S", "123456789S", "1s", "-1S", "1 S"] {
            assert!(parse_timeout(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}

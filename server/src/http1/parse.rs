//! Requests of HTTP/1.1 from bytes. Pure: bytes in, a request or a refusal out.
//!
//! A head is complete at its empty line; a body has a `Content-Length` or is chunked, never both.
//! Source: RFC 9112; texts of refusals as Go's `net/http` has them.

use super::limits::{BODY_BYTES_MAX, FIELDS_MAX, HEAD_BYTES_MAX};
use super::target;

/// One request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST` …
    pub method: String,
    /// Path and query as they were sent.
    pub target: String,
    /// The path, decoded.
    pub path: String,
    /// The field of that name, or the authority of HTTP/2.
    pub host: String,
    /// The other fields, names in lower case.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// Whether the connection goes on after the answer.
    pub keep_alive: bool,
    /// HTTP/1.0: no chunks, and a connection that goes on is said.
    pub old: bool,
}

impl Request {
    /// The first field of that name (lower case).
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// The path as it was sent.
    #[must_use]
    pub fn raw_path(&self) -> &str {
        self.target.split_once('?').map_or(&self.target, |(path, _)| path)
    }

    /// The query as it was sent.
    #[must_use]
    pub fn raw_query(&self) -> Option<&str> {
        self.target.split_once('?').map(|(_, query)| query)
    }

    /// Names and values of the query, decoded.
    pub fn query(&self) -> impl Iterator<Item = (String, String)> {
        let query = self.raw_query().unwrap_or_default();
        query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (target::decode_query(name), target::decode_query(value))
        })
    }
}

/// What the bytes hold so far.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// A request and how many bytes it took.
    Whole(Request, usize),
    /// More bytes are needed. True when the client waits for `100 Continue` before it sends them.
    More(bool),
    /// No request: what to answer before closing.
    Bad(Refusal),
}

/// Why there is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status code.
    pub status: u16,
    /// What is wrong, where clients know a text for it.
    pub detail: Option<&'static str>,
}

impl From<u16> for Refusal {
    fn from(status: u16) -> Refusal {
        Refusal { status, detail: None }
    }
}

impl From<&'static str> for Refusal {
    fn from(detail: &'static str) -> Refusal {
        Refusal { status: 400, detail: Some(detail) }
    }
}

/// Reads one request from the front of `bytes`.
#[must_use]
pub fn parse(bytes: &[u8]) -> Progress {
    // A client may send empty lines before a request.
    let start = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let Some(head_size) = head_end(&bytes[start..]) else {
        let too_long = bytes.len() - start > HEAD_BYTES_MAX;
        return if too_long { Progress::Bad(431.into()) } else { Progress::More(false) };
    };
    if head_size > HEAD_BYTES_MAX {
        return Progress::Bad(431.into());
    }
    let Ok(head) = std::str::from_utf8(&bytes[start..start + head_size]) else {
        return Progress::Bad(400.into());
    };
    let mut request = match parse_head(head) {
        Ok(request) => request,
        Err(refusal) => return Progress::Bad(refusal),
    };
    let body_start = start + head_size;
    match body(&request, &bytes[body_start..]) {
        Ok(Some((body, size))) => {
            request.body = body;
            Progress::Whole(request, body_start + size)
        }
        Ok(None) => Progress::More(request.field("expect") == Some("100-continue")),
        Err(status) => Progress::Bad(status.into()),
    }
}

/// Where the head ends, its empty line included.
fn head_end(bytes: &[u8]) -> Option<usize> {
    let mut line_start = 0;
    for (index, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
        let line = &bytes[line_start..index];
        if line.is_empty() || line == b"\r" {
            return Some(index + 1);
        }
        line_start = index + 1;
    }
    None
}

fn parse_head(head: &str) -> Result<Request, Refusal> {
    let mut lines = head.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    let mut request = first_line(lines.next().unwrap_or_default())?;
    let mut hosts = 0;
    let mut is_sound = true;
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(400)?;
        if value.bytes().any(|b| (b < b' ' && b != b'\t') || b == 0x7f) {
            return Err(400.into());
        }
        is_sound &= is_token(name);
        if request.fields.len() == FIELDS_MAX {
            return Err(431.into());
        }
        let (name, value) = (name.to_ascii_lowercase(), value.trim().to_owned());
        if name == "host" {
            hosts += 1;
            request.host = value;
        } else {
            request.fields.push((name, value));
        }
    }
    if hosts > 1 {
        return Err(400.into());
    }
    if !request.old && hosts == 0 && request.method != "CONNECT" {
        return Err("missing required Host header".into());
    }
    if !request.host.bytes().all(|b| b.is_ascii_alphanumeric() || HOST_MARKS.contains(&b)) {
        return Err("malformed Host header".into());
    }
    if !is_sound {
        return Err("invalid header name".into());
    }
    let connection = request.field("connection").unwrap_or_default().to_ascii_lowercase();
    let says = |word: &str| connection.split(',').any(|part| part.trim() == word);
    request.keep_alive = if request.old { says("keep-alive") } else { !says("close") };
    Ok(request)
}

/// What a host may hold beside letters and digits. Source: RFC 3986, 3.2.2.
const HOST_MARKS: &[u8] = b"!$%&'()*+,-.:;=[]_~";

fn is_token(text: &str) -> bool {
    let sound = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(sound)
}

fn first_line(line: &str) -> Result<Request, Refusal> {
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, words.next())
    else {
        return Err(400.into());
    };
    let old = match version.strip_prefix("HTTP/") {
        Some("1.0") => true,
        Some(number) if target::is_one_dot(number) => false,
        Some(_) => return Err(505.into()),
        None => return Err(400.into()),
    };
    if !is_token(method) {
        return Err(400.into());
    }
    let target = target::without_origin(target);
    let path = target::path(method, &target).ok_or(400)?;
    Ok(Request { method: method.to_owned(), target, path, old, ..Request::default() })
}

/// The body and the bytes it took; nothing while it is incomplete.
fn body(request: &Request, bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, u16> {
    let mut lengths = request.fields.iter().filter(|(name, _)| name == "content-length");
    let length = lengths.next().map(|(_, value)| value);
    if lengths.any(|(_, value)| Some(value) != length) {
        return Err(400);
    }
    // Two of them mean different ends to different readers: a request could hide in the body.
    if request.fields.iter().filter(|(name, _)| name == "transfer-encoding").count() > 1 {
        return Err(400);
    }
    match (request.field("transfer-encoding"), length) {
        (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => chunked(bytes),
        (Some(_), None) => Err(501),
        (Some(_), Some(_)) => Err(400),
        (None, None) => Ok(Some((Vec::new(), 0))),
        (None, Some(length)) => {
            if length.is_empty() || !length.bytes().all(|b| b.is_ascii_digit()) {
                return Err(400);
            }
            let size: usize = length.parse().map_err(|_| 413u16)?;
            if size > BODY_BYTES_MAX {
                return Err(413);
            }
            Ok(bytes.get(..size).map(|body| (body.to_vec(), size)))
        }
    }
}

fn chunked(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, u16> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let Some(line_size) = bytes[at..].iter().position(|byte| *byte == b'\n') else {
            return if bytes.len() - at > HEAD_BYTES_MAX { Err(431) } else { Ok(None) };
        };
        let line = std::str::from_utf8(&bytes[at..at + line_size]).map_err(|_| 400u16)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let sound = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let size = usize::from_str_radix(digits, 16).ok().filter(|_| sound).ok_or(400u16)?;
        at += line_size + 1;
        if size == 0 {
            // Trailing fields end with an empty line, as a head does.
            return match head_end(&bytes[at..]) {
                Some(trailer_size) => Ok(Some((body, at + trailer_size))),
                None if bytes.len() - at > HEAD_BYTES_MAX => Err(431),
                None => Ok(None),
            };
        }
        if size > BODY_BYTES_MAX - body.len() {
            return Err(413);
        }
        let Some(chunk) = bytes.get(at..at + size) else { return Ok(None) };
        body.extend_from_slice(chunk);
        at += size;
        match (bytes.get(at), bytes.get(at + 1)) {
            (Some(b'\n'), _) => at += 1,
            (Some(b'\r'), Some(b'\n')) => at += 2,
            (None, _) | (Some(b'\r'), None) => return Ok(None),
            _ => return Err(400),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> (Request, usize) {
        match parse(text.as_bytes()) {
            Progress::Whole(request, size) => (request, size),
            other => panic!("{text:?} gave {other:?}"),
        }
    }

    /// Every prefix of a request asks for more, and the rest stays for the next one.
    #[test]
    fn pieces() {
        let texts = [
            "GET /health?x=%41+b&exclude=NOSPACE HTTP/1.1\r\nHost: a:1\r\nX-Y: z \r\n\r\n",
            "POST /v3/kv/put HTTP/1.1\nhost: a\ncontent-length: 3\n\nabc",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
             2;x=y\r\nab\r\n1\r\nc\r\n0\r\nT: 1\r\n\r\n",
        ];
        for text in texts {
            for size in 0..text.len() {
                let progress = parse(&text.as_bytes()[..size]);
                assert_eq!(progress, Progress::More(false), "{:?}", &text[..size]);
            }
            let (_, size) = whole(&format!("{text}GET"));
            assert_eq!(size, text.len());
        }
        let (request, _) = whole(texts[0]);
        assert_eq!((request.path.as_str(), request.host.as_str()), ("/health", "a:1"));
        assert_eq!(request.field("x-y"), Some("z"));
        let query: Vec<(String, String)> = request.query().collect();
        assert_eq!(query[0], ("x".to_owned(), "A b".to_owned()));
        assert_eq!(query[1], ("exclude".to_owned(), "NOSPACE".to_owned()));
        assert_eq!(whole(texts[1]).0.body, b"abc");
        assert_eq!(whole(texts[2]).0.body, b"abc");
    }

    /// What ends a connection, and with which status.
    #[test]
    fn refusals() {
        let long = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
        let many = "X: 1\r\n".repeat(FIELDS_MAX + 1);
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n");
        let rows = [
            ("FOO\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
            ("GET health HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: \u{1}\r\n\r\n", 400),
            ("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n", 413),
            ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
                 Content-Length: 1\r\n\r\n",
                400,
            ),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
                 Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
                400,
            ),
            ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
            (long.as_str(), 431),
            (many.as_str(), 431),
        ];
        for (text, status) in rows {
            match parse(text.as_bytes()) {
                Progress::Bad(refusal) => assert_eq!(refusal.status, status, "{text:.80}"),
                other => panic!("{text:.80} gave {other:?}"),
            }
        }
    }

    /// What Go's server says about a head, this one says too.
    #[test]
    fn refusals_with_a_text() {
        let rows = [
            ("\r\n", "missing required Host header"),
            ("Host : a\r\n\r\n", "missing required Host header"),
            ("Host: a b\r\n\r\n", "malformed Host header"),
            ("Host: a\r\nX : b\r\n\r\n", "invalid header name"),
        ];
        for (fields, detail) in rows {
            let text = format!("GET / HTTP/1.1\r\n{fields}");
            assert_eq!(parse(text.as_bytes()), Progress::Bad(detail.into()), "{text}");
        }
    }

    /// Who closes after the answer, and who waits before the body.
    #[test]
    fn connection_fields() {
        assert!(whole("GET / HTTP/1.1\r\nHost: a\r\n\r\n").0.keep_alive);
        assert!(!whole("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n").0.keep_alive);
        assert!(!whole("GET / HTTP/1.0\r\n\r\n").0.keep_alive);
        assert!(whole("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").0.keep_alive);
        let waits =
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n";
        assert_eq!(parse(waits.as_bytes()), Progress::More(true));
    }

    proptest::proptest! {
        /// No bytes make it panic, and it never takes more than there is.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            if let Progress::Whole(_, size) = parse(&bytes) {
                proptest::prop_assert!(size <= bytes.len());
            }
        }
    }
}

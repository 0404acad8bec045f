//! Requests of HTTP/1.1 from bytes. Pure: bytes in, a request or a refusal out.
//!
//! A head is complete at its empty line; a body has a `Content-Length` or is chunked, never both.
//! Source: RFC 9112.

use super::limits::{BODY_BYTES_MAX, FIELDS_MAX, HEAD_BYTES_MAX};

/// One request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST` …
    pub method: String,
    /// Path and query as they were sent.
    pub target: String,
    /// The field of that name, or the authority of HTTP/2.
    pub host: String,
    /// The other fields, names in lower case.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// Whether the connection goes on after the answer.
    pub keep_alive: bool,
}

impl Request {
    /// The first field of that name (lower case).
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// The path without the query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.target.split_once('?').map_or(self.target.as_str(), |(path, _)| path)
    }

    /// Names and values of the query, decoded.
    pub fn query(&self) -> impl Iterator<Item = (String, String)> {
        let query = self.target.split_once('?').map_or("", |(_, query)| query);
        query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
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
    /// No request: the status to answer before closing.
    Bad(u16),
}

/// Reads one request from the front of `bytes`.
#[must_use]
pub fn parse(bytes: &[u8]) -> Progress {
    // A client may send empty lines before a request.
    let start = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let Some(head_size) = head_end(&bytes[start..]) else {
        let too_long = bytes.len() - start > HEAD_BYTES_MAX;
        return if too_long { Progress::Bad(431) } else { Progress::More(false) };
    };
    if head_size > HEAD_BYTES_MAX {
        return Progress::Bad(431);
    }
    let Ok(head) = std::str::from_utf8(&bytes[start..start + head_size]) else {
        return Progress::Bad(400);
    };
    let mut request = match parse_head(head) {
        Ok(request) => request,
        Err(status) => return Progress::Bad(status),
    };
    let body_start = start + head_size;
    match body(&request, &bytes[body_start..]) {
        Ok(Some((body, size))) => {
            request.body = body;
            Progress::Whole(request, body_start + size)
        }
        Ok(None) => Progress::More(request.field("expect") == Some("100-continue")),
        Err(status) => Progress::Bad(status),
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

fn parse_head(head: &str) -> Result<Request, u16> {
    let mut lines = head.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, words.next())
    else {
        return Err(400);
    };
    let is_token = |text: &str| {
        let sound = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        !text.is_empty() && text.bytes().all(sound)
    };
    if !is_token(method) || target.is_empty() {
        return Err(400);
    }
    let modern = match version {
        "HTTP/1.1" => true,
        "HTTP/1.0" => false,
        version if version.starts_with("HTTP/") => return Err(505),
        _ => return Err(400),
    };
    let mut request =
        Request { method: method.to_owned(), target: target_path(target), ..Request::default() };
    let mut hosts = 0;
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(400u16)?;
        if !is_token(name) || value.bytes().any(|b| b < b' ' && b != b'\t') {
            return Err(400);
        }
        if request.fields.len() == FIELDS_MAX {
            return Err(431);
        }
        let (name, value) = (name.to_ascii_lowercase(), value.trim().to_owned());
        if name == "host" {
            hosts += 1;
            request.host = value;
        } else {
            request.fields.push((name, value));
        }
    }
    if hosts > 1 || (modern && hosts == 0) {
        return Err(400);
    }
    let connection = request.field("connection").unwrap_or_default().to_ascii_lowercase();
    let says = |word: &str| connection.split(',').any(|part| part.trim() == word);
    request.keep_alive = if modern { !says("close") } else { says("keep-alive") };
    Ok(request)
}

/// A proxy's request names the whole URL.
fn target_path(target: &str) -> String {
    match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/".to_owned(), |slash| rest[slash..].to_owned()),
        None => target.to_owned(),
    }
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

/// Undoes `+` and `%xx`; what is no escape stays as it is.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        let escaped = digits.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        match (byte, escaped) {
            (b'%', Some(escaped)) => {
                decoded.push(escaped);
                at += 2;
            }
            (b'+', _) => decoded.push(b' '),
            (byte, _) => decoded.push(*byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
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
        assert_eq!((request.path(), request.host.as_str()), ("/health", "a:1"));
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
            assert_eq!(parse(text.as_bytes()), Progress::Bad(status), "{text:.80}");
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

//! Answers, and their bytes in HTTP/1.1 and 1.0.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use ringbolt_io::WallTime;

use super::limits::CHUNK_BYTES;
use super::parse::{Refusal, Request};
use crate::log::line::civil;

/// The type of plain texts.
pub const PLAIN: &str = "text/plain; charset=utf-8";

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Fields, without date and length.
    pub fields: Vec<(&'static str, String)>,
    /// The body.
    pub body: Bytes,
    /// Sent in chunks, without a length.
    pub chunked: bool,
}

impl Answer {
    /// An answer with a content type.
    #[must_use]
    pub fn new(status: u16, content_type: &str, body: impl Into<Bytes>) -> Answer {
        let fields = vec![("Content-Type", content_type.to_owned())];
        Answer { status, fields, body: body.into(), chunked: false }
    }

    /// A status and nothing else.
    #[must_use]
    pub fn empty(status: u16) -> Answer {
        Answer { status, fields: Vec::new(), body: Bytes::new(), chunked: false }
    }

    /// A text that browsers must not guess about, as Go's `http.Error` sends it.
    #[must_use]
    pub fn plain(status: u16, text: impl Into<Bytes>) -> Answer {
        let mut answer = Answer::new(status, PLAIN, text);
        answer.fields.push(("X-Content-Type-Options", "nosniff".to_owned()));
        answer
    }

    /// A path nobody serves.
    #[must_use]
    pub fn not_found() -> Answer {
        Answer::plain(404, "404 page not found\n")
    }

    /// A method the path does not take.
    #[must_use]
    pub fn wrong_method(allowed: &str) -> Answer {
        let mut answer = Answer::plain(405, "Method Not Allowed\n");
        answer.fields.insert(0, ("Allow", allowed.to_owned()));
        answer
    }

    /// The same, compressed and in chunks.
    #[must_use]
    pub fn gzip(mut self) -> Answer {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let written = encoder.write_all(&self.body).and_then(|()| encoder.finish());
        if let Ok(compressed) = written {
            self.body = compressed.into();
            self.fields.insert(0, ("Content-Encoding", "gzip".to_owned()));
        }
        self
    }

    /// Whether the connection goes on behind this answer: without chunks only its end can show
    /// where a body of unknown length ends.
    #[must_use]
    pub fn keeps_alive(&self, request: &Request) -> bool {
        request.keep_alive && !(self.chunked && request.old)
    }

    /// Its bytes. The body stays out of an answer to HEAD, but not out of its length.
    #[must_use]
    pub fn encode(&self, now: WallTime, request: &Request) -> Vec<Bytes> {
        let to_head = request.method == "HEAD";
        let version = if request.old { "1.0" } else { "1.1" };
        let mut head = format!("HTTP/{version} {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Date: {}\r\n", date(now)));
        let chunked = self.chunked && !request.old;
        if chunked {
            head.push_str("Transfer-Encoding: chunked\r\n");
        } else if !self.chunked {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        // Each version says what is not its custom.
        match (self.keeps_alive(request), request.old) {
            (true, true) => head.push_str("Connection: keep-alive\r\n"),
            (false, false) => head.push_str("Connection: close\r\n"),
            _ => {}
        }
        head.push_str("\r\n");
        let mut parts = vec![Bytes::from(head)];
        match (to_head, chunked) {
            (true, _) => {}
            (false, false) => parts.push(self.body.clone()),
            (false, true) => {
                let mut left = self.body.clone();
                while !left.is_empty() {
                    let chunk = left.split_to(left.len().min(CHUNK_BYTES));
                    parts.push(Bytes::from(format!("{:x}\r\n", chunk.len())));
                    parts.push(chunk);
                    parts.push(Bytes::from_static(b"\r\n"));
                }
                parts.push(Bytes::from_static(b"0\r\n\r\n"));
            }
        }
        parts.retain(|part| !part.is_empty());
        parts
    }
}

/// The last words to a client that does not speak HTTP/1.1.
#[must_use]
pub fn refusal(refusal: Refusal) -> Bytes {
    let mut line = format!("{} {}", refusal.status, reason(refusal.status));
    if let Some(detail) = refusal.detail {
        line.push_str(&format!(": {detail}"));
    }
    let body = if refusal.status == 501 { "Unsupported transfer encoding" } else { &line };
    let fields = format!("Content-Type: {PLAIN}\r\nConnection: close\r\n");
    Bytes::from(format!("HTTP/1.1 {line}\r\n{fields}\r\n{body}"))
}

/// The words behind a status.
#[must_use]
pub fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        412 => "Precondition Failed",
        413 => "Request Entity Too Large",
        415 => "Unsupported Media Type",
        421 => "Misdirected Request",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Status",
    }
}

/// `Mon, 30 Nov 2026 10:34:52 GMT`.
#[must_use]
pub fn date(time: WallTime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = time.as_secs();
    let (year, month, day) = civil(seconds / 86_400);
    // The Unix epoch began on a Thursday.
    let weekday = usize::try_from(seconds / 86_400 % 7).expect("a week has seven days");
    let month = usize::try_from(month - 1).expect("a year has twelve months");
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!(
        "{}, {day:02} {} {year} {hour:02}:{minute:02}:{second:02} GMT",
        DAYS[weekday], MONTHS[month]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(parts: &[Bytes]) -> String {
        String::from_utf8(parts.concat()).expect("the answers of this test are text")
    }

    /// Length or chunks, with and without the body.
    #[test]
    fn bytes_of_answers() {
        let now = WallTime(1_796_034_892_000_000_000);
        assert_eq!(date(now), "Mon, 30 Nov 2026 10:34:52 GMT");
        let answer = Answer::not_found();
        let head = "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\n\
             X-Content-Type-Options: nosniff\r\nDate: Mon, 30 Nov 2026 10:34:52 GMT\r\n\
             Content-Length: 19\r\n";
        let asked = |method: &str, keep_alive: bool, old: bool| Request {
            method: method.to_owned(),
            keep_alive,
            old,
            ..Request::default()
        };
        let parts = answer.encode(now, &asked("GET", true, false));
        assert_eq!(text(&parts), format!("{head}\r\n404 page not found\n"));
        let parts = answer.encode(now, &asked("HEAD", false, false));
        assert_eq!(text(&parts), format!("{head}Connection: close\r\n\r\n"));
        let head = head.replace("HTTP/1.1", "HTTP/1.0");
        let parts = answer.encode(now, &asked("HEAD", false, true));
        assert_eq!(text(&parts), format!("{head}\r\n"));
        let parts = answer.encode(now, &asked("HEAD", true, true));
        assert_eq!(text(&parts), format!("{head}Connection: keep-alive\r\n\r\n"));
        let mut answer = Answer::new(200, "x", vec![b'a'; CHUNK_BYTES + 1]);
        answer.chunked = true;
        let old = asked("GET", true, true);
        let parts = text(&answer.encode(now, &old));
        assert!(!answer.keeps_alive(&old) && !parts.contains("Length"));
        assert!(parts.ends_with(&format!("\r\n\r\n{}", "a".repeat(CHUNK_BYTES + 1))));
        let parts = text(&answer.encode(now, &asked("GET", true, false)));
        assert!(parts.contains("Transfer-Encoding: chunked\r\n\r\n8000\r\naaa"));
        assert!(parts.ends_with("a\r\n1\r\na\r\n0\r\n\r\n"));
    }
}

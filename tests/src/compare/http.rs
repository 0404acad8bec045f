//! HTTP/1 by hand: bytes out, and the answer in an order that can be compared.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::Outcome;
use super::script::Endpoint;
use super::server::Server;

/// After so long without a byte the answer is over and the connection was left open.
const SILENCE: Duration = Duration::from_millis(700);
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Sends the bytes and takes the answer: its first line, its fields sorted and without the date,
/// its body, and whether the connection was closed.
///
/// *Errors*: nobody listens, or the connection broke.
pub fn exchange(server: &Server, bytes: &[u8]) -> Result<Outcome, String> {
    let endpoint = server.endpoint(Endpoint::Tcp);
    let address = endpoint.strip_prefix("http://").unwrap_or(&endpoint);
    let say = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(address).map_err(say)?;
    stream.set_read_timeout(Some(SILENCE)).map_err(say)?;
    stream.write_all(bytes).map_err(say)?;
    let mut answer = Vec::new();
    let end = match stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer) {
        Ok(_) => "closed",
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => "open",
        // Unread bytes at a close end it with a reset.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => "closed",
        Err(error) => return Err(error.to_string()),
    };
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let mut lines = head.lines();
    let first = lines.next().unwrap_or_default();
    let mut fields: Vec<&str> = lines.filter(|line| !line.starts_with("Date: ")).collect();
    fields.sort_unstable();
    let stdout = format!("{first}\n{}\n\n{body}\n{end}\n", fields.join("\n"));
    Ok(Outcome { stdout, ..Outcome::default() })
}

//! gRPC calls with hand-made messages, for what etcdctl cannot send.
//!
//! A message is written as its fields: `name.NUMBER=VALUE`, the name only for the reader. A value
//! is a number, `"bytes"` with the escapes of a case file (`"x"*N` repeats them) or `{ fields }`.
//! In place of fields there may be `!HEX` for raw bytes (`!HEX*N` repeats them), or `^N{ fields }`
//! for a `Txn` that lies in N others, each of which has it as its only operation on success.

use std::iter::Peekable;
use std::path::Path;
use std::process::Command;
use std::str::Chars;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use ringbolt_proto::etcdserverpb as pb;

use super::Outcome;
use super::script::{Endpoint, until};
use super::server::Server;

/// Seconds after which a stream that does not end is cut.
const STREAM_SECONDS: &str = "1";
/// Seconds that any other call may take, on a slow day too.
const ANSWER_SECONDS: &str = "30";

/// curl's exit code when the server reset the stream.
const CURL_STREAM_RESET: i32 = 92;
/// curl's exit code when the time was over.
const CURL_CUT: i32 = 28;
/// How often a call that was reset without an answer is made again, and after which pause: on a
/// busy machine curl loses the same race several times.
const RESET_RETRIES: u32 = 20;
const RESET_PAUSE: Duration = Duration::from_millis(20);
/// How often a server is asked whether it leads and has its store at its own version, which etcd
/// sets some seconds later.
const STATUS_RETRIES: usize = 600;

/// Encodes the messages of one call, each with its gRPC prefix.
///
/// *Errors*: what is wrong with the text.
pub fn encode(text: &str) -> Result<Bytes, String> {
    let mut body = BytesMut::new();
    let mut chars = text.chars().peekable();
    loop {
        let message = fields(&mut chars, &[';'])?;
        body.put_u8(0);
        body.put_u32(u32::try_from(message.len()).map_err(|error| error.to_string())?);
        body.put_slice(&message);
        if chars.next().is_none() {
            return Ok(body.freeze());
        }
    }
}

/// Makes one call and shows its status and its decoded answers.
///
/// *Errors*: the call could not be made at all.
pub fn call(
    server: &Server,
    endpoint: Endpoint,
    method: &str,
    text: &str,
) -> Result<Outcome, String> {
    let (request, headers) =
        (server.directory().join("request"), server.directory().join("headers"));
    let body = encode(text)?;
    std::fs::write(&request, &body).map_err(|error| error.to_string())?;
    let _ = std::fs::remove_file(&headers);
    let stays_open = method.ends_with("/Watch") || method.ends_with("/LeaseKeepAlive");
    let seconds = if stays_open { STREAM_SECONDS } else { ANSWER_SECONDS };
    let mut command = Command::new("curl");
    command.args(["-s", "--http2-prior-knowledge", "--max-time", seconds, "-X", "POST"]);
    command.args(["-H", "content-type: application/grpc", "-H", "te: trailers"]);
    command.arg("--data-binary").arg(format!("@{}", request.display()));
    command.arg("-D").arg(&headers);
    if endpoint == Endpoint::Unix {
        command.arg("--unix-socket").arg(server.socket());
    }
    let host = match endpoint {
        Endpoint::Tcp => server.endpoint(Endpoint::Tcp),
        Endpoint::Unix => "localhost".to_owned(),
    };
    command.arg(format!("http://{host}/{}", full_path(method)));
    let mut output = command.output().map_err(|error| format!("curl: {error}"))?;
    // A server that refuses a call may reset its stream before curl has read the answer. Nothing
    // was done then, so the call is made again.
    for _ in 0..RESET_RETRIES {
        if output.status.code() != Some(CURL_STREAM_RESET) || !status_of(&headers).is_empty() {
            break;
        }
        std::thread::sleep(RESET_PAUSE);
        output = command.output().map_err(|error| format!("curl: {error}"))?;
    }
    Ok(Outcome {
        stdout: show_answers(method, output.stdout.into()),
        stderr: status_of(&headers),
        exit: match output.status.code() {
            None => "signal".to_owned(),
            Some(0 | CURL_STREAM_RESET) => "answered".to_owned(),
            Some(CURL_CUT) => "cut".to_owned(),
            Some(code) => format!("curl {code}"),
        },
    })
}

fn full_path(method: &str) -> String {
    if method.matches('.').count() > 0 {
        method.to_owned()
    } else {
        format!("etcdserverpb.{method}")
    }
}

/// The gRPC status, from headers or trailers.
fn status_of(headers: &Path) -> String {
    let text = std::fs::read_to_string(headers).unwrap_or_default();
    let wanted = ["grpc-status:", "grpc-message:", "http/2 ", "content-type:"];
    let is_wanted = |line: &&str| wanted.iter().any(|w| line.to_ascii_lowercase().starts_with(w));
    let mut lines: Vec<&str> = text.lines().map(str::trim).filter(is_wanted).collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn fields(chars: &mut Peekable<Chars<'_>>, closers: &[char]) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        match chars.peek() {
            None => return Ok(out),
            Some(next) if closers.contains(next) => return Ok(out),
            Some('!') => {
                chars.next();
                let digits = word(chars, |c| c.is_ascii_hexdigit());
                let mut bytes = vec![];
                for pair in digits.as_bytes().chunks(2) {
                    let pair = std::str::from_utf8(pair).map_err(|error| error.to_string())?;
                    bytes.push(u8::from_str_radix(pair, 16).map_err(|error| error.to_string())?);
                }
                out.extend(bytes.repeat(count(chars)?));
            }
            Some('^') => {
                chars.next();
                let levels = word(chars, |c| c.is_ascii_digit()).parse().map_err(|_| "a count")?;
                chars.next_if_eq(&'{').ok_or("a brace is needed")?;
                let inner = fields(chars, &['}'])?;
                chars.next_if_eq(&'}').ok_or("a brace is not closed")?;
                out.extend(nested(inner, levels));
            }
            Some(_) => field(chars, &mut out)?,
        }
    }
}

fn field(chars: &mut Peekable<Chars<'_>>, out: &mut Vec<u8>) -> Result<(), String> {
    word(chars, |c| c.is_ascii_alphanumeric() || c == '_');
    chars.next_if_eq(&'.').ok_or("name.NUMBER=VALUE is needed")?;
    let number = word(chars, |c| c.is_ascii_digit());
    let number: u64 = number.parse().map_err(|_| "a field number is needed")?;
    chars.next_if_eq(&'=').ok_or("name.NUMBER=VALUE is needed")?;
    let bytes = match chars.peek() {
        Some('"') => {
            chars.next();
            let text = until(chars, '"', true)?;
            text.repeat(count(chars)?)
        }
        Some('{') => {
            chars.next();
            let inner = fields(chars, &['}'])?;
            chars.next_if_eq(&'}').ok_or("a brace is not closed")?;
            inner
        }
        _ => {
            let value = word(chars, |c| c.is_ascii_digit() || c == '-');
            let value: i128 = value.parse().map_err(|_| "a value is needed")?;
            let value = u64::try_from(value)
                .or_else(|_| i64::try_from(value).map(i64::cast_unsigned))
                .map_err(|error| error.to_string())?;
            varint(number << 3, out);
            varint(value, out);
            return Ok(());
        }
    };
    varint(number << 3 | 2, out);
    varint(bytes.len() as u64, out);
    out.extend(bytes);
    Ok(())
}

/// `*N`, or once.
fn count(chars: &mut Peekable<Chars<'_>>) -> Result<usize, String> {
    match chars.next_if_eq(&'*') {
        Some(_) => Ok(word(chars, |c| c.is_ascii_digit()).parse().map_err(|_| "a count")?),
        None => Ok(1),
    }
}

/// A transaction in `levels` others.
fn nested(inner: Vec<u8>, levels: usize) -> Vec<u8> {
    let mut bytes = inner;
    for field in [4, 2].repeat(levels) {
        let mut outer = vec![];
        varint(field << 3 | 2, &mut outer);
        varint(bytes.len() as u64, &mut outer);
        outer.extend(bytes);
        bytes = outer;
    }
    bytes
}

fn word(chars: &mut Peekable<Chars<'_>>, wanted: impl Fn(char) -> bool) -> String {
    std::iter::from_fn(|| chars.next_if(|c| wanted(*c))).collect()
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or(0));
}

/// Splits a body into messages and shows each on a line of its own.
fn show_answers(method: &str, mut body: Bytes) -> String {
    let mut lines = Vec::new();
    while body.len() >= 5 {
        let size = u32::from_be_bytes([body[1], body[2], body[3], body[4]]);
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let _prefix = body.split_to(5);
        if size > body.len() {
            lines.push(format!("message of {size} bytes, {} arrived", body.len()));
            break;
        }
        lines.push(show(method, body.split_to(size)));
    }
    lines.join("\n")
}

macro_rules! decode {
    ($method:expr, $bytes:expr; $($name:literal => $type:ty),* $(,)?) => {
        match $method {
            $($name => match <$type>::decode($bytes.clone()) {
                Ok(message) => format!("{message:?}"),
                Err(error) => format!("{error}: {:?}", $bytes),
            },)*
            _ => format!("{:?}", $bytes),
        }
    };
}

fn show(method: &str, bytes: Bytes) -> String {
    decode!(method, bytes;
        "KV/Range" => pb::RangeResponse,
        "KV/RangeStream" => pb::RangeStreamResponse,
        "KV/Put" => pb::PutResponse,
        "KV/DeleteRange" => pb::DeleteRangeResponse,
        "KV/Txn" => pb::TxnResponse,
        "KV/Compact" => pb::CompactionResponse,
        "Watch/Watch" => pb::WatchResponse,
        "Lease/LeaseGrant" => pb::LeaseGrantResponse,
        "Lease/LeaseRevoke" => pb::LeaseRevokeResponse,
        "Lease/LeaseKeepAlive" => pb::LeaseKeepAliveResponse,
        "Lease/LeaseTimeToLive" => pb::LeaseTimeToLiveResponse,
        "Lease/LeaseLeases" => pb::LeaseLeasesResponse,
        "Cluster/MemberList" => pb::MemberListResponse,
        "Maintenance/Alarm" => pb::AlarmResponse,
        "Maintenance/Status" => pb::StatusResponse,
        "Maintenance/Defragment" => pb::DefragmentResponse,
        "Maintenance/HashKV" => pb::HashKvResponse,
        "Maintenance/MoveLeader" => pb::MoveLeaderResponse,
        "Maintenance/Downgrade" => pb::DowngradeResponse,
        "grpc.health.v1.Health/Check" => ringbolt_proto::health::HealthCheckResponse,
    )
}

/// Cluster and member id of a server, by its `Status`; with `shows_version`, once its store has the
/// server's version.
///
/// *Errors*: it does not answer.
pub fn ids(server: &Server, shows_version: bool) -> Result<(u64, u64), String> {
    let request = server.directory().join("request");
    std::fs::write(&request, [0; 5]).map_err(|error| error.to_string())?;
    let mut command = Command::new("curl");
    command.args(["-s", "--http2-prior-knowledge", "--max-time", "5", "-X", "POST"]);
    command.args(["-H", "content-type: application/grpc", "-H", "te: trailers"]);
    command.arg("--data-binary").arg(format!("@{}", request.display()));
    let path = "etcdserverpb.Maintenance/Status";
    command.arg(format!("http://{}/{path}", server.endpoint(Endpoint::Tcp)));
    for _ in 0..STATUS_RETRIES {
        let output = command.output().map_err(|error| format!("curl: {error}"))?;
        let body = output.stdout.get(5..).unwrap_or_default();
        let status = pb::StatusResponse::decode(body).map_err(|error| error.to_string())?;
        // A listener may accept before the member behind it answers.
        if let Some(header) = status.header
            && status.leader != 0
            && (!shows_version || minor(&status.storage_version) == minor(&status.version))
        {
            return Ok((header.cluster_id, header.member_id));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(format!(
        "{} does not lead, or has another store version:\n{}",
        server.name,
        server.log_tail()
    ))
}

/// Major and minor version.
fn minor(version: &str) -> &str {
    version.rsplit_once('.').map_or(version, |(minor, _)| minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of a message and its bytes.
    #[test]
    fn messages() {
        let encoded = encode(r#"key.1="a\0" limit.3=300 rev.4=-1 in.7={ x.1="b" } ; !0a"#);
        let mut expected = vec![0, 0, 0, 0, 23];
        expected.extend([0x0a, 2, b'a', 0, 0x18, 0xac, 2, 0x20]);
        expected.extend([0xff; 9]);
        expected.extend([1, 0x3a, 3, 0x0a, 1, b'b']);
        expected[4] = u8::try_from(expected.len() - 5).expect("small");
        expected.extend([0, 0, 0, 0, 1, 0x0a]);
        assert_eq!(encoded.as_deref(), Ok(expected.as_slice()));
        assert!(encode("key=1").is_err());
        assert!(encode("a.1={").is_err());
    }
}

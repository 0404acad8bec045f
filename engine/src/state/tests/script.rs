//! A small language for tests: requests as lines of text, answers as lines of text.
//!
//! ```text
//!   put KEY VALUE [lease=ID] [prev] [ignore-value] [ignore-lease]
//!   get KEY [END] [limit=N] [rev=N] [sort=TARGET] [order=asc|desc] [keys] [count]
//!                 [min-mod=N] [max-mod=N] [min-create=N] [max-create=N]
//!   del KEY [END] [prev]
//!   txn                     then, each indented by two more blanks:
//!     if TARGET KEY[..END] OP VALUE        TARGET: version create mod value lease; OP: = != < >
//!     then REQUEST
//!     else REQUEST
//! ```
//!
//! `-` stands for an empty key, value or end, `\0` for one zero byte.

use bytes::Bytes;
use ringbolt_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use ringbolt_proto::etcdserverpb::request_op::Request;
use ringbolt_proto::etcdserverpb::response_op::Response;
use ringbolt_proto::etcdserverpb::{
    Compare, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest,
    RangeResponse, RequestOp, ResponseHeader, TxnRequest, TxnResponse,
};
use ringbolt_proto::mvccpb::KeyValue;

/// Reads a transaction from its lines, the `txn` line left out.
pub(crate) fn txn(text: &str) -> TxnRequest {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let indent = lines.first().map_or(0, |line| indent_of(line));
    let mut rest = lines.as_slice();
    let txn = parse_txn(&mut rest, indent);
    assert!(rest.is_empty(), "left over: {rest:?}");
    txn
}

/// Reads one request of possibly several lines.
pub(crate) fn request(text: &str) -> Request {
    let lines: Vec<&str> = text.lines().collect();
    let (first, mut rest) = lines.split_first().expect("a request has a line");
    let request = parse_request(first, &mut rest, 0);
    assert!(rest.is_empty(), "left over: {rest:?}");
    request
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn parse_txn(lines: &mut &[&str], indent: usize) -> TxnRequest {
    let mut txn = TxnRequest::default();
    while let Some((line, rest)) = lines.split_first() {
        if indent_of(line) != indent {
            break;
        }
        *lines = rest;
        let (word, tail) = line.trim().split_once(' ').expect("if, then or else, and more");
        let branch = match word {
            "if" => {
                txn.compare.push(parse_compare(tail));
                continue;
            }
            "then" => &mut txn.success,
            "else" => &mut txn.failure,
            other => panic!("{other} is not if, then or else"),
        };
        let request = match tail {
            "nothing" => None,
            tail => Some(parse_request(tail, lines, indent)),
        };
        branch.push(RequestOp { request });
    }
    txn
}

fn parse_request(line: &str, rest: &mut &[&str], indent: usize) -> Request {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[0] {
        "put" => Request::RequestPut(parse_put(&words[1..])),
        "get" => Request::RequestRange(parse_range(&words[1..])),
        "del" => Request::RequestDeleteRange(parse_delete(&words[1..])),
        "txn" => Request::RequestTxn(parse_txn(rest, indent + 2)),
        other => panic!("{other} is no request"),
    }
}

fn bytes(word: &str) -> Bytes {
    match word {
        "-" => Bytes::new(),
        word => Bytes::from(word.replace("\\0", "\0").into_bytes()),
    }
}

fn number(word: &str) -> i64 {
    word.parse().unwrap_or_else(|_| panic!("{word} is no number"))
}

fn parse_put(words: &[&str]) -> PutRequest {
    let mut put =
        PutRequest { key: bytes(words[0]), value: bytes(words[1]), ..PutRequest::default() };
    for word in &words[2..] {
        match word.split_once('=') {
            Some(("lease", id)) => put.lease = number(id),
            None if *word == "prev" => put.prev_kv = true,
            None if *word == "ignore-value" => put.ignore_value = true,
            None if *word == "ignore-lease" => put.ignore_lease = true,
            _ => panic!("{word} means nothing in a put"),
        }
    }
    put
}

fn parse_delete(words: &[&str]) -> DeleteRangeRequest {
    let mut delete = DeleteRangeRequest { key: bytes(words[0]), ..Default::default() };
    for word in &words[1..] {
        match *word {
            "prev" => delete.prev_kv = true,
            end => delete.range_end = bytes(end),
        }
    }
    delete
}

fn parse_range(words: &[&str]) -> RangeRequest {
    let mut range = RangeRequest { key: bytes(words[0]), ..RangeRequest::default() };
    for word in &words[1..] {
        match word.split_once('=') {
            Some(("limit", n)) => range.limit = number(n),
            Some(("rev", n)) => range.revision = number(n),
            Some(("min-mod", n)) => range.min_mod_revision = number(n),
            Some(("max-mod", n)) => range.max_mod_revision = number(n),
            Some(("min-create", n)) => range.min_create_revision = number(n),
            Some(("max-create", n)) => range.max_create_revision = number(n),
            Some(("sort", target)) => {
                let targets = ["key", "version", "create", "mod", "value"];
                let index = targets.iter().position(|name| *name == target);
                range.sort_target = index.map_or(99, |index| i32::try_from(index).expect("small"));
            }
            Some(("order", "asc")) => range.sort_order = 1,
            Some(("order", "desc")) => range.sort_order = 2,
            Some(("order", _)) => range.sort_order = 99,
            None if *word == "keys" => range.keys_only = true,
            None if *word == "count" => range.count_only = true,
            None if *word == "serializable" => range.serializable = true,
            None => range.range_end = bytes(word),
            _ => panic!("{word} means nothing in a get"),
        }
    }
    range
}

fn parse_compare(text: &str) -> Compare {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [target, key, result, value] = words[..] else { panic!("if {text}: four words") };
    let (key, range_end) = key.split_once("..").unwrap_or((key, "-"));
    let (target, union) = match target {
        "version" => (CompareTarget::Version, TargetUnion::Version(number(value))),
        "create" => (CompareTarget::Create, TargetUnion::CreateRevision(number(value))),
        "mod" => (CompareTarget::Mod, TargetUnion::ModRevision(number(value))),
        "value" => (CompareTarget::Value, TargetUnion::Value(bytes(value))),
        "lease" => (CompareTarget::Lease, TargetUnion::Lease(number(value))),
        other => panic!("{other} is no target"),
    };
    let result = match result {
        "=" => CompareResult::Equal,
        ">" => CompareResult::Greater,
        "<" => CompareResult::Less,
        "!=" => CompareResult::NotEqual,
        other => panic!("{other} is no comparison"),
    };
    Compare {
        result: result as i32,
        target: target as i32,
        key: bytes(key),
        range_end: bytes(range_end),
        target_union: Some(union),
    }
}

/// A revision header as text.
fn at(header: Option<&ResponseHeader>) -> String {
    header.map_or("at -".to_owned(), |header| format!("at {}", header.revision))
}

/// One key-value as text.
pub(crate) fn show_kv(kv: &KeyValue) -> String {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let lease = if kv.lease == 0 { String::new() } else { format!(" lease={}", kv.lease) };
    format!(
        "{}={} create={} mod={} version={}{lease}",
        text(&kv.key),
        text(&kv.value),
        kv.create_revision,
        kv.mod_revision,
        kv.version,
    )
}

/// The answer to a put.
pub(crate) fn show_put(response: &PutResponse, out: &mut Vec<String>, indent: &str) {
    out.push(format!("{indent}put {}", at(response.header.as_ref())));
    out.extend(response.prev_kv.iter().map(|kv| format!("{indent}  prev {}", show_kv(kv))));
}

/// The answer to a range.
pub(crate) fn show_range(response: &RangeResponse, out: &mut Vec<String>, indent: &str) {
    let more = if response.more { " more" } else { "" };
    let at = at(response.header.as_ref());
    out.push(format!("{indent}range {at} count={}{more}", response.count));
    out.extend(response.kvs.iter().map(|kv| format!("{indent}  {}", show_kv(kv))));
}

/// The answer to a delete.
pub(crate) fn show_delete(response: &DeleteRangeResponse, out: &mut Vec<String>, indent: &str) {
    let at = at(response.header.as_ref());
    out.push(format!("{indent}delete {at} deleted={}", response.deleted));
    out.extend(response.prev_kvs.iter().map(|kv| format!("{indent}  prev {}", show_kv(kv))));
}

/// The answer to a transaction.
pub(crate) fn show_txn(response: &TxnResponse, out: &mut Vec<String>, indent: &str) {
    let branch = if response.succeeded { "then" } else { "else" };
    out.push(format!("{indent}txn {} {branch}", at(response.header.as_ref())));
    let indent = format!("{indent}  ");
    for op in &response.responses {
        match op.response.as_ref().expect("each answer is set") {
            Response::ResponseRange(response) => show_range(response, out, &indent),
            Response::ResponsePut(response) => show_put(response, out, &indent),
            Response::ResponseDeleteRange(response) => show_delete(response, out, &indent),
            Response::ResponseTxn(response) => show_txn(response, out, &indent),
        }
    }
}

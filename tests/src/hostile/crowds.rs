//! Many clients, and clients that do not read: what one holds is small, and so is what all hold.

use std::env;
use std::thread::sleep;
use std::time::{Duration, Instant};

use prost::Message;
use ringbolt_proto::etcdserverpb::request_op::Request;
use ringbolt_proto::etcdserverpb::watch_request::RequestUnion;
use ringbolt_proto::etcdserverpb::{
    PutRequest, RangeRequest, RequestOp, TxnRequest, WatchCreateRequest, WatchRequest,
};

use super::Attack;
use super::server::Server;
use super::wire::Wire;

/// Keys of the list that nobody reads; `HOSTILE_KEYS` sets another number.
const KEYS: usize = 100_000;
const VALUE_BYTES: usize = 256;
/// Transactions in flight while the list is written.
const TXNS_AHEAD: u32 = 16;
/// Puts of one transaction.
const PUTS: usize = 100;
const LISTERS: usize = 10;
/// What a slow lister reads in a second.
const LISTER_BYTES_PER_S: usize = 1_000_000;
const LIST_TIME: Duration = Duration::from_secs(8);
const IDLE: usize = 19_000;
const IDLE_TIME: Duration = Duration::from_secs(3);

/// The attacks of this file.
#[must_use]
pub fn attacks() -> Vec<Attack> {
    let attack = |name, limit, megabytes: u64, run| Attack {
        name,
        limit,
        growth_bytes_max: megabytes << 20,
        fills_budget: false,
        run,
    };
    vec![
        // The keys themselves take room too; the growth of the next two is the clients' alone.
        attack("fill", "none: it writes what is listed next", 1_024, fill),
        attack("slow-listers", "LIST_HELD_BYTES_MAX, --memory-budget", 64, slow_listers),
        attack("silent-listers", "LIST_HELD_BYTES_MAX, --memory-budget", 192, silent_listers),
        attack("silent-txns", "--memory-budget", 512, silent_txns),
        attack("silent-watchers", "--memory-budget", 256, silent_watchers),
        attack("idle-connections", "the limit of open files", 477, idle_connections),
        attack("idle-watchers", "the limit of open files", 477, idle_watchers),
    ]
}

fn keys() -> usize {
    env::var("HOSTILE_KEYS").ok().and_then(|text| text.parse().ok()).unwrap_or(KEYS)
}

fn fill(server: &Server) -> Result<String, String> {
    let mut wire = Wire::wide(server)?;
    let began = Instant::now();
    let (mut stream, mut done) = (1, 0);
    let count = keys();
    let mut open = Vec::new();
    while done < count || !open.is_empty() {
        if done < count && open.len() < usize::try_from(TXNS_AHEAD).unwrap_or(1) {
            let put = |index: usize| RequestOp {
                request: Some(Request::RequestPut(PutRequest {
                    key: format!("list/{index:09}").into(),
                    value: vec![b'v'; VALUE_BYTES].into(),
                    ..PutRequest::default()
                })),
            };
            let success = (done..(done + PUTS).min(count)).map(put).collect();
            let txn = TxnRequest { success, ..TxnRequest::default() };
            wire.call(stream, "etcdserverpb.KV/Txn", &[]);
            wire.message(stream, &txn.encode_to_vec(), true);
            wire.flush()?;
            open.push(stream);
            done += PUTS;
            stream += 2;
            continue;
        }
        let outcome = wire.outcome(open.remove(0))?;
        if !outcome.starts_with("0 ") {
            return Err(outcome);
        }
    }
    Ok(format!("{count} keys in {:.1} s", began.elapsed().as_secs_f64()))
}

fn ask_for_list(server: &Server) -> Result<Wire, String> {
    let mut wire = Wire::wide(server)?;
    let range =
        RangeRequest { key: "list/".into(), range_end: "list0".into(), ..RangeRequest::default() };
    wire.call(1, "etcdserverpb.KV/Range", &[]);
    wire.message(1, &range.encode_to_vec(), true);
    wire.flush()?;
    Ok(wire)
}

/// Ten clients that read a list at 1 MB/s each.
fn slow_listers(server: &Server) -> Result<String, String> {
    let mut wires =
        (0..LISTERS).map(|_| ask_for_list(server)).collect::<Result<Vec<_>, String>>()?;
    let began = Instant::now();
    let mut read = 0;
    while began.elapsed() < LIST_TIME {
        let due = LISTER_BYTES_PER_S * usize::try_from(began.elapsed().as_millis()).unwrap_or(0);
        while read / LISTERS < due / 1000 {
            for wire in &mut wires {
                if let Ok(Some(bytes)) = wire.read_some(Duration::from_millis(100)) {
                    read += bytes.len();
                }
            }
            if began.elapsed() > LIST_TIME {
                break;
            }
        }
        sleep(Duration::from_millis(5));
    }
    Ok(format!("{} MB read by {LISTERS} clients", read / 1_000_000))
}

/// A hundred clients that ask for the list and never read.
fn silent_listers(server: &Server) -> Result<String, String> {
    let wires: Vec<Wire> = (0..100).map(|_| ask_for_list(server)).collect::<Result<_, String>>()?;
    sleep(IDLE_TIME);
    Ok(format!("{} lists asked for and never read", wires.len()))
}

/// A hundred clients that ask for the list four times in one transaction, in key order and sorted,
/// and never read. What the budget has no room for is refused before it is read.
fn silent_txns(server: &Server) -> Result<String, String> {
    let mut wires = Vec::new();
    for index in 0..100 {
        let mut wire = Wire::wide(server)?;
        ask_for_lists(&mut wire, index % 2);
        wire.flush()?;
        wires.push(wire);
    }
    sleep(IDLE_TIME);
    let mut last = Wire::wide(server)?;
    ask_for_lists(&mut last, 0);
    let outcome = last.outcome(1)?;
    if !outcome.starts_with("8 ") {
        return Err(format!("one more transaction of lists got {outcome:?}"));
    }
    Ok(format!("{} transactions of four lists never read, one more got {outcome:?}", wires.len()))
}

fn ask_for_lists(wire: &mut Wire, sort_target: i32) {
    let range = RangeRequest {
        key: "list/".into(),
        range_end: "list0".into(),
        sort_target,
        ..RangeRequest::default()
    };
    let list = RequestOp { request: Some(Request::RequestRange(range)) };
    let txn = TxnRequest { success: vec![list; 4], ..TxnRequest::default() };
    wire.call(1, "etcdserverpb.KV/Txn", &[]);
    wire.message(1, &txn.encode_to_vec(), true);
}

fn ask_for_watch(wire: &mut Wire, stream: u32, key: &str) {
    let create =
        WatchCreateRequest { key: key.as_bytes().to_vec().into(), ..WatchCreateRequest::default() };
    let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    wire.call(stream, "etcdserverpb.Watch/Watch", &[]);
    wire.message(stream, &request.encode_to_vec(), false);
}

/// 10 000 watchers, each on a stream of its own, of a key that is written and written.
fn silent_watchers(server: &Server) -> Result<String, String> {
    let mut wires = Vec::new();
    for _ in 0..100 {
        let mut wire = Wire::wide(server)?;
        for index in 0..100 {
            ask_for_watch(&mut wire, index * 2 + 1, "watched");
        }
        wire.flush()?;
        wires.push(wire);
    }
    let mut writer = Wire::wide(server)?;
    let puts = 2_000;
    for index in 0..puts {
        let value = vec![b'e'; 1024].into();
        let put = PutRequest { key: "watched".into(), value, ..PutRequest::default() };
        writer.call(index * 2 + 1, "etcdserverpb.KV/Put", &[]);
        writer.message(index * 2 + 1, &put.encode_to_vec(), true);
        let outcome = writer.outcome(index * 2 + 1)?;
        if outcome != "0 " {
            return Err(format!("a put of the watched key got {outcome:?}"));
        }
    }
    Ok(format!("{puts} events of 1 KiB for 10 000 watchers that do not read"))
}

fn crowd(server: &Server, mut act: impl FnMut(&mut Wire)) -> Result<Vec<Wire>, String> {
    let mut wires = Vec::new();
    for index in 0..IDLE {
        let mut wire = Wire::connect(server).map_err(|error| format!("{index}: {error}"))?;
        wire.greet(&[]);
        act(&mut wire);
        wire.flush().map_err(|error| format!("{index}: {error}"))?;
        wires.push(wire);
    }
    Ok(wires)
}

fn idle_connections(server: &Server) -> Result<String, String> {
    let began = Instant::now();
    let wires = crowd(server, |_| ())?;
    let took = began.elapsed().as_secs_f64();
    sleep(IDLE_TIME);
    Ok(format!("{} connections in {took:.1} s", wires.len()))
}

fn idle_watchers(server: &Server) -> Result<String, String> {
    let began = Instant::now();
    let mut index = 0;
    let wires = crowd(server, |wire| {
        index += 1;
        ask_for_watch(wire, 1, &format!("never/{index}"));
    })?;
    let took = began.elapsed().as_secs_f64();
    sleep(IDLE_TIME);
    Ok(format!("{} connections with a watcher each in {took:.1} s", wires.len()))
}

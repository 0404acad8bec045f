//! What large jobs inside the server cost its other clients: leases that expire together,
//! compaction of a long history; and what an idle server costs.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use prost::Message;
use ringbolt_proto::etcdserverpb::{
    CompactionRequest, LeaseGrantRequest, PutRequest, RangeRequest, RangeResponse,
};

use crate::limits::{CALLS_IN_FLIGHT, EXPIRY_S_MAX, SETTLE_S};
use crate::load::{self, Shape};
use crate::measures::number;
use crate::server::Server;
use crate::wire::{Connection, Target, head};
use crate::workload::{Workload, key, put};

const VALUE_BYTES: usize = 256;
/// One client in a closed loop: what a job does to its latency is what it does to everybody's.
const WITNESS: Shape = Shape { connections: 1, streams: 1, value_bytes: VALUE_BYTES };
/// The witness is asked this often how it fares.
const WINDOW: Duration = Duration::from_millis(250);
/// How long the witness is asked before a job, in seconds.
pub const QUIET_S: u64 = 3;
const LEASE_TTL_S: i64 = 20;

/// The witness's latencies, window by window.
pub type Windows = Vec<(Instant, Histogram<u64>)>;

/// A line for the report.
pub type Fact = (String, String);

/// Sends `total` calls, many in flight, and waits for their answers.
fn many(
    target: &Target,
    path: &str,
    total: u64,
    request: impl Fn(u64) -> Vec<u8>,
) -> io::Result<()> {
    let mut connection = Connection::open(target)?;
    let head = head(path);
    let mut answers = Vec::new();
    let (mut sent, mut answered) = (0u64, 0u64);
    while answered < total {
        while sent < total && sent - answered < CALLS_IN_FLIGHT && connection.has_window(1024) {
            connection.call(&head, &request(sent));
            sent += 1;
        }
        connection.flush()?;
        answers.clear();
        connection.receive(&mut answers)?;
        if answers.iter().any(|answer| answer.message.is_empty()) {
            return Err(io::Error::other(format!("{path} was refused")));
        }
        answered += u64::try_from(answers.len()).unwrap_or(0);
    }
    Ok(())
}

/// Puts of the witness while `job` runs, and what the job gives.
pub fn witnessed<T>(
    target: &Target,
    job: impl FnOnce() -> io::Result<T>,
) -> io::Result<(Windows, T)> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let witness = scope.spawn(|| -> io::Result<_> {
            let mut windows = Vec::new();
            while !done.load(Ordering::Relaxed) {
                let begin = Instant::now();
                let outcome = load::run(target, Workload::Put, WITNESS, WINDOW)?;
                windows.push((begin, outcome.latency_us));
            }
            Ok(windows)
        });
        let outcome = job();
        done.store(true, Ordering::Relaxed);
        let windows = witness.join().expect("the witness does not panic")?;
        Ok((windows, outcome?))
    })
}

/// The windows that touch `from..to`, as one.
pub fn merged(windows: &[(Instant, Histogram<u64>)], from: Instant, to: Instant) -> Histogram<u64> {
    let mut all = Histogram::new(3).expect("three digits");
    for (begin, window) in windows {
        if *begin < to && *begin + WINDOW > from {
            all += window;
        }
    }
    all
}

/// The witness's latencies beside nothing.
pub fn quiet_for(target: &Target, seconds: u64) -> io::Result<Histogram<u64>> {
    Ok(load::run(target, Workload::Put, WITNESS, Duration::from_secs(seconds))?.latency_us)
}

fn quiet(target: &Target) -> io::Result<Histogram<u64>> {
    quiet_for(target, QUIET_S)
}

fn p99(name: &str, quiet: &Histogram<u64>, strained: &Histogram<u64>) -> Fact {
    slower(name, ("p99", 0.99), quiet, strained).0
}

/// A quantile of the witness's puts beside a job against that of a quiet server; and the ratio.
pub fn slower(
    name: &str,
    (word, quantile): (&str, f64),
    quiet: &Histogram<u64>,
    strained: &Histogram<u64>,
) -> (Fact, f64) {
    let at = |histogram: &Histogram<u64>| histogram.value_at_quantile(quantile);
    let (before, during) = (at(quiet), at(strained));
    let ratio = number(during) / number(before.max(1));
    let text = format!(
        "{ratio:.2} × quiet ({before} µs → {during} µs, slowest {} µs, {} puts)",
        strained.max(),
        strained.len()
    );
    ((format!("{name}: put {word}, one client"), text), ratio)
}

/// `count` leases with a key each, which all expire together: a restart gives every lease its
/// whole time again.
pub fn leases(server: &mut Server, count: u64) -> io::Result<Vec<Fact>> {
    let target = server.unix();
    let id = |number: u64| i64::try_from(number + 1).expect("few leases");
    many(&target, "/etcdserverpb.Lease/LeaseGrant", count, |number| {
        LeaseGrantRequest { ttl: LEASE_TTL_S, id: id(number) }.encode_to_vec()
    })?;
    let value = Bytes::from_static(b"held");
    many(&target, "/etcdserverpb.KV/Put", count, |number| {
        let put = put(format!("/leased/{number:08}"), &value);
        PutRequest { lease: id(number), ..put }.encode_to_vec()
    })?;
    server.stop()?;
    server.start()?;
    let held = leased(&target)?;
    if u64::try_from(held).ok() != Some(count) {
        return Err(io::Error::other(format!("{held} of {count} leased keys before they expire")));
    }
    let before = quiet(&target)?;
    let (windows, (from, to)) = witnessed(&target, || {
        let limit = Instant::now() + Duration::from_secs(EXPIRY_S_MAX);
        let mut from = None;
        while Instant::now() < limit {
            let left = leased(&target)?;
            if left < held {
                from.get_or_insert_with(Instant::now);
            }
            if let (0, Some(from)) = (left, from) {
                return Ok((from, Instant::now()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(io::Error::other("the leases do not expire"))
    })?;
    let name = format!("{count} leases that expire together");
    let gone = format!("{:.2} s from the first to the last", (to - from).as_secs_f64());
    let during = merged(&windows, from, to);
    Ok(vec![(format!("{name}: gone"), gone), p99(&name, &before, &during)])
}

/// Keys below `/leased/` now.
fn leased(target: &Target) -> io::Result<i64> {
    let request = RangeRequest {
        key: Bytes::from_static(b"/leased/"),
        range_end: Bytes::from_static(b"/leased0"),
        count_only: true,
        ..RangeRequest::default()
    };
    let answer =
        Connection::open(target)?.ask(&head("/etcdserverpb.KV/Range"), &request.encode_to_vec())?;
    Ok(RangeResponse::decode(&answer[..]).map_err(io::Error::other)?.count)
}

/// Compaction of `revisions` puts over 10 000 keys, to its physical end.
pub fn compaction(server: &Server, revisions: u64) -> io::Result<Vec<Fact>> {
    let target = server.unix();
    let value = Bytes::from(vec![b'v'; VALUE_BYTES]);
    many(&target, "/etcdserverpb.KV/Put", revisions, |number| {
        put(key(number % 10_000), &value).encode_to_vec()
    })?;
    let before = quiet(&target)?;
    let (windows, (from, to)) = witnessed(&target, || {
        std::thread::sleep(2 * WINDOW);
        let mut connection = Connection::open(&target)?;
        let revision = i64::try_from(revisions).expect("few revisions");
        let request = CompactionRequest { revision, physical: true }.encode_to_vec();
        let from = Instant::now();
        if connection.ask(&head("/etcdserverpb.KV/Compact"), &request)?.is_empty() {
            return Err(io::Error::other("the compaction was refused"));
        }
        Ok((from, Instant::now()))
    })?;
    let name = format!("compaction of {revisions} revisions");
    let took = format!("{:.2} s", (to - from).as_secs_f64());
    Ok(vec![(format!("{name}: done"), took), p99(&name, &before, &merged(&windows, from, to))])
}

/// A server that nobody asks anything, for `seconds`.
pub fn idle(server: &Server, seconds: u64) -> io::Result<Vec<Fact>> {
    // The first segments are zeroed after the start.
    std::thread::sleep(Duration::from_secs(SETTLE_S));
    let (cpu, written) = (server.cpu()?, server.written_bytes()?);
    std::thread::sleep(Duration::from_secs(seconds));
    let cpu = (server.cpu()? - cpu).as_secs_f64() / Duration::from_secs(seconds).as_secs_f64();
    let written = server.written_bytes()? - written;
    let resident = server.resident_bytes()? / 1_000_000;
    Ok(vec![(
        "idle, fresh store".to_owned(),
        format!("{:.2} % of a core, {written} bytes written, {resident} MB resident", cpu * 100.0),
    )])
}

//! What is measured side by side, and how one measure is taken.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use hdrhistogram::Histogram;

use crate::fanout::{self, Fanout};
use crate::load::{self, Shape};
use crate::server::Server;
use crate::wire::Target;
use crate::workload::Workload;

/// Bytes of every value.
pub const VALUE_BYTES: usize = 256;
/// Puts of one fan-out measure for each second it may take.
const FANOUT_PUTS_PER_SECOND: u64 = 50;

/// One measure.
pub struct Measure {
    /// What the report calls it.
    pub name: &'static str,
    what: What,
    socket: Kind,
}

#[derive(Clone, Copy)]
enum What {
    Load { workload: Workload, connections: usize, streams: usize },
    Fanout(Fanout),
}

#[derive(Clone, Copy)]
enum Kind {
    Tcp,
    Unix,
}

const fn load(
    name: &'static str,
    workload: Workload,
    (connections, streams): (usize, usize),
    socket: Kind,
) -> Measure {
    Measure { name, what: What::Load { workload, connections, streams }, socket }
}

const fn fan_out(name: &'static str, watchers: usize, connections: usize) -> Measure {
    Measure { name, what: What::Fanout(Fanout { watchers, connections }), socket: Kind::Unix }
}

/// Durable on both. One client shows latency, many show throughput.
pub const SAFE: &[Measure] = &[
    load("put, 1 client, TCP", Workload::Put, (1, 1), Kind::Tcp),
    load("put, 1 client, Unix", Workload::Put, (1, 1), Kind::Unix),
    load("put, 100 × 1, TCP", Workload::Put, (100, 1), Kind::Tcp),
    load("put, 8 × 125, TCP", Workload::Put, (8, 125), Kind::Tcp),
    load("put, 64 × 1, TCP", Workload::Put, (64, 1), Kind::Tcp),
    load("put, 64 × 1, Unix", Workload::Put, (64, 1), Kind::Unix),
    load("update, 100 × 1, TCP", Workload::Update, (100, 1), Kind::Tcp),
    load("get, 1 client, Unix", Workload::Get, (1, 1), Kind::Unix),
    load("get, 100 × 1, TCP", Workload::Get, (100, 1), Kind::Tcp),
    fan_out("event, 1 watcher", 1, 1),
    fan_out("event, 1000 watchers on 10", 1000, 10),
    fan_out("event, 10000 watchers on 50", 10_000, 50),
];

/// Memory mode here, `--unsafe-no-fsync` there.
pub const VOLATILE: &[Measure] =
    &[load("put without a disk, 1 client, Unix", Workload::Put, (1, 1), Kind::Unix)];

impl Measure {
    /// Takes it once: `(what, value)`.
    pub fn take(&self, server: &Server, seconds: u64) -> io::Result<Vec<(&'static str, f64)>> {
        let target = match self.socket {
            Kind::Tcp => server.tcp(),
            Kind::Unix => server.unix(),
        };
        match self.what {
            What::Load { workload, connections, streams } => {
                let shape = Shape { connections, streams, value_bytes: VALUE_BYTES };
                self.load(server, (&target, workload, shape), seconds)
            }
            What::Fanout(fanout) => event(&target, fanout, seconds),
        }
    }

    fn load(
        &self,
        server: &Server,
        (target, workload, shape): (&Target, Workload, Shape),
        seconds: u64,
    ) -> io::Result<Vec<(&'static str, f64)>> {
        let before = server.cpu()?;
        let outcome = load::run(target, workload, shape, Duration::from_secs(seconds))?;
        if outcome.failed > 0 {
            return Err(io::Error::other(format!("{}: {} failed", self.name, outcome.failed)));
        }
        let cpu = server.cpu()?.saturating_sub(before);
        let calls = number(outcome.latency_us.len()).max(1.0);
        let mut figures = quantiles(&outcome.latency_us);
        if shape.connections > 1 {
            figures.insert(0, ("calls/s", outcome.per_second()));
        }
        figures.push(("server CPU µs/call", cpu.as_secs_f64() * 1e6 / calls));
        Ok(figures)
    }
}

fn event(target: &Target, fanout: Fanout, seconds: u64) -> io::Result<Vec<(&'static str, f64)>> {
    let value = Bytes::from(vec![b'v'; VALUE_BYTES]);
    let puts = usize::try_from(seconds * FANOUT_PUTS_PER_SECOND).unwrap_or(usize::MAX);
    let puts = if fanout.watchers > 1000 { puts / 2 } else { puts };
    let latencies = fanout::run(target, fanout, puts, &value)?;
    let mut figures = quantiles(&latencies);
    // The last watcher of few puts: the 99.9th percentile would be the slowest one.
    figures.truncate(2);
    Ok(figures)
}

fn quantiles(latencies: &Histogram<u64>) -> Vec<(&'static str, f64)> {
    let at = |quantile: f64| number(latencies.value_at_quantile(quantile));
    vec![("p50 µs", at(0.5)), ("p99 µs", at(0.99)), ("p99.9 µs", at(0.999))]
}

/// A count or a latency; both stay far below 2³².
pub fn number(value: u64) -> f64 {
    u32::try_from(value).map_or(f64::MAX, f64::from)
}

//! etcd and this server in one run: the same load in turns, round by round.

use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use prost::Message;
use ringbolt_proto::etcdserverpb::{RangeResponse, RequestOp, TxnRequest, request_op::Request};

use crate::CompareArguments;
use crate::limits::BULK_KEYS_PER_TXN;
use crate::load::{self, Shape};
use crate::probe;
use crate::report::{self, Row};
use crate::server::Server;
use crate::wire::{Connection, head};
use crate::workload::{LIST_KEYS, Workload, put};

const VALUE_BYTES: usize = 256;
const ETCD_PORT: u16 = 26790;
const OURS_PORT: u16 = 26890;

struct Measure {
    name: &'static str,
    workload: Workload,
    connections: usize,
    streams: usize,
    unix: bool,
}

/// One client shows latency, a hundred show throughput.
const MEASURES: &[Measure] = &[
    Measure { name: "put, TCP", workload: Workload::Put, connections: 1, streams: 1, unix: false },
    Measure { name: "put, Unix", workload: Workload::Put, connections: 1, streams: 1, unix: true },
    Measure {
        name: "put, 100 × 1",
        workload: Workload::Put,
        connections: 100,
        streams: 1,
        unix: false,
    },
    Measure {
        name: "put, 8 × 125",
        workload: Workload::Put,
        connections: 8,
        streams: 125,
        unix: false,
    },
    Measure {
        name: "create, 100 × 1",
        workload: Workload::Create,
        connections: 100,
        streams: 1,
        unix: false,
    },
    Measure { name: "get, TCP", workload: Workload::Get, connections: 1, streams: 1, unix: false },
    Measure {
        name: "get, 100 × 1",
        workload: Workload::Get,
        connections: 100,
        streams: 1,
        unix: false,
    },
];

/// Runs everything and prints the report.
pub fn run(arguments: &CompareArguments) -> io::Result<()> {
    let mut rows = Vec::new();
    let mut probes = Probes::default();
    let bar = progress(arguments);
    small_store(arguments, &mut rows, &mut probes, &bar)?;
    if arguments.keys > 0 {
        large_store(arguments, &mut rows, &bar)?;
    }
    bar.finish_and_clear();
    println!("{}", report::table(&rows));
    println!("{}", probes.text());
    if let Some(path) = &arguments.plot {
        report::plot(&rows, path).map_err(|error| io::Error::other(error.to_string()))?;
        println!("plot: {}", path.display());
    }
    Ok(())
}

fn progress(arguments: &CompareArguments) -> ProgressBar {
    let steps = arguments.rounds * MEASURES.len() * 2 + if arguments.keys > 0 { 2 } else { 0 };
    let bar = ProgressBar::new(u64::try_from(steps).unwrap_or(0));
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Medians of the probes, taken before and after each round.
#[derive(Default)]
struct Probes {
    durable_us: Vec<u64>,
    ping_us: Vec<u64>,
}

impl Probes {
    fn take(&mut self, arguments: &CompareArguments) -> io::Result<()> {
        let p50 = |histogram: &Histogram<u64>| histogram.value_at_quantile(0.5);
        self.durable_us.push(p50(&probe::durable_writes(&arguments.directory)?));
        self.ping_us.push(p50(&probe::ping_pong()?));
        Ok(())
    }

    fn text(&self) -> String {
        format!(
            "raw durable 4 KiB write, p50 µs before and after each round: {:?}\n\
             raw ping-pong over a Unix socket, p50 µs: {:?}",
            self.durable_us, self.ping_us
        )
    }
}

fn small_store(
    arguments: &CompareArguments,
    rows: &mut Vec<Row>,
    probes: &mut Probes,
    bar: &ProgressBar,
) -> io::Result<()> {
    let directory = &arguments.directory;
    let mut etcd = Server::new(&arguments.etcd, &directory.join("bench-etcd"), ETCD_PORT)?;
    let mut ours = Server::new(&arguments.ours, &directory.join("bench-ours"), OURS_PORT)?;
    etcd.start()?;
    ours.start()?;
    probes.take(arguments)?;
    for round in 0..arguments.rounds {
        for measure in MEASURES {
            // Which goes first changes from round to round.
            let order = if round % 2 == 0 { [&etcd, &ours] } else { [&ours, &etcd] };
            for server in order {
                bar.set_message(measure.name);
                let figures = measured(server, measure, arguments.seconds)?;
                let is_ours = std::ptr::eq(server, &raw const ours);
                record(rows, measure, is_ours, &figures);
                bar.inc(1);
            }
        }
        probes.take(arguments)?;
    }
    etcd.stop()?;
    ours.stop()
}

/// `(what, value)` of one run.
fn measured(
    server: &Server,
    measure: &Measure,
    seconds: u64,
) -> io::Result<Vec<(&'static str, f64)>> {
    let target = if measure.unix { server.unix() } else { server.tcp() };
    let shape = Shape {
        connections: measure.connections,
        streams: measure.streams,
        value_bytes: VALUE_BYTES,
    };
    let before = server.cpu()?;
    let outcome = load::run(&target, measure.workload, shape, Duration::from_secs(seconds))?;
    if outcome.failed > 0 {
        return Err(io::Error::other(format!("{}: {} failed", measure.name, outcome.failed)));
    }
    let cpu = server.cpu()?.saturating_sub(before);
    let at = |quantile: f64| micros(outcome.latency_us.value_at_quantile(quantile));
    let calls = micros(outcome.latency_us.len()).max(1.0);
    let mut figures = vec![("p50 µs", at(0.5)), ("p99 µs", at(0.99)), ("p99.9 µs", at(0.999))];
    if measure.connections > 1 {
        figures.insert(0, ("calls/s", outcome.per_second()));
    }
    figures.push(("server CPU µs/call", cpu.as_secs_f64() * 1e6 / calls));
    Ok(figures)
}

fn micros(value: u64) -> f64 {
    u32::try_from(value).map_or(f64::MAX, f64::from)
}

fn record(rows: &mut Vec<Row>, measure: &Measure, ours: bool, figures: &[(&str, f64)]) {
    for (what, value) in figures {
        add(rows, &format!("{}: {what}", measure.name), ours, *value);
    }
}

fn add(rows: &mut Vec<Row>, name: &str, ours: bool, value: f64) {
    let place = rows.iter().position(|row| row.measure == name).unwrap_or_else(|| {
        rows.push(Row { measure: name.to_owned(), etcd: Vec::new(), ours: Vec::new() });
        rows.len() - 1
    });
    let row = &mut rows[place];
    if ours { row.ours.push(value) } else { row.etcd.push(value) }
}

fn large_store(
    arguments: &CompareArguments,
    rows: &mut Vec<Row>,
    bar: &ProgressBar,
) -> io::Result<()> {
    let directory = &arguments.directory;
    let servers = [
        (&arguments.etcd, "bench-etcd", ETCD_PORT, false),
        (&arguments.ours, "bench-ours", OURS_PORT, true),
    ];
    for (binary, name, port, is_ours) in servers {
        bar.set_message(format!("{} keys", arguments.keys));
        let mut server = Server::new(binary, &directory.join(name), port)?;
        server.start()?;
        fill(&server, arguments.keys)?;
        let list = median_list(&server)?;
        add(rows, "list of 10 000 of the large store: ms", is_ours, list.as_secs_f64() * 1e3);
        let resident = server.resident_bytes()? / 1_000_000;
        add(rows, "resident with the large store: MB", is_ours, micros(resident));
        server.stop()?;
        let ready = server.start()?;
        add(rows, "restart to the first read: ms", is_ours, ready.as_secs_f64() * 1e3);
        server.stop()?;
        bar.inc(1);
    }
    Ok(())
}

/// Fills `/large/` with keys of 20 bytes in transactions, several in flight.
fn fill(server: &Server, keys: usize) -> io::Result<()> {
    let mut connection = Connection::open(&server.tcp())?;
    let head = head("/etcdserverpb.KV/Txn");
    let value = Bytes::from(vec![b'v'; VALUE_BYTES]);
    let mut answers = Vec::new();
    let (mut sent, mut answered) = (0usize, 0usize);
    let total = keys.div_ceil(BULK_KEYS_PER_TXN);
    while answered < total {
        while sent < total
            && sent - answered < 8
            && (sent == answered || connection.has_window(40_000))
        {
            let from = sent * BULK_KEYS_PER_TXN;
            let success = (from..(from + BULK_KEYS_PER_TXN).min(keys))
                .map(|number| put(format!("/large/{number:013}"), &value))
                .map(|put| RequestOp { request: Some(Request::RequestPut(put)) })
                .collect();
            let txn = TxnRequest { success, ..TxnRequest::default() };
            connection.call(&head, &txn.encode_to_vec());
            sent += 1;
        }
        connection.flush()?;
        answers.clear();
        connection.receive(&mut answers)?;
        if answers.iter().any(|answer| answer.message.is_empty()) {
            return Err(io::Error::other("a bulk load was refused"));
        }
        answered += answers.len();
    }
    Ok(())
}

fn median_list(server: &Server) -> io::Result<Duration> {
    let mut connection = Connection::open(&server.tcp())?;
    let (head, request) = (Workload::List.head(), Workload::List.request(0, &Bytes::new()));
    let mut took = Vec::new();
    for _ in 0..11 {
        let start = Instant::now();
        let answer = connection.ask(&head, &request)?;
        took.push(start.elapsed());
        let response = RangeResponse::decode(&answer[..]).map_err(io::Error::other)?;
        let keys = i64::try_from(response.kvs.len()).unwrap_or(0);
        if keys != LIST_KEYS.min(response.count) {
            return Err(io::Error::other(format!("a list gave {keys} keys")));
        }
    }
    took.sort();
    Ok(took[took.len() / 2])
}

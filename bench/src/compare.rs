//! etcd and this server in one run: the same load in turns, round by round.

use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use prost::Message;
use ringbolt_proto::etcdserverpb::{
    RangeRequest, RangeResponse, RequestOp, TxnRequest, request_op::Request,
};

use crate::CompareArguments;
use crate::crowd;
use crate::limits::BULK_KEYS_PER_TXN;
use crate::lists;
use crate::measures::{Measure, SAFE, VALUE_BYTES, VOLATILE, number};
use crate::probe;
use crate::report::{self, Row};
use crate::server::Server;
use crate::strain::{self, Fact};
use crate::wire::{Connection, head};
use crate::workload::{LIST_KEYS, put};

/// The port of ours lies so far above that of etcd.
const PORTS_APART: u16 = 100;
/// Seconds an idle server is looked at.
const IDLE_S: u64 = 20;

/// Runs everything that is asked for and prints the report.
pub fn run(arguments: &CompareArguments) -> io::Result<()> {
    let mut run = Run {
        arguments,
        rows: Vec::new(),
        facts: Vec::new(),
        probes: Probes::default(),
        bar: progress(arguments),
    };
    run.interleaved(&run.chosen(SAFE), ("", ""))?;
    run.interleaved(&run.chosen(VOLATILE), ("--unsafe-no-fsync", "--fsync=memory"))?;
    if arguments.keys > 0 && run.is_chosen("large store") {
        run.large_store()?;
    }
    run.strains()?;
    run.bar.finish_and_clear();
    if !run.rows.is_empty() {
        println!("{}", report::table(&run.rows));
    }
    if !run.facts.is_empty() {
        println!("{}", report::facts(&run.facts));
    }
    if !run.probes.ping_us.is_empty() {
        println!("{}", run.probes.text());
    }
    if let (Some(path), false) = (&arguments.plot, run.rows.is_empty()) {
        report::plot(&run.rows, path).map_err(|error| io::Error::other(error.to_string()))?;
        println!("plot: {}", path.display());
    }
    Ok(())
}

fn progress(arguments: &CompareArguments) -> ProgressBar {
    let measures = SAFE.len() + VOLATILE.len();
    let steps = arguments.rounds * measures * 2 + if arguments.keys > 0 { 2 } else { 0 };
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

struct Run<'a> {
    arguments: &'a CompareArguments,
    rows: Vec<Row>,
    facts: Vec<Fact>,
    probes: Probes,
    bar: ProgressBar,
}

impl Run<'_> {
    fn is_chosen(&self, name: &str) -> bool {
        let only = &self.arguments.only;
        only.is_empty() || only.iter().any(|part| name.contains(part.as_str()))
    }

    /// What takes long is measured only when it is asked for by name.
    fn is_asked(&self, name: &str) -> bool {
        !self.arguments.only.is_empty() && self.is_chosen(name)
    }

    fn chosen(&self, measures: &'static [Measure]) -> Vec<&'static Measure> {
        measures.iter().filter(|measure| self.is_chosen(measure.name)).collect()
    }

    fn servers(&self) -> io::Result<(Server, Server)> {
        let (directory, port) = (&self.arguments.directory, self.arguments.port);
        Ok((
            Server::new(&self.arguments.etcd, &directory.join("bench-etcd"), port)?,
            Server::new(&self.arguments.ours, &directory.join("bench-ours"), port + PORTS_APART)?,
        ))
    }

    /// The measures in turns on both servers, each started with its flag.
    fn interleaved(&mut self, measures: &[&Measure], flags: (&str, &str)) -> io::Result<()> {
        if measures.is_empty() {
            return Ok(());
        }
        let (mut etcd, mut ours) = self.servers()?;
        if !flags.0.is_empty() {
            (etcd, ours) = (etcd.with(flags.0), ours.with(flags.1));
        }
        etcd.start()?;
        ours.start()?;
        self.probes.take(self.arguments)?;
        for round in 0..self.arguments.rounds {
            for measure in measures {
                // Which goes first changes from round to round.
                let order = if round % 2 == 0 { [&etcd, &ours] } else { [&ours, &etcd] };
                for server in order {
                    self.bar.set_message(measure.name);
                    let is_ours = std::ptr::eq(server, &raw const ours);
                    for (what, value) in measure.take(server, self.arguments.seconds)? {
                        self.add(&format!("{}: {what}", measure.name), is_ours, value);
                    }
                    self.bar.inc(1);
                }
            }
            self.probes.take(self.arguments)?;
        }
        etcd.stop()?;
        ours.stop()
    }

    fn add(&mut self, name: &str, ours: bool, value: f64) {
        let place = self.rows.iter().position(|row| row.measure == name).unwrap_or_else(|| {
            let row = Row { measure: name.to_owned(), etcd: Vec::new(), ours: Vec::new() };
            self.rows.push(row);
            self.rows.len() - 1
        });
        let row = &mut self.rows[place];
        if ours { row.ours.push(value) } else { row.etcd.push(value) }
    }

    fn large_store(&mut self) -> io::Result<()> {
        let (etcd, ours) = self.servers()?;
        for (mut server, is_ours) in [(etcd, false), (ours, true)] {
            self.bar.set_message(format!("{} keys", self.arguments.keys));
            server.start()?;
            fill(&server, "/few", usize::try_from(LIST_KEYS).expect("few"))?;
            let few = median_list(&server, "/few")?;
            fill(&server, "/large", self.arguments.keys)?;
            let resident = server.resident_bytes()? / 1_000_000;
            self.add("large store: resident MB", is_ours, number(resident));
            let many = median_list(&server, "/large")?;
            self.add("large store: list of 10 000 keys, all there are, ms", is_ours, ms(few));
            self.add("large store: list of the first 10 000 keys, ms", is_ours, ms(many));
            server.stop()?;
            let ready = server.start()?;
            self.add("large store: restart to the first read, ms", is_ours, ms(ready));
            server.stop()?;
            self.bar.inc(1);
        }
        Ok(())
    }

    /// What has a bound of its own instead of a ratio.
    fn strains(&mut self) -> io::Result<()> {
        let arguments = self.arguments;
        if self.is_chosen("idle") {
            let mut server = self.servers()?.1;
            server.start()?;
            self.facts.extend(strain::idle(&server, IDLE_S)?);
        }
        if arguments.leases > 0 && self.is_chosen("leases") {
            let mut server = self.servers()?.1;
            server.start()?;
            self.facts.extend(strain::leases(&mut server, arguments.leases)?);
        }
        if arguments.revisions > 0 && self.is_chosen("compaction") {
            let mut server = self.servers()?.1;
            server.start()?;
            self.facts.extend(strain::compaction(&server, arguments.revisions)?);
        }
        if arguments.connections > 0 && self.is_chosen("idle connections") {
            let mut server = self.servers()?.1;
            self.facts.extend(crowd::idle_connections(&mut server, arguments.connections)?);
        }
        if arguments.keys > 0 && self.is_asked("slow lists") {
            let mut server = self.servers()?.1;
            server.start()?;
            self.facts.extend(lists::slow_lists(&server, arguments.keys)?);
        }
        Ok(())
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Fills `prefix` with keys of 20 bytes in transactions, several in flight.
pub fn fill(server: &Server, prefix: &str, keys: usize) -> io::Result<()> {
    let mut connection = Connection::open(&server.tcp())?;
    let head = head("/etcdserverpb.KV/Txn");
    let value = Bytes::from(vec![b'v'; VALUE_BYTES]);
    let mut answers = Vec::new();
    let (mut sent, mut answered) = (0usize, 0usize);
    let total = keys.div_ceil(BULK_KEYS_PER_TXN);
    let digits = 19 - prefix.len();
    while answered < total {
        while sent < total
            && sent - answered < 8
            && (sent == answered || connection.has_window(40_000))
        {
            let from = sent * BULK_KEYS_PER_TXN;
            let success = (from..(from + BULK_KEYS_PER_TXN).min(keys))
                .map(|number| put(format!("{prefix}/{number:0digits$}"), &value))
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

/// A list of the first keys of a prefix.
fn median_list(server: &Server, prefix: &str) -> io::Result<Duration> {
    let mut connection = Connection::open(&server.tcp())?;
    let head = head("/etcdserverpb.KV/Range");
    let request = RangeRequest {
        key: Bytes::from(format!("{prefix}/")),
        range_end: Bytes::from(format!("{prefix}0")),
        limit: LIST_KEYS,
        ..RangeRequest::default()
    }
    .encode_to_vec();
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

//! A closed loop: so many connections with so many calls in flight each, on one thread.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use rustix::event::epoll;

use crate::limits::LATENCY_US_MAX;
use crate::wire::{Answer, Connection, Target};
use crate::workload::{Held, Workload};

/// How many of what.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Connections.
    pub connections: usize,
    /// Calls in flight on each.
    pub streams: usize,
    /// Bytes of each value.
    pub value_bytes: usize,
}

/// What a run measured.
pub struct Outcome {
    /// Latencies in microseconds.
    pub latency_us: Histogram<u64>,
    /// Calls that failed.
    pub failed: u64,
    /// How long it ran.
    pub took: Duration,
}

impl Outcome {
    /// Answered calls per second.
    pub fn per_second(&self) -> f64 {
        let count = u32::try_from(self.latency_us.len()).map_or(f64::MAX, f64::from);
        count / self.took.as_secs_f64()
    }

    /// One line for people.
    pub fn line(&self) -> String {
        format!(
            "{:.0} calls/s, p50 {} µs, p99 {} µs, p99.9 {} µs, slowest {} µs, {} failed",
            self.per_second(),
            self.latency_us.value_at_quantile(0.5),
            self.latency_us.value_at_quantile(0.99),
            self.latency_us.value_at_quantile(0.999),
            self.latency_us.max(),
            self.failed
        )
    }
}

struct Client {
    connection: Connection,
    /// By stream: when, and what its caller holds.
    started: HashMap<u32, (Instant, Held)>,
}

struct Run {
    workload: Workload,
    head: Vec<u8>,
    value: Bytes,
    number: u64,
    outcome: Outcome,
}

/// Runs a workload for `wait`; calls still in flight at the end are waited for, not counted.
pub fn run(
    target: &Target,
    workload: Workload,
    shape: Shape,
    wait: Duration,
) -> io::Result<Outcome> {
    let histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("sound bounds");
    let mut run = Run {
        workload,
        head: workload.head(),
        value: Bytes::from(vec![b'v'; shape.value_bytes]),
        number: u64::from(std::process::id()) << 20,
        outcome: Outcome { latency_us: histogram, failed: 0, took: wait },
    };
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut clients = Vec::new();
    for index in 0..shape.connections {
        let connection = Connection::open(target)?;
        let data = epoll::EventData::new_u64(u64::try_from(index).expect("few connections"));
        epoll::add(&poll, &connection, data, epoll::EventFlags::IN)?;
        clients.push(Client { connection, started: HashMap::new() });
    }
    let begin = Instant::now();
    let mut slots = 0..;
    for client in &mut clients {
        for slot in slots.by_ref().take(shape.streams) {
            run.start(client, Held { slot, revision: 0 });
        }
        client.connection.flush()?;
    }
    let mut answers: Vec<Answer> = Vec::new();
    let mut events =
        [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
            256];
    while clients.iter().any(|client| !client.started.is_empty()) {
        let count = epoll::wait(&poll, &mut events, None)?;
        for event in &events[..count] {
            let index = usize::try_from(event.data.u64()).expect("an index of ours");
            let client = &mut clients[index];
            answers.clear();
            client.connection.receive(&mut answers)?;
            let running = begin.elapsed() < wait;
            for answer in &answers {
                let held = run.finish(client, answer, running);
                if let (Some(held), true) = (held, running) {
                    run.start(client, held);
                }
            }
            client.connection.flush()?;
        }
    }
    Ok(run.outcome)
}

impl Run {
    fn start(&mut self, client: &mut Client, held: Held) {
        self.number += 1;
        let request = self.workload.request(self.number, held, &self.value);
        let stream = client.connection.call(&self.head, &request);
        client.started.insert(stream, (Instant::now(), held));
    }

    /// Gives back what the caller of the answered call holds now.
    fn finish(&mut self, client: &mut Client, answer: &Answer, counts: bool) -> Option<Held> {
        let (started, mut held) = client.started.remove(&answer.stream)?;
        // The first update of a key that is there already only learns its revision.
        let learnt = held.revision == 0 && self.workload == Workload::Update;
        let failed = answer.message.is_empty()
            || (self.workload == Workload::Update && !held.learn(&answer.message) && !learnt);
        if failed {
            self.outcome.failed += 1;
        } else if counts {
            let us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.outcome.latency_us.saturating_record(us.max(1));
        }
        Some(held)
    }
}

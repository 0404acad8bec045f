//! From sending a put to the event of its last watcher.

use std::io;
use std::time::Instant;

use bytes::Bytes;
use hdrhistogram::Histogram;
use prost::Message;
use ringbolt_proto::etcdserverpb::{WatchCreateRequest, WatchRequest, watch_request::RequestUnion};
use rustix::event::epoll;

use crate::limits::LATENCY_US_MAX;
use crate::wire::{Connection, Target, head};
use crate::workload::put;

const KEY: &str = "/fan-out";

/// How many watchers of one key, over how many connections.
#[derive(Clone, Copy, Debug)]
pub struct Fanout {
    /// All together.
    pub watchers: usize,
    /// Each with its share of the watchers on one stream.
    pub connections: usize,
}

/// Puts `puts` times, each once every watcher has seen the one before. Latencies in microseconds.
pub fn run(
    target: &Target,
    fanout: Fanout,
    puts: usize,
    value: &Bytes,
) -> io::Result<Histogram<u64>> {
    let mut crowd = Crowd::open(target, fanout)?;
    let mut writer = Connection::open(target)?;
    let head = head("/etcdserverpb.KV/Put");
    let request = put(KEY.to_owned(), value).encode_to_vec();
    let mut latencies = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("sound bounds");
    let mut answers = Vec::new();
    for _ in 0..puts {
        let start = Instant::now();
        writer.call(&head, &request);
        writer.flush()?;
        crowd.wait_for_each()?;
        let us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        latencies.saturating_record(us.max(1));
        answers.clear();
        while answers.is_empty() {
            writer.receive(&mut answers)?;
        }
        writer.flush()?;
    }
    Ok(latencies)
}

/// Every watcher.
struct Crowd {
    poll: rustix::fd::OwnedFd,
    connections: Vec<Connection>,
    watchers: usize,
}

impl Crowd {
    /// Opens the streams and waits until every watcher is there.
    fn open(target: &Target, fanout: Fanout) -> io::Result<Crowd> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::new();
        let create = WatchCreateRequest { key: Bytes::from(KEY), ..WatchCreateRequest::default() };
        let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        let request = request.encode_to_vec();
        for index in 0..fanout.connections {
            let mut connection = Connection::open(target)?;
            connection.answer_each_message();
            let stream = connection.open_stream(&head("/etcdserverpb.Watch/Watch"));
            for _ in (index..fanout.watchers).step_by(fanout.connections) {
                connection.send_message(stream, &request);
            }
            connection.flush()?;
            let data = epoll::EventData::new_u64(u64::try_from(index).expect("few connections"));
            epoll::add(&poll, &connection, data, epoll::EventFlags::IN)?;
            connections.push(connection);
        }
        let mut crowd = Crowd { poll, connections, watchers: fanout.watchers };
        crowd.wait_for_each()?;
        Ok(crowd)
    }

    /// Waits until as many messages came as there are watchers: one for each.
    fn wait_for_each(&mut self) -> io::Result<()> {
        const NONE: epoll::Event =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [NONE; 64];
        let mut answers = Vec::new();
        let mut missing = self.watchers;
        while missing > 0 {
            let count = epoll::wait(&self.poll, &mut events, None)?;
            for event in &events[..count] {
                let index = usize::try_from(event.data.u64()).expect("an index of ours");
                let connection = &mut self.connections[index];
                answers.clear();
                connection.receive(&mut answers)?;
                connection.flush()?;
                missing = missing.checked_sub(answers.len()).ok_or_else(|| {
                    io::Error::other("a watcher was told more than one event of one put")
                })?;
            }
        }
        Ok(())
    }
}

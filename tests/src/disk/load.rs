//! The load: writers that keep calls in flight, one who reads, one who watches.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use prost::Message;
use ringbolt_proto::etcdserverpb::request_op::Request;
use ringbolt_proto::etcdserverpb::watch_request::RequestUnion;
use ringbolt_proto::etcdserverpb::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
    PutResponse, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse,
    WatchCreateRequest, WatchRequest, WatchResponse,
};
use ringbolt_proto::mvccpb::event::EventType;

use super::client::{Answer, Client};
use super::medium::pick;
use super::record::{Change, PREFIX, PREFIX_END, Record, change_of, value_of};
use crate::corrupt::rng::Rng;

/// Connections that write, half of them over TCP.
const WRITERS: u64 = 4;
/// Calls one keeps in flight.
const IN_FLIGHT: usize = 4;
/// Keys of each.
const KEYS: u64 = 40;
/// Sizes of values: some fill many blocks of the log.
const SIZES: [usize; 8] = [24, 64, 256, 256, 256, 1024, 6000, 24_000];
/// Sizes of a heavy load: with it segments are used up and checkpoints come due.
const SIZES_HEAVY: [usize; 3] = [10_000, 30_000, 55_000];
/// One load of so many is heavy.
const HEAVY: u64 = 5;
/// Revisions that stay behind a compaction.
const KEPT_REVISIONS: i64 = 300;
/// How long a client waits for bytes before it looks whether it should end.
const LOOK_TIME: Duration = Duration::from_millis(20);

/// Where the server listens.
#[derive(Clone)]
pub struct Doors {
    /// TCP.
    pub address: String,
    /// A Unix socket.
    pub socket: PathBuf,
}

impl Doors {
    /// A connection by one of them.
    ///
    /// # Errors
    /// The system's.
    pub fn connect(&self, tcp: bool) -> Result<Client, String> {
        if tcp { Client::over_tcp(&self.address) } else { Client::over_socket(&self.socket) }
    }
}

/// A load at work.
pub struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Begins. `life` is new each time, so that no value is ever written twice.
    #[must_use]
    pub fn start(doors: &Doors, record: &Arc<Record>, life: &str, seed: u64) -> Load {
        let sizes = if seed.is_multiple_of(HEAVY) { &SIZES_HEAVY[..] } else { &SIZES[..] };
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let mut threads = Vec::new();
        for id in 0..WRITERS {
            let writer = Writer {
                id,
                record: record.clone(),
                rng: Rng::new(seed ^ (id + 1)),
                sizes,
                tag: format!("{life}-{id}"),
                number: 0,
                waiting: HashMap::new(),
                acknowledged: acknowledged.clone(),
            };
            let (doors, stop) = (doors.clone(), stop.clone());
            threads.push(spawn(move || {
                // The connection ends with the server; what was acknowledged by then counts.
                let _ended = writer.run(&doors, &stop);
            }));
        }
        let (at, with, until) = (doors.clone(), record.clone(), stop.clone());
        threads.push(spawn(move || drop(read(&at, &with, &until, seed))));
        let (at, with, until) = (doors.clone(), record.clone(), stop.clone());
        threads.push(spawn(move || drop(watch(&at, &with, &until))));
        Load { stop, acknowledged, threads }
    }

    /// Calls that were answered so far.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Ends, at the latest when the server is gone; gives the calls that were answered.
    pub fn stop(self, record: &Record) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            if thread.join().is_err() {
                record.fail("a client panicked".to_owned());
            }
        }
        self.acknowledged.load(Ordering::Relaxed)
    }
}

/// What a call will have done if it is answered.
enum Wish {
    Put(Vec<(String, String)>, bool),
    Delete(String),
    Compact,
}

struct Writer {
    id: u64,
    record: Arc<Record>,
    rng: Rng,
    sizes: &'static [usize],
    tag: String,
    number: u64,
    waiting: HashMap<u32, (Wish, i64, Option<Vec<u8>>)>,
    acknowledged: Arc<AtomicU64>,
}

impl Writer {
    fn run(mut self, doors: &Doors, stop: &AtomicBool) -> Result<(), String> {
        let mut client = doors.connect(self.id.is_multiple_of(2))?;
        loop {
            while self.waiting.len() < IN_FLIGHT && !stop.load(Ordering::Relaxed) {
                self.send(&mut client)?;
            }
            if self.waiting.is_empty() {
                return Ok(());
            }
            match client.answer(LOOK_TIME)? {
                Some(Answer::Message(stream, message)) => {
                    if let Some(waiting) = self.waiting.get_mut(&stream) {
                        waiting.2 = Some(message);
                    }
                }
                Some(Answer::End(stream, status)) => self.end(stream, &status)?,
                // A server that was stopped or has failed may never answer.
                None if stop.load(Ordering::Relaxed) => return Ok(()),
                None => {}
            }
        }
    }

    fn send(&mut self, client: &mut Client) -> Result<(), String> {
        let before = self.record.highest();
        let (stream, wish) = match self.rng.below(100) {
            0 => {
                let revision = (self.record.highest() - KEPT_REVISIONS).max(1);
                self.record.compacts(revision);
                let request = CompactionRequest { revision, ..CompactionRequest::default() };
                (client.send("etcdserverpb.KV/Compact", &request, true)?, Wish::Compact)
            }
            1..=10 => {
                let key = self.key();
                self.record.deletes(&key);
                let request =
                    DeleteRangeRequest { key: key.clone().into(), ..DeleteRangeRequest::default() };
                (client.send("etcdserverpb.KV/DeleteRange", &request, true)?, Wish::Delete(key))
            }
            11..=25 => {
                let puts: Vec<_> = (0..3).map(|_| self.put()).collect();
                let mut wishes: Vec<(String, String)> = Vec::new();
                let mut success = Vec::new();
                for (request, key, tag) in puts {
                    // A transaction puts a key once.
                    if wishes.iter().any(|(of, _)| *of == key) {
                        continue;
                    }
                    success.push(RequestOp { request: Some(Request::RequestPut(request)) });
                    wishes.push((key, tag));
                }
                let request = TxnRequest { success, ..TxnRequest::default() };
                (client.send("etcdserverpb.KV/Txn", &request, true)?, Wish::Put(wishes, true))
            }
            _ => {
                let (request, key, tag) = self.put();
                let wish = Wish::Put(vec![(key, tag)], false);
                (client.send("etcdserverpb.KV/Put", &request, true)?, wish)
            }
        };
        self.waiting.insert(stream, (wish, before, None));
        Ok(())
    }

    fn key(&mut self) -> String {
        format!("{PREFIX}{}/{}", self.id, self.rng.below(KEYS))
    }

    fn put(&mut self) -> (PutRequest, String, String) {
        let key = self.key();
        let tag = format!("{}-{}", self.tag, self.number);
        self.number += 1;
        self.record.puts(&key, &tag);
        let value = value_of(&tag, pick(self.sizes, &mut self.rng)).into();
        let request = PutRequest { key: key.clone().into(), value, ..PutRequest::default() };
        (request, key, tag)
    }

    fn end(&mut self, stream: u32, status: &str) -> Result<(), String> {
        let Some((wish, before, message)) = self.waiting.remove(&stream) else { return Ok(()) };
        if status != "0" {
            // A compaction below another's is refused; everything else is just not known.
            return Ok(());
        }
        let message = message.ok_or("an answer without a message")?;
        let bytes = &message[..];
        let wrong = |error: prost::DecodeError| error.to_string();
        let header = match &wish {
            Wish::Put(_, false) => PutResponse::decode(bytes).map_err(wrong)?.header,
            Wish::Put(_, true) => TxnResponse::decode(bytes).map_err(wrong)?.header,
            Wish::Compact => CompactionResponse::decode(bytes).map_err(wrong)?.header,
            Wish::Delete(_) => {
                let response = DeleteRangeResponse::decode(bytes).map_err(wrong)?;
                if response.deleted == 0 {
                    self.acknowledged.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                response.header
            }
        };
        let revision = header.ok_or("an answer without a header")?.revision;
        self.record.observe(before, revision);
        let changed = |key: String, tag| Change { revision, key, tag };
        let changes: Vec<Change> = match wish {
            Wish::Put(puts, _) => {
                puts.into_iter().map(|(key, tag)| changed(key, Some(tag))).collect()
            }
            Wish::Delete(key) => vec![changed(key, None)],
            Wish::Compact => Vec::new(),
        };
        self.record.tell("an answer", changes);
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Reads single keys; what a read shows is as good as acknowledged.
fn read(doors: &Doors, record: &Record, stop: &AtomicBool, seed: u64) -> Result<(), String> {
    let (mut client, mut rng) = (doors.connect(false)?, Rng::new(seed ^ 0x4ead));
    while !stop.load(Ordering::Relaxed) {
        let key = format!("{PREFIX}{}/{}", rng.below(WRITERS), rng.below(KEYS));
        let request = RangeRequest { key: key.into(), ..RangeRequest::default() };
        let before = record.highest();
        let time = Duration::from_secs(5);
        let response: RangeResponse = client.ask("etcdserverpb.KV/Range", &request, time)?;
        record.observe(before, response.header.ok_or("no header")?.revision);
        for pair in &response.kvs {
            match change_of(pair, false) {
                Ok(change) => record.tell("a read", [change]),
                Err(error) => record.fail(error),
            }
        }
    }
    Ok(())
}

/// Watches everything from now on.
fn watch(doors: &Doors, record: &Record, stop: &AtomicBool) -> Result<(), String> {
    let mut client = doors.connect(true)?;
    client.send("etcdserverpb.Watch/Watch", &watch_from(0), false)?;
    while !stop.load(Ordering::Relaxed) {
        match client.answer(LOOK_TIME)? {
            Some(Answer::Message(_, message)) => {
                let response =
                    WatchResponse::decode(&message[..]).map_err(|error| error.to_string())?;
                for change in changes_of(&response)? {
                    record.observe(0, change.revision);
                    record.tell("a watch", [change]);
                }
            }
            Some(Answer::End(_, status)) => return Err(status),
            None => {}
        }
    }
    Ok(())
}

fn watch_from(revision: i64) -> WatchRequest {
    let create = WatchCreateRequest {
        key: PREFIX.into(),
        range_end: PREFIX_END.into(),
        start_revision: revision,
        ..WatchCreateRequest::default()
    };
    WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }
}

fn changes_of(response: &WatchResponse) -> Result<Vec<Change>, String> {
    let mut changes = Vec::new();
    for event in &response.events {
        let pair = event.kv.as_ref().ok_or("an event without a key")?;
        changes.push(change_of(pair, event.r#type == i32::from(EventType::Delete))?);
    }
    Ok(changes)
}

/// What a history shows.
pub enum History {
    /// Every change from a revision on.
    Whole(Vec<Change>),
    /// What was asked for is compacted, up to this revision.
    Compacted(i64),
}

/// Reads every change from a revision up to another.
///
/// # Errors
/// The server does not tell.
pub fn history(doors: &Doors, from: i64, to: i64, time: Duration) -> Result<History, String> {
    let mut client = doors.connect(false)?;
    client.send("etcdserverpb.Watch/Watch", &watch_from(from), false)?;
    let (until, mut changes) = (Instant::now() + time, Vec::new());
    while changes.last().map_or(from - 1, |change: &Change| change.revision) < to {
        match client.answer(until.saturating_duration_since(Instant::now()))? {
            Some(Answer::Message(_, message)) => {
                let response =
                    WatchResponse::decode(&message[..]).map_err(|error| error.to_string())?;
                if response.compact_revision > 0 {
                    return Ok(History::Compacted(response.compact_revision));
                }
                if response.canceled {
                    return Err(format!("a watch was cancelled: {}", response.cancel_reason));
                }
                changes.extend(changes_of(&response)?);
            }
            Some(Answer::End(_, status)) => return Err(format!("a watch ended: {status}")),
            None => return Err(format!("the history from {from} does not reach {to}")),
        }
    }
    Ok(History::Whole(changes))
}

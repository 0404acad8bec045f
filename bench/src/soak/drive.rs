//! The clients of a soak, on one thread: calls at a pace or as fast as they are answered, and
//! watchers that read.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use prost::Message;
use ringbolt_proto::etcdserverpb::{
    RangeRequest, RangeResponse, WatchCreateRequest, WatchRequest, WatchResponse,
    watch_request::RequestUnion,
};
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::limits::{
    ANSWER_S_MAX, LATENCY_US_MAX, SOAK_CLOSED_IN_FLIGHT, SOAK_COMPLAINTS_MAX, SOAK_CONNECTIONS,
    SOAK_NAP_MIN, SOAK_OPEN_IN_FLIGHT,
};
use crate::soak::mix::{CHURN, Call, Mix, OBJECTS};
use crate::soak::pacer::Pacer;
use crate::wire::{Answer, Connection, Target, head};

/// What is watched, each by a watcher with a connection of its own.
const WATCHED: &[&str] = &[OBJECTS, OBJECTS, CHURN, "/leased"];
/// Room that a request of the mix takes at most.
const REQUEST_BYTES_MAX: usize = 1024;
const TIMER: u64 = u64::MAX;

/// How fast calls are sent.
pub enum Pace {
    /// So many in flight, as fast as they are answered.
    Closed,
    /// At a rate, whatever is answered.
    Open {
        /// When the next one is due.
        pacer: Pacer,
        /// When the first one was.
        begin: Instant,
    },
}

/// What the clients saw since somebody took it.
pub struct Tally {
    /// Of puts, in microseconds from the moment each was due.
    pub put_us: Histogram<u64>,
    /// Calls that were answered well.
    pub answered: u64,
    /// Calls that were not, and watchers that ended.
    pub failed: u64,
    /// Why, for the first of them.
    pub complaints: Vec<String>,
    /// Events that watchers read.
    pub events: u64,
}

impl Tally {
    fn new() -> Tally {
        Tally {
            put_us: Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("sound bounds"),
            answered: 0,
            failed: 0,
            complaints: Vec::new(),
            events: 0,
        }
    }

    fn complain(&mut self, complaint: String) {
        self.failed += 1;
        if self.complaints.len() < SOAK_COMPLAINTS_MAX {
            self.complaints.push(complaint);
        }
    }
}

struct Client {
    connection: Connection,
    /// By stream: what was asked, and when it was due.
    started: HashMap<u32, (Call, Instant)>,
}

struct Watcher {
    connection: Connection,
    prefix: &'static str,
    /// The newest revision it was told of.
    revision: i64,
}

/// The clients.
pub struct Drive {
    poll: OwnedFd,
    timer: OwnedFd,
    clients: Vec<Client>,
    watchers: Vec<Watcher>,
    mix: Mix,
    tally: Tally,
    /// The client that sends next.
    turn: usize,
    answers: Vec<Answer>,
}

impl Drive {
    /// Connects half of the clients over each of the targets, and the watchers.
    pub fn open(targets: [&Target; 2]) -> io::Result<Drive> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&poll, &timer, epoll::EventData::new_u64(TIMER), edge)?;
        let mut drive = Drive {
            poll,
            timer,
            clients: Vec::new(),
            watchers: Vec::new(),
            mix: Mix::new(object_revisions(targets[0])?),
            tally: Tally::new(),
            turn: 0,
            answers: Vec::new(),
        };
        for index in 0..SOAK_CONNECTIONS {
            let connection = Connection::open(targets[index % targets.len()])?;
            drive.listen(&connection, index)?;
            drive.clients.push(Client { connection, started: HashMap::new() });
        }
        for (index, prefix) in WATCHED.iter().enumerate() {
            let watcher = Watcher::open(targets[index % targets.len()], prefix)?;
            drive.listen(&watcher.connection, SOAK_CONNECTIONS + index)?;
            drive.watchers.push(watcher);
        }
        Ok(drive)
    }

    fn listen(&self, connection: &Connection, index: usize) -> io::Result<()> {
        let data = epoll::EventData::new_u64(u64::try_from(index).expect("few connections"));
        Ok(epoll::add(&self.poll, connection, data, epoll::EventFlags::IN)?)
    }

    /// What was seen since the last time.
    pub fn take_tally(&mut self) -> Tally {
        std::mem::replace(&mut self.tally, Tally::new())
    }

    /// Drives at a pace until a moment; calls may still be in flight then.
    pub fn run(&mut self, pace: &mut Pace, until: Instant) -> io::Result<()> {
        loop {
            let now = Instant::now();
            if now >= until {
                return Ok(());
            }
            self.start_due(pace, now);
            for client in &mut self.clients {
                client.connection.flush()?;
            }
            let due = match pace {
                Pace::Open { pacer, begin } => (*begin + pacer.next_due()).min(until),
                Pace::Closed => until,
            };
            self.wait(due.saturating_duration_since(now))?;
        }
    }

    /// Waits for the answers of all calls in flight.
    pub fn drain(&mut self) -> io::Result<()> {
        let limit = Instant::now() + Duration::from_secs(ANSWER_S_MAX);
        while self.clients.iter().any(|client| !client.started.is_empty()) {
            if Instant::now() > limit {
                return Err(io::Error::other("calls are not answered"));
            }
            self.wait(Duration::from_millis(100))?;
        }
        Ok(())
    }

    fn start_due(&mut self, pace: &mut Pace, now: Instant) {
        let in_flight_max = match pace {
            Pace::Closed => SOAK_CLOSED_IN_FLIGHT,
            Pace::Open { .. } => SOAK_OPEN_IN_FLIGHT,
        };
        while let Some(index) = self.next_client(in_flight_max) {
            let due = match pace {
                Pace::Closed => now,
                Pace::Open { pacer, begin } => match pacer.take(now - *begin) {
                    Some(due) => *begin + due,
                    None => return,
                },
            };
            let client = &mut self.clients[index];
            let (call, head, message) = self.mix.next();
            let stream = client.connection.call(head, &message);
            client.started.insert(stream, (call, due));
            self.turn = index + 1;
        }
    }

    /// The next client in turn that has room for a call.
    fn next_client(&self, in_flight_max: usize) -> Option<usize> {
        let count = self.clients.len();
        (self.turn..self.turn + count).map(|index| index % count).find(|index| {
            let client = &self.clients[*index];
            client.started.len() < in_flight_max && client.connection.has_window(REQUEST_BYTES_MAX)
        })
    }

    /// Waits for answers or events, at most for `wait`, and takes them.
    fn wait(&mut self, wait: Duration) -> io::Result<()> {
        const NONE: epoll::Event =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let nap = Timespec::try_from(wait.max(SOAK_NAP_MIN)).map_err(io::Error::other)?;
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: nap };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        let mut events = [NONE; 64];
        let count = epoll::wait(&self.poll, &mut events, None)?;
        for event in &events[..count] {
            let number = event.data.u64();
            if number == TIMER {
                continue;
            }
            let index = usize::try_from(number).expect("an index of ours");
            match index.checked_sub(self.clients.len()) {
                None => self.take_answers(index)?,
                Some(watcher) => self.watchers[watcher].take_events(&mut self.tally)?,
            }
        }
        Ok(())
    }

    fn take_answers(&mut self, index: usize) -> io::Result<()> {
        let client = &mut self.clients[index];
        self.answers.clear();
        client.connection.receive(&mut self.answers)?;
        for answer in &self.answers {
            let Some((call, due)) = client.started.remove(&answer.stream) else { continue };
            match self.mix.finish(call, answer) {
                Ok(()) => {
                    self.tally.answered += 1;
                    if call == Call::Put {
                        let us = u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX);
                        self.tally.put_us.saturating_record(us.max(1));
                    }
                }
                Err(complaint) => self.tally.complain(complaint),
            }
        }
        client.connection.flush()
    }
}

/// The mod revisions of the objects, in the order of their numbers, which is that of their keys.
fn object_revisions(target: &Target) -> io::Result<Vec<i64>> {
    let request = RangeRequest {
        key: Bytes::from(format!("{OBJECTS}/")),
        range_end: Bytes::from(format!("{OBJECTS}0")),
        keys_only: true,
        ..RangeRequest::default()
    };
    let head = head("/etcdserverpb.KV/Range");
    let answer = Connection::open(target)?.ask(&head, &request.encode_to_vec())?;
    let response = RangeResponse::decode(&answer[..]).map_err(io::Error::other)?;
    Ok(response.kvs.iter().map(|kv| kv.mod_revision).collect())
}

impl Watcher {
    fn open(target: &Target, prefix: &'static str) -> io::Result<Watcher> {
        let mut connection = Connection::open(target)?;
        connection.answer_each_message();
        let create = WatchCreateRequest {
            key: Bytes::from(format!("{prefix}/")),
            range_end: Bytes::from(format!("{prefix}0")),
            ..WatchCreateRequest::default()
        };
        let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        let stream = connection.open_stream(&head("/etcdserverpb.Watch/Watch"));
        connection.send_message(stream, &request.encode_to_vec());
        connection.flush()?;
        Ok(Watcher { connection, prefix, revision: 0 })
    }

    fn take_events(&mut self, tally: &mut Tally) -> io::Result<()> {
        let mut answers = Vec::new();
        self.connection.receive(&mut answers)?;
        for answer in &answers {
            let outcome = self.take_answer(answer);
            match outcome {
                Ok(events) => tally.events += events,
                Err(error) => tally.complain(format!("watcher of {}: {error}", self.prefix)),
            }
        }
        self.connection.flush()
    }

    /// Gives how many events came.
    fn take_answer(&mut self, answer: &Answer) -> Result<u64, String> {
        if answer.complaint.is_some() || answer.message.is_empty() {
            return Err(format!("the stream ended: {:?}", answer.complaint));
        }
        let response =
            WatchResponse::decode(&answer.message[..]).map_err(|error| error.to_string())?;
        if response.canceled {
            return Err(format!("canceled: {}", response.cancel_reason));
        }
        for event in &response.events {
            let revision = event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
            if revision < self.revision {
                return Err(format!("revision {revision} after {}", self.revision));
            }
            self.revision = revision;
        }
        Ok(u64::try_from(response.events.len()).unwrap_or(0))
    }
}

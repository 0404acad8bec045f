//! Clients that list a large store and read the answer slowly: what they cost the server's memory
//! and its other clients.

use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use prost::Message;
use ringbolt_proto::etcdserverpb::RangeRequest;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::compare::fill;
use crate::limits::{
    SETTLE_S, SLOW_LISTS_BYTES_MAX, SLOW_LISTS_RATIO_MAX, SLOW_READ_BYTES_MAX,
    SLOW_READ_MB_PER_S_MIN, SLOW_READ_PAUSE,
};
use crate::measures::number;
use crate::server::Server;
use crate::strain::{Fact, merged, quiet_for, slower, witnessed};
use crate::wire::{Answer, Connection, Target, head};

const LISTERS: usize = 10;
/// What each of them reads.
const BYTES_PER_S: u64 = 1_000_000;
/// How long they read, and how long the witness is looked at without them.
const SECONDS: u64 = 20;
/// More than the frames before the list itself.
const BEGUN_BYTES: u64 = 4096;
const PREFIX: &str = "/large";
/// How the list is asked for.
const METHODS: &[(&str, &str)] = &[
    ("slow lists, unary Range", "/etcdserverpb.KV/Range"),
    ("slow lists, RangeStream", "/etcdserverpb.KV/RangeStream"),
];

/// Ten clients that list `keys` keys, with each of the two methods.
pub fn slow_lists(server: &Server, keys: usize) -> io::Result<Vec<Fact>> {
    fill(server, PREFIX, keys)?;
    // The checkpoint that the load made due is written meanwhile.
    std::thread::sleep(Duration::from_secs(SETTLE_S));
    let mut facts = Vec::new();
    for (name, path) in METHODS {
        facts.extend(slow_list(server, name, path)?);
    }
    Ok(facts)
}

fn slow_list(server: &Server, name: &str, path: &str) -> io::Result<Vec<Fact>> {
    let target = server.unix();
    // The witness's own history takes memory, too: the quiet run says how much each put takes.
    let empty = server.resident_bytes()?;
    let quiet = quiet_for(&target, SECONDS)?;
    let before = server.resident_bytes()?;
    let (windows, (seen, from, to)) = witnessed(&target, || {
        let from = Instant::now();
        let seen = read_slowly(server, path)?;
        Ok((seen, from, Instant::now()))
    })?;
    let during = merged(&windows, from, to);
    let history = history(before.saturating_sub(empty), quiet.len(), &during);
    let grown = seen.resident_bytes_max.saturating_sub(before);
    let extra = grown.saturating_sub(history);
    let ((what, slower), ratio) = slower(name, ("p99", 0.99), &quiet, &during);
    let memory = format!(
        "{} MiB beside {} MiB of the witness's history, {}",
        extra >> 20,
        history >> 20,
        floor(extra <= SLOW_LISTS_BYTES_MAX, &format!("{} MiB", SLOW_LISTS_BYTES_MAX >> 20))
    );
    let slower = format!(
        "{slower}, {}",
        floor(ratio <= SLOW_LISTS_RATIO_MAX, &format!("{SLOW_LISTS_RATIO_MAX:.2}"))
    );
    Ok(vec![
        (format!("{name}: read by {LISTERS} clients"), seen.line()),
        (format!("{name}: extra server memory"), memory),
        (what, slower),
    ])
}

/// What the puts of `strained` add when `puts` quiet ones added `bytes`.
fn history(bytes: u64, puts: u64, strained: &Histogram<u64>) -> u64 {
    bytes * strained.len() / puts.max(1)
}

/// Says what a bound is and whether it is kept.
pub fn floor(met: bool, most: &str) -> String {
    format!("at most {most}: {}", self::met(met))
}

fn met(met: bool) -> &'static str {
    if met { "met" } else { "NOT MET" }
}

/// What the listers saw.
#[derive(Default)]
struct Seen {
    /// Of the listers that read least and most.
    read_bytes: (u64, u64),
    /// How long after the calls the last lister had the beginning of its list.
    began_last: Duration,
    asked: u64,
    refused: u64,
    why: Option<String>,
    resident_bytes_max: u64,
}

impl Seen {
    fn line(&self) -> String {
        let why = self.why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        let per_second = |bytes: u64| number(bytes / 1000 / SECONDS) / 1000.0;
        let (least, most) = (per_second(self.read_bytes.0), per_second(self.read_bytes.1));
        // A server that sends slower than its slow clients read has a fault of its own.
        let served = least >= SLOW_READ_MB_PER_S_MIN && self.refused == 0;
        format!(
            "{least:.2} to {most:.2} MB/s each, at least {SLOW_READ_MB_PER_S_MIN:.2}: {}; the last \
             began after {:.2} s, {} lists asked for, {} refused{why}",
            met(served),
            self.began_last.as_secs_f64(),
            self.asked,
            self.refused
        )
    }
}

struct Lister {
    connection: Connection,
    read_bytes: u64,
    /// Bytes that it might have read and lets be.
    forgone_bytes: u64,
}

/// Each lister reads what it may by now, then all pause; a list that is read whole is asked for
/// again.
fn read_slowly(server: &Server, path: &str) -> io::Result<Seen> {
    let request = RangeRequest {
        key: Bytes::from(format!("{PREFIX}/")),
        range_end: Bytes::from(format!("{PREFIX}0")),
        ..RangeRequest::default()
    }
    .encode_to_vec();
    let head = head(path);
    let mut seen = Seen::default();
    let mut listers = Vec::new();
    for index in 0..LISTERS {
        let target = if index % 2 == 0 { server.tcp() } else { server.unix() };
        let mut lister = Lister::open(&target)?;
        lister.connection.call(&head, &request);
        lister.connection.flush()?;
        seen.asked += 1;
        listers.push(lister);
    }
    let begin = Instant::now();
    let mut answers: Vec<Answer> = Vec::new();
    while begin.elapsed() < Duration::from_secs(SECONDS) {
        let due = bytes_due(begin.elapsed());
        for lister in &mut listers {
            answers.clear();
            lister.read(due, &mut answers)?;
            for answer in answers.drain(..) {
                if answer.complaint.is_some() || answer.message.is_empty() {
                    seen.refused += 1;
                    seen.why = seen.why.take().or(answer.complaint);
                }
                lister.connection.call(&head, &request);
                lister.connection.flush()?;
                seen.asked += 1;
            }
        }
        if listers.iter().any(|lister| lister.read_bytes < BEGUN_BYTES) {
            seen.began_last = begin.elapsed();
        }
        seen.resident_bytes_max = seen.resident_bytes_max.max(server.resident_bytes()?);
        std::thread::sleep(SLOW_READ_PAUSE);
    }
    let read = || listers.iter().map(|lister| lister.read_bytes);
    seen.read_bytes = (read().min().unwrap_or(0), read().max().unwrap_or(0));
    Ok(seen)
}

/// Bytes that a lister may have read some time after it began.
fn bytes_due(since: Duration) -> u64 {
    let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    ms.saturating_mul(BYTES_PER_S / 1000)
}

impl Lister {
    fn open(target: &Target) -> io::Result<Lister> {
        let mut connection = Connection::open(target)?;
        connection.cut_answers();
        Ok(Lister { connection, read_bytes: 0, forgone_bytes: 0 })
    }

    /// Reads what there is, up to `due` bytes in all; never waits. One that had nothing to read for
    /// a while does not make up for it at once.
    fn read(&mut self, due: u64, answers: &mut Vec<Answer>) -> io::Result<()> {
        let behind = due - self.forgone_bytes - self.read_bytes;
        self.forgone_bytes += behind.saturating_sub(SLOW_READ_BYTES_MAX);
        let due = due - self.forgone_bytes;
        while self.read_bytes < due {
            let mut ready = [PollFd::new(&self.connection, PollFlags::IN)];
            if poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
                return Ok(());
            }
            let room = usize::try_from(due - self.read_bytes).unwrap_or(usize::MAX);
            let count = self.connection.receive_at_most(room, answers)?;
            self.read_bytes += u64::try_from(count).unwrap_or(u64::MAX);
        }
        self.connection.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hdrhistogram::Histogram;

    use super::{bytes_due, floor, history};

    /// A megabyte each second.
    #[test]
    fn a_slow_reader_may_read_a_megabyte_in_a_second() {
        assert_eq!(bytes_due(Duration::ZERO), 0);
        assert_eq!(bytes_due(Duration::from_millis(10)), 10_000);
        assert_eq!(bytes_due(Duration::from_secs(20)), 20_000_000);
    }

    /// Half as many puts add half as much.
    #[test]
    fn the_history_of_the_witness_goes_by_its_puts() {
        let mut strained = Histogram::<u64>::new(3).expect("sound");
        strained.record_n(7, 500).expect("in bounds");
        assert_eq!(history(1000, 1000, &strained), 500);
        assert_eq!(history(1000, 0, &strained), 500_000);
    }

    /// A bound says whether it is kept.
    #[test]
    fn a_floor_says_whether_it_is_met() {
        assert_eq!(floor(true, "64 MiB"), "at most 64 MiB: met");
        assert_eq!(floor(false, "1.50"), "at most 1.50: NOT MET");
    }
}

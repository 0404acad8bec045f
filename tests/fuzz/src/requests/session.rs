//! What the client does, and what it makes of the answers.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message;
use ringbolt_io::{Address, Io};
use ringbolt_proto::etcdserverpb::{CompactionResponse, WatchResponse};
use ringbolt_proto::method::{METHODS, Mode};

use super::client::{Answer, Client};
use super::samples;
use crate::script::Script;

/// Steps of one input at most; more would be slow and show nothing that fewer do not.
const STEPS_MAX: usize = 64;
/// Virtual time that any call may take.
const ANSWER_MAX: Duration = Duration::from_secs(120);
/// Virtual time that one input may sleep in all.
const SLEEP_MAX: Duration = Duration::from_secs(30);

/// One client and what it knows.
pub struct Session {
    io: Io,
    client: Client,
    watch: Option<u32>,
    keep_alive: Option<u32>,
    revision: i64,
    /// The greatest revision each watcher has shown, by its id.
    shown: BTreeMap<i64, i64>,
    slept: Duration,
    /// Frames that may be anything were sent: the server may close.
    any_frames: bool,
    leases_granted: bool,
}

impl Session {
    /// A client with a connection.
    pub async fn connect(io: Io, address: &Address) -> Session {
        let client = Client::connect(&io, address).await;
        Session {
            io,
            client,
            watch: None,
            keep_alive: None,
            revision: 0,
            shown: BTreeMap::new(),
            slept: Duration::ZERO,
            any_frames: false,
            leases_granted: false,
        }
    }

    /// Plays a script; tells whether a lease may have been granted.
    pub async fn play(mut self, steps: &[u8]) -> bool {
        let mut script = Script::new(steps);
        for _ in 0..STEPS_MAX {
            if script.is_over() || self.client.closed {
                break;
            }
            self.step(&mut script).await;
            assert!(!self.client.closed || self.any_frames, "R1: the connection is closed");
        }
        self.read_for(Duration::from_secs(1)).await;
        self.leases_granted
    }

    async fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 16 {
            0 => {
                let method = &METHODS[usize::from(script.byte()) % METHODS.len()];
                let message = script.long_piece();
                // A watch of the server's health has no end.
                if method.mode == Mode::Bidi || method.path.ends_with("Health/Watch") {
                    self.open_call(method.path, message).await;
                } else {
                    self.unary(method.path, message).await;
                }
            }
            1 => {
                let message = script.long_piece();
                self.watch(message).await;
            }
            2 => {
                let wait = Duration::from_millis(u64::from(script.short() % 6000));
                self.slept += wait;
                if self.slept <= SLEEP_MAX {
                    self.read_for(wait).await;
                }
            }
            3 => {
                self.any_frames = true;
                self.client.raw(script.piece());
            }
            4 | 5 => self.watch(&samples::watch(script)).await,
            6 => {
                let message = samples::keep_alive(script);
                let path = "/etcdserverpb.Lease/LeaseKeepAlive";
                let stream = *self.keep_alive.get_or_insert_with(|| self.client.call(path));
                self.client.message(stream, &message, false);
            }
            what => {
                let (path, message) = samples::unary(what, script);
                self.unary(path, &message).await;
            }
        }
    }

    async fn unary(&mut self, path: &str, message: &[u8]) {
        self.leases_granted |= path.ends_with("LeaseGrant");
        let stream = self.client.call(path);
        self.client.message(stream, message, true);
        let answered = self.client.until(|client| client.answers[&stream].over);
        let answered = self.io.timeout(ANSWER_MAX, answered).await;
        // A frame that any bytes begin may take the call for its payload.
        let is_unsure = self.any_frames;
        assert!(is_unsure || answered.is_some(), "R1: no answer to {path} {message:02x?}");
        self.client.closed |= answered.is_none();
        let mut answer = self.client.answers.remove(&stream).expect("it was called");
        if self.client.closed {
            return;
        }
        let is_ok = answer.status() == Some(b"0");
        assert!(self.any_frames || answer.status().is_some(), "R1: {path} ends without status");
        let owns_header = path.starts_with("/etcdserverpb.") && !path.ends_with("Snapshot");
        while let Some(message) = answer.message() {
            // Every answer of etcd's services has its header in field 1.
            if is_ok && owns_header && !path.ends_with("RangeStream") {
                let header = CompactionResponse::decode(message).expect("an answer decodes").header;
                self.heard(path, header.map_or(0, |header| header.revision));
            }
        }
        assert!(answer.data.is_empty(), "R1: a message of {path} is cut");
        self.look_at_watch();
    }

    /// R2.
    fn heard(&mut self, path: &str, revision: i64) {
        if revision > 0 {
            assert!(revision >= self.revision, "R2: {path}: {revision} after {}", self.revision);
            self.revision = revision;
        }
    }

    async fn open_call(&mut self, path: &str, message: &[u8]) {
        let stream = self.client.call(path);
        self.client.message(stream, message, true);
        self.read_for(Duration::from_millis(5)).await;
        self.client.answers.remove(&stream);
    }

    async fn watch(&mut self, message: &[u8]) {
        let over = |client: &Client, stream| client.answers.get(&stream).is_none_or(|a| a.over);
        if self.watch.is_none_or(|stream| over(&self.client, stream)) {
            self.watch = Some(self.client.call("/etcdserverpb.Watch/Watch"));
            self.shown.clear();
        }
        let stream = self.watch.expect("it was opened");
        self.client.message(stream, message, false);
        self.read_for(Duration::from_millis(3)).await;
    }

    async fn read_for(&mut self, wait: Duration) {
        let _ = self.io.timeout(wait, self.client.until(|_| false)).await;
        self.look_at_watch();
    }

    /// R3.
    fn look_at_watch(&mut self) {
        let Some(answer) = self.watch.and_then(|stream| self.client.answers.get_mut(&stream))
        else {
            return;
        };
        look(answer, &mut self.shown);
    }
}

fn look(answer: &mut Answer, shown: &mut BTreeMap<i64, i64>) {
    while let Some(message) = answer.message() {
        let response = WatchResponse::decode(message).expect("a response decodes");
        if response.created || response.canceled {
            shown.remove(&response.watch_id);
        }
        let before = shown.get(&response.watch_id).copied().unwrap_or_default();
        let mut last = (before, Vec::new());
        for event in &response.events {
            let kv = event.kv.as_ref().expect("an event has its key");
            let here = (kv.mod_revision, kv.key.to_vec());
            assert!(here.0 >= last.0, "R3: {here:?} after {last:?} in {response:?}");
            assert_ne!(here, last, "R3: twice in {response:?}");
            last = here;
        }
        if !response.fragment {
            shown.insert(response.watch_id, last.0);
        }
    }
}

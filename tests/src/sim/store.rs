//! What the simulation needs of a store. The replica is one; plain ones, right and wrong, test the
//! checkers.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use ringbolt_io::Io;
use ringbolt_proto::mvccpb::{Event, KeyValue};

use super::recovery::Stored;
use super::request::{Outcome, Request};

/// What an acknowledged write has been through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is durable.
    Safe,
    /// Its write completed; a flush follows.
    NoFsync,
    /// Nothing: it is in memory.
    Memory,
}

/// Where and how a store is kept.
#[derive(Clone, Debug)]
pub struct Place {
    /// A directory of its own. Its parent exists and is durable.
    pub directory: PathBuf,
    /// Its mode.
    pub mode: Mode,
    /// How often `Mode::NoFsync` flushes.
    pub flush_interval: Duration,
    /// How long a leader must be silent before an election.
    pub election_timeout: Duration,
}

/// What a watcher wants.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchSpec {
    /// First key.
    pub key: Bytes,
    /// End of the range, as in requests.
    pub range_end: Bytes,
    /// Adds what was there before.
    pub prev_kv: bool,
    /// Drops puts.
    pub no_put: bool,
    /// Drops deletions.
    pub no_delete: bool,
}

/// What a watcher is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Events of whole revisions, in order.
    Events {
        /// The revision in the header.
        header: i64,
        /// The events.
        events: Vec<Event>,
    },
    /// Everything up to this revision was sent.
    Progress(i64),
    /// History it needs was compacted at this revision; it gets nothing more.
    Compacted(i64),
}

/// A store under test. It lives on one shard of a simulated machine.
pub trait Store: Sized + 'static {
    /// A watcher.
    type Watch: 'static;

    /// Opens what is at `place`, or makes a fresh store. It serves when this returns. `stored` is
    /// shown what was found, before the store does anything of its own.
    ///
    /// # Errors
    /// Why it refuses.
    fn open(
        io: &Io,
        place: &Place,
        stored: impl FnOnce(Stored),
    ) -> impl Future<Output = Result<Rc<Self>, String>>;
    /// Does a request.
    fn ask(&self, request: Request) -> impl Future<Output = Outcome>;
    /// The revision right now.
    fn revision(&self) -> i64;
    /// The compacted revision right now, -1 before the first compaction.
    fn compacted(&self) -> i64;
    /// Events from a revision on, by revision.
    fn events(&self, from: i64) -> Vec<(i64, Vec<Event>)>;
    /// Every live key.
    fn state(&self) -> Vec<KeyValue>;
    /// Every lease: id and granted seconds.
    fn leases(&self) -> Vec<(i64, i64)>;
    /// Calls `hook` after changes became visible, before those who made them are answered.
    fn on_publish(&self, hook: Box<dyn Fn()>);
    /// Starts a watcher; gives the revision the creation was answered with.
    fn watch(self: &Rc<Self>, spec: &WatchSpec, start: Option<i64>) -> (i64, Self::Watch);
    /// The next message of a watcher. Pending while there is none.
    fn next(watch: &Self::Watch) -> impl Future<Output = Message>;
    /// The index applied last and the rolling hash there, where the store has one.
    fn hash(&self) -> Option<(u64, u64)>;
    /// Bytes it accounts for.
    fn bytes(&self) -> u64;
    /// Replays what a closed store left at `place` and compares the hashes `seen` by index.
    ///
    /// # Errors
    /// Where they differ.
    fn audit(
        io: &Io,
        place: &Place,
        seen: &BTreeMap<u64, u64>,
    ) -> impl Future<Output = Result<(), String>>;
    /// Ready when the store stops by itself, with the cause.
    fn failed(&self) -> impl Future<Output = String>;
    /// Checks its own structure whole.
    fn check(&self);
    /// Ends in good order.
    fn close(&self) -> impl Future<Output = ()>;
}

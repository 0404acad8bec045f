//! What goes into the log and what comes out of it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;

use ringbolt_io::plain;

use crate::corruption::Corruption;
use crate::limits::{
    WAL_BATCH_BYTES_MAX, WAL_BATCHES_IN_FLIGHT_MAX, WAL_CATCH_UP_BYTES_MAX, WAL_CATCH_UP_ENTRIES,
    WAL_MARK_IDLE_MS, WAL_SEGMENT_BYTES_FIRST, WAL_SEGMENT_BYTES_MAX, WAL_ZERO_RETRY_MS,
};
use crate::types::{ClusterId, MemberId, RaftIndex, Revision, Term};

/// What must be true before a record is acknowledged. `--fsync`, per keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is on stable storage.
    Safe,
    /// Its write has completed: it survives this process. A flush follows within the interval.
    NoFsync,
    /// Nothing: there is no log, only the mark file.
    Memory,
}

/// One entry of the raft log. `data` is opaque here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its position; an entry replaces everything at its index and above.
    pub index: RaftIndex,
    /// The term it was proposed in.
    pub term: Term,
    /// What `data` is, in the owner's terms.
    pub kind: u8,
    /// The payload.
    pub data: Bytes,
}

/// Raft's hard state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The current term.
    pub term: Term,
    /// The raft id voted for in it; 0 is nobody.
    pub vote: u64,
    /// The highest index known committed.
    pub commit: RaftIndex,
}

/// What is appended together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Consecutive entries. When the first is at or below the last index of the log, it replaces
    /// the suffix from there; it is never above the index after the last one.
    pub entries: Vec<Entry>,
    /// The hard state from now on. One that changes nothing but `commit` costs no write of its own.
    pub hard_state: Option<HardState>,
    /// Acknowledged only when flushed, in `NoFsync` mode too. A changed term or vote always is.
    pub must_sync: bool,
}

/// Names an append. Tickets of one log grow; one is acknowledged with all before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The record that names a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last entry whose effect it holds.
    pub index: RaftIndex,
    /// That entry's term.
    pub term: Term,
    /// The root hash of the file.
    pub root: u64,
    /// The file's name in the log's directory.
    pub file: String,
}

/// Whose log it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// The member.
    pub member_id: MemberId,
}

/// How a log is kept.
#[derive(Clone, Debug)]
pub struct WalConfig {
    /// When a record is acknowledged.
    pub mode: Mode,
    /// Size of the first segments, bytes; whole blocks.
    pub segment_bytes_first: u64,
    /// Size segments grow to, bytes.
    pub segment_bytes_max: u64,
    /// Bytes of records a batch gathers.
    pub batch_bytes_max: usize,
    /// Bytes of the largest entry the owner will append.
    pub entry_bytes_max: usize,
    /// Batches in flight.
    pub batches_in_flight_max: usize,
    /// How often `NoFsync` flushes.
    pub flush_interval: Duration,
    /// Shortest time between two marks of an idle log.
    pub mark_idle: Duration,
    /// Wait between two attempts to zero a segment.
    pub zero_retry: Duration,
    /// Entries kept below a checkpoint for slow followers.
    pub catch_up_entries: u64,
    /// Bytes of segments kept for them at most.
    pub catch_up_bytes_max: u64,
    /// Names this boot of the machine. `None` asks the system.
    pub boot_id: Option<[u8; 16]>,
    /// What the owner says of a stored entry, before anything is changed: what it holds instead of
    /// what it could have been given, if so. The log itself knows no commands.
    pub check: fn(Identity, &Entry) -> Result<(), String>,
}

impl WalConfig {
    /// The defaults of a mode.
    #[must_use]
    pub fn new(mode: Mode) -> WalConfig {
        WalConfig {
            mode,
            segment_bytes_first: WAL_SEGMENT_BYTES_FIRST,
            segment_bytes_max: WAL_SEGMENT_BYTES_MAX,
            batch_bytes_max: WAL_BATCH_BYTES_MAX,
            entry_bytes_max: 2 * WAL_BATCH_BYTES_MAX,
            batches_in_flight_max: WAL_BATCHES_IN_FLIGHT_MAX,
            flush_interval: Duration::from_millis(100),
            mark_idle: Duration::from_millis(WAL_MARK_IDLE_MS),
            zero_retry: Duration::from_millis(WAL_ZERO_RETRY_MS),
            catch_up_entries: WAL_CATCH_UP_ENTRIES,
            catch_up_bytes_max: WAL_CATCH_UP_BYTES_MAX,
            boot_id: None,
            check: |_, _| Ok(()),
        }
    }
}

/// A torn tail that recovery cut off. None of it was ever acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment.
    pub file: PathBuf,
    /// Where the first batch that was dropped began or should have begun, in bytes.
    pub offset: u64,
    /// The last batch that was kept.
    pub sequence: u64,
    /// What stood there.
    pub found: String,
}

/// What an open found.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// The newest hard state; `commit` is clamped to the last index.
    pub hard_state: HardState,
    /// The entries that are kept, consecutive, superseded ones left out. They may begin below the
    /// checkpoint (the reserve for slow followers), never above the index after it.
    pub entries: Vec<Entry>,
    /// The newest checkpoint that was named.
    pub checkpoint: Option<Checkpoint>,
    /// Whether the log was closed by `close`.
    pub clean: bool,
    /// This boot of the machine.
    pub boot_id: [u8; 16],
    /// The boot in which the log was last open.
    pub previous_boot_id: [u8; 16],
    /// The mode in which it was last open.
    pub previous_mode: Mode,
    /// No revision above this one was ever given out.
    pub revision_ceiling: Revision,
    /// Whose log it is.
    pub identity: Identity,
    /// Counts the opens of this log; part of the peer handshake.
    pub incarnation: u64,
    /// History was or may have been shortened (by `accept_loss`, by a loss of power in `NoFsync`
    /// mode, by a restart in memory mode) and no fence has been reported since.
    pub shortened: bool,
    /// The tail that was cut off.
    pub cut: Option<Cut>,
    /// Where the entries stand: of each batch the first index, its file and its offset.
    pub places: Vec<(RaftIndex, PathBuf, u64)>,
}

impl Recovered {
    /// What is said of an entry that cannot be what was written.
    #[must_use]
    pub fn corruption(&self, index: RaftIndex, expected: &str, found: &str) -> Corruption {
        let place = self.places.iter().rev().find(|(first, ..)| *first <= index);
        let (file, offset) =
            place.map_or((Path::new(""), 0), |(_, file, at)| (file.as_path(), *at));
        Corruption::new(file, offset, expected, format!("entry {}: {found}", index.0))
    }

    /// Whether acknowledged state may be missing: then this member must not vote on the strength
    /// of what it has, and a sole voter fences its revisions. It stays so over further crashes
    /// until `fenced` is called.
    #[must_use]
    pub fn may_have_lost(&self) -> bool {
        self.shortened
    }
}

/// What an operator sees of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Appends that are not acknowledged yet.
    pub durable_lag: u64,
    /// Batches in flight.
    pub batches_in_flight: usize,
    /// Bytes that wait for a batch.
    pub waiting_bytes: usize,
    /// Segments that hold entries.
    pub segments: usize,
    /// Zeroed or recycled segments that wait for use.
    pub segments_free: usize,
    /// The oldest index kept; 0 when there is none.
    pub oldest_index: RaftIndex,
    /// Log space taken since the newest checkpoint, in bytes.
    pub bytes_since_checkpoint: u64,
    /// Log space taken in all, in bytes.
    pub bytes: u64,
    /// Log space filled so far in bytes, padding and what recovery found included. Only grows.
    pub written_bytes: u64,
    /// Space set aside for the next checkpoint, in bytes.
    pub reserve_bytes: u64,
}

/// Why a log stopped (W7). It takes no more appends and acknowledges nothing more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The file.
    pub file: PathBuf,
    /// Where, in bytes; `None` for a sync.
    pub offset: Option<u64>,
    /// The kind of the system's error.
    pub kind: io::ErrorKind,
    /// Its text.
    pub text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            Some(offset) => {
                write!(f, "{} @ {offset:#x}: write failed: {}", self.file.display(), self.text)
            }
            None => write!(f, "{}: sync failed: {}", self.file.display(), self.text),
        }
    }
}

impl std::error::Error for Failure {}

/// Why a log could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// There is no log here; `create` makes one.
    Missing(PathBuf),
    /// There is one already.
    Exists(PathBuf),
    /// Another process holds it, for longer than a dying one needs.
    Busy(PathBuf),
    /// Bytes that were acknowledged are wrong. Nothing was changed.
    Corrupt(Corruption),
    /// Written by a later version.
    Version {
        /// The file.
        file: PathBuf,
        /// Its format version.
        version: u16,
    },
    /// The directory holds a log, which memory mode would abandon.
    Mode(PathBuf),
    /// The system refused.
    Io {
        /// The file or directory.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Missing(path) => write!(f, "{}: no log here", path.display()),
            OpenError::Exists(path) => write!(f, "{}: holds a log already", path.display()),
            OpenError::Busy(path) => {
                write!(f, "{}: another process holds this log", path.display())
            }
            OpenError::Corrupt(corruption) => write!(
                f,
                "wal {corruption}; nothing was changed; restore this directory from a copy, or \
                 give up what follows with `ringbolt recover --accept-loss --directory={}`",
                corruption.file.parent().unwrap_or(std::path::Path::new(".")).display()
            ),
            OpenError::Version { file, version } => write!(
                f,
                "{}: format version {version} is of a later release; start that release",
                file.display()
            ),
            OpenError::Mode(path) => write!(
                f,
                "{}: holds a log, which --fsync=memory would abandon; move it away first",
                path.display()
            ),
            OpenError::Io { file, source } => {
                write!(f, "{}: {}", file.display(), plain(source))
            }
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Corrupt(corruption) => Some(corruption),
            OpenError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<Corruption> for OpenError {
    fn from(corruption: Corruption) -> OpenError {
        OpenError::Corrupt(corruption)
    }
}

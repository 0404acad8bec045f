//! What a replica is told when it is opened.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use crate::wal::Mode;
use crate::wal::WalConfig;

/// How one keyspace is kept by this member.
#[derive(Clone, Debug)]
pub struct ReplicaConfig {
    /// This member's name.
    pub name: String,
    /// The keyspace's own directory: mark file, log segments, checkpoints.
    pub directory: PathBuf,
    /// What an acknowledged write has been through.
    pub mode: Mode,
    /// Where other members reach this one. With the token they make the ids of a fresh store.
    pub peer_urls: Vec<String>,
    /// Where clients reach this member.
    pub client_urls: Vec<String>,
    /// etcd's `--initial-cluster-token`.
    pub cluster_token: String,
    /// The version this member speaks, as `X.Y.Z`; the cluster version is its `X.Y.0`.
    pub version: String,
    /// Length of a tick, and of a leader's heartbeat.
    pub heartbeat_interval: Duration,
    /// Ticks without a leader before an election.
    pub election_ticks: usize,
    /// How often `Mode::NoFsync` flushes.
    pub flush_interval: Duration,
    /// The largest command in bytes. etcd's `--max-request-bytes`.
    pub max_request_bytes: usize,
    /// Operations in one transaction at most. etcd's `--max-txn-ops`.
    pub max_txn_ops: usize,
    /// The space quota as configured: 0 for the default, negative for none.
    pub quota_bytes: i64,
    /// Bytes of log after which a checkpoint starts, unless the state is larger.
    pub checkpoint_log_bytes_min: u64,
    /// Sizes and depths of the log; `None` takes the defaults.
    pub wal: Option<WalConfig>,
}

impl ReplicaConfig {
    /// etcd's defaults for a member called `name` that keeps its data in `directory`.
    #[must_use]
    pub fn new(name: &str, directory: PathBuf, mode: Mode) -> ReplicaConfig {
        ReplicaConfig {
            name: name.to_string(),
            directory,
            mode,
            peer_urls: vec!["http://localhost:2380".to_string()],
            client_urls: vec!["http://localhost:2379".to_string()],
            cluster_token: "etcd-cluster".to_string(),
            version: "3.7.0".to_string(),
            heartbeat_interval: Duration::from_millis(100),
            election_ticks: 10,
            flush_interval: Duration::from_millis(100),
            max_request_bytes: 1_572_864,
            max_txn_ops: 128,
            quota_bytes: 0,
            checkpoint_log_bytes_min: crate::limits::CHECKPOINT_LOG_BYTES_MIN,
            wal: None,
        }
    }

    /// How long an election takes to begin without a leader.
    #[must_use]
    pub fn election_timeout(&self) -> Duration {
        self.heartbeat_interval * u32::try_from(self.election_ticks).unwrap_or(u32::MAX)
    }

    /// How long a proposal or a read may wait inside. Source: etcd `ReqTimeout`.
    #[must_use]
    pub fn request_timeout(&self) -> Duration {
        crate::limits::REQUEST_TIMEOUT + 2 * self.election_timeout()
    }

    /// The version of a cluster whose oldest member is this one.
    #[must_use]
    pub fn cluster_version(&self) -> String {
        let mut parts = self.version.split('.');
        let major = parts.next().unwrap_or_default();
        let minor = parts.next().unwrap_or("0");
        format!("{major}.{minor}.0")
    }
}

/// Why a replica could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The log.
    Log(crate::wal::OpenError),
    /// The checkpoint the log names.
    Checkpoint(crate::snapshot::LoadError),
    /// An entry that is intact but says nothing this release understands.
    Entry {
        /// Its index.
        index: u64,
        /// What is wrong.
        found: String,
    },
    /// The configuration.
    Config(String),
    /// The log stopped while it was being opened.
    Failed(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Log(error) => error.fmt(f),
            OpenError::Checkpoint(error) => error.fmt(f),
            OpenError::Entry { index, found } => write!(f, "log entry {index}: {found}"),
            OpenError::Config(found) | OpenError::Failed(found) => f.write_str(found),
        }
    }
}

impl std::error::Error for OpenError {}

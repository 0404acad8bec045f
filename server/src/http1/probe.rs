//! What the HTTP endpoints ask of a keyspace.

use std::future::Future;
use std::pin::Pin;

/// The answer of a read that had to wait: an error in etcd's words.
pub type Reading = Pin<Box<dyn Future<Output = Result<(), String>>>>;

/// The end of a `gather`.
pub type Gathering = Pin<Box<dyn Future<Output = ()>>>;

/// Versions as `/version` shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// Of the server.
    pub server: String,
    /// Of the cluster, once it is decided.
    pub cluster: Option<String>,
    /// Of the stored data.
    pub storage: String,
}

/// An alarm that is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// The quota is used up.
    NoSpace,
    /// Members disagree.
    Corrupt,
}

impl Alarm {
    /// etcd's name of it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Alarm::NoSpace => "NOSPACE",
            Alarm::Corrupt => "CORRUPT",
        }
    }
}

/// A member as `/members` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Where members reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it.
    pub client_urls: Vec<String>,
    /// Whether it has no vote.
    pub is_learner: bool,
}

/// Raft figures as `/debug/vars` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RaftFacts {
    /// This member.
    pub id: u64,
    /// Its term.
    pub term: u64,
    /// Whom it voted for; 0: nobody.
    pub vote: u64,
    /// Its commit index.
    pub commit: u64,
    /// The leader; 0: none known.
    pub leader: u64,
    /// Its applied index.
    pub applied: u64,
}

/// Facts about one keyspace. It lives on the keyspace's shard.
pub trait Probe: 'static {
    /// Alarms that are raised, on any member.
    fn alarms(&self) -> Vec<Alarm>;
    /// Whether a leader is known.
    fn has_leader(&self) -> bool;
    /// Whether this member has no vote.
    fn is_learner(&self) -> bool;
    /// A read of what is here.
    ///
    /// # Errors
    /// In etcd's words.
    fn read_serializable(&self) -> Result<(), String>;
    /// A read of what is true in the cluster.
    fn read_linearizable(&self) -> Reading;
    /// Its versions.
    fn versions(&self) -> Versions;
    /// Waits until what was counted on other shards is here.
    fn gather(&self) -> Gathering;
    /// The whole text of `/metrics`, as of the last `gather`.
    fn metrics(&self) -> String;
    /// Figures for `/debug/vars`.
    fn raft(&self) -> RaftFacts;
    /// Id of the cluster.
    fn cluster_id(&self) -> u64;
    /// Its members.
    fn members(&self) -> Vec<Member>;
    /// Counts the outcome of `/health`.
    fn count_health(&self, healthy: bool);
    /// Counts one check of `/livez` or `/readyz` (`kind`).
    fn count_check(&self, kind: &'static str, name: &'static str, passed: bool);
}

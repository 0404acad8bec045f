//! Two servers, one list of commands: every difference in what clients see.
//!
//! A case file is played against a real etcd and against another server at the same time, each on
//! ports and a socket of its own; afterwards the outcomes are put side by side. What may differ
//! (ids, sizes, times, raft positions) is written over by the rules of [`normal`] first.

pub mod http;
pub mod normal;
pub mod play;
pub mod raw;
pub mod script;
pub mod server;

/// What one step of a script gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What it wrote to stdout, or a decoded gRPC answer.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
    /// How it ended: an exit code, a signal or a time-out.
    pub exit: String,
}

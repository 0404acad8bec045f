//! Why a request was not done, and what the caller does about it.

use crate::types::MemberId;

/// What came in the way of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Nothing was done; the same request may succeed a moment later.
    Retry(Reason),
    /// Another member answers this.
    Redirect(MemberId),
    /// The request is wrong or not allowed now; sending it again does not help.
    Refuse(Reason),
    /// This member has stopped.
    Stop,
}

/// The reasons, one for each text of the contract. `server/error.rs` maps them to code and text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each name is the text it stands for")]
pub enum Reason {
    EmptyKey,
    KeyNotFound,
    ValueProvided,
    LeaseProvided,
    TooManyOps,
    DuplicateKey,
    InvalidSortOption,
    Compacted,
    FutureRevision,
    NoSpace,
    LeaseNotFound,
    LeaseExists,
    LeaseTtlTooLarge,
    RequestTooLarge,
    TooManyRequests,
    NoLeader,
    NotLeader,
    LeaderChanged,
    Stopped,
    Timeout,
    TimeoutLeaderFailed,
    DeadlineExceeded,
    Corrupt,
    Unhealthy,
    ProposalDropped,
    StreamSortOrder,
    StreamRevisionFilter,
    MemoryBudget,
}

impl From<Reason> for Error {
    fn from(reason: Reason) -> Error {
        match reason {
            Reason::TooManyRequests
            | Reason::NoLeader
            | Reason::LeaderChanged
            | Reason::Timeout
            | Reason::TimeoutLeaderFailed
            | Reason::ProposalDropped
            | Reason::MemoryBudget => Error::Retry(reason),
            Reason::Stopped => Error::Stop,
            _ => Error::Refuse(reason),
        }
    }
}

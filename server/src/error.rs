//! The one table from an engine error to the code and text of the contract.

use ringbolt_engine::{Error, Reason};

use crate::grpc::{Code, Status};

/// The status of a reason: etcd's exact code and text.
#[must_use]
pub fn status_of(reason: Reason) -> Status {
    let (code, text) = row(reason);
    Status::new(code, text)
}

/// The status of an engine error.
#[must_use]
pub fn status(error: &Error) -> Status {
    match error {
        Error::Retry(reason) | Error::Refuse(reason) => status_of(*reason),
        Error::Redirect(_) => status_of(Reason::NotLeader),
        Error::Stop => status_of(Reason::Stopped),
    }
}

fn row(reason: Reason) -> (Code, &'static str) {
    use Code as C;
    match reason {
        Reason::EmptyKey => (C::InvalidArgument, "etcdserver: key is not provided"),
        Reason::KeyNotFound => (C::InvalidArgument, "etcdserver: key not found"),
        Reason::ValueProvided => (C::InvalidArgument, "etcdserver: value is provided"),
        Reason::LeaseProvided => (C::InvalidArgument, "etcdserver: lease is provided"),
        Reason::TooManyOps => {
            (C::InvalidArgument, "etcdserver: too many operations in txn request")
        }
        Reason::DuplicateKey => {
            (C::InvalidArgument, "etcdserver: duplicate key given in txn request")
        }
        Reason::InvalidSortOption => (C::InvalidArgument, "etcdserver: invalid sort option"),
        Reason::Compacted => {
            (C::OutOfRange, "etcdserver: mvcc: required revision has been compacted")
        }
        Reason::FutureRevision => {
            (C::OutOfRange, "etcdserver: mvcc: required revision is a future revision")
        }
        Reason::NoSpace => (C::ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
        Reason::LeaseNotFound => (C::NotFound, "etcdserver: requested lease not found"),
        Reason::LeaseExists => (C::FailedPrecondition, "etcdserver: lease already exists"),
        Reason::LeaseTtlTooLarge => (C::OutOfRange, "etcdserver: too large lease TTL"),
        Reason::RequestTooLarge => (C::InvalidArgument, "etcdserver: request is too large"),
        // etcd's own mapping misses this text, so its code is Unknown there and here.
        Reason::TooManyRequests => (C::Unknown, "etcdserver: too many requests"),
        Reason::NoLeader => (C::Unavailable, "etcdserver: no leader"),
        Reason::NotLeader => (C::FailedPrecondition, "etcdserver: not leader"),
        Reason::LeaderChanged => (C::Unavailable, "etcdserver: leader changed"),
        Reason::Stopped => (C::Unavailable, "etcdserver: server stopped"),
        Reason::Timeout => (C::Unavailable, "etcdserver: request timed out"),
        Reason::TimeoutLeaderFailed => (
            C::Unavailable,
            "etcdserver: request timed out, possibly due to previous leader failure",
        ),
        Reason::DeadlineExceeded => (C::DeadlineExceeded, "context deadline exceeded"),
        Reason::Corrupt => (C::DataLoss, "etcdserver: corrupt cluster"),
        Reason::Unhealthy => (C::Unavailable, "etcdserver: unhealthy cluster"),
        Reason::ProposalDropped => (C::Unknown, "raft proposal dropped"),
        Reason::StreamSortOrder => {
            (C::Unimplemented, "RangeStream does not support custom sort orders")
        }
        Reason::StreamRevisionFilter => {
            (C::Unimplemented, "RangeStream does not support revision filters")
        }
        Reason::MemoryBudget => {
            (C::ResourceExhausted, "ringbolt: memory budget of the server is used up")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts that clients compare to the letter.
    #[test]
    fn texts_and_codes_are_the_contract() {
        let compacted = status_of(Reason::Compacted);
        assert_eq!(compacted.code, Code::OutOfRange);
        assert_eq!(
            &compacted.message[..],
            "etcdserver: mvcc: required revision has been compacted"
        );
        let stopped = status(&Error::Stop);
        assert_eq!(
            (stopped.code, &stopped.message[..]),
            (Code::Unavailable, "etcdserver: server stopped")
        );
    }
}

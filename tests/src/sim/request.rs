//! What clients ask and what they are told.

use prost::Message;
use ringbolt_engine::Reason;
use ringbolt_proto::etcdserverpb::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, HashKvResponse,
    LeaseGrantRequest, LeaseGrantResponse, LeaseRevokeRequest, LeaseRevokeResponse,
    LeaseTimeToLiveResponse, PutRequest, PutResponse, RangeRequest, RangeResponse, ResponseHeader,
    TxnRequest, TxnResponse,
};

/// A request of a client.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Reads, linearizably.
    Range(RangeRequest),
    /// Writes a key.
    Put(PutRequest),
    /// Deletes keys.
    Delete(DeleteRangeRequest),
    /// A transaction.
    Txn(TxnRequest),
    /// Gives up history.
    Compact(CompactionRequest),
    /// Grants a lease.
    Grant(LeaseGrantRequest),
    /// Ends a lease.
    Revoke(LeaseRevokeRequest),
    /// Renews a lease.
    Renew(i64),
    /// Asks what is left of a lease, with its keys.
    TimeToLive(i64),
    /// Asks for the hash of everything up to a revision; 0 is now.
    HashKv(i64),
}

/// The answer to a request that was done. Headers hold only the revision.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    /// To `Range`.
    Range(RangeResponse),
    /// To `Put`.
    Put(PutResponse),
    /// To `Delete`.
    Delete(DeleteRangeResponse),
    /// To `Txn`.
    Txn(TxnResponse),
    /// To `Compact`.
    Compact(CompactionResponse),
    /// To `Grant`.
    Grant(LeaseGrantResponse),
    /// To `Revoke`.
    Revoke(LeaseRevokeResponse),
    /// To `Renew`: the seconds it lives now, 0 when it is gone.
    Renew(i64),
    /// To `TimeToLive`.
    TimeToLive(LeaseTimeToLiveResponse),
    /// To `HashKv`.
    HashKv(HashKvResponse),
}

/// Why a request was not answered with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It was not done, and the reason says why.
    Refused(Reason),
    /// Nobody knows whether it was or will be done.
    Unknown,
    /// The store has stopped; nobody knows about this request.
    Stopped,
}

/// How a request ended.
pub type Outcome = Result<Response, Failure>;

impl Request {
    /// Bytes of its protobuf message.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        match self {
            Request::Range(request) => request.encoded_len(),
            Request::Put(request) => request.encoded_len(),
            Request::Delete(request) => request.encoded_len(),
            Request::Txn(request) => request.encoded_len(),
            Request::Compact(request) => request.encoded_len(),
            Request::Grant(request) => request.encoded_len(),
            Request::Revoke(request) => request.encoded_len(),
            Request::Renew(_) | Request::TimeToLive(_) | Request::HashKv(_) => 0,
        }
    }
}

impl Response {
    /// The revision in the header; `None` where the answer has none.
    #[must_use]
    pub fn revision(&self) -> Option<i64> {
        let header = match self {
            Response::Range(response) => response.header.as_ref(),
            Response::Put(response) => response.header.as_ref(),
            Response::Delete(response) => response.header.as_ref(),
            Response::Txn(response) => response.header.as_ref(),
            Response::Compact(response) => response.header.as_ref(),
            Response::Grant(response) => response.header.as_ref(),
            Response::Revoke(response) => response.header.as_ref(),
            Response::TimeToLive(response) => response.header.as_ref(),
            Response::HashKv(response) => response.header.as_ref(),
            Response::Renew(_) => None,
        };
        header.map(|header| header.revision)
    }
}

/// A header with a revision and nothing else.
#[must_use]
pub fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader { revision, ..ResponseHeader::default() })
}

//! What a command costs against the space quota.
//!
//! The quota is a question asked before a command is proposed; nothing that is applied depends on
//! it, because members may differ in how much compaction has removed already.

use ringbolt_proto::etcdserverpb::request_op::Request;
use ringbolt_proto::etcdserverpb::{PutRequest, RequestOp, TxnRequest};

use super::Command;

/// Cost of a put beside its key and value. Unit: bytes. etcd's number.
const PUT_COST_BYTES: u64 = 256;
/// Cost of a lease. Unit: bytes. etcd's number.
const GRANT_COST_BYTES: u64 = 64;
/// The quota when none is configured. Unit: bytes. etcd's number.
const QUOTA_DEFAULT_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// The quota an operator's setting means: 0 is the default, a negative number is none.
/// Source: etcd `--quota-backend-bytes`.
#[must_use]
pub fn effective_quota_bytes(configured: i64) -> Option<u64> {
    match configured {
        0 => Some(QUOTA_DEFAULT_BYTES),
        configured => u64::try_from(configured).ok(),
    }
}

/// What a command adds to the store at most. 0: it passes whatever the quota.
#[must_use]
pub fn cost_bytes(command: &Command) -> u64 {
    match command {
        Command::Put(request) => put_cost(request),
        Command::Txn(request) => txn_cost(request),
        Command::LeaseGrant(_) => GRANT_COST_BYTES,
        _ => 0,
    }
}

fn put_cost(request: &PutRequest) -> u64 {
    PUT_COST_BYTES + request.key.len() as u64 + request.value.len() as u64
}

/// The dearer of the two branches, nested transactions included.
pub(super) fn txn_cost(request: &TxnRequest) -> u64 {
    let branch = |ops: &[RequestOp]| -> u64 {
        let cost = |op: &RequestOp| match &op.request {
            Some(Request::RequestPut(put)) => put_cost(put),
            Some(Request::RequestTxn(nested)) => txn_cost(nested),
            _ => 0,
        };
        ops.iter().map(cost).sum()
    };
    branch(&request.success).max(branch(&request.failure))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::script;

    /// Rule 11.2: operations and what they cost.
    #[test]
    fn costs() {
        let cost = |text: &str| match script::request(text) {
            Request::RequestPut(request) => cost_bytes(&Command::Put(request)),
            Request::RequestDeleteRange(request) => cost_bytes(&Command::DeleteRange(request)),
            Request::RequestTxn(request) => cost_bytes(&Command::Txn(request)),
            Request::RequestRange(_) => 0,
        };
        for (text, expected) in [
            ("put key value", 264),
            ("put k -", 257),
            ("del a", 0),
            ("txn\n  then del a\n  else get a", 0),
            ("txn\n  then put k -\n  then put l -\n  else put m -", 514),
            ("txn\n  then put k -\n  else put m -\n  else put n 1", 515),
            ("txn\n  then put k -\n  then txn\n    else put l -", 514),
        ] {
            assert_eq!(cost(text), expected, "{text}");
        }
        assert_eq!(cost_bytes(&Command::LeaseGrant(Default::default())), 64);
        assert_eq!(cost_bytes(&Command::Nothing), 0);
    }

    /// Rule 11.1.
    #[test]
    fn the_quota_an_operator_means() {
        assert_eq!(effective_quota_bytes(0), Some(2_147_483_648));
        assert_eq!(effective_quota_bytes(5), Some(5));
        assert_eq!(effective_quota_bytes(-1), None);
    }
}

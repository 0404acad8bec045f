//! One change of the store while it is made: keys, the leases they hang on, and the rolling hash
//! move together, or not at all.

use std::ops::ControlFlow;

use bytes::Bytes;
use ringbolt_proto::etcdserverpb::{
    DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, ResponseHeader,
};
use ringbolt_proto::mvccpb::KeyValue;

use super::State;
use super::rolling::Rolling;
use crate::lease::LeaseTable;
use crate::mvcc::{KeyRange, Mvcc, Write};
use crate::types::{LeaseId, Revision};

/// A change in progress. Everything in it was checked before: nothing here can fail.
#[derive(Debug)]
pub(super) struct Change<'a> {
    write: Write<'a>,
    leases: &'a mut LeaseTable,
    rolling: &'a mut Rolling,
}

impl<'a> Change<'a> {
    /// Begins the change that gets the next revision.
    pub(super) fn begin(state: &'a mut State) -> Change<'a> {
        Change { write: state.mvcc.begin(), leases: &mut state.leases, rolling: &mut state.rolling }
    }

    /// Writes a key. Source: etcd `rpc.proto` `PutRequest`.
    pub(super) fn put(&mut self, request: &PutRequest) -> PutResponse {
        let kept = if request.ignore_value || request.ignore_lease {
            Some(self.write.get(&request.key).expect("the key's existence was checked"))
        } else {
            None
        };
        let value = match &kept {
            Some(kept) if request.ignore_value => &kept.value,
            _ => &request.value,
        };
        let lease = match &kept {
            Some(kept) if request.ignore_lease => LeaseId(kept.lease),
            _ => LeaseId(request.lease),
        };
        let previous = self.write.put(&request.key, value, lease);
        let lease_before = previous.as_ref().map_or(LeaseId(0), |kv| LeaseId(kv.lease));
        if lease_before != lease {
            self.leases.detach(lease_before, &request.key);
        }
        self.leases.attach(lease, &request.key);
        self.rolling.put(self.write.revision(), &request.key, value, lease);
        PutResponse {
            header: header(self.write.revision()),
            prev_kv: if request.prev_kv { previous } else { None },
        }
    }

    /// Deletes the keys of a range. Source: etcd `rpc.proto` `DeleteRangeRequest`.
    pub(super) fn delete_range(&mut self, request: &DeleteRangeRequest) -> DeleteRangeResponse {
        let range = KeyRange::from_wire(&request.key, &request.range_end);
        let mut keys: Vec<Bytes> = Vec::new();
        let (mvcc, at) = self.view();
        mvcc.visit(&range, at, &mut |version| {
            keys.push(version.key.clone());
            ControlFlow::Continue(())
        });
        let mut prev_kvs = Vec::new();
        for key in &keys {
            let previous = self.delete(key).expect("the key was there a moment ago");
            self.leases.detach(LeaseId(previous.lease), key);
            if request.prev_kv {
                prev_kvs.push(previous);
            }
        }
        let deleted = i64::try_from(keys.len()).expect("keys in memory are fewer than 2^63");
        DeleteRangeResponse { header: header(self.view().1), deleted, prev_kvs }
    }

    /// Deletes one key and leaves its lease to the caller.
    pub(super) fn delete(&mut self, key: &[u8]) -> Option<KeyValue> {
        let previous = self.write.delete(key)?;
        self.rolling.delete(self.write.revision(), key);
        Some(previous)
    }

    /// The state inside the change, and the revision at which it is read: one more than the
    /// store's as soon as anything changed.
    pub(super) fn view(&self) -> (&Mvcc, Revision) {
        let mvcc = self.write.mvcc();
        (mvcc, if self.write.changed() { self.write.revision() } else { mvcc.revision() })
    }

    /// Ends the change and gives the store's revision.
    pub(super) fn finish(self) -> Revision {
        self.write.finish()
    }
}

/// A header that holds a revision; the server fills in the rest.
pub(super) fn header(revision: Revision) -> Option<ResponseHeader> {
    Some(ResponseHeader { revision: revision.0, ..ResponseHeader::default() })
}

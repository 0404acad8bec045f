//! What a request does to the state at one revision: its events and its answer.
//!
//! Source: etcd `rpc.proto`; rules 3.x (put), 4.x (delete), 5.x (txn), 8.4 (revoke).

use std::collections::BTreeMap;

use bytes::Bytes;
use ringbolt_engine::Reason;
use ringbolt_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use ringbolt_proto::etcdserverpb::request_op::Request as Op;
use ringbolt_proto::etcdserverpb::response_op::Response as OpAnswer;
use ringbolt_proto::etcdserverpb::{
    CompactionResponse, Compare, DeleteRangeRequest, DeleteRangeResponse, HashKvResponse,
    LeaseGrantResponse, LeaseRevokeResponse, LeaseTimeToLiveResponse, PutRequest, PutResponse,
    RangeRequest, RangeResponse, RequestOp, ResponseHeader, ResponseOp, TxnRequest, TxnResponse,
};
use ringbolt_proto::mvccpb::event::EventType;
use ringbolt_proto::mvccpb::{Event, KeyValue};

use super::model::{Model, contains, page};
use super::request::{Request, Response, header};

/// What a request comes to when it is done at a state.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// Events of the new revision; none when nothing changed.
    pub events: Vec<Event>,
    /// The answer.
    pub response: Response,
}

/// The state at a revision with the changes of one request over it.
struct View<'a> {
    model: &'a Model,
    at: i64,
    changed: BTreeMap<Bytes, Option<KeyValue>>,
    events: Vec<Event>,
}

/// Does `request` at the state of revision `at`. Leases are taken to be there: who may doubt it
/// knows the leases.
///
/// # Errors
/// The reason with which the store must refuse it.
pub fn evaluate(model: &Model, at: i64, request: &Request) -> Result<Effect, Reason> {
    let mut view = View { model, at, changed: BTreeMap::new(), events: Vec::new() };
    let response = match request {
        Request::Range(request) => Response::Range(model.answer_range(request, at)),
        Request::Put(request) => Response::Put(view.put(request)?),
        Request::Delete(request) => Response::Delete(view.delete(request)),
        Request::Txn(request) => Response::Txn(view.txn(request)?),
        Request::Compact(_) => Response::Compact(CompactionResponse { header: header(at) }),
        Request::Grant(request) => Response::Grant(LeaseGrantResponse {
            header: header(at),
            id: request.id,
            ttl: request.ttl,
            error: String::new(),
        }),
        Request::Revoke(request) => {
            view.revoke(request.id);
            let header = header(view.revision());
            Response::Revoke(LeaseRevokeResponse { header })
        }
        Request::Renew(_) => Response::Renew(0),
        // They change nothing; the judge knows them by themselves.
        Request::TimeToLive(_) => Response::TimeToLive(LeaseTimeToLiveResponse::default()),
        Request::HashKv(_) => Response::HashKv(HashKvResponse::default()),
    };
    Ok(Effect { events: view.events, response })
}

impl View<'_> {
    /// The revision to show: the next one as soon as something changed.
    fn revision(&self) -> i64 {
        self.at + i64::from(!self.events.is_empty())
    }

    fn get(&self, key: &[u8]) -> Option<KeyValue> {
        match self.changed.get(key) {
            Some(changed) => changed.clone(),
            None => self.model.get(key, self.at).cloned(),
        }
    }

    fn range(&self, start: &[u8], range_end: &[u8]) -> Vec<KeyValue> {
        if self.changed.is_empty() {
            return self.model.range(start, range_end, self.at);
        }
        let mut live: BTreeMap<Bytes, KeyValue> = BTreeMap::new();
        for kv in self.model.range(start, range_end, self.at) {
            live.insert(kv.key.clone(), kv);
        }
        for (key, changed) in &self.changed {
            match changed {
                Some(kv) if contains(start, range_end, key) => {
                    live.insert(key.clone(), kv.clone());
                }
                _ => {
                    live.remove(key);
                }
            }
        }
        live.into_values().collect()
    }

    fn put(&mut self, request: &PutRequest) -> Result<PutResponse, Reason> {
        let old = self.get(&request.key);
        if (request.ignore_value || request.ignore_lease) && old.is_none() {
            return Err(Reason::KeyNotFound);
        }
        let main = self.at + 1;
        let mut kv = KeyValue {
            key: request.key.clone(),
            create_revision: main,
            mod_revision: main,
            version: 1,
            value: request.value.clone(),
            lease: request.lease,
        };
        if let Some(old) = &old {
            kv.create_revision = old.create_revision;
            kv.version = old.version + 1;
            if request.ignore_value {
                kv.value = old.value.clone();
            }
            if request.ignore_lease {
                kv.lease = old.lease;
            }
        }
        self.changed.insert(kv.key.clone(), Some(kv.clone()));
        self.event(EventType::Put, kv);
        let prev_kv = if request.prev_kv { old } else { None };
        Ok(PutResponse { header: header(main), prev_kv })
    }

    fn delete(&mut self, request: &DeleteRangeRequest) -> DeleteRangeResponse {
        let doomed = self.range(&request.key, &request.range_end);
        self.remove(&doomed);
        DeleteRangeResponse {
            header: header(self.revision()),
            deleted: i64::try_from(doomed.len()).expect("few keys"),
            prev_kvs: if request.prev_kv { doomed } else { Vec::new() },
        }
    }

    fn revoke(&mut self, lease: i64) {
        assert!(self.changed.is_empty(), "a revocation stands alone");
        self.remove(&self.model.leased(lease, self.at));
    }

    fn remove(&mut self, doomed: &[KeyValue]) {
        for kv in doomed {
            self.changed.insert(kv.key.clone(), None);
            let bare =
                KeyValue { key: kv.key.clone(), mod_revision: self.at + 1, ..KeyValue::default() };
            self.event(EventType::Delete, bare);
        }
    }

    fn event(&mut self, kind: EventType, kv: KeyValue) {
        self.events.push(Event { r#type: kind.into(), kv: Some(kv), prev_kv: None });
    }

    fn txn(&mut self, request: &TxnRequest) -> Result<TxnResponse, Reason> {
        let mut path = Vec::new();
        self.choose(request, &mut path);
        self.check(request, &mut path.iter())?;
        let mut response = self.run(request, &mut path.iter())?;
        response.header = header(self.revision());
        Ok(response)
    }

    /// Evaluates all compares of the taken path before anything runs (5.6).
    fn choose(&self, request: &TxnRequest, path: &mut Vec<bool>) {
        let holds = request.compare.iter().all(|compare| self.compare(compare));
        path.push(holds);
        let taken = if holds { &request.success } else { &request.failure };
        for op in taken {
            if let Some(Op::RequestTxn(inner)) = &op.request {
                self.choose(inner, path);
            }
        }
    }

    fn compare(&self, compare: &Compare) -> bool {
        let kvs = self.range(&compare.key, &compare.range_end);
        if kvs.is_empty() {
            let absent = KeyValue::default();
            return compare.target() != CompareTarget::Value && holds(compare, &absent);
        }
        kvs.iter().all(|kv| holds(compare, kv))
    }

    /// What may fail fails before the first change (5.7), on the state before the transaction.
    fn check(
        &self,
        request: &TxnRequest,
        path: &mut std::slice::Iter<'_, bool>,
    ) -> Result<(), Reason> {
        for op in taken(request, path) {
            match &op.request {
                Some(Op::RequestPut(put)) => {
                    let needs_key = put.ignore_value || put.ignore_lease;
                    if needs_key && self.get(&put.key).is_none() {
                        return Err(Reason::KeyNotFound);
                    }
                }
                Some(Op::RequestTxn(inner)) => self.check(inner, path)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn run(
        &mut self,
        request: &TxnRequest,
        path: &mut std::slice::Iter<'_, bool>,
    ) -> Result<TxnResponse, Reason> {
        let succeeded = path.as_slice().first().copied().unwrap_or(false);
        let mut responses = Vec::new();
        for op in taken(request, path) {
            let answer = match op.request.as_ref().expect("the workload sets every operation") {
                Op::RequestRange(range) => OpAnswer::ResponseRange(self.op_range(range)),
                Op::RequestPut(put) => OpAnswer::ResponsePut(self.put(put)?),
                Op::RequestDeleteRange(delete) => {
                    OpAnswer::ResponseDeleteRange(self.delete(delete))
                }
                Op::RequestTxn(inner) => {
                    let mut answer = self.run(inner, path)?;
                    answer.header = Some(ResponseHeader::default());
                    OpAnswer::ResponseTxn(answer)
                }
            };
            responses.push(ResponseOp { response: Some(answer) });
        }
        Ok(TxnResponse { header: None, succeeded, responses })
    }

    fn op_range(&self, request: &RangeRequest) -> RangeResponse {
        let kvs = if request.revision > 0 {
            self.model.range(&request.key, &request.range_end, request.revision)
        } else {
            self.range(&request.key, &request.range_end)
        };
        page(kvs, request, self.revision())
    }
}

fn taken<'a>(request: &'a TxnRequest, path: &mut std::slice::Iter<'_, bool>) -> &'a [RequestOp] {
    match path.next() {
        Some(true) => &request.success,
        _ => &request.failure,
    }
}

fn holds(compare: &Compare, kv: &KeyValue) -> bool {
    let order = match compare.target() {
        CompareTarget::Version => kv.version.cmp(&number(compare)),
        CompareTarget::Create => kv.create_revision.cmp(&number(compare)),
        CompareTarget::Mod => kv.mod_revision.cmp(&number(compare)),
        CompareTarget::Lease => kv.lease.cmp(&number(compare)),
        CompareTarget::Value => match &compare.target_union {
            Some(TargetUnion::Value(value)) => kv.value.cmp(value),
            _ => kv.value.cmp(&Bytes::new()),
        },
    };
    match compare.result() {
        CompareResult::Equal => order.is_eq(),
        CompareResult::Greater => order.is_gt(),
        CompareResult::Less => order.is_lt(),
        CompareResult::NotEqual => order.is_ne(),
    }
}

/// The number of the union member the target asks for; another member counts as 0 (5.3).
fn number(compare: &Compare) -> i64 {
    match (compare.target(), &compare.target_union) {
        (CompareTarget::Version, Some(TargetUnion::Version(number)))
        | (CompareTarget::Create, Some(TargetUnion::CreateRevision(number)))
        | (CompareTarget::Mod, Some(TargetUnion::ModRevision(number)))
        | (CompareTarget::Lease, Some(TargetUnion::Lease(number))) => *number,
        _ => 0,
    }
}

//! The fixed mix of a soak: what is asked next, and whether the answer is right.
//!
//! | of 100 calls | what |
//! |---|---|
//! | 30 | puts of 10 000 keys |
//! | 30 | gets of 100 000 objects |
//! | 20 | updates of these objects as Kubernetes does: compare the mod revision, put, else get |
//! | 15 | creates (compare with revision 0, put) and deletes of 20 000 keys, in turns |
//! | 2 | leases of 30 s, never kept alive |
//! | 2 | puts of a key of each such lease, which goes with it |
//! | 1 | lists of 500 objects |
//!
//! Each key of an update, create or delete has one call in flight at most and no other writer, so
//! that an answer that says otherwise is an error.

use std::collections::VecDeque;

use bytes::Bytes;
use prost::Message;
use ringbolt_proto::etcdserverpb::{
    DeleteRangeRequest, DeleteRangeResponse, LeaseGrantRequest, LeaseGrantResponse, PutRequest,
    RangeRequest, TxnResponse,
};

use crate::measures::VALUE_BYTES;
use crate::wire::{Answer, head};
use crate::workload::{Held, guarded, key, put};

/// Prefix of the objects; `compare::fill` writes them first.
pub const OBJECTS: &str = "/objects";
/// Objects.
pub const OBJECT_COUNT: usize = 100_000;
/// Prefix of what is created and deleted.
pub const CHURN: &str = "/churn";
const CHURN_COUNT: usize = 20_000;
const PUT_KEYS: u64 = 10_000;
const LEASED_KEYS: u64 = 1 << 20;
const LEASE_TTL_S: i64 = 30;
const LIST_KEYS: usize = 500;

/// A call of the mix, with what its answer is checked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A put; the only call whose latency is reported.
    Put,
    /// A get of an object.
    Get,
    /// A list of objects.
    List,
    /// An update of the object with this number.
    Update(usize),
    /// A create of the key with this number.
    Create(usize),
    /// A delete of it.
    Delete(usize),
    /// A lease.
    Grant,
    /// A put of a key of a lease.
    Leased,
}

/// What is known of the store, and what comes next.
pub struct Mix {
    heads: Heads,
    value: Bytes,
    random: Random,
    /// Mod revisions of the objects.
    objects: Vec<Slot<i64>>,
    /// Whether the keys that come and go are there.
    churn: Vec<Slot<bool>>,
    /// Leases that were granted and have no key yet.
    granted: VecDeque<i64>,
    number: u64,
}

#[derive(Clone, Copy)]
struct Slot<T> {
    known: T,
    in_flight: bool,
}

struct Heads {
    put: Vec<u8>,
    range: Vec<u8>,
    txn: Vec<u8>,
    delete: Vec<u8>,
    grant: Vec<u8>,
}

/// Numbers that look random; the same in each run (xorshift, 64 bits).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 32).expect("32 bits") % limit
    }
}

impl Mix {
    /// A mix over a store that holds the objects, whose mod revisions these are, and nothing else.
    pub fn new(objects: Vec<i64>) -> Mix {
        assert_eq!(objects.len(), OBJECT_COUNT);
        let objects = objects.into_iter().map(|known| Slot { known, in_flight: false });
        Mix {
            heads: Heads {
                put: head("/etcdserverpb.KV/Put"),
                range: head("/etcdserverpb.KV/Range"),
                txn: head("/etcdserverpb.KV/Txn"),
                delete: head("/etcdserverpb.KV/DeleteRange"),
                grant: head("/etcdserverpb.Lease/LeaseGrant"),
            },
            value: Bytes::from(vec![b'v'; VALUE_BYTES]),
            random: Random(0x9e37_79b9_7f4a_7c15),
            objects: objects.collect(),
            churn: vec![Slot { known: false, in_flight: false }; CHURN_COUNT],
            granted: VecDeque::new(),
            number: 0,
        }
    }

    /// The next call: which, its header block and its message.
    pub fn next(&mut self) -> (Call, &[u8], Vec<u8>) {
        self.number += 1;
        if let Some(lease) = self.granted.pop_front() {
            let key = format!("/leased/{:07}", self.number % LEASED_KEYS);
            let request = PutRequest { lease, ..put(key, &self.value) };
            return (Call::Leased, &self.heads.put, request.encode_to_vec());
        }
        match self.random.below(98) {
            0..30 => {
                let request = put(key(self.number % PUT_KEYS), &self.value);
                (Call::Put, &self.heads.put, request.encode_to_vec())
            }
            30..60 => {
                let key = Bytes::from(object(self.random.below(OBJECT_COUNT)));
                let request = RangeRequest { key, ..RangeRequest::default() };
                (Call::Get, &self.heads.range, request.encode_to_vec())
            }
            60 => {
                let request = self.list();
                (Call::List, &self.heads.range, request)
            }
            61..81 => self.update(),
            81..96 => self.churn(),
            _ => {
                let request = LeaseGrantRequest { ttl: LEASE_TTL_S, id: 0 };
                (Call::Grant, &self.heads.grant, request.encode_to_vec())
            }
        }
    }

    fn list(&mut self) -> Vec<u8> {
        RangeRequest {
            key: Bytes::from(object(self.random.below(OBJECT_COUNT - LIST_KEYS))),
            range_end: Bytes::from(format!("{OBJECTS}0")),
            limit: i64::try_from(LIST_KEYS).expect("few keys"),
            ..RangeRequest::default()
        }
        .encode_to_vec()
    }

    fn update(&mut self) -> (Call, &[u8], Vec<u8>) {
        let slot = idle(&mut self.random, &mut self.objects);
        let request = guarded(object(slot), self.objects[slot].known, &self.value);
        (Call::Update(slot), &self.heads.txn, request.encode_to_vec())
    }

    fn churn(&mut self) -> (Call, &[u8], Vec<u8>) {
        let slot = idle(&mut self.random, &mut self.churn);
        let key = format!("{CHURN}/{slot:013}");
        if self.churn[slot].known {
            let request =
                DeleteRangeRequest { key: Bytes::from(key), ..DeleteRangeRequest::default() };
            (Call::Delete(slot), &self.heads.delete, request.encode_to_vec())
        } else {
            let request = guarded(key, 0, &self.value);
            (Call::Create(slot), &self.heads.txn, request.encode_to_vec())
        }
    }

    /// Learns from an answer.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn finish(&mut self, call: Call, answer: &Answer) -> Result<(), String> {
        let result = self.check(call, answer);
        match call {
            Call::Update(slot) => self.objects[slot].in_flight = false,
            Call::Create(slot) | Call::Delete(slot) => self.churn[slot].in_flight = false,
            Call::Put | Call::Get | Call::List | Call::Grant | Call::Leased => {}
        }
        result.map_err(|error| format!("{call:?}: {error}"))
    }

    fn check(&mut self, call: Call, answer: &Answer) -> Result<(), String> {
        if let Some(complaint) = &answer.complaint {
            return Err(complaint.clone());
        }
        let message = &answer.message[..];
        let least = match call {
            Call::Get => VALUE_BYTES,
            Call::List => LIST_KEYS * VALUE_BYTES,
            _ => 1,
        };
        if message.len() < least {
            return Err(format!("an answer of {} bytes", message.len()));
        }
        let wrong = |error: prost::DecodeError| error.to_string();
        match call {
            Call::Put | Call::Get | Call::List | Call::Leased => {}
            Call::Update(slot) => {
                let known = &mut self.objects[slot].known;
                let mut held = Held { slot: 0, revision: *known };
                let succeeded = held.learn(message);
                *known = held.revision;
                if !succeeded {
                    return Err("somebody else wrote the key".to_owned());
                }
            }
            Call::Create(slot) => {
                self.churn[slot].known = true;
                if !TxnResponse::decode(message).map_err(wrong)?.succeeded {
                    return Err("the key was there".to_owned());
                }
            }
            Call::Delete(slot) => {
                self.churn[slot].known = false;
                let deleted = DeleteRangeResponse::decode(message).map_err(wrong)?.deleted;
                if deleted != 1 {
                    return Err(format!("{deleted} keys were deleted"));
                }
            }
            Call::Grant => {
                let grant = LeaseGrantResponse::decode(message).map_err(wrong)?;
                self.granted.push_back(grant.id);
            }
        }
        Ok(())
    }
}

/// The key of an object, as `compare::fill` writes it.
fn object(number: usize) -> String {
    format!("{OBJECTS}/{number:011}")
}

/// A slot without a call in flight; it has one from now on.
fn idle<T>(random: &mut Random, slots: &mut [Slot<T>]) -> usize {
    let mut at = random.below(slots.len());
    while slots[at].in_flight {
        at = (at + 1) % slots.len();
    }
    slots[at].in_flight = true;
    at
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use prost::Message;
    use ringbolt_proto::etcdserverpb::{
        DeleteRangeResponse, LeaseGrantResponse, ResponseHeader, TxnResponse,
    };

    use super::{Call, Mix, OBJECT_COUNT};
    use crate::wire::Answer;

    fn answer(message: Vec<u8>) -> Answer {
        Answer { stream: 1, message, complaint: None }
    }

    /// The answer of a server that does what is asked.
    fn good(call: Call, revision: i64) -> Answer {
        let header = Some(ResponseHeader { revision, ..ResponseHeader::default() });
        answer(match call {
            Call::Put | Call::Leased => vec![1],
            Call::Get | Call::List => vec![1; 500 * 256],
            Call::Update(_) | Call::Create(_) => {
                TxnResponse { header, succeeded: true, ..TxnResponse::default() }.encode_to_vec()
            }
            Call::Delete(_) => {
                DeleteRangeResponse { header, deleted: 1, ..DeleteRangeResponse::default() }
                    .encode_to_vec()
            }
            Call::Grant => {
                LeaseGrantResponse { header, id: revision, ..LeaseGrantResponse::default() }
                    .encode_to_vec()
            }
        })
    }

    /// 100 000 calls answered well: no complaint, and the shares of the table at the head.
    #[test]
    fn the_mix_has_its_shares_and_takes_right_answers() {
        let mut mix = Mix::new(vec![1; OBJECT_COUNT]);
        let mut counts = HashMap::new();
        for revision in 1..=100_000 {
            let (call, _, _) = mix.next();
            let name = match call {
                Call::Create(_) | Call::Delete(_) => "churn",
                Call::Update(_) => "update",
                Call::Put => "put",
                Call::Get => "get",
                Call::List => "list",
                Call::Grant | Call::Leased => "lease",
            };
            *counts.entry(name).or_insert(0) += 1;
            mix.finish(call, &good(call, revision)).expect("a right answer");
        }
        let shares =
            [("put", 30), ("get", 30), ("update", 20), ("churn", 15), ("lease", 4), ("list", 1)];
        for (name, per_cent) in shares {
            let seen = counts[name];
            let fair = per_cent * 1000;
            assert!(seen > fair * 9 / 10 && seen < fair * 11 / 10, "{name}: {seen} of 100 000");
        }
    }

    /// Wrong answers are told apart from right ones.
    #[test]
    fn wrong_answers_are_complained_of() {
        let mut mix = Mix::new(vec![1; OBJECT_COUNT]);
        let mut complain = |call, answer: Answer| mix.finish(call, &answer).is_err();
        assert!(complain(Call::Put, answer(Vec::new())));
        let refused = Answer { complaint: Some("busy".to_owned()), ..answer(vec![1]) };
        assert!(complain(Call::Put, refused));
        assert!(complain(Call::Get, answer(vec![1; 10])));
        let none = DeleteRangeResponse::default().encode_to_vec();
        assert!(complain(Call::Delete(3), answer([none, vec![0x0a, 0]].concat())));
        let conflict =
            TxnResponse { header: Some(ResponseHeader::default()), ..Default::default() };
        assert!(complain(Call::Create(3), answer(conflict.encode_to_vec())));
        assert!(!complain(Call::Update(3), good(Call::Update(3), 7)));
        assert!(complain(Call::Update(3), answer(conflict.encode_to_vec())));
    }
}

//! `HashKV` against the answers of a real etcd: `hash_vectors.txt` tells how they were taken.

use bytes::Bytes;

use super::super::*;
use crate::{LeaseId, Reason, Revision};

const VECTORS: &str = include_str!("hash_vectors.txt");

#[test]
fn hashes_are_those_of_etcd() {
    let mut mvcc = Mvcc::new();
    let mut hashes = 0;
    for (line, text) in (1..).zip(VECTORS.lines()) {
        let (ask, answer) = text.split_once(" -> ").unwrap_or((text, ""));
        let (verb, rest) = ask.split_once(' ').expect("a verb and its argument");
        match verb {
            "#" => continue,
            "store" => mvcc = Mvcc::new(),
            "txn" => assert_eq!(txn(&mut mvcc, rest), answer, "line {line}: {text}"),
            "compact" => assert_eq!(compact(&mut mvcc, rest), answer, "line {line}: {text}"),
            "hash" => {
                assert_eq!(hash(&mvcc, rest), answer, "line {line}: {text}");
                hashes += 1;
            }
            _ => panic!("line {line}: {text}"),
        }
        mvcc.check();
    }
    assert_eq!(hashes, 458, "the whole table was read");
}

fn txn(mvcc: &mut Mvcc, ops: &str) -> String {
    let mut write = mvcc.begin();
    for op in ops.split(" ; ") {
        let words: Vec<&str> = op.split(' ').collect();
        match words[..] {
            ["put", key, value, lease] => {
                let lease = LeaseId(lease.parse().expect("a number"));
                write.put(&hex(key), &hex(value), lease);
            }
            ["delete", key, end] => {
                let range = KeyRange::from_wire(&hex(key), &hex(end));
                for kv in write.range(&range, 0, Values::KeysOnly) {
                    write.delete(&kv.key);
                }
            }
            _ => panic!("{op}"),
        }
    }
    write.finish().to_string()
}

fn compact(mvcc: &mut Mvcc, revision: &str) -> String {
    let done = mvcc.compact(Revision(revision.parse().expect("a number")));
    while mvcc.compact_slice(3) {}
    done.map_or_else(refusal, |()| "ok".into())
}

fn hash(mvcc: &Mvcc, revision: &str) -> String {
    let answer = mvcc.hash_kv(revision.parse().expect("a number"));
    answer.map_or_else(refusal, |HashKv { hash, compact_revision, hash_revision }| {
        format!("{hash} {compact_revision} {hash_revision}")
    })
}

fn refusal(reason: Reason) -> String {
    match reason {
        Reason::Compacted => "compacted".into(),
        Reason::FutureRevision => "future".into(),
        other => panic!("{other:?}"),
    }
}

fn hex(text: &str) -> Bytes {
    if text == "-" {
        return Bytes::new();
    }
    let (digits, count) = text.split_once('*').unwrap_or((text, "1"));
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
    bytes.repeat(count.parse().expect("a number")).into()
}

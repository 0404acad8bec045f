//! Table tests of the checks that need no store: contract sections 2, 2b, 3, 4 and 5.

use proptest::prelude::*;
use ringbolt_proto::etcdserverpb::Compare;

use super::*;
use crate::state::tests::script;

fn check(text: &str) -> Result<(), Reason> {
    let limits = Limits::default();
    match script::request(text) {
        Request::RequestRange(request) => range(&request, &limits),
        Request::RequestPut(request) => put(&request, &limits),
        Request::RequestDeleteRange(request) => delete_range(&request, &limits),
        Request::RequestTxn(request) => txn(&request, &limits),
    }
}

/// Rules 2.1, 3.1 and 4.1: one line each, the first fault wins.
#[test]
fn single_requests() {
    for (text, expected) in [
        ("get a", Ok(())),
        ("get - sort=bad", Err(Reason::EmptyKey)),
        ("get a sort=bad", Err(Reason::InvalidSortOption)),
        ("get a order=bad", Err(Reason::InvalidSortOption)),
        ("get a sort=value order=desc", Ok(())),
        ("put a -", Ok(())),
        ("put - v ignore-value", Err(Reason::EmptyKey)),
        ("put a v ignore-value ignore-lease lease=1", Err(Reason::ValueProvided)),
        ("put a - ignore-value ignore-lease lease=1", Err(Reason::LeaseProvided)),
        ("put a - ignore-value ignore-lease", Ok(())),
        ("del -", Err(Reason::EmptyKey)),
        ("del b a", Ok(())),
    ] {
        assert_eq!(check(text), expected, "{text}");
    }
}

/// Rule 2b.1: key and enums, then the order, then the filters.
#[test]
fn range_streams() {
    for (text, expected) in [
        ("get a", Ok(())),
        ("get a sort=key order=asc", Ok(())),
        ("get a sort=mod", Ok(())),
        ("get - order=desc", Err(Reason::EmptyKey)),
        ("get a sort=bad", Err(Reason::InvalidSortOption)),
        ("get a sort=mod order=asc", Err(Reason::StreamSortOrder)),
        ("get a order=desc min-mod=1", Err(Reason::StreamSortOrder)),
        ("get a min-mod=1", Err(Reason::StreamRevisionFilter)),
        ("get a max-create=-1", Err(Reason::StreamRevisionFilter)),
    ] {
        let Request::RequestRange(request) = script::request(text) else { panic!("{text}") };
        assert_eq!(range_stream(&request, &Limits::default()), expected, "{text}");
    }
}

/// Rule 5.2: operations are checked as requests of their own, in both branches, at every level.
#[test]
fn operations() {
    for (text, expected) in [
        ("txn", Ok(())),
        ("txn\n  if mod - = 0", Err(Reason::EmptyKey)),
        ("txn\n  then nothing", Err(Reason::KeyNotFound)),
        ("txn\n  else get -", Err(Reason::EmptyKey)),
        ("txn\n  then put a v ignore-value", Err(Reason::ValueProvided)),
        ("txn\n  then get a sort=bad\n  else put - v", Err(Reason::InvalidSortOption)),
        ("txn\n  else txn\n    then del -", Err(Reason::EmptyKey)),
        ("txn\n  if mod - = 0\n  then nothing", Err(Reason::EmptyKey)),
    ] {
        assert_eq!(check(text), expected, "{text}");
    }
}

/// Rule 5.1: the widest list of a level counts, and leaves so much less to the levels below.
#[test]
fn operations_are_limited() {
    let puts = |count: usize| -> Vec<RequestOp> {
        let put = |index: usize| PutRequest { key: index.to_string().into(), ..Default::default() };
        (0..count).map(|index| op(Request::RequestPut(put(index)))).collect()
    };
    let limits = Limits::default();
    let wide = |count| TxnRequest { success: puts(count), ..Default::default() };
    assert_eq!(txn(&wide(128), &limits), Ok(()));
    assert_eq!(txn(&wide(129), &limits), Err(Reason::TooManyOps));
    let nest = |inner: TxnRequest| TxnRequest {
        failure: vec![op(Request::RequestTxn(inner))],
        ..Default::default()
    };
    assert_eq!(txn(&nest(wide(127)), &limits), Ok(()));
    assert_eq!(txn(&nest(wide(128)), &limits), Err(Reason::TooManyOps));
    let compares = TxnRequest {
        compare: vec![Compare { key: "a".into(), ..Default::default() }; 129],
        ..Default::default()
    };
    assert_eq!(txn(&compares, &limits), Err(Reason::TooManyOps));
}

fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

/// Rules 5.12 and 5.13, case by case.
#[test]
fn duplicate_keys() {
    for (text, is_duplicate) in [
        ("then put k 1\nthen put k 2", true),
        ("then put k 1\nelse put k 2", false),
        ("then put k 1\nthen del k", true),
        ("then del k\nthen put k 1", true),
        ("then del a z\nthen put k 1", true),
        ("then del a k\nthen put k 1", false),
        ("then del k k\\0\nthen put k 1", true),
        ("then del a \\0\nthen put k 1", false),
        ("then del z a\nthen put k 1", false),
        ("then del a z\nthen del k", false),
        ("then get k\nthen put k 1", false),
        ("else del a z\nelse put k 1", true),
        // Both branches of one nested transaction may put a key, two siblings may not.
        ("then txn\n  then put k 1\n  else put k 2", false),
        ("then txn\n  then put k 1\nthen txn\n  then put k 2", true),
        ("then txn\n  then put k 1\nthen txn\n  else put k 2", true),
        ("then txn\n  else put k 1\nthen put k 2", true),
        // Deletes of the level above and of earlier siblings count, those of later ones do not.
        ("then txn\n  then put k 1\nthen del k", true),
        ("then txn\n  else put k 1\nthen del a z", true),
        ("then txn\n  then del k\nthen txn\n  then put k 1", true),
        ("then txn\n  then put k 1\nthen txn\n  then del k", false),
        ("then txn\n  then del a z\n  else put k 1", false),
        ("then txn\n  then del k\nthen put k 1", true),
        // Intervals that touch are one.
        ("then del a c\nthen del c e\nthen put d 1", true),
        ("then del a c\nthen del d e\nthen put c 1", false),
    ] {
        let expected = if is_duplicate { Err(Reason::DuplicateKey) } else { Ok(()) };
        assert_eq!(txn(&script::txn(text), &Limits::default()), expected, "{text}");
    }
}

/// Rule 5.14.
#[test]
fn read_only_transactions() {
    for (text, read_only, serializable) in [
        ("", true, true),
        ("if mod a = 0", true, true),
        ("then get a", true, false),
        ("then get a serializable\nelse get b", true, false),
        ("then get a serializable\nelse get b serializable", true, true),
        ("then get a\nelse put a 1", false, false),
        ("else del a", false, false),
        ("then txn\n  then get a serializable", false, false),
    ] {
        let txn = script::txn(text);
        assert_eq!(
            (is_read_only(&txn), is_serializable(&txn)),
            (read_only, serializable),
            "{text}"
        );
    }
}

/// Rule 0.9: the limit holds for the proposal with its header, not for the value alone.
#[test]
fn proposals_have_a_size() {
    let limits = Limits::default();
    let put = |size: usize| PutRequest {
        key: "k".into(),
        value: vec![0; size].into(),
        ..PutRequest::default()
    };
    let around = put(limits.max_request_bytes).encoded_len() - limits.max_request_bytes;
    let fits = limits.max_request_bytes - around - PROPOSAL_OVERHEAD_BYTES;
    assert_eq!(size(&put(fits), &limits), Ok(()));
    assert_eq!(size(&put(fits + 1), &limits), Err(Reason::RequestTooLarge));
}

/// Rule 5.13 word by word, with plain lists: the model of `written_keys`.
type Interval = (Vec<u8>, Vec<u8>);

fn model(ops: &[RequestOp]) -> Option<(Vec<Vec<u8>>, Vec<Interval>)> {
    let mut deletes: Vec<Interval> = Vec::new();
    let mut puts: Vec<Vec<u8>> = Vec::new();
    let hit = |deletes: &[Interval], key: &[u8]| {
        deletes.iter().any(|(start, end)| match end.as_slice() {
            [] => start == key,
            end => start.as_slice() <= key && key < end,
        })
    };
    for op in ops {
        if let Some(Request::RequestDeleteRange(delete)) = &op.request {
            deletes.push((delete.key.to_vec(), delete.range_end.to_vec()));
        }
    }
    for op in ops {
        if let Some(Request::RequestTxn(nested)) = &op.request {
            let (then, then_deletes) = model(&nested.success)?;
            let (otherwise, otherwise_deletes) = model(&nested.failure)?;
            for key in &then {
                if puts.contains(key) || hit(&deletes, key) {
                    return None;
                }
                puts.push(key.clone());
            }
            for key in otherwise {
                if hit(&deletes, &key) || (puts.contains(&key) && !then.contains(&key)) {
                    return None;
                }
                if !puts.contains(&key) {
                    puts.push(key);
                }
            }
            deletes.extend(then_deletes);
            deletes.extend(otherwise_deletes);
        }
    }
    for op in ops {
        if let Some(Request::RequestPut(put)) = &op.request {
            if puts.contains(&put.key.to_vec()) || hit(&deletes, &put.key) {
                return None;
            }
            puts.push(put.key.to_vec());
        }
    }
    Some((puts, deletes))
}

fn key() -> impl Strategy<Value = bytes::Bytes> {
    prop::sample::select(vec!["a", "b", "c", "d", "e", "f", "g", "h"]).prop_map(bytes::Bytes::from)
}

fn any_op() -> impl Strategy<Value = RequestOp> {
    let put =
        key().prop_map(|key| op(Request::RequestPut(PutRequest { key, ..Default::default() })));
    let end = prop_oneof![Just(bytes::Bytes::new()), key()];
    let delete = (key(), end).prop_map(|(key, range_end)| {
        op(Request::RequestDeleteRange(DeleteRangeRequest { key, range_end, prev_kv: false }))
    });
    prop_oneof![2 => put, 1 => delete].prop_recursive(3, 24, 4, |inner| {
        let branch = || prop::collection::vec(inner.clone(), 0..3);
        (branch(), branch()).prop_map(|(success, failure)| {
            op(Request::RequestTxn(TxnRequest { compare: vec![], success, failure }))
        })
    })
}

proptest! {
    /// The ordered sets decide as the plain lists do.
    #[test]
    fn duplicate_keys_agree_with_the_rule(ops in prop::collection::vec(any_op(), 0..5)) {
        prop_assert_eq!(written_keys(&ops).is_ok(), model(&ops).is_some());
    }
}

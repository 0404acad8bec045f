//! A range in steps gives what the same range gives in one go, whatever happens in between; and the
//! rules of `RangeStream`, contract section 2b.

use proptest::prelude::*;
use ringbolt_io::time::MonoTime;
use ringbolt_proto::etcdserverpb::request_op::Request;
use ringbolt_proto::etcdserverpb::{
    LeaseTimeToLiveRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest,
};
use std::time::Duration;

use super::*;
use crate::lease::Deadlines;
use crate::limits::{RANGE_COUNT_BACK_MAX, RANGE_STEP_KEYS_MAX};
use crate::state::tests::golden::Store;
use crate::state::tests::script;
use crate::state::{Command, Removal};
use crate::types::LeaseId;

const NOW: MonoTime = MonoTime(0);
const UNTIL: MonoTime = MonoTime(1_000);

fn parse(text: &str) -> RangeRequest {
    let Request::RequestRange(request) = script::request(text) else { panic!("{text}") };
    request
}

/// Forty keys, some of them written again, some deleted: revisions 2 to 61.
fn store() -> Store {
    let mut store = Store::new();
    for index in 0..40 {
        store.play(&format!("put k{index:02} {}", index * 7 % 5));
    }
    for index in (0..40).step_by(4) {
        store.play(&format!("put k{index:02} again"));
        store.play(&format!("del k{:02}", index + 1));
    }
    store
}

fn run(cursor: &mut RangeCursor, state: &State, budget: Budget) -> (RangeResponse, usize) {
    let mut kvs = Vec::new();
    for steps in 1.. {
        match cursor.step(state, budget).expect("nothing is compacted") {
            Step::More(more) => {
                assert!(more.len() <= budget.keys);
                kvs.extend(more);
            }
            Step::Last(mut last) => {
                kvs.append(&mut last.kvs);
                last.kvs = kvs;
                return (last, steps);
            }
        }
    }
    unreachable!("a cursor ends")
}

fn any_range() -> impl Strategy<Value = RangeRequest> {
    let bounds = || prop_oneof![3 => Just(0_i64), 1 => -1_i64..65];
    let flags = (any::<bool>(), prop::bool::weighted(0.1));
    let range = (0_usize..45, prop_oneof![Just(99_usize), 0_usize..45], -1_i64..20, -1_i64..62);
    let filters = (bounds(), bounds(), bounds(), bounds());
    (range, 0_i32..3, 0_i32..5, flags, filters).prop_map(
        |((start, end, limit, revision), sort_order, sort_target, flags, filters)| RangeRequest {
            key: format!("k{start:02}").into(),
            range_end: format!("k{end:02}").into(),
            limit,
            revision,
            sort_order,
            sort_target,
            serializable: false,
            keys_only: flags.0,
            count_only: flags.1,
            min_mod_revision: filters.0,
            max_mod_revision: filters.1,
            min_create_revision: filters.2,
            max_create_revision: filters.3,
        },
    )
}

/// The plain reading of section 2: everything, filtered, sorted, cut.
fn model(state: &State, request: &RangeRequest) -> RangeResponse {
    use crate::mvcc::{KeyRange, Values};
    let at = state.mvcc.check_revision(request.revision).expect("the revision exists");
    let range = KeyRange::from_wire(&request.key, &request.range_end);
    let all = state.mvcc.range(&range, at, 0, Values::Full);
    let mut response = RangeResponse {
        header: Some(ringbolt_proto::etcdserverpb::ResponseHeader {
            revision: state.mvcc.revision().0,
            ..Default::default()
        }),
        count: i64::try_from(all.len()).expect("few keys"),
        ..RangeResponse::default()
    };
    if request.count_only {
        return response;
    }
    let limit = usize::try_from(request.limit).ok().filter(|limit| *limit > 0);
    let within =
        |value: i64, min: i64, max: i64| (min == 0 || value >= min) && (max == 0 || value <= max);
    let filters = [
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    ];
    let mut kvs = all;
    if let Some(limit) = limit
        && request.sort_order == 0
        && filters == [0; 4]
    {
        kvs.truncate(limit + 1);
    }
    kvs.retain(|kv| {
        within(kv.mod_revision, filters[0], filters[1])
            && within(kv.create_revision, filters[2], filters[3])
    });
    match request.sort_target {
        1 => kvs.sort_by_key(|kv| kv.version),
        2 => kvs.sort_by_key(|kv| kv.create_revision),
        3 => kvs.sort_by_key(|kv| kv.mod_revision),
        4 => kvs.sort_by_key(|kv| kv.value.clone()),
        _ => (),
    }
    if request.sort_order == 2 {
        // Reversed, but equal ones in key order: reverse before a stable sort on the target.
        kvs.sort_by(|one, two| match request.sort_target {
            1 => two.version.cmp(&one.version),
            2 => two.create_revision.cmp(&one.create_revision),
            3 => two.mod_revision.cmp(&one.mod_revision),
            4 => two.value.cmp(&one.value),
            _ => two.key.cmp(&one.key),
        });
    }
    if let Some(limit) = limit
        && kvs.len() > limit
    {
        kvs.truncate(limit);
        response.more = true;
    }
    if request.keys_only {
        for kv in &mut kvs {
            kv.value = bytes::Bytes::new();
        }
    }
    response.kvs = kvs;
    response
}

proptest! {
    /// Any request, read in one go and in steps of any size, is what the plain reading gives.
    #[test]
    fn steps_add_up(
        request in any_range(),
        keys in 1_usize..50,
        bytes in 1_usize..200,
        is_long_ago in any::<bool>(),
    ) {
        let mut store = store();
        if is_long_ago {
            let revision = Revision(100 + RANGE_COUNT_BACK_MAX);
            let fence = Command::Fence { revision, compacted: Revision::NEVER };
            store.apply(&fence).expect("fences are never refused");
        }
        let expected = model(&store.state, &request);
        let at_once = range(&store.state, &request).expect("the revision exists");
        prop_assert_eq!(&at_once, &expected);
        let opened = RangeCursor::unary(&store.state, &request, UNTIL);
        let mut cursor = opened.expect("the revision exists");
        let (stepped, _) = run(&mut cursor, &store.state, Budget { keys, bytes });
        prop_assert_eq!(&stepped, &expected);
    }
}

/// A unary range does not see what is written between its steps, and a compaction does not take
/// its versions away: removal waits for it.
#[test]
fn a_unary_range_is_one_moment() {
    let mut store = store();
    let request = parse("get k \\0 limit=35");
    let expected = range(&store.state, &request).expect("the newest revision");
    let mut cursor =
        RangeCursor::unary(&store.state, &request, UNTIL).expect("the newest revision");
    let Ok(Step::More(first)) = cursor.step(&store.state, Budget { keys: 10, bytes: 9999 }) else {
        panic!("thirty keys need more than one step")
    };
    store.play("put k05 other");
    store.play("del k \\0");
    let revision = store.state.mvcc.revision().0;
    store.apply(&compact(revision)).expect("the revision exists");
    assert_eq!(store.state.compact_slice(1000, NOW), Removal::Held);
    let (mut rest, _) = run(&mut cursor, &store.state, Budget { keys: 10, bytes: 9999 });
    rest.kvs.splice(0..0, first);
    assert_eq!(rest, expected);
    drop(cursor);
    while store.state.compact_slice(1000, NOW) == Removal::More {}
    store.state.check();
}

/// A transaction that only reads gives in steps what it gives in one go, and sees one moment.
#[test]
fn a_reading_transaction_is_one_moment() {
    let mut store = store();
    let revision = store.state.mvcc.revision().0;
    let ranges = [
        parse("get k \\0"),
        parse("get k05"),
        RangeRequest { revision: revision - 3, ..parse("get k \\0 limit=7") },
        RangeRequest { sort_target: 3, sort_order: 2, ..parse("get k \\0") },
        parse("get none"),
    ];
    let op =
        |range: &RangeRequest| RequestOp { request: Some(Request::RequestRange(range.clone())) };
    let request = TxnRequest { success: ranges.iter().map(op).collect(), ..TxnRequest::default() };
    let expected = txn(&store.state, &request).expect("the revisions exist");
    for keys in [1, 3, 10, 1000] {
        let budget = Budget { keys, bytes: usize::MAX };
        let mut cursor = TxnCursor::open(&store.state, &request, UNTIL).expect("they exist");
        let mut answer = cursor.step(&store.state, budget).expect("pinned");
        store.play("put k05 other");
        store.play("del k \\0");
        while answer.is_none() {
            answer = cursor.step(&store.state, budget).expect("pinned");
        }
        assert_eq!(answer.as_ref(), Some(&expected), "{keys} keys in a step");
        store = self::store();
    }
}

/// Removal waits for the reads that were there when the compaction came, not for later ones, and
/// for none longer than its pin lasts: then the read ends as compacted.
#[test]
fn lists_do_not_hold_removal_for_ever() {
    let mut store = store();
    let request = parse("get k \\0");
    let mut early = RangeCursor::unary(&store.state, &request, UNTIL).expect("the newest revision");
    store.play("put k05 other");
    let revision = store.state.mvcc.revision().0;
    store.apply(&compact(revision)).expect("the revision exists");
    let late = RangeCursor::unary(&store.state, &request, UNTIL).expect("the newest revision");
    assert_eq!(store.state.compact_slice(1000, NOW), Removal::Held);
    let again = RangeCursor::pinned(&store.state, &request, early.pin().expect("unary"));
    let (whole, _) = run(&mut again.expect("pinned"), &store.state, Budget::UNLIMITED);
    assert_eq!(whole.kvs[5].version, 1, "before the last put");
    while store.state.compact_slice(1000, UNTIL) == Removal::More {}
    assert!(!store.state.mvcc.removal_waits(), "the later read needs nothing that was removed");
    assert_eq!(early.step(&store.state, Budget::STEP), Err(Reason::Compacted));
    let again = RangeCursor::pinned(&store.state, &request, early.pin().expect("unary"));
    assert_eq!(again.err(), Some(Reason::Compacted));
    drop(late);
    store.state.check();
}

/// A long list reads the rest of its keys again, a few at a time, while others write: each time it
/// looks at those few, not at the whole rest to count it.
#[test]
fn a_list_that_goes_on_counts_nothing() {
    let mut store = Store::new();
    for index in 0..4 * RANGE_STEP_KEYS_MAX {
        store.play(&format!("put k{index:05} old"));
    }
    let request = parse("get k00007 \\0 limit=10");
    let early = RangeCursor::unary(&store.state, &request, UNTIL).expect("the newest revision");
    let revision = Revision(store.state.mvcc.revision().0 + RANGE_COUNT_BACK_MAX + 1);
    let fence = Command::Fence { revision, compacted: Revision::NEVER };
    store.apply(&fence).expect("fences are never refused");
    let pin = || early.pin().expect("unary");
    let counts = RangeCursor::pinned(&store.state, &request, pin()).expect("pinned");
    let goes_on = RangeCursor::continued(&store.state, &request, pin()).expect("pinned");
    let [counted, fast] =
        [counts, goes_on].map(|mut cursor| run(&mut cursor, &store.state, Budget::STEP));
    assert_eq!(counted.0.kvs, fast.0.kvs);
    assert_eq!((fast.0.kvs.len(), fast.0.count, fast.1), (10, 0, 1));
    assert!(counted.1 > 3, "the other has looked at all: {} steps", counted.1);
}

fn compact(revision: i64) -> Command {
    let request = ringbolt_proto::etcdserverpb::CompactionRequest { revision, physical: false };
    Command::Compact(request)
}

fn chunks(stream: &mut RangeStream, state: &State) -> Vec<RangeResponse> {
    let mut chunks = Vec::new();
    loop {
        match stream.step(state).expect("nothing is compacted") {
            StreamStep::Working => (),
            StreamStep::Chunk(chunk) => chunks.push(chunk),
            StreamStep::Last(last) => {
                chunks.push(last);
                return chunks;
            }
        }
    }
}

/// Rules 2b.2 to 2b.7: ten keys, then twenty, then the rest; only the last message has a header,
/// the count and more; all of them together are the unary answer.
#[test]
fn a_stream_adds_up_to_the_range() {
    let store = store();
    for text in [
        "get k \\0",
        "get k \\0 limit=25",
        "get k \\0 limit=5",
        "get k \\0 limit=-1",
        "get k \\0 limit=30",
        "get k \\0 keys",
        "get k \\0 count",
        "get k \\0 rev=41",
        "get k \\0 rev=41 limit=12",
        "get k10 k20",
        "get x",
        "get k20 k10",
        "get k02",
    ] {
        let request = parse(text);
        let mut stream = RangeStream::open(&store.state, &request).expect("the revision exists");
        let chunks = chunks(&mut stream, &store.state);
        let (last, others) = chunks.split_last().expect("a stream has a last message");
        for chunk in others {
            assert!(!chunk.kvs.is_empty(), "{text}");
            let alone = RangeResponse { kvs: chunk.kvs.clone(), ..RangeResponse::default() };
            assert_eq!(chunk, &alone, "{text}");
        }
        let mut sum = last.clone();
        sum.kvs = chunks.iter().flat_map(|chunk| chunk.kvs.clone()).collect();
        assert_eq!(sum, range(&store.state, &request).expect("the revision exists"), "{text}");
    }
    let mut stream = RangeStream::open(&store.state, &parse("get k \\0")).expect("newest");
    let sizes: Vec<_> = chunks(&mut stream, &store.state).iter().map(|c| c.kvs.len()).collect();
    assert_eq!(sizes, [10, 20]);
}

/// Rules 2b.3 and 2b.4: writes during the stream are invisible; a compaction above its revision
/// ends it, one at its revision does not.
#[test]
fn a_stream_is_pinned_to_its_revision() {
    let mut store = store();
    let request = parse("get k \\0");
    let expected = range(&store.state, &request).expect("the newest revision");
    let revision = store.state.mvcc.revision().0;
    let mut stream = RangeStream::open(&store.state, &request).expect("the newest revision");
    let Ok(StreamStep::Chunk(first)) = stream.step(&store.state) else { panic!("ten keys") };
    store.play("put k05 other");
    store.play("put z 1");
    store.apply(&compact(revision)).expect("the revision exists");
    while store.state.compact_slice(1000, NOW) == Removal::More {}
    let rest = chunks(&mut stream, &store.state);
    let all: Vec<_> =
        first.kvs.into_iter().chain(rest.iter().flat_map(|c| c.kvs.clone())).collect();
    assert_eq!(all, expected.kvs);
    assert_eq!(rest.last().expect("the last").header, expected.header);

    let mut stream = RangeStream::open(&store.state, &request).expect("the newest revision");
    stream.step(&store.state).expect("ten keys");
    store.play("put z 2");
    store.apply(&compact(revision + 3)).expect("the revision exists");
    assert_eq!(stream.step(&store.state), Err(Reason::Compacted));
    let old = parse("get k \\0 rev=5");
    assert_eq!(RangeStream::open(&store.state, &old).err(), Some(Reason::Compacted));
    let future = parse("get k \\0 rev=999");
    assert_eq!(RangeStream::open(&store.state, &future).err(), Some(Reason::FutureRevision));
}

/// Chunks of large values stay near the size of a request.
#[test]
fn a_stream_of_large_values_has_small_chunks() {
    let mut store = Store::new();
    store.state.config.max_request_bytes = 10_000;
    for index in 0..20 {
        store.play(&format!("put k{index:02} {}", "v".repeat(6000)));
    }
    let mut stream = RangeStream::open(&store.state, &parse("get k \\0")).expect("newest");
    let sizes: Vec<_> = chunks(&mut stream, &store.state).iter().map(|c| c.kvs.len()).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 20);
    assert!(sizes.iter().all(|size| *size <= 2), "{sizes:?}");
}

/// Rules 8.11 and 8.12: known, unknown and ended leases, with and without keys.
#[test]
fn the_time_a_lease_has_left() {
    let mut store = Store::new();
    let mut deadlines = Deadlines::new(Duration::from_secs(7));
    let start = MonoTime(0);
    for (id, ttl) in [(7, 100), (8, 10), (9, 50)] {
        store.play(&format!("grant {id} {ttl}"));
        deadlines.grant(LeaseId(id), ttl, start);
    }
    store.play("put b 1 lease=7");
    store.play("put a 1 lease=7");
    let now = start + Duration::from_millis(20_500);
    let ask = |id, keys| {
        let request = LeaseTimeToLiveRequest { id, keys };
        let answer = lease_time_to_live(&store.state, &deadlines, &request, now);
        assert_eq!(answer.header.expect("set").revision, 3);
        assert_eq!(answer.id, id);
        (answer.ttl, answer.granted_ttl, answer.keys)
    };
    let keys = vec![bytes::Bytes::from("a"), bytes::Bytes::from("b")];
    assert_eq!(ask(7, true), (79, 100, keys));
    assert_eq!(ask(7, false), (79, 100, vec![]));
    assert_eq!(ask(8, true), (0, 10, vec![]));
    assert_eq!(ask(5, true), (-1, 0, vec![]));
    let listed = lease_leases(&store.state, &deadlines).leases;
    assert_eq!(listed.iter().map(|lease| lease.id).collect::<Vec<_>>(), [8, 9, 7]);
    deadlines.clear();
    let listed = lease_leases(&store.state, &deadlines).leases;
    assert_eq!(listed.iter().map(|lease| lease.id).collect::<Vec<_>>(), [7, 8, 9]);
}

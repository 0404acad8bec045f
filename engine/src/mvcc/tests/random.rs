//! Random histories against the model: after each step the structure is checked whole, and reads,
//! counts, events and hashes at a random revision are compared.

use std::ops::ControlFlow;

use bytes::Bytes;
use proptest::prelude::*;

use super::super::model::Model;
use super::super::*;
use crate::{LeaseId, Revision};

#[derive(Clone, Debug)]
enum Change {
    Put(Vec<u8>, Vec<u8>, i64),
    Delete(Vec<u8>),
    DeleteRange(KeyRange),
}

#[derive(Clone, Debug)]
enum Step {
    Txn(Vec<Change>),
    /// Compacts at this part (of 255) of the revisions that are left, or fails.
    Compact(u8),
    Slice(usize),
    Pause(bool),
    Fence(u8, u8),
    /// Goes on with an export and import of itself, in chunks of this size.
    Reload(usize),
}

/// What is looked at after a step.
#[derive(Clone, Debug)]
struct Look {
    range: KeyRange,
    /// The revision, as a part of those that are left.
    at: u8,
    limit: usize,
    key: Vec<u8>,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0u8), Just(b'a'), Just(b'b'), Just(0xff)];
    let short = prop::collection::vec(byte.clone(), 1..5);
    let long = prop::collection::vec(byte.clone(), 0..4)
        .prop_map(|tail| [b"/registry/pods/default/".as_slice(), &tail].concat());
    let tied = prop::collection::vec(byte, 0..3)
        .prop_map(|tail| [b"/registry/pods/default/\0\0\0\0\0\0\0\0".as_slice(), &tail].concat());
    prop_oneof![4 => short, 4 => long, 1 => tied]
}

fn range() -> impl Strategy<Value = KeyRange> {
    (key(), prop_oneof![3 => Just(None), 6 => key().prop_map(Some)], any::<bool>()).prop_map(
        |(start, end, single)| {
            let start = Bytes::from(start);
            let end = match end {
                Some(end) => End::Before(Bytes::from(end)),
                None if single => End::Single,
                None => End::Unbounded,
            };
            KeyRange { start, end }
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    let value = prop::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        8 => (key(), value, 0..3i64).prop_map(|(key, value, lease)| Change::Put(key, value, lease)),
        3 => key().prop_map(Change::Delete),
        1 => range().prop_map(Change::DeleteRange),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => prop::collection::vec(change(), 1..8).prop_map(Step::Txn),
        3 => any::<u8>().prop_map(Step::Compact),
        6 => (1..40usize).prop_map(Step::Slice),
        1 => any::<bool>().prop_map(Step::Pause),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(ahead, back)| Step::Fence(ahead, back)),
        1 => (1..600usize).prop_map(Step::Reload),
    ]
}

fn look() -> impl Strategy<Value = Look> {
    (range(), any::<u8>(), 0..6usize, key()).prop_map(|(range, at, limit, key)| Look {
        range,
        at,
        limit,
        key,
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn behaves_as_the_model(steps in prop::collection::vec((step(), look()), 1..60)) {
        let mut mvcc = Mvcc::new();
        let mut model = Model::new();
        for (step, look) in steps {
            take(&mut mvcc, &mut model, step);
            mvcc.check();
            compare(&mvcc, &model, &look);
        }
        mvcc.pause_removal(false);
        while mvcc.compact_slice(7) {
            mvcc.check();
        }
        mvcc.check();
        compare_stored(&mvcc, &model);
        compare_hashes(&mvcc, &model);
    }

    /// A reader of foreign bytes answers with an error or a sound store, never a panic.
    #[test]
    fn garbage_never_panics(
        changes in prop::collection::vec(change(), 1..20),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut mvcc = Mvcc::new();
        let mut model = Model::new();
        take(&mut mvcc, &mut model, Step::Txn(changes));
        let mut chunk = mvcc.export(&mut ExportCursor::new(&mvcc), usize::MAX).expect("one chunk");
        for (index, byte) in damage {
            let index = index.index(chunk.len());
            chunk[index] = byte;
        }
        if cuts {
            chunk.truncate(cut.index(chunk.len()));
        }
        let mut importer = Importer::new();
        if importer.feed(&chunk).is_ok()
            && let Ok(mvcc) = importer.finish()
        {
            mvcc.check();
        }
    }
}

fn take(mvcc: &mut Mvcc, model: &mut Model, step: Step) {
    match step {
        Step::Txn(changes) => txn(mvcc, model, changes),
        Step::Compact(part) => {
            let at = part_of(model, part);
            assert_eq!(mvcc.compact(at), model.compact(at));
        }
        Step::Slice(steps) => {
            mvcc.compact_slice(steps);
        }
        Step::Pause(paused) => mvcc.pause_removal(paused),
        Step::Fence(ahead, back) => {
            let revision = Revision(model.revision.0 + (i64::from(ahead) << (ahead % 40)));
            let compacted = Revision((revision.0 - i64::from(back)).max(model.compacted.0));
            mvcc.fence(revision, compacted);
            model.fence(revision, compacted);
        }
        Step::Reload(max_bytes) => {
            *mvcc = reload(mvcc, max_bytes);
            model.remembered.clear();
        }
    }
}

fn txn(mvcc: &mut Mvcc, model: &mut Model, changes: Vec<Change>) {
    let before = mvcc.revision();
    let mut write = mvcc.begin();
    for change in changes {
        match change {
            Change::Put(key, value, lease) => {
                let lease = LeaseId(lease);
                assert_eq!(write.put(&key, &value, lease), model.put(&key, &value, lease));
            }
            Change::Delete(key) => assert_eq!(write.delete(&key), model.delete(&key)),
            Change::DeleteRange(range) => {
                let found = write.range(&range, 0, Values::Full);
                assert_eq!(found, model.range(&range, model.revision.next()));
                for kv in found {
                    assert_eq!(write.delete(&kv.key).as_ref(), Some(&kv));
                    assert_eq!(model.delete(&kv.key).as_ref(), Some(&kv));
                }
            }
        }
        let now = model.state(write.revision()).len() as u64;
        assert_eq!(write.count(&KeyRange::everything()), now);
        let then = model.state(before).len() as u64;
        assert_eq!(write.mvcc().count(&KeyRange::everything(), before), then);
    }
    assert_eq!(write.finish(), model.finish());
}

fn reload(mvcc: &mut Mvcc, max_bytes: usize) -> Mvcc {
    mvcc.pause_removal(true);
    let mut cursor = ExportCursor::new(mvcc);
    let mut importer = Importer::new();
    while let Some(chunk) = mvcc.export(&mut cursor, max_bytes) {
        importer.feed(&chunk).expect("a chunk we wrote");
    }
    importer.finish().expect("the last chunk was fed")
}

/// A revision that can be read, or one to three ahead.
fn part_of(model: &Model, part: u8) -> Revision {
    let lowest = model.compacted.0.max(1);
    Revision(lowest + (model.revision.0 + 3 - lowest) * i64::from(part) / 255)
}

fn compare(mvcc: &Mvcc, model: &Model, look: &Look) {
    assert_eq!(mvcc.revision(), model.revision);
    assert_eq!(mvcc.compacted(), model.compacted);
    let at = part_of(model, look.at).min(model.revision);
    let want = model.range(&look.range, at);
    assert_eq!(mvcc.count(&look.range, at), want.len() as u64, "count at {at}");
    let cut = if look.limit == 0 { want.len() } else { want.len().min(look.limit) };
    assert_eq!(mvcc.range(&look.range, at, look.limit, Values::Full), want[..cut]);
    assert_eq!(mvcc.get(&look.key, at).as_ref(), model.state(at).get(look.key.as_slice()));
    let now = model.state(model.revision).len() as u64;
    assert_eq!(mvcc.keys_count(), now);
    assert_eq!(mvcc.count(&KeyRange::everything(), model.revision), now);
    compare_pages(mvcc, &look.range, at, &want);
    compare_events(mvcc, model, at.next());
}

/// A read in pieces of three gives what the whole gives.
fn compare_pages(
    mvcc: &Mvcc,
    range: &KeyRange,
    at: Revision,
    want: &[ringbolt_proto::mvccpb::KeyValue],
) {
    let mut rest = range.clone();
    let mut got = Vec::new();
    loop {
        let mut page = 0;
        mvcc.visit(&rest, at, &mut |version| {
            page += 1;
            got.push(version.to_kv(Values::Full));
            if page == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if page < 3 || range.end == End::Single {
            break;
        }
        let last = got.last().expect("a page of three");
        rest.start = [last.key.as_ref(), b"\0"].concat().into();
    }
    assert_eq!(got, want);
}

fn compare_events(mvcc: &Mvcc, model: &Model, from: Revision) {
    let want = model.log.iter().filter(|change| change.main() >= from);
    let mut events = mvcc.events(from);
    for change in want {
        let event = events.next().expect("as many events as the model has");
        assert_eq!((event.sub, event.kind), (change.sub.into(), change.kind));
        assert_eq!(event.kv(), change.kv);
        let before = model.state(Revision(event.main.0 - 1));
        let previous = before.get(event.key).filter(|_| !event.is_creation());
        assert_eq!(mvcc.previous(&event).as_ref(), previous);
    }
    assert!(events.next().is_none());
}

fn compare_stored(mvcc: &Mvcc, model: &Model) {
    let stored = model.stored();
    let mut events = mvcc.events(Revision(0));
    for change in stored {
        let event = events.next().expect("as many records as the model has");
        assert_eq!((event.sub, event.kind), (change.sub.into(), change.kind));
        assert_eq!(event.kv(), change.kv);
    }
    assert!(events.next().is_none(), "a record that should be gone");
}

fn compare_hashes(mvcc: &Mvcc, model: &Model) {
    let lowest = (model.compacted.0 - 2).max(-3);
    let near = (lowest..=lowest + 40).chain(model.revision.0 - 20..=model.revision.0 + 2);
    for revision in near.chain(model.remembered.iter().map(|hash| hash.hash_revision)) {
        let want = model.hash_kv(revision);
        assert_eq!(mvcc.hash_kv(revision), want, "hash at {revision}");
        let Ok(mut walk) = mvcc.hash_walk(revision) else { continue };
        let hash = loop {
            if let Some(hash) = mvcc.hash_step(&mut walk, 3).transpose() {
                break hash;
            }
        };
        assert_eq!(hash, want, "hash in steps at {revision}");
    }
}

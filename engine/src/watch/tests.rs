//! A hub against a plain list of events: whatever is written, compacted and pulled in whatever
//! order, a watcher gets exactly the events its spec and start name, in whole revisions.

use std::rc::Rc;

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;
use ringbolt_proto::etcdserverpb::WatchResponse;
use ringbolt_proto::mvccpb::Event;

use super::{Batch, Hub, Pull, Spec, StreamEnd, WatcherKey};
use crate::mvcc::{KeyRange, Kind, Mvcc};
use crate::types::{LeaseId, Revision};

fn spec(start: &str, end: &str) -> Spec {
    let range = KeyRange::from_wire(
        &Bytes::copy_from_slice(start.as_bytes()),
        &Bytes::copy_from_slice(end.as_bytes()),
    );
    Spec { range, no_put: false, no_delete: false, prev_kv: false }
}

fn put(mvcc: &mut Mvcc, keys: &[&str], value: &str) {
    let mut write = mvcc.begin();
    for key in keys {
        write.put(key.as_bytes(), value.as_bytes(), LeaseId(0));
    }
    write.finish();
}

fn decode(batch: &Batch) -> Vec<Event> {
    let head = WatchResponse { watch_id: 5, ..WatchResponse::default() };
    let whole = [&head.encode_to_vec()[..], &batch.encoded(0, batch.ends.len())].concat();
    let response = WatchResponse::decode(&whole[..]).expect("a response parses");
    assert_eq!(response.watch_id, 5);
    assert_eq!(response.events.len(), batch.ends.len());
    response.events
}

fn drain(hub: &mut Hub, mvcc: &Mvcc, end: &StreamEnd) -> Vec<(WatcherKey, Revision, Vec<Event>)> {
    let mut got = Vec::new();
    while let Some(key) = end.next_dirty() {
        match hub.pull(key, mvcc, 1 << 20) {
            Pull::Events { header, batch } => got.push((key, header, decode(&batch))),
            Pull::Nothing => {}
            Pull::Compacted(revision) => panic!("compacted at {revision}"),
        }
        hub.check();
    }
    got
}

/// Live events of one revision come in one batch, with the revision as header; other keys do not
/// wake a watcher.
#[test]
fn live_events_come_once_and_whole() {
    let mut mvcc = Mvcc::new();
    let mut hub = Hub::new(mvcc.revision());
    let end = Rc::new(StreamEnd::default());
    let prefix = hub.create(&end, spec("a/", "a0"), None);
    let exact = hub.create(&end, spec("a/2", ""), None);
    put(&mut mvcc, &["a/1", "a/2", "b"], "v");
    hub.publish(&mvcc);
    let got = drain(&mut hub, &mvcc, &end);
    assert_eq!(got.len(), 2);
    assert_eq!((got[0].0, got[0].1, got[0].2.len()), (prefix, Revision(2), 2));
    assert_eq!((got[1].0, got[1].1, got[1].2.len()), (exact, Revision(2), 1));
    put(&mut mvcc, &["b"], "v");
    hub.publish(&mvcc);
    assert!(!end.has_dirty());
    assert!(hub.is_synced(prefix) && hub.is_synced(exact));
}

/// A watcher with a start in the future is silent, and not in sync, until that revision is there.
#[test]
fn a_future_start_waits() {
    let mut mvcc = Mvcc::new();
    let mut hub = Hub::new(mvcc.revision());
    let end = Rc::new(StreamEnd::default());
    let key = hub.create(&end, spec("k", ""), Some(Revision(4)));
    for round in 0..4 {
        assert_eq!(hub.is_synced(key), round >= 3, "after revision {}", mvcc.revision());
        put(&mut mvcc, &["k"], "v");
        hub.publish(&mvcc);
        let got = drain(&mut hub, &mvcc, &end);
        assert_eq!(got.len(), usize::from(round >= 2), "revision {}", mvcc.revision());
    }
}

/// V5: history that was compacted away before a watcher got there ends it with the revision.
#[test]
fn a_watcher_behind_a_compaction_is_told() {
    let mut mvcc = Mvcc::new();
    for _ in 0..5 {
        put(&mut mvcc, &["k"], "v");
    }
    mvcc.compact(Revision(4)).expect("4 of 6 can be compacted");
    let mut hub = Hub::new(mvcc.revision());
    let end = Rc::new(StreamEnd::default());
    let at = hub.create(&end, spec("k", ""), Some(Revision(4)));
    let below = hub.create(&end, spec("k", ""), Some(Revision(3)));
    assert_eq!(end.next_dirty(), Some(at));
    let Pull::Events { batch, .. } = hub.pull(at, &mvcc, 1 << 20) else { panic!("no events") };
    assert_eq!(batch.ends.len(), 3);
    assert_eq!(end.next_dirty(), Some(below));
    assert_eq!(hub.pull(below, &mvcc, 1 << 20), Pull::Compacted(Revision(4)));
    assert_eq!(hub.watchers_count(), 1);
}

/// A range delete of 100 000 keys is one revision: each event is copied once, not once for every
/// event before it.
#[test]
fn a_revision_of_many_events_is_joined_once() {
    const KEYS: usize = 100_000;
    let mut mvcc = Mvcc::new();
    let names: Vec<String> = (0..KEYS).map(|number| format!("k/{number:06}")).collect();
    put(&mut mvcc, &names.iter().map(String::as_str).collect::<Vec<_>>(), "v");
    let mut hub = Hub::new(mvcc.revision());
    let end = Rc::new(StreamEnd::default());
    let key = hub.create(&end, spec("k/", "k0"), None);
    let mut write = mvcc.begin();
    for name in &names {
        write.delete(name.as_bytes());
    }
    write.finish();
    hub.publish(&mvcc);
    hub.check();
    let Pull::Events { batch, .. } = hub.pull(key, &mvcc, 1 << 10) else { panic!("no events") };
    assert_eq!(batch.ends.len(), KEYS);
    assert_eq!(batch.ends.last().map(|end| *end as usize), Some(batch.events.len()));
    let keys = decode(&batch).into_iter().map(|event| event.kv.expect("a key").key);
    assert!(keys.eq(names.iter().map(|name| name.as_bytes())));
}

/// A client with many watchers of one range goes: each leaves its group and its stream without a
/// search among the others.
#[test]
fn many_watchers_of_a_range_leave_at_once() {
    const WATCHERS: usize = 50_000;
    let mut mvcc = Mvcc::new();
    let mut hub = Hub::new(mvcc.revision());
    let end = Rc::new(StreamEnd::default());
    let keys: Vec<_> = (0..WATCHERS).map(|_| hub.create(&end, spec("k", ""), None)).collect();
    put(&mut mvcc, &["k"], "v");
    hub.publish(&mvcc);
    assert_eq!(hub.dirty_count(), WATCHERS);
    end.clear();
    for key in &keys[..WATCHERS - 1] {
        hub.cancel(*key);
    }
    hub.check();
    assert_eq!((hub.watchers_count(), end.has_dirty()), (1, false));
}

/// A ring that overflows sends its watcher to the revision log and back without a gap.
#[test]
fn an_overflowing_ring_loses_nothing() {
    let mut mvcc = Mvcc::new();
    let mut hub = Hub::new(mvcc.revision());
    let end = Rc::new(StreamEnd::default());
    hub.create(&end, spec("k", ""), None);
    for _ in 0..5000 {
        put(&mut mvcc, &["k"], "v");
        hub.publish(&mvcc);
    }
    hub.check();
    let revisions: Vec<i64> = drain(&mut hub, &mvcc, &end)
        .into_iter()
        .flat_map(|(_, _, events)| events)
        .map(|event| event.kv.expect("an event has a key").mod_revision)
        .collect();
    assert_eq!(revisions, (2..=5001).collect::<Vec<i64>>());
}

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>),
    Delete(u8),
    Create { shape: u8, start: u8, filter: u8, prev_kv: bool },
    Publish,
    Pull(u8),
    Cancel(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => prop::collection::vec(0u8..6, 1..4).prop_map(Step::Put),
        2 => (0u8..6).prop_map(Step::Delete),
        2 => (0u8..5, 0u8..40, 0u8..3, any::<bool>()).prop_map(|(shape, start, filter, prev_kv)| {
            Step::Create { shape, start, filter, prev_kv }
        }),
        4 => Just(Step::Publish),
        4 => (0u8..4).prop_map(Step::Pull),
        1 => any::<u8>().prop_map(Step::Cancel),
    ];
    prop::collection::vec(step, 1..120)
}

fn key_name(number: u8) -> String {
    format!("k/{number}")
}

struct Expected {
    key: WatcherKey,
    spec: Spec,
    from: Revision,
    got: Vec<Event>,
}

impl Expected {
    /// Everything this watcher should have by now.
    fn all(&self, mvcc: &Mvcc) -> Vec<Event> {
        mvcc.events(self.from)
            .filter(|event| self.spec.range.contains(event.key))
            .filter(|event| match event.kind {
                Kind::Put => !self.spec.no_put,
                Kind::Delete => !self.spec.no_delete,
            })
            .map(|event| Event {
                r#type: i32::from(event.kind == Kind::Delete),
                kv: Some(event.kv()),
                prev_kv: if self.spec.prev_kv { mvcc.previous(&event) } else { None },
            })
            .collect()
    }
}

fn take(hub: &mut Hub, mvcc: &Mvcc, end: &StreamEnd, watchers: &mut [Expected]) -> bool {
    let Some(key) = end.next_dirty() else { return false };
    if let Pull::Events { batch, .. } = hub.pull(key, mvcc, 64) {
        let events = decode(&batch);
        let watcher = watchers.iter_mut().find(|watcher| watcher.key == key);
        watcher.expect("only live watchers are pulled").got.extend(events);
    }
    hub.check();
    true
}

fn create(hub: &mut Hub, end: &Rc<StreamEnd>, step: &Step) -> Option<Expected> {
    let Step::Create { shape, start, filter, prev_kv } = step else { return None };
    let (from, to) =
        [("k/1", ""), ("k/", "k0"), ("k/2", "k/5"), ("\0", "\0"), ("k/3", "\0")][*shape as usize];
    let spec =
        Spec { no_put: *filter == 1, no_delete: *filter == 2, prev_kv: *prev_kv, ..spec(from, to) };
    let start = (*start > 0).then_some(Revision(i64::from(*start)));
    let from = start.unwrap_or_else(|| hub.published().next());
    Some(Expected { key: hub.create(end, spec.clone(), start), spec, from, got: Vec::new() })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// V1 to V4 under any mix of writes, creates, publishes, pulls and cancels.
    #[test]
    fn watchers_get_exactly_their_events(steps in steps()) {
        let mut mvcc = Mvcc::new();
        let mut hub = Hub::new(mvcc.revision());
        let end = Rc::new(StreamEnd::default());
        let mut watchers: Vec<Expected> = Vec::new();
        for step in steps {
            match &step {
                Step::Put(keys) => {
                    let names: Vec<String> = keys.iter().map(|key| key_name(*key)).collect();
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    put(&mut mvcc, &names, "v");
                    hub.publish(&mvcc);
                }
                Step::Delete(key) => {
                    let mut write = mvcc.begin();
                    write.delete(key_name(*key).as_bytes());
                    write.finish();
                }
                Step::Create { .. } => watchers.extend(create(&mut hub, &end, &step)),
                Step::Publish => hub.publish(&mvcc),
                Step::Pull(times) => {
                    for _ in 0..*times {
                        take(&mut hub, &mvcc, &end, &mut watchers);
                    }
                }
                Step::Cancel(place) if !watchers.is_empty() => {
                    let watcher = watchers.remove(*place as usize % watchers.len());
                    hub.cancel(watcher.key);
                }
                Step::Cancel(_) => {}
            }
            hub.check();
        }
        hub.publish(&mvcc);
        while take(&mut hub, &mvcc, &end, &mut watchers) {}
        for watcher in &watchers {
            prop_assert_eq!(&watcher.got, &watcher.all(&mvcc));
        }
    }
}

//! What the store must look like: every version of every key, by revision, and what a request does
//! to the state at one revision.
//!
//! It shares no code with the engine. It forgets nothing: compaction is a matter of what a reader
//! may ask, not of what the model knows.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use ringbolt_proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use ringbolt_proto::etcdserverpb::{RangeRequest, RangeResponse, ResponseHeader};
use ringbolt_proto::mvccpb::event::EventType;
use ringbolt_proto::mvccpb::{Event, KeyValue};

/// Every version of every key of one keyspace.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Versions of each key, oldest first; `None` is a deletion.
    keys: BTreeMap<Bytes, Vec<(i64, Option<KeyValue>)>>,
    /// Events by main revision.
    log: BTreeMap<i64, Vec<Event>>,
    revision: i64,
}

/// Whether `key` lies in a range as requests write it.
#[must_use]
pub fn contains(start: &[u8], range_end: &[u8], key: &[u8]) -> bool {
    match range_end {
        [] => key == start,
        [0] => key >= start,
        end => key >= start && key < end,
    }
}

impl Model {
    /// A fresh store: revision 1, no keys.
    #[must_use]
    pub fn new() -> Model {
        Model { revision: 1, ..Model::default() }
    }

    /// The last revision.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Adds the events of the next revision, after checking that they fit what was there before.
    ///
    /// # Errors
    /// What does not fit.
    pub fn push(&mut self, revision: i64, events: Vec<Event>) -> Result<(), String> {
        if revision != self.revision + 1 {
            return Err(format!("revision {revision} follows {}", self.revision));
        }
        if events.is_empty() {
            return Err(format!("revision {revision} has no events"));
        }
        for event in &events {
            self.check_event(revision, event)?;
            let kv = event.kv.clone().unwrap_or_default();
            let kept = (event.r#type() == EventType::Put).then(|| kv.clone());
            self.keys.entry(kv.key).or_default().push((revision, kept));
        }
        self.log.insert(revision, events);
        self.revision = revision;
        Ok(())
    }

    fn check_event(&self, revision: i64, event: &Event) -> Result<(), String> {
        let kv = event.kv.as_ref().ok_or("an event without a key-value")?;
        let versions = self.keys.get(&kv.key).map(Vec::as_slice).unwrap_or_default();
        let before = versions.last().and_then(|(_, kv)| kv.as_ref());
        let good = match (event.r#type(), before) {
            (EventType::Put, None) => kv.create_revision == revision && kv.version == 1,
            (EventType::Put, Some(old)) => {
                kv.create_revision == old.create_revision && kv.version == old.version + 1
            }
            (EventType::Delete, Some(_)) => {
                let bare =
                    KeyValue { key: kv.key.clone(), mod_revision: revision, ..KeyValue::default() };
                *kv == bare
            }
            (EventType::Delete, None) => false,
        };
        if good && kv.mod_revision == revision {
            return Ok(());
        }
        Err(format!("event {event:?} at revision {revision} does not follow {before:?}"))
    }

    /// Goes back to an earlier revision: what came after never happened.
    pub fn truncate(&mut self, revision: i64) {
        assert!(revision <= self.revision, "{revision} is ahead of {}", self.revision);
        self.log.split_off(&(revision + 1));
        for versions in self.keys.values_mut() {
            versions.retain(|(main, _)| *main <= revision);
        }
        self.keys.retain(|_, versions| !versions.is_empty());
        self.revision = revision;
    }

    /// The revision jumps ahead without any change.
    pub fn jump(&mut self, revision: i64) {
        assert!(revision >= self.revision, "a fence to {revision} behind {}", self.revision);
        self.revision = revision;
    }

    /// A key at a revision.
    #[must_use]
    pub fn get(&self, key: &[u8], at: i64) -> Option<&KeyValue> {
        version_at(self.keys.get(key)?, at)
    }

    /// Live keys of a range at a revision, in key order.
    #[must_use]
    pub fn range(&self, start: &[u8], range_end: &[u8], at: i64) -> Vec<KeyValue> {
        let from = self.keys.range::<[u8], _>((Bound::Included(start), Bound::Unbounded));
        let keys = from.take_while(|(key, _)| contains(start, range_end, key));
        keys.filter_map(|(_, versions)| version_at(versions, at)).cloned().collect()
    }

    /// Live keys of a lease at a revision, in key order.
    #[must_use]
    pub fn leased(&self, lease: i64, at: i64) -> Vec<KeyValue> {
        let live = self.keys.values().filter_map(|versions| version_at(versions, at));
        live.filter(|kv| kv.lease == lease).cloned().collect()
    }

    /// The whole state at a revision.
    #[must_use]
    pub fn state(&self, at: i64) -> Vec<KeyValue> {
        self.range(&[0], &[0], at)
    }

    /// The events of a revision.
    #[must_use]
    pub fn events(&self, revision: i64) -> &[Event] {
        self.log.get(&revision).map(Vec::as_slice).unwrap_or_default()
    }

    /// Revisions from `from` on that hold events.
    pub fn log(&self, from: i64) -> impl Iterator<Item = (i64, &[Event])> {
        self.log.range(from..).map(|(revision, events)| (*revision, events.as_slice()))
    }

    /// The answer to a range request by a store that stands at revision `at`.
    #[must_use]
    pub fn answer_range(&self, request: &RangeRequest, at: i64) -> RangeResponse {
        let read_at = if request.revision > 0 { request.revision } else { at };
        let kvs = self.range(&request.key, &request.range_end, read_at);
        page(kvs, request, at)
    }
}

fn version_at(versions: &[(i64, Option<KeyValue>)], at: i64) -> Option<&KeyValue> {
    let count = versions.partition_point(|(main, _)| *main <= at);
    versions[..count].last()?.1.as_ref()
}

/// Cuts, sorts and strips the keys of a range as the request wants them.
pub(super) fn page(kvs: Vec<KeyValue>, request: &RangeRequest, header: i64) -> RangeResponse {
    let count = i64::try_from(kvs.len()).expect("few keys");
    let header = Some(ResponseHeader { revision: header, ..ResponseHeader::default() });
    if request.count_only {
        return RangeResponse { header, count, ..RangeResponse::default() };
    }
    let within =
        |value: i64, min: i64, max: i64| (min == 0 || value >= min) && (max == 0 || value <= max);
    let mut kvs = kvs;
    kvs.retain(|kv| {
        within(kv.mod_revision, request.min_mod_revision, request.max_mod_revision)
            && within(kv.create_revision, request.min_create_revision, request.max_create_revision)
    });
    if request.sort_target() == SortTarget::Value {
        kvs.sort_by(|one, two| one.value.cmp(&two.value));
    }
    if request.sort_order() == SortOrder::Descend {
        kvs.reverse();
    }
    let limit = usize::try_from(request.limit).unwrap_or(0);
    let more = limit > 0 && kvs.len() > limit;
    if more {
        kvs.truncate(limit);
    }
    if request.keys_only {
        kvs.iter_mut().for_each(strip);
    }
    RangeResponse { header, kvs, more, count }
}

/// What a keys-only read shows. The lease is left out of comparisons: releases differ in it.
pub(super) fn strip(kv: &mut KeyValue) {
    kv.value = Bytes::new();
    kv.lease = 0;
}

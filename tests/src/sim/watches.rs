//! The validator of watchers: order, uniqueness, completeness, atomicity, no gap on resume, right
//! previous values, true progress, cancellation only by compaction.
//!
//! One comparison does most of it: what a batch holds must be exactly the model's events that match
//! the watcher, from the first revision it has not been given up to the last in the batch.

use ringbolt_proto::mvccpb::Event;
use ringbolt_proto::mvccpb::event::EventType;

use super::model::{Model, contains};
use super::store::{Message, WatchSpec};

/// One watcher of a client, over all its resumptions.
#[derive(Clone, Debug)]
pub struct WatchLog {
    /// What it wants.
    pub spec: WatchSpec,
    /// The first revision it has not been given; `None` before its first creation was answered.
    pub next: Option<i64>,
    /// How many events it was given.
    pub events_count: u64,
}

impl WatchLog {
    /// A watcher that begins at `start`, or with the present.
    #[must_use]
    pub fn new(spec: WatchSpec, start: Option<i64>) -> WatchLog {
        WatchLog { spec, next: start, events_count: 0 }
    }

    /// Its creation was answered with a header of `revision`, asked for when `floor` was known.
    ///
    /// # Errors
    /// What cannot be.
    pub fn created(&mut self, revision: i64, floor: i64, model: &Model) -> Result<(), String> {
        if revision < floor || revision > model.revision() {
            let now = model.revision();
            return Err(format!("created at revision {revision}, not in {floor}..={now}"));
        }
        self.next = Some(self.next.unwrap_or(revision + 1));
        Ok(())
    }

    /// It was told something.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn told(&mut self, message: &Message, model: &Model, compacted: i64) -> Result<(), String> {
        let next = self.next.ok_or("a message before the creation was answered")?;
        match message {
            Message::Events { header, events } => {
                let last = events.last().map_or(0, revision_of);
                if last < next {
                    return Err(format!("{events:?} again: {next} is the next revision"));
                }
                if *header < last || *header > model.revision() {
                    return Err(format!("a header of {header} over events up to {last}"));
                }
                self.compare(events, (next, last), model, compacted)?;
                self.next = Some(last + 1);
                self.events_count += events.len() as u64;
            }
            Message::Progress(revision) => {
                if *revision > model.revision() {
                    return Err(format!("progress to {revision}, which nobody has seen"));
                }
                self.compare(&[], (next, *revision), model, compacted)?;
                self.next = Some(next.max(revision + 1));
            }
            Message::Compacted(at) => {
                if *at > compacted || next >= *at {
                    return Err(format!(
                        "cancelled at {at}, waiting for {next}, compacted is {compacted}"
                    ));
                }
                self.next = None;
            }
        }
        Ok(())
    }

    /// Everything was shown and the watcher is idle: it was told so, by an event or by progress.
    ///
    /// # Errors
    /// What it was never given.
    pub fn finished(&self, model: &Model) -> Result<(), String> {
        match self.next {
            Some(next) if next <= model.revision() => {
                self.compare(&[], (next, model.revision()), model, i64::MAX)?;
                Err(format!("silent since {next}, and {} was shown", model.revision()))
            }
            _ => Ok(()),
        }
    }

    fn compare(
        &self,
        got: &[Event],
        (from, to): (i64, i64),
        model: &Model,
        compacted: i64,
    ) -> Result<(), String> {
        let due = model.log(from).take_while(|(revision, _)| *revision <= to);
        let due = due.flat_map(|(_, events)| events).filter(|event| self.wants(event));
        let mut got = got.iter();
        for event in due {
            let Some(shown) = got.next() else {
                return Err(format!("{event:?} is missing, {from}..={to}"));
            };
            let same = shown.r#type == event.r#type && shown.kv == event.kv;
            if !same {
                return Err(format!("{shown:?} instead of {event:?}, {from}..={to}"));
            }
            self.check_previous(shown, model, compacted)?;
        }
        match got.next() {
            Some(extra) => Err(format!("{extra:?} is one too many, {from}..={to}")),
            None => Ok(()),
        }
    }

    fn check_previous(&self, event: &Event, model: &Model, compacted: i64) -> Result<(), String> {
        let kv = event.kv.as_ref().ok_or("an event without a key-value")?;
        let before = model.get(&kv.key, kv.mod_revision - 1);
        let creation = kv.create_revision == kv.mod_revision;
        let due = before.filter(|_| self.spec.prev_kv && !creation);
        let gone = kv.mod_revision - 1 < compacted && event.prev_kv.is_none();
        if event.prev_kv.as_ref() == due || gone {
            return Ok(());
        }
        Err(format!("previous value {:?} instead of {due:?} in {event:?}", event.prev_kv))
    }

    fn wants(&self, event: &Event) -> bool {
        let kept = match event.r#type() {
            EventType::Put => !self.spec.no_put,
            EventType::Delete => !self.spec.no_delete,
        };
        let key = event.kv.as_ref().map(|kv| kv.key.clone()).unwrap_or_default();
        kept && contains(&self.spec.key, &self.spec.range_end, &key)
    }
}

fn revision_of(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}

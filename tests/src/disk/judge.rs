//! Compares what the store shows with what clients were told. D1 to D4 stand at the module's head.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ringbolt_proto::etcdserverpb::{RangeRequest, RangeResponse};

use super::load::{Doors, History, history};
use super::record::{Change, Known, PREFIX, PREFIX_END, Record, Told, change_of};

/// How long the store may take to show everything.
const SHOW_TIME: Duration = Duration::from_secs(20);

/// What must be true of revisions after a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// They are fenced: a tail may be missing.
    Must,
    /// They are not: nothing is missing.
    MustNot,
    /// The cut came while the server started: either, each with what belongs to it.
    May,
}

/// What was found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Changes that somebody was told of and that are gone, as the mode allows.
    pub lost: usize,
    /// How long before the cut the oldest of them was told.
    pub lost_age: Duration,
    /// Changes that were compared.
    pub compared: usize,
}

/// The facts of one comparison.
struct Facts<'a> {
    record: &'a Record,
    base: &'a Known,
    told: &'a [Told],
    now: &'a Known,
}

/// Compares, and gives what is there now. `flushed` is when the last flush that ended had begun,
/// `cut` when the power went.
///
/// # Errors
/// What is wrong.
pub fn judge(
    doors: &Doors,
    record: &Record,
    base: &Known,
    fence: Fence,
    times: (Option<Instant>, Instant),
) -> Result<(Known, Found), String> {
    let told = record.take_told();
    let now = show(doors)?;
    let highest = record.highest();
    if now.revision < highest {
        return Err(format!("D1: the revision is {}, {highest} was seen", now.revision));
    }
    let facts = Facts { record, base, told: &told, now: &now };
    let (changes, compacted) = changes(doors, base.revision + 1, now.revision)?;
    let fenced = compacted == now.revision && now.revision > highest;
    let found = match fence {
        Fence::Must if !fenced => {
            let revision = now.revision;
            return Err(format!(
                "D3: not fenced: revision {revision}, compacted {compacted}, seen {highest}"
            ));
        }
        Fence::May | Fence::Must if fenced => facts.a_tail_is_lost(times)?,
        _ => facts.nothing_is_lost(&changes, compacted)?,
    };
    record.observe(0, now.revision);
    record.settle();
    Ok((now, found))
}

/// Every key there is.
fn show(doors: &Doors) -> Result<Known, String> {
    let request = RangeRequest {
        key: PREFIX.into(),
        range_end: PREFIX_END.into(),
        ..RangeRequest::default()
    };
    let mut client = doors.connect(true)?;
    let response: RangeResponse = client.ask("etcdserverpb.KV/Range", &request, SHOW_TIME)?;
    let revision = response.header.ok_or("no header")?.revision;
    let mut keys = BTreeMap::new();
    for pair in &response.kvs {
        let change = change_of(pair, false)?;
        keys.insert(change.key, (change.revision, change.tag.unwrap_or_default()));
    }
    Ok(Known { revision, keys })
}

/// The changes from a revision on that are not compacted, and what is compacted.
fn changes(doors: &Doors, from: i64, to: i64) -> Result<(Vec<Change>, i64), String> {
    let mut compacted = 0;
    let mut from = from;
    while from <= to {
        match history(doors, from, to, SHOW_TIME)? {
            History::Whole(changes) => return Ok((changes, compacted)),
            History::Compacted(at) if at >= from => (compacted, from) = (at, at + 1),
            History::Compacted(at) => return Err(format!("{from} is refused, {at} is compacted")),
        }
    }
    Ok((Vec::new(), compacted))
}

impl Facts<'_> {
    /// D2 and D4.
    fn nothing_is_lost(&self, changes: &[Change], compacted: i64) -> Result<Found, String> {
        if compacted > self.record.compacted() {
            let asked = self.record.compacted();
            return Err(format!("D2: compacted up to {compacted}, {asked} was asked for"));
        }
        let mut last = self.base.revision.max(compacted);
        let mut at: BTreeMap<(i64, &str), &Change> = BTreeMap::new();
        for change in changes {
            if change.revision != last && change.revision != last + 1 {
                return Err(format!("D2: the history goes from {last} to {}", change.revision));
            }
            last = change.revision;
            at.insert((last, &change.key), change);
            self.was_asked_for(change)?;
        }
        if last != self.now.revision {
            return Err(format!("D2: the history ends at {last} of {}", self.now.revision));
        }
        for told in self.told {
            let change = &told.change;
            if change.revision <= compacted.max(self.base.revision) {
                continue;
            }
            let is = at.get(&(change.revision, &change.key[..])).copied();
            if is != Some(change) {
                return Err(format!("D2: {} told {change:?}; the history has {is:?}", told.by));
            }
        }
        self.state_at(self.now.revision)?;
        if compacted <= self.base.revision {
            self.replayed(changes)?;
        }
        let compared = self.told.len() + changes.len();
        Ok(Found { compared, ..Found::default() })
    }

    /// The keys are exactly those of before and every change since.
    fn replayed(&self, changes: &[Change]) -> Result<(), String> {
        let mut keys = self.base.keys.clone();
        for change in changes {
            match &change.tag {
                Some(tag) => {
                    keys.insert(change.key.clone(), (change.revision, tag.clone()));
                }
                None => {
                    keys.remove(&change.key);
                }
            }
        }
        if keys == self.now.keys {
            return Ok(());
        }
        let differs = |key: &&String| keys.get(*key) != self.now.keys.get(*key);
        let key = keys.keys().chain(self.now.keys.keys()).find(differs);
        let key = key.cloned().unwrap_or_default();
        let (of, is) = (keys.get(&key), self.now.keys.get(&key));
        Err(format!("D2: {key} is {is:?}, the history makes it {of:?}"))
    }

    /// D3 and D4.
    fn a_tail_is_lost(&self, times: (Option<Instant>, Instant)) -> Result<Found, String> {
        let (flushed, cut) = times;
        let durable = self.told.iter().filter(|told| flushed.is_some_and(|at| told.at < at));
        let durable = durable.map(|told| told.change.revision).max().unwrap_or(0);
        let shown = self.now.keys.values().map(|(revision, _)| *revision).max().unwrap_or(0);
        let mut end = self.base.revision.max(durable).max(shown);
        // A key that is gone may tell of a later revision: the one that deleted it.
        while let Some(later) = self.deleted_later(end) {
            end = later;
        }
        self.state_at(end)?;
        let lost = self.told.iter().filter(|told| told.change.revision > end);
        let ages = lost.clone().map(|told| cut.saturating_duration_since(told.at));
        let compared = self.told.len();
        let lost_age = ages.max().unwrap_or_default();
        Ok(Found { lost: lost.count(), lost_age, compared })
    }

    fn deleted_later(&self, end: i64) -> Option<i64> {
        let gone = |key: &str| !self.now.keys.contains_key(key);
        let was_put = self.last_facts(end);
        let was_put = |key: &str| was_put.get(key).is_some_and(|(_, tag)| tag.is_some());
        let deletes = self.told.iter().map(|told| &told.change).filter(|change| {
            change.tag.is_none()
                && change.revision > end
                && gone(&change.key)
                && was_put(&change.key)
        });
        deletes.map(|change| change.revision).min()
    }

    /// What is known of each key at a revision.
    fn last_facts(&self, end: i64) -> BTreeMap<&str, (i64, Option<&str>)> {
        let mut facts: BTreeMap<&str, (i64, Option<&str>)> = BTreeMap::new();
        for (key, (revision, tag)) in &self.base.keys {
            facts.insert(key, (*revision, Some(tag)));
        }
        for Told { change, .. } in self.told.iter().filter(|told| told.change.revision <= end) {
            let fact = facts.entry(&change.key).or_insert((0, None));
            if change.revision >= fact.0 {
                *fact = (change.revision, change.tag.as_deref());
            }
        }
        facts
    }

    /// The keys are those of one revision: nothing told up to it is missing, and whatever else is
    /// there was asked for.
    fn state_at(&self, end: i64) -> Result<(), String> {
        let facts = self.last_facts(end);
        for (key, (revision, tag)) in &facts {
            let is = self.now.keys.get(*key);
            let holds = match (is, tag) {
                (Some((at, is)), Some(tag)) if at == revision => is == tag,
                (Some((at, _)), _) => at > revision,
                (None, Some(_)) => self.record.may_delete(key),
                (None, None) => true,
            };
            if !holds {
                return Err(format!(
                    "at revision {end} {key} is {is:?}; told was {tag:?} at {revision}"
                ));
            }
        }
        for (key, (revision, tag)) in &self.now.keys {
            let old = self.base.keys.get(key) == Some(&(*revision, tag.clone()));
            if !old && !self.record.was_sent(key, tag) {
                return Err(format!("D4: {key} is {tag:?}, which nobody put there"));
            }
        }
        Ok(())
    }

    fn was_asked_for(&self, change: &Change) -> Result<(), String> {
        let asked = match &change.tag {
            Some(tag) => self.record.was_sent(&change.key, tag),
            None => self.record.may_delete(&change.key),
        };
        if asked { Ok(()) } else { Err(format!("D4: nobody asked for {change:?}")) }
    }
}

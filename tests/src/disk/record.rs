//! What clients asked for, what they were told, and when.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use ringbolt_proto::mvccpb::KeyValue;

/// Before every key.
pub const PREFIX: &str = "cut/";
/// Just behind the last key.
pub const PREFIX_END: &str = "cut0";

/// A change of one key: what it became, `None` if it was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The revision it has.
    pub revision: i64,
    /// The key.
    pub key: String,
    /// The tag of its value.
    pub tag: Option<String>,
}

/// A change somebody was told of.
#[derive(Clone, Debug)]
pub struct Told {
    /// Which.
    pub change: Change,
    /// When.
    pub at: Instant,
    /// By whom: an answer, a watch, a read.
    pub by: &'static str,
}

/// What the store held when it was last compared.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Its revision.
    pub revision: i64,
    /// Key to mod revision and tag.
    pub keys: BTreeMap<String, (i64, String)>,
}

/// Everything of one disk since the store was last compared. Shared by all clients.
#[derive(Default)]
pub struct Record {
    highest: AtomicI64,
    compacted: AtomicI64,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    told: Vec<Told>,
    /// Tags that were sent, and the key each is for. They stay for ever.
    sent: HashMap<String, String>,
    /// Keys somebody asked to delete.
    deletes: HashSet<String>,
    failure: Option<String>,
}

impl Record {
    fn inside(&self) -> std::sync::MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A value is about to be put.
    pub fn puts(&self, key: &str, tag: &str) {
        self.inside().sent.insert(tag.to_owned(), key.to_owned());
    }

    /// A key is about to be deleted.
    pub fn deletes(&self, key: &str) {
        self.inside().deletes.insert(key.to_owned());
    }

    /// Whether a key may be gone by somebody's wish.
    pub fn may_delete(&self, key: &str) -> bool {
        self.inside().deletes.contains(key)
    }

    /// Whether this tag was sent for this key.
    pub fn was_sent(&self, key: &str, tag: &str) -> bool {
        self.inside().sent.get(tag).is_some_and(|of| of == key)
    }

    /// Somebody was told of changes.
    pub fn tell(&self, by: &'static str, changes: impl IntoIterator<Item = Change>) {
        let at = Instant::now();
        let told = changes.into_iter().map(|change| Told { change, at, by });
        self.inside().told.extend(told);
    }

    /// Something is wrong; the first failure stays.
    pub fn fail(&self, failure: String) {
        self.inside().failure.get_or_insert(failure);
    }

    /// What went wrong.
    pub fn failure(&self) -> Option<String> {
        self.inside().failure.clone()
    }

    /// The highest revision anybody saw.
    pub fn highest(&self) -> i64 {
        self.highest.load(Ordering::SeqCst)
    }

    /// An answer showed a revision. It may not lie below what was seen before the call was made.
    pub fn observe(&self, before: i64, revision: i64) {
        if revision < before {
            self.fail(format!("an answer at revision {revision} after one at {before}"));
        }
        self.highest.fetch_max(revision, Ordering::SeqCst);
    }

    /// The revision up to which somebody asked to compact.
    pub fn compacted(&self) -> i64 {
        self.compacted.load(Ordering::SeqCst)
    }

    /// A compaction is about to be asked for.
    pub fn compacts(&self, revision: i64) {
        self.compacted.fetch_max(revision, Ordering::SeqCst);
    }

    /// What was told since the last time.
    pub fn take_told(&self) -> Vec<Told> {
        std::mem::take(&mut self.inside().told)
    }

    /// The store was compared: what was asked to be deleted has happened or has not.
    pub fn settle(&self) {
        self.inside().deletes.clear();
    }
}

/// The value of a tag: the tag, and bytes that only it decides.
#[must_use]
pub fn value_of(tag: &str, size: usize) -> Vec<u8> {
    let mut value = format!("{tag} {size} ").into_bytes();
    let mut number = u64::from(crc_of(tag));
    while value.len() < size {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        value.extend(&number.to_le_bytes()[4..]);
    }
    value
}

fn crc_of(tag: &str) -> u32 {
    tag.bytes().fold(17, |sum: u32, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)))
}

/// The tag of a value.
///
/// # Errors
/// Nobody wrote such a value.
pub fn tag_of(value: &[u8]) -> Result<String, String> {
    let wrong = || format!("a value nobody wrote: {:?}", &value[..value.len().min(40)]);
    let mut parts = value.splitn(3, |byte| *byte == b' ');
    let (tag, size) = (parts.next().ok_or_else(wrong)?, parts.next().ok_or_else(wrong)?);
    let tag = String::from_utf8(tag.to_vec()).map_err(|_| wrong())?;
    let size = std::str::from_utf8(size).ok().and_then(|size| size.parse().ok());
    if value_of(&tag, size.ok_or_else(wrong)?) == value { Ok(tag) } else { Err(wrong()) }
}

/// A key and its value as a change.
///
/// # Errors
/// Nobody wrote such a value.
pub fn change_of(pair: &KeyValue, deleted: bool) -> Result<Change, String> {
    let key = String::from_utf8_lossy(&pair.key).into_owned();
    let tag = if deleted { None } else { Some(tag_of(&pair.value)?) };
    Ok(Change { revision: pair.mod_revision, key, tag })
}

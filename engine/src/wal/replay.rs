//! From the batches of a log to its content: hard state, entries, checkpoint.

use std::path::PathBuf;

use crate::corruption::Corruption;
use crate::limits::FILE_NAME_BYTES_MAX;
use crate::types::{RaftIndex, Term};
use crate::wal::format::{Decoded, Record};
use crate::wal::scan::{Scan, Walk};
use crate::wal::types::{Checkpoint, Entry, HardState, Identity, OpenError};

/// What a log holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub hard_state: HardState,
    pub entries: Vec<Entry>,
    pub checkpoint: Option<Checkpoint>,
    /// First index, file and offset of each batch with entries.
    pub places: Vec<(RaftIndex, PathBuf, u64)>,
}

/// What the owner of a log says of an entry, and whose log it is.
pub(super) type Check = (Identity, fn(Identity, &Entry) -> Result<(), String>);

impl Decoded {
    /// The indexes of its entries, in order.
    pub(super) fn indexes(&self) -> impl Iterator<Item = u64> + '_ {
        self.records.iter().filter_map(|record| match record {
            Record::Entry(entry) => Some(entry.index.0),
            _ => None,
        })
    }
}

/// Replays the accepted batches in order.
///
/// # Errors
/// `Corrupt` when an entry does not follow from what came before it: its batch is intact, so it was
/// written so.
pub(super) fn replay(
    scans: &[Scan],
    walk: &Walk,
    (identity, check): Check,
) -> Result<Content, OpenError> {
    let mut content = Content::default();
    for (scan, accepted) in scans.iter().zip(&walk.accepted) {
        for (offset, batch) in scan.batches.iter().take(*accepted) {
            content.hard_state = batch.header.hard_state;
            if let Some(first) = batch.indexes().next() {
                content.places.push((RaftIndex(first), scan.path.clone(), *offset));
            }
            for record in &batch.records {
                let taken = match record {
                    Record::Entry(entry) => check(identity, entry)
                        .map_err(|found| {
                            let index = entry.index.0;
                            ("an entry of this member".into(), format!("entry {index}: {found}"))
                        })
                        .and_then(|()| content.take_entry(entry)),
                    Record::Checkpoint(checkpoint) => content.take_checkpoint(checkpoint),
                    Record::Start(_) => Ok(()),
                };
                taken.map_err(|(expected, found)| {
                    Corruption::new(&scan.path, *offset, expected, found)
                })?;
            }
        }
    }
    let named = content.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.index.0);
    if let Some(first) = content.entries.first().filter(|first| first.index.0 > named + 1) {
        let expected = format!("entry {} or one before it", named + 1);
        let found = format!("entry {}", first.index.0);
        return Err(Corruption::new(&walk.stop.file, 0, expected, found).into());
    }
    let term = content.checkpoint.as_ref().map_or(Term(0), |checkpoint| checkpoint.term);
    let above = content.entries.iter().find(|entry| entry.index.0 > named);
    if let Some(first) = above.filter(|first| first.term < term) {
        let expected = format!("an entry of term {} or later", term.0);
        let found = format!("entry {} of term {}", first.index.0, first.term.0);
        return Err(Corruption::new(&walk.stop.file, 0, expected, found).into());
    }
    let last = content.entries.last().map(|entry| entry.index);
    let named = content.checkpoint.as_ref().map(|checkpoint| checkpoint.index);
    let last = last.max(named).unwrap_or_default();
    content.hard_state.commit = content.hard_state.commit.min(last);
    Ok(content)
}

impl Content {
    /// An entry replaces everything at its index and above.
    fn take_entry(&mut self, entry: &Entry) -> Result<(), (String, String)> {
        if let Some(first) = self.entries.first() {
            let kept = entry.index.0.saturating_sub(first.index.0);
            self.entries.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
        }
        if let Some(last) = self.entries.last().filter(|last| entry.index != last.index.next()) {
            let found = format!("entry {}", entry.index.0);
            return Err((format!("entry {}", last.index.0 + 1), found));
        }
        let before = self.entries.last().map_or(Term(0), |last| last.term);
        if entry.term < before || entry.index.0 == 0 {
            let found = format!("entry {} of term {}", entry.index.0, entry.term.0);
            return Err((format!("an entry of term {} or later", before.0), found));
        }
        self.entries.push(entry.clone());
        Ok(())
    }

    /// A checkpoint beyond the last entry, or of another history, leaves no entry standing.
    fn take_checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), (String, String)> {
        let name = &checkpoint.file;
        let is_file = !name.contains(['/', '\0']) && !["", ".", ".."].contains(&name.as_str());
        if !is_file || name.len() > FILE_NAME_BYTES_MAX {
            return Err(("the name of a checkpoint".into(), format!("{name:?}")));
        }
        let RaftIndex(index) = checkpoint.index;
        let first = self.entries.first().map_or(u64::MAX, |entry| entry.index.0);
        let at = index.checked_sub(first).and_then(|at| usize::try_from(at).ok());
        let same = match at {
            Some(at) => self.entries.get(at).is_some_and(|entry| entry.term == checkpoint.term),
            // Everything kept lies above the checkpoint: what it covers was released before.
            None => true,
        };
        if !same {
            self.entries.clear();
        }
        self.checkpoint = Some(checkpoint.clone());
        Ok(())
    }
}

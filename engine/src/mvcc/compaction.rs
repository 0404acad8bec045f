//! Compaction: at once in what reads may see, in slices in what memory holds.
//!
//! A pass follows each compaction, one after the other, along the revision log:
//!
//! ```text
//! Idle ─schedule─► Look ─► Hash ─► Sweep ─► Tidy ─► Idle, or Look of the next that waits
//! ```
//!
//! `Look` finds out whether the compaction keeps anything, which its hash depends on. `Hash`
//! remembers the store's hash as `HashKV` defines it for a compaction. `Sweep` walks the records
//! between the compaction before and this one: each makes its predecessor needless, and a deletion
//! below the compacted revision is needless itself (contract 6.2; at exactly that revision it
//! stays). Records older than that were dealt with by earlier passes. `Tidy` gives back the memory
//! of the holes.

use ringbolt_io::planted::{self, Planted};
use std::collections::VecDeque;

use crate::limits::COMPACTIONS_WAITING_MAX;
use crate::{Reason, Revision};

use super::Mvcc;
use super::hash::{Hasher, Remembered};
use super::log::{NO_RECORD, Tidy};
use super::range::KeyRange;
use super::view::Kind;
use super::visit::Rest;

/// Steps that the removal of a key counts for beside its record: it searches the tree.
const KEY_STEPS: usize = 3;

/// What compaction has done and has yet to do.
#[derive(Debug)]
pub(super) struct Compaction {
    /// Removal is complete up to this compaction.
    swept: Revision,
    pass: Option<Pass>,
    /// What `Look` of the pass found.
    keeps_any: bool,
    waiting: VecDeque<Revision>,
    paused: bool,
    /// No compaction above this revision begins to remove.
    held: Option<Revision>,
    /// Versions removed since the store was made or loaded.
    removed_count: u64,
    pub(super) remembered: Remembered,
}

#[derive(Debug)]
struct Pass {
    target: Revision,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Look { rest: Rest },
    Hash { hasher: Hasher, next: (Revision, u32) },
    Sweep { next: (Revision, u32) },
    Tidy(Tidy),
}

impl Default for Compaction {
    fn default() -> Compaction {
        Compaction {
            swept: Revision::NEVER,
            pass: None,
            keeps_any: false,
            waiting: VecDeque::new(),
            paused: false,
            held: None,
            removed_count: 0,
            remembered: Remembered::default(),
        }
    }
}

impl Compaction {
    pub(super) fn schedule(&mut self, target: Revision) {
        // One pass can do the work of several; only a hash is not remembered then.
        if self.waiting.len() == COMPACTIONS_WAITING_MAX {
            self.waiting.pop_back();
        }
        self.waiting.push_back(target);
    }

    /// A store was loaded that was swept at `compacted` when it was written.
    pub(super) fn loaded(&mut self, compacted: Revision) {
        self.swept = compacted;
    }
}

impl Mvcc {
    /// Makes `at` the compacted revision: reads below it fail from now on. Memory is given back by
    /// [`Mvcc::compact_slice`].
    ///
    /// Errors: `Compacted`, `FutureRevision`. Source: contract 6.1.
    pub fn compact(&mut self, at: Revision) -> Result<(), Reason> {
        if at <= self.compacted {
            return Err(Reason::Compacted);
        }
        if at > self.revision {
            return Err(Reason::FutureRevision);
        }
        self.compacted = at;
        self.compaction.schedule(at);
        Ok(())
    }

    /// Goes on with removal by about `steps` records. True when there is more to do and removal is
    /// neither paused nor held.
    pub fn compact_slice(&mut self, steps: usize) -> bool {
        let mut left = steps;
        while left > 0 && !self.compaction.paused {
            let Some(mut pass) = self.take_pass() else { return false };
            let done = match &mut pass.stage {
                Stage::Look { rest } => self.look_on(rest, pass.target, &mut left),
                Stage::Hash { hasher, next } => self.hash_on(hasher, next, pass.target, &mut left),
                Stage::Sweep { next } => self.sweep_on(next, pass.target, &mut left),
                Stage::Tidy(tidy) => self.tidy_on(tidy, &mut left),
            };
            self.compaction.pass = if done { self.next_stage(pass) } else { Some(pass) };
        }
        self.removal_waits() && !self.compaction.paused && !self.removal_is_held()
    }

    /// Lets no compaction above `lowest` begin to remove: reads at that revision go on. One that
    /// has begun is below every read that is still allowed.
    pub fn hold_removal(&mut self, lowest: Option<Revision>) {
        self.compaction.held = lowest;
    }

    /// Whether the next compaction waits for reads below it.
    #[must_use]
    pub fn removal_is_held(&self) -> bool {
        let next = self.compaction.waiting.front();
        self.compaction.pass.is_none()
            && next.zip(self.compaction.held).is_some_and(|(next, held)| *next > held)
    }

    /// Holds back removal while a checkpoint streams; `false` lets it go on. The compacted
    /// revision may move on meanwhile.
    pub fn pause_removal(&mut self, paused: bool) {
        self.compaction.paused = paused;
    }

    /// Whether removal has work left, paused or not.
    #[must_use]
    pub fn removal_waits(&self) -> bool {
        self.compaction.pass.is_some() || !self.compaction.waiting.is_empty()
    }

    /// How many versions compaction has removed since the store was made or loaded.
    #[must_use]
    pub fn removed_count(&self) -> u64 {
        self.compaction.removed_count
    }

    fn take_pass(&mut self) -> Option<Pass> {
        if let Some(pass) = self.compaction.pass.take() {
            return Some(pass);
        }
        if self.removal_is_held() {
            return None;
        }
        let target = self.compaction.waiting.pop_front()?;
        assert!(target > self.compaction.swept, "compactions are scheduled in order");
        Some(Pass { target, stage: Stage::Look { rest: KeyRange::everything().into() } })
    }

    fn next_stage(&mut self, pass: Pass) -> Option<Pass> {
        let Pass { target, stage } = pass;
        let stage = match stage {
            Stage::Look { .. } => {
                let mut hasher = Hasher::new(self.compaction.swept, target);
                hasher.keeps_any = self.compaction.keeps_any || self.keeps_deletion(target);
                Stage::Hash { hasher, next: (Revision(0), 0) }
            }
            Stage::Hash { hasher, .. } => {
                self.compaction.remembered.push(hasher.finish());
                // From the last compaction itself on: deletions at it are needless only now.
                Stage::Sweep { next: (self.compaction.swept, 0) }
            }
            Stage::Sweep { .. } => {
                self.compaction.swept = target;
                Stage::Tidy(Tidy::default())
            }
            Stage::Tidy(_) => return None,
        };
        Some(Pass { target, stage })
    }

    /// True when it is known whether anything is live at `target`.
    fn look_on(&mut self, rest: &mut Rest, target: Revision, left: &mut usize) -> bool {
        let Some(any) = self.any_live_on(rest, target, *left) else {
            *left = 0;
            return false;
        };
        *left -= 1;
        self.compaction.keeps_any = any;
        true
    }

    /// Whether a deletion at exactly `target` is kept.
    fn keeps_deletion(&self, target: Revision) -> bool {
        let at_target = self.events(target).take_while(|event| event.main == target);
        let mut deletions = at_target.filter(|event| event.kind == Kind::Delete);
        deletions.any(|event| self.is_last_at(&event, target))
    }

    /// True when every record up to `target` is in the hash.
    fn hash_on(
        &self,
        hasher: &mut Hasher,
        next: &mut (Revision, u32),
        target: Revision,
        left: &mut usize,
    ) -> bool {
        for event in self.events_at(*next) {
            if event.main > target {
                return true;
            }
            let sub = u32::try_from(event.sub).expect("the writer counts subs in u32");
            if *left == 0 {
                *next = (event.main, sub);
                return false;
            }
            *left -= 1;
            hasher.feed(&event, self.is_kept(&event, target));
        }
        true
    }

    /// True when nothing is left to remove for `target`.
    fn sweep_on(&mut self, next: &mut (Revision, u32), target: Revision, left: &mut usize) -> bool {
        let mut cursor = self.log.cursor(next.0, next.1);
        while let Some(id) = self.log.step(&mut cursor) {
            let version = self.log.get(id);
            let further = i64::from(planted::is(Planted::CompactionRemovesLive));
            if version.main.0 > target.0 + further {
                return true;
            }
            if *left == 0 {
                *next = (version.main, version.sub);
                return false;
            }
            *left -= 1;
            let prev = version.prev;
            let needless = version.kind == Kind::Delete && version.main < target;
            if prev != NO_RECORD {
                self.remove_record(prev);
                self.compaction.removed_count += 1;
            }
            if needless {
                self.compaction.removed_count += 1;
                if self.remove_record(id) {
                    *left = left.saturating_sub(KEY_STEPS);
                }
            }
        }
        true
    }

    /// True when the log has no more memory to give back.
    fn tidy_on(&mut self, tidy: &mut Tidy, left: &mut usize) -> bool {
        while *left > 0 {
            let Some(moved) = self.log.tidy_step(&mut self.keys, tidy) else { return true };
            *left = left.saturating_sub(1 + moved);
        }
        false
    }
}

//! Walking over a range in pieces of bounded work.
//!
//! At an older revision most of a walk may be keys that did not exist yet, or versions that are
//! newer: they cost a look each, so looks are what a piece is measured in. A piece may end inside
//! the versions of one key; the next goes on there, unless removal moved records meanwhile: then
//! that key begins again.

use super::Mvcc;
use super::log::{Found, RecordId};
use super::range::KeyRange;
use super::view::{VersionRef, live};
use crate::Revision;

/// What is left of a walk.
#[derive(Clone, Debug)]
pub struct Rest {
    range: KeyRange,
    /// Where in the versions of the range's first key it goes on.
    within: Option<Within>,
}

#[derive(Clone, Copy, Debug)]
struct Within {
    record: RecordId,
    /// How often records had moved by then.
    moves: u64,
}

/// What a visitor wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next key.
    GoOn,
    /// To see this very key again in the next piece.
    Pause,
    /// Nothing more.
    End,
}

impl From<KeyRange> for Rest {
    fn from(range: KeyRange) -> Rest {
        Rest { range, within: None }
    }
}

impl Mvcc {
    /// As [`Mvcc::visit`], one piece of it: looks at about `looks` keys and versions. What is left,
    /// if anything is and the visitor wants it.
    #[must_use]
    pub fn visit_some(
        &self,
        rest: Rest,
        at: Revision,
        looks: usize,
        visitor: &mut dyn FnMut(VersionRef<'_>) -> Next,
    ) -> Option<Rest> {
        let Rest { range, mut within } = rest;
        let mut looks = looks.max(1);
        let mut walk = self.tree.walk(&self.keys, &range);
        if at >= self.written {
            walk = walk.live_only();
        }
        for (id, _) in walk {
            let key = self.keys.get(id);
            let stop_here = |within| {
                let range = KeyRange { start: key.bytes.clone(), end: range.end.clone() };
                Some(Rest { range, within })
            };
            if looks == 0 {
                return stop_here(None);
            }
            looks -= 1;
            let known = within
                .take()
                .filter(|known| known.moves == self.log.moves() && key.bytes == range.start);
            let from = known.map_or(key.head, |known| known.record);
            match self.log.at_within(from, at, &mut looks) {
                Found::Older => {}
                Found::Stopped(record) => {
                    return stop_here(Some(Within { record, moves: self.log.moves() }));
                }
                Found::At(version) => {
                    let Some(version) = live(key, &version) else { continue };
                    match visitor(version) {
                        Next::GoOn => {}
                        Next::Pause => return stop_here(None),
                        Next::End => return None,
                    }
                }
            }
        }
        None
    }

    /// Goes on to look whether any key was live at `at`. The answer when it is known.
    pub(super) fn any_live_on(&self, rest: &mut Rest, at: Revision, looks: usize) -> Option<bool> {
        let mut any = false;
        let left = self.visit_some(rest.clone(), at, looks, &mut |_| {
            any = true;
            Next::End
        });
        match left {
            Some(left) => {
                *rest = left;
                None
            }
            None => Some(any),
        }
    }
}

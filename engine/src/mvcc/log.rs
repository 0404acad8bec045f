//! The revision log: every version record, ordered by (main, sub), in chunks.
//!
//! A record's number is its place: chunk and slot. Records of a key are chained by these numbers,
//! newest first from the key table, and backwards too, so that a record can move:
//!
//! ```text
//! key table      log
//! a ─ head ───► (9,0) put ──prev──► (7,1) delete ──prev──► (4,0) put
//!                     ◄──next──           ◄──next──
//! ```
//!
//! Removal leaves a hole in its chunk; [`Log::tidy_step`] later closes holes and joins neighbours.
//!
//! Invariants, checked by [`Log::check`]:
//! L1 records ascend by (main, sub) through `order`, holes included;
//! L2 `prev` and `next` of neighbours in a chain name each other; mains and subs fall along `prev`;
//! L3 a chunk knows how many of its records are no holes.

use bytes::Bytes;

use super::arena::Arena;
use super::keys::{KeyId, Keys};
use super::view::Kind;
use crate::{LeaseId, Revision};

/// A record's number: chunk, then slot in the low bits.
pub(super) type RecordId = u32;

/// No record, no key, no chunk.
pub(super) const NO_RECORD: u32 = u32::MAX;
const NO_KEY: u32 = u32::MAX;
const NO_CHUNK: u32 = u32::MAX;

/// Few slots in tests, so that small logs have many chunks.
const SLOT_BITS: u32 = if cfg!(test) { 3 } else { 9 };
const CHUNK_RECORDS: usize = 1 << SLOT_BITS;

/// `extra` of a put that created its key and has no lease: create is main, version is 1.
const EXTRA_CREATION: u32 = u32::MAX;
/// `extra` of a deletion.
const EXTRA_DELETION: u32 = u32::MAX - 1;

/// One version, 56 bytes.
#[derive(Debug)]
struct Record {
    value: Bytes,
    /// Main revision above the chunk's base.
    main: u32,
    sub: u32,
    key: KeyId,
    prev: RecordId,
    next: RecordId,
    /// Place in `extras`, or one of the two constants.
    extra: u32,
}

const _: () = assert!(size_of::<Record>() == 56);

impl Default for Record {
    /// A hole.
    fn default() -> Record {
        Record {
            value: Bytes::new(),
            main: 0,
            sub: 0,
            key: NO_KEY,
            prev: NO_RECORD,
            next: NO_RECORD,
            extra: EXTRA_DELETION,
        }
    }
}

/// What most records do without.
#[derive(Clone, Copy, Debug, Default)]
struct Extra {
    create: Revision,
    version: i64,
    lease: LeaseId,
}

#[derive(Debug, Default)]
struct Chunk {
    base: i64,
    records: Vec<Record>,
    live: usize,
}

/// Where a chunk lies in the log: at or below its first record, above every earlier one.
#[derive(Clone, Copy, Debug)]
struct Span {
    main: i64,
    sub: u32,
    /// [`NO_CHUNK`] once a tidying pass emptied it; the span goes when the pass ends.
    chunk: u32,
    /// For an emptied span: the one before it whose chunk took over its records.
    kept: Option<u32>,
}

/// A version to append.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) main: Revision,
    pub(super) sub: u32,
    pub(super) key: KeyId,
    pub(super) kind: Kind,
    pub(super) create: Revision,
    pub(super) version: i64,
    pub(super) lease: LeaseId,
    pub(super) value: Bytes,
}

/// A version as it lies in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version<'a> {
    pub(super) main: Revision,
    pub(super) sub: u32,
    pub(super) key: KeyId,
    pub(super) kind: Kind,
    pub(super) create: Revision,
    pub(super) version: i64,
    pub(super) lease: LeaseId,
    pub(super) value: &'a Bytes,
    pub(super) prev: RecordId,
    pub(super) next: RecordId,
}

/// Where a tidying pass stands: the next span to look at, and the last one that stayed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tidy {
    next: usize,
    kept: Option<usize>,
}

/// The log.
#[derive(Debug, Default)]
pub(super) struct Log {
    chunks: Arena<Chunk>,
    order: Vec<Span>,
    extras: Arena<Extra>,
    records: u64,
    /// How often a record was removed or moved: a number kept from before may be another's.
    moves: u64,
}

/// What a search in a chain found.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// The newest record at the revision.
    At(Version<'a>),
    /// Nothing so old.
    Older,
    /// It was looked at as much as was allowed; it goes on with this record.
    Stopped(RecordId),
}

impl Log {
    /// Appends a version and chains it as its key's newest.
    pub(super) fn append(&mut self, keys: &mut Keys, entry: Entry) -> RecordId {
        let extra = self.extra_of(&entry);
        let chunk = self.chunk_for(entry.main.0, entry.sub);
        let held = self.chunks.get_mut(chunk);
        let slot = u32::try_from(held.records.len()).expect("chunks are small");
        let id = chunk << SLOT_BITS | slot;
        let main = u32::try_from(entry.main.0 - held.base).expect("chunk_for saw to it");
        let key = keys.get_mut(entry.key);
        let prev = std::mem::replace(&mut key.head, id);
        held.records.push(Record {
            value: entry.value,
            main,
            sub: entry.sub,
            key: entry.key,
            prev,
            next: NO_RECORD,
            extra,
        });
        held.live += 1;
        self.records += 1;
        if prev != NO_RECORD {
            self.record_mut(prev).next = id;
        }
        id
    }

    /// The main revision of a record.
    pub(super) fn main(&self, id: RecordId) -> Revision {
        let chunk = self.chunks.get(id >> SLOT_BITS);
        Revision(chunk.base + i64::from(chunk.records[slot_of(id)].main))
    }

    /// A record.
    pub(super) fn get(&self, id: RecordId) -> Version<'_> {
        let chunk = self.chunks.get(id >> SLOT_BITS);
        let record = &chunk.records[slot_of(id)];
        assert!(record.key != NO_KEY, "a number that outlived its record");
        let main = Revision(chunk.base + i64::from(record.main));
        let (kind, extra) = match record.extra {
            EXTRA_CREATION => {
                (Kind::Put, Extra { create: main, version: 1, lease: LeaseId::default() })
            }
            EXTRA_DELETION => (Kind::Delete, Extra::default()),
            extra => (Kind::Put, *self.extras.get(extra)),
        };
        Version {
            main,
            sub: record.sub,
            key: record.key,
            kind,
            create: extra.create,
            version: extra.version,
            lease: extra.lease,
            value: &record.value,
            prev: record.prev,
            next: record.next,
        }
    }

    /// The record of a chain that was the newest at revision `at`.
    pub(super) fn at(&self, mut id: RecordId, at: Revision) -> Option<Version<'_>> {
        while id != NO_RECORD {
            let version = self.get(id);
            if version.main <= at {
                return Some(version);
            }
            id = version.prev;
        }
        None
    }

    /// As `at`, of which each record beyond the first costs one of `looks`.
    pub(super) fn at_within(&self, mut id: RecordId, at: Revision, looks: &mut usize) -> Found<'_> {
        while id != NO_RECORD {
            let version = self.get(id);
            if version.main <= at {
                return Found::At(version);
            }
            id = version.prev;
            if *looks == 0 && id != NO_RECORD {
                return Found::Stopped(id);
            }
            *looks = looks.saturating_sub(1);
        }
        Found::Older
    }

    /// Counts removals and moves of records.
    pub(super) fn moves(&self) -> u64 {
        self.moves
    }

    /// The numbers of the records from (main, sub) on.
    pub(super) fn from(&self, main: Revision, sub: u32) -> LogIter<'_> {
        LogIter { log: self, cursor: self.cursor(main, sub) }
    }

    /// A cursor before the first record at or behind (main, sub). Records may be removed while it
    /// is in use, but not moved.
    pub(super) fn cursor(&self, main: Revision, sub: u32) -> Cursor {
        let (span, slot) = self.position(main, sub);
        Cursor { span, slot }
    }

    /// The record at the cursor, which goes on behind it.
    pub(super) fn step(&self, cursor: &mut Cursor) -> Option<RecordId> {
        loop {
            let span = self.order.get(cursor.span)?;
            let records = match span.chunk {
                NO_CHUNK => &[],
                chunk => self.chunks.get(chunk).records.as_slice(),
            };
            let Some(record) = records.get(cursor.slot) else {
                cursor.span += 1;
                cursor.slot = 0;
                continue;
            };
            let slot = u32::try_from(cursor.slot).expect("chunks are small");
            cursor.slot += 1;
            if record.key != NO_KEY {
                return Some(span.chunk << SLOT_BITS | slot);
            }
        }
    }

    /// About how many records lie at or behind `main`; never less.
    pub(super) fn count_from(&self, main: Revision) -> u64 {
        let (span, _) = self.position(main, 0);
        ((self.order.len() - span) * CHUNK_RECORDS) as u64
    }

    /// Takes a record out of its chain and leaves a hole. Returns its value.
    pub(super) fn remove(&mut self, keys: &mut Keys, id: RecordId) -> Bytes {
        let Version { key, prev, next, .. } = self.get(id);
        self.moves += 1;
        self.link(keys, key, (prev, prev), (next, next));
        let chunk = self.chunks.get_mut(id >> SLOT_BITS);
        let record = &mut chunk.records[slot_of(id)];
        record.key = NO_KEY;
        let value = std::mem::take(&mut record.value);
        let extra = record.extra;
        chunk.live -= 1;
        self.records -= 1;
        if extra != EXTRA_CREATION && extra != EXTRA_DELETION {
            self.extras.remove(extra);
        }
        value
    }

    /// Looks at the next chunk of a tidying pass: frees it if empty, joins it with the one before
    /// or closes its holes if that is worth it. Returns how many records were moved; nothing when
    /// the pass is over. Numbers of records may change.
    pub(super) fn tidy_step(&mut self, keys: &mut Keys, tidy: &mut Tidy) -> Option<usize> {
        // The last chunk still grows.
        if tidy.next + 1 >= self.order.len() {
            self.order.retain(|span| span.chunk != NO_CHUNK);
            return None;
        }
        let index = tidy.next;
        tidy.next += 1;
        self.moves += 1;
        let chunk = self.order[index].chunk;
        if chunk == NO_CHUNK {
            return Some(0);
        }
        let held = self.chunks.get(chunk);
        if held.live == 0 {
            self.chunks.remove(chunk);
            self.drop_span(index, tidy.kept);
            return Some(0);
        }
        if let Some(kept) = tidy.kept
            && self.may_join(self.order[kept].chunk, chunk)
        {
            self.drop_span(index, tidy.kept);
            return Some(self.join(keys, self.order[kept].chunk, chunk));
        }
        tidy.kept = Some(index);
        let sparse = held.live * 4 <= held.records.len() * 3;
        Some(if sparse { self.squeeze(keys, chunk) } else { 0 })
    }

    /// Checks L1, L2 and L3.
    pub(super) fn check(&self, keys: &Keys) {
        let mut last = None;
        let mut records = 0;
        for span in &self.order {
            if span.chunk == NO_CHUNK {
                continue;
            }
            assert!(last < Some((span.main, span.sub)), "L1 spans");
            let chunk = self.chunks.get(span.chunk);
            let mut live = 0;
            for (slot, record) in chunk.records.iter().enumerate() {
                let at = (chunk.base + i64::from(record.main), record.sub);
                assert!(at >= (span.main, span.sub), "L1 span above its record");
                assert!(last < Some(at), "L1 records");
                last = Some(at);
                if record.key != NO_KEY {
                    live += 1;
                    let slot = u32::try_from(slot).expect("chunks are small");
                    self.check_links(keys, span.chunk << SLOT_BITS | slot);
                }
            }
            assert_eq!(live, chunk.live, "L3");
            records += live as u64;
        }
        assert_eq!(records, self.records);
    }

    fn check_links(&self, keys: &Keys, id: RecordId) {
        let version = self.get(id);
        if version.prev != NO_RECORD {
            let prev = self.get(version.prev);
            assert_eq!(prev.next, id, "L2 prev");
            assert_eq!(prev.key, version.key, "L2 key");
            assert!((prev.main, prev.sub) < (version.main, version.sub), "L2 order");
        }
        if version.next == NO_RECORD {
            assert_eq!(keys.get(version.key).head, id, "L2 head");
        } else {
            assert_eq!(self.get(version.next).prev, id, "L2 next");
        }
    }

    /// Place of the first record at or behind (main, sub), or of the log's end: span and slot. The
    /// slot may be one behind the span's last record.
    fn position(&self, main: Revision, sub: u32) -> (usize, usize) {
        let after = self.order.partition_point(|span| (span.main, span.sub) <= (main.0, sub));
        let Some(mut span) = after.checked_sub(1) else { return (0, 0) };
        if self.order[span].chunk == NO_CHUNK {
            let Some(kept) = self.order[span].kept else { return (span, 0) };
            span = kept as usize;
        }
        let chunk = self.chunks.get(self.order[span].chunk);
        let slot = chunk.records.partition_point(|record| {
            (chunk.base + i64::from(record.main), record.sub) < (main.0, sub)
        });
        (span, slot)
    }

    /// The chunk a record of `main` goes into.
    fn chunk_for(&mut self, main: i64, sub: u32) -> u32 {
        if let Some(span) = self.order.last() {
            let chunk = self.chunks.get(span.chunk);
            if chunk.records.len() < CHUNK_RECORDS && u32::try_from(main - chunk.base).is_ok() {
                return span.chunk;
            }
        }
        let records = Vec::with_capacity(CHUNK_RECORDS);
        let chunk = self.chunks.insert(Chunk { base: main, records, live: 0 });
        assert!(chunk < NO_CHUNK >> SLOT_BITS, "memory ends before record numbers do");
        self.order.push(Span { main, sub, chunk, kept: None });
        chunk
    }

    fn extra_of(&mut self, entry: &Entry) -> u32 {
        if entry.kind == Kind::Delete {
            return EXTRA_DELETION;
        }
        let Entry { main, create, version, lease, .. } = *entry;
        if create == main && version == 1 && lease.0 == 0 {
            return EXTRA_CREATION;
        }
        let extra = self.extras.insert(Extra { create, version, lease });
        assert!(extra < EXTRA_DELETION, "memory ends before extra numbers do");
        extra
    }

    /// Sets what the neighbours of a record in its chain point at: the older one, given with what
    /// to call it from the newer side, and the newer one likewise.
    fn link(
        &mut self,
        keys: &mut Keys,
        key: KeyId,
        (prev, prev_name): (RecordId, RecordId),
        (next, next_name): (RecordId, RecordId),
    ) {
        if prev != NO_RECORD {
            self.record_mut(prev).next = next_name;
        }
        if next == NO_RECORD {
            keys.get_mut(key).head = prev_name;
        } else {
            self.record_mut(next).prev = prev_name;
        }
    }

    fn drop_span(&mut self, index: usize, kept: Option<usize>) {
        let span = &mut self.order[index];
        span.chunk = NO_CHUNK;
        span.kept = kept.map(|kept| u32::try_from(kept).expect("fewer spans than chunks"));
    }

    fn may_join(&self, left: u32, right: u32) -> bool {
        let (left, right) = (self.chunks.get(left), self.chunks.get(right));
        let reach = right.records.last().map_or(0, |record| i64::from(record.main));
        left.live + right.live <= CHUNK_RECORDS
            && u32::try_from(right.base + reach - left.base).is_ok()
    }

    /// Moves the records of `right` behind those of `left`. Returns how many records moved.
    fn join(&mut self, keys: &mut Keys, left: u32, right: u32) -> usize {
        let mut moved = 0;
        let (base, live) = (self.chunks.get(right).base, self.chunks.get(right).live);
        if self.chunks.get(left).records.len() + live > CHUNK_RECORDS {
            moved += self.squeeze(keys, left);
        }
        let held = self.chunks.get_mut(left);
        held.records.reserve_exact(live);
        let shift = base - held.base;
        for slot in 0..self.chunks.get(right).records.len() {
            // One at a time: a neighbour in the chain that has not moved yet is where it was.
            let mut record = std::mem::take(&mut self.chunks.get_mut(right).records[slot]);
            if record.key == NO_KEY {
                continue;
            }
            let held = self.chunks.get_mut(left);
            record.main = u32::try_from(shift + i64::from(record.main)).expect("may_join saw");
            let slot = u32::try_from(held.records.len()).expect("chunks are small");
            held.records.push(record);
            held.live += 1;
            self.relink(keys, left << SLOT_BITS | slot);
            moved += 1;
        }
        self.chunks.remove(right);
        moved
    }

    /// Closes the holes of a chunk. Returns how many records moved.
    fn squeeze(&mut self, keys: &mut Keys, chunk: u32) -> usize {
        let mut filled = 0;
        let mut moved = 0;
        for slot in 0..self.chunks.get(chunk).records.len() {
            // One at a time, as in `join`.
            let records = &mut self.chunks.get_mut(chunk).records;
            if records[slot].key == NO_KEY {
                continue;
            }
            records.swap(filled, slot);
            if filled != slot {
                let filled = u32::try_from(filled).expect("chunks are small");
                self.relink(keys, chunk << SLOT_BITS | filled);
                moved += 1;
            }
            filled += 1;
        }
        let held = self.chunks.get_mut(chunk);
        assert_eq!(filled, held.live, "L3");
        held.records.truncate(filled);
        held.records.shrink_to_fit();
        moved
    }

    /// Tells the neighbours of a record that moved its number.
    fn relink(&mut self, keys: &mut Keys, id: RecordId) {
        let Record { key, prev, next, .. } = *self.record_mut(id);
        self.link(keys, key, (prev, id), (next, id));
    }

    fn record_mut(&mut self, id: RecordId) -> &mut Record {
        &mut self.chunks.get_mut(id >> SLOT_BITS).records[slot_of(id)]
    }
}

/// A place in the log, good until records move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    span: usize,
    slot: usize,
}

/// The numbers of records in log order.
#[derive(Clone, Debug)]
pub(super) struct LogIter<'a> {
    log: &'a Log,
    cursor: Cursor,
}

impl Iterator for LogIter<'_> {
    type Item = RecordId;

    fn next(&mut self) -> Option<RecordId> {
        self.log.step(&mut self.cursor)
    }
}

fn slot_of(id: RecordId) -> usize {
    id as usize % CHUNK_RECORDS
}

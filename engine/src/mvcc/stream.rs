//! The checkpoint stream of a store: export by cursor, import by chunk.
//!
//! The stream is pinned when its cursor is made: it holds what a compaction at the pinned compacted
//! revision keeps, then every event up to the pinned revision. Writes may go on meanwhile; removal
//! has to be paused from before the cursor is made until the stream ends.

use crate::Revision;
use crate::limits::COUNTER_MAX;

use super::Mvcc;
use super::format::{
    CHUNK_HEAD_BYTES, Head, Record, finish_chunk, put_record, record_bytes, start_chunk, take_head,
    take_record,
};
use super::view::Kind;

/// Where an export stands.
#[derive(Clone, Debug)]
pub struct ExportCursor {
    revision: Revision,
    compacted: Revision,
    next: (Revision, u32),
    first: bool,
    ended: bool,
}

impl ExportCursor {
    /// A stream of the store as it is now.
    #[must_use]
    pub fn new(mvcc: &Mvcc) -> ExportCursor {
        ExportCursor {
            revision: mvcc.revision(),
            compacted: mvcc.compacted(),
            next: (Revision(0), 0),
            first: true,
            ended: false,
        }
    }

    /// The revision the stream is pinned to.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }
}

impl Mvcc {
    /// The next chunk of the stream, of `max_bytes` unless one record alone is larger; nothing
    /// after the last. An empty store has one chunk too.
    #[must_use]
    pub fn export(&self, cursor: &mut ExportCursor, max_bytes: usize) -> Option<Vec<u8>> {
        if cursor.ended {
            return None;
        }
        let mut chunk = start_chunk(cursor.first, cursor.revision, cursor.compacted);
        let mut records = 0;
        let mut last = true;
        for event in self.events_at(cursor.next).take_while(|event| event.main <= cursor.revision) {
            if !self.is_kept(&event, cursor.compacted) {
                continue;
            }
            if records > 0 && chunk.len() + record_bytes(&event) > max_bytes {
                let sub = u32::try_from(event.sub).expect("the writer counts subs in u32");
                cursor.next = (event.main, sub);
                last = false;
                break;
            }
            put_record(&mut chunk, &event);
            records += 1;
        }
        assert!(chunk.len() >= CHUNK_HEAD_BYTES);
        finish_chunk(&mut chunk, records, last);
        cursor.first = false;
        cursor.ended = last;
        Some(chunk)
    }
}

/// Builds a store from the chunks of an export. It takes foreign bytes: every flaw is an error,
/// after which the importer is of no further use.
#[derive(Debug, Default)]
pub struct Importer {
    mvcc: Mvcc,
    pinned: Option<(Revision, Revision)>,
    at: Option<(Revision, u32)>,
    ended: bool,
}

impl Importer {
    /// An importer that waits for the first chunk.
    #[must_use]
    pub fn new() -> Importer {
        Importer::default()
    }

    /// Takes the next chunk.
    ///
    /// Errors: what is wrong with the chunk, in words; the source of the bytes is corrupt.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<(), String> {
        let mut rest = chunk;
        let head = take_head(&mut rest)?;
        self.take_chunk_head(&head)?;
        for _ in 0..head.records {
            let record = take_record(&mut rest)?;
            self.take(&record)?;
        }
        if !rest.is_empty() {
            return Err(format!("{} bytes behind the last record of a chunk", rest.len()));
        }
        self.ended = head.last;
        Ok(())
    }

    /// The store.
    ///
    /// Errors: the last chunk was never fed.
    pub fn finish(self) -> Result<Mvcc, String> {
        if !self.ended {
            return Err("checkpoint stream without its last chunk".into());
        }
        Ok(self.mvcc)
    }

    fn take_chunk_head(&mut self, head: &Head) -> Result<(), String> {
        if self.ended {
            return Err("chunk behind the last one".into());
        }
        if head.first != self.pinned.is_none() {
            return Err("first chunk of a checkpoint stream missing or repeated".into());
        }
        let pinned = (head.revision, head.compacted);
        if head.revision < Revision::FIRST
            || head.compacted < Revision::NEVER
            || head.compacted > head.revision
            || head.revision.0.cast_unsigned() > COUNTER_MAX
        {
            return Err(format!("stream of revision {}, compacted {}", pinned.0, pinned.1));
        }
        if *self.pinned.get_or_insert(pinned) != pinned {
            return Err("chunks of two checkpoint streams mixed".into());
        }
        if head.first {
            self.mvcc.load_revisions(head.revision, head.compacted);
        }
        Ok(())
    }

    fn take(&mut self, record: &Record<'_>) -> Result<(), String> {
        let place = (record.main, record.sub);
        let flaw = |what: &str| Err(format!("record ({}, {}): {what}", record.main, record.sub));
        let (revision, compacted) = self.pinned.expect("the head of the chunk was taken");
        if record.main <= Revision::FIRST || record.main > revision {
            return flaw("revision outside the stream");
        }
        if record.sub == u32::MAX || self.at.is_some_and(|at| at >= place) {
            return flaw("out of order");
        }
        if record.key.is_empty() {
            return flaw("empty key");
        }
        if record.version.cast_unsigned() > COUNTER_MAX {
            return flaw("version");
        }
        let live = match record.kind {
            Kind::Put => record.version > 0 && record.create.0 > 0 && record.create <= record.main,
            Kind::Delete => {
                record.version == 0
                    && record.create.0 == 0
                    && record.lease.0 == 0
                    && record.value.is_empty()
            }
        };
        if !live {
            return flaw("fields do not fit its kind");
        }
        if record.main < compacted && record.kind == Kind::Delete {
            return flaw("deletion below the compacted revision");
        }
        self.mvcc.load(record, compacted).or_else(flaw)?;
        self.at = Some(place);
        Ok(())
    }
}

/// Whether `record` may follow the last version (kind, create, version) of its key in a stream.
pub(super) fn check_follows(
    record: &Record<'_>,
    compacted: Revision,
    last: Option<(Kind, Revision, i64)>,
) -> Result<(), &'static str> {
    if record.main <= compacted {
        return if last.is_none() { Ok(()) } else { Err("second version below the compaction") };
    }
    match (record.kind, last) {
        (Kind::Put, Some((Kind::Put, create, version))) => {
            let follows = record.create == create && version.checked_add(1) == Some(record.version);
            if follows { Ok(()) } else { Err("does not continue its key") }
        }
        (Kind::Put, _) => {
            let first = record.create == record.main && record.version == 1;
            if first { Ok(()) } else { Err("begins its key in the middle") }
        }
        (Kind::Delete, Some((Kind::Put, ..))) => Ok(()),
        (Kind::Delete, _) => Err("deletes what does not exist"),
    }
}

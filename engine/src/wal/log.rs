//! The state of an open log: what was appended, what is in flight, what is durable.
//!
//! Plain data and plain functions: nothing here waits. `writer` submits what `form` gives and tells
//! `complete` what came back; `keeper` looks after segments and marks.

use ringbolt_io::planted::{self, Planted};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;

use ringbolt_io::{AlignedBuffer, File};

use crate::limits::{
    WAL_BUFFER_KEPT_BYTES_MAX, WAL_BUFFERS_KEPT, WAL_LIST_RESERVE, WAL_SEGMENT_BYTES_MAX,
    WAL_SEGMENT_BYTES_SMALL_STATE, WAL_SEGMENTS_MAX, WAL_SEGMENTS_SPARE,
};
use crate::types::{RaftIndex, Revision};
use crate::wal::format::{
    BATCH_RECORDS_MAX, BLOCK_BYTES, HEADER_BYTES, Header, Record, Start, batch_size, encode,
};
use crate::wal::mark::{Listed, Mark};
use crate::wal::room::Room;
use crate::wal::segment::{Free, Segment};
use crate::wal::types::{
    Batch, Checkpoint, Entry, Failure, Gauges, HardState, Identity, Mode, Ticket, WalConfig,
};

/// Bytes between two samples of where in the log an index stands.
const SAMPLE_BYTES: u64 = 64 * 1024;

/// A write that was submitted.
type Writing = Pin<Box<dyn Future<Output = (io::Result<()>, AlignedBuffer)>>>;

/// What waits for a batch, in order.
enum Waiting {
    State(HardState),
    Record(Record),
    End { ticket: Ticket, must_sync: bool },
}

/// One write in flight: one batch, or a segment's start and the batch behind it.
pub(super) struct Flight {
    pub sequence: u64,
    pub offset: u64,
    pub path: PathBuf,
    pub writing: Option<Writing>,
}

/// A write to submit.
pub(super) struct Formed {
    pub file: File,
    pub path: PathBuf,
    pub buffer: AlignedBuffer,
    pub offset: u64,
    pub sequence: u64,
}

/// What never changes while the log is open.
#[derive(Clone)]
pub(super) struct Constant {
    pub log_id: u64,
    pub epoch: u64,
    pub identity: Identity,
    pub incarnation: u64,
    pub boot_id: [u8; 16],
    pub direct: bool,
    pub segment_bytes_min: u64,
}

pub(super) struct Log {
    pub config: WalConfig,
    pub constant: Constant,
    // Segments.
    pub sealed: VecDeque<Segment>,
    pub active: Option<Segment>,
    pub next: Option<Segment>,
    pub free: VecDeque<Free>,
    pub next_number: u32,
    pub zeroing_failed: bool,
    pub room: Room,
    /// Where the next batch begins in the active segment, bytes.
    pub offset: u64,
    /// Bytes of every segment sealed since open: with `offset` the position in the log.
    pub sealed_bytes: u64,
    samples: VecDeque<(u64, u64)>,
    checkpoint_position: u64,
    // Batches.
    pub last_sequence: u64,
    pub chain: u64,
    /// Every batch up to it has been written.
    pub completed: u64,
    /// Every batch up to it is durable: the watermark.
    pub durable: u64,
    /// The watermark of the last mark.
    pub marked: u64,
    pub flights: VecDeque<Flight>,
    buffers: Vec<AlignedBuffer>,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// Sequences that are acknowledged only once flushed.
    must_sync: VecDeque<u64>,
    /// Which append ends with which batch.
    ends: VecDeque<(u64, Ticket)>,
    pub last_ticket: Ticket,
    pub acknowledged: Ticket,
    // Content.
    appended: HardState,
    hard_state: HardState,
    pub last_index: u64,
    checkpoint: Option<Checkpoint>,
    checkpoints_written: VecDeque<(u64, u64)>,
    /// Index of the newest checkpoint whose record is durable.
    pub checkpoint_durable: u64,
    pub released: u64,
    /// Somebody may still want entries below a checkpoint.
    pub has_followers: bool,
    // Marks.
    pub ceiling: Revision,
    pub shortened: bool,
    pub failure: Option<Failure>,
    pub stopping: bool,
}

impl Log {
    /// A log that holds nothing yet; recovery fills it.
    pub fn new(config: WalConfig, constant: Constant, mark: &Mark) -> Log {
        Log {
            config,
            constant,
            sealed: VecDeque::new(),
            active: None,
            next: None,
            free: VecDeque::new(),
            next_number: 1,
            zeroing_failed: false,
            room: Room::default(),
            offset: 0,
            sealed_bytes: 0,
            samples: VecDeque::new(),
            checkpoint_position: 0,
            last_sequence: 0,
            chain: 0,
            completed: 0,
            durable: 0,
            marked: 0,
            flights: VecDeque::new(),
            buffers: Vec::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            must_sync: VecDeque::new(),
            ends: VecDeque::new(),
            last_ticket: Ticket(0),
            acknowledged: Ticket(0),
            appended: HardState::default(),
            hard_state: HardState::default(),
            last_index: 0,
            checkpoint: None,
            checkpoints_written: VecDeque::new(),
            checkpoint_durable: 0,
            released: 0,
            has_followers: true,
            ceiling: mark.ceiling,
            shortened: mark.shortened,
            failure: None,
            stopping: false,
        }
    }

    /// Sets the content that recovery found, durable all of it.
    pub fn restore(&mut self, state: HardState, checkpoint: Option<&Checkpoint>, last_index: u64) {
        self.appended = state;
        self.hard_state = state;
        self.checkpoint = checkpoint.cloned();
        self.checkpoint_durable = checkpoint.map_or(0, |checkpoint| checkpoint.index.0);
        self.last_index = last_index;
        self.note_checkpoint_position(self.checkpoint_durable);
    }

    /// Sets the last batch there is, durable with all before it.
    pub fn restore_end(&mut self, sequence: u64, chain: u64) {
        self.last_sequence = sequence;
        self.chain = chain;
        self.completed = sequence;
        self.durable = sequence;
    }

    // Appending.

    /// Takes an append in; its ticket.
    pub fn append(&mut self, batch: Batch) -> Ticket {
        let Batch { entries, hard_state, must_sync } = batch;
        let voted = hard_state.is_some_and(|state| {
            state.term != self.appended.term || state.vote != self.appended.vote
        });
        if let Some(state) = hard_state {
            assert!(state.term >= self.appended.term, "a term never falls");
            self.appended = state;
            if matches!(self.waiting.back(), Some(Waiting::State(_))) {
                self.waiting.pop_back();
            }
            self.waiting.push_back(Waiting::State(state));
        }
        if entries.is_empty() && !voted && !must_sync {
            // A commit alone waits for the next batch that has a reason of its own.
            return self.last_ticket;
        }
        for entry in entries {
            self.take_entry(entry);
        }
        self.end_append(must_sync || voted)
    }

    /// Takes the name of a checkpoint in. It is acknowledged once flushed, in every mode.
    pub fn append_checkpoint(&mut self, checkpoint: Checkpoint) -> Ticket {
        assert!(checkpoint.index.0 >= self.checkpoint_durable, "checkpoints never go back");
        self.last_index = self.last_index.max(checkpoint.index.0);
        self.push_record(Record::Checkpoint(checkpoint));
        self.end_append(true)
    }

    fn take_entry(&mut self, entry: Entry) {
        let (index, size) = (entry.index.0, entry.data.len());
        assert!(index >= 1, "raft indexes count from 1");
        assert!(index <= self.last_index + 1, "entry {index} after {}", self.last_index);
        assert!(size <= self.config.entry_bytes_max, "an entry of {size} bytes");
        self.last_index = index;
        self.push_record(Record::Entry(entry));
    }

    fn push_record(&mut self, record: Record) {
        self.waiting_bytes += record.size();
        self.waiting.push_back(Waiting::Record(record));
    }

    fn end_append(&mut self, must_sync: bool) -> Ticket {
        self.last_ticket = Ticket(self.last_ticket.0 + 1);
        let ticket = self.last_ticket;
        if self.config.mode == Mode::Memory {
            self.waiting.clear();
            self.waiting_bytes = 0;
            self.acknowledged = ticket;
        } else {
            self.waiting.push_back(Waiting::End { ticket, must_sync });
        }
        ticket
    }

    /// Whether something waits that deserves a batch.
    pub fn has_waiting(&self) -> bool {
        self.waiting.iter().any(|item| !matches!(item, Waiting::State(_)))
    }

    /// Gives up what waits: it was never written, so never acknowledged.
    pub fn drop_waiting(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    // Forming batches.

    /// The next write, when something waits and there is room for it. W2: it lies within the size
    /// of the active segment. W4: it begins where the one before ended.
    pub fn form(&mut self) -> Option<Formed> {
        if self.failure.is_some() || !self.has_waiting() {
            return None;
        }
        let room = self.active.as_ref().expect("an open log has one").size - self.offset;
        let (mut count, mut body) = self.gather(room);
        let mut start = None;
        if count == 0 {
            start = Some(self.switch()?);
            let active = self.active.as_ref().expect("just switched");
            (count, body) = self.gather(active.size - BLOCK_BYTES as u64);
            assert!(count > 0, "a segment holds the largest entry");
        }
        let lead = if start.is_some() { BLOCK_BYTES } else { 0 };
        let mut buffer = self.buffer(lead + batch_size(body));
        if let Some(start) = start {
            self.write_batch(&self.start_records(start), &mut buffer[..lead]);
        }
        let records = self.take(count);
        self.write_batch(&records, &mut buffer[lead..]);
        self.note_records(&records);
        let offset = self.offset;
        self.offset += buffer.len() as u64;
        let active = self.active.as_ref().expect("an open log has one");
        assert!(self.offset <= active.size, "W2: a batch behind the end of its segment");
        assert!(offset.is_multiple_of(BLOCK_BYTES as u64), "W4: a batch begins on a block");
        let (file, path) = (active.file.clone(), active.path.clone());
        let position = self.position();
        self.sample(self.last_written_index(), position);
        Some(Formed { file, path, buffer, offset, sequence: self.last_sequence })
    }

    /// How many waiting items fit in `room` bytes as one batch, and the bytes of their records.
    fn gather(&self, room: u64) -> (usize, usize) {
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        if room < BLOCK_BYTES {
            return (0, 0);
        }
        let (mut body, mut records) = (0, 0);
        for (count, item) in self.waiting.iter().enumerate() {
            let Waiting::Record(record) = item else { continue };
            let more = body + record.size();
            let full = more > self.config.batch_bytes_max || records == BATCH_RECORDS_MAX;
            if HEADER_BYTES + more > room || (full && records > 0) {
                // A hard state alone is no reason to split: count it to what follows.
                return if records == 0 { (0, 0) } else { (count, body) };
            }
            (body, records) = (more, records + 1);
        }
        (self.waiting.len(), body)
    }

    /// Takes `count` waiting items for the batch that is numbered next.
    fn take(&mut self, count: usize) -> Vec<Record> {
        let sequence = self.last_sequence + 1;
        let mut records = Vec::with_capacity(count);
        for item in self.waiting.drain(..count) {
            match item {
                Waiting::State(state) => self.hard_state = state,
                Waiting::Record(record) => {
                    self.waiting_bytes -= record.size();
                    records.push(record);
                }
                Waiting::End { ticket, must_sync } => {
                    if must_sync && self.must_sync.back() != Some(&sequence) {
                        self.must_sync.push_back(sequence);
                    }
                    match self.ends.back_mut() {
                        Some((last, end)) if *last == sequence => *end = ticket,
                        _ => self.ends.push_back((sequence, ticket)),
                    }
                }
            }
        }
        records
    }

    /// Encodes the next batch of the active segment.
    pub fn write_batch(&mut self, records: &[Record], into: &mut [u8]) {
        let active = self.active.as_mut().expect("an open log has an active segment");
        self.last_sequence += 1;
        if active.first_sequence == 0 {
            active.first_sequence = self.last_sequence;
        }
        active.last_sequence = self.last_sequence;
        let header = Header {
            log_id: self.constant.log_id,
            sequence: self.last_sequence,
            epoch: self.constant.epoch,
            salt: active.salt,
            segment_sequence: active.first_sequence,
            chain: self.chain,
            watermark: self.watermark(),
            hard_state: self.hard_state,
        };
        assert!(self.durable < self.last_sequence, "W5: a watermark names earlier batches");
        self.chain = encode(&header, records, into);
    }

    /// What a header or a mark tells of how far the log is durable.
    fn watermark(&self) -> u64 {
        if planted::is(Planted::WatermarkNotAdvanced) { 0 } else { self.durable }
    }

    fn note_records(&mut self, records: &[Record]) {
        for record in records {
            match record {
                Record::Entry(entry) => {
                    let active = self.active.as_mut().expect("an open log has one");
                    active.note_index(entry.index.0);
                }
                Record::Checkpoint(checkpoint) => {
                    self.checkpoints_written.push_back((self.last_sequence, checkpoint.index.0));
                    self.checkpoint = Some(checkpoint.clone());
                }
                Record::Start(_) => unreachable!("starts are written by themselves"),
            }
        }
    }

    /// The records of a segment's start. The newest checkpoint is named in each, so that releasing
    /// old segments never loses it.
    pub fn start_records(&self, start: Start) -> Vec<Record> {
        let checkpoint = self.checkpoint.clone().map(Record::Checkpoint);
        [Record::Start(start)].into_iter().chain(checkpoint).collect()
    }

    /// Seals the active segment and goes on in the prepared one.
    fn switch(&mut self) -> Option<Start> {
        let next = self.next.take()?;
        let sealed = self.active.replace(next).expect("an open log has an active segment");
        let start = Start {
            previous: u64::from(sealed.number),
            salt: sealed.salt,
            sequence: self.last_sequence,
            chain: self.chain,
        };
        self.sealed_bytes += sealed.size;
        self.offset = 0;
        self.sealed.push_back(sealed);
        Some(start)
    }

    fn buffer(&mut self, size: usize) -> AlignedBuffer {
        let kept = self.buffers.iter().position(|buffer| buffer.capacity() >= size);
        let mut buffer = match kept {
            Some(index) => self.buffers.swap_remove(index),
            None => AlignedBuffer::zeroed(size),
        };
        buffer.set_len(size);
        buffer
    }

    /// Takes a buffer back.
    pub fn keep_buffer(&mut self, buffer: AlignedBuffer) {
        let fits = buffer.capacity() <= WAL_BUFFER_KEPT_BYTES_MAX;
        if fits && self.buffers.len() < WAL_BUFFERS_KEPT {
            self.buffers.push(buffer);
        }
    }

    // Completion.

    /// Advances past every write that has come back; true when something moved.
    pub fn advance(&mut self) -> bool {
        let before = (self.completed, self.acknowledged);
        while self.flights.front().is_some_and(|flight| flight.writing.is_none()) {
            let flight = self.flights.pop_front().expect("looked at");
            assert!(flight.sequence > self.completed, "flights are in order");
            self.completed = flight.sequence;
        }
        if self.config.mode == Mode::Safe {
            self.flushed(self.completed);
        } else {
            self.acknowledge();
        }
        before != (self.completed, self.acknowledged)
    }

    /// Every batch up to `sequence` is durable.
    pub fn flushed(&mut self, sequence: u64) {
        assert!(sequence <= self.completed, "W1: durable before it was written");
        assert!(sequence >= self.durable, "the watermark never falls");
        self.durable = sequence;
        while self.must_sync.front().is_some_and(|needed| *needed <= sequence) {
            self.must_sync.pop_front();
        }
        while let Some((at, index)) = self.checkpoints_written.front().copied() {
            if at > sequence {
                break;
            }
            self.checkpoints_written.pop_front();
            self.checkpoint_durable = self.checkpoint_durable.max(index);
            self.note_checkpoint_position(index);
        }
        self.acknowledge();
    }

    /// W1: acknowledges in order, up to the first batch that is not written, or not flushed where
    /// that was asked.
    fn acknowledge(&mut self) {
        let unflushed = self.must_sync.front().map_or(u64::MAX, |needed| needed - 1);
        let limit = self.completed.min(unflushed);
        while let Some((sequence, ticket)) = self.ends.front().copied() {
            if sequence > limit {
                break;
            }
            self.ends.pop_front();
            assert!(ticket > self.acknowledged, "tickets are acknowledged in order");
            self.acknowledged = ticket;
        }
    }

    /// Whether an append waits for a flush.
    pub fn flush_is_urgent(&self) -> bool {
        self.must_sync.front().is_some_and(|needed| *needed <= self.completed)
    }

    // Space.

    /// Segments that nothing was written to yet.
    pub fn unused(&self) -> usize {
        self.free.len() + usize::from(self.next.is_some())
    }

    /// Whether what waits has nowhere to be written: nothing is in flight that could make room.
    pub fn is_stuck(&self) -> bool {
        self.flights.is_empty() && self.next.is_none() && self.has_waiting()
    }

    /// Whether the list of segments has no room for one more.
    pub fn list_is_full(&self) -> bool {
        self.sealed.len() + 2 + WAL_LIST_RESERVE > WAL_SEGMENTS_MAX
    }

    /// Whether an ordinary write of `bytes` may be proposed: the last unused segment is the reserve
    /// of what gives space back, and the next checkpoint must find its room.
    pub fn accepts(&self, bytes: usize) -> bool {
        let Some(active) = &self.active else { return true };
        if self.room.is_short(self.config.segment_bytes_first) {
            return false;
        }
        if !self.is_short_of_space() {
            return true;
        }
        let needed = batch_size(self.waiting_bytes + bytes) as u64 + BLOCK_BYTES as u64;
        self.unused() >= WAL_SEGMENTS_SPARE - 1 && self.offset + needed <= active.size
    }

    /// Whether the spare segments are not there and do not come by themselves.
    pub fn is_short_of_space(&self) -> bool {
        let full = self.zeroing_failed && self.unused() < WAL_SEGMENTS_SPARE;
        full || self.list_is_full()
    }

    /// How many of the oldest segments nobody needs any more. Short of space, the reserve for slow
    /// followers goes too.
    pub fn releasable(&self) -> usize {
        let below = self.released.min(self.checkpoint_durable + 1);
        let of =
            |segment: &&Segment| segment.max_index < below && segment.last_sequence < self.durable;
        let candidates = self.sealed.iter().take_while(of).count();
        let mut kept: u64 = self.sealed.iter().take(candidates).map(|segment| segment.size).sum();
        let mut count = 0;
        for segment in self.sealed.iter().take(candidates) {
            let near = segment.max_index + self.config.catch_up_entries >= below;
            let wanted = self.has_followers && near && segment.max_index > 0;
            let wanted = wanted && !self.is_short_of_space();
            if wanted && kept <= self.config.catch_up_bytes_max {
                break;
            }
            kept -= segment.size;
            count += 1;
        }
        count
    }

    /// The size of the next segment to zero: they grow as the log does.
    pub fn zero_size(&self) -> u64 {
        let active = self.active.as_ref().map_or(0, |segment| segment.size);
        let grown = if self.sealed_bytes > 0 { active * 2 } else { active };
        let most = segment_bytes_for(self.room.checkpoint_bytes());
        grown.min(most).min(self.config.segment_bytes_max).max(self.segment_bytes_least())
    }

    /// The least size of a segment to zero.
    pub fn segment_bytes_least(&self) -> u64 {
        self.config.segment_bytes_first.max(self.constant.segment_bytes_min)
    }

    // Positions and gauges.

    fn position(&self) -> u64 {
        self.sealed_bytes + self.offset
    }

    fn last_written_index(&self) -> u64 {
        self.active.as_ref().map_or(0, |segment| segment.max_index)
    }

    /// Remembers where in the log an index stands.
    pub fn sample(&mut self, index: u64, position: u64) {
        let last = self.samples.back().map_or(0, |(_, position)| *position);
        if position >= last + SAMPLE_BYTES {
            self.samples.push_back((index, position));
        }
    }

    fn note_checkpoint_position(&mut self, index: u64) {
        while self.samples.front().is_some_and(|(sampled, _)| *sampled <= index) {
            let (_, position) = self.samples.pop_front().expect("looked at");
            self.checkpoint_position = position;
        }
        if index >= self.last_index {
            self.checkpoint_position = self.position();
        }
    }

    /// What an operator sees.
    pub fn gauges(&self) -> Gauges {
        let held = || self.sealed.iter().chain(&self.active);
        let oldest = held().map(|segment| segment.first_index).find(|index| *index > 0);
        Gauges {
            durable_lag: self.last_ticket.0 - self.acknowledged.0,
            batches_in_flight: self.flights.len(),
            waiting_bytes: self.waiting_bytes,
            segments: held().count(),
            segments_free: self.unused(),
            oldest_index: RaftIndex(oldest.unwrap_or(0)),
            bytes_since_checkpoint: self.position() - self.checkpoint_position,
            bytes: held().map(|segment| segment.size).sum(),
            written_bytes: self.position(),
            reserve_bytes: self.room.held_bytes(),
        }
    }

    // Marks.

    /// Whether a mark would tell more than the last one, and nothing more is on its way.
    pub fn is_idle_unmarked(&self) -> bool {
        self.flights.is_empty() && self.marked < self.durable
    }

    /// A mark of this moment that leaves out the `released` oldest segments and lists `prepared`.
    pub fn mark(&self, released: usize, prepared: Option<&Segment>) -> Mark {
        let spare = self.next.as_ref().or(prepared);
        let begun = self.sealed.iter().skip(released).chain(&self.active);
        let mut segments: Vec<Listed> = begun.chain(spare).map(Segment::listed).collect();
        let wanted = self.zero_size();
        let kept = self.sealed.iter().take(released).filter(|segment| segment.size >= wanted);
        let kept = kept.map(|segment| Listed { salt: 0, ..segment.listed() });
        let free = self.free.iter().map(Free::listed).chain(kept);
        let room = WAL_SEGMENTS_MAX - segments.len();
        let begun = segments.len() - usize::from(spare.is_some());
        segments.extend(free.take(room));
        let spare = u32::try_from(segments.len() - begun).expect("at most WAL_SEGMENTS_MAX");
        Mark {
            serial: 0,
            epoch: self.constant.epoch,
            log_id: self.constant.log_id,
            identity: self.constant.identity,
            incarnation: self.constant.incarnation,
            boot_id: self.constant.boot_id,
            mode: self.config.mode,
            clean: false,
            shortened: self.shortened,
            ceiling: self.ceiling,
            watermark: self.watermark(),
            end_sequence: self.last_sequence,
            end_offset: self.offset,
            spare,
            segments,
        }
    }
}

/// The size of a segment at most for a state of so many bytes: a power of two, so whole blocks.
fn segment_bytes_for(state_bytes: u64) -> u64 {
    let half = (state_bytes / 2).min(WAL_SEGMENT_BYTES_MAX);
    half.max(WAL_SEGMENT_BYTES_SMALL_STATE).next_power_of_two()
}

const _: () = assert!(WAL_SEGMENT_BYTES_SMALL_STATE.is_power_of_two());

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment that were no whole number of blocks would have a batch behind its end.
    #[test]
    fn segments_are_whole_blocks_whatever_the_state_is() {
        for state_bytes in (0..400_u64).map(|number| number * 1_234_567).chain([u64::MAX]) {
            let size = segment_bytes_for(state_bytes);
            assert!(size.is_multiple_of(BLOCK_BYTES as u64), "{size} for {state_bytes}");
            assert!((WAL_SEGMENT_BYTES_SMALL_STATE..=WAL_SEGMENT_BYTES_MAX).contains(&size));
        }
    }
}

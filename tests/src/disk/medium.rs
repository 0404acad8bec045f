//! A disk with a cache that power loss takes.
//!
//! ```text
//! write ─► pending ──(flush ends)──► durable ──(power comes back)──► what is read
//!             └──(cut)──► a part of it, by the seed ─► durable
//! ```
//! A flush makes durable what had been written when it began; a write that came during it stays
//! pending. Reads see every write that was answered.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::corrupt::rng::Rng;

/// The grain of memory; what is never written takes none.
const BLOCK_BYTES: usize = 4096;
/// What the log's batches begin with. Only a write that does may fail alone: a file system whose
/// own writes were lost one by one could not come back.
const LOG_MAGIC: &[u8] = b"RBWB";
/// What else of the server's begins with: marks and checkpoints. Only its own writes are torn
/// inside a block: xfs takes a block of a directory for whole when it finds a new number at its
/// begin, and ext4 a superblock.
const OTHER_MAGIC: [&[u8]; 2] = [b"RBMK", b"RBCP"];

/// Writes of the log that a lying disk has not made durable.
const LIES: usize = 8;

type Blocks = HashMap<u64, Arc<[u8; BLOCK_BYTES]>>;

/// Why the disk refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `EIO`
    Broken,
    /// `ENOSPC`, as of thin storage that ran out.
    Full,
}

/// What may go wrong while the power is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// One flush fails; what it should have covered stays pending.
    FlushOnce,
    /// Every flush fails from now on, and the log's writes it should have covered are never made
    /// durable. A later flush must not succeed: ext4's own flush at a commit may be the first to
    /// fail, nobody hears of that, and the server would be told that the log is durable.
    FlushesForget,
    /// Every flush fails.
    Flushes,
    /// One write of the log fails and does nothing.
    LogWriteOnce,
    /// Every write fails.
    Writes,
    /// Blocks that were never written cannot be.
    Full,
}

/// How much of what is pending a cut takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All of it.
    Everything,
    /// None.
    Nothing,
    /// What came after some write.
    Tail,
    /// Some writes, in any order.
    Writes,
    /// Some sectors of any writes.
    Sectors,
    /// A part of one write, and with it everything before or after it.
    Torn,
}

const LOSSES: [Loss; 6] =
    [Loss::Everything, Loss::Nothing, Loss::Tail, Loss::Writes, Loss::Sectors, Loss::Torn];

/// What a cut did.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// How it chose.
    pub loss: Loss,
    /// Writes that were pending.
    pub writes: usize,
    /// Sectors of them, or blocks.
    pub sectors: usize,
    /// Those that were lost.
    pub sectors_lost: usize,
    /// When the last flush that ended had begun.
    pub flushed: Option<Instant>,
}

struct Pending {
    serial: u64,
    offset: u64,
    data: Vec<u8>,
}

/// What a flush that has begun will cover.
pub struct Flush {
    before: u64,
    began: Instant,
}

/// The disk.
pub struct Medium {
    size: u64,
    sector_bytes: usize,
    durable: Blocks,
    current: Blocks,
    pending: Vec<Pending>,
    serial: u64,
    flushed: Option<Instant>,
    /// A flush forgot something: what was written before is not durable for a later flush.
    forgot: bool,
    /// No flush covers the newest of the log's writes.
    lying: bool,
    on: bool,
    /// The fault, and how many operations of its kind pass before it.
    fault: Option<(Fault, u64)>,
    fault_fired: bool,
}

impl Medium {
    /// An empty disk. `sector_bytes` is what a cut never tears.
    #[must_use]
    pub fn new(size: u64, sector_bytes: usize) -> Medium {
        Medium {
            size,
            sector_bytes,
            durable: Blocks::new(),
            current: Blocks::new(),
            pending: Vec::new(),
            serial: 0,
            flushed: None,
            forgot: false,
            lying: false,
            on: true,
            fault: None,
            fault_fired: false,
        }
    }

    /// Bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Reads at an offset; what lies beyond the end is not there.
    ///
    /// # Errors
    /// The power is off.
    pub fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Refusal> {
        if !self.on {
            return Err(Refusal::Broken);
        }
        Ok(read(&self.current, offset, size.min(left(self.size, offset))))
    }

    /// Writes at an offset; gives how much there was room for.
    ///
    /// # Errors
    /// The power is off, or a fault.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<usize, Refusal> {
        let data = &data[..data.len().min(left(self.size, offset))];
        if !self.on {
            return Err(Refusal::Broken);
        }
        self.fail_write(offset, data)?;
        store(&mut self.current, offset, data);
        self.serial += 1;
        self.pending.push(Pending { serial: self.serial, offset, data: data.to_vec() });
        Ok(data.len())
    }

    fn fail_write(&mut self, offset: u64, data: &[u8]) -> Result<(), Refusal> {
        let refusal = match self.fault {
            Some((Fault::LogWriteOnce, _)) if data.starts_with(LOG_MAGIC) => Refusal::Broken,
            Some((Fault::Writes, _)) => Refusal::Broken,
            Some((Fault::Full, _)) if !self.has_blocks(offset, data.len()) => Refusal::Full,
            _ => return Ok(()),
        };
        if self.fires() { Err(refusal) } else { Ok(()) }
    }

    fn has_blocks(&self, offset: u64, size: usize) -> bool {
        let last = (offset + size as u64).div_ceil(BLOCK_BYTES as u64);
        (offset / BLOCK_BYTES as u64..last).all(|block| self.current.contains_key(&block))
    }

    /// Counts down to the fault; a fault of one operation is over once it has happened.
    fn fires(&mut self) -> bool {
        let Some((fault, passes)) = &mut self.fault else { return false };
        if *passes > 0 {
            *passes -= 1;
            return false;
        }
        let once = matches!(fault, Fault::FlushOnce | Fault::LogWriteOnce);
        self.fault_fired = true;
        if once {
            self.fault = None;
        }
        true
    }

    /// Begins a flush.
    #[must_use]
    pub fn flush_begins(&self) -> Flush {
        Flush { before: self.serial, began: Instant::now() }
    }

    /// Ends one: what had been written when it began is durable.
    ///
    /// # Errors
    /// The power is off, or a fault.
    pub fn flush_ends(&mut self, flush: &Flush) -> Result<(), Refusal> {
        if !self.on {
            return Err(Refusal::Broken);
        }
        let fault = self.fault.map(|(fault, _)| fault);
        let of_flushes =
            matches!(fault, Some(Fault::FlushOnce | Fault::FlushesForget | Fault::Flushes));
        if of_flushes && self.fires() {
            if fault == Some(Fault::FlushesForget) {
                let covers = |write: &Pending| write.serial <= flush.before;
                self.pending.retain(|write| !covers(write) || !write.data.starts_with(LOG_MAGIC));
                self.forgot = true;
            }
            return Err(Refusal::Broken);
        }
        let covered = self.pending.partition_point(|write| write.serial <= flush.before);
        let later = self.pending.split_off(covered);
        let kept = if self.lying { LIES } else { 0 };
        let of_log = |write: &&Pending| write.data.starts_with(LOG_MAGIC);
        let newest = self.pending.iter().filter(of_log).rev().nth(kept).map(|write| write.serial);
        let mut stay = Vec::new();
        for write in std::mem::replace(&mut self.pending, later) {
            if kept > 0 && of_log(&&write) && newest.is_none_or(|last| write.serial > last) {
                stay.push(write);
            } else {
                store(&mut self.durable, write.offset, &write.data);
            }
        }
        self.pending.splice(0..0, stay);
        if !self.forgot {
            self.flushed = self.flushed.max(Some(flush.began));
        }
        Ok(())
    }

    /// Lets something go wrong after so many operations of its kind.
    pub fn set_fault(&mut self, fault: Fault, passes: u64) {
        self.fault = Some((fault, passes));
        self.fault_fired = false;
    }

    /// From now on it says that all of the log is durable and the newest writes are not.
    pub fn set_lying(&mut self, lying: bool) {
        self.lying = lying;
    }

    /// Whether the fault has happened.
    #[must_use]
    pub fn fault_fired(&self) -> bool {
        self.fault_fired
    }

    /// The fault is over.
    pub fn heal(&mut self) {
        self.fault = None;
    }

    /// The power goes: from now on everything fails, and a part of what was pending is lost.
    pub fn cut(&mut self, rng: &mut Rng) -> Cut {
        self.on = false;
        let pending = std::mem::take(&mut self.pending);
        let loss = pick(&LOSSES, rng);
        let lots = draw(loss, pending.len() as u64, rng);
        let (mut sectors, mut sectors_lost) = (0, 0);
        for (index, write) in pending.iter().enumerate() {
            let index = index as u64;
            let size = if is_ours(&write.data) { self.sector_bytes } else { BLOCK_BYTES };
            let count = write.data.chunks(size).count() as u64;
            let border = lots.border(count);
            for (number, sector) in write.data.chunks(size).enumerate() {
                let number = number as u64;
                sectors += 1;
                if lots.keep(index, number, border, rng) {
                    store(&mut self.durable, write.offset + number * size as u64, sector);
                } else {
                    sectors_lost += 1;
                }
            }
        }
        Cut { loss, writes: pending.len(), sectors, sectors_lost, flushed: self.flushed }
    }

    /// The power is back.
    pub fn restart(&mut self) {
        assert!(self.pending.is_empty(), "what was pending is lost or durable");
        self.current = self.durable.clone();
        self.flushed = None;
        self.forgot = false;
        self.fault = None;
        self.on = true;
    }

    /// Everything that is durable: pieces and where they lie.
    pub fn durable(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.durable.iter().map(|(block, data)| (block * BLOCK_BYTES as u64, &data[..]))
    }
}

/// What a cut decided before it looks at any write.
struct Lots {
    loss: Loss,
    /// The write that matters: the first lost, or the torn.
    at: u64,
    /// Of a torn write: the part kept is its beginning, its end, or any sectors.
    way: u64,
    /// The writes before or after a torn one are kept.
    before: bool,
    after: bool,
    /// Kept of each hundred, where each is drawn.
    kept_percent: u64,
}

fn draw(loss: Loss, writes: u64, rng: &mut Rng) -> Lots {
    // The newest writes are the interesting ones: half of the draws fall on the last few.
    let back = if rng.below(2) == 0 { rng.below(writes.clamp(1, 6)) } else { rng.below(writes) };
    Lots {
        loss,
        at: writes.saturating_sub(1 + back),
        way: rng.below(3),
        before: rng.below(3) > 0,
        after: rng.below(3) == 0,
        kept_percent: [5, 50, 95][usize::try_from(rng.below(3)).unwrap_or(0)],
    }
}

impl Lots {
    /// Where a torn write of so many sectors is torn: a number that only they decide.
    fn border(&self, sectors: u64) -> u64 {
        sectors * (1 + self.kept_percent % 7) / 8
    }

    fn keep(&self, write: u64, sector: u64, border: u64, rng: &mut Rng) -> bool {
        let drawn = |rng: &mut Rng| rng.below(100) < self.kept_percent;
        match self.loss {
            Loss::Everything => false,
            Loss::Nothing => true,
            Loss::Tail => write < self.at,
            // All sectors of a write share a number that its index gives.
            Loss::Writes => {
                Rng::new(write.wrapping_mul(0x9e37).wrapping_add(self.at)).below(100)
                    < self.kept_percent
            }
            Loss::Sectors => drawn(rng),
            Loss::Torn if write < self.at => self.before,
            Loss::Torn if write > self.at => self.after,
            Loss::Torn => match self.way {
                0 => sector < border,
                1 => sector >= border,
                _ => drawn(rng),
            },
        }
    }
}

fn is_ours(data: &[u8]) -> bool {
    data.starts_with(LOG_MAGIC) || OTHER_MAGIC.iter().any(|magic| data.starts_with(magic))
}

/// One of several.
pub fn pick<T: Copy>(of: &[T], rng: &mut Rng) -> T {
    of[usize::try_from(rng.below(of.len() as u64)).unwrap_or(0)]
}

fn left(size: u64, offset: u64) -> usize {
    usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX)
}

fn read(blocks: &Blocks, offset: u64, size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(size);
    while out.len() < size {
        let (block, inside) = place(offset + out.len() as u64);
        let count = (BLOCK_BYTES - inside).min(size - out.len());
        match blocks.get(&block) {
            Some(data) => out.extend_from_slice(&data[inside..inside + count]),
            None => out.resize(out.len() + count, 0),
        }
    }
    out
}

fn store(blocks: &mut Blocks, offset: u64, data: &[u8]) {
    let mut done = 0;
    while done < data.len() {
        let (block, inside) = place(offset + done as u64);
        let count = (BLOCK_BYTES - inside).min(data.len() - done);
        let into = blocks.entry(block).or_insert_with(|| Arc::new([0; BLOCK_BYTES]));
        Arc::make_mut(into)[inside..inside + count].copy_from_slice(&data[done..done + count]);
        done += count;
    }
}

fn place(offset: u64) -> (u64, usize) {
    let inside = usize::try_from(offset % BLOCK_BYTES as u64).unwrap_or(0);
    (offset / BLOCK_BYTES as u64, inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1 << 20;

    fn write(medium: &mut Medium, offset: u64, byte: u8, size: usize) {
        assert_eq!(medium.write(offset, &vec![byte; size]), Ok(size));
    }

    fn flush(medium: &mut Medium) -> Result<(), Refusal> {
        let flush = medium.flush_begins();
        medium.flush_ends(&flush)
    }

    /// What was flushed is there after any cut, and what a cut keeps of the rest is what was
    /// written: no sector holds anything else.
    #[test]
    fn a_cut_takes_only_what_was_not_flushed() {
        let mut losses = Vec::new();
        for seed in 0..200 {
            let (mut medium, mut rng) = (Medium::new(SIZE, 512), Rng::new(seed));
            write(&mut medium, 8192, 1, 8192);
            flush(&mut medium).expect("the power is on");
            write(&mut medium, 12_288, 2, 8192);
            medium.write(40_960, &[LOG_MAGIC, &[3; 4092]].concat()).expect("the power is on");
            let cut = medium.cut(&mut rng);
            losses.push(cut.loss);
            assert_eq!(medium.read(0, 1), Err(Refusal::Broken));
            assert_eq!(medium.write(0, &[1]), Err(Refusal::Broken));
            medium.restart();
            assert_eq!(medium.read(8192, 4096), Ok(vec![1; 4096]));
            let mut lost = 0;
            for (offset, before) in [(12_288, 1), (16_384, 0)] {
                let bytes = medium.read(offset, 4096).expect("the power is on");
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a torn block");
                assert!([before, 2].contains(&bytes[0]));
                lost += usize::from(bytes[0] == before);
            }
            for sector in 0..8 {
                let bytes = medium.read(40_960 + sector * 512, 512).expect("the power is on");
                let bytes = bytes.strip_prefix(LOG_MAGIC).unwrap_or(&bytes);
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a torn sector");
                assert!([0, 3].contains(&bytes[0]));
                lost += usize::from(bytes[0] == 0);
            }
            assert_eq!((cut.writes, cut.sectors, cut.sectors_lost), (2, 10, lost));
        }
        assert!(LOSSES.iter().all(|loss| losses.contains(loss)), "each kind of loss happens");
    }

    /// A flush covers what had been written when it began.
    #[test]
    fn a_write_during_a_flush_is_not_covered() {
        let mut kept = 0;
        for seed in 0..60 {
            let mut medium = Medium::new(SIZE, 512);
            write(&mut medium, 0, 1, 4096);
            let flush = medium.flush_begins();
            write(&mut medium, 4096, 2, 4096);
            medium.flush_ends(&flush).expect("the power is on");
            medium.cut(&mut Rng::new(seed));
            medium.restart();
            assert_eq!(medium.read(0, 4096), Ok(vec![1; 4096]));
            kept += usize::from(medium.read(4096, 4096) == Ok(vec![2; 4096]));
        }
        assert!((1..60).contains(&kept), "kept in {kept} of 60");
    }

    /// A lying disk has made all but the newest writes of the log durable.
    #[test]
    fn a_lying_disk_loses_what_it_said_was_durable() {
        let mut lost_most = 0;
        for seed in 0..20 {
            let mut medium = Medium::new(SIZE, 512);
            medium.set_lying(true);
            for number in 0..20 {
                medium.write(number * 4096, b"RBWB").expect("the power is on");
                assert_eq!(flush(&mut medium), Ok(()));
            }
            medium.cut(&mut Rng::new(seed));
            medium.restart();
            let is_there = |number: &u64| medium.read(number * 4096, 4) == Ok(b"RBWB".to_vec());
            let first = 20 - LIES as u64;
            assert!((0..first).all(|number| is_there(&number)));
            lost_most = lost_most.max((first..20).filter(|number| !is_there(number)).count());
        }
        assert_eq!(lost_most, LIES);
    }

    /// Two flushes at a time: a write that only the second covers is not durable by it when the
    /// first has just failed and forgotten, unless the disk still holds it.
    #[test]
    fn a_flush_that_forgets_makes_no_later_one_a_lie() {
        let mut medium = Medium::new(SIZE, 512);
        medium.set_fault(Fault::FlushesForget, 0);
        medium.write(4096, b"RBWB one").expect("no fault of writes");
        let first = medium.flush_begins();
        medium.write(8192, b"RBWB two").expect("no fault of writes");
        let second = medium.flush_begins();
        assert_eq!(medium.flush_ends(&first), Err(Refusal::Broken));
        assert_eq!(medium.flush_ends(&second), Err(Refusal::Broken), "it covers the first too");
        medium.heal();
        medium.write(12_288, b"RBWB three").expect("no fault of writes");
        assert_eq!(flush(&mut medium), Ok(()));
        medium.cut(&mut Rng::new(1));
        medium.restart();
        assert_eq!(medium.read(4096, 4), Ok(vec![0; 4]), "forgotten");
        assert_eq!(medium.read(8192, 4), Ok(vec![0; 4]), "forgotten");
        assert_eq!(medium.read(12_288, 4), Ok(b"RBWB".to_vec()));
    }

    /// Each fault does what it says, once or for as long as it lasts.
    #[test]
    fn faults_happen_when_they_are_due() {
        let mut medium = Medium::new(SIZE, 512);
        medium.set_fault(Fault::FlushOnce, 1);
        assert_eq!(flush(&mut medium), Ok(()));
        assert!(!medium.fault_fired());
        assert_eq!(flush(&mut medium), Err(Refusal::Broken));
        assert!(medium.fault_fired());
        assert_eq!(flush(&mut medium), Ok(()));

        medium.set_fault(Fault::FlushesForget, 0);
        write(&mut medium, 0, 7, 512);
        medium.write(4096, b"RBWB of the log").expect("no fault of writes");
        assert_eq!(flush(&mut medium), Err(Refusal::Broken));
        assert_eq!(flush(&mut medium), Err(Refusal::Broken), "for as long as it lasts");
        medium.heal();
        assert_eq!(flush(&mut medium), Ok(()));
        assert_eq!(medium.read(4096, 4), Ok(b"RBWB".to_vec()));
        medium.cut(&mut Rng::new(1));
        medium.restart();
        assert_eq!(medium.read(0, 1), Ok(vec![7]));
        assert_eq!(medium.read(4096, 4), Ok(vec![0; 4]), "forgotten");

        medium.set_fault(Fault::LogWriteOnce, 0);
        write(&mut medium, 0, 8, 512);
        assert_eq!(medium.write(8192, b"RBWB"), Err(Refusal::Broken));
        assert_eq!(medium.write(8192, b"RBWB"), Ok(4));

        medium.set_fault(Fault::Full, 0);
        write(&mut medium, 0, 9, 512);
        assert_eq!(medium.write(65_536, &[1]), Err(Refusal::Full));
        medium.heal();
        write(&mut medium, 65_536, 1, 1);
        medium.set_fault(Fault::Writes, 0);
        assert_eq!(medium.write(0, &[1]), Err(Refusal::Broken));
        assert_eq!(medium.write(0, &[1]), Err(Refusal::Broken));
    }
}

//! Rot in every region of a log: below the watermark it refuses to open, names the place and
//! changes nothing; above it the tail is cut.

use std::time::Duration;

use ringbolt_io::sim::{CrashKind, Damage};

use super::{IDENTITY, Rig, directory, entries, open_or_create, tiny};
use crate::types::{MemberId, RaftIndex, Revision, Term};
use crate::wal::format::{BLOCK_BYTES, peek};
use crate::wal::mark::{MARK_FILE, Mark, SLOT_BYTES};
use crate::wal::{Batch, Checkpoint, Identity, Known, Mode, OpenError, Recovered, Writer};

/// A log over several segments. When `idle`, everything in it was marked durable before the power
/// went; else the last batch was not known durable to anybody.
fn rig_with_log(idle: bool) -> Rig {
    let mut rig = Rig::new(30);
    for (first, last) in [(1, 12), (13, 21)] {
        rig.run(move |io| async move {
            let (writer, _) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
            for index in first..=last {
                let ticket = writer.append(entries(index..=index));
                writer.wait_durable(ticket).await.expect("sound");
            }
            if idle {
                io.sleep(Duration::from_secs(1)).await;
            }
        });
        rig.world.crash(rig.machine, CrashKind::Power);
    }
    rig
}

fn mark_of(rig: &Rig) -> Mark {
    let bytes = rig.look(MARK_FILE);
    let marks = bytes.chunks(SLOT_BYTES).filter_map(|slot| Mark::decode(slot).ok()?.ok());
    marks.max_by_key(|mark| mark.serial).expect("one is whole")
}

/// Name and offset of every batch of the log, in order.
fn batches(rig: &Rig) -> Vec<(String, u64, usize)> {
    let mut found = Vec::new();
    for listed in mark_of(rig).segments {
        let name = format!("{:08}.wal", listed.number);
        let bytes = rig.look(&name);
        let mut offset = 0;
        while let Ok(head) = peek(&bytes[offset..]) {
            if head.header.salt != listed.salt {
                break;
            }
            found.push((name.clone(), offset as u64, head.size));
            offset += head.size;
            if offset == bytes.len() {
                break;
            }
        }
    }
    found
}

fn open(rig: &mut Rig) -> Result<Recovered, OpenError> {
    let opened = rig.run_and_kill(|io| async move {
        open_or_create(&io, tiny(Mode::Safe)).await.map(|(_, found)| found)
    });
    opened.expect("nothing crashed it")
}

fn refusal(rig: &mut Rig) -> crate::Corruption {
    match open(rig) {
        Err(OpenError::Corrupt(corruption)) => corruption,
        other => panic!("not refused: {other:?}"),
    }
}

/// Every region of every batch, magic, version, both checksums, each header field, the records and
/// the padding: a flipped bit refuses, with file and offset of the batch, and twice the same way.
#[test]
fn damage_below_the_watermark_refuses() {
    let mut rig = rig_with_log(true);
    let places = batches(&rig);
    assert!(places.len() > 20, "{places:?}");
    let regions = [0, 4, 6, 8, 12, 16, 24, 40, 48, 56, 64, 72, 80, 96, 120, 128, 140, 300, 4095];
    for (count, (name, offset, size)) in places.iter().enumerate() {
        // Every region of some batches, two regions of the others.
        let all = count % 7 == 0 || count + 1 == places.len();
        let from = if all { 0 } else { count % (regions.len() - 1) };
        for region in &regions[from..if all { regions.len() } else { from + 2 }] {
            assert!(region < size);
            let at = offset + *region as u64;
            let path = directory().join(name);
            assert!(rig.world.damage(rig.machine, &path, at, Damage::FlipBit(3)));
            let before: Vec<_> = rig.segments().iter().map(|name| rig.look(name)).collect();
            let corruption = refusal(&mut rig);
            assert_eq!((&corruption.file, corruption.offset), (&path, *offset), "{corruption}");
            assert_eq!(refusal(&mut rig), corruption);
            let after: Vec<_> = rig.segments().iter().map(|name| rig.look(name)).collect();
            assert!(before == after, "nothing was changed");
            // The same bit turned back makes the log whole again.
            assert!(rig.world.damage(rig.machine, &path, at, Damage::FlipBit(3)));
        }
    }
    assert_eq!(open(&mut rig).expect("whole again").entries.len(), 21);
}

/// A batch that reads as zeros is as bad as one with a flipped bit.
#[test]
fn lost_blocks_below_the_watermark_refuse() {
    let places = batches(&rig_with_log(true));
    for (name, offset, _) in places.iter().step_by(4) {
        let mut rig = rig_with_log(true);
        let path = directory().join(name);
        assert!(rig.world.damage(rig.machine, &path, *offset, Damage::ZeroBlock));
        let corruption = refusal(&mut rig);
        assert_eq!((corruption.file, corruption.offset), (path, *offset));
    }
}

/// The last batch, of which nothing says that it was durable, is a torn tail; every other batch is
/// vouched for by the ones behind it.
#[test]
fn damage_above_the_watermark_is_cut() {
    let mut rig = rig_with_log(false);
    let mut places = batches(&rig);
    let (name, offset, _) = places.pop().expect("a log");
    assert!(offset > BLOCK_BYTES as u64, "a start would share the write of the last batch");
    for (name, offset, _) in places {
        let path = directory().join(name);
        assert!(rig.world.damage(rig.machine, &path, offset + 40, Damage::FlipBit(0)));
        assert_eq!(refusal(&mut rig).offset, offset);
        assert!(rig.world.damage(rig.machine, &path, offset + 40, Damage::FlipBit(0)));
    }
    let path = directory().join(name);
    assert!(rig.world.damage(rig.machine, &path, offset + 40, Damage::FlipBit(0)));
    let found = open(&mut rig).expect("a torn tail");
    assert_eq!(found.entries, entries(1..=20).entries);
    let cut = found.cut.expect("it is told");
    assert_eq!((cut.file, cut.offset), (path, offset));
    assert_eq!(open(&mut rig).expect("sound").entries.len(), 20, "and stays cut");
}

/// A listed segment that is missing or of another size is corruption; so is a log without its mark.
#[test]
fn missing_files_refuse() {
    let names = ["00000001.wal", "00000002.wal", MARK_FILE];
    for name in names {
        let mut rig = rig_with_log(true);
        let path = directory().join(name);
        let gone = path.clone();
        rig.run_and_kill(|io| async move { io.disk().remove(&gone).await.expect("it is there") });
        let corruption = refusal(&mut rig);
        assert_eq!(corruption.file, path, "{corruption}");
        let short = path.clone();
        let mut rig = rig_with_log(true);
        rig.run_and_kill(|io| async move {
            let file = io.disk().open(&short, ringbolt_io::OpenHow::LOG).await.expect("there");
            file.truncate(4096).await.expect("it is ours");
            file.sync().await.expect("sound");
        });
        match name {
            MARK_FILE => assert_eq!(open(&mut rig).expect("one slot").entries.len(), 21),
            _ => assert_eq!(refusal(&mut rig).file, path),
        }
    }
}

/// One bad slot of the mark file never loses what a mark promised; two bad slots refuse.
#[test]
fn one_mark_slot_is_enough() {
    for slot in 0..2u64 {
        let mut rig = Rig::new(31);
        rig.run_and_kill(|io| async move {
            let (writer, _) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
            for index in 1..=15 {
                let ticket = writer.append(entries(index..=index));
                writer.wait_durable(ticket).await.expect("sound");
            }
            writer.reserve_revisions(Revision(5)).await.expect("sound");
        });
        let path = directory().join(MARK_FILE);
        let offset = slot * SLOT_BYTES as u64 + 30;
        assert!(rig.world.damage(rig.machine, &path, offset, Damage::FlipBit(1)));
        let found = open(&mut rig).expect("the other slot holds");
        assert_eq!(found.entries.len(), 15);
        assert_eq!(found.revision_ceiling, Revision(1 << 20));
        for slot in 0..2u64 {
            let offset = slot * SLOT_BYTES as u64 + 30;
            assert!(rig.world.damage(rig.machine, &path, offset, Damage::FlipBit(1)));
        }
        assert_eq!(refusal(&mut rig).file, path);
    }
}

/// `accept_loss` cuts at the damage, says so until the fence, and the log is sound from then on.
#[test]
fn accepting_the_loss_is_the_way_out() {
    let places = batches(&rig_with_log(true));
    for (name, offset, _) in places.iter().step_by(5) {
        let mut rig = rig_with_log(true);
        let path = directory().join(name);
        assert!(rig.world.damage(rig.machine, &path, offset + 8, Damage::FlipBit(1)));
        refusal(&mut rig);
        let kept = rig.run_and_kill(|io| async move {
            let (_, found) = Writer::accept_loss(&io, &directory(), tiny(Mode::Safe), &ALONE)
                .await
                .expect("accepted");
            assert!(found.shortened && found.may_have_lost());
            found.entries.len()
        });
        let kept = kept.expect("nothing crashed it");
        assert!(kept < 21);
        rig.run_and_kill(move |io| async move {
            let (writer, found) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
            assert!(found.shortened, "until the fence");
            assert_eq!(found.entries, entries(1..=kept as u64).entries);
            let next = kept as u64 + 1;
            writer.wait_durable(writer.append(entries(next..=next + 30))).await.expect("sound");
            writer.fenced().await.expect("sound");
        });
        let found = open(&mut rig).expect("sound");
        assert!(!found.shortened);
        assert_eq!(found.entries.len(), kept + 31);
    }
}

/// A record that looks like a batch of this very segment, inside an entry, is not one.
#[test]
fn an_entry_that_looks_like_a_batch_is_data() {
    let mut rig = Rig::new(32);
    rig.run_and_kill(|io| async move {
        let (writer, _) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
        writer.wait_durable(writer.append(entries(1..=1))).await.expect("sound");
    });
    let copied = rig.look("00000001.wal")[BLOCK_BYTES..2 * BLOCK_BYTES].to_vec();
    rig.run_and_kill(|io| async move {
        let (writer, _) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
        let mut entry = entries(2..=2).entries.remove(0);
        entry.data = copied[..4_000].to_vec().into();
        let ticket = writer.append(Batch { entries: vec![entry], ..Batch::default() });
        writer.wait_durable(ticket).await.expect("sound");
    });
    assert_eq!(open(&mut rig).expect("sound").entries.len(), 2);
}

fn whose(voted_for: u64) -> Identity {
    Identity { cluster_id: IDENTITY.cluster_id, member_id: MemberId(voted_for) }
}

/// Nobody knows of a checkpoint.
const ALONE: Known<'static> = Known { identity: &whose, checkpoint: None };

/// A log without any whole mark refuses; accepting the loss makes the mark anew from the segments'
/// headers and loses no entry, also when the oldest segment or a recycled one was damaged besides.
#[test]
fn a_lost_mark_is_made_anew_when_loss_is_accepted() {
    for gone in [true, false] {
        let mut rig = rig_with_log(true);
        let path = directory().join(MARK_FILE);
        let place = path.clone();
        rig.run_and_kill(move |io| async move {
            if gone {
                io.disk().remove(&place).await.expect("it is there");
                io.disk().sync_dir(&directory()).await.expect("sound");
            }
        });
        for slot in [0, SLOT_BYTES as u64].into_iter().filter(|_| !gone) {
            assert!(rig.world.damage(rig.machine, &path, slot + 20, Damage::FlipBit(1)));
        }
        let corruption = refusal(&mut rig);
        assert_eq!((&corruption.file, corruption.offset), (&path, 0), "{corruption}");
        rig.run_and_kill(|io| async move {
            let opened = Writer::accept_loss(&io, &directory(), tiny(Mode::Safe), &ALONE).await;
            let (writer, found) = opened.expect("the segments tell everything");
            assert_eq!(found.entries, entries(1..=21).entries);
            assert!(found.shortened && found.revision_ceiling == Revision(0));
            writer.close().await.expect("sound");
        });
        let found = open(&mut rig).expect("whole again");
        assert_eq!(found.entries.len(), 21);
        assert!(found.shortened, "until the fence");
    }
}

/// As above with segments that were released and are used again: their earlier lives are not taken
/// for the log.
#[test]
fn a_lost_mark_is_made_anew_over_recycled_segments() {
    let mut rig = Rig::new(37);
    let (first, last) = rig
        .run_and_kill(|io| async move {
            let (writer, _) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
            for index in 1..=60 {
                writer.wait_durable(writer.append(entries(index..=index))).await.expect("sound");
                if index % 10 == 0 {
                    let (at, file) = (RaftIndex(index), "c".to_owned());
                    let named = Checkpoint { index: at, term: Term(1), root: 1, file };
                    let ticket = writer.mark_snapshot(named);
                    writer.wait_durable(ticket).await.expect("sound");
                    writer.release_before(RaftIndex(index + 1));
                    io.sleep(Duration::from_millis(200)).await;
                }
            }
            (writer.gauges().oldest_index, 60)
        })
        .expect("nothing crashed it");
    assert!(first > RaftIndex(10), "segments were released");
    let path = directory().join(MARK_FILE);
    for slot in [0, SLOT_BYTES as u64] {
        assert!(rig.world.damage(rig.machine, &path, slot + 20, Damage::FlipBit(1)));
    }
    refusal(&mut rig);
    rig.run_and_kill(move |io| async move {
        let opened = Writer::accept_loss(&io, &directory(), tiny(Mode::Safe), &ALONE).await;
        let (_, found) = opened.expect("the segments tell everything");
        assert_eq!(found.checkpoint.map(|named| named.index), Some(RaftIndex(60)));
        assert_eq!(found.entries.last().map(|entry| entry.index), Some(RaftIndex(last)));
    });
}

/// A log whose mark file is gone is never taken for an unfinished one, whatever block of it rotted.
#[test]
fn a_log_without_mark_and_start_is_kept() {
    let mut rig = Rig::new(38);
    rig.run_and_kill(|io| async move {
        let (writer, _) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
        writer.wait_durable(writer.append(entries(1..=3))).await.expect("sound");
        io.disk().remove(&directory().join(MARK_FILE)).await.expect("it is there");
        io.disk().sync_dir(&directory()).await.expect("sound");
    });
    let path = directory().join("00000001.wal");
    assert!(rig.world.damage(rig.machine, &path, 0, Damage::ZeroBlock));
    rig.world.make_file(rig.machine, &directory().join("00000009.wal.partial"), b"begun");
    let names = rig.world.list(rig.machine, &directory());
    let before = rig.look("00000001.wal");
    assert_eq!(refusal(&mut rig).file, directory().join(MARK_FILE));
    assert!(before == rig.look("00000001.wal"), "nothing was changed");
    assert_eq!(rig.world.list(rig.machine, &directory()), names, "nothing was removed");
}

/// A file that was cut right behind what a watermark covers lost an acknowledged batch that nothing
/// vouched for: accepting that is told too, so that no revision is given out twice.
#[test]
fn an_accepted_loss_of_an_unmarked_batch_is_told() {
    let mut rig = rig_with_log(false);
    let (name, offset, _) = batches(&rig).pop().expect("a log");
    let path = directory().join(name);
    rig.run_and_kill(move |io| async move {
        let how = ringbolt_io::OpenHow::LOG;
        let file = io.disk().open(&path, how).await.expect("it is there");
        file.truncate(offset).await.expect("it is ours");
        file.sync().await.expect("sound");
    });
    refusal(&mut rig);
    rig.run_and_kill(|io| async move {
        let opened = Writer::accept_loss(&io, &directory(), tiny(Mode::Safe), &ALONE).await;
        let (_, found) = opened.expect("accepted");
        assert_eq!(found.entries.len(), 20);
        assert!(found.may_have_lost());
    });
}

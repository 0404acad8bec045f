//! Each rule of the disk's fault model, seen through the seam as a replica sees it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::super::{BOOT_ID_PATH, CrashKind, Damage, MachineId, SimConfig, World};
use super::BLOCK_BYTES;
use crate::buffer::AlignedBuffer;
use crate::disk::{Durability, File, OpenHow};
use crate::exec::Io;

const DIRECT: OpenHow = OpenHow { create: true, exclusive: false, write: true, direct: true };
const LONG: Duration = Duration::from_secs(60);

fn world(seed: u64) -> (World, MachineId) {
    let mut world = World::new(seed, SimConfig::default());
    let machine = world.add_machine();
    world.make_dir(machine, "/data".as_ref());
    (world, machine)
}

/// Runs one task in a fresh process and gives what it gives. The process stays alive.
fn run<T: 'static, F>(world: &mut World, machine: MachineId, act: impl FnOnce(Io) -> F) -> T
where
    F: Future<Output = T> + 'static,
{
    if world.is_running(machine) {
        world.crash(machine, CrashKind::Process);
        world.run_for(Duration::from_secs(1));
    }
    let slot = Rc::new(RefCell::new(None));
    let filled = slot.clone();
    world.start(machine, |io| {
        let work = act(io.clone());
        io.spawn("test", async move {
            let value = work.await;
            *filled.borrow_mut() = Some(value);
        });
    });
    assert!(world.run_until(LONG, |_| slot.borrow().is_some()), "the task never ended");
    let value = slot.borrow_mut().take();
    value.expect("filled")
}

fn filled(len: usize, byte: u8) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(len);
    buffer.fill(byte);
    buffer
}

async fn open(io: &Io, path: &str, how: OpenHow) -> File {
    io.disk().open(Path::new(path), how).await.expect("it opens")
}

async fn write(file: &File, offset: u64, byte: u8, how: Durability) -> io::Result<()> {
    file.write_at(filled(BLOCK_BYTES, byte), offset, how).await.0
}

/// A durable file `/data/f` of `blocks` blocks of ones.
fn with_file(world: &mut World, machine: MachineId, blocks: usize) {
    world.make_file(machine, "/data/f".as_ref(), &vec![1; blocks * BLOCK_BYTES]);
}

fn bytes(world: &World, machine: MachineId) -> Vec<u8> {
    world.look(machine, "/data/f".as_ref()).expect("the file is there")
}

/// M2: a durable write survives every loss of power, and takes no earlier write along.
#[test]
fn a_durable_write_makes_only_itself_durable() {
    let mut earlier_lost = 0;
    for seed in 0..50 {
        let (mut world, machine) = world(seed);
        with_file(&mut world, machine, 2);
        run(&mut world, machine, |io| async move {
            let file = open(&io, "/data/f", DIRECT).await;
            write(&file, 0, 2, Durability::System).await.expect("written");
            write(&file, 4096, 3, Durability::Disk).await.expect("written");
        });
        world.crash(machine, CrashKind::Power);
        let bytes = bytes(&world, machine);
        assert!(bytes[4096..].iter().all(|byte| *byte == 3));
        earlier_lost += usize::from(bytes[..4096].contains(&1));
    }
    assert!((10..50).contains(&earlier_lost), "lost {earlier_lost} of 50");
}

/// M2: a sync covers the writes completed before it was submitted, not one in flight beside it.
#[test]
fn a_sync_covers_completed_writes_only() {
    let mut later_lost = false;
    for seed in 0..50 {
        let (mut world, machine) = world(seed);
        with_file(&mut world, machine, 2);
        run(&mut world, machine, |io| async move {
            let file = open(&io, "/data/f", DIRECT).await;
            write(&file, 0, 2, Durability::System).await.expect("written");
            let beside = file.write_at(filled(BLOCK_BYTES, 3), 4096, Durability::System);
            file.sync().await.expect("synced");
            beside.await.0.expect("written");
        });
        world.crash(machine, CrashKind::Power);
        let bytes = bytes(&world, machine);
        assert!(bytes[..4096].iter().all(|byte| *byte == 2));
        later_lost |= bytes[4096..].contains(&1);
    }
    assert!(later_lost, "the write beside the sync always survived");
}

/// M3: kill -9 loses no completed write; one in flight lands, later, or never.
#[test]
fn a_process_crash_keeps_completed_writes() {
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        let (mut world, machine) = world(seed);
        with_file(&mut world, machine, 2);
        world.start(machine, |io| {
            let inner = io.clone();
            io.spawn("writer", async move {
                let file = open(&inner, "/data/f", DIRECT).await;
                write(&file, 0, 2, Durability::System).await.expect("written");
                let _ = write(&file, 4096, 3, Durability::System).await;
            });
        });
        world.crash_after_ops(machine, 3, CrashKind::Process);
        assert!(world.run_until(LONG, |world| !world.is_running(machine)));
        let at_once = bytes(&world, machine);
        assert!(at_once[..4096].iter().all(|byte| *byte == 2));
        assert!(at_once[4096..].iter().all(|byte| *byte == 1), "nothing lands in no time");
        world.run_for(Duration::from_secs(1));
        seen.insert(bytes(&world, machine)[4096]);
    }
    assert_eq!(seen, BTreeSet::from([1, 3]), "it lands in some runs and not in others");
}

/// M3: the lock of a killed process is held until its last write to the file has landed.
#[test]
fn a_lock_outlives_its_process_until_the_file_is_free() {
    let (mut held, mut late) = (0, 0);
    for seed in 0..40 {
        let (mut world, machine) = world(seed);
        with_file(&mut world, machine, 1);
        world.start(machine, |io| {
            let inner = io.clone();
            io.spawn("holder", async move {
                let file = open(&inner, "/data/f", DIRECT).await;
                file.lock().await.expect("nobody else holds it");
                let _ = write(&file, 0, 9, Durability::Disk).await;
            });
        });
        world.crash_after_ops(machine, 3, CrashKind::Process);
        assert!(world.run_until(LONG, |world| !world.is_running(machine)));
        let (waited, seen) = run(&mut world, machine, |io| async move {
            let file = open(&io, "/data/f", DIRECT).await;
            let mut waited = false;
            while let Err(error) = file.lock().await {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                waited = true;
                io.sleep(Duration::from_millis(1)).await;
            }
            let (count, buffer) = file.read_at(AlignedBuffer::zeroed(BLOCK_BYTES), 0).await;
            count.expect("read");
            (waited, buffer[0])
        });
        assert_eq!(bytes(&world, machine)[0], seen, "a write landed after the lock was free");
        held += usize::from(waited);
        late += usize::from(seen == 9);
    }
    assert!(held > 0 && late > 0 && late < 40, "held {held}, late {late}");
}

/// A lock belongs to one open file: a second one in the same process is refused.
#[test]
fn a_lock_is_exclusive_and_ends_with_its_file() {
    let (mut world, machine) = world(1);
    with_file(&mut world, machine, 1);
    run(&mut world, machine, |io| async move {
        let one = open(&io, "/data/f", OpenHow::READ).await;
        let two = open(&io, "/data/f", OpenHow::READ).await;
        one.lock().await.expect("free");
        one.lock().await.expect("its own");
        assert_eq!(two.lock().await.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(one);
        two.lock().await.expect("free again");
    });
}

/// M4: sectors of one write are lost, kept and torn each by itself, at the size of a sector.
#[test]
fn power_loss_takes_each_sector_by_itself() {
    for sector in [512, 4096] {
        let (mut lost, mut kept, mut torn, mut mixed) = (0, 0, 0, 0);
        for seed in 0..200 {
            let config = SimConfig { sector_bytes: sector, ..SimConfig::default() };
            let mut world = World::new(seed, config);
            let machine = world.add_machine();
            world.make_dir(machine, "/data".as_ref());
            with_file(&mut world, machine, 2);
            run(&mut world, machine, |io| async move {
                let file = open(&io, "/data/f", DIRECT).await;
                let buffer = filled(2 * BLOCK_BYTES, 2);
                file.write_at(buffer, 0, Durability::System).await.0.expect("written");
            });
            world.crash(machine, CrashKind::Power);
            let bytes = bytes(&world, machine);
            let sectors: Vec<(bool, bool)> =
                bytes.chunks(sector).map(|part| (part.contains(&1), part.contains(&2))).collect();
            lost += sectors.iter().filter(|kinds| **kinds == (true, false)).count();
            kept += sectors.iter().filter(|kinds| **kinds == (false, true)).count();
            torn += sectors.iter().filter(|kinds| **kinds == (true, true)).count();
            mixed += usize::from(sectors.iter().collect::<BTreeSet<_>>().len() > 1);
        }
        assert!(lost > 10 && kept > 10 && torn > 3 && mixed > 10, "{lost} {kept} {torn} {mixed}");
    }
}

/// M4: what was overwritten before it was durable may be what is left.
#[test]
fn power_loss_may_leave_a_version_in_between() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let (mut world, machine) = world(seed);
        with_file(&mut world, machine, 1);
        run(&mut world, machine, |io| async move {
            let file = open(&io, "/data/f", DIRECT).await;
            write(&file, 0, 2, Durability::System).await.expect("written");
            write(&file, 0, 3, Durability::System).await.expect("written");
        });
        world.crash(machine, CrashKind::Power);
        seen.extend(bytes(&world, machine));
    }
    assert_eq!(seen, BTreeSet::from([1, 2, 3]));
}

/// M4: a durable write in flight when the power goes is as uncertain as any other.
#[test]
fn power_loss_catches_a_durable_write_in_flight() {
    let mut seen = BTreeSet::new();
    for seed in 0..60 {
        let (mut world, machine) = world(seed);
        with_file(&mut world, machine, 1);
        world.start(machine, |io| {
            let inner = io.clone();
            io.spawn("writer", async move {
                let file = open(&inner, "/data/f", DIRECT).await;
                let _ = write(&file, 0, 2, Durability::Disk).await;
            });
        });
        world.crash_after_ops(machine, 2, CrashKind::Power);
        assert!(world.run_until(LONG, |world| !world.is_running(machine)));
        seen.extend(bytes(&world, machine));
    }
    assert_eq!(seen, BTreeSet::from([1, 2]));
}

/// M5: a name is durable after a sync of its directory and not surely before; content that was
/// made durable does not make the name durable.
#[test]
fn names_are_durable_only_after_sync_dir() {
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..60 {
        let (mut world, machine) = world(seed);
        run(&mut world, machine, |io| async move {
            for (name, synced) in [("a", true), ("b", false)] {
                let file = open(&io, &format!("/data/{name}"), DIRECT).await;
                write(&file, 0, 5, Durability::Disk).await.expect("written");
                if synced {
                    io.disk().sync_dir("/data".as_ref()).await.expect("synced");
                }
            }
        });
        world.crash(machine, CrashKind::Power);
        let names = world.list(machine, "/data".as_ref());
        assert!(names.contains(&"a".to_owned()));
        match names.contains(&"b".to_owned()) {
            true => kept += 1,
            false => lost += 1,
        }
    }
    assert!(lost > 5 && kept > 5, "lost {lost}, kept {kept}");
}

/// M5: a rename that is not durable leaves the target as it was or as it will be, never torn, and a
/// removed file may come back with its content.
#[test]
fn renames_are_whole_and_removals_may_come_back() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let (mut world, machine) = world(seed);
        for (name, byte) in [("old", 1u8), ("new", 2), ("gone", 3)] {
            world.make_file(machine, &PathBuf::from("/data").join(name), &[byte; 10]);
        }
        run(&mut world, machine, |io| async move {
            let disk = io.disk();
            disk.rename("/data/new".as_ref(), "/data/old".as_ref()).await.expect("renamed");
            disk.remove("/data/gone".as_ref()).await.expect("removed");
            assert_eq!(disk.size("/data/gone".as_ref()).await.expect("asked"), None);
        });
        world.crash(machine, CrashKind::Power);
        let first = |name: &str| {
            let bytes = world.look(machine, &PathBuf::from("/data").join(name));
            bytes.map(|bytes| bytes[0])
        };
        let state = (first("old"), first("new"), first("gone"));
        assert!(matches!(state.0, Some(1) if state.1 == Some(2)) || state.0 == Some(2));
        seen.insert(state);
    }
    assert_eq!(seen.len(), 4, "each of the two changes survives or not: {seen:?}");
}

/// M5: a directory whose own name was never synced takes everything in it along.
#[test]
fn a_directory_without_a_durable_name_is_lost_whole() {
    let mut lost = 0;
    for seed in 0..40 {
        let (mut world, machine) = world(seed);
        run(&mut world, machine, |io| async move {
            io.disk().create_dir_all("/data/sub".as_ref()).await.expect("made");
            let file = open(&io, "/data/sub/f", DIRECT).await;
            write(&file, 0, 5, Durability::Disk).await.expect("written");
            io.disk().sync_dir("/data/sub".as_ref()).await.expect("synced");
        });
        world.crash(machine, CrashKind::Power);
        let there = world.look(machine, "/data/sub/f".as_ref()).is_some();
        lost += usize::from(!there);
        assert_eq!(there, !world.list(machine, "/data".as_ref()).is_empty());
    }
    assert!((5..40).contains(&lost), "lost {lost} of 40");
}

/// Sizes: a write behind the end makes the file longer, a truncate cuts what is then read as zeros,
/// reads are short at the end.
#[test]
fn truncate_grow_and_short_reads() {
    let (mut world, machine) = world(3);
    with_file(&mut world, machine, 2);
    run(&mut world, machine, |io| async move {
        let file = open(&io, "/data/f", OpenHow::CREATE).await;
        assert_eq!(file.size_at_open(), 8192);
        file.truncate(5000).await.expect("cut");
        let (count, buffer) = file.read_at(AlignedBuffer::zeroed(8192), 4096).await;
        assert_eq!((count.expect("read"), buffer[903], buffer[904]), (904, 1, 0));
        file.truncate(6000).await.expect("grown");
        let (count, buffer) = file.read_at(AlignedBuffer::zeroed(8192), 4990).await;
        assert_eq!((count.expect("read"), buffer[9], buffer[10]), (1010, 1, 0));
        let mut tail = AlignedBuffer::zeroed(10);
        tail.fill(7);
        file.write_at(tail, 9000, Durability::System).await.0.expect("written");
        assert_eq!(io.disk().size("/data/f".as_ref()).await.expect("asked"), Some(9010));
        let (count, _) = file.read_at(AlignedBuffer::zeroed(100), 9010).await;
        assert_eq!(count.expect("read"), 0);
    });
}

/// M5: a truncate that was not synced may be undone by a loss of power, with what it had cut.
#[test]
fn a_truncate_is_durable_only_after_a_sync() {
    for synced in [false, true] {
        let mut sizes = BTreeSet::new();
        for seed in 0..60 {
            let (mut world, machine) = world(seed);
            with_file(&mut world, machine, 2);
            run(&mut world, machine, |io| async move {
                let file = open(&io, "/data/f", OpenHow::CREATE).await;
                file.truncate(4096).await.expect("cut");
                if synced {
                    file.sync().await.expect("synced");
                }
            });
            world.crash(machine, CrashKind::Power);
            sizes.insert(bytes(&world, machine).len());
        }
        let expected = if synced { BTreeSet::from([4096]) } else { BTreeSet::from([4096, 8192]) };
        assert_eq!(sizes, expected);
    }
}

/// M6: a full disk refuses what needs room and still takes what does not; removing gives room back.
#[test]
fn a_full_disk_refuses_growth_only() {
    let (mut world, machine) = world(4);
    with_file(&mut world, machine, 2);
    world.disk_faults(machine, |faults| faults.capacity_bytes = Some(4 * 4096));
    run(&mut world, machine, |io| async move {
        let file = open(&io, "/data/g", DIRECT).await;
        write(&file, 0, 1, Durability::Disk).await.expect("the last free block");
        let full = write(&file, 4096, 1, Durability::Disk).await.unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        write(&file, 0, 2, Durability::Disk).await.expect("no new block");
        assert_eq!(io.disk().free_bytes("/data".as_ref()).await.expect("asked"), 0);
        io.disk().remove("/data/f".as_ref()).await.expect("removed");
        io.disk().sync_dir("/data".as_ref()).await.expect("synced");
        write(&file, 4096, 1, Durability::Disk).await.expect("room again");
    });
}

/// M6: what a failed sync should have covered is not made durable by the next sync.
#[test]
fn a_failed_sync_is_not_made_good_by_the_next() {
    let mut lost = 0;
    for seed in 0..60 {
        let (mut world, machine) = world(seed);
        with_file(&mut world, machine, 1);
        world.disk_faults(machine, |faults| faults.fail_after = Some(1));
        run(&mut world, machine, |io| async move {
            let file = open(&io, "/data/f", DIRECT).await;
            write(&file, 0, 2, Durability::System).await.expect("written");
            file.sync().await.expect_err("the second change call fails");
            file.sync().await.expect("and the third says all is well");
        });
        assert!(bytes(&world, machine).iter().all(|byte| *byte == 2), "the cache still shows it");
        world.crash(machine, CrashKind::Power);
        lost += usize::from(bytes(&world, machine).contains(&1));
    }
    assert!((5..60).contains(&lost), "lost {lost} of 60");
}

/// M6: a failed write says so, and may have changed the front of what it was given.
#[test]
fn a_failed_write_leaves_any_part_of_itself() {
    let mut landed = BTreeSet::new();
    for seed in 0..60 {
        let (mut world, machine) = world(seed);
        with_file(&mut world, machine, 2);
        world.disk_faults(machine, |faults| faults.write_error_ppm = 1_000_000);
        run(&mut world, machine, |io| async move {
            let file = open(&io, "/data/f", DIRECT).await;
            let buffer = filled(2 * BLOCK_BYTES, 2);
            file.write_at(buffer, 0, Durability::Disk).await.0.expect_err("it fails");
        });
        let bytes = bytes(&world, machine);
        landed.insert(bytes.iter().filter(|byte| **byte == 2).count());
    }
    assert_eq!(landed, BTreeSet::from([0, 4096, 8192]));
}

/// M6: failed reads, slow operations and misdirected writes happen when they are switched on.
#[test]
fn reads_fail_operations_crawl_and_writes_go_astray() {
    let (mut world, machine) = world(5);
    with_file(&mut world, machine, 64);
    world.disk_faults(machine, |faults| faults.read_error_ppm = 1_000_000);
    run(&mut world, machine, |io| async move {
        let file = open(&io, "/data/f", DIRECT).await;
        file.read_at(AlignedBuffer::zeroed(4096), 0).await.0.expect_err("it fails");
    });
    world.disk_faults(machine, |faults| {
        faults.read_error_ppm = 0;
        (faults.slow_ppm, faults.slow_us) = (1_000_000, (3_000_000, 3_000_000));
    });
    let before = world.now();
    run(&mut world, machine, |io| async move { open(&io, "/data/f", DIRECT).await.is_direct() });
    assert!(world.now() - before >= Duration::from_secs(3));
    world.disk_faults(machine, |faults| (faults.slow_ppm, faults.misdirect_ppm) = (0, 1_000_000));
    run(&mut world, machine, |io| async move {
        let file = open(&io, "/data/f", DIRECT).await;
        write(&file, 0, 9, Durability::Disk).await.expect("so it says");
    });
    let bytes = bytes(&world, machine);
    let place = bytes.iter().position(|byte| *byte == 9).expect("it landed somewhere");
    assert!(place > 0 && place.is_multiple_of(4096));
}

/// M6: rot shows in the next read and survives everything.
#[test]
fn damage_is_what_reads_see() {
    let (mut world, machine) = world(6);
    with_file(&mut world, machine, 3);
    let path = Path::new("/data/f");
    assert!(world.damage(machine, path, 5, Damage::FlipBit(1)));
    assert!(world.damage(machine, path, 5000, Damage::ZeroBlock));
    assert!(!world.damage(machine, path, 3 * 4096, Damage::ZeroBlock), "behind the end");
    world.crash(machine, CrashKind::Power);
    let bytes = bytes(&world, machine);
    assert_eq!((bytes[4], bytes[5], bytes[6]), (1, 3, 1));
    assert!(bytes[4096..8192].iter().all(|byte| *byte == 0));
    assert!(bytes[8192..].iter().all(|byte| *byte == 1));
}

/// M7: direct I/O of half a block is our own bug.
#[test]
#[should_panic(expected = "direct I/O")]
fn unaligned_direct_io_panics() {
    let (mut world, machine) = world(7);
    with_file(&mut world, machine, 1);
    run(&mut world, machine, |io| async move {
        let file = open(&io, "/data/f", DIRECT).await;
        file.write_at(filled(BLOCK_BYTES, 1), 512, Durability::Disk).await.0.expect("never");
    });
}

/// M8: the boot id stays over a process crash and changes with the power; the file has no size
/// until it is read, as in procfs.
#[test]
fn the_boot_id_tells_boots_apart() {
    let (mut world, machine) = world(8);
    let path = Path::new(BOOT_ID_PATH);
    let first = run(&mut world, machine, |io| async move {
        let file = io.disk().open(path, OpenHow::READ).await.expect("it opens");
        assert_eq!(file.size_at_open(), 0);
        let (count, buffer) = file.read_at(AlignedBuffer::zeroed(64), 0).await;
        buffer[..count.expect("read")].to_vec()
    });
    assert_eq!((first.len(), first[36]), (37, b'\n'));
    world.crash(machine, CrashKind::Process);
    assert_eq!(world.look(machine, path).expect("there"), first);
    world.crash(machine, CrashKind::Power);
    assert_ne!(world.look(machine, path).expect("there"), first);
}

/// Opening: what is missing, what is there already, what is a directory.
#[test]
fn opening_errors_are_the_systems() {
    let (mut world, machine) = world(9);
    with_file(&mut world, machine, 1);
    run(&mut world, machine, |io| async move {
        let disk = io.disk();
        let kind = |result: io::Result<File>| result.map(|_| ()).unwrap_err().kind();
        let fresh = OpenHow { exclusive: true, ..OpenHow::CREATE };
        assert_eq!(
            kind(disk.open("/data/x".as_ref(), OpenHow::READ).await),
            io::ErrorKind::NotFound
        );
        assert_eq!(kind(disk.open("/data/f".as_ref(), fresh).await), io::ErrorKind::AlreadyExists);
        assert_eq!(
            kind(disk.open("/data".as_ref(), OpenHow::READ).await),
            io::ErrorKind::IsADirectory
        );
        assert_eq!(kind(disk.open("/no/x".as_ref(), fresh).await), io::ErrorKind::NotFound);
        assert_eq!(
            disk.read_dir("/no".as_ref()).await.unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert_eq!(disk.read_dir("/data".as_ref()).await.expect("listed"), ["f"]);
    });
}

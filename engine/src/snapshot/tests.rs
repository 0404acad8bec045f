//! Checkpoints over a simulated disk: what is written is read, what is damaged is named, and a
//! crash at any operation leaves either the old file or a whole new one.

use std::cell::RefCell;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use ringbolt_io::Io;
use ringbolt_io::sim::{CrashKind, Damage, MachineId, SimConfig, World};

use super::format::{Head, Section};
use super::{LoadError, Writer, Written, clean, list, load};
use crate::limits::CHECKPOINT_CHUNK_BYTES_MAX;
use crate::types::{ClusterId, RaftIndex, Revision, Term};

const HEAD: Head = Head {
    cluster_id: ClusterId(0x11),
    index: RaftIndex(0x12),
    term: Term(0x13),
    revision: Revision(0x14),
    compacted: Revision::NEVER,
};

type Pieces = Vec<(Section, Vec<u8>)>;

struct Rig {
    world: World,
    machine: MachineId,
}

impl Rig {
    fn new(seed: u64) -> Rig {
        let config = SimConfig { trace_contents: false, ..SimConfig::default() };
        let mut world = World::new(seed, config);
        let machine = world.add_machine();
        world.make_dir(machine, &directory());
        Rig { world, machine }
    }

    /// Runs a process until `main` ends or the process crashes (`None`); it is killed then.
    fn run<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        main: impl FnOnce(Io) -> F,
    ) -> Option<T> {
        let slot = Rc::new(RefCell::new(None));
        let filled = slot.clone();
        self.world.start(self.machine, |io| {
            let future = main(io.clone());
            io.spawn("test", async move {
                let value = future.await;
                *filled.borrow_mut() = Some(value);
            });
        });
        let machine = self.machine;
        let ended = self.world.run_until(Duration::from_secs(60), |world| {
            slot.borrow().is_some() || !world.is_running(machine)
        });
        assert!(ended, "a process that never ends");
        if self.world.is_running(machine) {
            self.world.crash(machine, CrashKind::Process);
        }
        slot.borrow_mut().take()
    }
}

fn directory() -> PathBuf {
    PathBuf::from("/data")
}

fn pieces() -> Pieces {
    let large = vec![7; 2 * CHECKPOINT_CHUNK_BYTES_MAX + 5];
    let exact = vec![8; CHECKPOINT_CHUNK_BYTES_MAX];
    let mvcc = [b"first".to_vec(), Vec::new(), large, exact];
    let mut pieces: Pieces = mvcc.into_iter().map(|piece| (Section::Mvcc, piece)).collect();
    pieces.push((Section::Rest, b"the rest".to_vec()));
    pieces
}

fn few_pieces() -> Pieces {
    vec![(Section::Mvcc, vec![3; 5_000]), (Section::Rest, b"the rest".to_vec())]
}

async fn write(io: &Io, head: Head, pieces: &Pieces) -> std::io::Result<Written> {
    let mut writer = Writer::create(io, &directory(), head, None).await?;
    for (section, piece) in pieces {
        writer.piece(*section, piece).await?;
    }
    writer.finish().await
}

async fn read(io: &Io, file: &str, root: Option<u64>) -> Result<(Head, Pieces), LoadError> {
    let mut pieces = Pieces::new();
    let consume = |section, piece: &[u8]| {
        pieces.push((section, piece.to_vec()));
        Ok(())
    };
    let head = load(io, &directory(), file, root, consume).await?;
    Ok((head, pieces))
}

/// The bytes of a small checkpoint, field by field as they are drawn.
#[test]
fn golden() {
    let mut rig = Rig::new(1);
    let written = rig.run(|io| async move {
        write(&io, HEAD, &vec![(Section::Rest, b"data".to_vec())]).await.expect("room")
    });
    let written = written.expect("nothing crashed it");
    let bytes = rig.world.look(rig.machine, &directory().join(&written.file)).expect("there");
    let mut drawn = b"RBCP\x01\x00\x00\x00".to_vec();
    drawn.extend_from_slice(&GOLDEN_HEAD_CHECKSUM.to_le_bytes());
    drawn.extend_from_slice(&[0; 4]);
    for number in [0x11, 0x12, 0x13, 0x14, u64::MAX, 0] {
        drawn.extend_from_slice(&number.to_le_bytes());
    }
    drawn.extend_from_slice(&[2, 0, 0, 0, 4, 0, 0, 0]);
    drawn.extend_from_slice(&GOLDEN_CHUNK_CHECKSUM.to_le_bytes());
    drawn.extend_from_slice(b"data");
    drawn.extend_from_slice(&[255, 0, 0, 0, 24, 0, 0, 0]);
    drawn.extend_from_slice(&GOLDEN_END_CHECKSUM.to_le_bytes());
    for number in [1, 4, GOLDEN_ROOT] {
        drawn.extend_from_slice(&number.to_le_bytes());
    }
    assert_eq!(bytes, drawn);
    assert_eq!((written.root, written.bytes), (GOLDEN_ROOT, drawn.len() as u64));
}

const GOLDEN_HEAD_CHECKSUM: u32 = 0x1b19_1f28;
const GOLDEN_CHUNK_CHECKSUM: u32 = 0x9f13_7a75;
const GOLDEN_END_CHECKSUM: u32 = 0xfefd_335c;
const GOLDEN_ROOT: u64 = 0xa442_93b6_87ba_67c9;

/// Pieces come back as they went in, however large, whatever crash follows.
#[test]
fn what_is_written_is_read() {
    let mut rig = Rig::new(2);
    let written = rig.run(|io| async move { write(&io, HEAD, &pieces()).await.expect("room") });
    let written = written.expect("nothing crashed it");
    rig.world.crash(rig.machine, CrashKind::Power);
    rig.run(|io| async move {
        let listed = list(&io, &directory()).await.expect("readable");
        assert_eq!(listed, vec![(HEAD.index, written.file.clone())]);
        let (head, read) = read(&io, &written.file, Some(written.root)).await.expect("whole");
        assert_eq!(head, HEAD);
        assert!(read == pieces(), "the same pieces");
    });
}

/// A flipped bit in every byte of a small file, and a cut at every length, are found; the error
/// names the place. Another root hash than the log's is found too.
#[test]
fn every_damage_is_found() {
    let mut rig = Rig::new(3);
    let small = vec![(Section::Mvcc, b"some".to_vec()), (Section::Rest, b"data".to_vec())];
    let written = rig.run(|io| async move { write(&io, HEAD, &small).await.expect("room") });
    let written = written.expect("nothing crashed it");
    let path = directory().join(&written.file);
    let whole = rig.world.look(rig.machine, &path).expect("there");
    let chunk_starts = [0, 64, 80, 96];
    for at in 0..whole.len() as u64 {
        assert!(rig.world.damage(rig.machine, &path, at, Damage::FlipBit(2)));
        let (file, root) = (written.file.clone(), written.root);
        let error = rig.run(|io| async move { read(&io, &file, Some(root)).await.err() });
        let error = error.expect("nothing crashed it").expect("noticed");
        let LoadError::Corrupt(corruption) = error else { panic!("{error}") };
        let start = chunk_starts.iter().rev().find(|start| **start <= at).expect("the head");
        assert_eq!(corruption.file, path);
        let within = corruption.offset >= *start;
        assert!(within, "byte {at}: {corruption}");
        assert!(rig.world.damage(rig.machine, &path, at, Damage::FlipBit(2)));
    }
    for len in [0, 1, 63, 64, 70, 79, 80, 90, 96, 100, whole.len() - 1, whole.len() + 1] {
        let mut cut = whole.clone();
        cut.resize(len, 0);
        rig.world.make_file(rig.machine, &path, &cut);
        let (file, root) = (written.file.clone(), written.root);
        let error = rig.run(|io| async move { read(&io, &file, Some(root)).await.err() });
        let error = error.expect("nothing crashed it");
        assert!(matches!(error, Some(LoadError::Corrupt(_))), "{len} bytes: {error:?}");
    }
    rig.world.make_file(rig.machine, &path, &whole);
    rig.run(|io| async move {
        read(&io, &written.file, Some(written.root)).await.expect("whole");
        read(&io, &written.file, None).await.expect("whole");
        let other = read(&io, &written.file, Some(written.root ^ 1)).await;
        assert!(matches!(other, Err(LoadError::Corrupt(_))));
        let missing = read(&io, "no.checkpoint", None).await;
        assert!(matches!(missing, Err(LoadError::Corrupt(_))));
        let refused = load(&io, &directory(), &written.file, None, |_, _| Err("no".into())).await;
        assert!(refused.expect_err("refused").to_string().contains("no, expected"));
    });
}

/// Fails or crashes at the n-th operation, n = 1, 2, 3 …: the checkpoint before stays whole, a new
/// one that is listed is whole, and what was not finished is cleaned up.
#[test]
fn a_crash_at_every_operation_leaves_whole_files() {
    let mut names = std::collections::BTreeSet::new();
    for n in 1.. {
        let mut rig = Rig::new(40 + n);
        let old = rig.run(|io| async move { write(&io, HEAD, &few_pieces()).await.expect("room") });
        let old = old.expect("nothing crashed it");
        let kind = if n % 2 == 0 { CrashKind::Power } else { CrashKind::Process };
        rig.world.crash_after_ops(rig.machine, n, kind);
        let next = Head { index: RaftIndex(99), ..HEAD };
        let new = rig.run(|io| async move { write(&io, next, &few_pieces()).await.expect("room") });
        let known = new.clone();
        let file = old.file.clone();
        let listed = rig.run(move |io| async move {
            let (head, _) = read(&io, &old.file, Some(old.root)).await.expect("the old one");
            assert_eq!(head, HEAD);
            let listed = list(&io, &directory()).await.expect("readable");
            for (index, file) in &listed {
                let (head, found) = read(&io, file, None).await.expect("listed, so whole");
                assert_eq!((head.index, found == few_pieces()), (*index, true));
            }
            if let Some(new) = &known {
                read(&io, &new.file, Some(new.root)).await.expect("finished, so durable");
            }
            clean(&io, &directory(), Some(&old.file)).await.expect("writable");
            listed
        });
        assert!(listed.expect("nothing crashed it").len() > usize::from(new.is_some()));
        rig.world.crash(rig.machine, CrashKind::Power);
        assert_eq!(rig.world.list(rig.machine, Path::new("/data")), vec![file.clone()]);
        assert!(names.insert(file), "S2: a name is never used twice");
        if new.is_some() {
            assert!(n > 4, "only {n} operations");
            break;
        }
    }
}

/// A failed write gives the checkpoint up and nothing else.
#[test]
fn a_full_disk_gives_the_checkpoint_up() {
    let mut rig = Rig::new(5);
    rig.world.disk_faults(rig.machine, |faults| faults.capacity_bytes = Some(64 * 1024));
    rig.run(|io| async move {
        let kept = write(&io, HEAD, &few_pieces()).await.expect("room");
        let mut writer =
            Writer::create(&io, &directory(), HEAD, None).await.expect("room for a head");
        let full = writer.piece(Section::Mvcc, &vec![1; 1 << 20]).await;
        assert_eq!(full.expect_err("no room").kind(), std::io::ErrorKind::StorageFull);
        writer.discard().await.expect("it can be removed");
        assert_eq!(
            list(&io, &directory()).await.expect("readable"),
            vec![(HEAD.index, kept.file.clone())]
        );
        assert_eq!(clean(&io, &directory(), Some(&kept.file)).await.expect("writable"), 0);
        read(&io, &kept.file, Some(kept.root)).await.expect("whole");
    });
}

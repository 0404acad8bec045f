//! One log through opens, closes and failures, rule by rule.

use std::time::Duration;

use ringbolt_io::sim::CrashKind;

use super::{IDENTITY, Rig, directory, entries, hard_state, open_or_create, tiny};
use crate::types::{RaftIndex, Revision, Term};
use crate::wal::{Batch, Checkpoint, Mode, OpenError, Ticket, WalConfig, Writer};

/// W3: with K batches in flight what comes gathers, and then goes out together.
#[test]
fn gathers_while_k_are_in_flight() {
    let mut rig = Rig::new(1);
    rig.run(|io| async move {
        let config = WalConfig { batches_in_flight_max: 2, ..tiny(Mode::Safe) };
        let (writer, _) = open_or_create(&io, config).await.expect("sound");
        let tickets: Vec<Ticket> = (1..=6).map(|n| writer.append(entries(n..=n))).collect();
        assert_eq!(tickets, (1..=6).map(Ticket).collect::<Vec<_>>());
        let gauges = writer.gauges();
        assert_eq!((gauges.batches_in_flight, gauges.durable_lag), (2, 6));
        assert_eq!(gauges.waiting_bytes, 4 * 124, "four entries wait");
        writer.wait_durable(Ticket(3)).await.expect("sound");
        assert!(writer.durable() == Ticket(6), "what had gathered went out as one batch");
        assert_eq!(writer.gauges().durable_lag, 0);
    });
}

/// A commit alone costs no write; the next batch carries it. Recovery clamps it.
#[test]
fn a_commit_alone_waits() {
    let mut rig = Rig::new(2);
    rig.run_and_kill(|io| async move {
        let (writer, _) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
        let state = Some(hard_state(1, 1, 0));
        let first = writer.append(Batch { hard_state: state, ..entries(1..=2) });
        writer.wait_durable(first).await.expect("sound");
        let state = Some(hard_state(1, 1, 2));
        let again = writer.append(Batch { hard_state: state, ..Batch::default() });
        assert_eq!(again, first, "nothing of its own to wait for");
        assert_eq!(writer.gauges().batches_in_flight, 0);
        let state = Some(hard_state(1, 1, 9));
        let next = writer.append(Batch { hard_state: state, ..entries(3..=3) });
        writer.wait_durable(next).await.expect("sound");
    });
    rig.run(|io| async move {
        let (_, found) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
        assert_eq!(found.hard_state, hard_state(1, 1, 3));
    });
}

/// W6: recovery leaves every byte of the old segment alone and goes on in another; a log that was
/// closed goes on where it ended.
#[test]
fn goes_on_in_a_fresh_segment_unless_closed() {
    let mut rig = Rig::new(3);
    rig.run_and_kill(|io| async move {
        let (writer, _) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
        writer.wait_durable(writer.append(entries(1..=3))).await.expect("sound");
    });
    let before = rig.look("00000001.wal");
    rig.run(|io| async move {
        let (writer, found) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
        assert_eq!((found.clean, found.incarnation), (false, 2));
        writer.wait_durable(writer.append(entries(4..=4))).await.expect("sound");
        assert_eq!(writer.gauges().segments, 2);
        writer.close().await.expect("sound");
    });
    assert!(rig.look("00000001.wal") == before, "the old segment was not touched");
    rig.world.crash(rig.machine, CrashKind::Power);
    rig.run(|io| async move {
        let (writer, found) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
        assert_eq!((found.clean, found.incarnation), (true, 3));
        assert!(!found.may_have_lost());
        writer.wait_durable(writer.append(entries(5..=5))).await.expect("sound");
        assert_eq!(writer.gauges().segments, 2, "no segment was given away");
    });
    rig.world.crash(rig.machine, CrashKind::Power);
    rig.run(|io| async move {
        let (_, found) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
        assert_eq!(found.entries, entries(1..=5).entries);
    });
}

/// `NoFsync` loses at most what the interval covers, and never a vote.
#[test]
fn no_fsync_flushes_within_the_interval_and_votes_at_once() {
    for wait_ms in [0, 100] {
        let mut rig = Rig::new(4 + wait_ms);
        rig.run(move |io| async move {
            let (writer, _) = open_or_create(&io, tiny(Mode::NoFsync)).await.expect("sound");
            let state = Some(hard_state(3, 2, 0));
            let vote = writer.append(Batch { hard_state: state, ..entries(1..=1) });
            writer.wait_durable(vote).await.expect("sound");
            writer.wait_durable(writer.append(entries(2..=2))).await.expect("sound");
            io.sleep(Duration::from_millis(wait_ms)).await;
        });
        rig.world.crash(rig.machine, CrashKind::Power);
        rig.run(move |io| async move {
            let (_, found) = open_or_create(&io, tiny(Mode::NoFsync)).await.expect("sound");
            assert_eq!((found.hard_state.term, found.hard_state.vote), (Term(3), 2));
            assert!(found.may_have_lost(), "the machine booted and the log was not closed");
            assert!(!found.entries.is_empty());
            if wait_ms > 0 {
                assert_eq!(found.entries.len(), 2);
            }
        });
    }
}

/// After kill -9 the same boot goes on: `NoFsync` has lost nothing and knows it.
#[test]
fn no_fsync_loses_nothing_to_a_kill() {
    let mut rig = Rig::new(5);
    rig.run_and_kill(|io| async move {
        let (writer, _) = open_or_create(&io, tiny(Mode::NoFsync)).await.expect("sound");
        writer.wait_durable(writer.append(entries(1..=9))).await.expect("sound");
    });
    rig.run(|io| async move {
        let (_, found) = open_or_create(&io, tiny(Mode::NoFsync)).await.expect("sound");
        assert_eq!(found.entries.len(), 9);
        assert!(!found.may_have_lost());
    });
}

/// A boot id that cannot be read was taken for that of another boot: a store that had lost nothing
/// fenced its revisions, at once or at the next start. It refuses to open instead.
#[test]
fn an_unread_boot_id_is_no_other_boot() {
    let mut refused = 0;
    for seed in 0..60 {
        let mut rig = Rig::new(seed);
        rig.run_and_kill(|io| async move {
            let (writer, _) = open_or_create(&io, tiny(Mode::NoFsync)).await.expect("sound");
            writer.wait_durable(writer.append(entries(1..=3))).await.expect("sound");
        });
        for ppm in [150_000, 150_000, 0] {
            rig.world.disk_faults(rig.machine, |disk| disk.read_error_ppm = ppm);
            let opened = rig.run(|io| async move {
                match Writer::open(&io, &directory(), tiny(Mode::NoFsync)).await {
                    Ok((_, found)) => Ok(found.may_have_lost()),
                    Err(OpenError::Io { file, .. }) => Err(file),
                    Err(error) => panic!("{error}"),
                }
            });
            match opened.expect("nothing crashes") {
                Ok(lost) => assert!(!lost, "seed {seed}: the machine did not boot"),
                Err(file) => refused += u32::from(file.ends_with("boot_id")),
            }
            rig.world.crash(rig.machine, CrashKind::Process);
        }
    }
    assert!(refused > 0, "some boot ids were not read");
}

/// The revision ceiling rises by blocks and survives everything once reserved.
#[test]
fn ceiling_survives_power_loss() {
    let mut rig = Rig::new(6);
    rig.run(|io| async move {
        let (writer, _) = open_or_create(&io, tiny(Mode::Memory)).await.expect("sound");
        assert_eq!(writer.ceiling(), Revision(0));
        writer.reserve_revisions(Revision(1)).await.expect("sound");
        assert_eq!(writer.ceiling(), Revision(1 << 20));
        writer.reserve_revisions(Revision((1 << 20) + 1)).await.expect("sound");
    });
    rig.world.crash(rig.machine, CrashKind::Power);
    rig.run(|io| async move {
        let (_, found) = open_or_create(&io, tiny(Mode::Memory)).await.expect("sound");
        assert_eq!(found.revision_ceiling, Revision(2 << 20));
        assert_eq!((found.identity, found.incarnation), (IDENTITY, 2));
        assert!(found.may_have_lost(), "memory mode restarted");
    });
}

/// Memory mode has a mark file and nothing else, acknowledges at once, and does not abandon a log.
#[test]
fn memory_mode_keeps_no_log() {
    let mut rig = Rig::new(7);
    rig.run_and_kill(|io| async move {
        let (writer, found) = open_or_create(&io, tiny(Mode::Memory)).await.expect("sound");
        assert!(!found.may_have_lost(), "a fresh store has nothing to lose");
        let ticket = writer.append(entries(1..=2));
        assert_eq!(writer.durable(), ticket);
        writer.wait_durable(ticket).await.expect("at once");
        writer.close().await.expect("sound");
    });
    assert_eq!(rig.segments(), Vec::<String>::new());
    rig.run(|io| async move {
        let (writer, found) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
        assert_eq!(found.previous_mode, Mode::Memory);
        assert!(found.entries.is_empty() && found.may_have_lost());
        writer.wait_durable(writer.append(entries(1..=1))).await.expect("sound");
        writer.close().await.expect("sound");
        let refused = Writer::open(&io, &directory(), tiny(Mode::Memory)).await;
        assert!(matches!(refused, Err(OpenError::Mode(_))));
    });
}

/// W7: after a failed write nothing more is acknowledged, and the failure stays.
#[test]
fn a_failed_write_stops_the_log() {
    let mut rig = Rig::new(8);
    let started = rig.run(|io| async move {
        let (writer, _) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
        writer.wait_durable(writer.append(entries(1..=1))).await.expect("sound");
        io.sleep(Duration::from_secs(3)).await;
        (io, writer)
    });
    let (io, writer) = started.expect("nothing crashed it");
    rig.world.disk_faults(rig.machine, |faults| faults.fail_after = Some(0));
    rig.go_on(&io, move |io| async move {
        let ticket = writer.append(entries(2..=2));
        let later = writer.append(entries(3..=3));
        let failure = writer.wait_durable(later).await.expect_err("the write failed");
        assert!(failure.to_string().contains("write failed"), "{failure}");
        io.sleep(Duration::from_secs(1)).await;
        assert!(writer.durable() < ticket);
        let never = writer.append(entries(4..=4));
        assert_eq!(writer.wait_durable(never).await, Err(failure.clone()));
        assert_eq!(writer.reserve_revisions(Revision(1)).await, Err(failure.clone()));
        assert_eq!(writer.close().await, Err(failure));
    });
}

/// Two processes never have the same log; the second gives up after ten seconds.
#[test]
fn the_lock_is_waited_for() {
    let mut rig = Rig::new(9);
    rig.run(|io| async move {
        let (writer, _) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
        let before = io.now();
        let second = Writer::open(&io, &directory(), tiny(Mode::Safe)).await;
        assert!(matches!(second, Err(OpenError::Busy(_))));
        let waited = io.now() - before;
        assert!(waited >= Duration::from_secs(10), "{waited:?}");
        writer.close().await.expect("sound");
        let (writer, _) = open_or_create(&io, tiny(Mode::Safe)).await.expect("free again");
        writer.close().await.expect("sound");
        assert!(matches!(
            Writer::create(&io, &directory(), IDENTITY, tiny(Mode::Safe)).await,
            Err(OpenError::Exists(_))
        ));
    });
}

/// A log that runs for long with checkpoints lives in a bounded number of files, and their earlier
/// lives never come back.
#[test]
fn segments_are_recycled() {
    let mut rig = Rig::new(10);
    for life in 0..6u64 {
        rig.run(move |io| async move {
            let (writer, found) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
            let last = found.entries.last().map_or(0, |entry| entry.index.0);
            assert_eq!(last, life * 100);
            assert!(writer.bytes_since_checkpoint() < 64 * 1024, "{:?}", writer.gauges());
            for index in last + 1..=last + 100 {
                let ticket = writer.append(entries(index..=index));
                writer.wait_durable(ticket).await.expect("sound");
                if index % 10 == 0 {
                    checkpoint(&writer, index).await;
                }
            }
            io.sleep(Duration::from_secs(2)).await;
            let gauges = writer.gauges();
            assert!(gauges.oldest_index.0 > last + 70, "{gauges:?}");
            assert!(gauges.bytes_since_checkpoint <= 64 * 1024, "{gauges:?}");
        });
        rig.world.crash(rig.machine, CrashKind::Power);
        assert!(rig.segments().len() <= 8, "{:?}", rig.segments());
    }
}

async fn checkpoint(writer: &Writer, index: u64) {
    let file = format!("{index}.checkpoint");
    let (index, term) = (RaftIndex(index), Term(1));
    let ticket = writer.mark_snapshot(Checkpoint { index, term, root: 5, file });
    writer.wait_durable(ticket).await.expect("sound");
    writer.release_before(index);
}

/// What has gathered goes out in one batch, the last commit of many with it.
#[test]
fn commits_do_not_pile_up() {
    let mut rig = Rig::new(12);
    rig.run(|io| async move {
        let (writer, _) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
        let first = Batch { hard_state: Some(hard_state(1, 1, 0)), ..entries(1..=9) };
        writer.wait_durable(writer.append(first)).await.expect("sound");
        for commit in 1..=9 {
            let state = Some(hard_state(1, 1, commit));
            writer.append(Batch { hard_state: state, ..Batch::default() });
        }
        writer.wait_durable(writer.append(entries(10..=10))).await.expect("sound");
    });
    rig.world.crash(rig.machine, CrashKind::Power);
    rig.run(|io| async move {
        let (_, found) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
        assert_eq!(found.hard_state, hard_state(1, 1, 9));
    });
}

/// A log that crashes at every start does not grow with each of them.
#[test]
fn starts_alone_take_no_space() {
    let mut rig = Rig::new(11);
    let mut sizes = Vec::new();
    for _ in 0..12 {
        rig.run_and_kill(|io| async move {
            let (writer, _) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
            io.sleep(Duration::from_secs(1)).await;
            assert!(writer.gauges().segments <= 2);
        });
        sizes.push(rig.segments().len());
    }
    assert!(sizes.iter().all(|count| *count <= 5), "{sizes:?}");
}

/// W8: where no file takes direct I/O the log is buffered whole, and as durable.
#[test]
fn a_log_is_buffered_where_direct_io_is_refused() {
    let mut rig = Rig::new(28);
    rig.world.disk_faults(rig.machine, |faults| faults.refuse_direct = Some(""));
    for first in [1, 41] {
        rig.run(move |io| async move {
            let (writer, found) = open_or_create(&io, tiny(Mode::Safe)).await.expect("sound");
            assert_eq!(found.entries.len() as u64, first - 1);
            for index in first..first + 40 {
                writer.wait_durable(writer.append(entries(index..=index))).await.expect("sound");
            }
        });
        rig.world.crash(rig.machine, CrashKind::Power);
    }
}

/// W8: never mixed. A log whose mark takes direct I/O and whose segments refuse it does not open;
/// one whose mark refuses it is buffered, whatever its segments would take.
#[test]
fn direct_and_buffered_are_never_mixed() {
    let mut rig = Rig::new(29);
    rig.world.disk_faults(rig.machine, |faults| faults.refuse_direct = Some(".wal"));
    let refused = rig.run_and_kill(|io| async move {
        open_or_create(&io, tiny(Mode::Safe)).await.err().expect("mixed")
    });
    let text = refused.expect("nothing crashed it").to_string();
    assert!(text.contains(".wal: this file refuses direct I/O"), "{text}");
    rig.world.disk_faults(rig.machine, |faults| faults.refuse_direct = Some("mark"));
    let buffered = rig.run_and_kill(|io| async move {
        let (writer, _) = open_or_create(&io, tiny(Mode::Safe)).await.expect("all buffered");
        writer.wait_durable(writer.append(entries(1..=9))).await.expect("sound");
        io.sleep(Duration::from_secs(1)).await;
        writer.is_direct()
    });
    assert_eq!(buffered, Some(false), "every file of the log is opened as the mark is");
}

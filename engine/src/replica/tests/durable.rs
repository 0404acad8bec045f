//! Safe and no-fsync modes: what was acknowledged is there after a crash, as the mode says.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use ringbolt_io::sim::{CrashKind, DiskFaults};

use super::bench::{
    Bench, compact, config, delete, grant, put, put_revision, put_with_lease, value,
};
use crate::error::{Error, Reason};
use crate::replica::{Mode, OpenError, Replica};
use crate::types::{LeaseId, Revision};

/// Puts a handful of keys one after another and some together; `acked` holds what was answered.
async fn write_some(replica: &Replica, acked: &Rc<RefCell<Vec<(String, Revision)>>>) {
    for round in 0..4 {
        let key = format!("one-{round}");
        let answer = replica.propose(put(&key, "x")).await;
        acked.borrow_mut().push((key, put_revision(&answer)));
        let keys = [0, 1, 2].map(|part| format!("many-{round}-{part}"));
        let receipts = keys.clone().map(|key| replica.submit(put(&key, "y"), None).expect("room"));
        for (key, receipt) in keys.into_iter().zip(receipts) {
            let answer = receipt.await.expect("an answer");
            acked.borrow_mut().push((key, put_revision(&answer)));
        }
    }
}

/// Opens after a crash and gives the replica's revisions; every key of `acked` must be there.
fn reopen(bench: &mut Bench, mode: Mode, acked: Vec<(String, Revision)>) -> (Revision, Revision) {
    bench.run(move |io| async move {
        let replica = Replica::open(io, config(mode)).await.expect("it opens again");
        replica.state().check();
        for (key, revision) in &acked {
            let found = replica.state().mvcc.get(key.as_bytes(), replica.status().revision);
            assert_eq!(found.map(|kv| kv.mod_revision), Some(revision.0), "{key} was acknowledged");
        }
        let status = replica.status();
        replica.propose(put("after", "z")).await.expect("it goes on");
        replica.close().await;
        (status.revision, status.compacted)
    })
}

/// Every write is there after a clean stop, a kill and a loss of power; no revision is given twice
/// and nothing is fenced.
#[test]
fn acknowledged_writes_survive() {
    for (seed, kind) in [(1, CrashKind::Process), (2, CrashKind::Power)] {
        let mut bench = Bench::new(seed);
        let acked = Rc::new(RefCell::new(Vec::new()));
        let seen = acked.clone();
        let done = bench.start(move |io| async move {
            let replica = Replica::open(io, config(Mode::Safe)).await.expect("it opens");
            write_some(&replica, &seen).await;
        });
        assert!(bench.world.run_until(Duration::from_secs(60), |_| done.borrow().is_some()));
        bench.world.crash(bench.machine, kind);
        let acked = acked.borrow().clone();
        let (revision, compacted) = reopen(&mut bench, Mode::Safe, acked.clone());
        assert_eq!((revision, compacted), (Revision(17), Revision::NEVER));
        // Closed in order this time.
        let (revision, compacted) = reopen(&mut bench, Mode::Safe, acked);
        assert_eq!((revision, compacted), (Revision(18), Revision::NEVER));
    }
}

/// Fail at the n-th operation, n = 1, 2, 3 …, until the script runs to its end: whatever was
/// acknowledged is there, and in the modes that may lose it, a fence tells so.
fn crash_everywhere(mode: Mode, kind: CrashKind, seed: u64) {
    for operations in 1.. {
        let mut bench = Bench::new(seed + operations);
        let acked = Rc::new(RefCell::new(Vec::new()));
        let seen = acked.clone();
        let done = bench.start(move |io| async move {
            let replica = Replica::open(io, config(mode)).await.expect("it opens");
            write_some(&replica, &seen).await;
        });
        bench.world.crash_after_ops(bench.machine, operations, kind);
        let machine = bench.machine;
        bench.world.run_until(Duration::from_secs(60), |world| {
            done.borrow().is_some() || !world.is_running(machine)
        });
        let finished = done.borrow().is_some();
        if finished {
            assert!(operations > 20, "the script does more than {operations} operations");
            return;
        }
        let acked = acked.borrow().clone();
        let highest = acked.iter().map(|(_, revision)| *revision).max();
        let lossless = mode == Mode::Safe || kind == CrashKind::Process;
        let must_hold = if lossless { acked } else { Vec::new() };
        let (revision, compacted) = reopen(&mut bench, mode, must_hold);
        assert!(Some(revision) >= highest, "revisions never fall");
        if lossless {
            assert_eq!(compacted, Revision::NEVER, "nothing was lost, nothing is fenced");
        } else if let Some(highest) = highest {
            assert!(compacted > highest && compacted == revision, "a fence hides what may be lost");
        }
    }
}

#[test]
fn safe_mode_survives_a_kill_at_every_operation() {
    crash_everywhere(Mode::Safe, CrashKind::Process, 1000);
}

#[test]
fn safe_mode_survives_a_loss_of_power_at_every_operation() {
    crash_everywhere(Mode::Safe, CrashKind::Power, 2000);
}

#[test]
fn no_fsync_survives_a_kill_at_every_operation() {
    crash_everywhere(Mode::NoFsync, CrashKind::Process, 3000);
}

#[test]
fn no_fsync_is_fenced_after_a_loss_of_power() {
    crash_everywhere(Mode::NoFsync, CrashKind::Power, 4000);
}

/// A fence that a second crash interrupts is made up for: the loss is not forgotten.
#[test]
fn a_fence_survives_a_second_crash() {
    for operations in 1..200 {
        let mut bench = Bench::new(5000 + operations);
        let acked = Rc::new(RefCell::new(Vec::new()));
        let seen = acked.clone();
        let done = bench.start(move |io| async move {
            let replica = Replica::open(io, config(Mode::NoFsync)).await.expect("it opens");
            write_some(&replica, &seen).await;
        });
        assert!(bench.world.run_until(Duration::from_secs(60), |_| done.borrow().is_some()));
        bench.world.crash(bench.machine, CrashKind::Power);
        let again = bench.start(move |io| async move {
            Replica::open(io, config(Mode::NoFsync)).await.map(|_| ()).expect("it opens");
        });
        bench.world.crash_after_ops(bench.machine, operations, CrashKind::Process);
        let machine = bench.machine;
        bench.world.run_until(Duration::from_secs(60), |world| {
            again.borrow().is_some() || !world.is_running(machine)
        });
        let finished = again.borrow().is_some();
        bench.world.crash(bench.machine, CrashKind::Process);
        let (revision, compacted) = reopen(&mut bench, Mode::NoFsync, Vec::new());
        assert!(compacted > Revision(17), "fenced after {operations} operations");
        assert_eq!(revision, compacted);
        if finished {
            return;
        }
    }
    panic!("opening never ends");
}

/// A memory store that starts again is fenced above everything it ever gave out, keeps its ids,
/// and a first start is not fenced.
#[test]
fn a_memory_store_that_restarts_is_fenced() {
    let mut bench = Bench::new(7);
    let (first, ids) = bench.run(|io| async move {
        let replica = Replica::open(io, config(Mode::Memory)).await.expect("it opens");
        assert_eq!(replica.status().revision, Revision::FIRST);
        let answer = replica.propose(put("a", "1")).await;
        (put_revision(&answer), replica.identity())
    });
    bench.run(move |io| async move {
        let replica = Replica::open(io, config(Mode::Memory)).await.expect("it opens");
        let status = replica.status();
        assert!(status.revision > first && status.compacted == status.revision);
        assert_eq!(replica.identity(), ids);
        assert_eq!(value(&replica, "a"), None);
        let answer = replica.propose(put("a", "2")).await;
        assert_eq!(put_revision(&answer), status.revision.next());
    });
}

/// W7: a failed write of the log stops the member: nothing is answered but `Stop`, and the cause
/// names the file.
#[test]
fn a_failed_write_stops_the_member() {
    let mut bench = Bench::new(8);
    let opened = Rc::new(RefCell::new(None));
    let slot = opened.clone();
    let done = bench.start(move |io| async move {
        let replica = Replica::open(io.clone(), config(Mode::Safe)).await.expect("it opens");
        replica.propose(put("a", "1")).await.expect("written");
        *slot.borrow_mut() = Some(());
        io.sleep(Duration::from_secs(1)).await;
        let answer = replica.propose(put("b", "2")).await;
        assert_eq!(answer, Err(Error::Stop));
        assert_eq!(replica.read_barrier().await, Err(Error::Stop));
        replica.failed().await
    });
    assert!(bench.world.run_until(Duration::from_secs(60), |_| opened.borrow().is_some()));
    bench.world.disk_faults(bench.machine, |faults: &mut DiskFaults| {
        faults.write_error_ppm = 1_000_000;
    });
    assert!(bench.world.run_until(Duration::from_secs(60), |_| done.borrow().is_some()));
    let cause = done.borrow().clone().expect("it failed");
    assert!(cause.contains("/data/"), "{cause}");
}

/// After a restart a lease has its full time and one election timeout, never less, and its keys.
#[test]
fn leases_survive_a_restart_with_their_full_time() {
    let mut bench = Bench::new(9);
    bench.run(|io| async move {
        let replica = Replica::open(io.clone(), config(Mode::Safe)).await.expect("it opens");
        replica.propose(grant(5, 10)).await.expect("granted");
        replica.propose(put_with_lease("a", 5)).await.expect("written");
        io.sleep(Duration::from_secs(8)).await;
    });
    bench.run(|io| async move {
        let replica = Replica::open(io.clone(), config(Mode::Safe)).await.expect("it opens");
        let left = replica.deadlines().expect("it leads").remaining(LeaseId(5), io.now());
        assert!(left > Some(Duration::from_secs(10)), "{left:?}");
        io.sleep(Duration::from_secs(10)).await;
        assert!(value(&replica, "a").is_some());
        io.sleep(Duration::from_secs(2)).await;
        assert_eq!(value(&replica, "a"), None);
    });
}

/// A store that is opened in memory mode over a log is refused instead of forgotten.
#[test]
fn memory_mode_does_not_abandon_a_log() {
    let mut bench = Bench::new(10);
    bench.run(|io| async move {
        let replica = Replica::open(io, config(Mode::Safe)).await.expect("it opens");
        replica.propose(put("a", "1")).await.expect("written");
        replica.close().await;
    });
    bench.run(|io| async move {
        let refused = Replica::open(io, config(Mode::Memory)).await.err();
        assert!(matches!(refused, Some(OpenError::Log(_))));
    });
}

/// The commands that only compact are applied again in a replay, and what they removed stays gone.
#[test]
fn compaction_survives_a_restart() {
    let mut bench = Bench::new(11);
    bench.run(|io| async move {
        let replica = Replica::open(io, config(Mode::Safe)).await.expect("it opens");
        for round in 0..20 {
            replica.propose(put("a", &round.to_string())).await.expect("written");
        }
        replica.propose(compact(15, true)).await.expect("compacted");
    });
    let (revision, compacted) = reopen(&mut bench, Mode::Safe, Vec::new());
    assert_eq!((revision, compacted), (Revision(21), Revision(15)));
}

/// With a full disk writes that add data are refused before they are proposed, deletes and
/// compactions pass, no alarm is raised, and service resumes by itself when space returns.
#[test]
fn a_full_disk_refuses_writes_and_heals() {
    let mut bench = Bench::new(12);
    bench.world.disk_faults(bench.machine, |faults| faults.capacity_bytes = Some(1 << 20));
    let full = Rc::new(RefCell::new(false));
    let (told, asked) = (full.clone(), full.clone());
    let done = bench.start(move |io| async move {
        let replica = Replica::open(io.clone(), config(Mode::Safe)).await.expect("it opens");
        let mut refused = Ok(());
        for round in 0..1000 {
            let answer = replica.propose(put(&format!("k{round}"), &"x".repeat(8000))).await;
            if let Err(error) = answer {
                refused = Err(error);
                break;
            }
        }
        assert_eq!(refused, Err(Error::Refuse(Reason::NoSpace)));
        assert!(!replica.state().alarms.no_space());
        for round in 0..10 {
            replica.propose(delete(&format!("k{round}"))).await.expect("a delete passes");
        }
        let revision = replica.status().revision.0;
        replica.propose(compact(revision, true)).await.expect("a compaction passes");
        *told.borrow_mut() = true;
        for _ in 0..100 {
            io.sleep(Duration::from_secs(1)).await;
            if replica.propose(put("again", "x")).await.is_ok() {
                return;
            }
        }
        panic!("service never resumes");
    });
    assert!(bench.world.run_until(Duration::from_secs(60), |_| *asked.borrow()));
    bench.world.disk_faults(bench.machine, |faults| faults.capacity_bytes = None);
    assert!(bench.world.run_until(Duration::from_secs(120), |_| done.borrow().is_some()));
}

/// A store of a later version is not opened by an earlier one.
#[test]
fn a_downgrade_is_refused() {
    let mut bench = Bench::new(13);
    bench.run(|io| async move {
        let mut config = config(Mode::Safe);
        config.version = "3.8.0".to_string();
        Replica::open(io, config).await.expect("it opens").close().await;
    });
    bench.run(|io| async move {
        let refused = Replica::open(io, config(Mode::Safe)).await.err();
        assert!(matches!(refused, Some(OpenError::Config(_))), "{refused:?}");
    });
}

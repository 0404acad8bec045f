//! Checkpoints: written while writes go on, named, read back, crashed through.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use ringbolt_io::Io;
use ringbolt_io::sim::{CrashKind, Damage};

use super::bench::{Bench, compact, config, grant, put, put_with_lease, value};
use crate::replica::{Mode, Observation, OpenError, Replica, ReplicaConfig};
use crate::types::{LeaseId, Revision};

fn small(mode: Mode) -> ReplicaConfig {
    let mut config = config(mode);
    config.checkpoint_log_bytes_min = 64 * 1024;
    config
}

/// Overwrites forty keys until `count` checkpoints were written; notes which puts were answered.
async fn churn(io: Io, count: usize, acked: Rc<RefCell<Vec<(String, String)>>>) {
    let replica = Replica::open(io, small(Mode::Safe)).await.expect("it opens");
    let written = Rc::new(RefCell::new(0));
    let seen = written.clone();
    replica.on_observe(move |observation| {
        if matches!(observation, Observation::Checkpoint { .. }) {
            *seen.borrow_mut() += 1;
        }
    });
    let _ = replica.propose(grant(3, 1000)).await;
    let _ = replica.propose(put_with_lease("held", 3)).await;
    for round in 0.. {
        let filler = format!("{round}-{}", "x".repeat(2000));
        let keys = (0..8).map(|part| format!("k{}", (round * 8 + part) % 40));
        let receipts: Vec<_> = keys
            .map(|key| (key.clone(), replica.submit(put(&key, &filler), None).expect("room")))
            .collect();
        for (key, receipt) in receipts {
            receipt.await.expect("an answer").expect("written");
            acked.borrow_mut().push((key, filler.clone()));
        }
        if round % 5 == 0 {
            let at = replica.status().revision.0 - 20;
            let _ = replica.propose(compact(at, false)).await;
        }
        if *written.borrow() >= count {
            return;
        }
    }
}

/// Opens and checks that each key holds the last value that was answered, or a later one.
fn check(bench: &mut Bench, acked: Vec<(String, String)>) -> (Revision, Revision) {
    bench.run(move |io| async move {
        let replica = Replica::open(io, small(Mode::Safe)).await.expect("it opens again");
        replica.state().check();
        let mut last = std::collections::BTreeMap::new();
        for (key, filler) in acked {
            last.insert(key, filler);
        }
        for (key, filler) in last {
            let found = value(&replica, &key).expect("an acknowledged key is there");
            let round = |text: &str| text.split('-').next().and_then(|r| r.parse::<u64>().ok());
            assert!(round(&found) >= round(&filler), "{key} went back");
        }
        if replica.state().leases.get(LeaseId(3)).is_some() {
            let status = replica.status();
            replica.propose(put("after", "z")).await.expect("it goes on");
            return (status.revision, status.compacted);
        }
        (replica.status().revision, replica.status().compacted)
    })
}

/// Three checkpoints under load, with compaction; the state comes back from the last one and the
/// log behind it, the log does not grow for ever, and one file is left.
#[test]
fn checkpoints_replace_the_log() {
    let mut bench = Bench::new(1);
    let acked = Rc::new(RefCell::new(Vec::new()));
    let into = acked.clone();
    bench.run(move |io| churn(io, 3, into));
    let names = bench.world.list(bench.machine, "/data".as_ref());
    let files = names.iter().filter(|name| name.ends_with(".checkpoint")).count();
    assert_eq!(files, 1, "{names:?}");
    assert!(names.len() < 10, "{names:?}");
    let acked = acked.borrow().clone();
    let (revision, compacted) = check(&mut bench, acked);
    assert!(revision > compacted && compacted > Revision(1));
}

/// A crash at any operation around a checkpoint loses nothing.
#[test]
fn a_crash_during_a_checkpoint_loses_nothing() {
    let mut runs = (0, 0);
    for (kind, seed) in [(CrashKind::Process, 100), (CrashKind::Power, 200)] {
        for step in 0..24 {
            let mut bench = Bench::new(seed + step);
            let acked = Rc::new(RefCell::new(Vec::new()));
            let into = acked.clone();
            let done = bench.start(move |io| churn(io, 2, into));
            bench.world.crash_after_ops(bench.machine, 40 + 7 * step, kind);
            let machine = bench.machine;
            bench.world.run_until(Duration::from_secs(60), |world| {
                done.borrow().is_some() || !world.is_running(machine)
            });
            bench.world.crash(machine, kind);
            let names = bench.world.list(machine, "/data".as_ref());
            match names.iter().any(|name| name.ends_with(".checkpoint")) {
                true => runs.0 += 1,
                false => runs.1 += 1,
            }
            let acked = acked.borrow().clone();
            check(&mut bench, acked);
        }
    }
    assert!(runs.0 > 5 && runs.1 > 5, "crashes lie on both sides: {runs:?}");
}

/// Rot in the checkpoint the log names refuses the start, naming the file; nothing is dropped.
#[test]
fn a_rotten_checkpoint_refuses_to_open() {
    let mut bench = Bench::new(3);
    let acked = Rc::new(RefCell::new(Vec::new()));
    bench.run(move |io| churn(io, 1, acked));
    let names = bench.world.list(bench.machine, "/data".as_ref());
    let name = names.iter().find(|name| name.ends_with(".checkpoint")).expect("one is there");
    let path = std::path::Path::new("/data").join(name);
    assert!(bench.world.damage(bench.machine, &path, 5000, Damage::FlipBit(3)));
    let refused = bench.run(|io| async move { Replica::open(io, small(Mode::Safe)).await.err() });
    let Some(OpenError::Checkpoint(error)) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains(name), "{error}");
}

/// Two runs of a seed are the same run, to the last write of the disk.
#[test]
fn a_seed_repeats_itself() {
    let run = |seed| {
        let mut bench = Bench::new(seed);
        let acked = Rc::new(RefCell::new(Vec::new()));
        let into = acked.clone();
        bench.run(move |io| churn(io, 2, into));
        (bench.world.trace_hash(), acked.take().len())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).0, run(8).0);
}

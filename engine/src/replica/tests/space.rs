//! A disk that becomes full under a replica: what is there is served, checkpoints go on in their
//! reserve, and service resumes by itself.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ringbolt_io::sim::CrashKind;

use super::bench::{Bench, compact, config, delete, put, value};
use crate::error::{Error, Reason};
use crate::replica::{Mode, Observation, Replica, ReplicaConfig};

fn small() -> ReplicaConfig {
    let mut config = config(Mode::Safe);
    config.checkpoint_log_bytes_min = 256 * 1024;
    config
}

/// Opens a replica that counts its checkpoints into `written`.
async fn open(io: ringbolt_io::Io, written: &Rc<RefCell<u64>>) -> Rc<Replica> {
    let replica = Replica::open(io, small()).await.expect("it opens");
    let seen = written.clone();
    replica.on_observe(move |observation| {
        if let Observation::Checkpoint { .. } = observation {
            *seen.borrow_mut() += 1;
        }
    });
    replica
}

type Values = Rc<RefCell<BTreeMap<String, String>>>;

/// Overwrites twenty keys `rounds` times, waiting where it is refused; gives how often it was.
async fn overwrite(replica: &Replica, io: &ringbolt_io::Io, rounds: usize, into: &Values) -> usize {
    let mut refused = 0;
    for round in 0..rounds {
        let (key, text) = (format!("k{}", round % 20), format!("{round}{}", "v".repeat(4000)));
        loop {
            match replica.propose(put(&key, &text)).await {
                Ok(_) => break,
                Err(Error::Refuse(Reason::NoSpace)) => refused += 1,
                Err(other) => panic!("{other:?}"),
            }
            // What an operator or an apiserver does: it goes on on a full disk too.
            let revision = replica.status().revision.0;
            let compacted = replica.propose(compact(revision, false)).await;
            let again = matches!(compacted, Err(Error::Refuse(Reason::Compacted)));
            assert!(again || compacted.is_ok(), "{compacted:?}");
            replica.propose(delete("gone")).await.expect("a delete is never refused");
            io.sleep(Duration::from_secs(1)).await;
            assert!(refused < 5000, "service never resumes: {:?}", replica.status());
        }
        into.borrow_mut().insert(key, text);
    }
    refused
}

/// Not one more byte can be taken from the disk, and yet hundreds of overwrites go on, because
/// each checkpoint finds its space; a power loss then loses nothing of it.
#[test]
fn checkpoints_go_on_when_the_disk_is_full() {
    for (seed, left_bytes) in [(31, 0), (33, 50_000), (34, 120_000), (35, 200_000), (36, 300_000)] {
        overwrites_go_on_with(seed, left_bytes);
    }
}

fn overwrites_go_on_with(seed: u64, left_bytes: u64) {
    let mut bench = Bench::new(seed);
    let (written, values): (Rc<RefCell<u64>>, Values) = Default::default();
    let (counted, into) = (written.clone(), values.clone());
    let filled: Rc<RefCell<bool>> = Rc::default();
    let now_full = filled.clone();
    let done = bench.start(move |io| async move {
        let replica = open(io.clone(), &counted).await;
        overwrite(&replica, &io, 100, &into).await;
        io.sleep(Duration::from_secs(30)).await;
        let reserve = replica.status().log.reserve_bytes;
        assert!(reserve >= replica.state().checkpoint_bytes(), "{reserve} are kept");
        *now_full.borrow_mut() = true;
        io.sleep(Duration::from_secs(1)).await;
        let before = *counted.borrow();
        let refused = overwrite(&replica, &io, 400, &into).await;
        assert!(replica.status().failure.is_none());
        (refused, *counted.borrow() - before)
    });
    let full = |_: &ringbolt_io::sim::World| *filled.borrow();
    assert!(bench.world.run_until(Duration::from_secs(600), full));
    let used = bench.world.used_bytes(bench.machine) + left_bytes;
    bench.world.disk_faults(bench.machine, |faults| faults.capacity_bytes = Some(used));
    assert!(bench.world.run_until(Duration::from_secs(60_000), |_| done.borrow().is_some()));
    let (refused, checkpoints) = done.borrow().expect("ended");
    assert!(refused > 0, "the disk was felt");
    assert!(checkpoints >= 3, "{checkpoints} checkpoints on a full disk");
    bench.world.crash(bench.machine, CrashKind::Power);
    // It opens again on the same full disk.
    bench.run(move |io| async move {
        let replica = open(io, &Rc::default()).await;
        for (key, text) in values.borrow().iter() {
            assert_eq!(value(&replica, key).as_ref(), Some(text), "{key}");
        }
    });
}

/// A state that outgrows what can be set aside for its checkpoint is told so before the log is
/// full; what gives space back is taken, and makes room.
#[test]
fn a_state_beyond_the_reserve_is_refused_until_it_shrinks() {
    let mut bench = Bench::new(32);
    let world_full: Rc<RefCell<bool>> = Rc::default();
    let now_full = world_full.clone();
    let done = bench.start(move |io| async move {
        let replica = open(io.clone(), &Rc::default()).await;
        io.sleep(Duration::from_secs(5)).await;
        *now_full.borrow_mut() = true;
        io.sleep(Duration::from_secs(1)).await;
        let mut count = 0;
        while let Ok(answer) = replica.propose(put(&format!("n{count}"), &"v".repeat(8000))).await {
            drop(answer);
            count += 1;
            assert!(count < 2000, "a full disk is noticed");
        }
        let refused = replica.propose(put("more", "v")).await;
        assert_eq!(refused.err(), Some(Error::Refuse(Reason::NoSpace)));
        let needed = replica.state().checkpoint_bytes();
        assert!(replica.status().log.reserve_bytes >= needed, "the next checkpoint fits");
        for index in 0..count {
            replica.propose(delete(&format!("n{index}"))).await.expect("deletes are taken");
        }
        let revision = replica.status().revision.0;
        replica.propose(compact(revision, true)).await.expect("compactions are taken");
        for waited in 0.. {
            if replica.propose(put("more", "v")).await.is_ok() {
                break;
            }
            io.sleep(Duration::from_secs(1)).await;
            assert!(waited < 600, "service never resumes: {:?}", replica.status());
        }
    });
    assert!(bench.world.run_until(Duration::from_secs(600), |_| *world_full.borrow()));
    let used = bench.world.used_bytes(bench.machine);
    bench.world.disk_faults(bench.machine, |faults| faults.capacity_bytes = Some(used));
    assert!(bench.world.run_until(Duration::from_secs(60_000), |_| done.borrow().is_some()));
}

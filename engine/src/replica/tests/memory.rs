//! Memory mode: everything but a log.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::bench::{
    Bench, compact, config, grant, put, put_revision, put_with_lease, revoke, value,
};
use crate::error::{Error, Reason};
use crate::limits::PROPOSALS_WAITING_MAX;
use crate::replica::{Mode, Observation, Replica};
use crate::state::{Command, Reply};
use crate::types::{LeaseId, Revision};

/// A fresh store is at revision 1, knows its member and version; puts are answered in order with
/// rising revisions, seen by a read after the barrier, and published before they are answered.
#[test]
fn puts_are_published_answered_and_read() {
    Bench::new(1).run(|io| async move {
        let replica = Replica::open(io, config(Mode::Memory)).await.expect("it opens");
        let status = replica.status();
        assert!(status.leads && status.leader == Some(status.member_id));
        assert_eq!((status.revision, status.compacted), (Revision::FIRST, Revision::NEVER));
        assert_eq!(replica.state().cluster_version, "3.7.0");
        let named = replica.state().members.get(status.member_id).map(|one| one.name.clone());
        assert_eq!(named.as_deref(), Some("one"));

        let published = Rc::new(RefCell::new(Vec::new()));
        let seen = published.clone();
        replica.on_publish(move |from, to| seen.borrow_mut().push((from.0, to.0)));
        assert_eq!(put_revision(&replica.propose(put("a", "1")).await), Revision(2));
        assert_eq!(*published.borrow(), [(1, 2)]);
        // Three proposals in one turn are published together.
        let receipts: Vec<_> =
            ["b", "c", "d"].map(|key| replica.submit(put(key, "x"), None).expect("room")).into();
        for (receipt, revision) in receipts.into_iter().zip(3..) {
            let answer = receipt.await.expect("an answer");
            assert_eq!(put_revision(&answer), Revision(revision));
        }
        assert_eq!(*published.borrow(), [(1, 2), (2, 5)]);
        replica.read_barrier().await.expect("a sole voter reads");
        assert_eq!(value(&replica, "c").as_deref(), Some("x"));
        replica.close().await;
        assert_eq!(replica.propose(put("e", "x")).await, Err(Error::Stop));
    });
}

/// What a limit refuses has not happened: size, full queue, deadline, alarm.
#[test]
fn limits_refuse_before_anything_happens() {
    Bench::new(2).run(|io| async move {
        let mut config = config(Mode::Memory);
        config.max_request_bytes = 4096;
        config.quota_bytes = 20_000;
        let replica = Replica::open(io.clone(), config).await.expect("it opens");
        let large = "x".repeat(5000);
        let refused = replica.propose(put("large", &large)).await;
        assert_eq!(refused, Err(Error::Refuse(Reason::RequestTooLarge)));

        let past = io.now();
        let late = replica.propose_before(put("late", "x"), Some(past)).await;
        assert_eq!(late, Err(Error::Refuse(Reason::DeadlineExceeded)));

        let mut receipts = Vec::new();
        for _ in 0..PROPOSALS_WAITING_MAX {
            receipts.push(replica.submit(compact(0, false), None).expect("room"));
        }
        let full = replica.submit(compact(0, false), None).err();
        assert_eq!(full, Some(Error::Retry(Reason::TooManyRequests)));
        for receipt in receipts {
            assert!(receipt.await.is_some());
        }

        let mut refused = None;
        for round in 0..100 {
            let answer = replica.propose(put(&format!("k{round}"), &"y".repeat(1000))).await;
            if answer.is_err() {
                refused = Some(answer);
                break;
            }
        }
        assert_eq!(refused, Some(Err(Error::Refuse(Reason::NoSpace))));
        replica.propose(Command::Nothing).await.expect("the alarm is behind it");
        assert!(replica.state().alarms.no_space());
        let small = replica.propose(put("small", "")).await;
        assert_eq!(small, Err(Error::Refuse(Reason::NoSpace)));
        assert_eq!(value(&replica, "late"), None);
    });
}

/// A lease ends by itself after its time, with its keys, in one revision; a renewed one stays; one
/// that has ended is not renewed.
#[test]
fn leases_end_and_take_their_keys() {
    Bench::new(3).run(|io| async move {
        let replica = Replica::open(io.clone(), config(Mode::Memory)).await.expect("it opens");
        for (id, key) in [(1, "a"), (1, "b"), (2, "c")] {
            let _ = replica.propose(grant(id, 3)).await;
            replica.propose(put_with_lease(key, id)).await.expect("the lease is there");
        }
        let before = replica.status().revision;
        for _ in 0..4 {
            io.sleep(Duration::from_secs(1)).await;
            assert_eq!(replica.lease_renew(LeaseId(2)).await, Ok(3));
        }
        io.sleep(Duration::from_millis(600)).await;
        assert_eq!((value(&replica, "a"), value(&replica, "b")), (None, None));
        assert!(value(&replica, "c").is_some());
        assert_eq!(replica.status().revision, before.next());
        assert_eq!(replica.lease_renew(LeaseId(1)).await, Ok(0));
        replica.propose(revoke(2)).await.expect("it is there");
        let gone = replica.propose(revoke(2)).await;
        assert_eq!(gone, Err(Error::Refuse(Reason::LeaseNotFound)));
        assert_eq!(value(&replica, "c"), None);
    });
}

/// Two thousand leases that end together are all revoked, in order, without starving a write.
#[test]
fn many_leases_end_together() {
    Bench::new(4).run(|io| async move {
        let replica = Replica::open(io.clone(), config(Mode::Memory)).await.expect("it opens");
        let mut receipts = Vec::new();
        for id in 1..=2000 {
            receipts.push(replica.submit(grant(id, 2), None).expect("room"));
        }
        for receipt in receipts {
            receipt.await.expect("an answer").expect("granted");
        }
        io.sleep(Duration::from_millis(2600)).await;
        let start = io.now();
        replica.propose(put("a", "1")).await.expect("a write passes");
        assert!(io.now().since(start) < Duration::from_millis(50));
        io.sleep(Duration::from_millis(2500)).await;
        assert_eq!(replica.state().leases.len(), 0);
    });
}

/// A physical compaction is answered when the history is gone, a logical one before.
#[test]
fn physical_compaction_waits() {
    Bench::new(5).run(|io| async move {
        let replica = Replica::open(io, config(Mode::Memory)).await.expect("it opens");
        for round in 0..300 {
            replica.propose(put("a", &round.to_string())).await.expect("written");
        }
        let size = replica.status().db_size_bytes;
        let answer = replica.propose(compact(250, true)).await;
        assert!(matches!(answer, Ok(Reply::Compact(_))));
        assert!(replica.status().db_size_bytes < size / 2);
        let again = replica.propose(compact(250, true)).await;
        assert_eq!(again, Err(Error::Refuse(Reason::Compacted)));
        replica.state().check();
    });
}

/// Each stage is reported, in order.
#[test]
fn stages_are_observed() {
    Bench::new(6).run(|io| async move {
        let replica = Replica::open(io, config(Mode::Memory)).await.expect("it opens");
        let seen = Rc::new(RefCell::new(Vec::new()));
        let into = seen.clone();
        replica.on_observe(move |observation| into.borrow_mut().push(*observation));
        replica.propose(put("a", "1")).await.expect("written");
        let seen = seen.borrow();
        let proposals = seen.iter().filter_map(|one| match one {
            Observation::Proposal(times) => Some(*times),
            _ => None,
        });
        let times: Vec<_> = proposals.collect();
        assert_eq!(times.len(), 1);
        assert!(times[0].queued <= times[0].proposed);
        assert!(times[0].proposed <= times[0].durable);
        assert!(times[0].durable <= times[0].applied);
    });
}

//! Many lives of one store: each ends by a crash at some operation, sometimes inside the recovery
//! from the one before. Whatever was answered holds in the next, for as long as the store lives.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ringbolt_io::Io;
use ringbolt_io::sim::{CrashKind, Rng};

use super::bench::{Bench, compact, config, delete, put};
use crate::error::{Error, Reason};
use crate::replica::{Mode, Replica};
use crate::state::Reply;
use crate::types::Revision;

/// What is known of the store from its answers.
#[derive(Default)]
struct Known {
    /// For each key the newest answered change: its revision and the value, none for a delete.
    keys: BTreeMap<String, (i64, Option<String>)>,
    revision: i64,
    compacted: i64,
    answers: usize,
}

impl Known {
    fn note(&mut self, key: &str, answer: &Result<Reply, Error>, value: Option<String>) {
        let header = match answer {
            Ok(Reply::Put(response)) => &response.header,
            Ok(Reply::DeleteRange(response)) => &response.header,
            other => panic!("{key} answered {other:?}"),
        };
        let revision = header.as_ref().map_or(0, |header| header.revision);
        assert!(revision >= self.revision, "revisions never fall: {revision}");
        self.revision = revision;
        self.answers += 1;
        self.keys.insert(key.to_owned(), (revision, value));
    }

    /// What was answered is there, or something newer that was asked for.
    fn check(&self, replica: &Replica) {
        let state = replica.state();
        state.check();
        assert!(state.mvcc.revision() >= Revision(self.revision));
        let compacted = state.mvcc.compacted().0;
        assert!(compacted >= self.compacted, "{compacted} was {} answered", self.compacted);
        for (key, (revision, value)) in &self.keys {
            let found = state.mvcc.get(key.as_bytes(), state.mvcc.revision());
            let is_newer = found.as_ref().is_some_and(|kv| kv.mod_revision > *revision);
            let found = found.map(|kv| String::from_utf8_lossy(&kv.value).into_owned());
            // A delete that was asked for and not answered may have happened too.
            let deleted = found.is_none() && state.mvcc.revision() > Revision(*revision);
            assert!(is_newer || deleted || found == *value, "{key}: {found:?}, not {value:?}");
        }
    }
}

/// One life: opens, checks, then writes for ever.
async fn live(io: Io, known: Rc<RefCell<Known>>, seed: u64) {
    let mut small = config(Mode::Safe);
    small.checkpoint_log_bytes_min = 64 * 1024;
    let replica = Replica::open(io, small).await.expect("it opens");
    known.borrow().check(&replica);
    let mut random = Rng::new(seed);
    for round in 0.. {
        let count = 1 + random.below(6);
        let mut receipts = Vec::new();
        for part in 0..count {
            let key = format!("k{}", random.below(12));
            let value = (random.below(4) > 0)
                .then(|| format!("{seed}-{round}-{part}-{}", "x".repeat(random.index(3000))));
            let command = value.as_ref().map_or_else(|| delete(&key), |value| put(&key, value));
            receipts.push((key, value, replica.submit(command, None).expect("room")));
        }
        for (key, value, receipt) in receipts {
            let answer = receipt.await.expect("an answer");
            known.borrow_mut().note(&key, &answer, value);
        }
        if random.below(8) == 0 {
            let at = replica.status().revision.0 - 3;
            match replica.propose(compact(at, random.coin())).await {
                Ok(_) => known.borrow_mut().compacted = at,
                Err(error) => assert_eq!(error, Error::Refuse(Reason::Compacted)),
            }
        }
    }
}

fn lives(seed: u64) -> usize {
    let mut random = Rng::new(seed);
    let mut bench = Bench::new(seed);
    let known = Rc::new(RefCell::new(Known { compacted: -1, ..Known::default() }));
    for life in 0..8 {
        let (into, own) = (known.clone(), seed * 100 + life);
        bench.start(move |io| live(io, into, own));
        let kind = if random.coin() { CrashKind::Process } else { CrashKind::Power };
        let most = if random.coin() { 40 } else { 300 };
        let operations = 1 + random.below(most);
        bench.world.crash_after_ops(bench.machine, operations, kind);
        let machine = bench.machine;
        let down =
            bench.world.run_until(Duration::from_secs(60), |world| !world.is_running(machine));
        assert!(down, "it crashes in its {operations} operations");
    }
    let last = known.clone();
    bench.run(|io| async move {
        let replica = Replica::open(io, config(Mode::Safe)).await.expect("it opens");
        last.borrow().check(&replica);
    });
    known.take().answers
}

/// Sixteen stores of eight lives each.
#[test]
fn what_was_answered_holds_over_many_lives() {
    let answers: usize = (0..16).map(lives).sum();
    assert!(answers > 1000, "the lives are long enough to say something: {answers}");
}

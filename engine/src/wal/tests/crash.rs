//! Fails the n-th operation, n = 1, 2, 3 … until nothing fails, then recovers and checks; and again
//! with a crash inside the recovery.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use ringbolt_io::Io;
use ringbolt_io::sim::{CrashKind, Rng};

use super::history::{Act, History};
use super::{Rig, entry, hard_state, open_or_create, tiny};
use crate::types::RaftIndex;
use crate::wal::{Batch, Checkpoint, Failure, Mode, OpenError, Writer};

type Shared = Rc<RefCell<History>>;

/// Prints how to repeat a failing run.
struct Story(String);

impl Drop for Story {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the run {}", self.0);
        }
    }
}

/// A power cut at every operation, `Safe`.
#[test]
fn safe_survives_a_power_cut_at_every_operation() {
    crash_at_every_operation(Mode::Safe, CrashKind::Power, 1);
}

/// A kill at every operation, `Safe`.
#[test]
fn safe_survives_a_kill_at_every_operation() {
    crash_at_every_operation(Mode::Safe, CrashKind::Process, 2);
}

/// A power cut at every operation, `NoFsync`: what was flushed is there.
#[test]
fn no_fsync_survives_a_power_cut_at_every_operation() {
    crash_at_every_operation(Mode::NoFsync, CrashKind::Power, 3);
}

/// A kill at every operation, `NoFsync`: what was acknowledged is there.
#[test]
fn no_fsync_survives_a_kill_at_every_operation() {
    crash_at_every_operation(Mode::NoFsync, CrashKind::Process, 4);
}

fn crash_at_every_operation(mode: Mode, kind: CrashKind, seed: u64) {
    let mut reached = 0;
    let mut seen = Seen::default();
    for n in 1.. {
        let story = Story(format!("{mode:?} {kind:?} seed {seed} operation {n}"));
        let crashed = crash_at(seed + 16 * n, mode, kind, n, &mut seen);
        drop(story);
        if crashed {
            reached = n;
        } else if n > reached + 8 {
            // Each run draws its own acts: some end before others.
            break;
        }
    }
    assert!(reached > 60, "only {reached} operations were reached");
    assert!(seen.cuts > 0 && seen.checkpoints > 0 && seen.released > 0, "{seen:?}");
}

/// What the runs came across: a suite that never sees a torn tail proves nothing about one.
#[derive(Debug, Default)]
struct Seen {
    cuts: usize,
    checkpoints: usize,
    released: usize,
}

/// A write or sync that fails stops the log or the open, and nothing acknowledged is missing later.
#[test]
fn survives_a_failure_of_every_write_and_sync() {
    for (mode, seed) in [(Mode::Safe, 5), (Mode::NoFsync, 6)] {
        for n in 0..120 {
            let story = Story(format!("{mode:?} seed {seed} write or sync {n}"));
            let mut rig = Rig::new(seed + 16 * n);
            let history = Shared::default();
            rig.world.disk_faults(rig.machine, |faults| faults.fail_after = Some(n));
            live(&mut rig, mode, &history, 12, End::Kill);
            rig.world.disk_faults(rig.machine, |faults| faults.fail_after = None);
            live(&mut rig, mode, &history, 4, End::Kill);
            finish(&mut rig, mode, &history);
            drop(story);
        }
    }
}

/// After a flush that failed the system may hold for clean what is not on the medium; what the next
/// recovery shows of it survives a loss of power all the same.
#[test]
fn what_follows_a_failed_flush_is_durable_once_recovered() {
    for (mode, seed) in [(Mode::Safe, 7), (Mode::NoFsync, 8)] {
        for n in 0..120 {
            let story = Story(format!("{mode:?} seed {seed} write or sync {n}"));
            let mut rig = Rig::new(seed + 16 * n);
            let history = Shared::default();
            live(&mut rig, mode, &history, 4, End::Kill);
            rig.world.disk_faults(rig.machine, |faults| faults.fail_after = Some(n));
            live(&mut rig, mode, &history, 12, End::Kill);
            rig.world.disk_faults(rig.machine, |faults| faults.fail_after = None);
            live(&mut rig, mode, &history, 0, End::Power);
            finish(&mut rig, mode, &history);
            drop(story);
        }
    }
}

/// How one process of a run ends, if nothing else ends it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Kill,
    Power,
    Close,
}

/// One run: a life with a crash at operation `n`, a life with a crash in its recovery, a life
/// without, a clean end. False when the first life made fewer operations.
fn crash_at(seed: u64, mode: Mode, kind: CrashKind, n: u64, seen: &mut Seen) -> bool {
    let mut rig = Rig::new(seed);
    let history = Shared::default();
    let end = if kind == CrashKind::Power { End::Power } else { End::Kill };
    rig.world.crash_after_ops(rig.machine, n, kind);
    let crashed = live(&mut rig, mode, &history, 12, end);
    let again = 1 + (n * 7) % 60;
    rig.world.crash_after_ops(rig.machine, again, kind);
    live(&mut rig, mode, &history, 4, end);
    live(&mut rig, mode, &history, 4, end);
    finish(&mut rig, mode, &history);
    let history = history.borrow();
    seen.cuts += history.cuts;
    seen.checkpoints += usize::from(history.model.checkpoint.is_some());
    seen.released += history.released;
    crashed
}

/// A life without a fault, and a look at what it left.
fn finish(rig: &mut Rig, mode: Mode, history: &Shared) {
    live(rig, mode, history, 4, End::Close);
    let known = history.clone();
    let opened = rig.run_and_kill(move |io| async move {
        let (_, found) = open_or_create(&io, tiny(mode)).await.expect("nothing is wrong");
        assert!(found.clean, "the log was closed");
        let mut history = known.borrow_mut();
        assert_eq!(history.model.state.term, found.hard_state.term);
        history.recover(&found);
    });
    assert!(opened.is_some(), "nothing crashed it");
}

/// One process: opens, checks, works, ends. True when a crash ended it.
fn live(rig: &mut Rig, mode: Mode, history: &Shared, rounds: u64, end: End) -> bool {
    let shared = history.clone();
    let seed = rig.world.random();
    rig.run(move |io| async move {
        let (writer, found) = match open_or_create(&io, tiny(mode)).await {
            Ok(opened) => opened,
            Err(OpenError::Io { .. }) => return,
            Err(error) => panic!("{error}"),
        };
        shared.borrow_mut().recover(&found);
        let worked = work(&io, &writer, &shared, &mut Rng::new(seed), rounds).await;
        if end == End::Close {
            worked.expect("nothing fails");
            writer.close().await.expect("nothing fails");
            let mut history = shared.borrow_mut();
            history.acknowledge(writer.durable());
            history.flushed = history.acknowledged;
        }
    });
    let crashed = !rig.world.is_running(rig.machine);
    let power = end == End::Power;
    if !crashed {
        rig.world.crash(rig.machine, if power { CrashKind::Power } else { CrashKind::Process });
    }
    if power && mode == Mode::NoFsync {
        history.borrow_mut().lose_unflushed();
    }
    crashed
}

async fn work(
    io: &Io,
    writer: &Writer,
    shared: &Shared,
    rng: &mut Rng,
    rounds: u64,
) -> Result<(), Failure> {
    for _ in 0..rounds {
        let (acts, checkpoint) = draw(&shared.borrow(), rng);
        let voted = acts.iter().any(|act| matches!(act, Act::State(_)));
        shared.borrow_mut().ask(acts.clone());
        let (ticket, must_sync) = match checkpoint {
            Some(checkpoint) => (writer.mark_snapshot(checkpoint), true),
            None => (writer.append(batch(acts)), voted),
        };
        shared.borrow_mut().note(ticket, must_sync);
        if rng.below(3) == 0 {
            writer.wait_durable(ticket).await?;
        }
        if rng.below(6) == 0 {
            io.sleep(Duration::from_millis(rng.below(80))).await;
        }
        shared.borrow_mut().acknowledge(writer.durable());
        let durable = writer.durable() >= ticket;
        if let (Some(named), true) = (&shared.borrow().model.checkpoint, durable) {
            writer.release_before(named.index);
        }
        if let Some(failure) = writer.failure() {
            return Err(failure);
        }
    }
    Ok(())
}

/// The next acts of a run: entries at the end, a new term with or without another suffix, or a
/// checkpoint.
fn draw(history: &History, rng: &mut Rng) -> (Vec<Act>, Option<Checkpoint>) {
    let model = &history.model;
    let (last, term) = (model.last_index(), model.state.term.0);
    let named = model.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.index.0);
    let mut acts = Vec::new();
    let mut first = last + 1;
    match rng.below(8) {
        0 if last > named + 2 => {
            let index = named + 1 + rng.below(last - named);
            let checkpoint = Checkpoint {
                index: RaftIndex(index),
                term: model.entries[&index].term,
                root: index * 3,
                file: format!("{index}.checkpoint"),
            };
            return (vec![Act::Checkpoint(checkpoint.clone())], Some(checkpoint));
        }
        1 => {
            let term = term + 1 + rng.below(2);
            acts.push(Act::State(hard_state(term, rng.below(3), last)));
            first -= rng.below(last - named + 1);
        }
        _ => {}
    }
    let raised = acts.iter().find_map(|act| match act {
        Act::State(state) => Some(state.term.0),
        _ => None,
    });
    let term = raised.unwrap_or(term);
    let count = if acts.is_empty() { 1 + rng.below(4) } else { rng.below(3) };
    for index in first..first + count {
        let size = usize::try_from(rng.below(3_500)).expect("small");
        acts.push(Act::Entry(entry(index, term, size)));
    }
    (acts, None)
}

fn batch(acts: Vec<Act>) -> Batch {
    let mut batch = Batch::default();
    for act in acts {
        match act {
            Act::Entry(entry) => batch.entries.push(entry),
            Act::State(state) => batch.hard_state = Some(state),
            Act::Checkpoint(_) => unreachable!("a checkpoint is named by itself"),
        }
    }
    batch
}

//! The world itself: it repeats, its clocks and crashes and links do what they say.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use super::{CrashKind, MachineId, SimConfig, World};
use crate::buffer::AlignedBuffer;
use crate::disk::{Durability, OpenHow};
use crate::exec::Io;
use crate::mailbox::mailbox;
use crate::net::{Address, ListenHow, Stream};

const LONG: Duration = Duration::from_secs(60);

fn world_of(seed: u64, machines: usize) -> (World, Vec<MachineId>) {
    let mut world = World::new(seed, SimConfig::default());
    let machines = (0..machines).map(|_| world.add_machine()).collect();
    (world, machines)
}

/// Writes, syncs and sleeps for ever.
fn busy(io: &Io) {
    let inner = io.clone();
    io.spawn("busy", async move {
        inner.disk().create_dir_all("/d".as_ref()).await.expect("made");
        let file = inner.disk().open("/d/f".as_ref(), OpenHow::CREATE).await.expect("opens");
        for round in 0u64.. {
            let mut buffer = AlignedBuffer::zeroed(4096);
            buffer[..8].copy_from_slice(&inner.random_u64().to_le_bytes());
            let place = round % 16 * 4096;
            file.write_at(buffer, place, Durability::System).await.0.expect("written");
            inner.sleep(Duration::from_micros(inner.random_u64() % 3000)).await;
            file.sync().await.expect("synced");
        }
    });
}

fn crashing_run(seed: u64) -> u64 {
    let (mut world, machines) = world_of(seed, 2);
    for round in 0..6u64 {
        for machine in &machines {
            if !world.is_running(*machine) {
                world.start(*machine, busy);
            }
        }
        world.crash_after_ops(machines[0], 20 + round, CrashKind::Power);
        world.run_for(Duration::from_millis(50));
        world.crash(machines[1], CrashKind::Process);
    }
    world.trace_hash()
}

/// The same seed is the same run, another seed another one.
#[test]
fn one_seed_one_trace() {
    assert_eq!(crashing_run(11), crashing_run(11));
    assert_ne!(crashing_run(11), crashing_run(12));
}

/// `crash_after_ops(n)` dies at exactly the n-th operation, and nothing of the process is left.
#[test]
fn crash_after_ops_counts_operations() {
    for count in 1..30 {
        let (mut world, machines) = world_of(count, 1);
        world.start(machines[0], busy);
        world.crash_after_ops(machines[0], count, CrashKind::Process);
        assert!(world.run_until(LONG, |world| !world.is_running(machines[0])));
        assert_eq!(world.ops_of(machines[0]), count);
        world.run_for(Duration::from_secs(1));
        assert_eq!(world.ops_of(machines[0]), count);
        assert!(world.tasks_alive(machines[0]).is_empty());
    }
}

/// `crash_at_write` dies with the write of that size in flight, and who watches saw every write,
/// also the one that never landed.
#[test]
fn crash_at_write_counts_writes_of_a_size() {
    for others in 0..5 {
        let (mut world, machines) = world_of(others, 1);
        let seen = Rc::new(Cell::new(0));
        let count = seen.clone();
        world.on_write(
            machines[0],
            Rc::new(move |path: &Path, _, bytes: &[u8]| {
                assert_eq!((path, bytes.len()), ("/d/f".as_ref(), 4096));
                count.set(count.get() + 1);
            }),
        );
        world.start(machines[0], busy);
        world.crash_at_write(machines[0], (4097, 0), CrashKind::Power);
        world.run_for(Duration::from_millis(50));
        assert!(world.is_running(machines[0]), "no write is that large");
        let before = seen.get();
        world.crash_at_write(machines[0], (4096, others), CrashKind::Power);
        assert!(world.run_until(LONG, |world| !world.is_running(machines[0])));
        assert_eq!(seen.get(), before + others + 1);
    }
}

/// Timers follow the machine's own clock: a fast one rings early in world time.
#[test]
fn timers_follow_the_machines_clock() {
    let (mut world, machines) = world_of(1, 3);
    world.set_clock_drift(machines[1], 500_000);
    let ends: Vec<Rc<Cell<bool>>> = (0..3).map(|_| Rc::default()).collect();
    for (machine, end) in machines.iter().zip(&ends) {
        let end = end.clone();
        world.start(*machine, |io| {
            let inner = io.clone();
            io.spawn("sleeper", async move {
                inner.sleep(Duration::from_secs(3)).await;
                end.set(true);
            });
        });
    }
    world.run_for(Duration::from_millis(1));
    world.pause_clock(machines[2], Duration::from_secs(10));
    world.run_for(Duration::from_millis(2100));
    assert_eq!([ends[0].get(), ends[1].get(), ends[2].get()], [false, true, false]);
    world.run_for(Duration::from_secs(1));
    assert_eq!([ends[0].get(), ends[2].get()], [true, false]);
    world.run_for(Duration::from_secs(9));
    assert!(!ends[2].get());
    world.jump_monotonic(machines[2], Duration::from_secs(3));
    world.run_for(Duration::from_secs(1));
    assert!(ends[2].get());
}

/// Wall time jumps alone; a paused process does nothing until the pause ends.
#[test]
fn wall_jumps_and_pauses() {
    let (mut world, machines) = world_of(1, 1);
    let ticks = Rc::new(Cell::new(0u64));
    let wall = Rc::new(Cell::new(0u64));
    let (count, seen) = (ticks.clone(), wall.clone());
    world.start(machines[0], |io| {
        let inner = io.clone();
        io.spawn("ticker", async move {
            loop {
                inner.sleep(Duration::from_millis(10)).await;
                count.set(count.get() + 1);
                seen.set(inner.wall().as_secs());
            }
        });
    });
    world.run_for(Duration::from_secs(1));
    assert!((95..=100).contains(&ticks.get()));
    let (before, so_far) = (wall.get(), ticks.get());
    world.jump_wall(machines[0], -3_600_000_000_000);
    world.run_for(Duration::from_secs(1));
    assert!((95..=100).contains(&(ticks.get() - so_far)), "timers do not follow the wall clock");
    assert!((3598..=3600).contains(&(before - wall.get())));
    let before = ticks.get();
    world.pause(machines[0], Duration::from_secs(1));
    world.run_for(Duration::from_millis(999));
    assert_eq!(ticks.get(), before);
    world.run_for(Duration::from_millis(100));
    assert!(ticks.get() > before);
}

/// Shards of one process talk through mailboxes.
#[test]
fn shards_share_mailboxes() {
    let (mut world, machines) = world_of(1, 1);
    let got = Rc::new(RefCell::new(Vec::new()));
    let mut sender = None;
    let sink = got.clone();
    world.start_shards(machines[0], 2, |shard, io| {
        let inner = io.clone();
        if shard == 0 {
            let (send, receive) = mailbox::<u32>(io, 2);
            sender = Some(send);
            let sink = sink.clone();
            io.spawn("receiver", async move {
                while let Some(value) = receive.receive().await {
                    sink.borrow_mut().push(value);
                }
            });
        } else {
            let send = sender.take().expect("shard 0 came first");
            io.spawn("sender", async move {
                for value in 0..10 {
                    send.send(&inner, value).await.expect("somebody receives");
                }
            });
        }
    });
    world.run_for(Duration::from_secs(1));
    assert_eq!(*got.borrow(), (0..10).collect::<Vec<u32>>());
}

/// Answers every connection with what it sent, until it ends.
fn echo(io: &Io, address: Address) {
    let inner = io.clone();
    io.spawn("echo", async move {
        let listener = inner.listen(&address, &ListenHow::default()).expect("free");
        while let Ok((stream, _)) = listener.accept().await {
            inner.spawn("connection", serve(stream));
        }
    });
}

async fn serve(stream: Stream) {
    loop {
        let (count, bytes) = stream.read(Vec::new()).await;
        if count.unwrap_or(0) == 0 || stream.write(vec![Bytes::from(bytes)]).await.is_err() {
            return;
        }
    }
}

/// Sends `rounds` messages and hears each again; the count it got through.
fn caller(world: &mut World, machine: MachineId, address: Address, rounds: u32) -> Rc<Cell<i64>> {
    let heard = Rc::new(Cell::new(-1));
    let count = heard.clone();
    world.start(machine, |io| {
        let inner = io.clone();
        io.spawn("caller", async move {
            let Ok(stream) = inner.connect(&address).await else { return count.set(-2) };
            count.set(0);
            for round in 0..rounds {
                let message = Bytes::from(round.to_le_bytes().to_vec());
                if stream.write(vec![message.clone()]).await.is_err() {
                    return count.set(-3);
                }
                let (result, bytes) = stream.read(Vec::new()).await;
                if result.unwrap_or(0) == 0 {
                    return count.set(-3);
                }
                assert_eq!(bytes, message);
                count.set(count.get() + 1);
            }
        });
    });
    heard
}

/// Bytes arrive whole and in order; more than the window waits for the reader.
#[test]
fn streams_carry_bytes_in_order() {
    let (mut world, machines) = world_of(5, 2);
    let address = world.address(machines[1], 2379);
    let any = Address::Tcp("0.0.0.0:2379".parse().expect("an address"));
    let ended = Rc::new(Cell::new(false));
    let flag = ended.clone();
    world.start(machines[1], |io| {
        let inner = io.clone();
        io.spawn("slow reader", async move {
            let listener = inner.listen(&any, &ListenHow::default()).expect("free");
            let (stream, _) = listener.accept().await.expect("somebody comes");
            let mut all = Vec::new();
            loop {
                inner.sleep(Duration::from_millis(1)).await;
                let (count, bytes) = stream.read(all).await;
                all = bytes;
                if count.expect("no error") == 0 {
                    break;
                }
            }
            assert_eq!(all.len(), 3_000_000);
            let words = all.chunks_exact(4).zip(0u32..);
            assert!(words.into_iter().all(|(part, at)| part == at.to_le_bytes()));
            stream.write(vec![Bytes::from_static(b"thanks")]).await.expect("the system has it");
            inner.sleep(Duration::from_millis(10)).await;
            stream.write(vec![Bytes::from_static(b"?")]).await.expect_err("nobody listens");
            flag.set(true);
        });
    });
    world.start(machines[0], |io| {
        let inner = io.clone();
        io.spawn("sender", async move {
            let stream = inner.connect(&address).await.expect("somebody listens");
            let all: Vec<u8> = (0..750_000u32).flat_map(u32::to_le_bytes).collect();
            for part in all.chunks(100_000) {
                stream.write(vec![Bytes::copy_from_slice(part)]).await.expect("sent");
            }
        });
    });
    assert!(world.run_until(LONG, |_| ended.get()));
}

/// Nobody there is refused; a cut link delays and a heal delivers; a dead process is noticed.
#[test]
fn links_cut_heal_and_break() {
    let (mut world, machines) = world_of(6, 2);
    let address = world.address(machines[1], 2379);
    let refused = caller(&mut world, machines[0], address.clone(), 1);
    world.run_for(Duration::from_secs(1));
    assert_eq!(refused.get(), -2);

    world.crash(machines[0], CrashKind::Process);
    let bound = address.clone();
    world.start(machines[1], |io| echo(io, bound));
    world.run_for(Duration::from_millis(1));
    let heard = caller(&mut world, machines[0], address, 1_000_000);
    world.run_for(Duration::from_secs(1));
    assert!(heard.get() > 100);

    world.cut_link(machines[1], machines[0]);
    world.run_for(Duration::from_millis(10));
    let before = heard.get();
    world.run_for(Duration::from_secs(1));
    assert_eq!(heard.get(), before);
    world.heal_link(machines[1], machines[0]);
    world.run_for(Duration::from_secs(1));
    assert!(heard.get() > before + 100);

    world.crash(machines[1], CrashKind::Process);
    world.run_for(Duration::from_secs(1));
    assert_eq!(heard.get(), -3);
}

/// A connection may break under its users' hands; a wait for bytes can be given up.
#[test]
fn connections_break_and_waits_end() {
    let (mut world, machines) = world_of(7, 2);
    let address = world.address(machines[1], 2379);
    let bound = address.clone();
    world.start(machines[1], |io| echo(io, bound));
    world.run_for(Duration::from_millis(1));
    let heard = caller(&mut world, machines[0], address.clone(), 1_000_000);
    world.run_for(Duration::from_secs(1));
    world.break_connections(machines[0], machines[1]);
    world.run_for(Duration::from_secs(1));
    assert_eq!(heard.get(), -3);

    world.crash(machines[0], CrashKind::Process);
    let ended = Rc::new(Cell::new(false));
    let flag = ended.clone();
    world.start(machines[0], |io| {
        let inner = io.clone();
        io.spawn("impatient", async move {
            let stream = inner.connect(&address).await.expect("somebody listens");
            let nothing = inner.timeout(Duration::from_millis(50), stream.read(Vec::new())).await;
            assert!(nothing.is_none());
            stream.write(vec![Bytes::from_static(b"x")]).await.expect("still good");
            let (count, bytes) = stream.read(Vec::new()).await;
            assert_eq!((count.expect("echoed"), &bytes[..]), (1, &b"x"[..]));
            stream.shutdown();
            assert_eq!(stream.read(Vec::new()).await.0.expect("the end"), 0);
            flag.set(true);
        });
    });
    world.run_for(Duration::from_secs(1));
    assert!(ended.get());
}

//! Tasks, timers, and mailboxes between the threads of two shards.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::{SEED, engines, over_each};
use crate::exec::Executor;
use crate::mailbox::{SendError, Sender, mailbox};
use crate::net::{Address, Detached, ListenHow};
use crate::select;

/// Timers fire in their order, none early, and a dropped one not at all.
#[test]
fn timers_fire_in_order_and_not_early() {
    over_each(|io, _| async move {
        let start = io.now();
        let last = Rc::new(Cell::new(0u64));
        let tasks: Vec<_> = [7u64, 1, 3, 2, 5]
            .into_iter()
            .map(|number| {
                let (io, last) = (io.clone(), last.clone());
                io.clone().spawn("timer", async move {
                    let wait = Duration::from_micros(number * 1500);
                    io.sleep_until(start + wait).await;
                    assert!(io.now().since(start) >= wait);
                    assert!(last.replace(number) < number);
                })
            })
            .collect();
        assert!(io.timeout(Duration::from_millis(1), std::future::pending::<()>()).await.is_none());
        for task in tasks {
            task.await;
        }
        assert_eq!(last.get(), 7);
    });
}

/// A task that does a long job in pieces does not go on before answers and timers had their turn.
#[test]
fn between_two_pieces_the_driver_is_visited() {
    over_each(|io, _| async move {
        let done = Rc::new(Cell::new(false));
        let (set, clock) = (done.clone(), io.clone());
        let task = io.spawn("waits for a moment", async move {
            clock.sleep(Duration::from_nanos(1)).await;
            set.set(true);
        });
        let mut pieces = 0;
        while !done.get() {
            io.yield_now().await;
            pieces += 1;
        }
        assert!(pieces < 10, "{pieces} pieces before a timer that was due");
        task.await;
    });
}

/// 10 000 tasks that sleep, yield and end are all run, and leave nothing behind.
#[test]
fn ten_thousand_tasks() {
    over_each(|io, _| async move {
        let count = Rc::new(Cell::new(0));
        let tasks: Vec<_> = (0..10_000u64)
            .map(|number| {
                let (io, count) = (io.clone(), count.clone());
                io.clone().spawn("one of many", async move {
                    io.sleep(Duration::from_micros(number % 977)).await;
                    io.yield_now().await;
                    count.set(count.get() + 1);
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        assert_eq!(count.get(), 10_000);
    });
}

/// 100 000 values go to another thread and come back through mailboxes of four, in order: a full
/// mailbox makes the sender wait, and no wake-up is lost whichever side sleeps.
#[test]
fn mailboxes_between_threads_keep_order_under_back_pressure() {
    const COUNT: u64 = 100_000;
    for engine in engines() {
        let (post, posted) = std::sync::mpsc::channel();
        let echo = std::thread::spawn(move || {
            let executor = Executor::new(select::driver(engine, SEED).unwrap().0);
            let io = executor.io();
            let (to_echo, receiver) = mailbox::<(u64, Sender<u64>)>(&io, 1);
            post.send(to_echo).unwrap();
            executor.run(async move {
                let (first, back) = receiver.receive().await.unwrap();
                assert_eq!(first, 0);
                let mut expected = 1;
                while let Some((value, _)) = receiver.receive().await {
                    assert_eq!(value, expected);
                    expected += 1;
                    back.send(&io, value).await.unwrap();
                }
                assert_eq!(expected, COUNT);
            });
        });
        let to_echo = posted.recv().unwrap();
        let executor = Executor::new(select::driver(engine, SEED).unwrap().0);
        let io = executor.io();
        executor.run(async move {
            let (back, answers) = mailbox::<u64>(&io, 4);
            let sender = io.clone();
            let sending = io.spawn("sender", async move {
                for value in 0..COUNT {
                    to_echo.send(&sender, (value, back.clone())).await.map_err(drop).unwrap();
                }
            });
            for expected in 1..COUNT {
                assert_eq!(answers.receive().await, Some(expected));
            }
            sending.await;
        });
        echo.join().unwrap();
    }
}

/// A full mailbox gives the value back; one whose receiver has gone says so.
#[test]
fn full_and_closed_mailboxes() {
    over_each(|io, _| async move {
        let (sender, receiver) = mailbox::<u32>(&io, 1);
        sender.try_send(1).unwrap();
        assert_eq!(sender.try_send(2), Err(SendError::Full(2)));
        assert_eq!(receiver.receive().await, Some(1));
        drop(receiver);
        assert_eq!(sender.try_send(3), Err(SendError::Closed(3)));
        assert_eq!(sender.send(&io, 4).await, Err(4));
    });
}

/// A shard that waits for nothing but mail is woken by a thread that is no shard.
#[test]
fn a_plain_thread_wakes_a_parked_shard() {
    over_each(|io, _| async move {
        let (sender, receiver) = mailbox::<u32>(&io, 8);
        let thread = std::thread::spawn(move || {
            for value in 0..20 {
                std::thread::sleep(Duration::from_millis(1));
                sender.try_send(value).unwrap();
            }
        });
        for expected in 0..20 {
            assert_eq!(receiver.receive().await, Some(expected));
        }
        assert_eq!(receiver.receive().await, None);
        thread.join().unwrap();
    });
}

/// Batches go to another thread and come back whole and in order; what finds no room stays with
/// its sender.
#[test]
fn batches_between_threads_keep_order() {
    const COUNT: u64 = 50_000;
    for engine in engines() {
        let (post, posted) = std::sync::mpsc::channel();
        let summing = std::thread::spawn(move || {
            let executor = Executor::new(select::driver(engine, SEED).unwrap().0);
            let (sender, receiver) = mailbox::<u64>(&executor.io(), 100);
            post.send(sender).unwrap();
            executor.run(async move {
                let (mut batch, mut expected) = (Vec::new(), 0);
                while receiver.receive_all(&mut batch).await {
                    for value in batch.drain(..) {
                        assert_eq!(value, expected);
                        expected += 1;
                    }
                }
                assert_eq!(expected, COUNT);
            });
        });
        let sender = posted.recv().unwrap();
        let mut batch = Vec::new();
        for value in 0..COUNT {
            batch.push(value);
            if value % 37 == 0 {
                let sent = sender.try_send_all(&mut batch);
                assert_eq!(sent.is_ok(), batch.is_empty());
            }
        }
        while sender.try_send_all(&mut batch).is_err() {
            std::thread::yield_now();
        }
        drop(sender);
        summing.join().unwrap();
    }
}

/// A connection accepted on one shard is served by another; one that was read from stays.
#[test]
fn an_untouched_stream_moves_to_another_shard() {
    for (from, to) in engines().into_iter().zip(engines().into_iter().rev()) {
        let (post, posted) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            let executor = Executor::new(select::driver(to, SEED).unwrap().0);
            let io = executor.io();
            let (sender, receiver) = mailbox::<Detached>(&io, 1);
            post.send(sender).unwrap();
            executor.run(async move {
                let socket = receiver.receive().await.unwrap();
                let stream = io.adopt(socket).unwrap();
                let (count, bytes) = stream.read(Vec::new()).await;
                assert_eq!(count.unwrap(), 4);
                stream.write(vec![bytes.into()]).await.unwrap();
            });
        });
        let sender = posted.recv().unwrap();
        let executor = Executor::new(select::driver(from, SEED).unwrap().0);
        let io = executor.io();
        executor.run(async move {
            let any = Address::Tcp("127.0.0.1:0".parse().unwrap());
            let listener = io.listen(&any, &ListenHow::default()).unwrap();
            let client = io.connect(listener.address()).await.unwrap();
            client.write(vec![bytes::Bytes::from_static(b"echo")]).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let shared = stream.clone();
            let stream = stream.detach().expect_err("it has a clone");
            drop(shared);
            sender.try_send(stream.detach().ok().expect("nobody has used it")).unwrap();
            assert_eq!(client.read(Vec::new()).await.1, b"echo");
            let other = io.connect(listener.address()).await.unwrap();
            let (used, _) = listener.accept().await.unwrap();
            other.write(vec![bytes::Bytes::from_static(b"x")]).await.unwrap();
            assert_eq!(used.read(Vec::new()).await.1, b"x");
            if io.engine_name() == "uring" {
                assert!(used.detach().is_err(), "its receive is still in flight");
            }
        });
        other.join().unwrap();
    }
}

//! The writing task and the timekeeper of a connection.

use std::future::Future;
use std::rc::Rc;
use std::task::Poll;

use ringbolt_io::Stream;

use super::link::Link;

/// Writes what the connection has to say, everything that is ready in one gathered write.
///
/// The bell wakes it after the tasks that are ready now, so their answers leave together.
pub(super) async fn write(link: Rc<Link>, stream: Stream) {
    loop {
        loop {
            let mut batch = Vec::new();
            let mut room = Vec::new();
            link.http.borrow_mut().poll_output(&mut batch, &mut room);
            for slot in room.into_iter().filter_map(|id| link.slot(id)) {
                slot.wake_room();
            }
            link.account();
            if batch.is_empty() {
                break;
            }
            // Bytes: the kernel takes them.
            if stream.write(batch).await.is_err() {
                stream.shutdown();
                link.lose();
                return;
            }
            if link.http.borrow().output_size() < link.output_max() {
                link.drained.ring();
            }
        }
        if link.lost.get() {
            return;
        }
        let (finished, failed) = {
            let http = link.http.borrow();
            (http.is_finished(), http.ended_by().is_some())
        };
        if finished && !failed {
            // Gracefully: everything is answered. After an error the reader lingers and ends it.
            stream.shutdown();
        }
        // Receipt: somebody has something to send.
        link.output.heard().await;
    }
}

/// Ends calls at their deadlines and asks a silent client for a sign.
pub(super) async fn keep_time(link: Rc<Link>) {
    loop {
        let now = link.io.now();
        link.expire(now);
        let next = {
            let mut http = link.http.borrow_mut();
            let next = http.tick(now);
            if http.has_output() || http.is_finished() {
                link.output.ring();
            }
            link.next_deadline().map_or(next, |deadline| deadline.min(next))
        };
        let mut sleep = std::pin::pin!(link.io.sleep_until(next));
        // Receipt: the time has come, or an earlier deadline has.
        std::future::poll_fn(|context| {
            if link.alarm.poll_heard(context).is_ready() {
                return Poll::Ready(());
            }
            sleep.as_mut().poll(context)
        })
        .await;
    }
}

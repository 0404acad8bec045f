//! Helper threads of one shard: what would block runs there, and its answer comes back by the
//! shard's wake line.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::driver::{Done, Token};
use crate::system::files::Outcome;
use crate::system::wake::WakeLine;

/// What a job gives.
pub(crate) enum Answer {
    /// The answer itself.
    Done(Done),
    /// Of a control call: the shard still makes a handle of an opened file.
    Called(io::Result<Outcome>),
}

/// Work for a helper thread. It owns all that it touches (D1).
pub(crate) type Job = Box<dyn FnOnce() -> Option<(Token, Answer)> + Send>;

/// Answers of helper threads that the shard has not taken yet.
pub(crate) struct Answers {
    list: Mutex<Vec<(Token, Answer)>>,
    line: Arc<WakeLine>,
}

impl Answers {
    pub(crate) fn new(line: Arc<WakeLine>) -> Arc<Answers> {
        Arc::new(Answers { list: Mutex::default(), line })
    }

    /// Takes all answers. On the shard.
    pub(crate) fn take(&self) -> Vec<(Token, Answer)> {
        std::mem::take(&mut *held(&self.list))
    }

    pub(crate) fn is_empty(&self) -> bool {
        held(&self.list).is_empty()
    }

    fn give(&self, token: Token, answer: Answer) {
        held(&self.list).push((token, answer));
        self.line.interrupt();
    }
}

/// Up to `threads_max` threads over one queue, started when first needed. Jobs start in the order
/// they came; with one thread they also end in it. Dropping the pool finishes every job.
pub(crate) struct Pool {
    name: &'static str,
    threads_max: usize,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    answers: Arc<Answers>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    closing: bool,
}

impl Pool {
    pub(crate) fn new(name: &'static str, threads_max: usize, answers: Arc<Answers>) -> Pool {
        assert!(threads_max > 0, "a pool without threads does nothing");
        let shared = Shared { state: Mutex::default(), work: Condvar::new(), answers };
        Pool { name, threads_max, shared: Arc::new(shared), threads: Vec::new() }
    }

    /// Queues a job. When no thread can be started and none runs, the job runs here and now:
    /// slow is better than never.
    pub(crate) fn run(&mut self, job: Job) {
        let short = {
            let mut state = held(&self.shared.state);
            state.jobs.push_back(job);
            state.jobs.len() > state.idle
        };
        if short && self.threads.len() < self.threads_max {
            let shared = self.shared.clone();
            let started =
                thread::Builder::new().name(self.name.into()).spawn(move || serve(&shared));
            match started {
                Ok(thread) => self.threads.push(thread),
                Err(error) if self.threads.is_empty() => {
                    let error = crate::plain(&error);
                    tracing::warn!(%error, name = self.name, "no helper thread");
                    drain(&self.shared);
                    return;
                }
                Err(_) => {}
            }
        }
        self.shared.work.notify_one();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        held(&self.shared.state).closing = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn serve(shared: &Shared) {
    loop {
        let job = {
            let mut state = held(&shared.state);
            loop {
                if let Some(job) = state.jobs.pop_front() {
                    break job;
                }
                if state.closing {
                    return;
                }
                state.idle += 1;
                state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        };
        if let Some((token, answer)) = job() {
            shared.answers.give(token, answer);
        }
    }
}

fn drain(shared: &Shared) {
    loop {
        let Some(job) = held(&shared.state).jobs.pop_front() else { return };
        if let Some((token, answer)) = job() {
            shared.answers.give(token, answer);
        }
    }
}

/// No critical section here can panic, so a poisoned lock still guards sound data.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One thread keeps the order of its jobs, and a dropped pool has finished them all.
    #[test]
    fn one_thread_keeps_order_and_drop_finishes() {
        let answers = Answers::new(WakeLine::new().unwrap());
        let mut pool = Pool::new("test", 1, answers.clone());
        for number in 0..100 {
            pool.run(Box::new(move || Some((Token(number), Answer::Done(Done::Woken)))));
        }
        drop(pool);
        let order: Vec<u64> = answers.take().iter().map(|(token, _)| token.0).collect();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
        assert!(answers.is_empty());
    }

    /// Four jobs that wait for each other finish only when they run at the same time.
    #[test]
    fn jobs_overlap_up_to_the_thread_count() {
        let answers = Answers::new(WakeLine::new().unwrap());
        let mut pool = Pool::new("test", 4, answers);
        let barrier = Arc::new(std::sync::Barrier::new(4));
        for _ in 0..4 {
            let barrier = barrier.clone();
            pool.run(Box::new(move || {
                barrier.wait();
                None
            }));
        }
    }
}

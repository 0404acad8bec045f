//! A quiet client: one put after another, each of which must be answered in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use prost::Message;
use ringbolt_proto::etcdserverpb::PutRequest;

use super::server::{Server, resident_bytes};
use super::wire::Wire;

/// Time between two puts.
const PAUSE: Duration = Duration::from_millis(2);
/// Calls of one connection before it is opened anew: stream ids do not last for ever.
const CALLS_PER_CONNECTION: u32 = 100_000;

/// What the quiet client saw while an attack went on.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    /// Times of the puts, in microseconds, shortest first.
    pub times_us: Vec<u64>,
    /// The first put that failed.
    pub failure: Option<String>,
    /// Puts that were turned away because memory was short.
    pub turned_away: usize,
    /// The most memory the server had.
    pub resident_bytes_max: u64,
}

impl Sight {
    /// The time below which a part of the puts lies.
    #[must_use]
    pub fn percentile(&self, part: f64) -> u64 {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "an index into a vector, from a part of one"
        )]
        let index = (self.times_us.len() as f64 * part) as usize;
        let last = self.times_us.len().saturating_sub(1);
        self.times_us.get(index.min(last)).copied().unwrap_or(0)
    }
}

/// A quiet client at work.
pub struct Quiet {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Sight>,
}

impl Quiet {
    /// Begins.
    ///
    /// # Errors
    /// It cannot connect.
    pub fn start(server: &Server) -> Result<Quiet, String> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, process) = (stop.clone(), server.id());
        let mut wire = Wire::wide(server)?;
        let thread = spawn(move || {
            let mut sight = Sight::default();
            let mut stream = 1;
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                match put(&mut wire, stream) {
                    Ok(()) => {}
                    Err(error) if error.contains("too many requests") => sight.turned_away += 1,
                    Err(error) => {
                        sight.failure.get_or_insert(error);
                        break;
                    }
                }
                sight.times_us.push(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
                sight.resident_bytes_max = sight.resident_bytes_max.max(resident_bytes(process));
                stream += 2;
                if stream > CALLS_PER_CONNECTION * 2 {
                    break;
                }
                sleep(PAUSE);
            }
            sight.times_us.sort_unstable();
            sight
        });
        Ok(Quiet { stop, thread })
    }

    /// Ends, and tells.
    ///
    /// # Errors
    /// The client itself failed.
    pub fn stop(self) -> Result<Sight, String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the quiet client panicked".to_owned())
    }
}

fn put(wire: &mut Wire, stream: u32) -> Result<(), String> {
    let put = PutRequest { key: "quiet".into(), value: "v".into(), ..PutRequest::default() };
    wire.call(stream, "etcdserverpb.KV/Put", &[]);
    wire.message(stream, &put.encode_to_vec(), true);
    let outcome = wire.outcome(stream)?;
    if outcome == "0 " { Ok(()) } else { Err(format!("a quiet put got {outcome:?}")) }
}

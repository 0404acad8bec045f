//! What the store costs: time and memory of a million keys.
//!
//! `cargo run --release -p ringbolt-engine --example mvcc_bench -- [keys] [short]`; `short` takes
//! keys of 20 bytes instead of Kubernetes-like ones. Times are those of the thread on its core:
//! what else runs on the machine is left out as far as it can be.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use ringbolt_engine::mvcc::{
    End, ExportCursor, HashWalk, Importer, KeyRange, Mvcc, Next, Rest, Values,
};
use ringbolt_engine::{LeaseId, Revision};

const VALUE: [u8; 256] = [7; 256];
const NAMESPACES: u64 = 100;

fn main() {
    let mut args = std::env::args().skip(1);
    let count: u64 = args.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let short = args.next().is_some_and(|text| text == "short");
    let order = shuffled(count);
    let keys: Vec<Vec<u8>> = order
        .iter()
        .map(|&number| if short { short_key(number) } else { kubernetes_key(number) })
        .collect();
    let key_bytes: usize = keys.iter().map(Vec::len).sum();
    println!("{count} keys, {} bytes on average", key_bytes as u64 / count);

    let before = resident_bytes();
    let mut mvcc = Mvcc::new();
    each("insert", &keys, |key| put(&mut mvcc, key));
    let grown = resident_bytes() - before;
    println!("memory             {:>8} B/key, {} MB", grown / count, grown >> 20);
    println!("accounted          {:>8} B/key", mvcc.size_bytes() / count);
    let now = mvcc.revision();
    each("get", &keys, |key| {
        black_box(mvcc.get(key, now));
    });
    let grown = resident_bytes() - before;
    println!("memory when read   {:>8} B/key", grown / count);
    reads(&mvcc, &keys, short);
    mvcc.check();
    pieces(&mut mvcc, &keys[0]);
    history(&mut mvcc, &keys);
    checkpoint(&mut mvcc);
    mvcc.check();
}

/// The longest pieces of what is done in pieces.
fn pieces(mvcc: &mut Mvcc, busy: &[u8]) {
    longest("hash, 500", |walk: &mut Option<HashWalk>| {
        let walk = walk.get_or_insert_with(|| mvcc.hash_walk(0).expect("the newest"));
        mvcc.hash_step(walk, 500).expect("never compacted").is_none()
    });
    // Not one key existed then: everything is looked at and nothing seen.
    let mut rest: Option<Rest> = None;
    longest("visit, all newer", |_: &mut ()| {
        let from = rest.take().unwrap_or_else(|| KeyRange::everything().into());
        rest = mvcc.visit_some(from, Revision(1), 1000, &mut |_| Next::GoOn);
        rest.is_some()
    });
    (0..200_000).for_each(|_| put(mvcc, busy));
    let mut rest = Some(Rest::from(KeyRange { start: busy.to_vec().into(), end: End::Single }));
    longest("visit, one chain", |_: &mut ()| {
        let from = rest.take().expect("not over");
        rest = mvcc.visit_some(from, Revision(2), 1000, &mut |_| Next::GoOn);
        rest.is_some()
    });
    let mut cursor = ExportCursor::new(mvcc);
    longest("export, 64 KiB", |_: &mut ()| {
        black_box(mvcc.export(&mut cursor, 64 * 1024)).is_some()
    });
}

/// Calls `piece` until it is over; reports how long its pieces took.
fn longest<T: Default>(name: &str, mut piece: impl FnMut(&mut T) -> bool) {
    let mut times = Vec::new();
    let mut state = T::default();
    loop {
        let started = Clock::now();
        let more = piece(&mut state);
        times.push(started.elapsed());
        if !more {
            break;
        }
    }
    let total: Duration = times.iter().sum();
    times.sort();
    println!(
        "{name:<18} {:>8} pieces, {} ms; median {} µs, p99 {} µs, max {} µs",
        times.len(),
        total.as_millis(),
        times[times.len() / 2].as_micros(),
        times[times.len() * 99 / 100].as_micros(),
        times[times.len() - 1].as_micros(),
    );
}

/// Overwrites every key once, then compacts that away, with deletions of a tenth.
fn history(mvcc: &mut Mvcc, keys: &[Vec<u8>]) {
    let old = mvcc.revision();
    each("overwrite", keys, |key| put(mvcc, key));
    let tenth = &keys[..keys.len() / 10];
    let started = Clock::now();
    black_box(mvcc.count(&KeyRange::everything(), Revision(mvcc.revision().0 - 1000)));
    report("count, 1000 back", started.elapsed(), 1);
    let started = Clock::now();
    black_box(mvcc.range(&KeyRange::everything(), old, 500, Values::Full));
    report("range 500, old", started.elapsed(), 1);
    each("delete", tenth, |key| {
        let mut write = mvcc.begin();
        write.delete(key);
        write.finish();
    });
    let before = resident_bytes();
    let records = mvcc.events(Revision(0)).count();
    mvcc.compact(mvcc.revision()).expect("the current revision");
    let mut slices = Vec::new();
    loop {
        let started = Clock::now();
        let more = mvcc.compact_slice(64);
        slices.push(started.elapsed());
        if !more {
            break;
        }
    }
    let total: Duration = slices.iter().sum();
    slices.sort();
    println!(
        "compaction         {:>8} ms of {records} records in {} slices, p99 {} µs, max {} µs",
        total.as_millis(),
        slices.len(),
        slices[slices.len() * 99 / 100].as_micros(),
        slices[slices.len() - 1].as_micros(),
    );
    println!("memory, from, to   {:>8} {} MB", before >> 20, resident_bytes() >> 20);
}

fn reads(mvcc: &Mvcc, keys: &[Vec<u8>], short: bool) {
    let now = mvcc.revision();
    let ranges: Vec<KeyRange> = keys
        .iter()
        .step_by(1 + keys.len() / 1000)
        .map(|key| KeyRange {
            start: Bytes::copy_from_slice(key),
            end: ringbolt_engine::mvcc::End::Unbounded,
        })
        .collect();
    let started = Clock::now();
    for range in &ranges {
        black_box(mvcc.range(range, now, 500, Values::Full));
    }
    report("range of 500", started.elapsed(), ranges.len());
    let started = Clock::now();
    for range in &ranges {
        let mut left = 500;
        mvcc.visit(range, now, &mut |version| {
            black_box(version.value.len());
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }
    report("visit of 500", started.elapsed(), ranges.len());
    let started = Clock::now();
    let mut counted = 0;
    for namespace in 0..NAMESPACES {
        let prefix = if short {
            format!("key-{namespace:02}")
        } else {
            format!("/registry/pods/namespace-{namespace:03}/")
        };
        counted += mvcc.count(&KeyRange::prefix(prefix.as_bytes()), now);
    }
    report("count of a prefix", started.elapsed(), 100);
    println!("counted            {:>8} keys a prefix", counted / NAMESPACES);
    let started = Clock::now();
    black_box(mvcc.hash_kv(0).expect("the current revision"));
    report("hash_kv", started.elapsed(), 1);
}

fn checkpoint(mvcc: &mut Mvcc) {
    let mut cursor = ExportCursor::new(mvcc);
    let mut importer = Importer::new();
    let (mut exporting, mut importing) = (Duration::ZERO, Duration::ZERO);
    let (mut bytes, mut longest) = (0, Duration::ZERO);
    loop {
        let started = Clock::now();
        let Some(chunk) = mvcc.export(&mut cursor, 256 * 1024) else { break };
        exporting += started.elapsed();
        longest = longest.max(started.elapsed());
        bytes += chunk.len();
        let started = Clock::now();
        importer.feed(&chunk).expect("our own chunk");
        importing += started.elapsed();
    }
    let copy = importer.finish().expect("a whole stream");
    assert_eq!(copy.hash_kv(0).map(|hash| hash.hash), mvcc.hash_kv(0).map(|hash| hash.hash));
    println!(
        "checkpoint         {:>8} MB, export {} ms (longest chunk {} µs), import {} ms",
        bytes >> 20,
        exporting.as_millis(),
        longest.as_micros(),
        importing.as_millis()
    );
}

/// The time this thread spent on a core.
struct Clock(Duration);

impl Clock {
    fn now() -> Clock {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Clock(time.try_into().expect("time since the thread began"))
    }

    fn elapsed(&self) -> Duration {
        Clock::now().0 - self.0
    }
}

fn put(mvcc: &mut Mvcc, key: &[u8]) {
    let mut write = mvcc.begin();
    write.put(key, &VALUE, LeaseId(0));
    write.finish();
}

fn each(name: &str, keys: &[Vec<u8>], mut act: impl FnMut(&[u8])) {
    let mut slowest = Duration::ZERO;
    let started = Clock::now();
    for batch in keys.chunks(100) {
        let started = Clock::now();
        batch.iter().for_each(|key| act(key));
        slowest = slowest.max(started.elapsed());
    }
    report(name, started.elapsed(), keys.len());
    println!("  slowest hundred  {:>8} µs", slowest.as_micros());
}

fn report(name: &str, took: Duration, count: usize) {
    println!("{name:<18} {:>8} ns", took.as_nanos() / count as u128);
}

fn kubernetes_key(number: u64) -> Vec<u8> {
    let (namespace, pod) = (number % NAMESPACES, number / NAMESPACES);
    let id = pod.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
    format!("/registry/pods/namespace-{namespace:03}/app-{id:010x}").into_bytes()
}

fn short_key(number: u64) -> Vec<u8> {
    format!("key-{:02}-{:013}", number % NAMESPACES, number / NAMESPACES).into_bytes()
}

/// The numbers below `count` in an order that jumps about.
fn shuffled(count: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..count).collect();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for index in (1..order.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let bound = index as u64 + 1;
        order.swap(index, usize::try_from(state % bound).expect("an index"));
    }
    order
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages = status.split(' ').nth(1).and_then(|text| text.parse::<u64>().ok());
    pages.expect("a number of pages") * 4096
}

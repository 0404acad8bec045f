//! A soak: this project's server under a steady load for hours, judged by errors, memory and disk.
//!
//! ```text
//!   start ──► fill ──► capacity: closed loop ──► PERCENT of it: open loop, in windows ──► verdict
//!                                                    │ at the end of a window: a sample,
//!                                                    └ and a compaction when one is due
//! ```

mod drive;
mod mix;
mod pacer;
mod plot;
mod verdict;

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use prost::Message;
use ringbolt_proto::etcdserverpb::{CompactionRequest, StatusRequest, StatusResponse};

use crate::compare::fill;
use crate::limits::{SOAK_COMPLAINTS_MAX, SOAK_WARM_UP};
use crate::measures::number;
use crate::report;
use crate::server::Server;
use crate::wire::{Connection, head};
use drive::{Drive, Pace, Tally};
use pacer::Pacer;
use verdict::{Judgement, Sample};

/// What `soak` needs to know.
#[derive(clap::Args)]
pub struct Arguments {
    /// The server.
    #[arg(long, default_value = "target/release/ringbolt")]
    ours: PathBuf,
    /// Where its data directory is made: the disk that is soaked.
    #[arg(long, default_value = ".")]
    directory: PathBuf,
    /// Minutes of load.
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    minutes: u64,
    /// The load, in per cent of what the server can do.
    #[arg(long, default_value_t = 70, value_parser = clap::value_parser!(u64).range(1..=100))]
    percent: u64,
    /// Seconds of looking for what it can do.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    capacity_seconds: u64,
    /// Seconds of one window: a line of figures.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    window_seconds: u64,
    /// Seconds between two compactions; each keeps the history since the one before.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    compact_seconds: u64,
    /// First of the two ports of the server.
    #[arg(long, default_value_t = 26890)]
    port: u16,
    /// A flag for the server, as --flag=--fsync=memory.
    #[arg(long, allow_hyphen_values = true)]
    flag: Vec<String>,
    /// Writes an SVG plot of memory, disk and latency here.
    #[arg(long)]
    plot: Option<PathBuf>,
}

/// Runs it and prints the verdict.
///
/// # Errors
/// A run that cannot go on, and a verdict that is not good.
pub fn run(arguments: &Arguments) -> io::Result<()> {
    let mut server =
        Server::new(&arguments.ours, &arguments.directory.join("soak"), arguments.port)?;
    for flag in &arguments.flag {
        server = server.with(flag);
    }
    server.start()?;
    let result = soak(&server, arguments);
    let result = result.map_err(|error| {
        io::Error::other(format!("the soak broke off: {error}; {}", server.last_words()))
    });
    let judgements = result?;
    server.stop()?;
    if judgements.iter().any(|judgement| judgement.met == Some(false)) {
        return Err(io::Error::other("the soak is not passed"));
    }
    Ok(())
}

fn soak(server: &Server, arguments: &Arguments) -> io::Result<Vec<Judgement>> {
    fill(server, mix::OBJECTS, mix::OBJECT_COUNT)?;
    let mut drive = Drive::open([&server.tcp(), &server.unix()])?;
    let capacity = capacity(&mut drive, Duration::from_secs(arguments.capacity_seconds))?;
    let rate = (capacity * number(arguments.percent) / 100.0).max(1.0);
    println!(
        "capacity {capacity:.0} calls/s; {rate:.0} calls/s ({} %) for {} minutes",
        arguments.percent, arguments.minutes
    );
    let mut run = Run::begin(server, arguments, rate)?;
    run.all_windows(&mut drive, rate)?;
    run.bar.finish_and_clear();
    if let Some(path) = &arguments.plot {
        plot::write(&run.samples, path).map_err(|error| io::Error::other(error.to_string()))?;
        println!("plot: {}", path.display());
    }
    let judgements = verdict::judge(&run.samples, run.compactions_early);
    println!("{}", report::facts(&run.facts(rate)));
    for judgement in &judgements {
        println!("{}", judgement.line());
    }
    Ok(judgements)
}

/// Calls of the mix that the server answers each second, in a closed loop.
fn capacity(drive: &mut Drive, wait: Duration) -> io::Result<f64> {
    let mut closed = |wait: Duration| {
        let begin = Instant::now();
        drive.run(&mut Pace::Closed, begin + wait)?;
        let tally = drive.take_tally();
        if let Some(complaint) = tally.complaints.first() {
            return Err(io::Error::other(format!("at full load: {complaint}")));
        }
        Ok(number(tally.answered) / begin.elapsed().as_secs_f64())
    };
    closed(SOAK_WARM_UP)?;
    closed(wait)
}

/// The load, window by window.
struct Run<'a> {
    server: &'a Server,
    window: Duration,
    windows: u64,
    compact_every: Duration,
    control: Connection,
    /// The revision at the last compaction: what the next one goes to.
    revision: i64,
    compact_at: Duration,
    compactions_early: u64,
    samples: Vec<Sample>,
    bar: ProgressBar,
    complaints_shown: usize,
}

impl<'a> Run<'a> {
    fn begin(server: &'a Server, arguments: &Arguments, rate: f64) -> io::Result<Run<'a>> {
        let windows = (arguments.minutes * 60).div_ceil(arguments.window_seconds);
        let bar = ProgressBar::new(windows);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {eta} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(format!("{rate:.0} calls/s"));
        let compact_every = Duration::from_secs(arguments.compact_seconds);
        Ok(Run {
            server,
            window: Duration::from_secs(arguments.window_seconds),
            windows,
            compact_every,
            control: Connection::open(&server.unix())?,
            revision: 0,
            compact_at: compact_every,
            compactions_early: 0,
            samples: Vec::new(),
            bar,
            complaints_shown: 0,
        })
    }

    fn all_windows(&mut self, drive: &mut Drive, rate: f64) -> io::Result<()> {
        // What was in flight at full load is no part of the first window.
        drive.drain()?;
        drive.take_tally();
        let begin = Instant::now();
        let mut pace = Pace::Open { pacer: Pacer::new(rate), begin };
        let (mut end, mut skipped) = (begin, 0);
        for _ in 0..self.windows {
            let from = end;
            end += self.window;
            drive.run(&mut pace, end)?;
            let took = from.elapsed();
            let all_skipped =
                if let Pace::Open { pacer, .. } = &pace { pacer.skipped() } else { 0 };
            let at = begin.elapsed();
            self.close_window(drive.take_tally(), (at, took), all_skipped - skipped)?;
            skipped = all_skipped;
        }
        drive.drain()?;
        let rest = drive.take_tally();
        self.show_complaints(&rest);
        if let Some(last) = self.samples.last_mut() {
            last.errors += rest.failed;
        }
        Ok(())
    }

    fn close_window(
        &mut self,
        tally: Tally,
        (at, took): (Duration, Duration),
        skipped: u64,
    ) -> io::Result<()> {
        self.show_complaints(&tally);
        let status = self.status()?;
        let mut sample = Sample {
            at_s: at.as_secs_f64(),
            per_second: number(tally.answered) / took.as_secs_f64(),
            put_us: (tally.put_us.value_at_quantile(0.5), tally.put_us.value_at_quantile(0.99)),
            resident_bytes: self.server.resident_bytes()?,
            disk_bytes: self.server.disk_bytes()?,
            state_bytes: u64::try_from(status.db_size).unwrap_or(0),
            errors: tally.failed,
            skipped,
            events: tally.events,
        };
        if at >= self.compact_at {
            self.compact_at += self.compact_every;
            sample.errors += self.compact(&status)?;
        }
        let line = sample.line();
        self.samples.push(sample);
        if self.bar.is_hidden() {
            println!("{line}");
        } else {
            self.bar.set_message(line);
        }
        self.bar.inc(1);
        Ok(())
    }

    fn status(&mut self) -> io::Result<StatusResponse> {
        let request = StatusRequest::default().encode_to_vec();
        let answer = self.control.ask(&head("/etcdserverpb.Maintenance/Status"), &request)?;
        StatusResponse::decode(&answer[..]).map_err(io::Error::other)
    }

    /// Compacts to the revision of the last time; gives the number of errors.
    fn compact(&mut self, status: &StatusResponse) -> io::Result<u64> {
        let newest = status.header.as_ref().map_or(0, |header| header.revision);
        let revision = std::mem::replace(&mut self.revision, newest);
        let request = CompactionRequest { revision, physical: false }.encode_to_vec();
        if revision == 0 {
            return Ok(0);
        }
        if self.samples.len() < usize::try_from(self.windows / 3).unwrap_or(usize::MAX) {
            self.compactions_early += 1;
        }
        let answer = self.control.ask(&head("/etcdserverpb.KV/Compact"), &request)?;
        if answer.is_empty() {
            self.bar.suspend(|| println!("error: a compaction to {revision} was refused"));
        }
        Ok(u64::from(answer.is_empty()))
    }

    fn show_complaints(&mut self, tally: &Tally) {
        for complaint in &tally.complaints {
            if self.complaints_shown < SOAK_COMPLAINTS_MAX {
                self.complaints_shown += 1;
                self.bar.suspend(|| println!("error: {complaint}"));
            }
        }
    }

    fn facts(&self, rate: f64) -> Vec<(String, String)> {
        let samples = &self.samples;
        let sum = |count: fn(&Sample) -> u64| samples.iter().map(count).sum::<u64>();
        let median = |value: fn(&Sample) -> u64| {
            let mut values: Vec<u64> = samples.iter().map(value).collect();
            values.sort_unstable();
            (values.get(values.len() / 2).copied().unwrap_or(0), values.last().copied())
        };
        let driven: f64 = samples.iter().map(|sample| sample.per_second).sum();
        let driven = driven / number(self.windows).max(1.0);
        let rate_line = format!(
            "{driven:.0} of {rate:.0} asked ({:.1} %), {} skipped",
            driven / rate * 100.0,
            sum(|sample| sample.skipped)
        );
        let put = |(median, worst): (u64, Option<u64>)| {
            format!("{median} µs in the median window, {} µs in the worst", worst.unwrap_or(0))
        };
        vec![
            ("calls/s".to_owned(), rate_line),
            ("put p50 since due".to_owned(), put(median(|sample| sample.put_us.0))),
            ("put p99 since due".to_owned(), put(median(|sample| sample.put_us.1))),
            ("events read by watchers".to_owned(), sum(|sample| sample.events).to_string()),
        ]
    }
}

impl Sample {
    fn line(&self) -> String {
        format!(
            "{:.0} s: {:.0} calls/s, put p50 {} µs p99 {} µs, {} MB resident, {} MB on disk, \
             state {} MB, {} skipped, {} errors",
            self.at_s,
            self.per_second,
            self.put_us.0,
            self.put_us.1,
            self.resident_bytes / 1_000_000,
            self.disk_bytes / 1_000_000,
            self.state_bytes / 1_000_000,
            self.skipped,
            self.errors
        )
    }
}

impl Judgement {
    fn line(&self) -> String {
        let word = match self.met {
            Some(true) => "passed",
            Some(false) => "FAILED",
            None => "untold",
        };
        format!("{word}: {}", self.text)
    }
}

//! The log: etcd's lines, from our own code and from every `tracing` event below it.
//!
//! There is one log in the process. Lines are rare next to requests, so a shard that writes one
//! takes a lock; nothing on the path of a request logs below its level.

pub mod line;
pub mod output;

use std::panic::Location;
use std::sync::{Mutex, OnceLock, PoisonError};

use ringbolt_io::process::wall_now;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::config::LogConfig;
use crate::config::notice::{Fields, Level, Notice};
use line::Line;
use output::{Output, Rotation};

/// The open log.
struct Log {
    level: Level,
    console: bool,
    outputs: Mutex<Vec<Output>>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Opens the log of the process. A second call changes nothing.
///
/// # Errors
/// A text for the user: an output or its rotation cannot be had.
pub fn open(config: &LogConfig) -> Result<(), String> {
    let rotation = config.rotation.as_deref().map(Rotation::parse).transpose()?;
    let outputs: Result<Vec<Output>, String> =
        config.outputs.iter().map(|name| Output::open(name, rotation.as_ref())).collect();
    let log = Log { level: config.level, console: config.console, outputs: Mutex::new(outputs?) };
    if LOG.set(log).is_ok() {
        let _the_first_subscriber_stays = tracing::subscriber::set_global_default(Events);
    }
    Ok(())
}

/// Writes a line that was kept, or one that is made in place.
#[track_caller]
pub fn write(notice: &Notice) {
    let caller = Location::caller();
    let module = "ringbolt_server";
    let caller = place(caller.file(), caller.line());
    put(notice.level, "", &caller, module, &notice.message, &notice.fields);
}

/// What happens.
#[track_caller]
pub fn info(message: &str, fields: Fields) {
    write(&Notice::info(message, fields));
}

/// What consensus does. These lines carry raft's name, as in etcd.
#[track_caller]
pub fn raft(message: &str) {
    let caller = Location::caller();
    let caller = place(caller.file(), caller.line());
    put(Level::Info, "raft", &caller, "ringbolt_server", message, &Vec::new());
}

/// What should not happen.
#[track_caller]
pub fn warn(message: &str, fields: Fields) {
    write(&Notice::warn(message, fields));
}

/// What went wrong.
#[track_caller]
pub fn error(message: &str, fields: Fields) {
    write(&Notice::new(Level::Error, message, fields));
}

/// What the process ends for. The caller ends it.
#[track_caller]
pub fn fatal(message: &str, fields: Fields) {
    write(&Notice::fatal(message, fields));
}

fn put(level: Level, logger: &str, caller: &str, module: &str, message: &str, fields: &Fields) {
    let Some(log) = LOG.get() else { return };
    if level < log.level {
        return;
    }
    let line = Line { level, time: wall_now(), logger, caller, module, message, fields };
    let text = if log.console { line.console() } else { line.json() };
    // A writer that panicked left whole lines behind: the outputs are sound.
    let mut outputs = log.outputs.lock().unwrap_or_else(PoisonError::into_inner);
    for output in outputs.iter_mut() {
        output.write(&text);
    }
}

/// Directory, file and line, as zap writes a caller.
fn place(file: &str, line: u32) -> String {
    let mut parts = file.rsplit('/');
    let name = parts.next().unwrap_or(file);
    match parts.next() {
        Some(directory) => format!("{directory}/{name}:{line}"),
        None => format!("{name}:{line}"),
    }
}

/// Takes the events of the crates below. Spans are not used.
struct Events;

impl Subscriber for Events {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let known = metadata.target().starts_with("ringbolt") || metadata.target() == "raft";
        known && LOG.get().is_some_and(|log| level_of(metadata) >= log.level)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut taken = Taken::default();
        event.record(&mut taken);
        let logger = if metadata.target() == "raft" { "raft" } else { "" };
        let caller = place(metadata.file().unwrap_or("?"), metadata.line().unwrap_or(0));
        let module = metadata.module_path().unwrap_or("ringbolt");
        put(level_of(metadata), logger, &caller, module, &taken.message, &taken.fields);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn level_of(metadata: &Metadata<'_>) -> Level {
    match *metadata.level() {
        tracing::Level::ERROR => Level::Error,
        tracing::Level::WARN => Level::Warn,
        tracing::Level::INFO => Level::Info,
        _ => Level::Debug,
    }
}

/// Message and fields of an event.
#[derive(Default)]
struct Taken {
    message: String,
    fields: Fields,
}

impl Taken {
    fn take(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => self.fields.push((name, value)),
        }
    }
}

impl Visit for Taken {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.take(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.take(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// zap keeps the last directory of a path.
    #[test]
    fn callers() {
        assert_eq!(place("server/src/start/mod.rs", 7), "start/mod.rs:7");
        assert_eq!(place("main.rs", 7), "main.rs:7");
    }
}

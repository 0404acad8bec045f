//! The `ringbolt` program, which is also `etcd` when it is called so.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use ringbolt_io::process;
use ringbolt_server::config::limits::CONFIG_FILE_BYTES_MAX;
use ringbolt_server::config::{self, Input, LogConfig, Outcome, Stop};
use ringbolt_server::{log, recover, start};

/// Small values of one shard come and go by the million: free lists of its own, no lock.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let environment: Vec<(String, String)> = std::env::vars_os()
        .map(|(key, text)| (key.to_string_lossy().into(), text.to_string_lossy().into()))
        .collect();
    // As `etcd` there is no such command: it would be a positional argument there.
    let is_etcd = arguments.first().is_some_and(|name| name.rsplit('/').next() == Some("etcd"));
    if !is_etcd && arguments.get(1).is_some_and(|word| word == "recover") {
        return recover::run(&arguments[2..]);
    }
    let input = Input { arguments: &arguments, environment: &environment, read_file: &read_file };
    match config::load(&input) {
        Outcome::Stop(stop) => end(&stop),
        Outcome::Run(config, notices) => {
            if let Err(why) = log::open(&config.log) {
                return refuse_log(&why);
            }
            start::run(*config, &notices, arguments)
        }
    }
}

fn read_file(path: &Path) -> Result<String, String> {
    process::read_text(path, CONFIG_FILE_BYTES_MAX).map_err(|error| ringbolt_io::plain(&error))
}

/// Says what there is to say and ends.
fn end(stop: &Stop) -> ExitCode {
    // A closed pipe is no reason to end otherwise.
    let _closed = std::io::stdout().write_all(stop.stdout.as_bytes());
    let _closed = std::io::stderr().write_all(stop.stderr.as_bytes());
    if !stop.notices.is_empty() {
        log::open(&LogConfig::default()).expect("standard error needs no opening");
    }
    for notice in &stop.notices {
        log::write(notice);
    }
    ExitCode::from(stop.code)
}

fn refuse_log(why: &str) -> ExitCode {
    log::open(&LogConfig::default()).expect("standard error needs no opening");
    log::warn("failed to verify flags", vec![("error", why.into())]);
    ExitCode::FAILURE
}

//! `ringbolt recover`: what an operator does with a log that does not open.
//!
//! ```text
//! ringbolt recover --accept-loss --directory=DIR [--fsync=safe|unsafe-no-fsync]
//! ```
//! DIR is the directory of one keyspace, as the refused start named it. Everything from the first
//! damaged batch on is given up. The next start jumps ahead in revisions, so that no revision is
//! given out twice and every watcher and cache lists again.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringbolt_engine::replica::{accept_loss, check_entry};
use ringbolt_engine::wal::{Mode, OpenError, Recovered, WalConfig, Writer};
use ringbolt_io::{Executor, Io, make_driver, process};

const USAGE: &str = "usage: ringbolt recover --accept-loss --directory=DIR \
                     [--fsync=safe|unsafe-no-fsync]\n\
                     DIR is the directory of one keyspace, as the refused start named it, for \
                     example default.ringbolt/keyspaces/default";

struct Order {
    directory: PathBuf,
    mode: Mode,
}

/// Runs the command with what stands behind `recover`. Gives 2 for wrong arguments, 1 when the log
/// could not be recovered.
#[must_use]
pub fn run(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|word| ["-h", "-help", "--help"].contains(&word.as_str())) {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let order = match parse(arguments) {
        Ok(order) => order,
        Err(why) => {
            eprintln!("ringbolt recover: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match recover(order) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("ringbolt recover: {why}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Result<Order, String> {
    let (mut accepted, mut directory, mut mode) = (false, None, Mode::Safe);
    for argument in arguments {
        let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
        match (name.trim_start_matches('-'), value) {
            ("accept-loss", "") => accepted = true,
            ("directory", path) if !path.is_empty() => directory = Some(PathBuf::from(path)),
            ("fsync", "safe") => mode = Mode::Safe,
            ("fsync", "unsafe-no-fsync") => mode = Mode::NoFsync,
            _ => return Err(format!("{argument:?} is not understood")),
        }
    }
    if !accepted {
        return Err("it gives up acknowledged writes, so --accept-loss must be said".to_owned());
    }
    let directory = directory.ok_or("--directory is missing")?;
    Ok(Order { directory, mode })
}

fn recover(order: Order) -> Result<String, String> {
    let (driver, _) = make_driver(ringbolt_io::Engine::Auto, process::seed())
        .map_err(|error| error.to_string())?;
    let executor = Executor::new(driver);
    let io = executor.io();
    executor.run(async move {
        match open(&io, &order).await {
            Ok(text) => Ok(text),
            Err(error) => Err(error.to_string()),
        }
    })
}

/// Opens the log as it is, and only if that is refused for its damage, without what is damaged.
async fn open(io: &Io, order: &Order) -> Result<String, OpenError> {
    let place = &order.directory;
    let config = WalConfig { check: check_entry, ..WalConfig::new(order.mode) };
    match Writer::open(io, place, config).await {
        Ok((writer, _)) => {
            close(&writer, place).await?;
            return Ok(format!("{}: nothing is damaged, nothing was given up", place.display()));
        }
        Err(OpenError::Corrupt(corruption)) => println!("wal {corruption}"),
        Err(OpenError::Missing(_)) => println!("{}: no mark file", place.display()),
        Err(other) => return Err(other),
    }
    let (writer, recovered) = accept_loss(io, place, WalConfig::new(order.mode)).await?;
    close(&writer, place).await?;
    Ok(outcome(place, &recovered))
}

async fn close(writer: &Writer, place: &Path) -> Result<(), OpenError> {
    writer.close().await.map_err(|failure| OpenError::Io {
        file: place.to_path_buf(),
        source: std::io::Error::other(failure.to_string()),
    })
}

fn outcome(place: &Path, recovered: &Recovered) -> String {
    let entry = recovered.entries.last().map_or(0, |entry| entry.index.0);
    let checkpoint = recovered.checkpoint.as_ref().map_or(0, |named| named.index.0);
    let last = entry.max(checkpoint);
    format!(
        "{}: gave up what could not be kept; the last entry kept is {last}. Start the server: \
         its revision jumps ahead once, so that every watcher and cache lists again",
        place.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    /// Nothing is given up by accident.
    #[test]
    fn loss_must_be_accepted_and_the_place_named() {
        assert!(parse(&words("--directory=d")).is_err());
        assert!(parse(&words("--accept-loss")).is_err());
        assert!(parse(&words("--accept-loss --directory=d --sure")).is_err());
        let order = parse(&words("--accept-loss --directory=d --fsync=unsafe-no-fsync"));
        assert!(order.is_ok_and(|order| order.mode == Mode::NoFsync));
    }
}

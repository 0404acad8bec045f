//! Where lines go: the standard streams, and files with or without rotation.
//!
//! Rotation is that of etcd's configuration: a file that would grow past `maxsize` megabytes is
//! moved aside as `name-2026-11-30T10-50-23.755.log`; at most `maxbackups` of those are kept, and
//! none older than `maxage` days.

use std::io::Write;
use std::path::Path;

use ringbolt_io::process::{AppendFile, wall_now};
use ringbolt_io::time::WallTime;
use serde::Deserialize;

use super::line::{civil, timestamp};

/// The JSON of `--log-rotation-config-json`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Rotation {
    /// Megabytes of one file. 0 stands for 100.
    pub maxsize: u64,
    /// Days an old file is kept. 0: for ever.
    pub maxage: u64,
    /// Old files kept. 0: all.
    pub maxbackups: u64,
    /// Local time in the names of old files. Only UTC is written.
    pub localtime: bool,
    /// Old files are compressed.
    pub compress: bool,
}

impl Default for Rotation {
    fn default() -> Rotation {
        Rotation { maxsize: 100, maxage: 0, maxbackups: 0, localtime: false, compress: false }
    }
}

impl Rotation {
    /// Reads the JSON.
    ///
    /// # Errors
    /// A text for the user.
    pub fn parse(text: &str) -> Result<Rotation, String> {
        let rotation: Rotation = serde_json::from_str(text)
            .map_err(|why| format!("invalid log rotation configuration {text}: {why}"))?;
        if rotation.compress || rotation.localtime {
            let why = "compress and localtime are not supported; leave them false";
            return Err(format!("--log-rotation-config-json: {why}"));
        }
        Ok(rotation)
    }

    fn bytes_max(&self) -> u64 {
        let megabytes = if self.maxsize == 0 { 100 } else { self.maxsize };
        megabytes.saturating_mul(1024 * 1024)
    }
}

/// One place lines go to.
#[derive(Debug)]
pub enum Output {
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
    /// A file that grows.
    File(AppendFile),
    /// A file that is rotated; its name goes with it.
    Rotating(AppendFile, String, Rotation),
}

impl Output {
    /// Opens what `--log-outputs` names. Under systemd standard error leads to the journal, hence
    /// `systemd/journal` is standard error too.
    ///
    /// # Errors
    /// A text for the user.
    pub fn open(name: &str, rotation: Option<&Rotation>) -> Result<Output, String> {
        match name {
            "default" | "stderr" | "systemd/journal" => return Ok(Output::Stderr),
            "stdout" => return Ok(Output::Stdout),
            _ => {}
        }
        let path = Path::new(name);
        let file = AppendFile::open(path).map_err(|why| {
            format!("open sink {name:?}: open {name}: {}", ringbolt_io::plain(&why))
        });
        let short = path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(match rotation {
            None => Output::File(file?),
            Some(rotation) => Output::Rotating(file?, short.unwrap_or_default(), rotation.clone()),
        })
    }

    /// Writes one line. A line that cannot be written is lost: there is nowhere left to say so.
    pub fn write(&mut self, line: &str) {
        let _lost_if_it_fails = match self {
            Output::Stderr => std::io::stderr().lock().write_all(line.as_bytes()),
            Output::Stdout => {
                let mut stdout = std::io::stdout().lock();
                stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush())
            }
            Output::File(file) => file.append(line.as_bytes()),
            Output::Rotating(file, name, rotation) => {
                let size = u64::try_from(line.len()).unwrap_or(u64::MAX);
                if file.size() > 0 && file.size().saturating_add(size) > rotation.bytes_max() {
                    rotate(file, name, rotation);
                }
                file.append(line.as_bytes())
            }
        };
    }
}

fn rotate(file: &mut AppendFile, name: &str, rotation: &Rotation) {
    let now = wall_now();
    let (stem, extension) = split(name);
    let aside = format!("{stem}-{}{extension}", stamp(now));
    if file.rotate(&aside).is_err() {
        return;
    }
    let oldest_kept = match rotation.maxage {
        0 => String::new(),
        days => stamp(WallTime(now.0.saturating_sub(days.saturating_mul(86_400_000_000_000)))),
    };
    let old = backups(&file.beside(), stem, extension);
    let keep = match rotation.maxbackups {
        0 => usize::MAX,
        count => usize::try_from(count).unwrap_or(usize::MAX),
    };
    for (index, backup) in old.iter().rev().enumerate() {
        let when = &backup[stem.len() + 1..];
        if index >= keep || when < oldest_kept.as_str() {
            let _stays_until_next_time = file.remove_beside(backup);
        }
    }
}

/// Files a rotation made, oldest first: their stamps sort as their times do.
fn backups(names: &[String], stem: &str, extension: &str) -> Vec<String> {
    let is_backup = |name: &&String| {
        let middle = name
            .strip_prefix(stem)
            .and_then(|rest| rest.strip_prefix('-'))
            .and_then(|rest| rest.strip_suffix(extension));
        middle.is_some_and(|stamp| stamp.len() == 23 && stamp.as_bytes()[10] == b'T')
    };
    names.iter().filter(is_backup).cloned().collect()
}

fn split(name: &str) -> (&str, &str) {
    name.rfind('.').map_or((name, ""), |dot| name.split_at(dot))
}

/// `2026-11-30T10-50-23.755`.
fn stamp(time: WallTime) -> String {
    let (year, month, day) = civil(time.as_secs() / 86_400);
    let clock = timestamp(time);
    let clock = clock.get(11..23).expect("a timestamp has a fixed length").replace(':', "-");
    format!("{year:04}-{month:02}-{day:02}T{clock}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which files of a directory are old logs of this one.
    #[test]
    fn backup_names() {
        assert_eq!(stamp(WallTime(1_796_034_889_476_665_097)), "2026-11-30T10-34-49.476");
        let names = ["e.log", "e-2026-11-30T10-34-49.476.log", "e-other.log", "f-x.log"];
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(backups(&names, "e", ".log"), ["e-2026-11-30T10-34-49.476.log"]);
    }

    /// A file is moved aside before it grows past its size, and only so many are kept.
    #[test]
    fn rotation() {
        let directory = std::env::temp_dir().join(format!("ringbolt-log-{}", std::process::id()));
        ringbolt_io::process::create_private_dir(&directory).expect("a temporary directory");
        let path = directory.join("e.log");
        let rotation = Rotation { maxsize: 1, maxbackups: 1, ..Rotation::default() };
        let mut output = Output::open(&path.to_string_lossy(), Some(&rotation)).expect("a file");
        let line = "x".repeat(700 * 1024);
        output.write(&line);
        output.write(&line);
        let Output::Rotating(file, ..) = &output else { panic!("a rotating file") };
        assert_eq!(file.beside().len(), 2);
        assert_eq!(file.size(), 700 * 1024);
        for name in file.beside() {
            file.remove_beside(&name).expect("it is there");
        }
    }

    /// What cannot be done is refused.
    #[test]
    fn configuration() {
        assert_eq!(Rotation::parse("{}"), Ok(Rotation::default()));
        assert!(Rotation::parse("{\"compress\": true}").is_err());
        assert!(Rotation::parse("x").is_err());
    }
}

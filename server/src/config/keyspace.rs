//! Keyspaces: one etcd-compatible store each, several in one process.
//!
//! `--keyspace events,listen-client-urls=http://127.0.0.1:2479,fsync=memory`. A URL list goes on
//! behind a comma: `listen-client-urls=unix://e.sock,http://127.0.0.1:2479`.

use std::path::{Path, PathBuf};

use super::limits::KEYSPACE_NAME_CHARS_MAX;
use super::number::parse_int;
use super::url::Url;

/// The keyspace that etcd's own flags configure.
pub const DEFAULT_NAME: &str = "default";
/// Bytes of quota when none is given.
pub const QUOTA_DEFAULT_BYTES: i64 = 2 * 1024 * 1024 * 1024;

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Any crash and power loss.
    Safe,
    /// The death of the process; after power loss the last moments are gone.
    NoFsync,
    /// Nothing: there is no log.
    Memory,
}

impl Fsync {
    /// Reads the word of `--fsync`.
    #[must_use]
    pub fn parse(word: &str) -> Option<Fsync> {
        [Fsync::Safe, Fsync::NoFsync, Fsync::Memory].into_iter().find(|mode| mode.word() == word)
    }

    /// The word of `--fsync`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Fsync::Safe => "safe",
            Fsync::NoFsync => "unsafe-no-fsync",
            Fsync::Memory => "memory",
        }
    }
}

/// One store's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyspace {
    /// Its name.
    pub name: String,
    /// Directory of its own log and checkpoints.
    pub directory: PathBuf,
    /// Its client listeners.
    pub listen_client_urls: Vec<Url>,
    /// Client URLs its member list shows.
    pub advertise_client_urls: Vec<Url>,
    /// What an acknowledged write survives.
    pub fsync: Fsync,
    /// Size at which writes stop, in bytes; `None`: never.
    pub quota_bytes: Option<u64>,
}

/// The directory a keyspace has when none is named.
#[must_use]
pub fn directory(data_dir: &Path, name: &str) -> PathBuf {
    data_dir.join("keyspaces").join(name)
}

/// etcd's reading of a quota: 0 stands for 2 GiB, a negative one for none.
#[must_use]
pub fn quota(bytes: i64) -> Option<u64> {
    let bytes = if bytes == 0 { QUOTA_DEFAULT_BYTES } else { bytes };
    u64::try_from(bytes).ok()
}

/// Reads one `--keyspace` value. What it does not say it takes from `default`.
///
/// # Errors
/// A text that names the part that is wrong.
pub fn parse(text: &str, data_dir: &Path, default: &Keyspace) -> Result<Keyspace, String> {
    let mut parts = text.split(',').map(str::trim);
    let name = parts.next().unwrap_or_default();
    check_name(name)?;
    let wrong = |why: String| format!("--keyspace {name}: {why}");
    let mut keyspace = Keyspace {
        name: name.to_owned(),
        directory: directory(data_dir, name),
        listen_client_urls: Vec::new(),
        advertise_client_urls: Vec::new(),
        fsync: default.fsync,
        quota_bytes: default.quota_bytes,
    };
    let mut given = Vec::new();
    let mut in_list = false;
    for part in parts {
        let (key, value) = match part.split_once('=') {
            Some((key, value)) if !key.contains("://") => (key, value),
            _ if in_list => ("listen-client-urls", part),
            _ => return Err(wrong(format!("expected key=value, found {part:?}"))),
        };
        in_list = key == "listen-client-urls";
        if !in_list && given.contains(&key) {
            return Err(wrong(format!("{key} is given twice")));
        }
        given.push(key);
        set(&mut keyspace, key, value).map_err(wrong)?;
    }
    if keyspace.listen_client_urls.is_empty() {
        return Err(wrong("listen-client-urls is required".to_owned()));
    }
    keyspace.advertise_client_urls = keyspace.listen_client_urls.clone();
    Ok(keyspace)
}

fn set(keyspace: &mut Keyspace, key: &str, value: &str) -> Result<(), String> {
    match key {
        "listen-client-urls" => keyspace.listen_client_urls.push(Url::parse(value)?),
        "fsync" => {
            let words = "safe, unsafe-no-fsync or memory";
            let mode = Fsync::parse(value);
            keyspace.fsync = mode.ok_or_else(|| format!("fsync is {words}, not {value:?}"))?;
        }
        "data-dir" if !value.is_empty() => keyspace.directory = PathBuf::from(value),
        "data-dir" => return Err("data-dir is empty".to_owned()),
        "quota-backend-bytes" => {
            let bytes = parse_int(value).map_err(|why| format!("{key} {value:?}: {why}"))?;
            keyspace.quota_bytes = quota(bytes);
        }
        other => {
            let known = ["listen-client-urls", "fsync", "data-dir", "quota-backend-bytes"];
            let next = match super::help::nearest_of(other, known.into_iter()) {
                Some(nearest) => format!("did you mean {nearest}?"),
                None => format!("a keyspace has {}", known.join(", ")),
            };
            return Err(format!("unknown key {other:?}; {next}"));
        }
    }
    Ok(())
}

/// A name is also a directory and a metric label: letters, digits, `-`, `_` and `.`.
fn check_name(name: &str) -> Result<(), String> {
    let sound = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let first_sound = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    let short = name.len() <= KEYSPACE_NAME_CHARS_MAX;
    if !first_sound || !short || !name.chars().all(sound) {
        let rule = format!("1 to {KEYSPACE_NAME_CHARS_MAX} letters, digits, '-', '_' or '.'");
        return Err(format!("--keyspace {name:?}: a name is {rule}, a letter or digit first"));
    }
    if name == DEFAULT_NAME {
        let why = "the default keyspace is configured by the other flags";
        return Err(format!("--keyspace {name}: {why}"));
    }
    Ok(())
}

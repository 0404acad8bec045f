//! `ETCD_*` and `RINGBOLT_*`.
//!
//! An etcd flag listens to both prefixes, a flag of our own to `RINGBOLT_` only. A variable beside
//! the flag it stands for, or beside its twin of the other prefix, is a conflict. An unknown
//! `ETCD_*` is a warning, as in etcd; an unknown `RINGBOLT_*` can only be a mistake.

use super::args::forms;
use super::notice::Notice;
use super::table::{Flag, Group, IGNORED, flags};
use super::value::{Settings, Source, Value};
use super::{help, notice};

const ETCD: &str = "ETCD";
const OURS: &str = "RINGBOLT";

/// Why the environment cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The variable stands beside the flag it stands for.
    Conflict(String),
    /// Both prefixes are in use for one flag: the text for the user.
    Twins(String),
    /// A value that cannot be read, or an unknown `RINGBOLT_*`: the text for the user.
    Invalid(String),
}

/// Gives the settings what the environment says, and the notices about it.
///
/// # Errors
/// See [`Trouble`].
pub fn apply(
    settings: &mut Settings,
    environment: &[(String, String)],
    notices: &mut Vec<Notice>,
) -> Result<(), Trouble> {
    let mut by_name: Vec<Flag> = flags().collect();
    by_name.sort_by_key(|flag| flag.name);
    let mut used: Vec<String> = Vec::new();
    let mut outcome = Ok(());
    for flag in by_name.iter().filter(|flag| flag.name != "version") {
        let mut given = names(flag).into_iter().filter_map(|key| value(environment, &key));
        let Some((key, text)) = given.next() else { continue };
        if let Some(twin) = given.next() {
            return Err(twins(flag.name, &(key, text), &twin));
        }
        if settings.source(flag.name) == Source::CommandLine {
            return Err(Trouble::Conflict(key));
        }
        match Value::parse(flag.kind, &text) {
            Ok(value) => {
                settings.set(flag, value, Source::Environment);
                notices.push(notice::used_variable(&key, &text));
            }
            // The last bad variable, in order of the flags, is the one etcd names.
            Err(why) => {
                let mut text = format!("invalid value {text:?} for {key}: {why}");
                text.push_str(&forms(flag));
                outcome = Err(Trouble::Invalid(text));
            }
        }
        used.push(key);
    }
    for (key, text) in environment {
        if used.contains(key) || is_ignored(key) || key == "ETCD_VERSION" {
            continue;
        }
        if key.starts_with("ETCD_") && !text.is_empty() {
            notices.push(notice::unknown_variable(&format!("{key}={text}")));
        } else if key.starts_with("RINGBOLT_") && !text.is_empty() {
            return Err(Trouble::Invalid(unknown(key)));
        }
    }
    outcome
}

/// The variable that names the configuration file, if any.
///
/// # Errors
/// Both prefixes are in use.
pub fn config_file(environment: &[(String, String)]) -> Result<Option<String>, Trouble> {
    let given = |prefix: &str| value(environment, &format!("{prefix}_CONFIG_FILE"));
    match (given(ETCD), given(OURS)) {
        (Some(one), Some(other)) => Err(twins("config-file", &one, &other)),
        (one, other) => Ok(one.or(other).map(|(_, path)| path)),
    }
}

/// Which of two wins would be a guess, also where they agree today.
fn twins(flag: &str, (key, text): &(String, String), twin: &(String, String)) -> Trouble {
    Trouble::Twins(format!(
        "{key}={text:?} and {}={:?} both stand for --{flag}; keep one and take the other away: \
         unset {}",
        twin.0, twin.1, twin.0
    ))
}

/// A variable of that name that is not empty.
#[must_use]
pub fn value(environment: &[(String, String)], key: &str) -> Option<(String, String)> {
    let found = environment.iter().find(|(name, text)| name == key && !text.is_empty());
    found.cloned()
}

fn names(flag: &Flag) -> Vec<String> {
    match flag.group {
        Group::Ringbolt => vec![flag.env(OURS)],
        _ => vec![flag.env(ETCD), flag.env(OURS)],
    }
}

fn is_ignored(key: &str) -> bool {
    let Some(name) = key.strip_prefix("ETCD_") else { return false };
    IGNORED.contains(&name.to_lowercase().replace('_', "-").as_str())
}

fn unknown(key: &str) -> String {
    let name = key.strip_prefix("RINGBOLT_").unwrap_or(key).to_lowercase().replace('_', "-");
    let next = match help::nearest(&name) {
        Some(nearest) => {
            format!("did you mean RINGBOLT_{}?", nearest.to_uppercase().replace('-', "_"))
        }
        None => "unset it, or take the name of a flag of those listed by: ringbolt --help".into(),
    };
    format!("unknown environment variable {key}; {next}")
}

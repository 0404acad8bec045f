//! Usage, help and version texts, and the nearest name of a misspelt flag.

use super::Personality;
use super::check::{WITHOUT_EFFECT, missing_part};
use super::limits::{FLAG_BEGINNING_CHARS_MIN, FLAG_NAME_CHARS_MAX};
use super::table::{Flag, Group, Kind, flags};

/// The version of etcd this server is like.
pub const ETCD_VERSION: &str = "3.7.3";
/// The cluster version that goes with it.
pub const CLUSTER_VERSION: &str = "3.7.0";
/// What stands where etcd names its Go compiler.
pub const GO_VERSION: &str = "none (Rust)";
/// What stands where etcd names its commit.
pub const GIT_SHA: &str = "Not provided (Ringbolt)";

/// The text of `--version`: etcd's four lines; as ringbolt one of our own before them.
#[must_use]
pub fn version(personality: Personality) -> String {
    let own = match personality {
        Personality::Etcd => String::new(),
        Personality::Ringbolt => format!("ringbolt Version: {}\n", env!("CARGO_PKG_VERSION")),
    };
    let place = format!("{}/{}", std::env::consts::OS, go_arch());
    format!(
        "{own}etcd Version: {ETCD_VERSION}\nGit SHA: {GIT_SHA}\nGo Version: {GO_VERSION}\n\
         Go OS/Arch: {place}\n"
    )
}

/// This machine's architecture in Go's words.
#[must_use]
pub fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

/// The short text behind an error of the command line. With the error line it has etcd's 25 lines,
/// so scripts that cut it off cut the same.
#[must_use]
pub fn usage(personality: Personality) -> String {
    let name = personality.name();
    // As etcd there is no such command.
    let second = match personality {
        Personality::Etcd => "etcd --version\n    Print the versions.",
        Personality::Ringbolt => {
            "ringbolt recover --accept-loss --directory=<path>\n    \
             Give up what lies behind the damage in a log, as a refused start spells it."
        }
    };
    format!(
        "Usage:

  {name} [flags]
    Serve: the flags are those of etcd 3.7 and a few of our own.

  {second}

  {name} -h | --help
    Print every flag with its default; --version prints the versions.

  {name} --config-file <path>
    Take the settings from a YAML or JSON file. Flags and environment variables
    have no effect then.
    Keys are the flags' names; durations are written as integer nanoseconds
    (600000000000 is ten minutes), except heartbeat-interval and election-timeout,
    which stay integer milliseconds.

  Every flag can be given as an environment variable: --listen-client-urls is
  ETCD_LISTEN_CLIENT_URLS or RINGBOLT_LISTEN_CLIENT_URLS.

  What etcd's 'gateway' and 'grpc-proxy' do is not part of this program: clients and
  load balancers connect to the listeners themselves.

"
    )
}

/// The list of all flags, each with what this build does not do of it.
#[must_use]
pub fn help(personality: Personality) -> String {
    const SECTIONS: [(Group, &str); 10] = [
        (Group::Member, "Member"),
        (Group::Clustering, "Clustering"),
        (Group::Security, "Security"),
        (Group::Auth, "Auth"),
        (Group::Monitoring, "Profiling and Monitoring"),
        (Group::Logging, "Logging"),
        (Group::Tracing, "Distributed tracing"),
        (Group::Features, "Features"),
        (Group::Unsafe, "Unsafe feature"),
        (Group::Ringbolt, "Ringbolt"),
    ];
    let mut text = String::new();
    for (group, title) in SECTIONS {
        text.push_str(&format!("\n{title}:\n"));
        for flag in flags().filter(|flag| flag.group == group) {
            let (name, value) = (flag.name, shown(&flag, personality));
            text.push_str(&format!("  --{name} '{value}'\n    {}{}\n", flag.help, lack(&flag)));
        }
    }
    text
}

fn shown(flag: &Flag, personality: Personality) -> &'static str {
    match (flag.name, flag.kind, personality) {
        ("data-dir", _, Personality::Etcd) => "${name}.etcd",
        ("data-dir", _, Personality::Ringbolt) => "${name}.ringbolt",
        ("listen-client-urls", _, Personality::Ringbolt) => {
            "http://localhost:2379,unix://${data-dir}/client.sock"
        }
        (_, Kind::Repeated, _) => "",
        _ => flag.default,
    }
}

/// What this build does not do of a flag.
fn lack(flag: &Flag) -> String {
    if let Some(what) = missing_part(flag) {
        return format!("\n    Refused: {what} is not supported by this build.");
    }
    match WITHOUT_EFFECT.iter().find(|(name, _)| *name == flag.name) {
        Some((_, why)) => format!("\n    No effect: {why}."),
        None => String::new(),
    }
}

/// The known flag that is spelt most like `name`, if any is spelt much like it.
#[must_use]
pub fn nearest(name: &str) -> Option<&'static str> {
    nearest_of(name, flags().map(|flag| flag.name))
}

/// The candidate that is spelt most like `name`; the first of equals. None where more than every
/// third letter differs: a name that is merely the least unlike explains nothing. A name cut short
/// is near to what it begins.
pub fn nearest_of<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.strip_prefix("experimental-").unwrap_or(name);
    let size = name.chars().count();
    if size > FLAG_NAME_CHARS_MAX {
        return None;
    }
    let begins = |candidate: &str| size >= FLAG_BEGINNING_CHARS_MIN && candidate.starts_with(name);
    candidates
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= size / 3 || begins(candidate))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, remove or change to get from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (done, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = done + 1;
        for (index, other) in to.iter().enumerate() {
            let change = diagonal + usize::from(letter != *other);
            diagonal = row[index + 1];
            row[index + 1] = change.min(diagonal + 1).min(row[index] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The usage text has 24 lines: with the error line before it 25, as etcd's.
    #[test]
    fn usage_has_the_length_of_etcds() {
        for personality in [Personality::Etcd, Personality::Ringbolt] {
            assert_eq!(usage(personality).lines().count(), 24);
        }
    }

    /// The help shows the defaults of the name that was called, and does not sell what is missing.
    #[test]
    fn help_says_what_is_true_here() {
        let (ours, theirs) = (help(Personality::Ringbolt), help(Personality::Etcd));
        assert!(ours.contains("--data-dir '${name}.ringbolt'"));
        assert!(ours.contains("--listen-client-urls 'http://localhost:2379,unix://"));
        assert!(theirs.contains("--data-dir '${name}.etcd'"));
        assert!(theirs.contains("--listen-client-urls 'http://localhost:2379'"));
        let refused = "Its key.\n    Refused: TLS is not supported by this build.\n";
        assert!(ours.contains(refused) && theirs.contains(refused));
        assert!(ours.contains("    No effect: a single member has nobody to ask.\n"));
        assert!(usage(Personality::Ringbolt).contains("ringbolt recover --accept-loss"));
        assert!(!usage(Personality::Etcd).contains("recover"));
    }

    /// A slip of the finger finds its flag.
    #[test]
    fn nearest_names() {
        assert_eq!(nearest("listen-client-url"), Some("listen-client-urls"));
        assert_eq!(nearest("experimental-max-learners"), Some("max-learners"));
        assert_eq!(nearest("dta-dir"), Some("data-dir"));
        assert_eq!(nearest("quota-backend"), Some("quota-backend-bytes"));
    }

    /// `--zzzzzz` was answered with the flag that is the least unlike it, which is no help.
    #[test]
    fn a_name_unlike_all_others_has_no_nearest() {
        let long = "listen-client-urls".repeat(8);
        for name in ["zzzzzz", "nope", "", "d", "na", "proxy", "enable-v2v3", &long] {
            assert_eq!(nearest(name), None, "{name}");
        }
    }
}

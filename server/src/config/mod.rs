//! Everything a user can say before the server starts, as plain data.
//!
//! ```text
//! arguments ─► args ─┐
//! environment ─► env ├─► Settings ─► check ─► Config
//! file ──────► yaml ─┘      (table: one row per flag)
//! ```
//!
//! A configuration file replaces command line and environment as a whole, as in etcd. Nothing here
//! touches the world: arguments, variables and the file's text are handed in; log lines and exits
//! are handed back.

pub mod check;
pub mod gates;
pub mod help;
pub mod keyspace;
pub mod limits;
pub mod notice;
pub mod number;
pub mod table;
pub mod url;
pub mod value;

mod args;
mod build;
mod env;
#[cfg(test)]
mod tests;
mod yaml;

use std::path::{Path, PathBuf};
use std::time::Duration;

use gates::Gates;
use keyspace::Keyspace;
use notice::{Level, Notice};
use number::GoDuration;
use url::Url;
use value::Settings;

/// Which program the user called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Personality {
    /// `etcd`, by a link or a copy of that name.
    Etcd,
    /// Anything else.
    Ringbolt,
}

impl Personality {
    /// By the name the program was called with.
    #[must_use]
    pub fn of(program: &str) -> Personality {
        let file = Path::new(program).file_name().and_then(|name| name.to_str());
        if file == Some("etcd") { Personality::Etcd } else { Personality::Ringbolt }
    }

    /// The name in texts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Personality::Etcd => "etcd",
            Personality::Ringbolt => "ringbolt",
        }
    }
}

/// What the world hands in.
pub struct Input<'a> {
    /// The command line, program name first.
    pub arguments: &'a [String],
    /// All variables.
    pub environment: &'a [(String, String)],
    /// Reads a configuration file, or says why not: `no such file or directory`.
    pub read_file: &'a dyn Fn(&Path) -> Result<String, String>,
}

/// What comes of it.
#[derive(Debug)]
pub enum Outcome {
    /// Start, after these log lines.
    Run(Box<Config>, Vec<Notice>),
    /// End now.
    Stop(Stop),
}

/// How the process ends before it began.
#[derive(Debug, Default, PartialEq)]
pub struct Stop {
    /// Text for standard output.
    pub stdout: String,
    /// Text for standard error.
    pub stderr: String,
    /// Log lines, after the texts.
    pub notices: Vec<Notice>,
    /// Exit code.
    pub code: u8,
}

/// All settings with an effect.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named as the flags that `table` describes")]
pub struct Config {
    pub personality: Personality,
    pub name: String,
    pub data_dir: PathBuf,
    /// Nobody named a data directory.
    pub data_dir_is_default: bool,
    /// `default` first, then those of `--keyspace`.
    pub keyspaces: Vec<Keyspace>,
    pub listen_peer_urls: Vec<Url>,
    pub listen_client_http_urls: Vec<Url>,
    pub listen_metrics_urls: Vec<Url>,
    pub cluster: ClusterConfig,
    pub limits: LimitsConfig,
    pub keepalive: KeepaliveConfig,
    pub sockets: SocketConfig,
    pub compaction: CompactionConfig,
    pub log: LogConfig,
    pub cors: Vec<String>,
    pub host_whitelist: Vec<String>,
    pub auth_token: String,
    /// `--cipher-suites`: names only, for the TLS that is not part of this build.
    pub cipher_suites: Vec<String>,
    pub auth_token_ttl_s: u64,
    pub bcrypt_cost: u64,
    pub enable_grpc_gateway: bool,
    pub metrics_extensive: bool,
    pub warning_unary_request_duration: Duration,
    pub warning_apply_duration: Duration,
    pub watch_progress_notify_interval: Duration,
    pub feature_gates: Gates,
    pub flush_interval: Duration,
    pub io_engine: IoEngine,
    pub spin: Duration,
    /// Zero: one per core.
    pub shards: usize,
    /// Zero: by the memory there is.
    pub memory_budget_bytes: u64,
    /// Connections of a keyspace that stay on its home shard.
    pub home_connections: usize,
}

/// Bootstrap, elections and checkpoints.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named as the flags that `table` describes")]
pub struct ClusterConfig {
    pub initial_advertise_peer_urls: Vec<Url>,
    pub initial_cluster: String,
    pub initial_cluster_state: String,
    pub initial_cluster_token: String,
    pub heartbeat_interval: Duration,
    pub election_timeout: Duration,
    pub initial_election_tick_advance: bool,
    pub pre_vote: bool,
    pub strict_reconfig_check: bool,
    pub force_new_cluster: bool,
    pub snapshot_count: u64,
    pub snapshot_catchup_entries: u64,
    pub max_wals: u64,
    pub max_snapshots: u64,
    pub corrupt_check_time: GoDuration,
    pub compact_hash_check_time: GoDuration,
    pub downgrade_check_time: GoDuration,
}

/// How much of anything is accepted.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named as the flags that `table` describes")]
pub struct LimitsConfig {
    pub max_learners: i64,
    pub max_txn_ops: u64,
    pub max_request_bytes: u64,
    pub max_concurrent_streams: u32,
}

/// Pings of gRPC connections.
#[derive(Clone, Debug)]
pub struct KeepaliveConfig {
    /// Pings of a client may not come closer than this.
    pub min_time: Duration,
    /// Time without traffic before the server pings. Zero: never.
    pub interval: Duration,
    /// Time for the answer. Zero: no limit.
    pub timeout: Duration,
}

/// Options of listening sockets.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named as the flags that `table` describes")]
pub struct SocketConfig {
    pub reuse_port: bool,
    pub reuse_address: bool,
    pub unix_mode: u32,
    /// User id and group id.
    pub unix_owner: Option<(Option<u32>, Option<u32>)>,
}

/// Removal of history.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named as the flags that `table` describes")]
pub struct CompactionConfig {
    pub auto_mode: String,
    pub auto_retention: String,
    pub batch_limit: u64,
    pub sleep_interval: Duration,
}

/// How the kernel is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoEngine {
    /// io_uring where it works, epoll otherwise.
    Auto,
    /// io_uring or nothing.
    Uring,
    /// epoll and helper threads.
    Epoll,
}

/// Where log lines go and how they look.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are named as the flags that `table` describes")]
pub struct LogConfig {
    pub level: Level,
    pub console: bool,
    pub outputs: Vec<String>,
    /// The JSON of `--log-rotation-config-json`, where rotation is on.
    pub rotation: Option<String>,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        let outputs = vec!["default".to_owned()];
        LogConfig { level: Level::Info, console: false, outputs, rotation: None }
    }
}

/// Reads everything the user said.
#[must_use]
pub fn load(input: &Input<'_>) -> Outcome {
    let program = input.arguments.first().map_or("ringbolt", String::as_str);
    let personality = Personality::of(program);
    let parsed = args::parse(input.arguments.get(1..).unwrap_or_default());
    let (settings, leftover) = match parsed {
        args::Parsed::Settings(settings, leftover) => (*settings, leftover),
        args::Parsed::Help => {
            let (stdout, stderr) = (help::help(personality), help::usage(personality));
            return Outcome::Stop(Stop { stdout, stderr, ..Stop::default() });
        }
        args::Parsed::Wrong(line, unknown) => return wrong_line(personality, line, unknown),
    };
    let mut notices = Vec::new();
    if let Some(word) = leftover {
        return refused(input, notices, format!("{word:?} is not a valid flag"));
    }
    if settings.flag("version") {
        let stdout = help::version(personality);
        return Outcome::Stop(Stop { stdout, ..Stop::default() });
    }
    let settings = match gather(settings, input, &mut notices) {
        Ok(settings) => settings,
        Err(Trouble::Verify(why)) => return refused(input, notices, why),
        Err(Trouble::End(mut stop)) => {
            notices.append(&mut stop.notices);
            return Outcome::Stop(Stop { notices, ..stop });
        }
    };
    let level = settings.text("log-level");
    if Level::parse(&level).is_none() {
        let stderr = format!("panic: unrecognized level: {level:?}\n");
        return Outcome::Stop(Stop { stderr, code: 2, ..Stop::default() });
    }
    let checked =
        check::verify(&settings, &mut notices).and_then(|()| Config::build(&settings, personality));
    match checked {
        Ok(config) => {
            notices.push(running(input));
            Outcome::Run(Box::new(config), notices)
        }
        Err(why) => refused(input, notices, why),
    }
}

enum Trouble {
    Verify(String),
    End(Stop),
}

/// File, or command line over environment.
fn gather(
    mut settings: Settings,
    input: &Input<'_>,
    notices: &mut Vec<Notice>,
) -> Result<Settings, Trouble> {
    let given = settings.text("config-file");
    let by_variable = env::config_file(input.environment).map_err(unusable)?;
    let path = if given.is_empty() { by_variable.unwrap_or_default() } else { given };
    if !path.is_empty() {
        return from_file(&path, input, notices);
    }
    if let Some((key, text)) = env::value(input.environment, "ETCD_VERSION") {
        let fields = vec![("key", key.into()), ("value", text.into())];
        notices.push(Notice::warn("cannot set special environment variable", fields));
    }
    env::apply(&mut settings, input.environment, notices).map_err(unusable)?;
    for name in ["raft-read-timeout", "raft-write-timeout"] {
        if settings.duration(name) < GoDuration(5_000_000_000) {
            let text = format!("{name} increased to minimum value: 5s");
            notices.push(Notice::info(&text, vec![]));
        }
    }
    Ok(settings)
}

/// How the process ends over its environment: etcd's line where the trouble is etcd's.
fn unusable(trouble: env::Trouble) -> Trouble {
    let notice = match trouble {
        env::Trouble::Invalid(why) => return Trouble::Verify(why),
        env::Trouble::Conflict(key) => {
            let text = "conflicting environment variable is shadowed by corresponding command-line \
                 flag (either unset environment variable or disable flag))";
            Notice::fatal(text, vec![("environment-variable", key.into())])
        }
        env::Trouble::Twins(why) => {
            Notice::fatal("conflicting environment variables", vec![("error", why.into())])
        }
    };
    Trouble::End(Stop { notices: vec![notice], code: 1, ..Stop::default() })
}

fn from_file(
    path: &str,
    input: &Input<'_>,
    notices: &mut Vec<Notice>,
) -> Result<Settings, Trouble> {
    let text = (input.read_file)(Path::new(path))
        .map_err(|why| Trouble::Verify(format!("open {path}: {why}")))?;
    let end = |stderr: String, code: u8| Trouble::End(Stop { stderr, code, ..Stop::default() });
    let settings = yaml::parse(&text, notices).map_err(|trouble| match trouble {
        yaml::Trouble::Verify(why) => Trouble::Verify(why),
        yaml::Trouble::Plain(line) => end(format!("{line}\n"), 1),
        yaml::Trouble::Panic(why) => end(format!("panic: {why}\n"), 2),
    })?;
    let text = "loaded server configuration, other configuration command line flags and \
         environment variables will be ignored if provided";
    notices.push(Notice::info(text, vec![("path", path.into())]));
    Ok(settings)
}

fn wrong_line(personality: Personality, line: String, unknown: Option<String>) -> Outcome {
    let hint = match unknown {
        Some(name) => match (help::nearest(&name), Gates::of_flag(&name)) {
            (_, Some(gate)) => format!("did you mean --feature-gates={gate}=true?\n"),
            (Some(nearest), _) => format!("did you mean --{nearest}?\n"),
            _ => format!("all flags are listed by: {} --help\n", personality.name()),
        },
        None => String::new(),
    };
    let stderr = format!("{line}\n{hint}{}", help::usage(personality));
    Outcome::Stop(Stop { stderr, code: 2, ..Stop::default() })
}

fn running(input: &Input<'_>) -> Notice {
    Notice::info("Running: ", vec![("args", input.arguments.into())])
}

fn refused(input: &Input<'_>, mut notices: Vec<Notice>, why: String) -> Outcome {
    notices.push(running(input));
    let fields = || vec![("error", why.clone().into())];
    notices.push(Notice::warn("failed to verify flags", fields()));
    if why == check::NO_ADVERTISE {
        notices.push(Notice::warn("advertise client URLs are not set", fields()));
    }
    Outcome::Stop(Stop { notices, code: 1, ..Stop::default() })
}

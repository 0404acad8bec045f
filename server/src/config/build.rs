//! From checked settings to a `Config`.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::keyspace::{self, Fsync, Keyspace};
use super::notice::Level;
use super::number::GoDuration;
use super::url::{Scheme, Url};
use super::value::{Settings, Source};
use super::{
    ClusterConfig, CompactionConfig, Config, IoEngine, KeepaliveConfig, LimitsConfig, LogConfig,
    Personality, SocketConfig, limits,
};

impl Config {
    /// Gives checked settings their types.
    pub(super) fn build(s: &Settings, personality: Personality) -> Result<Config, String> {
        let data_dir = data_dir(s, personality);
        let time = |flag: &str| s.duration(flag).to_std();
        Ok(Config {
            personality,
            name: s.text("name"),
            keyspaces: keyspaces(s, &data_dir, personality)?,
            data_dir,
            data_dir_is_default: s.text("data-dir").is_empty(),
            listen_peer_urls: s.urls("listen-peer-urls"),
            listen_client_http_urls: s.urls("listen-client-http-urls"),
            listen_metrics_urls: s.urls("listen-metrics-urls"),
            cluster: cluster(s),
            limits: limits_config(s),
            keepalive: KeepaliveConfig {
                min_time: time("grpc-keepalive-min-time"),
                interval: time("grpc-keepalive-interval"),
                timeout: time("grpc-keepalive-timeout"),
            },
            sockets: sockets(s)?,
            compaction: compaction(s),
            log: log_config(s),
            cors: s.list("cors"),
            host_whitelist: s.list("host-whitelist"),
            auth_token: s.text("auth-token"),
            cipher_suites: s.list("cipher-suites"),
            auth_token_ttl_s: s.uint("auth-token-ttl"),
            bcrypt_cost: s.uint("bcrypt-cost"),
            enable_grpc_gateway: s.flag("enable-grpc-gateway"),
            metrics_extensive: s.text("metrics") == "extensive",
            warning_unary_request_duration: time("warning-unary-request-duration"),
            warning_apply_duration: time("warning-apply-duration"),
            watch_progress_notify_interval: progress_interval(s),
            feature_gates: s.gates("feature-gates"),
            flush_interval: time("flush-interval"),
            io_engine: match s.text("io-engine").as_str() {
                "uring" => IoEngine::Uring,
                "epoll" => IoEngine::Epoll,
                _ => IoEngine::Auto,
            },
            spin: Duration::from_micros(s.uint("spin-us")),
            shards: usize::try_from(s.uint("shards")).expect("checked against SHARDS_MAX"),
            memory_budget_bytes: s.uint("memory-budget"),
            home_connections: usize::try_from(s.uint("home-connections")).unwrap_or(usize::MAX),
        })
    }

    /// The keyspace that etcd's own flags configure.
    #[must_use]
    pub fn default_keyspace(&self) -> &Keyspace {
        self.keyspaces.first().expect("the default keyspace always exists")
    }
}

fn cluster(s: &Settings) -> ClusterConfig {
    ClusterConfig {
        initial_advertise_peer_urls: s.urls("initial-advertise-peer-urls"),
        initial_cluster: initial_cluster(s),
        initial_cluster_state: s.text("initial-cluster-state"),
        initial_cluster_token: s.text("initial-cluster-token"),
        heartbeat_interval: Duration::from_millis(s.uint("heartbeat-interval")),
        election_timeout: Duration::from_millis(s.uint("election-timeout")),
        initial_election_tick_advance: s.flag("initial-election-tick-advance"),
        pre_vote: s.flag("pre-vote"),
        strict_reconfig_check: s.flag("strict-reconfig-check"),
        force_new_cluster: s.flag("force-new-cluster"),
        snapshot_count: s.uint("snapshot-count"),
        snapshot_catchup_entries: s.uint("snapshot-catchup-entries"),
        max_wals: s.uint("max-wals"),
        max_snapshots: s.uint("max-snapshots"),
        corrupt_check_time: s.duration("corrupt-check-time"),
        compact_hash_check_time: s.duration("compact-hash-check-time"),
        downgrade_check_time: s.duration("downgrade-check-time"),
    }
}

fn limits_config(s: &Settings) -> LimitsConfig {
    LimitsConfig {
        max_learners: s.int("max-learners"),
        max_txn_ops: s.uint("max-txn-ops"),
        max_request_bytes: s.uint("max-request-bytes"),
        max_concurrent_streams: u32::try_from(s.uint("max-concurrent-streams"))
            .expect("the kind admits 32 bits"),
    }
}

fn sockets(s: &Settings) -> Result<SocketConfig, String> {
    Ok(SocketConfig {
        reuse_port: s.flag("socket-reuse-port"),
        reuse_address: s.flag("socket-reuse-address"),
        unix_mode: parse_mode(&s.text("unix-socket-mode"))?,
        unix_owner: parse_owner(&s.text("unix-socket-owner"))?,
    })
}

fn compaction(s: &Settings) -> CompactionConfig {
    let sleep = s.duration("compaction-sleep-interval");
    let sleep = if sleep == GoDuration(0) { GoDuration(10_000_000) } else { sleep };
    CompactionConfig {
        auto_mode: s.text("auto-compaction-mode"),
        auto_retention: s.text("auto-compaction-retention"),
        batch_limit: batch_limit(s.int("compaction-batch-limit")),
        sleep_interval: sleep.to_std(),
    }
}

/// Zero stands for ten minutes; below 100 ms becomes 100 ms.
fn progress_interval(s: &Settings) -> Duration {
    let given = s.duration("watch-progress-notify-interval").to_std();
    let interval = if given.is_zero() { Duration::from_secs(600) } else { given };
    interval.max(Duration::from_millis(100))
}

fn batch_limit(given: i64) -> u64 {
    u64::try_from(given).ok().filter(|limit| *limit > 0).unwrap_or(1000)
}

fn data_dir(settings: &Settings, personality: Personality) -> PathBuf {
    let given = settings.text("data-dir");
    if given.is_empty() {
        PathBuf::from(format!("{}.{}", settings.text("name"), personality.name()))
    } else {
        PathBuf::from(given)
    }
}

/// A name alone is enough: the default list then carries it, with the announced URLs.
fn initial_cluster(settings: &Settings) -> String {
    if settings.is_set("initial-cluster") {
        return settings.text("initial-cluster");
    }
    let name = settings.text("name");
    let urls = settings.urls("initial-advertise-peer-urls");
    let pairs: Vec<String> = urls.iter().map(|url| format!("{name}={url}")).collect();
    pairs.join(",")
}

fn keyspaces(
    settings: &Settings,
    data_dir: &Path,
    personality: Personality,
) -> Result<Vec<Keyspace>, String> {
    let mut listen_client_urls = settings.urls("listen-client-urls");
    let quiet = settings.source("listen-client-urls") == Source::Default;
    if quiet && personality == Personality::Ringbolt {
        let path = data_dir.join("client.sock").to_string_lossy().into_owned();
        listen_client_urls.push(Url { scheme: Scheme::Unix, host: String::new(), path });
    }
    let fsync = if settings.flag("unsafe-no-fsync") {
        Fsync::NoFsync
    } else {
        Fsync::parse(&settings.text("fsync")).expect("the table admits only the known words")
    };
    let mut all = vec![Keyspace {
        name: keyspace::DEFAULT_NAME.to_owned(),
        directory: keyspace::directory(data_dir, keyspace::DEFAULT_NAME),
        listen_client_urls,
        advertise_client_urls: settings.urls("advertise-client-urls"),
        fsync,
        quota_bytes: keyspace::quota(settings.int("quota-backend-bytes")),
    }];
    for text in settings.list("keyspace") {
        let one = keyspace::parse(&text, data_dir, &all[0])?;
        check_beside(&one, &all)?;
        all.push(one);
    }
    if all.len() > limits::KEYSPACES_MAX {
        return Err(format!("--keyspace: at most {} keyspaces", limits::KEYSPACES_MAX));
    }
    Ok(all)
}

/// A keyspace shares neither name, directory nor listener with those before it.
fn check_beside(one: &Keyspace, others: &[Keyspace]) -> Result<(), String> {
    let name = &one.name;
    if let Some(url) = one.listen_client_urls.iter().find(|url| url.is_tls()) {
        return Err(format!("--keyspace {name}: this build serves plaintext, not {url}"));
    }
    one.listen_client_urls.iter().try_for_each(Url::check_bind)?;
    for other in others {
        if other.name == *name {
            return Err(format!("--keyspace {name}: the name is used twice"));
        }
        let (ours, theirs) = (real_place(&one.directory), real_place(&other.directory));
        if ours.starts_with(&theirs) || theirs.starts_with(&ours) {
            let directory = one.directory.display();
            return Err(format!("--keyspace {name}: {directory} belongs to {}", other.name));
        }
        let mut urls = other.listen_client_urls.iter();
        if let Some(url) = urls.find(|url| one.listen_client_urls.contains(url)) {
            return Err(format!("--keyspace {name}: {url} is used by {}", other.name));
        }
    }
    Ok(())
}

/// Where a directory that need not exist yet really is: absolute, without `..` and links. Two
/// spellings of one directory must not become two keyspaces.
fn real_place(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut place = PathBuf::new();
    for part in whole.components() {
        if part == Component::ParentDir {
            place.pop();
        } else {
            place.push(part);
        }
        if let Ok(real) = std::fs::canonicalize(&place) {
            place = real;
        }
    }
    place
}

fn log_config(settings: &Settings) -> LogConfig {
    let rotates = settings.flag("enable-log-rotation");
    LogConfig {
        level: Level::parse(&settings.text("log-level")).expect("checked by load"),
        console: settings.text("log-format") == "console",
        outputs: settings.list("log-outputs"),
        rotation: rotates.then(|| settings.text("log-rotation-config-json")),
    }
}

fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("--unix-socket-mode: {text:?} is no octal mode up to 0777"))
}

type Owner = Option<(Option<u32>, Option<u32>)>;

fn parse_owner(text: &str) -> Result<Owner, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let id = |part: &str| match part {
        "" => Ok(None),
        part => part.parse::<u32>().map(Some).map_err(|_| {
            format!("--unix-socket-owner: {text:?} is not uid, uid:gid or :gid in numbers")
        }),
    };
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    Ok(Some((id(user)?, id(group)?)))
}

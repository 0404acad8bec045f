//! What makes a set of well-formed settings unusable, in etcd's order and words.

use super::Config;
use super::notice::Notice;
use super::number::GoDuration;
use super::table::{Flag, Group, flags};
use super::url::{Url, texts};
use super::value::{Settings, Source};

const ELECTION_MS_MAX: u64 = 50_000;
const TLS_VERSIONS: [&str; 2] = ["TLS1.2", "TLS1.3"];
/// The text etcd follows with a second line.
pub const NO_ADVERTISE: &str =
    "--advertise-client-urls is required when --listen-client-urls is set explicitly";
const DEFAULT_NAME: &str = "it isn't recommended to use default name, please set a value for \
     --name. Note that etcd might run into issue when multiple members have the same default name";

/// The checks etcd makes before it starts anything.
///
/// # Errors
/// The text behind "failed to verify flags".
pub fn verify(settings: &Settings, notices: &mut Vec<Notice>) -> Result<(), String> {
    if settings.text("discovery-fallback") == "proxy" {
        let why = "v2 proxy is deprecated, and --discovery-fallback can't be configured as";
        return Err(format!("{why} \"proxy\""));
    }
    logging(settings)?;
    addresses(settings, notices)?;
    bootstrap_flags(settings)?;
    timing(settings)?;
    if !advertises(settings) {
        return Err(NO_ADVERTISE.to_owned());
    }
    features(settings)?;
    if settings.text("name") == "default" {
        let fields = vec![("name", settings.text("name").into())];
        notices.push(Notice::warn(DEFAULT_NAME, fields));
    }
    tls_versions(settings)?;
    contradictions(settings)?;
    later_work(settings)?;
    without_effect(settings, notices);
    Ok(())
}

fn logging(settings: &Settings) -> Result<(), String> {
    let logger = settings.text("logger");
    if logger != "zap" {
        return Err(format!("unknown logger option {logger:?}"));
    }
    let outputs = settings.list("log-outputs");
    if outputs.is_empty() {
        return Err("open sink \"\": open : no such file or directory".to_owned());
    }
    if outputs.len() > 1 && outputs.iter().any(|output| output == "default") {
        return Err("multi logoutput for \"default\" is not supported yet".to_owned());
    }
    let journal = |output: &String| output == "systemd/journal";
    if outputs.iter().any(journal) && !outputs.iter().all(journal) {
        let quoted: Vec<String> = outputs.iter().map(|output| format!("{output:?}")).collect();
        return Err(format!(
            "running with systemd/journal but other '--log-outputs' values ([{}]) are configured \
             with 'default'; override 'default' value with something else",
            quoted.join(" ")
        ));
    }
    let words = ["default", "stderr", "stdout", "systemd/journal"];
    let is_file = |output: &String| !words.contains(&output.as_str());
    if settings.flag("enable-log-rotation") && (outputs.len() != 1 || !outputs.iter().all(is_file))
    {
        let why = "--log-outputs requires a single file path when --log-rotate-config-json";
        return Err(format!("{why} is defined"));
    }
    let format = settings.text("log-format");
    if !matches!(format.as_str(), "json" | "console") {
        return Err(format!("unknown log format: {format}, supported values json, console"));
    }
    Ok(())
}

fn addresses(settings: &Settings, notices: &mut Vec<Notice>) -> Result<(), String> {
    let bind = |name: &str| settings.urls(name).iter().try_for_each(Url::check_bind);
    bind("listen-peer-urls")?;
    bind("listen-client-urls")?;
    bind("listen-client-http-urls")?;
    if settings.urls("listen-client-http-urls").is_empty() {
        let text = "Running http and grpc server on single port. \
             This is not recommended for production.";
        notices.push(Notice::warn(text, vec![]));
    }
    bind("listen-metrics-urls")?;
    for name in ["initial-advertise-peer-urls", "advertise-client-urls"] {
        let urls = settings.urls(name);
        let form = "must be in the format \"host:port\", \"unix:/path/to/socket\" or \
             \"unixs:/path/to/socket\"";
        urls.iter()
            .try_for_each(Url::check_host)
            .map_err(|why| format!("--{name} {:?} {form} ({why})", texts(&urls).join(",")))?;
    }
    Ok(())
}

fn bootstrap_flags(settings: &Settings) -> Result<(), String> {
    let discovers = !settings.list("discovery-endpoints").is_empty();
    let by_srv = !settings.text("discovery-srv").is_empty();
    // The default initial cluster steps back where discovery is asked for.
    let by_list =
        settings.is_set("initial-cluster") && !settings.text("initial-cluster").is_empty();
    if [discovers, by_srv, by_list].into_iter().filter(|given| *given).count() > 1 {
        return Err("multiple discovery or bootstrap flags are set. Choose one of \
             \"initial-cluster\", \"discovery-endpoints\" or \"discovery-srv\""
            .to_owned());
    }
    if discovers == settings.text("discovery-token").is_empty() {
        return Err("both --discovery-token and --discovery-endpoints must be set".to_owned());
    }
    Ok(())
}

fn timing(settings: &Settings) -> Result<(), String> {
    let heartbeat = settings.uint("heartbeat-interval");
    let election = settings.uint("election-timeout");
    if heartbeat == 0 {
        return Err("--heartbeat-interval must be >0 (set to 0ms)".to_owned());
    }
    if election == 0 {
        return Err("--election-timeout must be >0 (set to 0ms)".to_owned());
    }
    if heartbeat.saturating_mul(5) > election {
        return Err(format!(
            "--election-timeout[{election}ms] should be at least as 5 times as \
             --heartbeat-interval[{heartbeat}ms]"
        ));
    }
    if election > ELECTION_MS_MAX {
        return Err(format!(
            "--election-timeout[{election}ms] is too long, and should be set less than \
             {ELECTION_MS_MAX}ms"
        ));
    }
    Ok(())
}

/// With a configuration file the default stays; otherwise listeners ask for an announcement.
fn advertises(settings: &Settings) -> bool {
    let listens = settings.source("listen-client-urls");
    matches!(listens, Source::Default | Source::File) || settings.is_set("advertise-client-urls")
}

fn features(settings: &Settings) -> Result<(), String> {
    match settings.text("auto-compaction-mode").as_str() {
        "periodic" | "revision" => {}
        "" => return Err("undefined auto-compaction-mode".to_owned()),
        other => return Err(format!("unknown auto-compaction-mode {other:?}")),
    }
    let gates = settings.gates("feature-gates");
    if gates.is_open("LeaseCheckpointPersist") && !gates.is_open("LeaseCheckpoint") {
        return Err("enabling feature gate LeaseCheckpointPersist requires enabling feature gate \
             LeaseCheckpoint"
            .to_owned());
    }
    let hash_check = settings.duration("compact-hash-check-time");
    if hash_check <= GoDuration(0) {
        return Err(format!("--compact-hash-check-time must be >0 (set to {hash_check})"));
    }
    Ok(())
}

fn tls_versions(settings: &Settings) -> Result<(), String> {
    let place = |version: &str| TLS_VERSIONS.iter().position(|known| *known == version);
    let unknown = |version: &str| {
        format!("unexpected TLS version {version:?} (must be one of: TLS1.2, TLS1.3)")
    };
    let (lowest, highest) = (settings.text("tls-min-version"), settings.text("tls-max-version"));
    let from = if lowest.is_empty() { Some(0) } else { place(&lowest) };
    let from = from.ok_or_else(|| unknown(&lowest))?;
    let to = if highest.is_empty() { Some(1) } else { place(&highest) };
    let to = to.ok_or_else(|| unknown(&highest))?;
    if from > to {
        return Err(format!("min version ({lowest}) is greater than max version ({highest})"));
    }
    if from == 1 && !settings.list("cipher-suites").is_empty() {
        return Err("cipher suites cannot be configured when only TLS1.3 is enabled".to_owned());
    }
    Ok(())
}

/// Flags of our own that deny each other or etcd's.
fn contradictions(settings: &Settings) -> Result<(), String> {
    let mode = settings.text("fsync");
    let asked = settings.is_set("fsync");
    if settings.flag("unsafe-no-fsync") && asked && mode != "unsafe-no-fsync" {
        return Err(format!("--unsafe-no-fsync contradicts --fsync={mode}: choose one"));
    }
    if settings.duration("flush-interval") <= GoDuration(0) {
        let interval = settings.duration("flush-interval");
        return Err(format!("--flush-interval must be >0 (set to {interval})"));
    }
    let (budget, least) = (settings.uint("memory-budget"), super::limits::MEMORY_BUDGET_MIN);
    if budget > 0 && budget < least {
        return Err(format!("--memory-budget must be 0 or at least {least} (set to {budget})"));
    }
    let (request, most) = (settings.uint("max-request-bytes"), super::limits::REQUEST_BYTES_MAX);
    if request > most {
        // Each segment of the log has room for the largest request.
        return Err(format!("--max-request-bytes must not be above {most} (set to {request})"));
    }
    let shards = settings.uint("shards");
    let most = super::limits::SHARDS_MAX;
    if shards > most {
        return Err(format!("--shards must not be above {most} (set to {shards})"));
    }
    Ok(())
}

/// What a flag asks for that this build does not have: it is refused but at its default.
#[must_use]
pub fn missing_part(flag: &Flag) -> Option<&'static str> {
    // Limits of a TLS that is not there change nothing.
    let harmless = ["cors", "host-whitelist", "self-signed-cert-validity", "cipher-suites"];
    let is_harmless = harmless.contains(&flag.name) || flag.name.starts_with("tls-");
    let is_tls = flag.group == Group::Security || flag.name.starts_with("peer-skip-");
    match flag.name {
        _ if is_tls && !is_harmless => Some("TLS"),
        // Without endpoints the settings of the discovery client change nothing either.
        "discovery-endpoints" | "discovery-srv" | "discovery-srv-name" => Some("discovery"),
        "enable-distributed-tracing" => Some("tracing"),
        "wal-dir" => Some("a log outside the keyspace's directory (see --data-dir)"),
        _ => None,
    }
}

/// Flags whose work does not exist yet: refused where they ask for it, never passed over.
fn later_work(settings: &Settings) -> Result<(), String> {
    let refuse = |flag: &str, what: &str| {
        let why = "this build serves plaintext single members";
        Err(format!("--{flag}: {why}; {what} is not supported"))
    };
    for flag in flags().filter(|flag| !settings.is_default(flag)) {
        if let Some(what) = missing_part(&flag) {
            return refuse(flag.name, what);
        }
    }
    let listeners = [
        "listen-client-urls",
        "listen-client-http-urls",
        "listen-metrics-urls",
        "listen-peer-urls",
    ];
    for name in listeners {
        if let Some(url) = settings.urls(name).iter().find(|url| url.is_tls()) {
            return refuse(name, &format!("TLS ({url})"));
        }
    }
    if settings.text("auth-token").starts_with("jwt") {
        return refuse("auth-token", "a token kind other than simple");
    }
    Ok(())
}

/// Flags that are taken but do nothing here, and why.
pub const WITHOUT_EFFECT: [(&str, &str); 19] = [
    ("enable-pprof", "there are no Go profiles; /debug/pprof/ answers 404"),
    ("memory-mlock", "there is no mapped database file to lock"),
    ("bootstrap-defrag-threshold-megabytes", "nothing here needs a defrag"),
    ("max-wals", "log segments are recycled, not kept by count"),
    ("backend-batch-interval", "there is no backend batch"),
    ("backend-batch-limit", "there is no backend batch"),
    ("force-new-cluster", "a single member already is a cluster of one"),
    ("corrupt-check-time", "a single member has nobody to compare with"),
    ("snapshot-count", "a checkpoint is due by bytes of log, not by entries"),
    ("snapshot-catchup-entries", "a single member has no followers"),
    ("initial-election-tick-advance", "a single member leads at once"),
    ("pre-vote", "a single member has nobody to ask"),
    ("strict-reconfig-check", "membership does not change in this build"),
    ("max-learners", "membership does not change in this build"),
    ("compaction-batch-limit", "removal is cut into slices by time"),
    ("compaction-sleep-interval", "removal is cut into slices by time"),
    ("raft-read-timeout", "a single member has no peers"),
    ("raft-write-timeout", "a single member has no peers"),
    ("downgrade-check-time", "downgrades are not part of this build"),
];

/// Flags that are taken but do nothing here: said once, at the start.
fn without_effect(settings: &Settings, notices: &mut Vec<Notice>) {
    if settings.is_set("max-snapshots") {
        let text = "--max-snapshots is deprecated in 3.6 and will be decommissioned in 3.8.";
        notices.push(Notice::warn(text, vec![]));
    }
    if settings.is_set("v2-deprecation") {
        let text = "--v2-deprecation is deprecated and scheduled for removal in v3.8. \
             The default value is enforced, ignoring user input.";
        notices.push(Notice::warn(text, vec![]));
    }
    for flag in flags().filter(|flag| !settings.is_default(flag)) {
        if let Some((name, why)) = WITHOUT_EFFECT.iter().find(|(name, _)| *name == flag.name) {
            let fields = vec![("flag", format!("--{name}").into()), ("reason", (*why).into())];
            notices.push(Notice::warn("flag has no effect in this server", fields));
        }
    }
}

/// Names etcd knows, the ones that Go calls insecure too.
const CIPHER_SUITES: &[&str] = &[
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
];

/// What etcd finds out when it starts, data or not.
///
/// # Errors
/// The text behind "discovery failed".
pub fn start(config: &Config) -> Result<(), String> {
    match config.auth_token.split(',').next().unwrap_or_default() {
        "simple" | "" => {}
        _ => return Err("auth: invalid auth options".to_owned()),
    }
    let suite = config.cipher_suites.iter().find(|name| !CIPHER_SUITES.contains(&name.as_str()));
    if let Some(unknown) = suite {
        return Err(format!("unexpected TLS cipher suite {unknown:?}"));
    }
    compaction_retention(&config.compaction.auto_mode, &config.compaction.auto_retention)?;
    Ok(())
}

/// What `--auto-compaction-retention` means: revisions or nanoseconds, by mode.
///
/// # Errors
/// etcd's text around Go's.
pub fn compaction_retention(mode: &str, text: &str) -> Result<i64, String> {
    let number = text.parse::<i64>().ok().filter(|number| *number >= 0);
    match (number, mode) {
        (Some(revisions), "revision") => Ok(revisions),
        (Some(hours), _) => Ok(hours.saturating_mul(3_600_000_000_000)),
        (None, _) => GoDuration::parse(text)
            .map(|duration| duration.0)
            .map_err(|why| format!("error parsing CompactionRetention: {why}")),
    }
}

/// What etcd demands of `--initial-cluster` where there is no data yet.
///
/// # Errors
/// The text behind "discovery failed".
pub fn bootstrap(config: &Config) -> Result<(), String> {
    let members = members(&config.cluster.initial_cluster)?;
    let own: Vec<&Url> =
        members.iter().filter(|(name, _)| *name == config.name).map(|(_, url)| url).collect();
    if own.is_empty() {
        let name = &config.name;
        return Err(format!(
            "couldn't find local name {name:?} in the initial cluster configuration"
        ));
    }
    duplicates(config, &members)?;
    let others = members.iter().any(|(name, _)| *name != config.name);
    if others {
        return Err("--initial-cluster: this build serves plaintext single members; name this \
             member only"
            .to_owned());
    }
    if config.cluster.initial_cluster_state == "existing" {
        return Err("--initial-cluster-state=existing: this build serves plaintext single \
             members and cannot join a cluster; use new"
            .to_owned());
    }
    advertised(config, &own)
}

fn members(text: &str) -> Result<Vec<(String, Url)>, String> {
    let mut members = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (name, url) = part.split_once('=').unwrap_or((part, ""));
        let url = Url::parse(url).map_err(|why| format!("error setting up initial cluster: {why}"));
        members.push((name.trim().to_owned(), url?));
    }
    Ok(members)
}

fn duplicates(config: &Config, members: &[(String, Url)]) -> Result<(), String> {
    let mut urls: Vec<&Url> = members.iter().map(|(_, url)| url).collect();
    urls.sort();
    if urls.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(format!(
            "initial cluster {} has duplicate url",
            config.cluster.initial_cluster
        ));
    }
    Ok(())
}

fn advertised(config: &Config, own: &[&Url]) -> Result<(), String> {
    let mut listed: Vec<String> = own.iter().map(|url| url.to_string()).collect();
    let mut announced = texts(&config.cluster.initial_advertise_peer_urls);
    listed.sort();
    announced.sort();
    if listed == announced {
        return Ok(());
    }
    let pairs: Vec<String> = listed.iter().map(|url| format!("{}={url}", config.name)).collect();
    let difference = listed
        .iter()
        .zip(&announced)
        .find(|(listed, announced)| listed != announced)
        .map(|(listed, announced)| format!(" (resolved urls: {announced:?} != {listed:?})"));
    Err(format!(
        "--initial-cluster has {} but missing from --initial-advertise-peer-urls={}{}",
        pairs.join(","),
        announced.join(","),
        difference.unwrap_or_default()
    ))
}

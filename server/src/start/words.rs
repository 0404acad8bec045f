//! The log lines of start and stop, in etcd's words and with etcd's keys.

use ringbolt_engine::replica::Replica;
use serde_json::Value;

use super::listen::Bound;
use crate::config::help::{GIT_SHA, GO_VERSION, go_arch};
use crate::config::keyspace::{DEFAULT_NAME, Keyspace};
use crate::config::notice::Fields;
use crate::config::number::GoDuration;
use crate::config::url::{Url, texts};
use crate::config::{Config, check};
use crate::log;
use crate::version::SERVER_VERSION;

/// Before anything is bound.
pub fn starting(config: &Config, was_there: bool) {
    log::info(
        "configuring peer listeners",
        vec![urls("listen-peer-urls", &config.listen_peer_urls)],
    );
    let client = &config.default_keyspace().listen_client_urls;
    log::info("configuring client listeners", vec![urls("listen-client-urls", client)]);
    log::info("starting an etcd server", settings(config, was_there));
}

fn urls(key: &'static str, urls: &[Url]) -> (&'static str, Value) {
    (key, texts(urls).into())
}

fn time(duration: std::time::Duration) -> Value {
    GoDuration::of(duration).to_string().into()
}

fn settings(config: &Config, was_there: bool) -> Fields {
    let directory = config.data_dir.display().to_string();
    let member = config.default_keyspace().directory.display().to_string();
    let cluster = &config.cluster;
    let mut fields: Fields = vec![
        ("etcd-version", SERVER_VERSION.into()),
        ("ringbolt-version", env!("CARGO_PKG_VERSION").into()),
        ("git-sha", GIT_SHA.into()),
        ("go-version", GO_VERSION.into()),
        ("go-os", std::env::consts::OS.into()),
        ("go-arch", go_arch().into()),
        ("max-cpu-set", ringbolt_io::process::cores().into()),
        ("max-cpu-available", ringbolt_io::process::cores().into()),
        ("member-initialized", was_there.into()),
        ("name", config.name.as_str().into()),
        ("data-dir", directory.into()),
        ("wal-dir", "".into()),
        ("wal-dir-dedicated", "".into()),
        ("member-dir", member.into()),
        ("force-new-cluster", cluster.force_new_cluster.into()),
        ("heartbeat-interval", time(cluster.heartbeat_interval)),
        ("election-timeout", time(cluster.election_timeout)),
        ("initial-election-tick-advance", cluster.initial_election_tick_advance.into()),
        ("snapshot-count", cluster.snapshot_count.into()),
        ("max-wals", cluster.max_wals.into()),
        ("max-snapshots", cluster.max_snapshots.into()),
        ("snapshot-catchup-entries", cluster.snapshot_catchup_entries.into()),
    ];
    fields.extend(more_settings(config));
    fields
}

fn more_settings(config: &Config) -> Fields {
    let cluster = &config.cluster;
    let default = config.default_keyspace();
    let compaction = &config.compaction;
    let retention = check::compaction_retention(&compaction.auto_mode, &compaction.auto_retention);
    let retention = GoDuration(retention.unwrap_or(0)).to_string();
    let names: Vec<&str> = config.keyspaces.iter().map(|one| one.name.as_str()).collect();
    vec![
        urls("initial-advertise-peer-urls", &cluster.initial_advertise_peer_urls),
        urls("listen-peer-urls", &config.listen_peer_urls),
        urls("advertise-client-urls", &default.advertise_client_urls),
        urls("listen-client-urls", &default.listen_client_urls),
        urls("listen-metrics-urls", &config.listen_metrics_urls),
        ("cors", config.cors.as_slice().into()),
        ("host-whitelist", config.host_whitelist.as_slice().into()),
        ("initial-cluster", cluster.initial_cluster.as_str().into()),
        ("initial-cluster-state", cluster.initial_cluster_state.as_str().into()),
        ("initial-cluster-token", cluster.initial_cluster_token.as_str().into()),
        ("quota-backend-bytes", default.quota_bytes.into()),
        ("max-request-bytes", config.limits.max_request_bytes.into()),
        ("max-concurrent-streams", config.limits.max_concurrent_streams.into()),
        ("pre-vote", cluster.pre_vote.into()),
        ("feature-gates", config.feature_gates.to_string().into()),
        ("initial-corrupt-check", config.feature_gates.is_open("InitialCorruptCheck").into()),
        ("corrupt-check-time-interval", cluster.corrupt_check_time.to_string().into()),
        ("compact-check-time-interval", cluster.compact_hash_check_time.to_string().into()),
        ("auto-compaction-mode", compaction.auto_mode.as_str().into()),
        ("auto-compaction-retention", retention.as_str().into()),
        ("auto-compaction-interval", retention.as_str().into()),
        ("downgrade-check-interval", cluster.downgrade_check_time.to_string().into()),
        ("max-learners", config.limits.max_learners.into()),
        ("fsync", default.fsync.word().into()),
        ("flush-interval", time(config.flush_interval)),
        ("keyspaces", names.into()),
    ]
}

/// A keyspace is open and leads.
pub fn opened(config: &Config, keyspace: &Keyspace, replica: &Replica) {
    let status = replica.status();
    let member = status.member_id.to_string();
    let cluster = status.cluster_id.to_string();
    let own = |fields: Fields| -> Fields {
        let mut all = vec![("local-member-id", member.as_str().into())];
        all.extend(fields);
        if keyspace.name != DEFAULT_NAME {
            all.push(("keyspace", keyspace.name.as_str().into()));
        }
        all
    };
    log::info("starting local member", own(vec![("cluster-id", cluster.as_str().into())]));
    let revision = ("current-rev", status.revision.0.into());
    log::info("kvstore restored", own(vec![revision]));
    let version = replica.state().cluster_version.clone();
    let short = version.rsplit_once('.').map_or(version.as_str(), |(short, _)| short);
    let local = ("local-server-version", SERVER_VERSION.into());
    log::info("starting etcd server", own(vec![local, ("cluster-version", short.into())]));
    let mut places = vec![
        urls("initial-advertise-peer-urls", &config.cluster.initial_advertise_peer_urls),
        urls("listen-peer-urls", &config.listen_peer_urls),
        urls("advertise-client-urls", &keyspace.advertise_client_urls),
        urls("listen-client-urls", &keyspace.listen_client_urls),
    ];
    places.push(urls("listen-metrics-urls", &config.listen_metrics_urls));
    log::info("now serving peer/client/metrics", own(places));
    if keyspace.name == DEFAULT_NAME {
        for url in &config.listen_metrics_urls {
            log::info("serving metrics", vec![("address", url.to_string().into())]);
        }
        for url in &config.listen_peer_urls {
            log::info("serving peer traffic", vec![("address", url.address().into())]);
        }
    }
    let leader = status.leader.map_or_else(String::new, |leader| leader.to_string());
    let term = status.term;
    log::raft(&format!("{member} became leader at term {term}"));
    let elected = format!("raft.node: {member} elected leader {leader} at term {term}");
    log::raft(&elected);
    log::info("cluster version is updated", vec![("cluster-version", short.into())]);
    let advertised = texts(&keyspace.advertise_client_urls).join(" ");
    let attributes = format!("{{Name:{} ClientURLs:[{advertised}]}}", config.name);
    let published = vec![
        ("local-member-attributes", attributes.into()),
        ("cluster-id", cluster.as_str().into()),
        ("publish-timeout", time(replica.config().request_timeout())),
    ];
    log::info("published local member to cluster through raft", own(published));
}

/// Clients are accepted from now on.
pub fn ready(clients: &[Bound], config: &Config) {
    for _ in clients {
        log::info("ready to serve client requests", vec![]);
    }
    let fields = vec![("service", "".into()), ("status", "SERVING".into())];
    log::info("grpc service status changed", fields);
    let traffic = if config.listen_client_http_urls.is_empty() { "grpc+http" } else { "grpc" };
    for bound in clients {
        let fields = vec![("traffic", traffic.into()), ("address", bound.url.address().into())];
        let text = "serving client traffic insecurely; this is strongly discouraged!";
        log::info(text, fields);
    }
}

/// The fields of "closing etcd server" and "closed etcd server".
#[must_use]
pub fn closing(config: &Config) -> Fields {
    vec![
        ("name", config.name.as_str().into()),
        ("data-dir", config.data_dir.display().to_string().into()),
        urls("advertise-peer-urls", &config.cluster.initial_advertise_peer_urls),
        urls("advertise-client-urls", &config.default_keyspace().advertise_client_urls),
    ]
}

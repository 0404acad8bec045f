//! Every metric of one keyspace, by etcd's names, and our own behind them.
//!
//! Families of Go's runtime, of bbolt's inner life, of the v2 store and of the gRPC proxy are left
//! out: there is nothing here they could tell the truth about.

use ringbolt_engine::replica::{Replica, Status};
use ringbolt_engine::watch::Hub;
use ringbolt_io::process::{self, Figures};

use super::Metrics;
use super::count::Histogram;
use super::text::{Exposition, Kind, float};
use crate::budget::OWNERS;
use crate::config::gates::GATES;
use crate::config::help::GO_VERSION;
use crate::config::keyspace::Fsync;
use crate::version::SERVER_VERSION;

const LEASE: &str = "etcdserverpb.Lease";

/// The text of a scrape.
pub fn render(metrics: &Metrics, replica: &Replica, hub: &Hub) -> String {
    let mut out = Exposition::default();
    let status = replica.status();
    server(&mut out, metrics, replica, &status);
    proposals(&mut out, metrics, &status);
    store(&mut out, metrics, &status);
    let removed = replica.state().mvcc.removed_count();
    let name = "etcd_debugging_mvcc_db_compaction_keys_total";
    counter(&mut out, name, "Versions removed by compaction.", removed);
    disk(&mut out, metrics, &status);
    watches(&mut out, metrics, hub);
    leases(&mut out, metrics);
    health(&mut out, metrics);
    metrics.rpcs.write(&mut out);
    machine(&mut out, metrics, &process::figures());
    ours(&mut out, metrics, &status);
    out.text()
}

fn gauge(out: &mut Exposition, name: &'static str, help: &'static str, value: f64) {
    out.value(Kind::Gauge, name, help, &[], value);
}

fn counter(out: &mut Exposition, name: &'static str, help: &'static str, value: u64) {
    out.value(Kind::Counter, name, help, &[], float(value));
}

fn histogram(out: &mut Exposition, name: &'static str, help: &'static str, from: &Histogram) {
    let (bounds, counts, sum) = from.snapshot();
    out.histogram(name, help, &[], (bounds, &counts, sum));
}

/// A family of etcd that never sees an observation here.
fn silent(
    out: &mut Exposition,
    name: &'static str,
    help: &'static str,
    (first, count): (f64, usize),
) {
    histogram(out, name, help, &Histogram::exponential(first, 2.0, count));
}

fn flag(value: bool) -> f64 {
    f64::from(u8::from(value))
}

fn signed(value: i64) -> f64 {
    let size = float(value.unsigned_abs());
    if value < 0 { -size } else { size }
}

fn server(out: &mut Exposition, metrics: &Metrics, replica: &Replica, status: &Status) {
    let state = replica.state();
    let id = status.member_id.to_string();
    if let Some((version, _)) = state.cluster_version.rsplit_once('.') {
        let name = "etcd_cluster_version";
        let labels = [("cluster_version", version)];
        out.value(Kind::Gauge, name, "The cluster version, as a label.", &labels, 1.0);
    }
    let help = "The version of this server, as a label.";
    out.value(Kind::Gauge, "etcd_server_version", help, &[("server_version", SERVER_VERSION)], 1.0);
    let help = "What stands for a Go version, as a label.";
    let labels = [("server_go_version", GO_VERSION)];
    out.value(Kind::Gauge, "etcd_server_go_version", help, &labels, 1.0);
    let help = "The id of this member, as a label.";
    out.value(Kind::Gauge, "etcd_server_id", help, &[("server_id", &id)], 1.0);
    let leads = status.leader == Some(status.member_id);
    gauge(
        out,
        "etcd_server_has_leader",
        "1 when a leader is known.",
        flag(status.leader.is_some()),
    );
    gauge(out, "etcd_server_is_leader", "1 when this member leads.", flag(leads));
    let own = state.members.get(status.member_id);
    let learns = own.is_some_and(|member| member.is_learner);
    gauge(out, "etcd_server_is_learner", "1 when this member has no vote.", flag(learns));
    for (alarm, member) in state.alarms.iter() {
        let kind = if alarm == 1 { "NOSPACE" } else { "CORRUPT" };
        let member = member.to_string();
        let labels = [("alarm_type", kind), ("server_id", member.as_str())];
        let help = "Alarms that are raised.";
        out.value(Kind::Gauge, "etcd_debugging_server_alarms", help, &labels, 1.0);
    }
    for member in state.members.iter() {
        let other = member.id.to_string();
        let labels = [("Local", id.as_str()), ("Remote", other.as_str())];
        let help = "Members known, this one included.";
        out.value(Kind::Gauge, "etcd_network_known_peers", help, &labels, 1.0);
    }
    for (name, stage, _) in GATES {
        let labels = [("name", *name), ("stage", stage.label())];
        let open = flag(metrics.about.gates.is_open(name));
        let help = "1 for each feature gate that is open.";
        out.value(Kind::Gauge, "etcd_server_feature_enabled", help, &labels, open);
    }
    let quota = float(metrics.about.quota_bytes);
    gauge(out, "etcd_server_quota_backend_bytes", "The space quota in force.", quota);
}

fn proposals(out: &mut Exposition, metrics: &Metrics, status: &Status) {
    let name = "etcd_server_proposals_applied_total";
    gauge(out, name, "The last index applied.", float(status.applied));
    let name = "etcd_server_proposals_committed_total";
    gauge(out, name, "The last index committed.", float(status.commit));
    let waiting = float(u64::try_from(status.proposals_waiting).unwrap_or(0));
    gauge(out, "etcd_server_proposals_pending", "Proposals without an answer.", waiting);
    counter(out, "etcd_server_proposals_failed_total", "Proposals that were dropped.", 0);
    // A sole voter sees one leader in its life, and has nobody to send heartbeats to.
    let seen = u64::from(status.leader.is_some());
    counter(out, "etcd_server_leader_changes_seen_total", "Changes of leader seen.", seen);
    let name = "etcd_server_heartbeat_send_failures_total";
    counter(out, name, "Heartbeats that left too late.", 0);
    let name = "etcd_server_learner_promote_successes";
    counter(out, name, "Learners this leader promoted.", 0);
    counter(out, "etcd_server_read_indexes_failed_total", "Read points that failed.", 0);
    counter(out, "etcd_server_slow_read_indexes_total", "Read points that were slow.", 0);
    let name = "etcd_server_snapshot_apply_in_progress_total";
    gauge(out, name, "1 while a leader's snapshot is applied.", 0.0);
    for ((op, success), times) in metrics.stages.entries.borrow().iter() {
        let (bounds, counts, sum) = times.snapshot();
        let success = if *success { "true" } else { "false" };
        let labels = [("version", "v3"), ("op", *op), ("success", success)];
        let name = "etcd_server_apply_duration_seconds";
        let help = "Time to apply one entry, by what it asks for.";
        out.histogram(name, help, &labels, (bounds, &counts, sum));
    }
    let slow = metrics.stages.slow_applies.get();
    counter(out, "etcd_server_slow_apply_total", "Turns whose apply was slow.", slow);
}

fn store(out: &mut Exposition, metrics: &Metrics, status: &Status) {
    let keys = &metrics.keys;
    counter(out, "etcd_mvcc_put_total", "Puts done for clients.", keys.puts.get());
    counter(out, "etcd_mvcc_delete_total", "Deletes done for clients.", keys.deletes.get());
    counter(out, "etcd_mvcc_range_total", "Ranges done for clients.", keys.ranges.get());
    let help = "Transactions of more than one operation.";
    counter(out, "etcd_mvcc_txn_total", help, keys.txns.get());
    let size = float(status.db_size_bytes);
    let help = "Accounted bytes of keys, values, history and leases.";
    gauge(out, "etcd_mvcc_db_total_size_in_bytes", help, size);
    gauge(out, "etcd_mvcc_db_total_size_in_use_in_bytes", help, size);
    gauge(out, "etcd_mvcc_db_open_read_transactions", "Reads in progress.", 0.0);
    let revision = signed(status.revision.0);
    gauge(out, "etcd_debugging_mvcc_current_revision", "The store's revision.", revision);
    let compacted = signed(status.compacted.0);
    gauge(out, "etcd_debugging_mvcc_compact_revision", "The compacted revision.", compacted);
    let live = float(status.keys_count);
    gauge(out, "etcd_debugging_mvcc_keys_total", "Keys that exist.", live);
    let name = "etcd_mvcc_hash_duration_seconds";
    silent(out, name, "Time of a Hash.", (0.01, 15));
    let name = "etcd_mvcc_hash_rev_duration_seconds";
    silent(out, name, "Time of a HashKV.", (0.01, 15));
}

fn disk(out: &mut Exposition, metrics: &Metrics, status: &Status) {
    let stages = &metrics.stages;
    let name = "etcd_disk_wal_fsync_duration_seconds";
    let help = "Time from a log write's submission to its durability as the mode says.";
    histogram(out, name, help, &stages.log_write);
    // One durable write does what etcd does as a write and a sync.
    let name = "etcd_disk_wal_write_duration_seconds";
    histogram(out, name, help, &stages.log_write);
    let written = float(status.log.written_bytes);
    gauge(out, "etcd_disk_wal_write_bytes_total", "Bytes written to the log.", written);
    let name = "etcd_disk_backend_commit_duration_seconds";
    histogram(out, name, "Time a turn takes to apply its entries.", &stages.turn_apply);
    let name = "etcd_disk_backend_snapshot_duration_seconds";
    histogram(out, name, "Time of a checkpoint.", &stages.checkpoint);
    let name = "etcd_disk_backend_defrag_duration_seconds";
    silent(out, name, "Time of a defrag; nothing here needs one.", (0.1, 13));
    gauge(out, "etcd_disk_defrag_inflight", "1 during a defrag.", 0.0);
    let name = "etcd_snap_db_fsync_duration_seconds";
    silent(out, name, "Time to sync a received snapshot.", (0.001, 14));
    let name = "etcd_snap_db_save_total_duration_seconds";
    silent(out, name, "Time to store a received snapshot.", (0.1, 10));
    let name = "etcd_snap_fsync_duration_seconds";
    silent(out, name, "Time to sync a snapshot file.", (0.001, 14));
    let bytes = stages.checkpoint_bytes.get();
    counter(out, "ringbolt_checkpoint_bytes_total", "Bytes of checkpoints written.", bytes);
    log(out, status);
}

fn log(out: &mut Exposition, status: &Status) {
    let count = |number: usize| float(u64::try_from(number).unwrap_or(0));
    let log = &status.log;
    let rows = [
        (
            "ringbolt_log_writes_in_flight",
            "Log writes that are not durable yet.",
            count(status.writes_in_flight),
        ),
        (
            "ringbolt_log_durable_lag_entries",
            "Entries logged but not committed.",
            float(status.last.saturating_sub(status.commit)),
        ),
        (
            "ringbolt_log_durable_lag_appends",
            "Appends that are not acknowledged yet.",
            float(log.durable_lag),
        ),
        (
            "ringbolt_log_batches_in_flight",
            "Batches on their way to the disk.",
            count(log.batches_in_flight),
        ),
        ("ringbolt_log_waiting_bytes", "Bytes that wait for a batch.", count(log.waiting_bytes)),
        ("ringbolt_log_segments", "Segments that hold entries.", count(log.segments)),
        (
            "ringbolt_log_segments_free",
            "Segments that are ready for use.",
            count(log.segments_free),
        ),
        (
            "ringbolt_log_oldest_index",
            "The oldest entry kept; 0 without one.",
            float(log.oldest_index.0),
        ),
        (
            "ringbolt_log_bytes_since_checkpoint",
            "Log space taken since the newest checkpoint.",
            float(log.bytes_since_checkpoint),
        ),
        ("ringbolt_log_bytes", "Log space taken in all.", float(log.bytes)),
    ];
    for (name, help, value) in rows {
        gauge(out, name, help, value);
    }
}

fn watches(out: &mut Exposition, metrics: &Metrics, hub: &Hub) {
    let count = |number: usize| float(u64::try_from(number).unwrap_or(0));
    let streams = float(metrics.rpcs.open("etcdserverpb.Watch", "Watch"));
    gauge(out, "etcd_debugging_mvcc_watch_stream_total", "Watch streams that are open.", streams);
    let watchers = count(hub.watchers_count());
    gauge(out, "etcd_debugging_mvcc_watcher_total", "Watchers that exist.", watchers);
    let behind = count(hub.dirty_count());
    let help = "Watchers that have something to catch up with.";
    gauge(out, "etcd_debugging_mvcc_slow_watcher_total", help, behind);
    // A watcher is a cursor into the history: no event is ever queued for it.
    gauge(out, "etcd_debugging_mvcc_pending_events_total", "Events queued for watchers.", 0.0);
    let help = "Events handed to watchers.";
    counter(out, "etcd_debugging_mvcc_events_total", help, hub.events_sent());
}

fn leases(out: &mut Exposition, metrics: &Metrics) {
    let rpcs = &metrics.rpcs;
    let granted = rpcs.succeeded(LEASE, "LeaseGrant");
    counter(out, "etcd_debugging_lease_granted_total", "Leases granted to clients.", granted);
    let revoked = rpcs.succeeded(LEASE, "LeaseRevoke");
    counter(out, "etcd_debugging_lease_revoked_total", "Leases revoked by clients.", revoked);
    let renewed = rpcs.sent(LEASE, "LeaseKeepAlive");
    counter(out, "etcd_debugging_lease_renewed_total", "Keep-alives answered.", renewed);
}

fn health(out: &mut Exposition, metrics: &Metrics) {
    let [failed, passed] = &metrics.health;
    counter(out, "etcd_server_health_failures", "Failed /health checks.", failed.get());
    counter(out, "etcd_server_health_success", "Passed /health checks.", passed.get());
    for ((kind, name), (failed, passed, last)) in metrics.checks.borrow().iter() {
        let help = "The last outcome of a /livez or /readyz check.";
        let labels = [("name", *name), ("type", *kind)];
        out.value(Kind::Gauge, "etcd_server_healthcheck", help, &labels, flag(*last));
        for (status, count) in [("error", *failed), ("success", *passed)] {
            if count > 0 {
                let labels = [("name", *name), ("status", status), ("type", *kind)];
                let help = "Outcomes of /livez and /readyz checks.";
                let family = "etcd_server_healthchecks_total";
                out.value(Kind::Counter, family, help, &labels, float(count));
            }
        }
    }
}

fn machine(out: &mut Exposition, metrics: &Metrics, figures: &Figures) {
    let used = float(figures.open_files);
    let limit = float(figures.open_files_limit);
    gauge(out, "os_fd_limit", "Limit of open files.", limit);
    gauge(out, "os_fd_used", "Open files.", used);
    gauge(out, "process_max_fds", "Limit of open files.", limit);
    gauge(out, "process_open_fds", "Open files.", used);
    let name = "process_cpu_seconds_total";
    let help = "User and system time of the process.";
    out.value(Kind::Counter, name, help, &[], figures.cpu_seconds);
    let resident = float(figures.resident_bytes);
    gauge(out, "process_resident_memory_bytes", "Resident memory.", resident);
    let help = "Start of the process since the Unix epoch.";
    gauge(out, "process_start_time_seconds", help, figures.start_seconds);
    let memory = float(figures.virtual_bytes);
    gauge(out, "process_virtual_memory_bytes", "Virtual memory.", memory);
    let name = "process_virtual_memory_max_bytes";
    gauge(out, name, "Limit of virtual memory.", float(figures.virtual_limit_bytes));
    let name = "process_network_receive_bytes_total";
    counter(out, name, "Bytes received by the network name space.", figures.network_received_bytes);
    let name = "process_network_transmit_bytes_total";
    counter(out, name, "Bytes sent by the network name space.", figures.network_sent_bytes);
    gauge(out, "promhttp_metric_handler_requests_in_flight", "Scrapes in progress.", 1.0);
    for (code, count) in [("200", metrics.scrapes.get()), ("500", 0), ("503", 0)] {
        let name = "promhttp_metric_handler_requests_total";
        out.value(Kind::Counter, name, "Scrapes by status.", &[("code", code)], float(count));
    }
}

/// What etcd does not have: where a write spends its time, and how this process runs.
fn ours(out: &mut Exposition, metrics: &Metrics, status: &Status) {
    let stages = &metrics.stages;
    let rows =
        [("queued", &stages.queued), ("durable", &stages.durable), ("applied", &stages.applied)];
    for (stage, histogram) in rows {
        let (bounds, counts, sum) = histogram.snapshot();
        let help = "Time of a write in each stage: in the queue, until durable, until applied.";
        let name = "ringbolt_stage_duration_seconds";
        out.histogram(name, help, &[("stage", stage)], (bounds, &counts, sum));
    }
    let about = &metrics.about;
    let labels = [("fsync", about.fsync.word()), ("keyspace", about.keyspace.as_str())];
    let help = "The keyspace these figures are of, as labels.";
    out.value(Kind::Gauge, "ringbolt_keyspace_info", help, &labels, 1.0);
    let help = "1 for the io engine in use.";
    let labels = [("engine", about.io_engine)];
    out.value(Kind::Gauge, "ringbolt_io_engine", help, &labels, 1.0);
    population(out, metrics);
    let help = "1 when acknowledged writes survive loss of power.";
    let safe = flag(about.fsync == Fsync::Safe);
    gauge(out, "ringbolt_writes_are_durable", help, safe);
    let failed = flag(status.failure.is_some());
    gauge(out, "ringbolt_log_failed", "1 once a log write has failed.", failed);
}

/// Who is connected, where that lives, and what clients make the process hold.
fn population(out: &mut Exposition, metrics: &Metrics) {
    let population = metrics.census.borrow().as_ref().map(|census| census()).unwrap_or_default();
    let size = |number: usize| float(u64::try_from(number).unwrap_or(u64::MAX));
    let rows =
        [("home", population.connections_home), ("other shards", population.connections_away)];
    for (place, number) in rows {
        let help = "Connections of the keyspace, by where they live.";
        let labels = [("place", place)];
        out.value(Kind::Gauge, "ringbolt_connections", help, &labels, size(number));
    }
    let help = "The keyspace's part of the memory budget.";
    gauge(out, "ringbolt_memory_budget_bytes", help, size(population.budget_bytes));
    for (owner, name) in OWNERS {
        let help = "What clients make the process hold beside the store, by owner.";
        let held = size(population.held[owner as usize]);
        out.value(Kind::Gauge, "ringbolt_memory_held_bytes", help, &[("owner", name)], held);
    }
}

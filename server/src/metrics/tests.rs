//! The text of a fresh member against the facts of the contract, and what use adds to it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ringbolt_engine::replica::{Mode, Replica, ReplicaConfig};
use ringbolt_engine::watch::Hub;
use ringbolt_io::Io;
use ringbolt_io::sim::{SimConfig, World};
use ringbolt_proto::etcdserverpb::{ResponseOp, TxnResponse, response_op};
use ringbolt_proto::method::METHODS;

use super::rpc::Counted;
use super::*;
use crate::config::{Input, Outcome, load};
use crate::connection::{CallEvent, Service};
use crate::grpc::Code;

/// Name and type of every family a fresh single member of etcd 3.7 shows and that has a meaning
/// here. Families of peers, and those that appear with their first series, are not among them.
const FRESH: &[(&str, &str)] = &[
    ("etcd_cluster_version", "gauge"),
    ("etcd_debugging_mvcc_db_compaction_keys_total", "counter"),
    ("etcd_debugging_mvcc_events_total", "counter"),
    ("etcd_debugging_mvcc_keys_total", "gauge"),
    ("etcd_debugging_mvcc_pending_events_total", "gauge"),
    ("etcd_debugging_mvcc_slow_watcher_total", "gauge"),
    ("etcd_debugging_mvcc_watch_stream_total", "gauge"),
    ("etcd_debugging_mvcc_watcher_total", "gauge"),
    ("etcd_disk_backend_commit_duration_seconds", "histogram"),
    ("etcd_disk_backend_defrag_duration_seconds", "histogram"),
    ("etcd_disk_backend_snapshot_duration_seconds", "histogram"),
    ("etcd_disk_defrag_inflight", "gauge"),
    ("etcd_disk_wal_fsync_duration_seconds", "histogram"),
    ("etcd_disk_wal_write_bytes_total", "gauge"),
    ("etcd_disk_wal_write_duration_seconds", "histogram"),
    ("etcd_mvcc_db_open_read_transactions", "gauge"),
    ("etcd_mvcc_db_total_size_in_bytes", "gauge"),
    ("etcd_mvcc_db_total_size_in_use_in_bytes", "gauge"),
    ("etcd_mvcc_delete_total", "counter"),
    ("etcd_mvcc_hash_duration_seconds", "histogram"),
    ("etcd_mvcc_hash_rev_duration_seconds", "histogram"),
    ("etcd_mvcc_put_total", "counter"),
    ("etcd_mvcc_range_total", "counter"),
    ("etcd_mvcc_txn_total", "counter"),
    ("etcd_network_client_grpc_received_bytes_total", "counter"),
    ("etcd_network_client_grpc_sent_bytes_total", "counter"),
    ("etcd_network_known_peers", "gauge"),
    ("etcd_server_feature_enabled", "gauge"),
    ("etcd_server_go_version", "gauge"),
    ("etcd_server_has_leader", "gauge"),
    ("etcd_server_health_failures", "counter"),
    ("etcd_server_health_success", "counter"),
    ("etcd_server_heartbeat_send_failures_total", "counter"),
    ("etcd_server_id", "gauge"),
    ("etcd_server_is_leader", "gauge"),
    ("etcd_server_is_learner", "gauge"),
    ("etcd_server_leader_changes_seen_total", "counter"),
    ("etcd_server_learner_promote_successes", "counter"),
    ("etcd_server_proposals_applied_total", "gauge"),
    ("etcd_server_proposals_committed_total", "gauge"),
    ("etcd_server_proposals_failed_total", "counter"),
    ("etcd_server_proposals_pending", "gauge"),
    ("etcd_server_quota_backend_bytes", "gauge"),
    ("etcd_server_read_indexes_failed_total", "counter"),
    ("etcd_server_slow_apply_total", "counter"),
    ("etcd_server_slow_read_indexes_total", "counter"),
    ("etcd_server_snapshot_apply_in_progress_total", "gauge"),
    ("etcd_server_version", "gauge"),
    ("etcd_snap_db_fsync_duration_seconds", "histogram"),
    ("etcd_snap_db_save_total_duration_seconds", "histogram"),
    ("etcd_snap_fsync_duration_seconds", "histogram"),
    ("grpc_server_handled_total", "counter"),
    ("grpc_server_msg_received_total", "counter"),
    ("grpc_server_msg_sent_total", "counter"),
    ("grpc_server_started_total", "counter"),
    ("os_fd_limit", "gauge"),
    ("os_fd_used", "gauge"),
    ("process_cpu_seconds_total", "counter"),
    ("process_max_fds", "gauge"),
    ("process_open_fds", "gauge"),
    ("process_resident_memory_bytes", "gauge"),
    ("process_start_time_seconds", "gauge"),
    ("process_virtual_memory_bytes", "gauge"),
];

fn config(arguments: &[&str]) -> Config {
    let arguments: Vec<String> =
        ["etcd"].iter().chain(arguments).map(|word| (*word).to_owned()).collect();
    let read_file = |_: &std::path::Path| Err(String::new());
    let input = Input { arguments: &arguments, environment: &[], read_file: &read_file };
    match load(&input) {
        Outcome::Run(config, _) => *config,
        Outcome::Stop(stop) => panic!("{stop:?}"),
    }
}

/// The text of a fresh member, after `act` on its counters.
fn scrape(arguments: &[&str], act: impl FnOnce(&Rc<Metrics>) + 'static) -> String {
    let config = config(arguments);
    let mut world = World::new(1, SimConfig::default());
    let machine = world.add_machine();
    world.make_dir(machine, "/data".as_ref());
    let text = Rc::new(RefCell::new(String::new()));
    let filled = text.clone();
    world.start(machine, move |io: &Io| {
        let io = io.clone();
        io.clone().spawn("test", async move {
            let settings = ReplicaConfig::new("n1", "/data".into(), Mode::Memory);
            let replica = Replica::open(io.clone(), settings).await.expect("an empty directory");
            let metrics = Metrics::new(&config, config.default_keyspace(), io.engine_name());
            metrics.observe(&replica, Duration::from_millis(100));
            act(&metrics);
            let hub = Hub::new(replica.state().mvcc.revision());
            *filled.borrow_mut() = metrics.render(&replica, &hub);
        });
    });
    world.run_for(Duration::from_secs(5));
    let text = text.borrow().clone();
    assert!(!text.is_empty(), "the scrape came to its end");
    text
}

fn types(text: &str) -> BTreeMap<&str, &str> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    lines.map(|line| line.split_once(' ').expect("a name and a type")).collect()
}

/// Every name of the contract is there with its type, and nothing under etcd's names is made up.
#[test]
fn names_and_types() {
    let text = scrape(&[], |_| {});
    let found = types(&text);
    for (name, kind) in FRESH {
        assert_eq!(found.get(name), Some(kind), "{name}");
    }
    let optional = |name: &str| {
        ["etcd_debugging_", "process_", "promhttp_", "ringbolt_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    };
    for name in found.keys().filter(|name| !optional(name)) {
        assert!(FRESH.iter().any(|(known, _)| known == name), "{name} is not in the contract");
    }
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    assert!(names.is_sorted());
}

/// Labels, values and buckets of a fresh member.
#[test]
fn fresh_values() {
    let text = scrape(&[], |_| {});
    let expected = [
        "etcd_cluster_version{cluster_version=\"3.7\"} 1",
        "etcd_server_version{server_version=\"3.7.3\"} 1",
        "etcd_server_has_leader 1",
        "etcd_server_is_leader 1",
        "etcd_server_is_learner 0",
        "etcd_server_quota_backend_bytes 2.147483648e+09",
        "etcd_server_feature_enabled{name=\"AllAlpha\",stage=\"ALPHA\"} 0",
        "etcd_server_feature_enabled{name=\"FastLeaseKeepAlive\",stage=\"BETA\"} 1",
        "etcd_debugging_mvcc_current_revision 1",
        "etcd_debugging_mvcc_compact_revision -1",
        "etcd_disk_wal_fsync_duration_seconds_bucket{le=\"0.001\"}",
        "etcd_disk_wal_fsync_duration_seconds_bucket{le=\"8.192\"}",
        "etcd_disk_backend_commit_duration_seconds_bucket{le=\"+Inf\"}",
        "promhttp_metric_handler_requests_total{code=\"503\"} 0",
        "ringbolt_keyspace_info{fsync=\"safe\",keyspace=\"default\"} 1",
        "ringbolt_io_engine{engine=\"sim\"} 1",
    ];
    for line in expected {
        assert!(text.lines().any(|found| found.starts_with(line)), "{line}");
    }
    let gates = text.lines().filter(|line| line.starts_with("etcd_server_feature_enabled{"));
    assert_eq!(gates.count(), 11);
    let handled = text.lines().filter(|line| line.starts_with("grpc_server_handled_total{"));
    assert_eq!(handled.count(), 45 * 17);
    let started = "grpc_server_started_total{grpc_method=\"Watch\",\
         grpc_service=\"etcdserverpb.Watch\",grpc_type=\"bidi_stream\"} 0";
    assert!(text.lines().any(|line| line == started));
}

/// What calls and checks leave behind.
#[test]
fn use_is_counted() {
    struct Nothing;
    impl Service for Nothing {
        fn call(self: Rc<Self>, _: crate::connection::Call) {}
    }
    let text = scrape(&["--metrics=extensive"], |metrics| {
        let counted = Counted::new(Rc::new(Nothing), metrics.clone(), Duration::from_secs(1));
        let method = |name: &str| {
            METHODS.iter().find(|method| method.method == name).expect("a method of the table")
        };
        for (name, code) in [("Put", Code::Ok), ("Range", Code::NotFound), ("Lock", Code::Ok)] {
            let method = method(name);
            counted.observe(&CallEvent::Started { method, client_version: Some(b"3.7") });
            counted.observe(&CallEvent::Received { method, bytes: 10 });
            counted.observe(&CallEvent::Sent { method, bytes: 5 });
            let took = Duration::from_millis(3);
            counted.observe(&CallEvent::Ended { method, code, took });
        }
        let watch = METHODS.iter().find(|row| row.service == "etcdserverpb.Watch");
        let method = watch.expect("a method of the table");
        counted.observe(&CallEvent::Started { method, client_version: None });
        metrics.count_check("readyz", "non_learner", true);
        metrics.count_check("readyz", "non_learner", false);
        metrics.count_health(true);
        let put = response_op::Response::ResponsePut(Default::default());
        let put = ResponseOp { response: Some(put) };
        let inner = TxnResponse { responses: vec![put.clone()], ..TxnResponse::default() };
        let inner = response_op::Response::ResponseTxn(inner);
        let txn = TxnResponse {
            responses: vec![put, ResponseOp { response: Some(inner) }],
            ..TxnResponse::default()
        };
        metrics.keys.count_txn(&txn);
    });
    let put = "grpc_method=\"Put\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"";
    let expected = [
        format!("grpc_server_started_total{{{put}}} 1"),
        format!("grpc_server_handled_total{{grpc_code=\"OK\",{put}}} 1"),
        format!("grpc_server_handling_seconds_bucket{{{put},le=\"0.005\"}} 1"),
        "etcd_server_client_requests_total{client_api_version=\"3.7\",type=\"unary\"} 3".into(),
        "etcd_server_client_requests_total{client_api_version=\"unknown\",type=\"stream\"} 1"
            .into(),
        "etcd_network_client_grpc_received_bytes_total 30".into(),
        "etcd_network_client_grpc_sent_bytes_total 15".into(),
        "etcd_server_request_duration_seconds_count{success=\"true\",type=\"Put\"} 1".into(),
        "etcd_server_range_duration_seconds_count{success=\"false\"} 1".into(),
        "etcd_debugging_mvcc_watch_stream_total 1".into(),
        "etcd_server_healthcheck{name=\"non_learner\",type=\"readyz\"} 0".into(),
        "etcd_server_health_success 1".into(),
        "etcd_mvcc_put_total 2".into(),
        "etcd_mvcc_txn_total 1".into(),
    ];
    for line in expected {
        assert!(text.lines().any(|found| found == line), "{line}");
    }
    let lock = text.lines().filter(|line| line.contains("grpc_service=\"v3lockpb.Lock\""));
    assert!(lock.count() > 0);
}

//! One shard: a thread with its driver, the keyspaces homed on it, and their listeners.
//!
//! ```text
//! bind listeners ─► open replicas ─► accept ─► (order: stop) ─► drain ─► close replicas
//! ```
//! Listeners are bound before data is opened: a port in use must not cost a recovery.

use std::cell::Cell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use ringbolt_engine::lease::ttl_min_s;
use ringbolt_engine::replica::{Mode, OpenError, Replica, ReplicaConfig};
use ringbolt_engine::state::Limits;
use ringbolt_engine::wal;
use ringbolt_io::local::receipt;
use ringbolt_io::{Executor, Io, TaskHandle, mailbox, make_driver};

use super::compaction::{self, Schedule};
use super::facts::Facts;
use super::limits::{ARRIVALS_MAX, DRAIN_STEP, DRAIN_TIME_MAX, ORDERS_WAITING_MAX};
use super::listen::{Bound, Connections, accept, bind};
use super::spread::{Arrival, Guests, Place, Placement};
use super::{Order, Report};
use crate::budget::Share;
use crate::config::keyspace::{DEFAULT_NAME, Fsync, Keyspace};
use crate::config::url::Url;
use crate::config::{Config, check};
use crate::connection::relay::Home;
use crate::connection::{Call, Parts, Service, Web, message_bytes_max};
use crate::grpc::{Code, Status};
use crate::http1::{Desk, Front, Port, Settings as WebSettings};
use crate::metrics::rpc::Counted;
use crate::metrics::{Metrics, Population};
use crate::version::CLUSTER_VERSION;
use crate::{http2, log, services};

/// What a shard is told when it is made.
pub struct Plan {
    /// Its number.
    pub shard: usize,
    /// All settings.
    pub config: Config,
    /// Which of the keyspaces are homed here.
    pub keyspaces: Vec<usize>,
    /// The command line, for `/debug/vars`.
    pub command_line: Vec<String>,
    /// Seed of its random numbers.
    pub seed: u64,
}

/// Everything of one keyspace that stops with it.
struct Running {
    name: String,
    replica: Rc<Replica>,
    connections: Rc<Connections>,
    home: Rc<Home>,
    tasks: Vec<TaskHandle>,
}

/// Sockets of one keyspace, by what is served on them.
struct Sockets {
    client: Vec<Bound>,
    http: Vec<Bound>,
    metrics: Vec<Bound>,
    peer: Vec<Bound>,
}

/// The body of the shard's thread.
pub fn run(plan: Plan, reports: Sender<Report>) {
    let engine = match plan.config.io_engine {
        crate::config::IoEngine::Auto => ringbolt_io::Engine::Auto,
        crate::config::IoEngine::Uring => ringbolt_io::Engine::Uring,
        crate::config::IoEngine::Epoll => ringbolt_io::Engine::Epoll,
    };
    let (driver, why) = match make_driver(engine, plan.seed) {
        Ok(made) => made,
        Err(error) => {
            let _nobody_listens_at_the_end = reports.send(Report::Failed(error.to_string()));
            return;
        }
    };
    if plan.shard == 0 {
        let fields = vec![
            ("io-engine", driver.name().into()),
            ("reason", why.into()),
            ("spin", format!("{}us", plan.config.spin.as_micros()).into()),
        ];
        log::info("chose io engine", fields);
    }
    let executor = Executor::new(driver);
    executor.set_spin(plan.config.spin);
    let io = executor.io();
    executor.run(serve(io, plan, reports));
}

/// The root task: from bind to close.
async fn serve(io: Io, plan: Plan, reports: Sender<Report>) {
    let tell = |report: Report| {
        let _nobody_listens_at_the_end = reports.send(report);
    };
    let mut bound = Vec::new();
    for &index in &plan.keyspaces {
        match bind_all(&io, &plan.config, index).await {
            Ok(sockets) => bound.push((index, sockets)),
            Err(error) => return tell(Report::Failed(error)),
        }
    }
    let (orders, mail) = mailbox::mailbox(&io, ORDERS_WAITING_MAX);
    let (arrivals, arriving) = mailbox::mailbox(&io, ARRIVALS_MAX);
    tell(Report::Bound(super::Bound { shard: plan.shard, orders, arrivals }));
    // Receipt: every shard has its sockets, or the start is given up.
    let Some(Order::Open(places)) = mail.receive().await else { return };
    let guests = Rc::new(Guests::default());
    let receiving = guests.clone().receive(io.clone(), plan.config.clone(), arriving);
    let receiving = io.spawn("arrivals", receiving);
    let (running, failure) = open_all(&io, plan, bound, places, &reports).await;
    if let Some(error) = failure {
        close(&io, running, &guests).await;
        return tell(Report::Failed(error));
    }
    tell(Report::Ready);
    // Receipt: the order to stop, or the coordinator is gone.
    let _stop_either_way = mail.receive().await;
    receiving.abort();
    close(&io, running, &guests).await;
}

/// Opens the keyspaces side by side: a long recovery of one does not hold up the others.
async fn open_all(
    io: &Io,
    plan: Plan,
    bound: Vec<(usize, Sockets)>,
    places: Vec<mailbox::Sender<Arrival>>,
    reports: &Sender<Report>,
) -> (Vec<Running>, Option<String>) {
    let (plan, places) = (Rc::new(plan), Rc::new(places));
    let mut opening = Vec::new();
    for (index, sockets) in bound {
        let (promise, receipt) = receipt();
        let (io, reports) = (io.clone(), reports.clone());
        let (plan, places) = (plan.clone(), places.clone());
        io.clone().spawn("open", async move {
            promise.fulfil(open(&io, &plan, index, sockets, (&places, &reports)).await);
        });
        opening.push(receipt);
    }
    let (mut running, mut failure) = (Vec::new(), None);
    for receipt in opening {
        // Receipt: the keyspace is open, or cannot be.
        match receipt.await.expect("an opening task ends with an answer") {
            Ok(one) => running.push(one),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    (running, failure)
}

async fn bind_all(io: &Io, config: &Config, index: usize) -> Result<Sockets, String> {
    let keyspace = &config.keyspaces[index];
    let is_default = keyspace.name == DEFAULT_NAME;
    // Ports that etcd knows once belong to the default keyspace.
    let shared = |urls: &[Url]| if is_default { urls.to_vec() } else { Vec::new() };
    let client_flag = match is_default {
        true => "--listen-client-urls".to_owned(),
        false => format!("--keyspace {},listen-client-urls=", keyspace.name),
    };
    let peer = shared(&config.listen_peer_urls);
    let peer = bind_each(io, config, &peer, "--listen-peer-urls").await;
    let peer = peer.inspect_err(|error| {
        let fields = vec![("error", error.as_str().into())];
        log::error("creating peer listener failed", fields);
    })?;
    let http = shared(&config.listen_client_http_urls);
    let metrics = shared(&config.listen_metrics_urls);
    Ok(Sockets {
        peer,
        client: bind_each(io, config, &keyspace.listen_client_urls, &client_flag).await?,
        http: bind_each(io, config, &http, "--listen-client-http-urls").await?,
        metrics: bind_each(io, config, &metrics, "--listen-metrics-urls").await?,
    })
}

async fn bind_each(
    io: &Io,
    config: &Config,
    urls: &[Url],
    flag: &str,
) -> Result<Vec<Bound>, String> {
    let mut bound = Vec::with_capacity(urls.len());
    for url in urls {
        bound.push(bind(io, url, &config.sockets, flag).await?);
    }
    Ok(bound)
}

fn replica_config(config: &Config, keyspace: &Keyspace) -> ReplicaConfig {
    let mode = match keyspace.fsync {
        Fsync::Safe => Mode::Safe,
        Fsync::NoFsync => Mode::NoFsync,
        Fsync::Memory => Mode::Memory,
    };
    let cluster = &config.cluster;
    let texts = crate::config::url::texts;
    let token = &cluster.initial_cluster_token;
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let ticks = cluster.election_timeout.as_millis() / cluster.heartbeat_interval.as_millis();
    ReplicaConfig {
        peer_urls: texts(&cluster.initial_advertise_peer_urls),
        client_urls: texts(&keyspace.advertise_client_urls),
        // Each keyspace is a cluster of its own.
        cluster_token: match keyspace.name.as_str() {
            DEFAULT_NAME => token.clone(),
            name => format!("{token}/{name}"),
        },
        version: CLUSTER_VERSION.to_owned(),
        heartbeat_interval: cluster.heartbeat_interval,
        election_ticks: usize::try_from(ticks).unwrap_or(usize::MAX),
        flush_interval: config.flush_interval,
        max_request_bytes: size(config.limits.max_request_bytes),
        max_txn_ops: size(config.limits.max_txn_ops),
        quota_bytes: quota(keyspace),
        ..ReplicaConfig::new(&config.name, keyspace.directory.clone(), mode)
    }
}

/// As flags give it: negative for none.
fn quota(keyspace: &Keyspace) -> i64 {
    keyspace.quota_bytes.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// Opens a keyspace and serves it.
async fn open(
    io: &Io,
    plan: &Plan,
    index: usize,
    sockets: Sockets,
    (places, reports): (&[mailbox::Sender<Arrival>], &Sender<Report>),
) -> Result<Running, String> {
    let config = &plan.config;
    let keyspace = &config.keyspaces[index];
    let replica = Replica::open(io.clone(), replica_config(config, keyspace))
        .await
        .map_err(|error| explain(keyspace, &error))?;
    let metrics = Metrics::new(config, keyspace, io.engine_name());
    metrics.observe(&replica, config.warning_apply_duration);
    super::words::opened(config, keyspace, &replica);
    let mut tasks = vec![io.spawn("failure", tell_failure(replica.clone(), reports.clone()))];
    let retention = check::compaction_retention(
        &config.compaction.auto_mode,
        &config.compaction.auto_retention,
    )
    .expect("checked before the shards were made");
    if let Some(schedule) = Schedule::new(&config.compaction.auto_mode, retention, io.now()) {
        let compaction = compaction::run(io.clone(), replica.clone(), schedule);
        tasks.push(io.spawn("auto-compaction", compaction));
    }
    let connections = Rc::new(Connections::default());
    let parts = parts(io, plan, keyspace, &replica, &metrics);
    let away: Vec<Place> = places.iter().map(|place| join(&parts, index, place)).collect();
    let (here, home) = (connections.clone(), parts.home.clone());
    let (share, away_count) = (parts.client.share.clone(), away.len());
    metrics.look_at(Box::new(move || Population {
        connections_home: here.open(),
        connections_away: home.connections_open(),
        budget_bytes: share.bytes() * (away_count + 1),
        held: std::array::from_fn(|owner| share.held()[owner] + home.held()[owner]),
    }));
    super::words::ready(&sockets.client, config);
    for (list, served, away) in [
        (sockets.client, &parts.client, &away[..]),
        (sockets.http, &parts.http, &[]),
        (sockets.metrics, &parts.metrics, &[]),
        (sockets.peer, &parts.peer, &[]),
    ] {
        for bound in list {
            let (here, away) = (connections.clone(), away.to_vec());
            let home_min = config.home_connections;
            let next = Cell::new(0);
            let placement = Placement { keyspace: index, here, home_min, away, next };
            let task = accept(io.clone(), bound, served.clone(), placement);
            tasks.push(io.spawn("listener", task));
        }
    }
    let name = keyspace.name.clone();
    Ok(Running { name, replica, connections, home: parts.home, tasks })
}

/// Opens the way to another shard.
fn join(parts: &PortParts, keyspace: usize, arrivals: &mailbox::Sender<Arrival>) -> Place {
    let (lane, asked) = parts.home.open(parts.desk.clone());
    // A shard that is stopping takes no connections either.
    let _gone = arrivals.try_send(Arrival::Lane { keyspace, asked });
    Place { arrivals: arrivals.clone(), lane }
}

/// What went wrong and what to do next.
fn explain(keyspace: &Keyspace, error: &OpenError) -> String {
    let name = &keyspace.name;
    let next = match error {
        OpenError::Log(wal::OpenError::Io { file, source }) => {
            let place = file.parent().unwrap_or(file).display();
            match source.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                    &format!("; see its space with: df -h {place}, free some and start again")
                }
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    &format!("; see who may write there with: ls -la {place}")
                }
                _ => "",
            }
        }
        OpenError::Log(wal::OpenError::Busy(_)) => {
            "; stop that process, or start with another --data-dir"
        }
        OpenError::Checkpoint(_) => "; restore the directory from a copy",
        _ => "",
    };
    format!("keyspace {name}: {error}{next}")
}

/// What is served on each kind of port.
struct PortParts {
    /// Serves connections of the client port that live on other shards.
    home: Rc<Home>,
    /// And their requests that are not gRPC.
    desk: Option<Rc<Desk>>,
    client: Parts,
    http: Parts,
    metrics: Parts,
    peer: Parts,
}

fn parts(
    io: &Io,
    plan: &Plan,
    keyspace: &Keyspace,
    replica: &Rc<Replica>,
    metrics: &Rc<Metrics>,
) -> PortParts {
    let config = &plan.config;
    let settings = services::Settings {
        limits: Limits {
            max_txn_ops: replica.config().max_txn_ops,
            max_request_bytes: replica.config().max_request_bytes,
        },
        progress_interval: config.watch_progress_notify_interval,
        quota_bytes: quota(keyspace),
        lease_ttl_min_s: ttl_min_s(config.cluster.election_timeout),
    };
    let counts = metrics.keys.clone();
    let share = Share::new(super::share_bytes(config));
    let store =
        services::Keyspace::new(io.clone(), replica.clone(), settings, counts, share.clone());
    let hub = store.hub.clone();
    let dispatcher = services::Dispatcher::new(store);
    let slow = config.warning_unary_request_duration;
    let service = Counted::new(dispatcher, metrics.clone(), slow);
    let web_settings = Rc::new(WebSettings {
        cors: config.cors.clone(),
        host_whitelist: config.host_whitelist.clone(),
        gateway: config.enable_grpc_gateway,
        read_time_max: Duration::from_secs(5) + 2 * config.cluster.election_timeout,
        command_line: plan.command_line.clone(),
    });
    let home = Home::new(io, service.clone(), metrics.rpcs.clone());
    let facts = Facts::new(replica.clone(), hub, metrics.clone(), home.clone());
    let desk = |port: Port| Desk::new(io, port, facts.clone(), web_settings.clone());
    let web = |port: Port| -> Option<Rc<dyn Web>> { Some(Front::new(io, desk(port))) };
    let with_web = config.listen_client_http_urls.is_empty();
    let client = Parts {
        service,
        web: if with_web { web(Port::Client) } else { None },
        http2: http2_limits(config),
        share,
        message_bytes_max: message_bytes_max(replica.config().max_request_bytes),
    };
    let plain = |port: Port| Parts { service: Rc::new(NoGrpc), web: web(port), ..client.clone() };
    PortParts {
        home,
        desk: with_web.then(|| desk(Port::Client)),
        http: plain(Port::Client),
        metrics: plain(Port::Metrics),
        peer: plain(Port::Peer),
        client,
    }
}

/// The limits of HTTP/2 from flags.
pub fn http2_limits(config: &Config) -> http2::Limits {
    http2::Limits {
        concurrent_streams_max: config.limits.max_concurrent_streams,
        keepalive_interval: never_if_zero(config.keepalive.interval),
        keepalive_timeout: never_if_zero(config.keepalive.timeout),
        ping_interval_min: config.keepalive.min_time,
    }
}

fn never_if_zero(time: Duration) -> Duration {
    if time.is_zero() { Duration::from_secs(u64::from(u32::MAX)) } else { time }
}

/// A port without gRPC answers a call as a server that never had the method.
struct NoGrpc;

impl Service for NoGrpc {
    fn call(self: Rc<Self>, call: Call) {
        let text = format!("unknown service {}", call.method.service);
        call.responder.unary(Err(Status::new(Code::Unimplemented, text)));
    }
}

/// W7: a log that failed ends the process.
async fn tell_failure(replica: Rc<Replica>, reports: Sender<Report>) {
    // Receipt: never, unless the log fails.
    let cause = replica.failed().await;
    let _nobody_listens_at_the_end = reports.send(Report::LogFailed(cause));
}

/// Backwards: no more clients, the open calls, the connections, the replicas.
async fn close(io: &Io, running: Vec<Running>, guests: &Guests) {
    for one in &running {
        for task in &one.tasks {
            task.abort();
        }
        one.connections.shut_down();
    }
    guests.shut_down();
    let here = || running.iter().map(|one| one.connections.calls_open()).sum::<usize>();
    let away = || running.iter().any(|one| one.home.calls_open() > 0);
    until_not(io, || here() > 0 || away() || guests.calls_open() > 0).await;
    guests.close();
    // The other shards stop too: their lanes end once they have answered their clients.
    until_not(io, || running.iter().any(|one| one.home.is_joined())).await;
    for one in &running {
        // Durability: what was taken is logged, and the log says that nothing is missing.
        one.replica.close().await;
        one.connections.close();
        log::info("closed keyspace", vec![("keyspace", one.name.as_str().into())]);
    }
    // The last frames leave before the sockets close.
    io.sleep(DRAIN_STEP).await;
}

/// Waits until something is over, for `DRAIN_TIME_MAX` at most.
async fn until_not(io: &Io, busy: impl Fn() -> bool) {
    let until = io.now() + DRAIN_TIME_MAX;
    while busy() && io.now() < until {
        io.sleep(DRAIN_STEP).await;
    }
}

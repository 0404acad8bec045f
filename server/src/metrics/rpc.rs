//! Counters of gRPC calls, and the service that feeds them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ringbolt_proto::method::{METHODS, Method, Mode};

use super::Metrics;
use super::count::{Counter, Histogram};
use super::text::{Exposition, Kind, float};
use crate::config::number::GoDuration;
use crate::connection::{Call, CallEvent, Service};
use crate::grpc::Code;
use crate::log;

/// Codes by name, in order of their numbers.
pub const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];
const UNKNOWN_VERSION: &str = "unknown";
/// Client versions told apart at most; a client may send any text.
const VERSIONS_MAX: usize = 64;
const HANDLING_BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Counters of all methods.
pub struct Rpcs {
    methods: Vec<Rpc>,
    /// By client version: unary calls, streams.
    clients: RefCell<BTreeMap<String, (u64, u64)>>,
    /// Payload bytes from clients.
    received_bytes: Counter,
    /// Payload bytes to clients.
    sent_bytes: Counter,
    /// Internal latency of ranges: failed, succeeded.
    range: [Histogram; 2],
    extensive: bool,
}

struct Rpc {
    started: Counter,
    received: Counter,
    sent: Counter,
    handled: [Counter; 17],
    /// `--metrics=extensive` only.
    handling: Option<Histogram>,
    /// `etcd_server_request_duration_seconds`: failed, succeeded.
    request: Option<[Histogram; 2]>,
}

impl Rpc {
    fn absorb(&self, other: &Rpc) {
        let pairs = [
            (&self.started, &other.started),
            (&self.received, &other.received),
            (&self.sent, &other.sent),
        ];
        for (own, other) in pairs.into_iter().chain(self.handled.iter().zip(&other.handled)) {
            own.add(other.get());
        }
        let handling = self.handling.iter().zip(&other.handling);
        let request = self.request.iter().flatten().zip(other.request.iter().flatten());
        for (own, other) in handling.chain(request) {
            own.absorb(other);
        }
    }
}

impl Rpcs {
    /// Counters at zero.
    #[must_use]
    pub fn new(extensive: bool) -> Rpcs {
        let pair = |first: f64, count: usize| {
            [Histogram::exponential(first, 2.0, count), Histogram::exponential(first, 2.0, count)]
        };
        let rpc = |method: &Method| Rpc {
            started: Counter::default(),
            received: Counter::default(),
            sent: Counter::default(),
            handled: std::array::from_fn(|_| Counter::default()),
            handling: extensive.then(|| Histogram::new(HANDLING_BOUNDS.to_vec())),
            request: request_type(method).map(|_| pair(0.001, 14)),
        };
        Rpcs {
            methods: METHODS.iter().map(rpc).collect(),
            clients: RefCell::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            range: pair(0.0001, 20),
            extensive,
        }
    }

    /// Everything counted here, which begins again at zero.
    #[must_use]
    pub fn take(&self) -> Rpcs {
        let taken = Rpcs::new(self.extensive);
        taken.absorb(self);
        self.reset();
        taken
    }

    /// Adds what was counted elsewhere.
    pub fn absorb(&self, other: &Rpcs) {
        for (own, other) in self.methods.iter().zip(&other.methods) {
            own.absorb(other);
        }
        let mut clients = self.clients.borrow_mut();
        for (version, (unary, streams)) in other.clients.borrow().iter() {
            let room = clients.len() < VERSIONS_MAX || clients.contains_key(version);
            let name = if room { version.as_str() } else { UNKNOWN_VERSION };
            let counts = clients.entry(name.to_owned()).or_default();
            *counts = (counts.0 + unary, counts.1 + streams);
        }
        self.received_bytes.add(other.received_bytes.get());
        self.sent_bytes.add(other.sent_bytes.get());
        for (own, other) in self.range.iter().zip(&other.range) {
            own.absorb(other);
        }
    }

    fn reset(&self) {
        for rpc in &self.methods {
            let counters = [&rpc.started, &rpc.received, &rpc.sent];
            counters.into_iter().chain(&rpc.handled).for_each(Counter::reset);
            let pair = rpc.request.iter().flatten();
            rpc.handling.iter().chain(pair).for_each(Histogram::reset);
        }
        self.clients.borrow_mut().clear();
        self.received_bytes.reset();
        self.sent_bytes.reset();
        self.range.iter().for_each(Histogram::reset);
    }

    /// Counts an event.
    pub fn observe(&self, event: &CallEvent<'_>) {
        match event {
            CallEvent::Started { method, client_version } => {
                self.of(method).started.increment();
                self.count_client(method.mode, *client_version);
            }
            CallEvent::Received { method, bytes } => {
                self.of(method).received.increment();
                self.received_bytes.add(u64::try_from(*bytes).unwrap_or(0));
            }
            CallEvent::Sent { method, bytes } => {
                self.of(method).sent.increment();
                self.sent_bytes.add(u64::try_from(*bytes).unwrap_or(0));
            }
            CallEvent::Ended { method, code, took } => {
                let rpc = self.of(method);
                rpc.handled[usize::from(code.number())].increment();
                let succeeded = usize::from(*code == Code::Ok);
                if let Some(handling) = &rpc.handling {
                    handling.observe_time(*took);
                }
                if let Some(request) = &rpc.request {
                    request[succeeded].observe_time(*took);
                }
                if method.method == "Range" {
                    self.range[succeeded].observe_time(*took);
                }
            }
        }
    }

    fn of(&self, method: &Method) -> &Rpc {
        &self.methods[method.name as usize]
    }

    fn count_client(&self, mode: Mode, version: Option<&[u8]>) {
        let version = version.and_then(|bytes| std::str::from_utf8(bytes).ok());
        let mut clients = self.clients.borrow_mut();
        let version = version.unwrap_or(UNKNOWN_VERSION);
        if !clients.contains_key(version) {
            let room = clients.len() < VERSIONS_MAX;
            let name = if room { version } else { UNKNOWN_VERSION };
            clients.entry(name.to_owned()).or_default();
        }
        let known = if clients.contains_key(version) { version } else { UNKNOWN_VERSION };
        let counts = clients.get_mut(known).expect("the entry was made above");
        match mode {
            Mode::Unary => counts.0 += 1,
            Mode::ServerStream | Mode::Bidi => counts.1 += 1,
        }
    }

    /// Calls of a method that ended well.
    #[must_use]
    pub fn succeeded(&self, service: &str, method: &str) -> u64 {
        self.find(service, method).map_or(0, |rpc| rpc.handled[0].get())
    }

    /// Messages a method sent.
    #[must_use]
    pub fn sent(&self, service: &str, method: &str) -> u64 {
        self.find(service, method).map_or(0, |rpc| rpc.sent.get())
    }

    /// Calls of a method that are open.
    #[must_use]
    pub fn open(&self, service: &str, method: &str) -> u64 {
        self.find(service, method).map_or(0, |rpc| {
            let ended: u64 = rpc.handled.iter().map(Counter::get).sum();
            rpc.started.get().saturating_sub(ended)
        })
    }

    fn find(&self, service: &str, method: &str) -> Option<&Rpc> {
        let index =
            METHODS.iter().position(|row| row.service == service && row.method == method)?;
        self.methods.get(index)
    }

    /// Adds everything that is known of calls.
    pub fn write(&self, out: &mut Exposition) {
        for (method, rpc) in METHODS.iter().zip(&self.methods) {
            // These two services exist in etcd's text only once somebody has called them.
            let late = matches!(method.service, "v3lockpb.Lock" | "v3electionpb.Election");
            if !late || rpc.started.get() > 0 {
                write_rpc(out, method, rpc, late);
            }
            if let Some((kind, request)) = request_type(method).zip(rpc.request.as_ref()) {
                let help = "Time from a request's arrival to its answer, by type.";
                write_pair(out, "etcd_server_request_duration_seconds", help, Some(kind), request);
            }
        }
        let help = "Time from a range's arrival to its answer.";
        write_pair(out, "etcd_server_range_duration_seconds", help, None, &self.range);
        for (version, (unary, stream)) in self.clients.borrow().iter() {
            for (kind, count) in [("stream", *stream), ("unary", *unary)] {
                if count > 0 {
                    let labels = [("client_api_version", version.as_str()), ("type", kind)];
                    let help = "Calls by the API version their client names.";
                    let name = "etcd_server_client_requests_total";
                    out.value(Kind::Counter, name, help, &labels, float(count));
                }
            }
        }
        let received = float(self.received_bytes.get());
        let name = "etcd_network_client_grpc_received_bytes_total";
        out.value(Kind::Counter, name, "Message bytes from gRPC clients.", &[], received);
        let sent = float(self.sent_bytes.get());
        let name = "etcd_network_client_grpc_sent_bytes_total";
        out.value(Kind::Counter, name, "Message bytes to gRPC clients.", &[], sent);
        if self.extensive {
            for (method, rpc) in METHODS.iter().zip(&self.methods) {
                write_handling(out, method, rpc);
            }
        }
    }
}

fn labels(method: &Method) -> [(&'static str, &'static str); 3] {
    let mode = match method.mode {
        Mode::Unary => "unary",
        Mode::ServerStream => "server_stream",
        Mode::Bidi => "bidi_stream",
    };
    [("grpc_method", method.method), ("grpc_service", method.service), ("grpc_type", mode)]
}

fn write_rpc(out: &mut Exposition, method: &Method, rpc: &Rpc, late: bool) {
    let labels = labels(method);
    let rows = [
        ("grpc_server_started_total", "Calls that began.", &rpc.started),
        ("grpc_server_msg_received_total", "Messages from clients.", &rpc.received),
        ("grpc_server_msg_sent_total", "Messages to clients.", &rpc.sent),
    ];
    for (name, help, counter) in rows {
        out.value(Kind::Counter, name, help, &labels, float(counter.get()));
    }
    for (code, counter) in CODES.iter().zip(&rpc.handled) {
        if late && counter.get() == 0 {
            continue;
        }
        let [method, service, mode] = labels;
        let labels = [("grpc_code", *code), method, service, mode];
        let name = "grpc_server_handled_total";
        let help = "Calls that ended, by code.";
        out.value(Kind::Counter, name, help, &labels, float(counter.get()));
    }
}

fn write_handling(out: &mut Exposition, method: &Method, rpc: &Rpc) {
    let Some(handling) = &rpc.handling else { return };
    let (bounds, counts, sum) = handling.snapshot();
    if counts.iter().any(|count| *count > 0) {
        let help = "Time from a call's arrival to its end.";
        let name = "grpc_server_handling_seconds";
        out.histogram(name, help, &labels(method), (bounds, &counts, sum));
    }
}

/// A histogram for failures and one for successes, each from its first observation on.
fn write_pair(
    out: &mut Exposition,
    name: &'static str,
    help: &'static str,
    kind: Option<&'static str>,
    pair: &[Histogram; 2],
) {
    for (succeeded, histogram) in ["false", "true"].into_iter().zip(pair) {
        let (bounds, counts, sum) = histogram.snapshot();
        if counts.iter().all(|count| *count == 0) {
            continue;
        }
        let mut labels = vec![("success", succeeded)];
        labels.extend(kind.map(|kind| ("type", kind)));
        out.histogram(name, help, &labels, (bounds, &counts, sum));
    }
}

/// etcd's name for the requests of a method.
fn request_type(method: &Method) -> Option<&'static str> {
    Some(match method.method {
        "Range" => "Range",
        "Put" => "Put",
        "DeleteRange" => "DeleteRange",
        "Txn" => "Txn",
        "Compact" => "Compaction",
        "LeaseGrant" => "LeaseGrant",
        "LeaseRevoke" => "LeaseRevoke",
        "Alarm" => "Alarm",
        _ => return None,
    })
}

/// Counts the calls of a service, and logs the slow ones.
pub struct Counted {
    inner: Rc<dyn Service>,
    metrics: Rc<Metrics>,
    slow: Duration,
}

impl Counted {
    /// Counts what passes through `inner`. A unary call that takes longer than `slow` is logged.
    #[must_use]
    pub fn new(inner: Rc<dyn Service>, metrics: Rc<Metrics>, slow: Duration) -> Rc<Counted> {
        Rc::new(Counted { inner, metrics, slow })
    }
}

impl Service for Counted {
    fn call(self: Rc<Self>, call: Call) {
        self.inner.clone().call(call);
    }

    fn observe(&self, event: &CallEvent<'_>) {
        self.metrics.rpcs.observe(event);
        warn_if_slow(event, self.slow);
    }
}

/// Logs a unary call that took longer than `slow`.
pub fn warn_if_slow(event: &CallEvent<'_>, slow: Duration) {
    if let CallEvent::Ended { method, code, took } = event {
        if method.mode == Mode::Unary && *took > slow {
            let fields = vec![
                ("time spent", GoDuration::of(*took).to_string().into()),
                ("response type", method.path.into()),
                ("code", code.name().into()),
            ];
            log::warn("request stats", fields);
        }
    }
}

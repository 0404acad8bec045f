//! The request and response table of the contract, over a simulated socket: what is sent, what
//! comes back.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use bytes::Bytes;
use ringbolt_io::Io;
use ringbolt_io::net::ListenHow;
use ringbolt_io::sim::{SimConfig, World};

use super::probe::{Alarm, Gathering, Member, RaftFacts, Reading, Versions};
use super::*;

/// A keyspace in the state a test wants.
#[derive(Default)]
struct Fake {
    alarms: Vec<Alarm>,
    headless: bool,
    learner: bool,
    failing: bool,
    silent: bool,
    counted: RefCell<Vec<String>>,
    scrapes: Cell<u32>,
}

impl Probe for Fake {
    fn alarms(&self) -> Vec<Alarm> {
        self.alarms.clone()
    }
    fn has_leader(&self) -> bool {
        !self.headless
    }
    fn is_learner(&self) -> bool {
        self.learner
    }
    fn read_serializable(&self) -> Result<(), String> {
        if self.failing { Err("etcdserver: \"x\"".to_owned()) } else { Ok(()) }
    }
    fn read_linearizable(&self) -> Reading {
        if self.silent {
            return Box::pin(std::future::pending());
        }
        let outcome = self.read_serializable();
        Box::pin(std::future::ready(outcome))
    }
    fn versions(&self) -> Versions {
        let cluster = (!self.headless).then(|| "3.7.0".to_owned());
        Versions { server: "3.7.3".to_owned(), cluster, storage: "3.7.0".to_owned() }
    }
    fn gather(&self) -> Gathering {
        Box::pin(std::future::ready(()))
    }
    fn metrics(&self) -> String {
        self.scrapes.set(self.scrapes.get() + 1);
        "a_metric 1\n".repeat(10)
    }
    fn raft(&self) -> RaftFacts {
        RaftFacts { id: 0x10, term: 2, vote: 0x10, commit: 4, leader: 0x10, applied: 4 }
    }
    fn cluster_id(&self) -> u64 {
        0x0abc
    }
    fn members(&self) -> Vec<Member> {
        let one = |text: &str| vec![text.to_owned()];
        vec![Member {
            id: 16,
            name: "n1".to_owned(),
            peer_urls: one("http://127.0.0.1:1"),
            client_urls: one("http://127.0.0.1:2"),
            is_learner: false,
        }]
    }
    fn count_health(&self, healthy: bool) {
        self.counted.borrow_mut().push(format!("health {healthy}"));
    }
    fn count_check(&self, kind: &'static str, name: &'static str, passed: bool) {
        self.counted.borrow_mut().push(format!("{kind} {name} {passed}"));
    }
}

fn settings() -> Settings {
    Settings {
        cors: vec!["*".to_owned()],
        host_whitelist: vec!["*".to_owned()],
        gateway: true,
        read_time_max: Duration::from_secs(7),
        command_line: vec!["etcd".to_owned()],
    }
}

/// Sends `bytes` to a server and returns all it answers until it closes or falls silent.
fn exchange(port: Port, fake: Fake, settings: Settings, bytes: &str) -> String {
    let mut world = World::new(1, SimConfig::default());
    let (server, client) = (world.add_machine(), world.add_machine());
    let address = world.address(server, 2379);
    let here = address.clone();
    world.start(server, move |io: &Io| {
        let front = Front::new(io, Desk::new(io, port, Rc::new(fake), Rc::new(settings)));
        let listener = io.listen(&here, &ListenHow::default()).expect("the port is free");
        io.spawn("server", async move {
            let (stream, _) = listener.accept().await.expect("a client comes");
            front.serve(&stream, Vec::new()).await;
            stream.shutdown();
        });
    });
    let answer = Rc::new(RefCell::new(Vec::new()));
    let taken = answer.clone();
    let bytes = Bytes::copy_from_slice(bytes.as_bytes());
    world.start(client, move |io: &Io| {
        let io = io.clone();
        io.clone().spawn("client", async move {
            let stream = io.connect(&address).await.expect("the server listens");
            stream.write(vec![bytes]).await.expect("the server reads");
            loop {
                let (outcome, buffer) = stream.read(Vec::new()).await;
                taken.borrow_mut().extend_from_slice(&buffer);
                if !matches!(outcome, Ok(size) if size > 0) {
                    return;
                }
            }
        });
    });
    world.run_for(Duration::from_secs(20));
    let answer = answer.borrow().clone();
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(port: Port, fake: Fake, path: &str) -> String {
    ask(port, fake, "GET", path)
}

fn ask(port: Port, fake: Fake, method: &str, path: &str) -> String {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: h:1\r\nConnection: close\r\n\r\n");
    exchange(port, fake, settings(), &request)
}

/// Status and body.
fn short(answer: &str) -> (u16, &str) {
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    (status, body)
}

/// Which port has which paths.
#[test]
fn ports() {
    let rows = [
        ("/health", [200, 200, 404]),
        ("/livez", [200, 200, 404]),
        ("/livez/serializable_read", [200, 200, 404]),
        ("/livez/linearizable_read", [404, 404, 404]),
        ("/livezz", [404, 404, 404]),
        ("/readyz/non_learner", [200, 200, 404]),
        ("/metrics", [200, 200, 404]),
        ("/version", [200, 404, 200]),
        ("/debug/vars", [200, 404, 404]),
        ("/debug/pprof/", [404, 404, 404]),
        ("/v3/kv/range", [501, 404, 404]),
        ("/v3beta/kv/range", [501, 404, 404]),
        ("/v3/nope", [404, 404, 404]),
        ("/members", [404, 404, 200]),
        ("/raft/probing", [404, 404, 200]),
        ("/", [404, 404, 404]),
        ("/health/", [404, 404, 404]),
        ("/v2/keys", [404, 404, 404]),
    ];
    for (path, expected) in rows {
        for (port, status) in [Port::Client, Port::Metrics, Port::Peer].into_iter().zip(expected) {
            let answer = get(port, Fake::default(), path);
            assert_eq!(short(&answer).0, status, "{port:?} {path}");
            let has_cors = answer.contains("Access-Control-Allow-Origin: *\r\n");
            assert_eq!(has_cors, port == Port::Client, "{path}");
        }
    }
}

/// `/health` in every state.
#[test]
fn health_table() {
    let no_space = || Fake { alarms: vec![Alarm::NoSpace], ..Fake::default() };
    let ok = (200, "{\"health\":\"true\",\"reason\":\"\"}");
    let sick = |reason: &str| (503, format!("{{\"health\":\"false\",\"reason\":\"{reason}\"}}\n"));
    let healthy = |fake: Fake, path: &str| {
        let answer = get(Port::Metrics, fake, path);
        assert_eq!(short(&answer), ok);
        assert!(!answer.contains("nosniff"));
    };
    let ill = |fake: Fake, path: &str, reason: &str| {
        let answer = get(Port::Metrics, fake, path);
        let (status, body) = short(&answer);
        assert_eq!((status, body.to_owned()), sick(reason));
        assert!(answer.contains("X-Content-Type-Options: nosniff"));
    };
    healthy(Fake::default(), "/health");
    healthy(Fake { learner: true, ..Fake::default() }, "/health");
    ill(no_space(), "/health", "ALARM NOSPACE");
    healthy(no_space(), "/health?exclude=NOSPACE&exclude=nothing");
    let both = Fake { alarms: vec![Alarm::NoSpace, Alarm::Corrupt], ..Fake::default() };
    ill(both, "/health?exclude=NOSPACE", "ALARM CORRUPT");
    let headless = || Fake { headless: true, ..Fake::default() };
    ill(headless(), "/health", "RAFT NO LEADER");
    ill(headless(), "/health?serializable=1", "RAFT NO LEADER");
    healthy(headless(), "/health?serializable=true");
    let failing = Fake { failing: true, ..Fake::default() };
    ill(failing, "/health", "RANGE ERROR:etcdserver: \\\"x\\\"");
    let silent = Fake { silent: true, ..Fake::default() };
    ill(silent, "/health", "RANGE ERROR:etcdserver: request timed out");
}

/// `/livez` and `/readyz` in every state.
#[test]
fn check_table() {
    let answer = get(Port::Client, Fake::default(), "/readyz?verbose");
    let all = "[+]data_corruption ok\n[+]serializable_read ok\n\
         [+]linearizable_read ok\n[+]non_learner ok\nok\n";
    assert_eq!(short(&answer), (200, all));
    assert!(answer.contains("X-Content-Type-Options: nosniff"));
    assert_eq!(short(&get(Port::Client, Fake::default(), "/readyz")), (200, "ok\n"));
    let corrupt = || Fake { alarms: vec![Alarm::Corrupt], ..Fake::default() };
    let failed = "[-]data_corruption failed: alarm activated: CORRUPT\n\n";
    let answer = get(Port::Client, corrupt(), "/readyz/data_corruption");
    assert_eq!(short(&answer), (503, failed));
    assert_eq!(short(&get(Port::Client, corrupt(), "/livez")), (200, "ok\n"));
    let answer = get(Port::Client, corrupt(), "/readyz?exclude=data_corruption");
    assert_eq!(short(&answer), (200, "ok\n"));
    let learner = Fake { learner: true, ..Fake::default() };
    let answer = get(Port::Client, learner, "/readyz/non_learner");
    assert_eq!(short(&answer), (503, "[-]non_learner failed: not supported for learner\n\n"));
    let silent = Fake { silent: true, ..Fake::default() };
    let answer = get(Port::Client, silent, "/readyz/linearizable_read?allowlist=x");
    let failed = "[-]linearizable_read failed: etcdserver: request timed out\n\n";
    assert_eq!(short(&answer), (503, failed));
    let no_space = Fake { alarms: vec![Alarm::NoSpace], ..Fake::default() };
    assert_eq!(short(&get(Port::Client, no_space, "/readyz")), (200, "ok\n"));
}

/// Methods: 405 with Allow, HEAD without a body, OPTIONS on the client port only.
#[test]
fn methods() {
    for path in ["/health", "/livez", "/version", "/debug/vars"] {
        let answer = ask(Port::Client, Fake::default(), "POST", path);
        assert_eq!(short(&answer), (405, "Method Not Allowed\n"), "{path}");
        assert!(answer.contains("Allow: GET\r\n"));
        let answer = ask(Port::Client, Fake::default(), "HEAD", path);
        assert_eq!(short(&answer), (405, ""));
        assert!(answer.contains("Content-Length: 19\r\n"));
    }
    let answer = ask(Port::Client, Fake::default(), "OPTIONS", "/health");
    assert_eq!(short(&answer), (200, ""));
    assert_eq!(short(&ask(Port::Client, Fake::default(), "PUT", "/metrics")).0, 200);
    let gone = ask(Port::Client, Fake::default(), "POST", "/v3/kv/put");
    assert_eq!(short(&gone).0, 501);
    let answer = get(Port::Client, Fake::default(), "/v3/kv/put");
    assert_eq!(short(&answer).1, "{\"code\":12, \"message\":\"Method Not Allowed\"}");
}

/// Bodies of the small paths.
#[test]
fn bodies() {
    let version = "{\"etcdserver\":\"3.7.3\",\"etcdcluster\":\"3.7.0\",\"storage\":\"3.7.0\"}";
    assert_eq!(short(&get(Port::Client, Fake::default(), "/version")).1, version);
    let early = Fake { headless: true, ..Fake::default() };
    let version =
        "{\"etcdserver\":\"3.7.3\",\"etcdcluster\":\"not_decided\",\"storage\":\"3.5.0\"}";
    assert_eq!(short(&get(Port::Peer, early, "/version")).1, version);
    let answer = get(Port::Peer, Fake::default(), "/members");
    let members = "[{\"id\":16,\"peerURLs\":[\"http://127.0.0.1:1\"],\"name\":\"n1\",\
         \"clientURLs\":[\"http://127.0.0.1:2\"]}]\n";
    assert_eq!(short(&answer).1, members);
    assert!(answer.contains("X-Etcd-Cluster-Id: abc\r\n"));
    let answer = get(Port::Client, Fake::default(), "/debug/vars");
    assert!(answer.contains("{\n\"cmdline\": [\"etcd\"],\n\"file_descriptor_limit\": "));
    assert!(answer.contains("\"raftState\":\"StateLeader\""));
}

/// Metrics come in chunks, compressed where the client takes it.
#[test]
fn metrics_encoding() {
    let answer = get(Port::Metrics, Fake::default(), "/metrics");
    assert!(answer.contains("Transfer-Encoding: chunked\r\n"));
    assert!(answer.contains(&format!("Content-Type: {}\r\n", routes::METRICS_TYPE)));
    assert!(answer.ends_with("\r\n0\r\n\r\n"));
    let fields = "Host: h\r\nConnection: close\r\nAccept-Encoding: br, gzip;q=0.5\r\n";
    let request = format!("GET /metrics HTTP/1.1\r\n{fields}\r\n");
    let answer = exchange(Port::Metrics, Fake::default(), settings(), &request);
    assert!(answer.contains("Content-Encoding: gzip\r\n"));
    assert!(!answer.contains("a_metric"));
}

/// Hosts and origins that were listed, and others.
#[test]
fn hosts_and_origins() {
    let strict = || Settings {
        cors: vec!["http://a.b:80".to_owned()],
        host_whitelist: vec!["good".to_owned()],
        ..settings()
    };
    let call = |host: &str, origin: &str| {
        let fields = format!("Host: {host}\r\nOrigin: {origin}\r\nConnection: close\r\n");
        let request = format!("GET /health HTTP/1.1\r\n{fields}\r\n");
        exchange(Port::Client, Fake::default(), strict(), &request)
    };
    let answer = call("good:2379", "http://a.b:80");
    assert_eq!(short(&answer).0, 200);
    assert!(answer.contains("Access-Control-Allow-Origin: http://a.b:80\r\n"));
    let answer = call("good", "http://x");
    assert!(short(&answer).0 == 200 && !answer.contains("Access-Control"));
    let answer = call("127.0.0.1:1", "http://a.b:80");
    assert!(short(&answer).0 == 421 && !answer.contains("Access-Control"));
}

/// A path has one proper spelling; escapes are undone before it is looked up.
#[test]
fn spellings() {
    let get = |path: &str| get(Port::Client, Fake::default(), path);
    assert_eq!(short(&get("/%68ealth")).0, 200);
    for path in ["//health?a=b", "/./health?a=b", "/x/../health?a=b"] {
        let answer = get(path);
        assert!(answer.contains("\r\nLocation: /health?a=b\r\n"), "{path}: {answer}");
        let page = "<a href=\"/health?a=b\">Temporary Redirect</a>.\n\n";
        assert_eq!(short(&answer), (307, page), "{path}");
    }
    assert!(get("//a%20b").contains("\r\nLocation: /a%2520b\r\n"));
    assert_eq!(short(&get("/x/%2e%2e/health")).0, 404);
    let posted = ask(Port::Client, Fake::default(), "POST", "//health");
    assert!(short(&posted) == (307, "") && !posted.contains("Content-Type"));
    let about_the_server = ask(Port::Client, Fake::default(), "OPTIONS", "*");
    assert!(short(&about_the_server) == (200, "") && !about_the_server.contains("Access-Control"));
}

/// Requests sent ahead are answered in order on one connection; nonsense ends it.
#[test]
fn one_connection() {
    let one = "GET /version HTTP/1.1\r\nHost: h\r\n\r\n";
    let last = "GET /nope HTTP/1.0\r\n\r\n";
    let bytes = format!("{one}{one}{last}{one}");
    let answer = exchange(Port::Client, Fake::default(), settings(), &bytes);
    let statuses: Vec<&str> =
        answer.match_indices("HTTP/1.").map(|(at, _)| &answer[at..at + 12]).collect();
    assert_eq!(statuses, ["HTTP/1.1 200", "HTTP/1.1 200", "HTTP/1.0 404"]);
    let answer = exchange(Port::Client, Fake::default(), settings(), "FOO\r\n\r\n");
    let refusal = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Connection: close\r\n\r\n400 Bad Request";
    assert_eq!(answer, refusal);
    let waits = "POST /nope HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\
         Expect: 100-continue\r\n\r\n";
    let answer = exchange(Port::Client, Fake::default(), settings(), waits);
    assert_eq!(answer, "HTTP/1.1 100 Continue\r\n\r\n");
}

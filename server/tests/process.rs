//! The program as a process: what it prints, what it answers, and how it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A directory of its own, gone with the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("ringbolt-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _stays_behind = std::fs::remove_dir_all(&self.0);
    }
}

fn program(place: &Path, called: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringbolt"));
    command.arg0(called).current_dir(place).env_clear();
    command
}

fn run(place: &Place, called: &str, arguments: &[&str]) -> Output {
    program(&place.0, called).args(arguments).output().expect("the program starts")
}

/// The lines of a log, as JSON.
fn lines(text: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(text);
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

/// A running server in memory mode on Unix sockets, and its log.
struct Server {
    child: Child,
    log: BufReader<ChildStderr>,
    seen: Vec<String>,
}

impl Server {
    fn start(place: &Place) -> Server {
        Server::start_with(place, &[])
    }

    fn start_with(place: &Place, flags: &[&str]) -> Server {
        Server::start_command(program(&place.0, "etcd"), flags)
    }

    fn start_command(mut command: Command, flags: &[&str]) -> Server {
        let mut child = command
            .args(["--name=m1", "--data-dir=data", "--fsync=memory"])
            .args(["--listen-client-urls=unix://c.sock", "--listen-peer-urls=unix://p.sock"])
            .args(["--advertise-client-urls=unix://c.sock"])
            .arg(format!("--listen-metrics-urls=unix://@ringbolt-test-{}", std::process::id()))
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let log = BufReader::new(child.stderr.take().expect("a pipe"));
        Server { child, log, seen: Vec::new() }
    }

    /// Reads the log until a message.
    fn until(&mut self, message: &str) {
        loop {
            let mut line = String::new();
            let size = self.log.read_line(&mut line).expect("the log can be read");
            assert!(size > 0, "the log ended before {message:?}: {:#?}", self.seen);
            let line: Value = serde_json::from_str(&line).expect("a line is JSON");
            let found = line["msg"].as_str().expect("a message").to_owned();
            self.seen.push(found.clone());
            if found == message {
                return;
            }
        }
    }
}

fn get(place: &Place, path: &str) -> String {
    let mut stream = UnixStream::connect(place.0.join("c.sock")).expect("the server listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers");
    answer
}

/// Ready means ready; the stop is clean, removes the sockets, and is a death by the same signal.
#[test]
fn life_of_a_server() {
    let place = Place::new("life");
    for (signal, word) in [(Signal::TERM, "terminated"), (Signal::INT, "interrupt")] {
        let mut server = Server::start(&place);
        server.until("ready to serve client requests");
        assert!(get(&place, "/health").ends_with("{\"health\":\"true\",\"reason\":\"\"}"));
        assert!(get(&place, "/metrics").contains("\netcd_server_has_leader 1\n"));
        server.until("successfully notified init daemon");
        let id = Pid::from_child(&server.child);
        kill_process(id, signal).expect("it is our child");
        server.until("received signal; shutting down");
        server.until("closing etcd server");
        server.until("closed etcd server");
        let status = server.child.wait().expect("it ends");
        assert_eq!(status.signal(), Some(signal.as_raw()), "{word}");
        assert!(!place.0.join("c.sock").exists() && !place.0.join("p.sock").exists());
        let order = [
            "Running: ",
            "configuring client listeners",
            "starting an etcd server",
            "starting local member",
            "starting etcd server",
            "now serving peer/client/metrics",
            "ready to serve client requests",
            "notifying init daemon",
        ];
        let mut seen = server.seen.iter();
        for message in order {
            assert!(seen.any(|line| line == message), "{message:?} in {:#?}", server.seen);
        }
    }
}

/// systemd hears of the begin and of the end, at a path and at an abstract address alike.
#[test]
fn notify_sockets() {
    let place = Place::new("notify");
    let path = place.0.join("notify");
    let hidden = format!("ringbolt-notify-{}", std::process::id());
    let addresses = [
        (SocketAddr::from_pathname(&path), path.display().to_string()),
        (SocketAddr::from_abstract_name(&hidden), format!("@{hidden}")),
    ];
    for (address, name) in addresses {
        let address = address.expect("a short name");
        let manager = UnixDatagram::bind_addr(&address).expect("the name is free");
        let mut command = program(&place.0, "etcd");
        command.env("NOTIFY_SOCKET", &name);
        let mut server = Server::start_command(command, &[]);
        server.until("successfully notified init daemon");
        let mut heard = [0u8; 64];
        let size = manager.recv(&mut heard).expect("a datagram");
        assert_eq!(&heard[..size], b"READY=1\n", "{name}");
        kill_process(Pid::from_child(&server.child), Signal::TERM).expect("it is our child");
        server.until("closed etcd server");
        let size = manager.recv(&mut heard).expect("a datagram");
        assert_eq!(&heard[..size], b"STOPPING=1\n", "{name}");
        server.child.wait().expect("it ends");
    }
}

/// Connections beyond the first of a keyspace live on other shards; they are answered from its
/// home, also all at once, and a stop ends them.
#[test]
fn connections_on_every_shard() {
    let place = Place::new("shards");
    for engine in ["uring", "epoll"] {
        let engine = format!("--io-engine={engine}");
        let flags = ["--shards=3", "--home-connections=1", &engine];
        let mut server = Server::start_with(&place, &flags);
        server.until("ready to serve client requests");
        let socket = place.0.join("c.sock");
        let mut clients: Vec<UnixStream> =
            (0..9).map(|_| UnixStream::connect(&socket).expect("the server listens")).collect();
        for _ in 0..3 {
            for client in &mut clients {
                client.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
            }
            for client in &mut clients {
                let mut answer = [0; 1024];
                let size = client.read(&mut answer).expect("the server answers");
                let answer = String::from_utf8_lossy(&answer[..size]);
                assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            }
        }
        let metrics = get(&place, "/metrics");
        assert!(metrics.contains("\netcd_server_health_success 27\n"), "{metrics}");
        let here = "\nringbolt_connections{place=\"home\"} ";
        let there = "\nringbolt_connections{place=\"other shards\"} ";
        let count = |line: &str| {
            let rest = metrics.split(line).nth(1).expect("the gauge is there");
            rest.lines().next().expect("a number").parse::<u32>().expect("a number")
        };
        // The tenth is the scrape itself.
        assert_eq!(count(here) + count(there), 10, "{metrics}");
        assert!(count(there) >= 6, "{metrics}");
        kill_process(Pid::from_child(&server.child), Signal::TERM).expect("it is our child");
        server.until("closed etcd server");
        let status = server.child.wait().expect("it ends");
        assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
        for mut client in clients {
            assert_eq!(client.read(&mut [0; 16]).expect("a clean end"), 0);
        }
    }
}

/// Exit codes and where the words go.
#[test]
fn ends_before_it_begins() {
    let place = Place::new("ends");
    let output = run(&place, "etcd", &["--version"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout.starts_with(b"etcd Version: 3.7.3\n"));

    for (flag, hint) in [("nope", "all flags are listed by: "), ("nane", "did you mean --name?")] {
        let output = run(&place, "etcd", &[&format!("--{flag}")]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
        let lines = format!("flag provided but not defined: -{flag}\n{hint}");
        assert!(output.stderr.starts_with(lines.as_bytes()), "{output:?}");
    }

    let output = run(&place, "ringbolt", &["version"]);
    assert_eq!(output.status.code(), Some(1));
    let log = lines(&output.stderr);
    assert_eq!(log[0]["msg"], "Running: ");
    assert_eq!(log[0]["args"][1], "version");
    assert_eq!(log[1]["msg"], "failed to verify flags");
    assert_eq!(log[1]["error"], "\"version\" is not a valid flag");
}

/// A directory that is etcd's or no directory at all: refused before anything is bound.
#[test]
fn directories_that_are_not_ours() {
    let place = Place::new("directories");
    std::fs::create_dir_all(place.0.join("old/member")).expect("a temporary directory");
    let output = run(&place, "etcd", &["--data-dir=old"]);
    assert_eq!(output.status.code(), Some(1));
    let log = lines(&output.stderr);
    let last = log.last().expect("a line");
    assert_eq!((&last["level"], &last["msg"]), (&"fatal".into(), &"discovery failed".into()));
    assert!(last["error"].as_str().expect("a text").contains("old belongs to etcd"));
    assert!(last["stacktrace"].is_string());

    std::fs::write(place.0.join("file"), "").expect("a temporary file");
    let output = run(&place, "etcd", &["--data-dir=file"]);
    assert_eq!(output.status.code(), Some(1));
    let log = lines(&output.stderr);
    let last = log.last().expect("a line");
    assert_eq!(last["msg"], "failed to list data directory");
    assert_eq!(last["dir"], "file");
}

/// The text of the last line of a start that failed.
fn fatal(place: &Place, flags: &[&str]) -> String {
    let output = run(place, "etcd", flags);
    assert_eq!(output.status.code(), Some(1), "{flags:?}");
    let log = lines(&output.stderr);
    let last = log.last().expect("a line");
    assert_eq!(last["level"], "fatal", "{last}");
    last["error"].as_str().expect("a text").to_owned()
}

/// "address already in use" was all that was said of a port or a socket that somebody holds: now
/// who holds it and which flag chooses another stand behind it.
#[test]
fn an_address_in_use_says_who_to_ask_and_which_flag() {
    let place = Place::new("held");
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = held.local_addr().expect("it is bound").port();
    let url = format!("http://127.0.0.1:{port}");
    let beside = ["--fsync=memory", "--listen-peer-urls=unix://p.sock"];
    let own = "--listen-client-urls=unix://own.sock";
    let advertised = "--advertise-client-urls=unix://own.sock";
    let ask = format!("see who holds it with: ss -ltnp 'sport = :{port}'; or choose another");
    let refused = format!("listen tcp 127.0.0.1:{port}: bind: address already in use; {ask}");
    for (flag, more) in [("--listen-client-urls", advertised), ("--listen-metrics-urls", own)] {
        let asked = format!("{flag}={url}");
        let flags = [&beside[..], &[&asked, more, advertised]].concat();
        assert_eq!(fatal(&place, &flags), format!("{refused} address with {flag}"));
    }
    let keyspace = format!("--keyspace=two,listen-client-urls={url}");
    let flags = [&beside[..], &[own, advertised, &keyspace]].concat();
    let flag = "--keyspace two,listen-client-urls=";
    assert_eq!(fatal(&place, &flags), format!("{refused} address with {flag}"));

    let path = place.0.join("held.sock");
    let path = path.to_str().expect("a temporary path");
    let _socket = std::os::unix::net::UnixListener::bind(path).expect("a free path");
    let asked = format!("--listen-client-urls=unix://{path}");
    let error = fatal(&place, &[&beside[..], &[&asked, advertised]].concat());
    assert!(error.contains(&format!("with: ss -lxp src {path} (")), "{error}");
    assert!(error.ends_with("or choose another address with --listen-client-urls"), "{error}");
}

//! The results table of the contract, as rows: what the user says, what comes back.

use super::keyspace::Fsync;
use super::*;

fn world(
    line: &[&str],
    environment: &[(&str, &str)],
    file: Result<&'static str, &'static str>,
) -> Outcome {
    let arguments: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
    let environment: Vec<(String, String)> =
        environment.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
    let read_file = move |_: &Path| file.map(str::to_owned).map_err(str::to_owned);
    load(&Input { arguments: &arguments, environment: &environment, read_file: &read_file })
}

fn call(line: &[&str]) -> Outcome {
    world(line, &[], Err("no such file or directory"))
}

fn stop(outcome: Outcome) -> Stop {
    match outcome {
        Outcome::Stop(stop) => stop,
        Outcome::Run(config, _) => panic!("it would run: {config:?}"),
    }
}

fn run(outcome: Outcome) -> (Config, Vec<Notice>) {
    match outcome {
        Outcome::Run(config, notices) => (*config, notices),
        Outcome::Stop(stop) => panic!("it stopped: {stop:?}"),
    }
}

fn file(text: &'static str) -> Outcome {
    world(&["etcd", "--config-file", "f"], &[], Ok(text))
}

/// The error of a "failed to verify flags" line.
fn verify_error(outcome: Outcome) -> String {
    let stop = stop(outcome);
    assert_eq!((stop.code, stop.stderr.as_str()), (1, ""), "{stop:?}");
    let line = stop.notices.iter().find(|notice| notice.message == "failed to verify flags");
    let (_, error) = &line.expect("the line is there").fields[0];
    error.as_str().expect("a text").to_owned()
}

/// One plain line and the usage, exit 2, under either name.
#[test]
fn parse_errors() {
    let rows: &[(&[&str], &str)] = &[
        (&["--name"], "flag needs an argument: -name"),
        (
            &["-grpc-keepalive-min-time", "5x"],
            "invalid value \"5x\" for flag -grpc-keepalive-min-time: parse error",
        ),
        (
            &["--heartbeat-interval=abc"],
            "invalid value \"abc\" for flag -heartbeat-interval: parse error",
        ),
        (&["--pre-vote=maybe"], "invalid boolean value \"maybe\" for -pre-vote: parse error"),
        (&["--pre-vote="], "invalid boolean value \"\" for -pre-vote: parse error"),
        (
            &["--max-concurrent-streams", "-1"],
            "invalid value \"-1\" for flag -max-concurrent-streams: \
             strconv.ParseUint: parsing \"-1\": invalid syntax",
        ),
        (
            &["--listen-client-urls", "foo"],
            "invalid value \"foo\" for flag -listen-client-urls: \
             URL scheme must be http, https, unix, or unixs: foo",
        ),
        (
            &["--listen-client-urls", "http://a"],
            "invalid value \"http://a\" for flag -listen-client-urls: \
             URL address does not have the form \"host:port\": http://a",
        ),
        (
            &["--listen-peer-urls", "http://a:1/p"],
            "invalid value \"http://a:1/p\" for flag -listen-peer-urls: \
             URL must not contain a path: http://a:1/p",
        ),
        (
            &["--initial-cluster-state", "foo"],
            "invalid value \"foo\" for flag -initial-cluster-state: invalid value",
        ),
        (
            &["--discovery-fallback", "foo"],
            "invalid value \"foo\" for flag -discovery-fallback: invalid value",
        ),
        (
            &["--feature-gates", "Foo=true"],
            "invalid value \"Foo=true\" for flag -feature-gates: unrecognized feature gate: Foo",
        ),
        (
            &["--feature-gates", "G"],
            "invalid value \"G\" for flag -feature-gates: missing bool value for G",
        ),
        (
            &["--v2-deprecation", "not-yet"],
            "invalid value \"not-yet\" for flag -v2-deprecation: invalid value \"not-yet\"",
        ),
        (&["---"], "bad flag syntax: ---"),
        (&["--=x"], "bad flag syntax: --=x"),
    ];
    for (arguments, line) in rows {
        for program in ["/usr/bin/etcd", "ringbolt"] {
            let stop = stop(call(&[&[program], *arguments].concat()));
            assert_eq!(stop.code, 2, "{arguments:?}");
            assert_eq!(stop.stderr.lines().next(), Some(*line));
            assert_eq!(stop.stderr.lines().count(), 25);
            assert_eq!((stop.stdout.as_str(), stop.notices.len()), ("", 0));
        }
    }
}

/// An unknown flag has etcd's line first, then a name that is near, or where all names are.
#[test]
fn unknown_flags() {
    let rows = [
        ("--nane=1", "flag provided but not defined: -nane", "did you mean --name?"),
        (
            "--nope=1",
            "flag provided but not defined: -nope",
            "all flags are listed by: etcd --help",
        ),
        (
            "--zzzzzz",
            "flag provided but not defined: -zzzzzz",
            "all flags are listed by: etcd --help",
        ),
        (
            "--experimental-initial-corrupt-check",
            "flag provided but not defined: -experimental-initial-corrupt-check",
            "did you mean --feature-gates=InitialCorruptCheck=true?",
        ),
        (
            "--experimental-compact-hash-check-enabled",
            "flag provided but not defined: -experimental-compact-hash-check-enabled",
            "did you mean --feature-gates=CompactHashCheck=true?",
        ),
        (
            "--experimental-max-learners=1",
            "flag provided but not defined: -experimental-max-learners",
            "did you mean --max-learners?",
        ),
    ];
    for (argument, line, hint) in rows {
        let stop = stop(call(&["etcd", argument]));
        let mut lines = stop.stderr.lines();
        assert_eq!((stop.code, lines.next()), (2, Some(line)));
        assert_eq!(lines.next(), Some(hint));
    }
}

/// Texts behind "failed to verify flags", exit 1.
#[test]
fn verify_errors() {
    let rows: &[(&[&str], &str)] = &[
        (&["foo"], "\"foo\" is not a valid flag"),
        (&["version"], "\"version\" is not a valid flag"),
        (&["--force", "3"], "\"3\" is not a valid flag"),
        (&["--", "x"], "\"x\" is not a valid flag"),
        (
            &["--listen-peer-urls", "http://example.com:41001"],
            "expected IP in URL for binding (http://example.com:41001)",
        ),
        (
            &["--listen-client-urls", "http://127.0.0.1:1"],
            "--advertise-client-urls is required when --listen-client-urls is set explicitly",
        ),
        (
            &["--advertise-client-urls", "http://:33"],
            "--advertise-client-urls \"http://:33\" must be in the format \"host:port\", \
             \"unix:/path/to/socket\" or \"unixs:/path/to/socket\" \
             (unexpected empty host (http://:33))",
        ),
        (
            &["--initial-cluster", "a=http://1:1", "--discovery-srv", "x"],
            "multiple discovery or bootstrap flags are set. Choose one of \"initial-cluster\", \
             \"discovery-endpoints\" or \"discovery-srv\"",
        ),
        (
            &["--discovery-endpoints", "x"],
            "both --discovery-token and --discovery-endpoints must be set",
        ),
        (
            &["--discovery-fallback", "proxy"],
            "v2 proxy is deprecated, and --discovery-fallback can't be configured as \"proxy\"",
        ),
    ];
    refuse_all(rows);
    let stop = stop(call(&["etcd", "--listen-client-urls", "http://127.0.0.1:1"]));
    let last = stop.notices.last().map(|notice| notice.message.as_str());
    assert_eq!(last, Some("advertise client URLs are not set"));
}

fn refuse_all(rows: &[(&[&str], &str)]) {
    for (arguments, error) in rows {
        for program in ["etcd", "/usr/local/bin/ringbolt"] {
            let line = [&[program], *arguments].concat();
            assert_eq!(verify_error(call(&line)), *error);
        }
    }
}

/// The same for values that do not fit together.
#[test]
fn verify_errors_of_values() {
    let rows: &[(&[&str], &str)] = &[
        (
            &["--election-timeout", "200"],
            "--election-timeout[200ms] should be at least as 5 times as \
             --heartbeat-interval[100ms]",
        ),
        (
            &["--election-timeout", "60000"],
            "--election-timeout[60000ms] is too long, and should be set less than 50000ms",
        ),
        (&["--heartbeat-interval", "0"], "--heartbeat-interval must be >0 (set to 0ms)"),
        (&["--election-timeout", "0"], "--election-timeout must be >0 (set to 0ms)"),
        (&["--auto-compaction-mode", "foo"], "unknown auto-compaction-mode \"foo\""),
        (&["--auto-compaction-mode="], "undefined auto-compaction-mode"),
        (
            &["--feature-gates", "LeaseCheckpointPersist=true"],
            "enabling feature gate LeaseCheckpointPersist requires enabling feature gate \
             LeaseCheckpoint",
        ),
        (&["--compact-hash-check-time", "0s"], "--compact-hash-check-time must be >0 (set to 0s)"),
        (
            &["--tls-min-version", "TLS1.1"],
            "unexpected TLS version \"TLS1.1\" (must be one of: TLS1.2, TLS1.3)",
        ),
        (
            &["--tls-min-version", "TLS1.3", "--tls-max-version", "TLS1.2"],
            "min version (TLS1.3) is greater than max version (TLS1.2)",
        ),
        (
            &["--tls-min-version", "TLS1.3", "--cipher-suites", "x"],
            "cipher suites cannot be configured when only TLS1.3 is enabled",
        ),
        (
            &["--log-outputs", "default,stdout"],
            "multi logoutput for \"default\" is not supported yet",
        ),
        (
            &["--log-outputs", "stdout,systemd/journal"],
            "running with systemd/journal but other '--log-outputs' values ([\"stdout\" \
             \"systemd/journal\"]) are configured with 'default'; override 'default' value with \
             something else",
        ),
        (&["--logger", "foo"], "unknown logger option \"foo\""),
        (&["--log-format", "foo"], "unknown log format: foo, supported values json, console"),
        (
            &["--enable-log-rotation"],
            "--log-outputs requires a single file path when --log-rotate-config-json is defined",
        ),
    ];
    refuse_all(rows);
}

/// An unknown level is a panic in etcd: exit 2.
#[test]
fn unknown_level() {
    let stop = stop(call(&["etcd", "--log-level", "foo"]));
    assert_eq!((stop.code, stop.stderr.as_str()), (2, "panic: unrecognized level: \"foo\"\n"));
}

/// What is not served yet is refused by name; its harmless values are not.
#[test]
fn refusals() {
    let rows: &[(&[&str], &str)] = &[
        (&["--cert-file", "x"], "--cert-file: "),
        (&["--client-cert-auth"], "--client-cert-auth: "),
        (&["--peer-auto-tls"], "--peer-auto-tls: "),
        (
            &["--listen-client-urls=https://127.0.0.1:1", "--advertise-client-urls=https://a:1"],
            "--listen-client-urls: ",
        ),
        (&["--listen-metrics-urls=unixs://m"], "--listen-metrics-urls: "),
        (&["--discovery-srv", "example.com"], "--discovery-srv: "),
        (&["--discovery-endpoints", "x", "--discovery-token", "t"], "--discovery-endpoints: "),
        (&["--auth-token", "jwt,pub-key=x"], "--auth-token: "),
        (&["--enable-distributed-tracing"], "--enable-distributed-tracing: "),
        (&["--wal-dir", "w"], "--wal-dir: "),
    ];
    for (arguments, start) in rows {
        let error = verify_error(call(&[&["etcd"], *arguments].concat()));
        let rest = error.strip_prefix(start);
        let names = "this build serves plaintext single members";
        assert!(rest.is_some_and(|rest| rest.starts_with(names)), "{error}");
    }
    let harmless = ["--cert-file=", "--auto-tls=false", "--cipher-suites=X", "--auth-token=simple"];
    let line = ["etcd", "--feature-gates=InitialCorruptCheck=true", "--cluster-active-size"];
    run(call(&[&line[..], &harmless[..]].concat()));
}

/// Silent defaults, and etcd's readings of zero.
#[test]
fn defaults() {
    let (config, notices) = run(call(&["etcd", "--name", "m1", "--metrics", "foo"]));
    assert_eq!(config.data_dir, Path::new("m1.etcd"));
    assert_eq!(config.cluster.initial_cluster, "m1=http://localhost:2380");
    let default = config.default_keyspace();
    assert_eq!(url::texts(&default.listen_client_urls), ["http://localhost:2379"]);
    assert_eq!(default.quota_bytes, Some(2 * 1024 * 1024 * 1024));
    assert_eq!(default.fsync, Fsync::Safe);
    assert_eq!(config.watch_progress_notify_interval, Duration::from_secs(600));
    assert_eq!(config.compaction.batch_limit, 1000);
    assert!(!config.metrics_extensive);
    let messages: Vec<&str> = notices.iter().map(|notice| notice.message.as_str()).collect();
    let single = "Running http and grpc server on single port. \
         This is not recommended for production.";
    assert_eq!(messages, [single, "Running: "]);

    let (config, _) = run(call(&["ringbolt", "--quota-backend-bytes=-1"]));
    assert_eq!(config.data_dir, Path::new("default.ringbolt"));
    let urls = url::texts(&config.default_keyspace().listen_client_urls);
    assert_eq!(urls, ["http://localhost:2379", "unix://default.ringbolt/client.sock"]);
    assert_eq!(config.default_keyspace().quota_bytes, None);
}

/// The environment stands behind the command line, conflicts end it, unknown names are told.
#[test]
fn environment() {
    let none = Err("no such file or directory");
    let used = [("ETCD_NAME", "e"), ("ETCD_FOO", "1"), ("RINGBOLT_FSYNC", "memory")];
    let (config, notices) = run(world(&["etcd"], &used, none));
    assert_eq!(config.name, "e");
    assert_eq!(config.default_keyspace().fsync, Fsync::Memory);
    let words: Vec<String> = notices
        .iter()
        .filter(|notice| notice.message.contains("environment"))
        .map(|notice| format!("{} {}", notice.level.word(), notice.fields[0].1))
        .collect();
    let expected = ["info \"RINGBOLT_FSYNC\"", "info \"ETCD_NAME\"", "warn \"ETCD_FOO=1\""];
    assert_eq!(words, expected);

    let empty = [("ETCD_HEARTBEAT_INTERVAL", "")];
    run(world(&["etcd", "--heartbeat-interval=50"], &empty, none));

    let bad = [("ETCD_HEARTBEAT_INTERVAL", "abc")];
    let error = "invalid value \"abc\" for ETCD_HEARTBEAT_INTERVAL: parse error";
    assert_eq!(verify_error(world(&["etcd"], &bad, none)), error);

    let conflict = stop(world(&["etcd", "--name", "x"], &[("ETCD_NAME", "y")], none));
    assert_eq!((conflict.code, conflict.notices.len()), (1, 1));
    assert_eq!(conflict.notices[0].level, Level::Fatal);
    assert_eq!(conflict.notices[0].fields[0].1, "ETCD_NAME");

    let wrong = [("RINGBOLT_FSYNC", "zzz")];
    let error = verify_error(world(&["ringbolt"], &wrong, none));
    assert!(error.ends_with("one of safe, unsafe-no-fsync, memory"), "{error}");
    let unknown = [("RINGBOLT_FSNC", "safe")];
    let error = "unknown environment variable RINGBOLT_FSNC; did you mean RINGBOLT_FSYNC?";
    assert_eq!(verify_error(world(&["ringbolt"], &unknown, none)), error);
    let unknown = [("RINGBOLT_ZZZZZZ", "1")];
    let error = verify_error(world(&["ringbolt"], &unknown, none));
    assert!(error.ends_with("listed by: ringbolt --help"), "{error}");
}

/// `ETCD_NAME` beside `RINGBOLT_NAME` was refused with a text that named one of them and spoke of
/// a flag that nobody gave; of two variables for the configuration file one was passed over.
#[test]
fn a_conflict_of_two_variables_names_both_and_their_values() {
    for (flag, one, other) in [
        ("name", "ETCD_NAME", "RINGBOLT_NAME"),
        ("config-file", "ETCD_CONFIG_FILE", "RINGBOLT_CONFIG_FILE"),
    ] {
        let ended = stop(world(&["ringbolt"], &[(one, "x"), (other, "y")], Ok("name: z\n")));
        let [notice] = &ended.notices[..] else { panic!("{ended:?}") };
        assert_eq!((ended.code, notice.level), (1, Level::Fatal));
        assert_eq!(notice.message, "conflicting environment variables");
        let error = format!(
            "{one}=\"x\" and {other}=\"y\" both stand for --{flag}; keep one and take the other \
             away: unset {other}"
        );
        assert_eq!(notice.fields[0].1, error);
    }
}

/// A key of a file that is like no other is told where the others are, not the least unlike one.
#[test]
fn keys_of_a_file_unlike_all_others() {
    let (_, notices) = run(file("dta-dir: x\nzzzzzz: 1\n"));
    let line = notices.iter().find(|notice| notice.message.starts_with("unknown keys"));
    let keys = &line.expect("the line is there").fields[0].1;
    assert_eq!(keys[0], "dta-dir (nearest: data-dir)");
    assert_eq!(keys[1], "zzzzzz (known keys are the names of the flags: ringbolt --help)");
}

/// The mode of a socket is octal in a file too, with quotes or without.
#[test]
fn octal_modes_in_a_file() {
    for text in ["unix-socket-mode: 0660\n", "unix-socket-mode: \"0660\"\n"] {
        assert_eq!(run(file(text)).0.sockets.unix_mode, 0o660, "{text}");
    }
    let wrong = verify_error(file("unix-socket-mode: 0990\n"));
    assert!(wrong.contains("is no octal mode"), "{wrong}");
}

/// A file counts alone; durations are nanoseconds, texts may be numbers.
#[test]
fn configuration_file() {
    let text = "name: 5\nheartbeat-interval: 50\ngrpc-keepalive-interval: 5000000000\n\
         listen-client-urls: http://127.0.0.1:1,http://127.0.0.1:2\nlog-outputs: [stderr]\n\
         feature-gates: InitialCorruptCheck=true\nsocket-options:\n  reuse-port: true\n\
         auto-compaction-retention: 1\nfsync: memory\nnothing-such: 1\n";
    let line = ["etcd", "--config-file", "f", "--name", "ignored"];
    let (config, notices) = run(world(&line, &[("ETCD_NAME", "too")], Ok(text)));
    assert_eq!(config.name, "5");
    assert_eq!(config.keepalive.interval, Duration::from_secs(5));
    assert_eq!(config.default_keyspace().listen_client_urls.len(), 2);
    let advertised = url::texts(&config.default_keyspace().advertise_client_urls);
    assert_eq!(advertised, ["http://localhost:2379"]);
    assert!(config.sockets.reuse_port);
    assert!(config.feature_gates.is_open("InitialCorruptCheck"));
    assert!(notices.iter().any(|notice| notice.message.starts_with("unknown keys")));
    assert!(notices.iter().any(|notice| notice.message.starts_with("loaded server")));
    run(file(""));
}

/// Errors of a file, in Go's words.
#[test]
fn configuration_file_errors() {
    let head = "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal";
    let config = "Go struct field configYAML.Config";
    let rows = [
        (
            "heartbeat-interval: x\n",
            format!("{head} string into {config}.heartbeat-interval of type uint"),
        ),
        (
            "heartbeat-interval: -1\n",
            format!("{head} number -1 into {config}.heartbeat-interval of type uint"),
        ),
        ("name: [5]\n", format!("{head} array into {config}.name of type string")),
        (
            "grpc-keepalive-interval: 5s\n",
            format!("{head} string into {config}.grpc-keepalive-interval of type time.Duration"),
        ),
        ("log-outputs: x\n", format!("{head} string into {config}.log-outputs of type []string")),
        (
            "socket-options:\n  reuse-port: 5\n",
            format!(
                "{head} number into Go struct field SocketOpts.Config.socket-options.reuse-port \
                 of type bool"
            ),
        ),
        (
            "client-transport-security: 5\n",
            format!(
                "{head} number into Go struct field \
                 configYAML.configJSON.client-transport-security of type embed.securityConfig"
            ),
        ),
        ("feature-gates: Foo=true\n", "unrecognized feature gate: Foo".to_owned()),
        ("initial-cluster-state: foo\n", "unexpected clusterState \"foo\"".to_owned()),
    ];
    for (text, error) in rows {
        assert_eq!(verify_error(file(text)), error);
    }
    let missing = verify_error(call(&["etcd", "--config-file", "/nope"]));
    assert_eq!(missing, "open /nope: no such file or directory");
    let broken = verify_error(file("a: b: c\n"));
    assert!(broken.starts_with("error converting YAML to JSON: yaml: "), "{broken}");
    let stop = stop(file("listen-metrics-urls: foo\n"));
    let line = "unexpected error setting up listen-metrics-urls: \
         URL scheme must be http, https, unix, or unixs: foo\n";
    assert_eq!((stop.code, stop.stderr.as_str(), stop.notices.len()), (1, line, 0));
}

/// What only the start finds out.
#[test]
fn start_errors() {
    let start = |arguments: &[&str]| {
        let (config, _) = run(call(&[&["etcd", "--name", "m1"], arguments].concat()));
        check::start(&config).and_then(|()| check::bootstrap(&config))
    };
    let err = |text: &str| Err(text.to_owned());
    assert_eq!(start(&[]), Ok(()));
    assert_eq!(
        start(&["--initial-cluster", "m2=http://localhost:2380"]),
        err("couldn't find local name \"m1\" in the initial cluster configuration")
    );
    assert_eq!(
        start(&["--initial-cluster", "m1"]),
        err("error setting up initial cluster: URL scheme must be http, https, unix, or unixs: ")
    );
    assert_eq!(
        start(&["--initial-cluster", "m1=http://a:1,m2=http://a:1"]),
        err("initial cluster m1=http://a:1,m2=http://a:1 has duplicate url")
    );
    assert_eq!(
        start(&["--initial-cluster", "m1=http://a:1"]),
        err("--initial-cluster has m1=http://a:1 but missing from \
             --initial-advertise-peer-urls=http://localhost:2380 \
             (resolved urls: \"http://localhost:2380\" != \"http://a:1\")")
    );
    assert_eq!(
        start(&["--auto-compaction-retention", "foo"]),
        err("error parsing CompactionRetention: time: invalid duration \"foo\"")
    );
    assert_eq!(start(&["--auth-token", "foo"]), err("auth: invalid auth options"));
    let suites = "TLS_RSA_WITH_AES_128_CBC_SHA,TLS_AES_128_GCM_SHA256";
    assert_eq!(start(&["--cipher-suites", suites]), Ok(()));
    let unknown = err("unexpected TLS cipher suite \"foo\"");
    assert_eq!(start(&["--cipher-suites", &format!("{suites},foo")]), unknown);
    assert!(start(&["--initial-cluster", "m1=http://a:1,m2=http://a:2"]).is_err());
    assert_eq!(check::compaction_retention("revision", "10m"), Ok(600_000_000_000));
    assert_eq!(check::compaction_retention("periodic", "2"), Ok(7_200_000_000_000));
}

/// Several stores in one process, and what they may not share.
#[test]
fn keyspaces() {
    let events = "events,listen-client-urls=http://127.0.0.1:1,unix://e.sock,fsync=memory";
    let leases = "leases,listen-client-urls=unix://@l,data-dir=/l,quota-backend-bytes=5";
    let (config, _) =
        run(call(&["ringbolt", "--data-dir=d", "--keyspace", events, "--keyspace", leases]));
    assert_eq!(config.keyspaces.len(), 3);
    assert_eq!(config.keyspaces[1].directory, Path::new("d/keyspaces/events"));
    let urls = url::texts(&config.keyspaces[1].listen_client_urls);
    assert_eq!(urls, ["http://127.0.0.1:1", "unix://e.sock"]);
    assert_eq!(config.keyspaces[1].fsync, Fsync::Memory);
    assert_eq!(config.keyspaces[2].directory, Path::new("/l"));
    assert_eq!(config.keyspaces[2].quota_bytes, Some(5));
    let rows = [
        ("default,listen-client-urls=unix://x", "the default keyspace is configured"),
        ("a", "listen-client-urls is required"),
        ("a,listen-client-urls=http://localhost:2379", "is used by default"),
        ("a,fsnc=safe", "did you mean fsync?"),
        ("a,nonsense=1", "a keyspace has listen-client-urls, fsync, data-dir, quota-"),
        ("a,fsync=safe,fsync=memory", "fsync is given twice"),
        ("../a,listen-client-urls=unix://x", "a name is"),
        ("a,listen-client-urls=https://127.0.0.1:1", "this build serves plaintext"),
    ];
    for (text, part) in rows {
        let error = verify_error(call(&["ringbolt", "--keyspace", text]));
        assert!(error.contains(part), "{error}");
    }
    let error = verify_error(call(&["ringbolt", "--unsafe-no-fsync", "--fsync=memory"]));
    assert!(error.contains("contradicts"), "{error}");
}

/// Four lines as etcd; one more before them as ringbolt.
#[test]
fn versions_and_help() {
    let etcd = stop(call(&["etcd", "--version"]));
    assert_eq!((etcd.code, etcd.stdout.lines().count()), (0, 4));
    assert!(etcd.stdout.starts_with("etcd Version: 3.7.3\nGit SHA: "));
    let ours = stop(call(&["ringbolt", "-version"]));
    assert!(ours.stdout.starts_with("ringbolt Version: "));
    assert!(ours.stdout.ends_with(&etcd.stdout));
    let help = stop(call(&["etcd", "-h"]));
    assert_eq!(help.code, 0);
    assert!(help.stderr.starts_with("Usage:"));
    for flag in table::flags() {
        assert!(help.stdout.contains(&format!("--{} '", flag.name)), "{}", flag.name);
    }
}

/// Two spellings of one directory were two keyspaces: one served the data of the other.
#[test]
fn keyspaces_share_no_directory_under_another_name() {
    let base = std::env::temp_dir().join(format!("ringbolt-places-{}", std::process::id()));
    std::fs::create_dir_all(base.join("x")).expect("a directory");
    std::os::unix::fs::symlink("x", base.join("y")).expect("a link");
    let refusal = |data: &str, first: &str, second: &str| {
        let text = |name: &str, place: &str| {
            let place = base.join(place);
            format!("{name},listen-client-urls=unix://@{name},data-dir={}", place.display())
        };
        let data = base.join(data).display().to_string();
        let (one, two) = (text("one", first), text("two", second));
        let line = ["ringbolt", "--data-dir", &data, "--keyspace", &one, "--keyspace", &two];
        verify_error(call(&line))
    };
    for second in ["x", "y", "./x/../x", "y/../y", "x/inside", "y/inside"] {
        let error = refusal("data", "x", second);
        assert!(error.contains("--keyspace two:") && error.contains("belongs to one"), "{error}");
    }
    let error = refusal("data", "data", "y");
    assert!(error.contains("--keyspace one:") && error.contains("belongs to default"), "{error}");
    std::fs::remove_dir_all(&base).expect("it is ours");
}

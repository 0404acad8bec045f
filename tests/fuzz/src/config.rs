//! Command line, environment and configuration file.
//!
//! ```text
//! input: arguments, a line each | 0 | variables, a line each | 0 | text of the file
//! ```
//!
//! - C1 The same input gives the same outcome.
//! - C2 A start that is refused says why; one that is not has a keyspace and a data directory.

use std::path::Path;

use ringbolt_server::config::table::flags;
use ringbolt_server::config::{Input, Outcome, load};

/// Takes one input.
pub fn run(input: &[u8]) {
    let mut parts = input.splitn(3, |byte| *byte == 0);
    let mut text = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (line, environment, file) = (text(), text(), text());
    let mut arguments = vec!["ringbolt".to_owned()];
    arguments.extend(line.lines().map(str::to_owned));
    let pairs = environment.lines().filter_map(|line| line.split_once('='));
    let environment: Vec<_> = pairs.map(|(key, text)| (key.to_owned(), text.to_owned())).collect();
    let read_file = |_: &Path| Ok(file.clone());
    let input = Input { arguments: &arguments, environment: &environment, read_file: &read_file };
    let outcome = load(&input);
    assert_eq!(format!("{outcome:?}"), format!("{:?}", load(&input)), "C1");
    match outcome {
        Outcome::Run(config, _) => {
            assert!(!config.keyspaces.is_empty(), "C2: {config:?}");
            assert!(!config.data_dir.as_os_str().is_empty(), "C2: {config:?}");
        }
        Outcome::Stop(stop) => {
            let words = stop.stdout.len() + stop.stderr.len() + stop.notices.len();
            assert!(words > 0, "C2: {stop:?}");
        }
    }
}

/// Starts as people make them: flags, variables, files, mistakes.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let cluster = "--name=a\n--data-dir=/d\n--listen-client-urls=http://127.0.0.1:2379,unix:///s\n\
                   --advertise-client-urls=http://127.0.0.1:2379\n\
                   --listen-peer-urls=http://127.0.0.1:2380\n\
                   --initial-advertise-peer-urls=http://127.0.0.1:2380\n\
                   --initial-cluster=a=http://127.0.0.1:2380";
    let kinds = "--quota-backend-bytes\n8589934592\n-auto-compaction-retention=1h\n\
                 --heartbeat-interval=100\n--pre-vote=false\n--cors=*\n--log-outputs=stderr,/l\n\
                 --feature-gates=InitialCorruptCheck=true\n--max-concurrent-streams=7\n--fsync=\
                 unsafe-no-fsync\n--keyspace=events,listen-client-urls=http://127.0.0.1:3379";
    let variables = "ETCD_NAME=b\nETCD_UNKNOWN=1\nRINGBOLT_IO_ENGINE=epoll\nETCD_LOG_LEVEL=warn";
    let file = "name: c\ndata-dir: /d\nlisten-client-urls: http://127.0.0.1:2379\n\
                advertise-client-urls: http://127.0.0.1:2379\nheartbeat-interval: 100\n\
                log-outputs: [stderr]\nclient-transport-security:\n  client-cert-auth: false\n\
                unknown-key: &a [1, 0x10, ~]\nother: *a\n";
    let json = "{\"name\": \"d\", \"max-request-bytes\": 1572864, \"cors\": 7}";
    let input = |line: &str, variables: &str, file: &str| {
        format!("{line}\0{variables}\0{file}").into_bytes()
    };
    vec![
        input(cluster, "", ""),
        input(kinds, "", ""),
        input("", variables, ""),
        input("--config-file=/c", "", file),
        input("--config-file=/c", "", json),
        input("--nmae=x", "", ""),
        input("--help", "", ""),
        input("--version", "", ""),
        input("--listen-client-urls=http://[::1]:0,https://a:b", "ETCD_NAME=\n", ""),
    ]
}

/// The names of all flags, in each of their three spellings, and pieces of values.
#[must_use]
pub fn words() -> Vec<Vec<u8>> {
    let pieces = ["http://127.0.0.1:2379", "unix://", "1h30m", "-1", "0x7fffffffffffffff", "1e400"];
    let mut words: Vec<String> = pieces.iter().map(|word| (*word).to_owned()).collect();
    for flag in flags() {
        words.push(format!("--{}=", flag.name));
        words.push(format!("\n{}=", flag.env("ETCD")));
        words.push(format!("\n{}: ", flag.yaml.rsplit('.').next().unwrap_or_default()));
    }
    words.into_iter().map(String::into_bytes).collect()
}

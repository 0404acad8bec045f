//! Every flag, once: name, kind, default, YAML key and one line of help.
//!
//! Command line, environment, YAML files and `--help` all read this table, so a flag cannot be
//! known to one of them and unknown to another. Source: etcd 3.7 `etcd --help` and its file keys.

/// What kind of value a flag takes. The kind fixes the syntax and the error text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// Go's `ParseBool`; a flag without a value is true.
    Bool,
    /// A number from 0, any Go base.
    Uint,
    /// A number up to 2^32 - 1, decimal. Its error text is of another shape.
    Uint32,
    /// A number with a sign.
    Int,
    /// A Go duration. Integer nanoseconds in YAML.
    Duration,
    /// A comma list of URLs. An empty value leaves the default.
    Urls,
    /// A comma list of origins, or `*`.
    Origins,
    /// A comma list of texts. In YAML a sequence.
    List,
    /// A comma list of texts in YAML too.
    CommaList,
    /// One of a few words.
    Word(&'static [&'static str]),
    /// One of a few words, whose error names the value.
    QuotedWord(&'static [&'static str]),
    /// `A=true,B=false` over the known gates.
    Gates,
    /// May be given several times; each value is one entry. In YAML a sequence.
    Repeated,
}

/// Where a flag stands in `--help`, and who defined it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// This member.
    Member,
    /// Bootstrap and cluster.
    Clustering,
    /// TLS, CORS.
    Security,
    /// Tokens.
    Auth,
    /// Metrics, profiling.
    Monitoring,
    /// Logs.
    Logging,
    /// Tracing.
    Tracing,
    /// Tuning of features.
    Features,
    /// Gives up safety.
    Unsafe,
    /// Flags etcd does not have.
    Ringbolt,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Name without dashes.
    pub name: &'static str,
    /// Syntax of its value.
    pub kind: Kind,
    /// Value when nobody sets it, in command-line syntax.
    pub default: &'static str,
    /// Dotted key in a configuration file; empty when it has none.
    pub yaml: &'static str,
    /// Section of the help text.
    pub group: Group,
    /// One line of help.
    pub help: &'static str,
}

use Group::{
    Auth, Clustering, Features, Logging, Member, Monitoring, Ringbolt, Security, Tracing, Unsafe,
};
use Kind::{
    Bool, CommaList, Duration, Gates, Int, List, Origins, QuotedWord, Repeated, Text, Uint, Uint32,
    Urls, Word,
};

type Row = (&'static str, Kind, &'static str, &'static str, Group, &'static str);

/// A yaml column of "=" means: the name itself; "" means: no key.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("name", Text, "default", "=", Member,
     "Name of this member, for people and for --initial-cluster."),
    ("data-dir", Text, "", "=", Member, "Directory of everything this process stores."),
    ("wal-dir", Text, "", "=", Member, "A directory of its own for the log."),
    ("snapshot-count", Uint, "10000", "=", Member,
     "Applied entries after which a checkpoint is due."),
    ("snapshot-catchup-entries", Uint, "5000", "=", Features,
     "Entries kept behind a checkpoint for slow followers."),
    ("max-wals", Uint, "5", "=", Member,
     "Log files kept (0: all). Segments are recycled here instead."),
    ("max-snapshots", Uint, "5", "=", Member, "Snapshot files kept (0: all). Deprecated."),
    ("heartbeat-interval", Uint, "100", "=", Member, "Milliseconds between two heartbeats."),
    ("election-timeout", Uint, "1000", "=", Member,
     "Milliseconds without a leader before an election."),
    ("initial-election-tick-advance", Bool, "true", "=", Member,
     "Shorten the first election after a start."),
    ("listen-peer-urls", Urls, "http://localhost:2380", "=", Member,
     "Where members of the cluster connect."),
    ("listen-client-urls", Urls, "http://localhost:2379", "=", Member,
     "Where clients connect: http, https, unix or unixs."),
    ("listen-client-http-urls", Urls, "", "=", Member,
     "HTTP-only listeners; the client listeners then serve gRPC only."),
    ("listen-metrics-urls", Urls, "", "=", Monitoring,
     "More listeners for /metrics and health only."),
    ("initial-advertise-peer-urls", Urls, "http://localhost:2380", "=", Clustering,
     "Peer URLs told to the cluster."),
    ("advertise-client-urls", Urls, "http://localhost:2379", "=", Clustering,
     "Client URLs shown in the member list."),
    ("initial-cluster", Text, "default=http://localhost:2380", "=", Clustering,
     "Members at bootstrap: name=url, comma separated."),
    ("initial-cluster-state", Word(&["new", "existing"]), "new", "=", Clustering,
     "new: bootstrap; existing: join. Ignored once there is data."),
    ("initial-cluster-token", Text, "etcd-cluster", "=", Clustering,
     "Text that keeps the ids of two clusters apart."),
    ("strict-reconfig-check", Bool, "true", "=", Clustering,
     "Refuse membership changes that would lose quorum."),
    ("pre-vote", Bool, "true", "=", Clustering, "Ask before an election whether it could be won."),
    ("discovery-endpoints", List, "", "discovery-config.client.endpoints", Clustering,
     "Discovery: endpoints of the service."),
    ("discovery-token", Text, "", "discovery-config.token", Clustering,
     "Discovery: token of the cluster."),
    ("discovery-dial-timeout", Duration, "2s", "discovery-config.client.dial-timeout", Clustering,
     "Discovery: time to connect."),
    ("discovery-request-timeout",
     Duration,
     "5s",
     "discovery-config.client.request-timeout", Clustering,
     "Discovery: time of a request."),
    ("discovery-keepalive-time",
     Duration,
     "2s",
     "discovery-config.client.keepalive-time", Clustering,
     "Discovery: keep-alive period."),
    ("discovery-keepalive-timeout",
     Duration,
     "6s",
     "discovery-config.client.keepalive-timeout", Clustering,
     "Discovery: keep-alive patience."),
    ("discovery-insecure-transport",
     Bool,
     "true",
     "discovery-config.client.secure.insecure-transport", Clustering,
     "Discovery: no TLS."),
    ("discovery-insecure-skip-tls-verify",
     Bool,
     "false",
     "discovery-config.client.secure.insecure-skip-tls-verify", Clustering,
     "Discovery: trust any certificate."),
    ("discovery-cert", Text, "", "discovery-config.client.secure.cert", Clustering,
     "Discovery: client certificate."),
    ("discovery-key", Text, "", "discovery-config.client.secure.key", Clustering,
     "Discovery: client key."),
    ("discovery-cacert", Text, "", "discovery-config.client.secure.cacert", Clustering,
     "Discovery: CA."),
    ("discovery-user", Text, "", "discovery-config.client.auth.username", Clustering,
     "Discovery: user[:password]."),
    ("discovery-password", Text, "", "discovery-config.client.auth.password", Clustering,
     "Discovery: password."),
    ("discovery-fallback", Word(&["exit", "proxy"]), "exit", "", Clustering,
     "What to do when discovery fails: exit."),
    ("discovery-srv", Text, "", "=", Clustering, "Domain of the SRV records to bootstrap from."),
    ("discovery-srv-name", Text, "", "=", Clustering, "Suffix of the SRV service name."),
    ("cert-file", Text, "", "client-transport-security.cert-file", Security,
     "Certificate of the client listeners."),
    ("key-file", Text, "", "client-transport-security.key-file", Security,
     "Key of the client listeners."),
    ("client-cert-file", Text, "", "client-transport-security.client-cert-file", Security,
     "Certificate for calls to itself when clients must show one."),
    ("client-key-file", Text, "", "client-transport-security.client-key-file", Security,
     "Its key."),
    ("client-cert-auth", Bool, "false", "client-transport-security.client-cert-auth", Security,
     "Clients must show a certificate."),
    ("trusted-ca-file", Text, "", "client-transport-security.trusted-ca-file", Security,
     "CA of client certificates."),
    ("client-crl-file", Text, "", "", Security, "Revoked client certificates."),
    ("client-cert-allowed-hostname",
     List,
     "",
     "client-transport-security.allowed-hostname", Security,
     "Names a client certificate may carry."),
    ("auto-tls", Bool, "false", "client-transport-security.auto-tls", Security,
     "Make a certificate for the client listeners."),
    ("peer-cert-file", Text, "", "peer-transport-security.cert-file", Security,
     "Certificate of the peer listeners."),
    ("peer-key-file", Text, "", "peer-transport-security.key-file", Security,
     "Key of the peer listeners."),
    ("peer-client-cert-file", Text, "", "peer-transport-security.client-cert-file", Security,
     "Certificate for calls to peers."),
    ("peer-client-key-file", Text, "", "peer-transport-security.client-key-file", Security,
     "Its key."),
    ("peer-client-cert-auth", Bool, "false", "peer-transport-security.client-cert-auth", Security,
     "Peers must show a certificate."),
    ("peer-trusted-ca-file", Text, "", "peer-transport-security.trusted-ca-file", Security,
     "CA of peer certificates."),
    ("peer-auto-tls", Bool, "false", "peer-transport-security.auto-tls", Security,
     "Make a certificate for the peer listeners."),
    ("peer-crl-file", Text, "", "", Security, "Revoked peer certificates."),
    ("peer-cert-allowed-cn", List, "", "peer-transport-security.allowed-cn", Security,
     "Common names a peer certificate may carry."),
    ("peer-cert-allowed-hostname", List, "", "peer-transport-security.allowed-hostname", Security,
     "Names a peer certificate may carry."),
    ("peer-skip-client-san-verification",
     Bool,
     "false",
     "peer-transport-security.skip-client-san-verification", Features,
     "Do not check the address of a peer certificate."),
    ("self-signed-cert-validity", Uint, "1", "=", Security,
     "Years a certificate made by auto-tls is valid."),
    ("cipher-suites", List, "", "=", Security, "TLS 1.2 cipher suites by Go name."),
    ("tls-min-version", Text, "TLS1.2", "=", Security, "Lowest TLS version: TLS1.2 or TLS1.3."),
    ("tls-max-version", Text, "", "=", Security, "Highest TLS version: TLS1.2 or TLS1.3."),
    ("cors", Origins, "*", "=", Security, "Origins browsers may call from."),
    ("host-whitelist", CommaList, "*", "=", Security, "Host headers accepted on plain HTTP."),
    ("auth-token", Text, "simple", "=", Auth, "Kind of token: simple, or jwt with options."),
    ("bcrypt-cost", Uint, "10", "=", Auth, "Cost of a password hash, 4 to 31."),
    ("auth-token-ttl", Uint, "300", "=", Auth, "Seconds a simple token lives after its last use."),
    ("quota-backend-bytes", Int, "0", "=", Member,
     "Size at which writes stop with NOSPACE (0: 2 GiB; negative: never)."),
    ("backend-bbolt-freelist-type", Text, "map", "=", Member,
     "Accepted for etcd's sake; there is no bbolt here."),
    ("backend-batch-interval", Duration, "0s", "=", Member,
     "Accepted for etcd's sake."),
    ("backend-batch-limit", Int, "0", "=", Member,
     "Accepted for etcd's sake."),
    ("max-txn-ops", Uint, "128", "=", Member, "Operations in one branch of a transaction."),
    ("max-request-bytes", Uint, "1572864", "=", Member, "Bytes of one proposal."),
    ("max-concurrent-streams", Uint32, "4294967295", "=", Member,
     "HTTP/2 streams of one connection."),
    ("grpc-keepalive-min-time", Duration, "5s", "=", Member,
     "Pings of a client may not come closer than this."),
    ("grpc-keepalive-interval", Duration, "2h", "=", Member,
     "Time without traffic before the server pings (0: never)."),
    ("grpc-keepalive-timeout", Duration, "20s", "=", Member,
     "Time for the answer to that ping (0: no limit)."),
    ("socket-reuse-port", Bool, "false", "socket-options.reuse-port", Member,
     "Set SO_REUSEPORT on listeners."),
    ("socket-reuse-address", Bool, "false", "socket-options.reuse-address", Member,
     "Set SO_REUSEADDR on listeners."),
    ("raft-read-timeout", Duration, "5s", "", Member,
     "Read timeout of peer connections, at least 5s."),
    ("raft-write-timeout", Duration, "5s", "", Member,
     "Write timeout of peer connections, at least 5s."),
    ("enable-grpc-gateway", Bool, "true", "=", Member,
     "Answer the JSON gateway's paths below /v3/; in this build with 501."),
    ("auto-compaction-mode", Text, "periodic", "=", Clustering,
     "How to read the retention: periodic or revision."),
    ("auto-compaction-retention", Text, "0", "=", Clustering,
     "History kept by automatic compaction (0: all)."),
    ("v2-deprecation",
     QuotedWord(&["write-only", "write-only-skip-check", "write-only-drop-data", "gone"]),
     "write-only",
     "=", Clustering,
     "Accepted for etcd's sake; there is no v2 store here."),
    ("metrics", Text, "basic", "=", Monitoring,
     "basic, or extensive with a latency histogram for each RPC."),
    ("enable-pprof", Bool, "false", "=", Monitoring,
     "Accepted for etcd's sake."),
    ("logger", Text, "zap", "=", Logging, "Shape of the log; only zap."),
    ("log-outputs", List, "default", "=", Logging,
     "default, stderr, stdout, systemd/journal or files."),
    ("log-level", Text, "info", "=", Logging, "debug, info, warn, error, panic or fatal."),
    ("log-format", Text, "json", "=", Logging, "json or console."),
    ("enable-log-rotation", Bool, "false", "=", Logging, "Rotate the one file the log goes to."),
    ("log-rotation-config-json",
     Text,
     r#"{"maxsize": 100, "maxage": 0, "maxbackups": 0, "localtime": false, "compress": false}"#,
     "=", Logging,
     "How to rotate: maxsize (MB), maxage (days), maxbackups, localtime, compress."),
    ("warning-unary-request-duration", Duration, "300ms", "=", Logging,
     "Log unary requests slower than this."),
    ("warning-apply-duration", Duration, "100ms", "=", Features, "Log applies slower than this."),
    ("watch-progress-notify-interval", Duration, "0s", "=", Features,
     "Period of watch progress (0: 10m)."),
    ("compaction-batch-limit", Int, "0", "=", Features,
     "Revisions removed in one slice of a compaction (0: 1000)."),
    ("compaction-sleep-interval", Duration, "0s", "=", Features,
     "Pause between two slices (0: 10ms)."),
    ("corrupt-check-time", Duration, "0s", "=", Features,
     "Period of hash checks between members (0: none)."),
    ("compact-hash-check-time", Duration, "1m0s", "=", Features,
     "Period of compact-hash checks, behind the gate CompactHashCheck."),
    ("downgrade-check-time", Duration, "5s", "=", Features,
     "Period at which a downgrade is looked after."),
    ("bootstrap-defrag-threshold-megabytes", Uint, "0", "=", Features,
     "Accepted for etcd's sake."),
    ("memory-mlock", Bool, "false", "=", Member,
     "Accepted for etcd's sake."),
    ("max-learners", Int, "1", "=", Features, "Learners a cluster may have."),
    ("feature-gates", Gates, "", "=", Member, "Gates to open or close: A=true,B=false."),
    ("enable-distributed-tracing", Bool, "false", "=", Tracing, "Send traces by OTLP."),
    ("distributed-tracing-address", Text, "localhost:4317", "=", Tracing,
     "Where the collector is."),
    ("distributed-tracing-service-name", Text, "etcd", "=", Tracing,
     "Name of the service in traces."),
    ("distributed-tracing-instance-id", Text, "", "=", Tracing, "Name of this instance in traces."),
    ("distributed-tracing-sampling-rate", Int, "0", "=", Tracing, "Spans kept of a million."),
    ("unsafe-no-fsync", Bool, "false", "=", Unsafe, "The same as --fsync=unsafe-no-fsync."),
    ("force-new-cluster", Bool, "false", "=", Unsafe,
     "Start again as a cluster of one, with the data."),
    ("config-file", Text, "", "", Member,
     "YAML or JSON file; all other flags and variables are then ignored."),
    ("version", Bool, "false", "", Member, "Print the versions and exit."),
    ("fsync", Word(&["safe", "unsafe-no-fsync", "memory"]), "safe", "=", Ringbolt,
     "What an acknowledged write survives: safe, unsafe-no-fsync or memory."),
    ("flush-interval", Duration, "100ms", "=", Ringbolt,
     "Most time between two flushes with unsafe-no-fsync."),
    ("io-engine", Word(&["auto", "uring", "epoll"]), "auto", "=", Ringbolt,
     "How to reach the kernel: auto, uring or epoll."),
    ("spin-us", Uint, "0", "=", Ringbolt,
     "Microseconds a shard polls before it sleeps; for cores of its own."),
    ("shards", Uint, "0", "=", Ringbolt,
     "Threads that serve (0: one per core the process may use)."),
    ("home-connections", Uint, "8", "=", Ringbolt,
     "Connections a keyspace has before further ones are spread over the shards."),
    ("memory-budget", Uint, "0", "=", Ringbolt,
     "Bytes that clients may make the process hold beside the store (0: by the memory there is)."),
    ("keyspace", Repeated, "", "=", Ringbolt,
     "One more store: name,listen-client-urls=U,fsync=M,data-dir=D,quota-backend-bytes=N."),
    ("unix-socket-mode", Text, "0600", "=", Ringbolt,
     "Permission bits of Unix socket files, octal."),
    ("unix-socket-owner", Text, "", "=", Ringbolt,
     "Owner of Unix socket files: uid, uid:gid or :gid."),
];

/// Flags that are accepted without a message and without any effect.
pub const IGNORED: &[&str] = &[
    "cluster-active-size",
    "cluster-remove-delay",
    "cluster-sync-interval",
    "config",
    "force",
    "max-result-buffer",
    "max-retry-attempts",
    "peer-heartbeat-interval",
    "peer-election-timeout",
    "retry-interval",
    "snapshot",
    "v",
    "vv",
    "test.coverprofile",
    "test.outputdir",
];

/// All flags, in the order of the table.
pub fn flags() -> impl Iterator<Item = Flag> {
    ROWS.iter().map(|&(name, kind, default, yaml, group, help)| {
        let yaml = if yaml == "=" { name } else { yaml };
        Flag { name, kind, default, yaml, group, help }
    })
}

/// The flag of that name.
#[must_use]
pub fn find(name: &str) -> Option<Flag> {
    flags().find(|flag| flag.name == name)
}

impl Flag {
    /// Its environment variable under a prefix: `ETCD_LISTEN_PEER_URLS`.
    #[must_use]
    pub fn env(&self, prefix: &str) -> String {
        format!("{prefix}_{}", self.name.to_uppercase().replace('-', "_"))
    }
}

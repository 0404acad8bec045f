//! Which path of which port is answered by what.
//!
//! ```text
//!              client  metrics  peer
//! /health …      yes     yes     no     also /livez, /readyz, /metrics
//! /version       yes     no      yes
//! /debug/vars    yes     no      no
//! /v3/…          yes     no      no     the gateway; see `gateway`
//! /members       no      no      yes    also /raft/probing, /downgrade/enabled
//! ```

use serde_json::{Value, json};

use super::answer::{Answer, PLAIN};
use super::parse::Request;
use super::probe::{Member, Probe};
use super::{Desk, Port, health, target};
use crate::log;
use crate::log::line::timestamp;

/// The content type of `/metrics`.
pub const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
const JSON: &str = "application/json";
/// Paths of the JSON gateway below `/v3/`.
const GATEWAY: &[&str] = &[
    "kv/range",
    "kv/put",
    "kv/deleterange",
    "kv/txn",
    "kv/compaction",
    "watch",
    "lease/grant",
    "lease/revoke",
    "kv/lease/revoke",
    "lease/keepalive",
    "lease/timetolive",
    "kv/lease/timetolive",
    "lease/leases",
    "kv/lease/leases",
    "cluster/member/add",
    "cluster/member/remove",
    "cluster/member/update",
    "cluster/member/list",
    "cluster/member/promote",
    "maintenance/alarm",
    "maintenance/status",
    "maintenance/defragment",
    "maintenance/hash",
    "maintenance/hashkv",
    "maintenance/snapshot",
    "maintenance/transfer-leadership",
    "maintenance/downgrade",
    "auth/enable",
    "auth/disable",
    "auth/status",
    "auth/authenticate",
    "auth/user/add",
    "auth/user/get",
    "auth/user/list",
    "auth/user/delete",
    "auth/user/changepw",
    "auth/user/grant",
    "auth/user/revoke",
    "auth/role/add",
    "auth/role/get",
    "auth/role/list",
    "auth/role/delete",
    "auth/role/grant",
    "auth/role/revoke",
    "lock/lock",
    "lock/unlock",
    "election/campaign",
    "election/proclaim",
    "election/leader",
    "election/observe",
    "election/resign",
];

/// Answers one request.
pub async fn answer(desk: &Desk, request: &Request) -> Answer {
    if desk.port != Port::Client {
        return route(desk, request).await;
    }
    if let Some(refusal) = foreign_host(desk, request) {
        return refusal;
    }
    let mut answer =
        if request.method == "OPTIONS" { Answer::empty(200) } else { route(desk, request).await };
    if let Some(origin) = allowed_origin(desk, request) {
        let cors = [
            ("Access-Control-Allow-Headers", "accept, content-type, authorization".to_owned()),
            ("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE".to_owned()),
            ("Access-Control-Allow-Origin", origin),
        ];
        answer.fields.splice(0..0, cors);
    }
    answer
}

/// A Host field nobody listed: a page in a browser may have been led here by a forged name.
fn foreign_host(desk: &Desk, request: &Request) -> Option<Answer> {
    let known = &desk.settings.host_whitelist;
    let host = match request.host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => request.host.split(':').next().unwrap_or_default(),
    };
    if known.is_empty() || known.iter().any(|name| name == "*" || name == host) {
        return None;
    }
    log::warn(
        "rejecting HTTP request to prevent DNS rebinding attacks",
        vec![("host", host.into())],
    );
    let text = format!(
        "The Host field {host:?} is not one this server answers to (CVE-2018-5702).\n\
         Add it to the list: --host-whitelist {host:?}, or use TLS.\n"
    );
    Some(Answer::plain(421, text))
}

fn allowed_origin(desk: &Desk, request: &Request) -> Option<String> {
    let known = &desk.settings.cors;
    if known.is_empty() || known.iter().any(|origin| origin == "*") {
        return Some("*".to_owned());
    }
    let origin = request.field("origin")?;
    known.iter().any(|known| known == origin).then(|| origin.to_owned())
}

async fn route(desk: &Desk, request: &Request) -> Answer {
    let (io, probe) = (&desk.io, &*desk.probe);
    let limit = desk.settings.read_time_max;
    let path = request.path.as_str();
    // As it was sent: Go's mux does not look behind escapes here, and escapes them once more.
    let sent = request.raw_path();
    let proper = target::clean(sent);
    if proper != sent && request.method != "CONNECT" {
        return redirect(request, &target::url(&proper, request.raw_query()));
    }
    match (desk.port, path) {
        (Port::Client | Port::Metrics, "/health") => {
            health::health(io, probe, limit, request).await
        }
        (Port::Client | Port::Metrics, "/metrics") => {
            // Receipt: what other shards have counted.
            probe.gather().await;
            metrics(probe, request)
        }
        (Port::Client | Port::Metrics, _)
            if path.starts_with("/livez") || path.starts_with("/readyz") =>
        {
            let checked = health::checks(io, probe, limit, request).await;
            checked.unwrap_or_else(Answer::not_found)
        }
        (Port::Client | Port::Peer, "/version") => only_get(request, || version(probe)),
        (Port::Client, "/debug/vars") => only_get(request, || variables(desk)),
        (Port::Client, "/v3") if desk.settings.gateway => {
            redirect(request, &target::url("/v3/", request.raw_query()))
        }
        (Port::Client, _) if desk.settings.gateway => gateway(request),
        (Port::Peer, "/members") => only_get(request, || members(probe)),
        (Port::Peer, "/downgrade/enabled") => {
            only_get(request, || Answer::new(200, PLAIN, "false"))
        }
        (Port::Peer, "/raft/probing") => {
            let now = timestamp(io.wall());
            Answer::new(200, PLAIN, format!("{{\"OK\":true,\"Now\":\"{now}\"}}\n"))
        }
        _ => Answer::not_found(),
    }
}

fn only_get(request: &Request, answer: impl FnOnce() -> Answer) -> Answer {
    if request.method == "GET" { answer() } else { Answer::wrong_method("GET") }
}

/// Sends a client to the one proper spelling of a path. Only who reads pages is told in one.
fn redirect(request: &Request, to: &str) -> Answer {
    let shown = to.replace('&', "&amp;").replace('\'', "&#39;");
    let body = format!("<a href=\"{shown}\">Temporary Redirect</a>.\n\n");
    let mut answer = match request.method.as_str() {
        "GET" | "HEAD" => Answer::new(307, "text/html; charset=utf-8", body),
        _ => Answer::empty(307),
    };
    answer.fields.push(("Location", to.to_owned()));
    answer
}

/// Any method is answered. The Prometheus text format is the only one there is.
fn metrics(probe: &dyn Probe, request: &Request) -> Answer {
    let mut answer = Answer::new(200, METRICS_TYPE, probe.metrics());
    let accepted = request.field("accept-encoding").unwrap_or_default();
    let takes_gzip = accepted.split(',').any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let refused = parts.any(|weight| matches!(weight, "q=0" | "q=0.0"));
        matches!(name, "gzip" | "*") && !refused
    });
    if takes_gzip {
        answer = answer.gzip();
    }
    answer.chunked = true;
    answer
}

fn version(probe: &dyn Probe) -> Answer {
    let versions = probe.versions();
    let (cluster, storage) = match versions.cluster {
        Some(cluster) => (cluster, versions.storage),
        None => ("not_decided".to_owned(), "3.5.0".to_owned()),
    };
    let server = versions.server;
    let body = format!(
        "{{\"etcdserver\":\"{server}\",\"etcdcluster\":\"{cluster}\",\"storage\":\"{storage}\"}}"
    );
    Answer::new(200, JSON, body)
}

/// The JSON gateway is not part of this build: a known path is told so, an unknown one as by etcd.
fn gateway(request: &Request) -> Answer {
    let path = request.path.as_str();
    let below = path.strip_prefix("/v3/").or_else(|| path.strip_prefix("/v3beta/"));
    let Some(below) = below else { return Answer::not_found() };
    let body = |code: u16, text: &str| format!("{{\"code\":{code}, \"message\":\"{text}\"}}");
    if !GATEWAY.contains(&below) {
        return Answer::new(404, JSON, body(5, "Not Found"));
    }
    let text = match request.method.as_str() {
        "POST" => "the JSON gateway is not part of this build; use gRPC",
        _ => "Method Not Allowed",
    };
    Answer::new(501, JSON, body(12, text))
}

fn members(probe: &dyn Probe) -> Answer {
    let rows: Vec<String> = probe.members().iter().map(member).collect();
    let mut answer = Answer::new(200, JSON, format!("[{}]\n", rows.join(",")));
    answer.fields.push(("X-Etcd-Cluster-Id", format!("{:x}", probe.cluster_id())));
    answer
}

/// Written by hand: the order of the keys is part of what peers have always seen.
fn member(member: &Member) -> String {
    let mut text = format!("{{\"id\":{},\"peerURLs\":{}", member.id, json!(member.peer_urls));
    if member.is_learner {
        text.push_str(",\"isLearner\":true");
    }
    if !member.name.is_empty() {
        text.push_str(&format!(",\"name\":{}", Value::from(member.name.as_str())));
    }
    if !member.client_urls.is_empty() {
        text.push_str(&format!(",\"clientURLs\":{}", json!(member.client_urls)));
    }
    text.push('}');
    text
}

fn variables(desk: &Desk) -> Answer {
    let raft = desk.probe.raft();
    let leads = raft.leader == raft.id;
    let hex = |id: u64| format!("{id:x}");
    let progress = if leads {
        let next = raft.commit + 1;
        let own = json!({"match": raft.commit, "next": next, "state": "StateReplicate"});
        json!({ hex(raft.id): own })
    } else {
        json!({})
    };
    let status = json!({
        "id": hex(raft.id),
        "term": raft.term,
        "vote": hex(raft.vote),
        "commit": raft.commit,
        "lead": hex(raft.leader),
        "raftState": if leads { "StateLeader" } else { "StateFollower" },
        "applied": raft.applied,
        "progress": progress,
        "leadtransferee": "0",
    });
    let figures = ringbolt_io::process::figures();
    // The keys of Go's allocator exist, so that readers find them; most have no meaning here.
    let memory = json!({
        "Alloc": figures.resident_bytes,
        "Sys": figures.virtual_bytes,
        "HeapAlloc": figures.resident_bytes,
        "HeapSys": figures.virtual_bytes,
        "NumGC": 0,
    });
    let body = format!(
        "{{\n\"cmdline\": {},\n\"file_descriptor_limit\": {},\n\"memstats\": {memory},\n\
         \"raft.status\": {status}\n}}\n",
        json!(desk.settings.command_line),
        figures.open_files_limit,
    );
    let mut answer = Answer::new(200, "application/json; charset=utf-8", body);
    answer.chunked = true;
    answer
}

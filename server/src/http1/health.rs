//! `/health`, `/livez` and `/readyz`.
//!
//! `/health` stops at the first thing that is wrong: an alarm, no leader, a read that fails.
//! `/livez` and `/readyz` make each of their checks and tell about all when one fails.

use std::time::Duration;

use ringbolt_io::Io;

use super::answer::{Answer, PLAIN};
use super::parse::Request;
use super::probe::{Alarm, Probe};
use crate::log;

const LIVEZ: &[&str] = &["serializable_read"];
const READYZ: &[&str] =
    &["data_corruption", "serializable_read", "linearizable_read", "non_learner"];
const TIMED_OUT: &str = "etcdserver: request timed out";

/// Answers `/health`.
pub async fn health(io: &Io, probe: &dyn Probe, limit: Duration, request: &Request) -> Answer {
    if request.method != "GET" {
        log::warn("/health error", vec![("status-code", 405.into())]);
        return Answer::wrong_method("GET");
    }
    let values = |name: &str| -> Vec<String> {
        request.query().filter(|(key, _)| key == name).map(|(_, value)| value).collect()
    };
    let serializable = values("serializable").first().is_some_and(|value| value == "true");
    let outcome = examine(io, probe, limit, serializable, &values("exclude")).await;
    probe.count_health(outcome.is_ok());
    match outcome {
        Ok(()) => Answer::new(200, PLAIN, r#"{"health":"true","reason":""}"#),
        Err(reason) => {
            let reason = serde_json::Value::from(reason);
            let text = format!("{{\"health\":\"false\",\"reason\":{reason}}}");
            let fields = vec![("output", text.clone().into()), ("status-code", 503.into())];
            log::warn("/health error", fields);
            Answer::plain(503, format!("{text}\n"))
        }
    }
}

async fn examine(
    io: &Io,
    probe: &dyn Probe,
    limit: Duration,
    serializable: bool,
    excluded: &[String],
) -> Result<(), String> {
    let alarm =
        probe.alarms().into_iter().find(|alarm| !excluded.iter().any(|name| name == alarm.name()));
    if let Some(alarm) = alarm {
        return Err(format!("ALARM {}", alarm.name()));
    }
    if !serializable && !probe.has_leader() {
        return Err("RAFT NO LEADER".to_owned());
    }
    let read =
        if serializable { probe.read_serializable() } else { linearizable(io, probe, limit).await };
    read.map_err(|error| format!("RANGE ERROR:{error}"))
}

async fn linearizable(io: &Io, probe: &dyn Probe, limit: Duration) -> Result<(), String> {
    // Receipt: the read point is known.
    let read = io.timeout(limit, probe.read_linearizable()).await;
    read.unwrap_or_else(|| Err(TIMED_OUT.to_owned()))
}

/// Answers `/livez`, `/readyz` and the paths of their single checks; `None`: no such check.
pub async fn checks(
    io: &Io,
    probe: &dyn Probe,
    limit: Duration,
    request: &Request,
) -> Option<Answer> {
    let path = request.path.clone();
    let (kind, rest, all) = match path.strip_prefix("/livez") {
        Some(rest) => ("livez", rest, LIVEZ),
        None => ("readyz", path.strip_prefix("/readyz")?, READYZ),
    };
    let wanted: Vec<&'static str> = match rest.strip_prefix('/') {
        None if rest.is_empty() => all.to_vec(),
        None => return None,
        Some(name) => all.iter().copied().filter(|known| *known == name).collect(),
    };
    if wanted.is_empty() {
        return None;
    }
    if request.method != "GET" {
        let fields = vec![("path", path.into()), ("status-code", 405.into())];
        log::warn("Health request error", fields);
        return Some(Answer::wrong_method("GET"));
    }
    let wanted = without_excluded(request, wanted);
    let verbose = request.query().any(|(key, _)| key == "verbose");
    let mut lines = String::new();
    let mut failures = Vec::new();
    for name in wanted {
        let outcome = check(io, probe, limit, name).await;
        probe.count_check(kind, name, outcome.is_ok());
        match outcome {
            Ok(()) => lines.push_str(&format!("[+]{name} ok\n")),
            Err(error) => {
                lines.push_str(&format!("[-]{name} failed: {error}\n"));
                failures.push(format!("{name}: {error}"));
            }
        }
    }
    if !failures.is_empty() {
        let fields = vec![
            ("path", path.into()),
            ("reason", failures.join("; ").into()),
            ("status-code", 503.into()),
        ];
        log::error("Health check error", fields);
        return Some(Answer::plain(503, format!("{lines}\n")));
    }
    let shown = if verbose { lines.as_str() } else { "" };
    Some(Answer::plain(200, format!("{shown}ok\n")))
}

fn without_excluded(request: &Request, wanted: Vec<&'static str>) -> Vec<&'static str> {
    let excluded: Vec<String> =
        request.query().filter(|(key, _)| key == "exclude").map(|(_, value)| value).collect();
    let unknown: Vec<String> = excluded
        .iter()
        .filter(|name| !wanted.contains(&name.as_str()))
        .map(|name| format!("{name:?}"))
        .collect();
    if !unknown.is_empty() {
        let fields = vec![("missing-health-checks", unknown.join(",").into())];
        log::warn("some health checks cannot be excluded", fields);
    }
    wanted.into_iter().filter(|name| !excluded.iter().any(|other| other == name)).collect()
}

async fn check(io: &Io, probe: &dyn Probe, limit: Duration, name: &str) -> Result<(), String> {
    match name {
        "data_corruption" if probe.alarms().contains(&Alarm::Corrupt) => {
            Err("alarm activated: CORRUPT".to_owned())
        }
        "serializable_read" => probe.read_serializable(),
        "linearizable_read" => linearizable(io, probe, limit).await,
        "non_learner" if probe.is_learner() => Err("not supported for learner".to_owned()),
        _ => Ok(()),
    }
}

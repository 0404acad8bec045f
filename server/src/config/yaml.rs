//! The configuration file: YAML or JSON, with etcd's keys and etcd's ideas of types.
//!
//! Durations are integer nanoseconds, URL lists one comma text, other lists sequences. A text may
//! be written as a number. Unknown keys have no effect, as in etcd, but they are named in the log.

use serde_json::Value as Json;

use super::help;
use super::notice::Notice;
use super::number::GoDuration;
use super::table::{Flag, Kind, flags};
use super::value::{Settings, Source, Value};

/// Why a file cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Told as a log line: exit 1.
    Verify(String),
    /// Told as the only line on standard error: exit 1.
    Plain(String),
    /// etcd panics: exit 2.
    Panic(String),
}

/// Reads a file's text over the defaults.
///
/// # Errors
/// See [`Trouble`].
pub fn parse(text: &str, notices: &mut Vec<Notice>) -> Result<Settings, Trouble> {
    let root: Json = if text.trim().is_empty() {
        Json::Null
    } else {
        serde_saphyr::from_str(text).map_err(|error| {
            let first = error.to_string().lines().next().unwrap_or_default().to_owned();
            Trouble::Verify(format!("error converting YAML to JSON: yaml: {first}"))
        })?
    };
    if !matches!(root, Json::Object(_) | Json::Null) {
        let what = mismatch(&root, "Go value", "embed.configYAML");
        return Err(Trouble::Verify(what));
    }
    let mut settings = Settings::default();
    let mut by_key: Vec<Flag> = flags().filter(|flag| !flag.yaml.is_empty()).collect();
    by_key.sort_by_key(|flag| flag.yaml);
    let mut bad_urls = None;
    for flag in &by_key {
        let Some(json) = look_up(&root, flag)? else { continue };
        match convert(flag, json) {
            Ok(value) => settings.set(flag, value, Source::File),
            Err(trouble @ Trouble::Verify(_)) => return Err(trouble),
            Err(other) => bad_urls = bad_urls.or(Some(other)),
        }
    }
    if let Some(trouble) = bad_urls {
        return Err(trouble);
    }
    let known: Vec<&str> = by_key.iter().map(|flag| flag.yaml).collect();
    let unknown = unknown_keys(&root, &known);
    if !unknown.is_empty() {
        let keys = unknown.iter().map(|key| match help::nearest_of(key, known.iter().copied()) {
            Some(nearest) => format!("{key} (nearest: {nearest})"),
            None => format!("{key} (known keys are the names of the flags: ringbolt --help)"),
        });
        let fields = vec![("keys", Json::from(keys.collect::<Vec<String>>()))];
        notices.push(Notice::warn("unknown keys of the configuration file are ignored", fields));
    }
    Ok(settings)
}

/// Walks to the flag's key. A level that is no map is a type error.
fn look_up<'a>(root: &'a Json, flag: &Flag) -> Result<Option<&'a Json>, Trouble> {
    let mut at = root;
    let mut walked: Vec<&str> = Vec::new();
    for part in flag.yaml.split('.') {
        match at {
            Json::Null => return Ok(None),
            Json::Object(map) => match map.get(part) {
                Some(next) => at = next,
                None => return Ok(None),
            },
            other => {
                let key = walked.join(".");
                let (place, kind) = if key.ends_with("-security") {
                    ("configYAML.configJSON", "embed.securityConfig")
                } else {
                    ("configYAML.Config", "map")
                };
                let field = format!("Go struct field {place}.{key}");
                return Err(Trouble::Verify(mismatch(other, &field, kind)));
            }
        }
        walked.push(part);
    }
    Ok((!at.is_null()).then_some(at))
}

fn convert(flag: &Flag, json: &Json) -> Result<Value, Trouble> {
    let wrong = |kind: &str| Trouble::Verify(mismatch(json, &field(flag), kind));
    let number = |kind: &str| match json {
        Json::Number(_) => {
            let what = format!("number {json}");
            Trouble::Verify(cannot(&what, &field(flag), kind))
        }
        _ => wrong(kind),
    };
    match flag.kind {
        Kind::Bool => json.as_bool().map(Value::Bool).ok_or_else(|| wrong("bool")),
        Kind::Uint => json.as_u64().map(Value::Uint).ok_or_else(|| number("uint")),
        Kind::Uint32 => {
            let small = json.as_u64().filter(|value| u32::try_from(*value).is_ok());
            small.map(Value::Uint).ok_or_else(|| number("uint32"))
        }
        Kind::Int => json.as_i64().map(Value::Int).ok_or_else(|| number("int")),
        Kind::Duration => {
            let nanos = json.as_i64().map(|nanos| Value::Duration(GoDuration(nanos)));
            nanos.ok_or_else(|| number("time.Duration"))
        }
        Kind::List | Kind::Repeated => list(json).map(Value::List).ok_or_else(|| wrong("[]string")),
        kind => {
            let text = scalar(json).ok_or_else(|| wrong("string"))?;
            Value::parse(kind, &text).map_err(|why| unreadable(flag, &text, why))
        }
    }
}

fn unreadable(flag: &Flag, text: &str, why: String) -> Trouble {
    match flag.kind {
        Kind::Urls => Trouble::Plain(format!("unexpected error setting up {}: {why}", flag.name)),
        Kind::Origins => Trouble::Panic(format!("new UniqueURLs should never fail: {why}")),
        Kind::Word(_) if flag.name == "initial-cluster-state" => {
            Trouble::Verify(format!("unexpected clusterState {text:?}"))
        }
        Kind::Word(words) => {
            let words = words.join(", ");
            Trouble::Verify(format!("invalid value {text:?} for {}: one of {words}", flag.yaml))
        }
        _ => Trouble::Verify(why),
    }
}

fn scalar(json: &Json) -> Option<String> {
    match json {
        Json::String(text) => Some(text.clone()),
        // As Go writes a float; `0660` is read as one.
        Json::Number(number) => {
            let text = number.to_string();
            Some(text.strip_suffix(".0").unwrap_or(&text).to_owned())
        }
        Json::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

fn list(json: &Json) -> Option<Vec<String>> {
    json.as_array()?.iter().map(scalar).collect()
}

/// The field as Go's decoder names it.
fn field(flag: &Flag) -> String {
    let place = match flag.yaml.rsplit_once('.').map_or("", |(parent, _)| parent) {
        "" if matches!(flag.kind, Kind::Urls | Kind::CommaList | Kind::Origins) => {
            "configYAML.configJSON"
        }
        "" => "configYAML.Config",
        "socket-options" => "SocketOpts.Config",
        "discovery-config" => "DiscoveryConfig.Config",
        "discovery-config.client" => "ConfigSpec.Config",
        "discovery-config.client.secure" => "SecureConfig.Config",
        "discovery-config.client.auth" => "AuthConfig.Config",
        _ => "securityConfig.configJSON",
    };
    format!("Go struct field {place}.{}", flag.yaml)
}

fn mismatch(json: &Json, field: &str, kind: &str) -> String {
    let what = match json {
        Json::Null => "null",
        Json::Bool(_) => "bool",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    };
    cannot(what, field, kind)
}

fn cannot(what: &str, field: &str, kind: &str) -> String {
    let head = "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal";
    format!("{head} {what} into {field} of type {kind}")
}

fn unknown_keys(root: &Json, known: &[&str]) -> Vec<String> {
    let mut unknown = Vec::new();
    collect_unknown(root, "", known, &mut unknown);
    unknown
}

/// The depth of the walk is bounded by the depth of the known keys.
fn collect_unknown(json: &Json, prefix: &str, known: &[&str], unknown: &mut Vec<String>) {
    let Json::Object(map) = json else { return };
    for (name, value) in map {
        let key = format!("{prefix}{name}");
        if known.contains(&key.as_str()) {
            continue;
        }
        let below = format!("{key}.");
        if known.iter().any(|name| name.starts_with(&below)) {
            collect_unknown(value, &below, known, unknown);
        } else {
            unknown.push(key);
        }
    }
}

//! The command line, in the syntax of Go's flag package.
//!
//! One or two dashes; `-name=value` or `-name value`; a boolean takes its value only behind `=`;
//! the first argument that is no flag, or `--`, ends the flags. clap cannot be told any of this.

use super::number::parse_bool;
use super::table::{Flag, Group, IGNORED, Kind, find};
use super::value::{Settings, Source, Value};

/// What the command line asked for.
#[derive(Debug)]
pub enum Parsed {
    /// Settings, and the first argument that is no flag.
    Settings(Box<Settings>, Option<String>),
    /// `-h` or `--help`.
    Help,
    /// The first line of the error; an unknown flag comes with its name.
    Wrong(String, Option<String>),
}

/// Reads the arguments behind the program's name.
#[must_use]
pub fn parse(arguments: &[String]) -> Parsed {
    let mut settings = Settings::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let Some(body) = argument.strip_prefix('-').filter(|body| !body.is_empty()) else {
            return Parsed::Settings(Box::new(settings), Some(argument.clone()));
        };
        let body = body.strip_prefix('-').unwrap_or(body);
        if body.is_empty() {
            return Parsed::Settings(Box::new(settings), rest.next().cloned());
        }
        if body.starts_with(['-', '=']) {
            return Parsed::Wrong(format!("bad flag syntax: {argument}"), None);
        }
        let (name, inline) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (body, None),
        };
        if IGNORED.contains(&name) {
            continue;
        }
        let Some(flag) = find(name) else {
            if matches!(name, "h" | "help") {
                return Parsed::Help;
            }
            let line = format!("flag provided but not defined: -{name}");
            return Parsed::Wrong(line, Some(name.to_owned()));
        };
        let text = match (inline, flag.kind) {
            (Some(text), _) => text,
            (None, Kind::Bool) => "true",
            (None, _) => match rest.next() {
                Some(text) => text,
                None => return Parsed::Wrong(format!("flag needs an argument: -{name}"), None),
            },
        };
        match read(&flag, text) {
            Ok(value) => settings.set(&flag, value, Source::CommandLine),
            Err(line) => return Parsed::Wrong(line, None),
        }
    }
    Parsed::Settings(Box::new(settings), None)
}

fn read(flag: &Flag, text: &str) -> Result<Value, String> {
    if flag.kind == Kind::Bool && parse_bool(text).is_none() {
        return Err(format!("invalid boolean value {text:?} for -{}: parse error", flag.name));
    }
    Value::parse(flag.kind, text).map_err(|why| {
        format!("invalid value {text:?} for flag -{}: {why}{}", flag.name, forms(flag))
    })
}

/// What a flag of our own takes, behind what is wrong; etcd's own flags keep etcd's line.
#[must_use]
pub fn forms(flag: &Flag) -> String {
    match flag.kind {
        _ if flag.group != Group::Ringbolt => String::new(),
        Kind::Word(words) => format!(": one of {}", words.join(", ")),
        Kind::Uint if flag.name.ends_with("budget") => {
            ": a number of bytes, as 536870912".to_owned()
        }
        Kind::Uint | Kind::Int => ": a whole number".to_owned(),
        Kind::Duration => ": a number with its unit, as 100ms or 5s".to_owned(),
        _ => String::new(),
    }
}

//! Values of flags and the settings they make up.

use std::collections::BTreeMap;

use super::gates::Gates;
use super::number::{GoDuration, parse_bool, parse_int, parse_uint, parse_uint32};
use super::table::{Flag, Kind, flags};
use super::url::Url;

/// A value as its kind reads it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `Text`, `Word`, `QuotedWord`.
    Text(String),
    /// `Bool`.
    Bool(bool),
    /// `Uint`, `Uint32`.
    Uint(u64),
    /// `Int`.
    Int(i64),
    /// `Duration`.
    Duration(GoDuration),
    /// `Urls`.
    Urls(Vec<Url>),
    /// `List`, `CommaList`, `Origins`, `Repeated`.
    List(Vec<String>),
    /// `Gates`.
    Gates(Gates),
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The table.
    Default,
    /// An environment variable.
    Environment,
    /// The command line.
    CommandLine,
    /// The configuration file.
    File,
}

impl Value {
    /// Reads `text` as `kind` asks.
    ///
    /// # Errors
    /// Go's text, as it stands behind `invalid value "x" for flag -y: `.
    pub fn parse(kind: Kind, text: &str) -> Result<Value, String> {
        let list = || Value::List(split_list(text));
        Ok(match kind {
            Kind::Text => Value::Text(text.to_owned()),
            Kind::Bool => Value::Bool(parse_bool(text).ok_or("parse error")?),
            Kind::Uint => Value::Uint(parse_uint(text)?),
            Kind::Uint32 => Value::Uint(parse_uint32(text)?),
            Kind::Int => Value::Int(parse_int(text)?),
            Kind::Duration => {
                Value::Duration(GoDuration::parse(text).map_err(|_| "parse error".to_owned())?)
            }
            Kind::Urls if text.is_empty() => Value::Urls(Vec::new()),
            Kind::Urls => Value::Urls(Url::parse_list(text)?),
            Kind::Origins if text == "*" => list(),
            Kind::Origins => Value::List(super::url::texts(&Url::parse_list(text)?)),
            Kind::List | Kind::CommaList => list(),
            Kind::Repeated => Value::List(vec![text.to_owned()]),
            Kind::Word(words) if words.contains(&text) => Value::Text(text.to_owned()),
            Kind::Word(_) => return Err("invalid value".to_owned()),
            Kind::QuotedWord(words) if words.contains(&text) => Value::Text(text.to_owned()),
            Kind::QuotedWord(_) => return Err(format!("invalid value {text:?}")),
            Kind::Gates => Value::Gates(Gates::parse(text)?),
        })
    }
}

fn split_list(text: &str) -> Vec<String> {
    if text.is_empty() { Vec::new() } else { text.split(',').map(str::to_owned).collect() }
}

/// The value of every flag, with its source.
#[derive(Clone, Debug)]
pub struct Settings {
    values: BTreeMap<&'static str, (Value, Source)>,
}

impl Default for Settings {
    fn default() -> Settings {
        let default = |flag: Flag| {
            let value = match flag.kind {
                Kind::Repeated => Value::List(Vec::new()),
                kind => Value::parse(kind, flag.default).expect("defaults of the table are sound"),
            };
            (flag.name, (value, Source::Default))
        };
        Settings { values: flags().map(default).collect() }
    }
}

impl Settings {
    /// Sets a flag; a repeated one gains an entry.
    pub fn set(&mut self, flag: &Flag, value: Value, source: Source) {
        let slot = self.values.get_mut(flag.name).expect("flags come from the table");
        match (&mut slot.0, value) {
            // etcd keeps the default listeners when a URL list is set to nothing.
            (Value::Urls(_), Value::Urls(urls)) if urls.is_empty() => slot.1 = source,
            (Value::List(entries), Value::List(more)) if flag.kind == Kind::Repeated => {
                entries.extend(more);
                slot.1 = source;
            }
            (_, value) => *slot = (value, source),
        }
    }

    /// Whether anybody set the flag.
    #[must_use]
    pub fn is_set(&self, name: &str) -> bool {
        self.source(name) != Source::Default
    }

    /// Who set the flag.
    #[must_use]
    pub fn source(&self, name: &str) -> Source {
        self.slot(name).1
    }

    /// Whether the flag has the value of the table, whoever set it.
    #[must_use]
    pub fn is_default(&self, flag: &Flag) -> bool {
        match (&self.slot(flag.name).0, flag.kind) {
            (Value::List(entries), Kind::Repeated) => entries.is_empty(),
            (value, kind) => Value::parse(kind, flag.default).as_ref() == Ok(value),
        }
    }

    /// A text or word.
    #[must_use]
    pub fn text(&self, name: &str) -> String {
        match &self.slot(name).0 {
            Value::Text(value) => value.clone(),
            other => unreachable!("{name} is {other:?}"),
        }
    }

    /// A switch.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        match &self.slot(name).0 {
            Value::Bool(value) => *value,
            other => unreachable!("{name} is {other:?}"),
        }
    }

    /// A number from 0.
    #[must_use]
    pub fn uint(&self, name: &str) -> u64 {
        match &self.slot(name).0 {
            Value::Uint(value) => *value,
            other => unreachable!("{name} is {other:?}"),
        }
    }

    /// A number with a sign.
    #[must_use]
    pub fn int(&self, name: &str) -> i64 {
        match &self.slot(name).0 {
            Value::Int(value) => *value,
            other => unreachable!("{name} is {other:?}"),
        }
    }

    /// A duration.
    #[must_use]
    pub fn duration(&self, name: &str) -> GoDuration {
        match &self.slot(name).0 {
            Value::Duration(value) => *value,
            other => unreachable!("{name} is {other:?}"),
        }
    }

    /// A URL list.
    #[must_use]
    pub fn urls(&self, name: &str) -> Vec<Url> {
        match &self.slot(name).0 {
            Value::Urls(value) => value.clone(),
            other => unreachable!("{name} is {other:?}"),
        }
    }

    /// A list of texts.
    #[must_use]
    pub fn list(&self, name: &str) -> Vec<String> {
        match &self.slot(name).0 {
            Value::List(value) => value.clone(),
            other => unreachable!("{name} is {other:?}"),
        }
    }

    /// The gates.
    #[must_use]
    pub fn gates(&self, name: &str) -> Gates {
        match &self.slot(name).0 {
            Value::Gates(value) => value.clone(),
            other => unreachable!("{name} is {other:?}"),
        }
    }

    fn slot(&self, name: &str) -> &(Value, Source) {
        self.values.get(name).expect("callers name flags of the table")
    }
}

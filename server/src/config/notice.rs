//! Log lines of a time before there is a log: kept as data, written once it is open.

use serde_json::Value;

/// How serious a line is, in etcd's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For whoever looks for a fault.
    Debug,
    /// What happens.
    Info,
    /// What should not happen.
    Warn,
    /// What went wrong.
    Error,
    /// A broken invariant.
    Panic,
    /// What the process ends for.
    Fatal,
}

impl Level {
    /// The word in the log.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
            Level::Panic => "panic",
            Level::Fatal => "fatal",
        }
    }

    /// Reads the word of `--log-level`.
    #[must_use]
    pub fn parse(word: &str) -> Option<Level> {
        let all =
            [Level::Debug, Level::Info, Level::Warn, Level::Error, Level::Panic, Level::Fatal];
        all.into_iter().find(|level| level.word() == word.to_ascii_lowercase())
    }
}

/// One line to come.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// Its level.
    pub level: Level,
    /// Its message.
    pub message: String,
    /// Its own fields, in order.
    pub fields: Fields,
}

/// Names and values of a line, in the order they are written.
pub type Fields = Vec<(&'static str, Value)>;

impl Notice {
    /// A line with fields.
    #[must_use]
    pub fn new(level: Level, message: &str, fields: Fields) -> Notice {
        Notice { level, message: message.to_owned(), fields }
    }

    /// A line about what happens.
    #[must_use]
    pub fn info(message: &str, fields: Fields) -> Notice {
        Notice::new(Level::Info, message, fields)
    }

    /// A line about what should not be.
    #[must_use]
    pub fn warn(message: &str, fields: Fields) -> Notice {
        Notice::new(Level::Warn, message, fields)
    }

    /// The line the process ends for.
    #[must_use]
    pub fn fatal(message: &str, fields: Fields) -> Notice {
        Notice::new(Level::Fatal, message, fields)
    }
}

/// A variable was used.
#[must_use]
pub fn used_variable(key: &str, text: &str) -> Notice {
    let fields = vec![("variable-name", key.into()), ("variable-value", text.into())];
    Notice::info("recognized and used environment variable", fields)
}

/// An `ETCD_*` variable nobody knows.
#[must_use]
pub fn unknown_variable(assignment: &str) -> Notice {
    let fields = vec![("environment-variable", assignment.into())];
    Notice::warn("unrecognized environment variable", fields)
}

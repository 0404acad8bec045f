//! One log line in etcd's two shapes.
//!
//! ```text
//! json     {"level":"info","ts":"…","logger":"raft","caller":"start/mod.rs:7","msg":"…","k":…}
//! console  ts \t level \t caller \t msg \t {"k": …}
//! ```
//! Lines from `error` up end with where they come from (`stacktrace`).

use ringbolt_io::WallTime;
use serde_json::Value;

use crate::config::notice::{Fields, Level};

/// The parts of a line.
#[derive(Debug)]
pub struct Line<'a> {
    /// Its level.
    pub level: Level,
    /// When.
    pub time: WallTime,
    /// `raft` for lines of consensus; empty otherwise.
    pub logger: &'a str,
    /// Directory, file and line of the source.
    pub caller: &'a str,
    /// The module it comes from.
    pub module: &'a str,
    /// The message.
    pub message: &'a str,
    /// Its own fields.
    pub fields: &'a Fields,
}

impl Line<'_> {
    /// As a line of JSON.
    #[must_use]
    pub fn json(&self) -> String {
        let mut text = String::with_capacity(256);
        text.push_str("{\"level\":\"");
        text.push_str(self.level.word());
        text.push_str("\",\"ts\":\"");
        text.push_str(&timestamp(self.time));
        text.push('"');
        if !self.logger.is_empty() {
            push_pair(&mut text, "logger", &self.logger.into(), ":");
        }
        push_pair(&mut text, "caller", &self.caller.into(), ":");
        push_pair(&mut text, "msg", &self.message.into(), ":");
        for (key, value) in self.fields {
            push_pair(&mut text, key, value, ":");
        }
        if self.level >= Level::Error {
            push_pair(&mut text, "stacktrace", &self.origin().into(), ":");
        }
        text.push_str("}\n");
        text
    }

    /// As a line for people.
    #[must_use]
    pub fn console(&self) -> String {
        let mut text = timestamp(self.time);
        for part in [self.level.word(), self.logger, self.caller, self.message] {
            if !part.is_empty() {
                text.push('\t');
                text.push_str(part);
            }
        }
        if !self.fields.is_empty() {
            text.push_str("\t{");
            for (index, (key, value)) in self.fields.iter().enumerate() {
                if index > 0 {
                    text.push_str(", ");
                }
                text.push_str(&format!("{}: {}", Value::from(*key), spaced(value)));
            }
            text.push('}');
        }
        text.push('\n');
        if self.level >= Level::Error {
            text.push_str(&self.origin());
            text.push('\n');
        }
        text
    }

    fn origin(&self) -> String {
        format!("{}\n\t{}", self.module, self.caller)
    }
}

fn push_pair(text: &mut String, key: &str, value: &Value, colon: &str) {
    text.push(',');
    text.push_str(&Value::from(key).to_string());
    text.push_str(colon);
    text.push_str(&value.to_string());
}

/// JSON with a blank behind each comma and colon.
fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(spaced).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let pairs: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{}: {}", Value::from(key.as_str()), spaced(value)))
                .collect();
            format!("{{{}}}", pairs.join(", "))
        }
        other => other.to_string(),
    }
}

/// `2026-11-30T10:50:23.755229Z`.
#[must_use]
pub fn timestamp(time: WallTime) -> String {
    let seconds = time.as_secs();
    let micros = time.0 / 1000 % 1_000_000;
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Year, month and day of a day counted from the Unix epoch, in the Gregorian calendar.
///
/// Years begin in March here, so that the leap day is the last one of its year.
#[must_use]
pub fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // from 0000-03-01 to 1970-01-01
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let leap_days = day_of_era / 1460 + day_of_era / 146_096;
    let year_of_era = (day_of_era + day_of_era / 36_524 - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Days around leap years and centuries.
    #[test]
    fn dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(11_017), (2000, 3, 1));
        assert_eq!(civil(20_787), (2026, 11, 30));
        assert_eq!(civil(47_540), (2100, 2, 28));
        assert_eq!(civil(47_541), (2100, 3, 1));
        let time = WallTime(1_796_034_889_476_665_097);
        assert_eq!(timestamp(time), "2026-11-30T10:34:49.476665Z");
    }

    /// The two shapes, with and without logger, fields and origin.
    #[test]
    fn shapes() {
        let fields: Fields = vec![("args", vec!["a", "b\"c"].into()), ("n", 5.into())];
        let line = Line {
            level: Level::Info,
            time: WallTime(0),
            logger: "",
            caller: "start/mod.rs:7",
            module: "ringbolt_server::start",
            message: "Running: ",
            fields: &fields,
        };
        let head = r#"{"level":"info","ts":"1970-01-01T00:00:00.000000Z""#;
        let json = format!(
            "{head},\"caller\":\"start/mod.rs:7\",\"msg\":\"Running: \",{}\n",
            r#""args":["a","b\"c"],"n":5}"#
        );
        assert_eq!(line.json(), json);
        let console = "1970-01-01T00:00:00.000000Z\tinfo\tstart/mod.rs:7\tRunning: \t\
             {\"args\": [\"a\", \"b\\\"c\"], \"n\": 5}\n";
        assert_eq!(line.console(), console);
        let none = Vec::new();
        let line = Line { level: Level::Fatal, logger: "raft", fields: &none, ..line };
        let json = line.json();
        assert!(json.contains(r#","logger":"raft","caller":"#), "{json}");
        let end = "\"stacktrace\":\"ringbolt_server::start\\n\\tstart/mod.rs:7\"}\n";
        assert!(json.ends_with(end), "{json}");
        assert!(line.console().ends_with("Running: \nringbolt_server::start\n\tstart/mod.rs:7\n"));
    }
}

//! etcd's feature gates: names, stages and defaults.

use std::collections::BTreeMap;

use super::number::parse_bool;

/// How settled a gate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Off unless asked for.
    Alpha,
    /// On unless switched off.
    Beta,
}

impl Stage {
    /// As a metric label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Stage::Alpha => "ALPHA",
            Stage::Beta => "BETA",
        }
    }
}

/// Name, stage and default of every gate of 3.7.
pub const GATES: &[(&str, Stage, bool)] = &[
    ("AllAlpha", Stage::Alpha, false),
    ("AllBeta", Stage::Beta, false),
    ("CompactHashCheck", Stage::Alpha, false),
    ("FastLeaseKeepAlive", Stage::Beta, true),
    ("InitialCorruptCheck", Stage::Alpha, false),
    ("LeaseCheckpoint", Stage::Alpha, false),
    ("LeaseCheckpointPersist", Stage::Alpha, false),
    ("PriorityRequest", Stage::Alpha, false),
    ("SetMemberLocalAddr", Stage::Alpha, false),
    ("StopGRPCServiceOnDefrag", Stage::Alpha, false),
    ("TxnModeWriteWithSharedBuffer", Stage::Beta, true),
];

/// What the user asked of the gates: name to wanted state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    wanted: BTreeMap<String, bool>,
}

impl Gates {
    /// Reads `A=true,B=false`.
    ///
    /// # Errors
    /// etcd's text: unknown gate, missing or bad bool.
    pub fn parse(text: &str) -> Result<Gates, String> {
        let mut wanted = BTreeMap::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let Some((name, value)) = part.split_once('=') else {
                return Err(format!("missing bool value for {part}"));
            };
            let (name, value) = (name.trim(), value.trim());
            let Some(open) = parse_bool(value) else {
                let cause = format!("strconv.ParseBool: parsing {value:?}: invalid syntax");
                return Err(format!("invalid value of {name}={value}, err: {cause}"));
            };
            if !GATES.iter().any(|(known, ..)| *known == name) {
                return Err(format!("unrecognized feature gate: {name}"));
            }
            wanted.insert(name.to_owned(), open);
        }
        Ok(Gates { wanted })
    }

    /// The gate that took the place of a flag of earlier releases: `InitialCorruptCheck` for
    /// `experimental-initial-corrupt-check`.
    #[must_use]
    pub fn of_flag(flag: &str) -> Option<&'static str> {
        let name = flag.strip_prefix("experimental-")?;
        let name = name.strip_prefix("enable-").unwrap_or(name);
        let name = name.strip_suffix("-enabled").unwrap_or(name).replace('-', "");
        GATES.iter().map(|(gate, ..)| *gate).find(|gate| gate.eq_ignore_ascii_case(&name))
    }

    /// Whether a gate is open. `AllAlpha` and `AllBeta` speak for the gates nobody named.
    #[must_use]
    pub fn is_open(&self, name: &str) -> bool {
        let row = GATES.iter().find(|(known, ..)| *known == name);
        let (_, stage, default) = row.expect("callers name gates of the table");
        let all = match stage {
            Stage::Alpha => "AllAlpha",
            Stage::Beta => "AllBeta",
        };
        let named = self.wanted.get(name).or_else(|| self.wanted.get(all));
        named.copied().unwrap_or(*default)
    }
}

impl std::fmt::Display for Gates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> =
            self.wanted.iter().map(|(name, open)| format!("{name}={open}")).collect();
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names are checked, groups speak for the unnamed.
    #[test]
    fn gates() {
        let error = Gates::parse("Foo=true").expect_err("no such gate");
        assert_eq!(error, "unrecognized feature gate: Foo");
        let error = Gates::parse("LeaseCheckpoint").expect_err("no value");
        assert_eq!(error, "missing bool value for LeaseCheckpoint");
        let gates = Gates::parse("AllAlpha=true,LeaseCheckpoint=false").expect("good gates");
        assert!(gates.is_open("InitialCorruptCheck"));
        assert!(!gates.is_open("LeaseCheckpoint"));
        assert!(gates.is_open("FastLeaseKeepAlive"));
        assert_eq!(gates.to_string(), "AllAlpha=true,LeaseCheckpoint=false");
    }
}

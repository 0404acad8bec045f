//! Go's texts for numbers, booleans and durations.
//!
//! A flag that etcd accepts must be accepted here, and refused with the same words: hence Go's
//! bases, underscores, boolean words and duration units.

/// A duration as Go counts it. Unit: nanoseconds, with a sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(pub i64);

const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl GoDuration {
    /// A time as Go counts it.
    #[must_use]
    pub fn of(time: std::time::Duration) -> GoDuration {
        GoDuration(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
    }

    /// As a time to wait; nothing when it is negative.
    #[must_use]
    pub fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }

    /// Reads Go's syntax: `1h30m`, `2.5s`, `-5ms`, `0`.
    ///
    /// # Errors
    /// Go's text: invalid duration, missing unit or unknown unit.
    pub fn parse(text: &str) -> Result<GoDuration, String> {
        let invalid = || format!("time: invalid duration {text:?}");
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(GoDuration(0));
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total: i128 = 0;
        while !rest.is_empty() {
            let number_size = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
            let (number, tail) = rest.split_at(number_size);
            if number.bytes().filter(|b| *b == b'.').count() > 1
                || !number.bytes().any(|b| b.is_ascii_digit())
            {
                return Err(invalid());
            }
            let unit_size = tail.find(|c: char| c == '.' || c.is_ascii_digit());
            let (unit, tail) = tail.split_at(unit_size.unwrap_or(tail.len()));
            if unit.is_empty() {
                return Err(format!("time: missing unit in duration {text:?}"));
            }
            let scale = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
            let Some(scale) = scale else {
                return Err(format!("time: unknown unit {unit:?} in duration {text:?}"));
            };
            total += scaled(number, scale).ok_or_else(invalid)?;
            rest = tail;
        }
        let total = if negative { -total } else { total };
        i64::try_from(total).map(GoDuration).map_err(|_| invalid())
    }
}

/// `number` times `scale`, digits behind the point cut off below a nanosecond.
fn scaled(number: &str, scale: i64) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = whole.checked_mul(i128::from(scale))?;
    let mut place = i128::from(scale);
    for digit in fraction.bytes() {
        place /= 10;
        total += i128::from(digit - b'0') * place;
    }
    Some(total)
}

impl std::fmt::Display for GoDuration {
    /// As Go prints it: `1m0s`, `1.5s`, `300ms`, `0s`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nanos = self.0.unsigned_abs();
        let sign = if self.0 < 0 { "-" } else { "" };
        let (scale, unit) = match nanos {
            0 => return f.write_str("0s"),
            1..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "µs"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => return long(f, sign, nanos),
        };
        write!(f, "{sign}{}{unit}", decimal(nanos, scale))
    }
}

fn long(f: &mut std::fmt::Formatter<'_>, sign: &str, nanos: u64) -> std::fmt::Result {
    const SECOND: u64 = 1_000_000_000;
    let minutes_all = nanos / (60 * SECOND);
    let seconds = decimal(nanos % (60 * SECOND), SECOND);
    match (minutes_all / 60, minutes_all % 60) {
        (0, 0) => write!(f, "{sign}{seconds}s"),
        (0, minutes) => write!(f, "{sign}{minutes}m{seconds}s"),
        (hours, minutes) => write!(f, "{sign}{hours}h{minutes}m{seconds}s"),
    }
}

fn decimal(value: u64, scale: u64) -> String {
    let whole = value / scale;
    let fraction = value % scale;
    if fraction == 0 {
        return whole.to_string();
    }
    let digits = scale.ilog10();
    let width = usize::try_from(digits).expect("at most nine digits");
    format!("{whole}.{}", format!("{fraction:0width$}").trim_end_matches('0'))
}

/// Go's `ParseBool`.
#[must_use]
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Go's `ParseUint` with base 0.
///
/// # Errors
/// The short text of Go's flag package.
pub fn parse_uint(text: &str) -> Result<u64, &'static str> {
    let magnitude = parse_magnitude(text)?;
    u64::try_from(magnitude).map_err(|_| "value out of range")
}

/// Go's `ParseInt` with base 0.
///
/// # Errors
/// The short text of Go's flag package.
pub fn parse_int(text: &str) -> Result<i64, &'static str> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let magnitude = i128::try_from(parse_magnitude(digits)?).map_err(|_| "value out of range")?;
    let value = if negative { -magnitude } else { magnitude };
    i64::try_from(value).map_err(|_| "value out of range")
}

/// Go's `ParseUint` with base 10 and 32 bits, whose error keeps the function's name.
///
/// # Errors
/// Go's long text.
pub fn parse_uint32(text: &str) -> Result<u64, String> {
    let problem = |why: &str| format!("strconv.ParseUint: parsing {text:?}: {why}");
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(problem("invalid syntax"));
    }
    match text.parse::<u32>() {
        Ok(value) => Ok(u64::from(value)),
        Err(_) => Err(problem("value out of range")),
    }
}

fn parse_magnitude(text: &str) -> Result<u128, &'static str> {
    const SYNTAX: &str = "parse error";
    let lower = text.to_ascii_lowercase();
    let (base, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    let prefixed = digits.len() != lower.len();
    let mut value: u128 = 0;
    let mut last_is_digit = prefixed;
    for byte in digits.bytes() {
        // An underscore stands between digits or behind the base prefix.
        if byte == b'_' {
            if !last_is_digit {
                return Err(SYNTAX);
            }
            last_is_digit = false;
            continue;
        }
        let digit = char::from(byte).to_digit(base).ok_or(SYNTAX)?;
        value = value.saturating_mul(u128::from(base)).saturating_add(u128::from(digit));
        last_is_digit = true;
    }
    if digits.is_empty() || !last_is_digit {
        return Err(SYNTAX);
    }
    Ok(value.min(u128::from(u64::MAX) + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Durations read and print as Go's do.
    #[test]
    fn durations() {
        let rows = [
            ("0", 0, "0s"),
            ("5s", 5_000_000_000, "5s"),
            ("1m", 60_000_000_000, "1m0s"),
            ("2h", 7_200_000_000_000, "2h0m0s"),
            ("1h30m5.5s", 5_405_500_000_000, "1h30m5.5s"),
            ("300ms", 300_000_000, "300ms"),
            ("1.5us", 1_500, "1.5µs"),
            ("-5ms", -5_000_000, "-5ms"),
            (".5s", 500_000_000, "500ms"),
            ("7ns", 7, "7ns"),
        ];
        for (text, nanos, printed) in rows {
            assert_eq!(GoDuration::parse(text), Ok(GoDuration(nanos)), "{text}");
            assert_eq!(GoDuration(nanos).to_string(), printed);
        }
        let errors = [
            ("foo", "time: invalid duration \"foo\""),
            ("", "time: invalid duration \"\""),
            ("5", "time: missing unit in duration \"5\""),
            ("5x", "time: unknown unit \"x\" in duration \"5x\""),
            ("1..s", "time: invalid duration \"1..s\""),
            ("300000000h", "time: invalid duration \"300000000h\""),
        ];
        for (text, error) in errors {
            assert_eq!(GoDuration::parse(text), Err(error.to_owned()));
        }
    }

    /// Numbers take Go's bases and give Go's errors.
    #[test]
    fn numbers() {
        assert_eq!(parse_uint("100"), Ok(100));
        assert_eq!(parse_uint("0x10"), Ok(16));
        assert_eq!(parse_uint("0b101"), Ok(5));
        assert_eq!(parse_uint("017"), Ok(15));
        assert_eq!(parse_uint("0x_ff"), Ok(255));
        assert_eq!(parse_uint("0"), Ok(0));
        assert_eq!(parse_uint("1_000"), Ok(1_000));
        assert_eq!(parse_uint("0_17"), Ok(0o17));
        assert_eq!(parse_uint("1__0"), Err("parse error"));
        assert_eq!(parse_uint("_1"), Err("parse error"));
        assert_eq!(parse_uint("1_"), Err("parse error"));
        assert_eq!(parse_uint("-1"), Err("parse error"));
        assert_eq!(parse_uint(""), Err("parse error"));
        assert_eq!(parse_uint("18446744073709551616"), Err("value out of range"));
        assert_eq!(parse_int("-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(parse_int("9223372036854775808"), Err("value out of range"));
        assert_eq!(parse_int("+5"), Ok(5));
        let error = "strconv.ParseUint: parsing \"-1\": invalid syntax";
        assert_eq!(parse_uint32("-1"), Err(error.to_owned()));
        let error = "strconv.ParseUint: parsing \"4294967296\": value out of range";
        assert_eq!(parse_uint32("4294967296"), Err(error.to_owned()));
    }
}

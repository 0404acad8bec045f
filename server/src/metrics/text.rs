//! The Prometheus text format, as etcd's library writes it.
//!
//! Families are sorted by name, labels by name, numbers are Go's shortest floats. A family without
//! a series has no lines at all.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Numbers from 10 to this power on are written with an exponent.
const EXPONENT_FROM: i32 = 6;

/// The type of a family, as its `# TYPE` line says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Any number. Some names that end in `_total` have this type in etcd.
    Gauge,
    /// Buckets, sum and count.
    Histogram,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Families being gathered for one scrape.
#[derive(Default)]
pub struct Exposition {
    families: BTreeMap<&'static str, Family>,
}

struct Family {
    kind: Kind,
    help: &'static str,
    lines: String,
}

/// Labels of a series, in alphabetical order.
pub type Labels<'a> = &'a [(&'static str, &'a str)];

impl Exposition {
    /// Adds one series of one value.
    pub fn value(
        &mut self,
        kind: Kind,
        name: &'static str,
        help: &'static str,
        labels: Labels<'_>,
        value: f64,
    ) {
        let lines = self.family(kind, name, help);
        series(lines, name, labels, None, value);
    }

    /// Adds one histogram: upper bounds, observations in each bucket (one more than bounds), sum.
    pub fn histogram(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: Labels<'_>,
        (bounds, counts, sum): (&[f64], &[u64], f64),
    ) {
        assert_eq!(bounds.len() + 1, counts.len(), "the last bucket has no bound");
        let lines = self.family(Kind::Histogram, name, help);
        let (bucket, total) = (format!("{name}_bucket"), counts.iter().sum::<u64>());
        let mut below = 0;
        for (bound, count) in bounds.iter().zip(counts) {
            below += count;
            series(lines, &bucket, labels, Some(&number(*bound)), float(below));
        }
        series(lines, &bucket, labels, Some("+Inf"), float(total));
        series(lines, &format!("{name}_sum"), labels, None, sum);
        series(lines, &format!("{name}_count"), labels, None, float(total));
    }

    fn family(&mut self, kind: Kind, name: &'static str, help: &'static str) -> &mut String {
        let fresh = || Family { kind, help, lines: String::new() };
        &mut self.families.entry(name).or_insert_with(fresh).lines
    }

    /// The whole text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(64 * 1024);
        for (name, family) in &self.families {
            let (help, kind) = (family.help, family.kind.word());
            text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
            text.push_str(&family.lines);
        }
        text
    }
}

fn series(lines: &mut String, name: &str, labels: Labels<'_>, bound: Option<&str>, value: f64) {
    lines.push_str(name);
    let bound = bound.map(|bound| ("le", bound));
    let mut all: Vec<(&str, &str)> = labels.iter().copied().chain(bound).collect();
    all.sort_unstable();
    if !all.is_empty() {
        lines.push('{');
        for (index, (label, text)) in all.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(lines, "{comma}{label}=\"{text}\"").expect("a string takes everything");
        }
        lines.push('}');
    }
    writeln!(lines, " {}", number(value)).expect("a string takes everything");
}

/// A count as a float. Past 2^53 the last digits are lost, as in every scrape.
#[must_use]
pub fn float(count: u64) -> f64 {
    const HALF: u64 = 1 << 32;
    let high = u32::try_from(count / HALF).expect("the upper half of 64 bits");
    let low = u32::try_from(count % HALF).expect("the lower half of 64 bits");
    f64::from(high) * 4_294_967_296.0 + f64::from(low)
}

/// Go's `%g` with the shortest digits: an exponent of two digits below 1e-4 and from 1e6 on.
/// Source: Go `strconv.FormatFloat(v, 'g', -1, 64)`.
#[must_use]
pub fn number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let shortest = format!("{value:e}");
    let (digits, exponent) = shortest.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    if value != 0.0 && !(-4..EXPONENT_FROM).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    format!("{value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers as etcd writes them.
    #[test]
    fn numbers() {
        let rows = [
            (0.0, "0"),
            (1.0, "1"),
            (-1.0, "-1"),
            (20480.0, "20480"),
            (999_999.0, "999999"),
            (1_000_000.0, "1e+06"),
            (2_147_483_648.0, "2.147483648e+09"),
            (1_796_034_888.94, "1.79603488894e+09"),
            (0.0001, "0.0001"),
            (4.35e-06, "4.35e-06"),
            (0.007_131_861_999_999_999, "0.007131861999999999"),
            (18_446_744_073_709_551_615.0, "1.8446744073709552e+19"),
            (f64::INFINITY, "+Inf"),
        ];
        for (value, text) in rows {
            assert_eq!(number(value), text);
        }
        assert_eq!(number(float(u64::MAX)), "1.8446744073709552e+19");
        assert_eq!(number(float(4_294_967_297)), "4.294967297e+09");
    }

    /// Families and labels are sorted, buckets add up, `le` stands among the labels.
    #[test]
    fn families() {
        let mut exposition = Exposition::default();
        exposition.value(Kind::Gauge, "b_total", "B.", &[], 2.0);
        let labels = [("op", "x\"y"), ("a", "1")];
        exposition.histogram("a_seconds", "A.", &labels, (&[0.5, 1.0], &[1, 2, 3], 4.5));
        let text = "# HELP a_seconds A.\n# TYPE a_seconds histogram\n\
             a_seconds_bucket{a=\"1\",le=\"0.5\",op=\"x\\\"y\"} 1\n\
             a_seconds_bucket{a=\"1\",le=\"1\",op=\"x\\\"y\"} 3\n\
             a_seconds_bucket{a=\"1\",le=\"+Inf\",op=\"x\\\"y\"} 6\n\
             a_seconds_sum{a=\"1\",op=\"x\\\"y\"} 4.5\n\
             a_seconds_count{a=\"1\",op=\"x\\\"y\"} 6\n\
             # HELP b_total B.\n# TYPE b_total gauge\nb_total 2\n";
        assert_eq!(exposition.text(), text);
    }
}

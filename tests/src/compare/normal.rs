//! What may differ between two servers, written over with names.

/// A rule: a text with one placeholder, and what the placeholder's text becomes. `#` is a number,
/// `%` a number with a unit (a duration or a size), `*` anything up to what follows it.
struct Rule(&'static str, &'static str);

/// Rules that hold for the output of every command.
const RULES: &[Rule] = &[
    Rule("\"raft_term\":#", "<term>"),
    Rule("raft_term: #", "<term>"),
    Rule("\"RaftTerm\" : #", "<term>"),
    Rule("\"raftTerm\":#", "<term>"),
    Rule("\"raftIndex\":#", "<index>"),
    Rule("\"raftAppliedIndex\":#", "<index>"),
    Rule("\"RaftIndex\" : #", "<index>"),
    Rule("\"RaftAppliedIndex\" : #", "<index>"),
    Rule("raft_index: #", "<index>"),
    Rule("raft_term: #", "<term>"),
    Rule("raft_applied_index: #", "<index>"),
    Rule("\"dbSize\":#", "<size>"),
    Rule("\"dbSizeInUse\":#", "<size>"),
    Rule("\"DBSize\" : #", "<size>"),
    Rule("\"DBSizeInUse\" : #", "<size>"),
    Rule("db_size: #", "<size>"),
    Rule("db_size_in_use: #", "<size>"),
    Rule("\"version\":\"3.*\"", "<version>"),
    Rule("\"Version\" : \"3.*\"", "<version>"),
    Rule("version: \"3.*\"", "<version>"),
    Rule("took = %", "<time>"),
    Rule("took %", "<time>"),
    Rule("\"took\":\"*\"", "<time>"),
    Rule("\"ts\":\"*\"", "<time>"),
    Rule("\"target\":\"*\"", "<target>"),
    Rule("\"peer\":\"*\"", "<peer>"),
    Rule("remaining(%)", "<time>"),
    Rule("\"caller\":\"*\"", "<line>"),
];

/// The ids and addresses of one server.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Pairs of a text and its name, longest first.
    pairs: Vec<(String, String)>,
}

impl Names {
    /// Gives a text a name. An empty text has none.
    pub fn add(&mut self, text: &str, name: &str) {
        if !text.is_empty() && !self.pairs.iter().any(|(known, _)| known == text) {
            self.pairs.push((text.to_owned(), format!("<{name}>")));
            self.pairs.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        }
    }

    /// An id as it is printed in decimal and in hexadecimal.
    pub fn add_id(&mut self, id: u64, name: &str) {
        self.add(&id.to_string(), name);
        self.add(&id.cast_signed().to_string(), name);
        self.add(&format!("{id:x}"), name);
        self.add(&format!("{id:016x}"), name);
    }

    /// Writes names and rules over the output of the command `line`.
    #[must_use]
    pub fn apply(&self, line: &str, text: &str) -> String {
        // Go's protobuf picks one of two blanks for its messages when it is built.
        let mut text = text.replace("proto:%C2%A0", "proto: ").replace("proto:\u{a0}", "proto: ");
        text = text.replace("  alarm:", " alarm:");
        for (known, name) in &self.pairs {
            text = text.replace(known, name);
        }
        for Rule(pattern, name) in RULES {
            text = replace(&text, pattern, name);
        }
        text = lease_ids(&text);
        if line.contains("-w protobuf") {
            text = first_term(&text);
        }
        if line.contains("endpoint status") {
            text = text.lines().map(status_line).collect::<Vec<_>>().join("\n");
        }
        if line.contains("check perf") || line.contains("check datascale") {
            text = text.split(['\n', '\r']).filter_map(check_line).collect::<Vec<_>>().join("\n");
        }
        text.lines().map(plain_table).map(|line| sorted_keys(&line)).collect::<Vec<_>>().join("\n")
    }
}

/// Replaces what stands at the pattern's placeholder, wherever the pattern occurs.
fn replace(text: &str, pattern: &str, name: &str) -> String {
    let hole = pattern.find(['#', '%', '*']).expect("each rule has a placeholder");
    let (before, after) = (&pattern[..hole], &pattern[hole + 1..]);
    let kind = pattern.as_bytes()[hole];
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(found) = rest.find(before) {
        let (head, tail) = rest.split_at(found + before.len());
        out.push_str(head);
        let size = match kind {
            b'#' => span(tail, |c| c.is_ascii_digit() || c == '-'),
            b'%' => span(tail, |c| c.is_ascii_alphanumeric() || ".µ-".contains(c)),
            _ => tail.find(after).unwrap_or(0),
        };
        let fits = size > 0 && tail[size..].starts_with(after);
        out.push_str(if fits { name } else { &tail[..size] });
        rest = &tail[size..];
    }
    out.push_str(rest);
    out
}

/// Ids of leases that a server chose: words of 15 or 16 hexadecimal digits or of 18 or 19 decimal
/// ones.
fn lease_ids(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let size = span(rest, |c| c.is_ascii_hexdigit());
        let (word, tail) = rest.split_at(size);
        let is_decimal = matches!(size, 18 | 19) && word.bytes().all(|byte| byte.is_ascii_digit());
        out.push_str(if is_decimal || matches!(size, 15 | 16) { "<id>" } else { word });
        let other = tail.chars().next().map_or(0, char::len_utf8);
        out.push_str(&tail[..other]);
        rest = &tail[other..];
    }
    out
}

/// The term in the header of a protobuf message: the first field 4 that is a small number.
fn first_term(text: &str) -> String {
    match text.find(" \\x0") {
        Some(at) if text.len() >= at + 5 => format!("{} <term>{}", &text[..at], &text[at + 5..]),
        _ => text.to_owned(),
    }
}

fn span(text: &str, wanted: impl Fn(char) -> bool) -> usize {
    text.find(|c| !wanted(c)).unwrap_or(text.len())
}

/// The columns of `endpoint status` that hold versions, sizes and raft positions; both as a list
/// with commas and as a table.
fn status_line(line: &str) -> String {
    let (separator, first) = match line.chars().next() {
        Some('|') => ("|", 1),
        Some('│') => ("│", 1),
        _ => (",", 0),
    };
    let mut columns: Vec<String> = line.split(separator).map(|c| c.trim().to_owned()).collect();
    // Version, size or sizes; then term, index, applied index.
    let varying: &[usize] = match columns.len() - first {
        16.. => &[2, 4, 5, 6, 10, 11, 12],
        10.. => &[2, 3, 6, 7, 8],
        _ => return line.to_owned(),
    };
    for &column in varying {
        let is_head = columns[first + column].chars().all(|c| c.is_ascii_uppercase() || c == ' ');
        if !is_head {
            columns[first + column] = "<n>".to_owned();
        }
    }
    columns.join(separator)
}

/// The lines of a check that do not measure. The first result may stand behind the last, unfinished
/// progress of etcdctl 3.4.
fn check_line(line: &str) -> Option<String> {
    let start = line.find("PASS").or_else(|| line.find("FAIL"))?;
    let head = line[start..].split([':', '|']).next().unwrap_or_default();
    Some(head.chars().filter(|c| !c.is_ascii_digit()).collect())
}

/// A line of a table without the width of its columns.
fn plain_table(line: &str) -> String {
    if !line.starts_with(['+', '|', '┌', '├', '└', '│']) {
        return line.to_owned();
    }
    let mut out = String::new();
    for c in line.chars() {
        let repeats = matches!(c, ' ' | '-' | '─') && out.ends_with(c);
        if !repeats {
            out.push(c);
        }
    }
    let cells = out.split_inclusive(['|', '│']);
    cells.map(|cell| if is_duration(cell) { " <time> |" } else { cell }).collect()
}

/// A cell like ` 1.25ms |`.
fn is_duration(cell: &str) -> bool {
    let cell = cell.trim_matches(['|', '│', ' ']);
    let unit = cell.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    unit.len() < cell.len() && matches!(unit, "s" | "ms" | "µs" | "ns")
}

/// `attached keys([b a])` lists in no order.
fn sorted_keys(line: &str) -> String {
    let Some((head, tail)) = line.split_once("attached keys([") else { return line.to_owned() };
    let Some((keys, end)) = tail.split_once("])") else { return line.to_owned() };
    let mut keys: Vec<&str> = keys.split(' ').collect();
    keys.sort_unstable();
    format!("{head}attached keys([{}]){end}", keys.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A result glued to a progress bar counts as one on a line of its own.
    #[test]
    fn a_result_behind_unfinished_progress() {
        assert_eq!(check_line("59 / 60  98.33%PASS: Throughput is 150").as_deref(), Some("PASS"));
        assert_eq!(check_line("FAIL: Stddev is 2s").as_deref(), Some("FAIL"));
        assert_eq!(check_line("59 / 60  98.33% 00m01s"), None);
    }

    /// Each kind of placeholder; what does not fit stays.
    #[test]
    fn placeholders() {
        assert_eq!(replace("a raft_term: 12, b", "raft_term: #", "<t>"), "a raft_term: <t>, b");
        assert_eq!(replace("took = 1.25ms.", "took = %", "<d>"), "took = <d>");
        assert_eq!(
            replace(r#"{"ts":"x","ts":"y"}"#, "\"ts\":\"*\"", "_"),
            r#"{"ts":"_","ts":"_"}"#
        );
        assert_eq!(replace("raft_term: x", "raft_term: #", "<t>"), "raft_term: x");
    }

    /// Names, and the shapes of the two listings that are in no order or no width.
    #[test]
    fn names_and_shapes() {
        let mut names = Names::default();
        names.add_id(0x00ff_0000_0000_0001, "member");
        assert_eq!(names.apply("", "ff000000000001 71776119061217281"), "<member> <member>");
        assert_eq!(names.apply("", "lease 694d9f23ea5c4a01 (12)"), "lease <id> (12)");
        assert_eq!(names.apply("-w protobuf", "\\x18! \\x02 \\x03"), "\\x18! <term> \\x03");
        assert_eq!(names.apply("", "x attached keys([b a])"), "x attached keys([a b])");
        assert_eq!(names.apply("", "| a    | b |\n+----+"), "| a | b |\n+-+");
        let status =
            "e, id, 3.7.3, 3.7.0, 20 kB, 16 kB, 20%, 2.1 GB, true, false, 2, 4, 4, , , false";
        let expected = "e,id,<n>,3.7.0,<n>,<n>,<n>,2.1 GB,true,false,<n>,<n>,<n>,,,false";
        assert_eq!(names.apply("ctl endpoint status", status), expected);
    }
}

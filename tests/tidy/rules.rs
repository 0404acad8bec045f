//! The rules. Each gives one line per complaint: where, what, and what would be right.

use crate::source::{Source, root};

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_COLUMNS_MAX: usize = 100;
const PARAMETERS_MAX: usize = 6;

/// Files whose functions have the parameters that a trait of another crate gives them.
const IMPOSED_PARAMETERS: &[&str] = &["tests/src/disk/fuse.rs"];

/// Which of our crates each crate may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("proto", &[]),
    ("engine/io", &[]),
    ("engine/consensus", &[]),
    ("engine", &["ringbolt-consensus", "ringbolt-io", "ringbolt-proto"]),
    ("server", &["ringbolt-engine", "ringbolt-io", "ringbolt-proto"]),
    ("bench", &["ringbolt-proto"]),
    ("tuning", &["ringbolt-io"]),
    ("tests", &["ringbolt-engine", "ringbolt-io", "ringbolt-proto"]),
    ("tests/fuzz", &["ringbolt-engine", "ringbolt-io", "ringbolt-proto", "ringbolt-server"]),
];

/// `(module, what it may not name)`.
const NOT_KNOWN: &[(&str, &[&str])] = &[
    ("engine/src/mvcc/", &["crate::lease", "crate::watch", "crate::state", "crate::wal"]),
    ("engine/src/lease/", &["crate::mvcc", "crate::watch", "crate::state", "crate::wal"]),
    ("engine/src/watch/", &["crate::lease", "crate::state", "crate::wal", "crate::replica"]),
    ("engine/src/wal/", &["crate::mvcc", "crate::lease", "crate::watch", "crate::state"]),
    ("engine/src/state/", &["crate::watch", "crate::wal", "crate::replica"]),
    ("engine/consensus/", &["ringbolt_io", "std::fs", "std::net"]),
    (
        "server/src/http2/",
        &["ringbolt_engine", "ringbolt_proto", "crate::services", "crate::config"],
    ),
];

/// Files outside `engine/io` may not hold unsafe code; inside it these may.
const UNSAFE_FILES: &[&str] = &[
    "engine/io/src/buffer.rs",
    "engine/io/src/exec.rs",
    "engine/io/src/uring/",
    "engine/io/src/epoll/",
    "engine/io/src/bulk/",
    "engine/io/src/system/",
    "engine/io/src/real/",
    "engine/io/src/select.rs",
    "engine/io/examples/probe.rs",
    "engine/io/src/tests",
];

fn read(path: &str) -> String {
    let full = root().join(path);
    std::fs::read_to_string(&full).unwrap_or_else(|error| panic!("{}: {error}", full.display()))
}

pub fn crate_arrows() -> Vec<String> {
    let mut out = Vec::new();
    for (folder, allowed) in ARROWS {
        let manifest = read(&format!("{folder}/Cargo.toml"));
        let used = manifest.lines().filter(|line| line.starts_with("ringbolt-"));
        for line in used {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if !allowed.contains(&name) {
                out.push(format!("{folder}/Cargo.toml: {name} is an arrow that points back"));
            }
        }
    }
    out
}

pub fn module_arrows(source: &Source) -> Vec<String> {
    let mut out = Vec::new();
    for (module, hidden) in NOT_KNOWN {
        if !source.path.starts_with(module) || source.is_test() {
            continue;
        }
        for (number, line) in source.code_lines() {
            for name in hidden.iter().filter(|name| line.contains(**name)) {
                if !line.trim_start().starts_with("//") {
                    out.push(format!("{}:{number}: {module} knows no {name}", source.path));
                }
            }
        }
    }
    out
}

pub fn sizes(source: &Source) -> Vec<String> {
    let mut out = Vec::new();
    let lines: Vec<&str> = source.text.lines().collect();
    if lines.len() > FILE_LINES_MAX {
        out.push(format!("{}: {} lines, at most {FILE_LINES_MAX}", source.path, lines.len()));
    }
    for (index, line) in lines.iter().enumerate() {
        if line.chars().count() > LINE_COLUMNS_MAX {
            out.push(format!("{}:{}: over {LINE_COLUMNS_MAX} columns", source.path, index + 1));
        }
        if !is_function(line) {
            continue;
        }
        let length = function_length(&lines[index..]);
        if length > FUNCTION_LINES_MAX {
            let name = line.trim();
            out.push(format!("{}:{}: {length} lines in {name}", source.path, index + 1));
        }
        let parameters = parameter_count(&lines[index..]);
        if parameters > PARAMETERS_MAX && !IMPOSED_PARAMETERS.contains(&&source.path[..]) {
            let name = line.trim();
            out.push(format!("{}:{}: {parameters} parameters in {name}", source.path, index + 1));
        }
    }
    out
}

fn is_function(line: &str) -> bool {
    let mut words = line.split_whitespace().skip_while(|word| {
        matches!(*word, "pub" | "const" | "async" | "unsafe" | "extern" | "\"C\"")
            || word.starts_with("pub(")
    });
    words.next() == Some("fn")
}

/// Lines up to the closing brace in the column of the first line. The code is formatted, so that is
/// where a function ends.
fn function_length(lines: &[&str]) -> usize {
    let indent = lines[0].len() - lines[0].trim_start().len();
    for (index, line) in lines.iter().enumerate() {
        let ends_here = line.trim_end().ends_with(['}', ';'])
            && line.len() - line.trim_start().len() == indent
            && (index == 0 || line.trim_start().starts_with('}') || line.trim_end().ends_with(';'));
        if ends_here {
            return index + 1;
        }
    }
    lines.len()
}

fn parameter_count(lines: &[&str]) -> usize {
    let text: String = lines.iter().take(20).flat_map(|line| [line.trim(), " "]).collect();
    let Some(open) = text.find('(') else { return 0 };
    let (mut depth, mut count, mut pending) = (0i32, 0usize, false);
    for (character, next) in text[open..].chars().zip(text[open..].chars().skip(1)) {
        match character {
            '(' | '[' | '<' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '>' => depth -= 1,
            '-' if next == '>' => depth += 1,
            ',' if depth == 1 => {
                count += usize::from(pending);
                pending = false;
                continue;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
        pending |= depth >= 1 && !character.is_whitespace() && character != '(';
    }
    count + usize::from(pending)
}

pub fn documentation(source: &Source) -> Vec<String> {
    let mut out = Vec::new();
    if !source.text.starts_with("//!") {
        out.push(format!("{}: has no //! head", source.path));
    }
    if source.is_test() {
        return out;
    }
    let lines = source.code_lines();
    for (index, (number, line)) in lines.iter().enumerate() {
        // A run of constants has one doc over it, on the module or type that holds them.
        let in_a_run = index > 0 && line.contains("pub const ") && {
            let above = lines[index - 1].1;
            above.contains("pub const ") || above.trim_end().ends_with('{')
        };
        if is_public_item(line) && !in_a_run && !is_documented(&lines[..index]) {
            out.push(format!("{}:{number}: no doc on {}", source.path, line.trim()));
        }
    }
    out
}

fn is_public_item(line: &str) -> bool {
    let Some(rest) = line.trim_start().strip_prefix("pub ") else { return false };
    let kinds = ["fn ", "struct ", "enum ", "trait ", "const ", "static ", "type ", "async fn "];
    kinds.iter().any(|kind| rest.starts_with(kind))
}

fn is_documented(before: &[(usize, &str)]) -> bool {
    let mut in_attribute = false;
    for (_, line) in before.iter().rev() {
        let line = line.trim();
        if line.starts_with("///") {
            return true;
        }
        in_attribute = (in_attribute || line.ends_with(']') || line.ends_with(")]"))
            && !line.starts_with("#[");
        if !(in_attribute || line.starts_with("#[")) {
            return false;
        }
    }
    false
}

pub fn unsafe_code(source: &Source) -> Vec<String> {
    let mut out = Vec::new();
    let lines: Vec<&str> = source.text.lines().collect();
    let allowed = UNSAFE_FILES.iter().any(|file| source.path.starts_with(file));
    for (index, line) in lines.iter().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        let opens = ["unsafe {", "unsafe impl", "unsafe fn", "unsafe extern"];
        if !opens.iter().any(|word| code.contains(word)) || source.path.starts_with("tests/tidy") {
            continue;
        }
        if !allowed {
            out.push(format!("{}:{}: unsafe outside engine/io", source.path, index + 1));
            continue;
        }
        let above = &lines[index.saturating_sub(12)..index];
        for word in ["SAFETY:", "JUSTIFICATION:"] {
            if !above.iter().any(|line| line.contains(word)) {
                out.push(format!("{}:{}: unsafe without {word}", source.path, index + 1));
            }
        }
    }
    out
}

/// What names one machine or one registry, spelled in halves so that this file holds neither.
const MACHINE_PATH: &str = concat!("/wo", "rk/");
const REGISTRY: &str = concat!("crates", ".io");

pub fn words(source: &Source) -> Vec<String> {
    if source.path.starts_with("tests/tidy") && source.path != "tests/tidy/sample.rs" {
        return Vec::new();
    }
    let banned =
        ["TODO", "FIXME", "XXX", "todo!(", "unimplemented!(", "#[ignore", MACHINE_PATH, REGISTRY];
    let mut out = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        for word in banned.iter().filter(|word| line.contains(**word)) {
            out.push(format!("{}:{}: {word}", source.path, index + 1));
        }
    }
    out
}

pub fn unwraps(source: &Source) -> Vec<String> {
    let inside = source.path.starts_with("engine/") || source.path.starts_with("server/");
    if !inside || source.is_test() {
        return Vec::new();
    }
    let lines = source.code_lines();
    lines
        .iter()
        .filter(|(_, line)| line.contains(".unwrap()") && !line.trim_start().starts_with("//"))
        .map(|(number, _)| format!("{}:{number}: unwrap", source.path))
        .collect()
}

/// Clock, randomness, files, sockets and threads come from `engine/io` alone, and no map iterates
/// in a random order.
pub fn determinism(source: &Source) -> Vec<String> {
    let below = source.path.starts_with("engine/") || source.path.starts_with("proto/src");
    if !below || source.path.starts_with("engine/io/") || source.is_test() {
        return Vec::new();
    }
    let world = [
        "std::time::Instant",
        "std::time::SystemTime",
        "Instant::now",
        "SystemTime::now",
        "std::fs",
        "std::net",
        "thread::spawn",
        "thread::sleep",
        "thread::Builder",
        "std::env",
        "collections::HashMap",
        "collections::HashSet",
        "thread_rng",
    ];
    let mut out = Vec::new();
    for (number, line) in source.code_lines() {
        for name in world.iter().filter(|name| line.contains(**name)) {
            if !line.trim_start().starts_with("//") {
                out.push(format!("{}:{number}: {name} below the server", source.path));
            }
        }
    }
    out
}

/// The functions a reader opens to follow a Put: `(file prefix, function)`.
const PUT_PATH: &[(&str, &str)] = &[
    ("server/src/connection/", "fn serve"),
    ("server/src/http2/", "fn receive"),
    ("server/src/services/", "fn call"),
    ("server/src/services/kv.rs", "async fn put"),
    ("engine/src/replica/", "fn propose"),
    ("engine/src/replica/", "fn turn"),
    ("engine/consensus/src/", "fn step"),
    ("engine/src/wal/", "fn append"),
    ("engine/src/state/", "fn apply"),
];

pub fn put_path(sources: &[Source]) -> Vec<String> {
    let map = read("docs/ARCHITECTURE.md");
    let mut out = Vec::new();
    for (place, function) in PUT_PATH {
        let found = sources.iter().filter(|source| source.path.starts_with(place)).any(|source| {
            source.text.contains(&format!("{function}("))
                || source.text.contains(&format!("{function}<"))
        });
        if !found {
            out.push(format!("{place}: `{function}` of the path of a Put is gone"));
        }
        let name = function.rsplit(' ').next().unwrap_or_default();
        if !map.contains(name) {
            out.push(format!("docs/ARCHITECTURE.md does not name `{name}` of the path of a Put"));
        }
    }
    out
}

pub fn dependency_reasons() -> Vec<String> {
    let manifest = read("Cargo.toml");
    let section = manifest.split("[workspace.dependencies]").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    section
        .lines()
        .filter(|line| line.contains('=') && !line.starts_with("ringbolt-"))
        .filter(|line| !line.contains("# "))
        .map(|line| format!("Cargo.toml: no reason beside {line}"))
        .collect()
}

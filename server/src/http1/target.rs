//! The target of a request: its path decoded, its one proper spelling, and back to a URL.

use std::fmt::Write;

/// Whether a version is `1.` and a digit.
#[must_use]
pub fn is_one_dot(number: &str) -> bool {
    matches!(number.as_bytes(), [b'1', b'.', digit] if digit.is_ascii_digit())
}

/// A proxy's request names the whole URL; only path and query stay.
#[must_use]
pub fn without_origin(target: &str) -> String {
    match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/".to_owned(), |slash| rest[slash..].to_owned()),
        None => target.to_owned(),
    }
}

/// The decoded path of a target; none when it is not one.
#[must_use]
pub fn path(method: &str, target: &str) -> Option<String> {
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    let rooted = path.starts_with('/') || method == "CONNECT" || path == "*";
    let escapes_are_sound = path.match_indices('%').all(|(at, _)| escape_at(path, at).is_some());
    let sound = rooted && escapes_are_sound && !path.bytes().any(|b| b <= b' ' || b == 0x7f);
    sound.then(|| decode(path, false))
}

/// Undoes `+` and `%xx` in a query; what is no escape stays as it is.
#[must_use]
pub fn decode_query(text: &str) -> String {
    decode(text, true)
}

fn escape_at(text: &str, at: usize) -> Option<u8> {
    let digits = text.as_bytes().get(at + 1..at + 3)?;
    let hex = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    Some(hex(digits[0])? << 4 | hex(digits[1])?)
}

fn decode(text: &str, plus_is_blank: bool) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.as_bytes().get(at) {
        match (byte, escape_at(text, at)) {
            (b'%', Some(escaped)) => {
                decoded.push(escaped);
                at += 2;
            }
            (b'+', _) if plus_is_blank => decoded.push(b' '),
            (byte, _) => decoded.push(*byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// The proper spelling of a path: no empty part, no `.` and `..`; a slash at the end stays.
#[must_use]
pub fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let end = if path.ends_with('/') && !parts.is_empty() { "/" } else { "" };
    format!("/{}{end}", parts.join("/"))
}

/// A URL of a decoded path and a query as it was sent.
#[must_use]
pub fn url(path: &str, query: Option<&str>) -> String {
    let mut url = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            url.push(char::from(byte));
        } else {
            // Infallible: a string takes whatever is written to it.
            let _ = write!(url, "%{byte:02X}");
        }
    }
    match query {
        Some(query) if !query.is_empty() => format!("{url}?{query}"),
        _ => url,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Escapes are undone once; half an escape is no path.
    #[test]
    fn paths() {
        let rows = [
            ("/%68ealth?a=%zz", Some("/health")),
            ("/a+b%2525", Some("/a+b%25")),
            ("/%zz", None),
            ("/%6", None),
            ("health", None),
            ("*", Some("*")),
        ];
        for (target, expected) in rows {
            assert_eq!(path("GET", target).as_deref(), expected, "{target}");
        }
        assert_eq!(path("CONNECT", "x:1").as_deref(), Some("x:1"));
        assert_eq!(decode_query("a+b%2B%z"), "a b+%z");
    }

    /// One spelling of a path, and the URL of it.
    #[test]
    fn spellings() {
        let rows = [
            ("/health", "/health"),
            ("//health", "/health"),
            ("/./a/../b/", "/b/"),
            ("/../../x", "/x"),
            ("/v3/", "/v3/"),
            ("//", "/"),
            ("/", "/"),
        ];
        for (path, expected) in rows {
            assert_eq!(clean(path), expected);
        }
        assert_eq!(url("/a b/\"", Some("x=%41")), "/a%20b/%22?x=%41");
        assert_eq!(url("/a", Some("")), "/a");
    }
}

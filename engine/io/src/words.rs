//! The system's errors in words, for whoever reads a log or a refusal.

use std::fmt::Display;

/// An error in words, in Go's shape: without the number the standard library puts behind it, and
/// lower case where it does not begin with a name. Shape: owned text. Every text of the system that
/// a user may read comes through here.
///
/// `No space left on device (os error 28)` becomes `no space left on device`.
#[must_use]
pub fn plain(error: &impl Display) -> String {
    let mut text = error.to_string();
    while let Some(start) = text.find(" (os error ") {
        let size = text[start..].find(')').map_or(text.len() - start, |end| end + 1);
        text.replace_range(start..start + size, "");
    }
    let mut letters = text.chars();
    let (first, second) = (letters.next(), letters.next());
    match (first, second) {
        // A word that goes on in lower case; `I/O` does not, nor does a path.
        (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
            let rest = text.chars().skip(1);
            first.to_lowercase().chain(rest).collect()
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::plain;

    /// A full disk was told as "No space left on device (os error 28)" wherever an error passed on
    /// as it was.
    #[test]
    fn errors_of_the_system_have_no_numbers() {
        let told = |number| plain(&io::Error::from_raw_os_error(number));
        assert_eq!(told(libc::ENOSPC), "no space left on device");
        assert_eq!(told(libc::EADDRINUSE), "address already in use");
        assert_eq!(told(libc::EIO), "input/output error");
        assert_eq!(plain(&"I/O error (os error 5)"), "I/O error");
        for number in 1..=libc::EHWPOISON {
            let text = told(number);
            assert!(!text.contains("os error") && !text.ends_with([' ', ')']), "{text}");
        }
        let wrapped = io::Error::other("a.wal: No such file (os error 2); b: Bad (os error 9) end");
        assert_eq!(plain(&wrapped), "a.wal: No such file; b: Bad end");
        assert_eq!(plain(&""), "");
    }
}

//! The data directory before anything is opened in it: whose is it, and can it be written?
//!
//! The file `ringbolt` in it says who made it and in which layout:
//!
//! ```text
//! ringbolt data 1\n
//! ```
//! Each keyspace has a directory of its own below `keyspaces/`, with its own lock.

use std::io;
use std::path::Path;

use ringbolt_io::{plain, process};

use crate::config::notice::Notice;

const MARKER: &str = "ringbolt";
const MARKER_HEAD: &str = "ringbolt data ";
/// The layout this release writes.
const LAYOUT: u32 = 1;
const MARKER_BYTES_MAX: usize = 64;
/// Names that are ours, or of nobody's concern.
const KNOWN: [&str; 4] = [MARKER, "keyspaces", "client.sock", "lost+found"];

/// What a data directory was before the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing of ours.
    Empty,
    /// A store of ours.
    Member,
}

impl Found {
    /// etcd's word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Found::Empty => "empty",
            Found::Member => "member",
        }
    }
}

/// Why the directory cannot be used: a message, and the text of its `error` field.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// etcd's message for this case.
    pub message: &'static str,
    /// What is wrong and what to do.
    pub error: String,
}

/// Looks who made the directory, without changing it. Files that are nobody's give a notice.
///
/// # Errors
/// It cannot be listed, belongs to etcd, or was written by a later release.
pub fn identify(path: &Path, notices: &mut Vec<Notice>) -> Result<Found, Refusal> {
    let failed = |error: String| Refusal { message: "discovery failed", error };
    let place = path.display();
    let names = match process::list(path) {
        Ok(names) => names.unwrap_or_default(),
        Err(error) => {
            let error = format!("readdirent {place}: {}", plain(&error));
            return Err(Refusal { message: "failed to list data directory", error });
        }
    };
    let has = |name: &str| names.iter().any(|known| known == name);
    if has("member") && !has(MARKER) {
        return Err(failed(format!(
            "data directory {place} belongs to etcd (it holds member/); its files are not read \
             here. Start with another --data-dir, leave etcd running on this one, and copy the \
             keys with: etcdctl make-mirror <address of this server>"
        )));
    }
    for name in names.iter().filter(|name| !KNOWN.contains(&name.as_str())) {
        let fields =
            vec![("filename", name.as_str().into()), ("data-dir", place.to_string().into())];
        notices.push(Notice::warn("found invalid file under data directory", fields));
    }
    if !has(MARKER) {
        return Ok(Found::Empty);
    }
    let text = match process::read_text(&path.join(MARKER), MARKER_BYTES_MAX) {
        Ok(text) => text,
        // No text at all: damaged, as below.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => "binary data".to_owned(),
        Err(error) => {
            return Err(failed(format!("{}: {}", path.join(MARKER).display(), plain(&error))));
        }
    };
    let layout = text.strip_prefix(MARKER_HEAD).and_then(|text| text.trim().parse::<u32>().ok());
    match layout {
        Some(LAYOUT) => Ok(Found::Member),
        Some(later) if later > LAYOUT => Err(failed(format!(
            "data directory {place} has layout {later}, which a later release wrote; this one \
             knows up to {LAYOUT}. Start that release, or another --data-dir"
        ))),
        _ => Err(failed(format!(
            "data directory {place}: the file {MARKER} is damaged (expected \
             \"{MARKER_HEAD}{LAYOUT}\", found {text:?}). Restore the directory from a copy, or \
             start with another --data-dir"
        ))),
    }
}

/// Makes the directory if needed, tries to write in it, and marks it as ours.
///
/// # Errors
/// etcd's text: it cannot be made or written.
pub fn claim(path: &Path, found: Found) -> Result<(), String> {
    let failed = |what: &str, at: &Path, error: &io::Error| {
        let at = at.display();
        format!("cannot access data directory: {what} {at}: {}", plain(error))
    };
    process::create_private_dir(path).map_err(|error| failed("mkdir", path, &error))?;
    let touched = path.join(".touch");
    process::touch(&touched).map_err(|error| failed("open", &touched, &error))?;
    if found == Found::Empty {
        let marker = path.join(MARKER);
        process::write_text(&marker, &format!("{MARKER_HEAD}{LAYOUT}\n"))
            .map_err(|error| failed("open", &marker, &error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("ringbolt-{name}-{}", std::process::id()))
    }

    fn put(path: &Path, text: &str) {
        process::write_text(path, text).expect("a temporary file");
    }

    /// Empty, ours, etcd's, later and damaged directories.
    #[test]
    fn owners() {
        let path = fresh("owners");
        let mut notices = Vec::new();
        assert_eq!(identify(&path, &mut notices), Ok(Found::Empty));
        assert_eq!(claim(&path, Found::Empty), Ok(()));
        assert_eq!(identify(&path, &mut notices), Ok(Found::Member));
        assert_eq!(claim(&path, Found::Member), Ok(()));
        assert!(notices.is_empty());
        put(&path.join("stranger"), "");
        assert_eq!(identify(&path, &mut notices), Ok(Found::Member));
        assert_eq!(notices.len(), 1);
        put(&path.join(MARKER), "ringbolt data 2\n");
        let refusal = identify(&path, &mut notices).expect_err("a later layout");
        assert!(refusal.error.contains("a later release"), "{refusal:?}");
        put(&path.join(MARKER), "junk");
        let refusal = identify(&path, &mut notices).expect_err("a damaged marker");
        assert!(refusal.error.contains("damaged"), "{refusal:?}");
    }

    /// An etcd directory is left alone, with a way out in the text.
    #[test]
    fn directory_of_etcd() {
        let path = fresh("etcd");
        process::create_private_dir(&path.join("member")).expect("a temporary directory");
        let refusal = identify(&path, &mut Vec::new()).expect_err("it is etcd's");
        assert_eq!(refusal.message, "discovery failed");
        assert!(refusal.error.contains("etcdctl make-mirror"), "{refusal:?}");
    }

    /// A file is no directory, in etcd's words.
    #[test]
    fn no_directory() {
        let path = fresh("file");
        put(&path, "");
        let refusal = identify(&path, &mut Vec::new()).expect_err("it is a file");
        assert_eq!(refusal.message, "failed to list data directory");
        assert!(refusal.error.ends_with(": not a directory"), "{refusal:?}");
        let error = claim(&path.join("below"), Found::Empty).expect_err("no directory");
        assert!(error.starts_with("cannot access data directory: mkdir "), "{error}");
    }
}

//! What is said of bytes that are not what was written.

use std::fmt;
use std::path::{Path, PathBuf};

/// A place in a file whose bytes are wrong.
///
/// Shape: owned text, made where the bytes were read and logged where the error is consumed. The
/// bytes are left as they were found. What to do: repair the member from its peers, or give up what
/// follows the place with `ringbolt recover --accept-loss`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The file.
    pub file: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What should stand there.
    pub expected: String,
    /// What stands there.
    pub found: String,
}

impl Corruption {
    /// A corruption of `file` at `offset`.
    #[must_use]
    pub fn new(
        file: &Path,
        offset: u64,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Corruption {
        let file = file.to_path_buf();
        Corruption { file, offset, expected: expected.into(), found: found.into() }
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Corruption { file, offset, expected, found } = self;
        write!(f, "{} @ {offset:#x}: {found}, expected {expected}", file.display())
    }
}

impl std::error::Error for Corruption {}

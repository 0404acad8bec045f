//! The sources of the tree.

use std::path::{Path, PathBuf};

/// One Rust file.
pub struct Source {
    /// Path from the root of the tree.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// The root of the tree.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the root").to_path_buf()
}

/// Every Rust file of the tree, in order of path.
pub fn all() -> Vec<Source> {
    let mut sources = Vec::new();
    walk(&root(), &mut sources);
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    sources
}

fn walk(directory: &Path, sources: &mut Vec<Source>) {
    for entry in std::fs::read_dir(directory).expect("the tree can be read") {
        let path = entry.expect("the tree can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                walk(&path, sources);
            }
        } else if name.ends_with(".rs") {
            let relative = path.strip_prefix(root()).expect("a path below the root");
            sources.push(Source {
                path: relative.to_string_lossy().into_owned(),
                text: std::fs::read_to_string(&path).expect("sources are UTF-8"),
            });
        }
    }
}

impl Source {
    /// Whether the file holds only tests.
    pub fn is_test(&self) -> bool {
        self.path.starts_with("tests/")
            || self.path.ends_with("/tests.rs")
            || self.path.contains("/tests/")
            || self.path.ends_with("/model.rs")
            || self.path.ends_with("/golden.rs")
            || self.path.ends_with("/script.rs")
            || self.path.contains("/examples/")
            || self.path.contains("/benches/")
    }

    /// Lines with their numbers, up to where the file's tests begin.
    pub fn code_lines(&self) -> Vec<(usize, &str)> {
        let mut lines = Vec::new();
        for (index, line) in self.text.lines().enumerate() {
            if line.starts_with("#[cfg(test)]") && !self.next_is_outline_module(index) {
                break;
            }
            lines.push((index + 1, line));
        }
        lines
    }

    /// Whether the line after `index` declares a test module that lies in a file of its own.
    fn next_is_outline_module(&self, index: usize) -> bool {
        let next = self.text.lines().nth(index + 1).unwrap_or_default();
        !next.trim_end().ends_with('{')
    }
}

#!/usr/bin/env bash
# Unit, model, golden and tidy tests of every crate, in release: asserts are on there too.
set -euo pipefail
{ cargo fmt --version && cargo clippy --version; } >/dev/null ||
    { echo "rustfmt or clippy is missing: rustup component add rustfmt clippy" >&2; exit 1; }
cargo fmt --all --check
cargo clippy --release --workspace --all-targets -- -D warnings
cargo test --release --workspace

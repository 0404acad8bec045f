#!/usr/bin/env bash
# Unit, model, golden and tidy tests of every crate, in release: asserts are on there too.
set -euo pipefail
cargo fmt --all --check
cargo clippy --release --workspace --all-targets -- -D warnings
cargo test --release --workspace

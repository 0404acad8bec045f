//! raft's own log lines. It reports through `slog`; what it tells is told better by `Effects`, so
//! the lines are dropped before they are formatted.

/// A logger that drops everything.
pub(crate) fn silent() -> slog::Logger {
    slog::Logger::root(slog::Discard, slog::o!())
}

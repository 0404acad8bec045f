//! Checkpoint files.

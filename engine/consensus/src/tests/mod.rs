//! What the wrapper promises beyond raft, and golden scripts of whole runs.

mod golden;
mod group;
mod rules;
mod world;

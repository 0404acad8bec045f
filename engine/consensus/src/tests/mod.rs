//! What the wrapper promises beyond raft, and golden scripts of whole runs.

mod golden;
mod group;
mod restore;
mod rules;
mod world;

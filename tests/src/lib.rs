//! What the whole-system suites share.

pub mod compare;

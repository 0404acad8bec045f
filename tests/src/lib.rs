//! What the whole-system suites share.

pub mod compare;
pub mod sim;

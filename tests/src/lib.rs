//! What the whole-system suites share.

pub mod compare;
pub mod corrupt;
pub mod hostile;
pub mod sim;

//! What the whole-system suites share.

pub mod compare;
pub mod corrupt;
pub mod disk;
pub mod hostile;
pub mod sim;

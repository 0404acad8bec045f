//! Apply: the one place where a command changes the store.

pub mod alarms;
pub mod command;
pub mod format;
pub mod members;
pub mod validate;

#[cfg(test)]
mod script;

pub use alarms::Alarms;
pub use command::{Command, Reply};
pub use members::{ConfState, Member, Members};
pub use validate::Limits;

//! What the tests of `state` share: a language for requests and answers, and the scripts in it.

pub(super) mod golden;
pub(super) mod script;

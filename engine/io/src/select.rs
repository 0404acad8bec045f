//! Which driver a shard runs on: `--io-engine=auto|uring|epoll`.

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use crate::driver::Driver;
use crate::epoll::Epoll;

/// What the operator asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// io_uring where the system allows it, otherwise epoll.
    #[default]
    Auto,
    /// io_uring or nothing.
    Uring,
    /// epoll and helper threads.
    Epoll,
}

impl Engine {
    /// Every choice by its name on the command line.
    pub const NAMES: [(&'static str, Engine); 3] =
        [("auto", Engine::Auto), ("uring", Engine::Uring), ("epoll", Engine::Epoll)];
}

impl FromStr for Engine {
    type Err = String;
    fn from_str(name: &str) -> Result<Engine, String> {
        let found = Engine::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, engine)| *engine).ok_or_else(|| {
            format!("unknown io engine {name:?}: it is one of auto, uring and epoll")
        })
    }
}

/// Why no driver could be made, with the remedy. For the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineError(String);

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EngineError {}

/// A driver for the calling thread, and one sentence that tells which and why. `seed` is the
/// shard's own.
///
/// # Errors
/// `Engine::Uring` where io_uring is refused, with the cause and the remedy; otherwise only when
/// the system is out of file descriptors or memory.
pub fn driver(choice: Engine, seed: u64) -> Result<(Rc<dyn Driver>, String), EngineError> {
    match choice {
        Engine::Epoll => epoll(seed, "epoll, as asked for".to_owned()),
        Engine::Auto => epoll(seed, "epoll: this build has no uring driver".to_owned()),
        Engine::Uring => Err(EngineError("this build has no uring driver".to_owned())),
    }
}

fn epoll(seed: u64, why: String) -> Result<(Rc<dyn Driver>, String), EngineError> {
    match Epoll::new(seed) {
        Ok(driver) => Ok((Rc::new(driver), why)),
        Err(error) => Err(EngineError(format!("epoll could not be set up: {error}"))),
    }
}

//! Which driver a shard runs on: `--io-engine=auto|uring|epoll`.

use std::fmt;
use std::fs;
use std::rc::Rc;
use std::str::FromStr;
use std::thread;

use crate::driver::Driver;
use crate::epoll::Epoll;
use crate::limits::{RING_ATTEMPT_PAUSE, RING_ATTEMPTS};
use crate::uring::{Refused, Uring};

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
    if choice == Engine::Epoll {
        return epoll(seed, "epoll, as asked for".to_owned());
    }
    match patiently(|| Uring::new(seed), || thread::sleep(RING_ATTEMPT_PAUSE)) {
        Ok(driver) if choice == Engine::Uring => {
            Ok((Rc::new(driver), "io_uring, as asked for".to_owned()))
        }
        Ok(driver) => {
            let why = "io_uring: the kernel offers everything that is needed".to_owned();
            Ok((Rc::new(driver), why))
        }
        Err(refused) => {
            let cause = cause(&refused, &World::look());
            match choice {
                Engine::Uring => Err(EngineError(format!(
                    "io_uring is refused: {cause}, or run with --io-engine=epoll"
                ))),
                _ => epoll(seed, format!("epoll, because io_uring is refused: {cause}")),
            }
        }
    }
}

/// A shortage of memory passes: a member that is started again just after it was killed would else
/// run without io_uring for the rest of its life, or not at all.
fn patiently<T>(
    mut attempt: impl FnMut() -> Result<T, Refused>,
    mut pause: impl FnMut(),
) -> Result<T, Refused> {
    for _ in 1..RING_ATTEMPTS {
        match attempt() {
            Err(refused) if refused.error.raw_os_error() == Some(libc::ENOMEM) => pause(),
            outcome => return outcome,
        }
    }
    attempt()
}

fn epoll(seed: u64, why: String) -> Result<(Rc<dyn Driver>, String), EngineError> {
    match Epoll::new(seed) {
        Ok(driver) => Ok((Rc::new(driver), why)),
        Err(error) => {
            Err(EngineError(format!("epoll could not be set up: {}", crate::plain(&error))))
        }
    }
}

/// What the process can learn of who refuses.
struct World {
    /// `kernel.io_uring_disabled`, where the kernel has it (6.6).
    disabled: Option<u8>,
    /// Whether a seccomp filter is in force.
    filtered: bool,
    release: String,
}

impl World {
    fn look() -> World {
        let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
        World {
            disabled: disabled.and_then(|text| text.trim().parse().ok()),
            filtered: mode.is_some_and(|mode| mode.trim() == "2"),
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
        }
    }
}

/// Cause and remedy, as half a sentence.
fn cause(refused: &Refused, world: &World) -> String {
    let Refused { step, error } = refused;
    let number = error.raw_os_error();
    let name = match number {
        Some(libc::EPERM) => "EPERM".to_owned(),
        Some(libc::ENOSYS) => "ENOSYS".to_owned(),
        Some(libc::EINVAL) => "EINVAL".to_owned(),
        Some(libc::ENOMEM) => "ENOMEM".to_owned(),
        _ => crate::plain(error),
    };
    let release = &world.release;
    match (number, world.disabled) {
        (Some(libc::EPERM), Some(level)) if level > 0 => format!(
            "the sysctl kernel.io_uring_disabled is {level} ({step}: {name}); set it to 0{}",
            if level == 1 { ", or add our group to kernel.io_uring_group" } else { "" }
        ),
        (Some(libc::EPERM | libc::ENOSYS | libc::EACCES), _) if world.filtered => format!(
            "a seccomp filter forbids it ({step}: {name}); allow io_uring_setup, io_uring_enter \
             and io_uring_register in the container's or unit's seccomp profile"
        ),
        (Some(libc::EPERM | libc::EACCES), _) => {
            format!("a security module forbids it ({step}: {name}); allow io_uring in its policy")
        }
        (Some(libc::ENOSYS), _) => format!(
            "kernel {release} has no io_uring ({step}: {name}); run Linux 6.1 or later with \
             CONFIG_IO_URING"
        ),
        (Some(libc::ENOMEM), _) => format!(
            "no memory may be locked for it ({step}: {name}); raise the memlock limit (ulimit -l, \
             LimitMEMLOCK=)"
        ),
        (Some(libc::EINVAL), _) | (None, _) => {
            format!("kernel {release} is too old ({step}: {name}); run Linux 6.1 or later")
        }
        _ => format!("{step} failed: {name}; give the process what it lacks"),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// A shortage of memory is waited for, and not for ever; any other refusal stands at once. A
    /// member that was started just after a kill found no memory for its ring and gave up.
    #[test]
    fn a_shortage_of_memory_is_waited_for() {
        let tried = |number: i32, refusals: u32| {
            let (mut attempts, mut pauses) = (0, 0);
            let attempt = || {
                attempts += 1;
                let error = io::Error::from_raw_os_error(number);
                let refused = Refused { step: "io_uring_setup", error };
                if attempts > refusals { Ok(()) } else { Err(refused) }
            };
            let outcome = patiently(attempt, || pauses += 1);
            (outcome.is_ok(), attempts, pauses)
        };
        assert_eq!(tried(libc::ENOMEM, 0), (true, 1, 0));
        assert_eq!(tried(libc::ENOMEM, 3), (true, 4, 3));
        assert_eq!(tried(libc::ENOMEM, u32::MAX), (false, RING_ATTEMPTS, RING_ATTEMPTS - 1));
        assert_eq!(tried(libc::EPERM, 3), (false, 1, 0));
    }

    /// Each way to be refused is told apart, with its own remedy.
    #[test]
    fn causes_are_told_apart() {
        let told = |number: i32, disabled, filtered| {
            let error = io::Error::from_raw_os_error(number);
            let world = World { disabled, filtered, release: "5.10.0-test".to_owned() };
            cause(&Refused { step: "io_uring_setup", error }, &world)
        };
        let sysctl = told(libc::EPERM, Some(2), true);
        assert!(sysctl.contains("kernel.io_uring_disabled is 2") && sysctl.contains("set it to 0"));
        assert!(told(libc::EPERM, Some(1), false).contains("kernel.io_uring_group"));
        assert!(told(libc::EPERM, Some(0), true).contains("seccomp"));
        assert!(told(libc::ENOSYS, None, true).contains("seccomp"));
        assert!(told(libc::ENOSYS, None, false).contains("5.10.0-test has no io_uring"));
        assert!(told(libc::EINVAL, None, false).contains("5.10.0-test is too old"));
        assert!(told(libc::ENOMEM, Some(0), false).contains("memlock"));
        assert!(told(libc::EPERM, Some(0), false).contains("security module"));
        assert_eq!("uring".parse(), Ok(Engine::Uring));
        assert!("io_uring".parse::<Engine>().is_err_and(|text| text.contains("epoll")));
    }
}

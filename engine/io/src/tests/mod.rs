//! One suite over every driver of the real world: what a task sees must not depend on the driver.

mod files;
mod limits;
mod refusal;
mod shards;
mod sockets;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::exec::{Executor, Io};
use crate::select::{self, Engine};

const SEED: u64 = 0x5eed;

/// The drivers that run here.
fn engines() -> Vec<Engine> {
    vec![Engine::Epoll, Engine::Uring]
}

/// Runs a test once over each driver, each on a thread of its own with a directory of its own.
fn over_each<F, T>(test: F)
where
    F: Fn(Io, Rc<PathBuf>) -> T + Clone + Send + 'static,
    T: Future<Output = ()> + 'static,
{
    for engine in engines() {
        let test = test.clone();
        std::thread::spawn(move || on(engine, test)).join().expect("the test passes");
    }
}

/// Runs a test over one driver on the calling thread.
fn on<F, T>(engine: Engine, test: F)
where
    F: Fn(Io, Rc<PathBuf>) -> T,
    T: Future<Output = ()> + 'static,
{
    let directory = Directory::new();
    let (driver, _) = select::driver(engine, SEED).unwrap();
    let executor = Executor::new(driver);
    let path = Rc::new(directory.path().to_path_buf());
    executor.run(test(executor.io(), path));
}

/// A fresh directory that goes with the test. Under the build's target directory: it must lie on
/// a real file system, which /tmp often is not.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let base = std::env::current_exe().unwrap();
        let name = format!("io-test-{}-{number}", std::process::id());
        let path = base.parent().unwrap().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

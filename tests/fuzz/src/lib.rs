//! Fuzz targets: everything that reads bytes of the world, fed with bytes of chance.
//!
//! ```text
//! seeds (real frames, requests, files, made here) ─► fuzzer ─► run(input) of one module
//!     ─► nothing: the input is answered, refused or has no effect
//!     ─► a panic: a broken promise of the code, or of the invariants that the module checks
//! ```
//!
//! Each module has `run`, which takes one input and promises to do the same for the same input,
//! and `seeds`, which makes the inputs to begin with. The fuzzer is linked by the binaries of
//! `fuzz_targets` alone; here everything is plain, so that tests and lints see it.

/// Lives, damages and what a start must say of them. By its path, so that not all of `tests` is
/// built instrumented.
#[path = "../../src/corrupt/mod.rs"]
pub mod corrupt;

pub mod config;
pub mod files;
pub mod grpc;
pub mod hpack;
pub mod http1;
pub mod http2;
pub mod messages;
pub mod requests;
pub mod script;

/// One target: its name, what it does with an input, and the inputs to begin with.
pub struct Target {
    /// Its name, as the binary's behind `fuzz-`.
    pub name: &'static str,
    /// Takes one input; panics where something is wrong.
    pub run: fn(&[u8]),
    /// Makes the seeds.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words that the fuzzer may put anywhere.
    pub words: fn() -> Vec<Vec<u8>>,
}

/// Every target.
#[must_use]
pub fn targets() -> Vec<Target> {
    macro_rules! all {
        ($($name:ident),*) => {
            vec![$(Target {
                name: stringify!($name),
                run: $name::run,
                seeds: $name::seeds,
                words: $name::words,
            }),*]
        };
    }
    all!(config, files, grpc, hpack, http1, http2, messages, requests)
}

#[cfg(test)]
mod tests {
    use super::targets;

    /// Every seed passes its target, and so does every seed that is cut or has a wrong byte.
    #[test]
    fn seeds_pass() {
        for target in targets() {
            let seeds = (target.seeds)();
            assert!(!seeds.is_empty(), "{} has no seeds", target.name);
            for seed in seeds {
                (target.run)(&seed);
                (target.run)(&seed[..seed.len() / 2]);
                let mut wrong = seed.clone();
                if let Some(byte) = wrong.get_mut(seed.len() / 3) {
                    *byte ^= 0x55;
                }
                (target.run)(&wrong);
            }
            (target.run)(&[]);
        }
    }
}

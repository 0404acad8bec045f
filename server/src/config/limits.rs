//! Limits of the configuration.

/// Letters of an unknown name that is compared with known ones; a longer one is like none of them.
pub const FLAG_NAME_CHARS_MAX: usize = 64;
/// Letters from which on the beginning of a name stands for it.
pub const FLAG_BEGINNING_CHARS_MIN: usize = 4;
/// Stores in one process, `default` included.
pub const KEYSPACES_MAX: usize = 64;
/// Bytes of a configuration file.
pub const CONFIG_FILE_BYTES_MAX: usize = 1024 * 1024;
/// Letters of a keyspace's name, which is also the name of a directory.
pub const KEYSPACE_NAME_CHARS_MAX: usize = 63;
/// Threads that serve.
pub const SHARDS_MAX: u64 = 256;
/// Least `--memory-budget`: below it a handful of connections could not work.
pub const MEMORY_BUDGET_MIN: u64 = 16 * 1024 * 1024;
/// Bytes of the largest request that may be allowed: segments of the log are as large, and three of
/// them stand by.
pub const REQUEST_BYTES_MAX: u64 = 256 * 1024 * 1024;

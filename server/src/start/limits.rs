//! Limits of start and stop.

use std::time::Duration;

/// File descriptors a listener leaves to everything else. Source: etcd, "fd limit" of the contract.
pub const FILES_RESERVED: u64 = 150;
/// Time a stop waits for open calls before it closes their connections.
pub const DRAIN_TIME_MAX: Duration = Duration::from_millis(500);
/// How often a stop looks whether the calls are done.
pub const DRAIN_STEP: Duration = Duration::from_millis(5);
/// Time a stop waits for all shards to close their keyspaces.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(30);
/// Orders a shard may be behind.
pub const ORDERS_WAITING_MAX: usize = 4;
/// Connections that may be on their way to another shard.
pub const ARRIVALS_MAX: usize = 1024;
/// Time a start waits for an address that is in use.
pub const BIND_TIME_MAX: Duration = Duration::from_secs(2);
/// Pause between two tries to bind.
pub const BIND_PAUSE: Duration = Duration::from_millis(10);
/// Pause after an accept that failed, out of file descriptors for example.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const _: () = assert!(DRAIN_STEP.as_millis() < DRAIN_TIME_MAX.as_millis());

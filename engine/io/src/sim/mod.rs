//! One seeded world: machines with disks, clocks and a network, all in one thread and virtual time.
//!
//! A [`World`] holds machines; a machine runs one process of one or more shards, each an
//! [`crate::Executor`] over a simulated driver. Events happen in the order of (time, sequence);
//! every number of chance comes from the seed; everything that happens is folded into a hash. Two
//! runs of one seed are the same run.
//!
//! # Fault model
//!
//! Disk. Each machine has one file system.
//! - M1 A read sees every completed write. A write, sync or control call takes effect at the moment
//!   it completes; operations in flight together complete in any order.
//! - M2 `Durability::Disk` makes that one write durable (as FUA does), and the size of the file if
//!   this write made it longer; nothing else. `sync` makes durable what completed before it was
//!   submitted. `Durability::System` writes live in the page cache.
//! - M3 kill -9 loses no completed write. A write, sync or call in flight may still happen for a
//!   while after the process is gone; until then its file is not free: a lock on it is held.
//! - M4 Loss of power: each sector (512 B or 4 KiB) that is not durable is by itself lost, kept,
//!   any version in between, or torn (the front of one version, the back of another). In some
//!   losses everything or nothing of it goes. Writes in flight count as not durable.
//! - M5 Names (create, rename, remove, new directory) are durable only after a `sync_dir` of each
//!   directory they touch. A rename is never torn. A directory without a durable name takes
//!   everything in it along. Whether a changed size survives is a matter of luck of its own.
//! - M6 Switched on by [`DiskFaults`]: a full disk, failed reads, writes and syncs (what a failed
//!   sync should have covered may never become durable, though later syncs succeed), slow
//!   operations, misdirected writes. [`World::damage`] rots the medium: a flipped bit, a block of
//!   zeros.
//! - M7 Direct I/O that is not of whole aligned blocks is a panic.
//! - M8 The boot id at [`BOOT_ID_PATH`] changes with each loss of power.
//!
//! Network. Machine m is 10.0.0.(m+1). A connection delivers in order or breaks; over a cut link
//! its bytes wait for the heal, as TCP would repeat them. A dead process ends its connections at
//! once, a machine without power leaves its peers in the dark until they send after its restart.
//! To connect to a machine whose process is down is refused.
//!
//! Clocks. Each machine has its own: drift, jumps of either clock, a pause of both. Monotonic time
//! starts over with a loss of power. Work takes time: after a turn a shard is busy for a moment,
//! and answers gather meanwhile.
//!
//! Processes. `crash` kills between two turns; `crash_after_ops(n)` kills with the n-th operation
//! in flight and every later operation of the same turn not asked for; `pause` stops a process.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use ringbolt_io::sim::{CrashKind, SimConfig, World};
//!
//! let mut world = World::new(7, SimConfig::default());
//! let machine = world.add_machine();
//! world.make_dir(machine, "/data".as_ref());
//! world.start(machine, |io| {
//!     let inner = io.clone();
//!     io.spawn("writer", async move { inner.sleep(Duration::from_secs(3)).await });
//! });
//! world.run_for(Duration::from_secs(1));
//! world.crash(machine, CrashKind::Power);
//! world.start(machine, |_io| ());
//! ```

mod clock;
mod core;
mod disk;
mod driver;
pub mod limits;
mod net;
mod rng;
#[cfg(test)]
mod tests;
mod trace;
mod world;

pub use core::WriteHook;
pub use disk::{BOOT_ID_PATH, Damage, DiskFaults, FaultCounts};
pub use rng::Rng;
pub use world::{MachineId, World};

/// How a process ends without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashKind {
    /// kill -9: the system lives on, and with it everything that was completed.
    Process,
    /// The machine loses power: only what is durable is sure to be there.
    Power,
}

/// What kind of world it is. Times are nanoseconds, from and to, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimConfig {
    /// Bytes the disk writes as one: 512 or 4096.
    pub sector_bytes: usize,
    /// A write into the page cache.
    pub write_ns: (u64, u64),
    /// A durable write.
    pub durable_write_ns: (u64, u64),
    /// A sync.
    pub sync_ns: (u64, u64),
    /// A read.
    pub read_ns: (u64, u64),
    /// A control call.
    pub call_ns: (u64, u64),
    /// One way between two machines.
    pub net_ns: (u64, u64),
    /// How long a turn keeps its shard busy.
    pub turn_ns: (u64, u64),
    /// Folds the bytes of writes into the trace too: finds more, costs time.
    pub trace_contents: bool,
}

impl Default for SimConfig {
    /// A quick NVMe disk and a local network.
    fn default() -> SimConfig {
        SimConfig {
            sector_bytes: 512,
            write_ns: (5_000, 60_000),
            durable_write_ns: (15_000, 400_000),
            sync_ns: (20_000, 1_500_000),
            read_ns: (10_000, 200_000),
            call_ns: (5_000, 300_000),
            net_ns: (20_000, 300_000),
            turn_ns: (1_000, 20_000),
            trace_contents: true,
        }
    }
}

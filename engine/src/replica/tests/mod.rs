//! A replica over the simulated world: what it promises about answers, reads, leases and modes.

mod bench;
mod checkpoint;
mod durable;
mod lives;
mod memory;
mod space;

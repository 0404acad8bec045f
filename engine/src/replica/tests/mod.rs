//! A replica over the simulated world: what it promises about answers, reads, leases and modes.

mod bench;
mod durable;
mod memory;

//! Simulation of whole stores: seeded clients, crashes at any moment, and judges of what the store
//! promises.
//!
//! ```text
//! World ── machine ── process ── Site (keyspace): store, clients, watchers
//!                                  │ calls, answers, publications, recoveries
//!                                  ▼
//!                                Oracle ── Model, LeaseBook, WatchLog: the verdict
//! ```
//!
//! What is judged:
//! - linearizability by revision witness: [`oracle`],
//! - durability of each mode over kill -9 and loss of power, revisions that never go back, fences
//!   where history may be shorter: [`recovery`],
//! - watchers: [`watches`],
//! - leases: never ended early, never for ever, never back from the dead: [`leases`],
//! - the state that is replayed from disk, hash by hash: [`audit`],
//! - no block of a log segment is written over: [`blocks`],
//! - progress once faults are over: [`run`].
//!
//! Two ways to run: [`run`] crashes at random moments and faults at random operations; [`points`]
//! enumerates a crash at every single operation of a short life.

mod audit;
mod blocks;
pub mod claims;
pub mod evaluate;
pub mod faults;
pub mod hashes;
pub mod leases;
mod lives;
pub mod model;
pub mod oracle;
pub mod pace;
pub mod plain;
pub mod points;
pub mod recovery;
pub mod replica;
pub mod request;
pub mod run;
pub mod shrink;
pub mod site;
pub mod store;
#[cfg(test)]
mod tests;
pub mod watches;
pub mod workload;

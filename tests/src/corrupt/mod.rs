//! Corruption: the files of a stopped member, one place of one file made wrong, and what a start
//! says of it.
//!
//! ```text
//! base (seeded life of a member, then a stop) ─► copy of its files ─► one damage ─► start
//!     ─► refused: names the damaged file, the place, expected, found and the next command, and
//!        leaves the files as they were
//!     ─► or starts: then the state is exactly what it was
//! ```
//!
//! One exception is in the model: the last batch of a member that crashed before anything behind it
//! said that it was durable. It may be taken for a torn tail; then exactly its write is missing.

pub mod base;
pub mod damage;
pub mod judge;
pub mod rng;

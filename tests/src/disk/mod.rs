//! Power cuts under the release binary, on real file systems.
//!
//! ```text
//!  powercut ──► load over TCP and a Unix socket ──► ringbolt ──► ext4 or xfs ──► loop device
//!     ▲                                                                             │
//!     │ cut, faults, counts                                                         ▼
//!     └──────────────────────────── medium ◄── a FUSE file system of one file ◄─────┘
//! ```
//!
//! The medium keeps what was written and not flushed apart. A cut loses a part of that, chosen by
//! the seed; what is left is mounted again (the file system replays its journal), the server starts
//! on it, and `judge` compares what it shows with what clients were told:
//! - D1 Revisions never go back, in any mode.
//! - D2 In `safe`, and after a kill alone in `unsafe-no-fsync`, the history holds each revision up
//!   to the last, each acknowledged change at its revision, and each event and value that was seen.
//! - D3 In `unsafe-no-fsync` a cut may take a tail: what is left is the state at one revision, and
//!   everything acknowledged before the last flush began is in it. Then, and only then, revisions
//!   are fenced: the new one lies above every one that was seen, everything before is compacted.
//! - D4 No change appears that nobody asked for, and no value that nobody wrote.
//!
//! A cut shows itself to the server as a device that fails from then on, or comes after a kill.

pub mod client;
pub mod cycle;
pub mod fuse;
pub mod judge;
pub mod load;
pub mod medium;
pub mod process;
pub mod record;
pub mod rig;

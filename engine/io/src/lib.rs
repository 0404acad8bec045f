//! The only door to the world: clock, disk, network, randomness, tasks, mailboxes and bulk streams.
//!
//! Nothing outside this crate reads a clock, draws a random number, touches a file or a socket.
//! A shard is one thread with one [`Executor`] over one [`Driver`]; everything a task does reaches
//! the world as an owned [`driver::Op`] and comes back as an owned [`driver::Done`]. Three drivers
//! stand behind the same seam: `uring`, `epoll` and `sim`.
//!
//! ```text
//! task ── io.disk().open / file.write_at / stream.read ──► Op ──► Driver ──► kernel or simulation
//!      ◄───────────── future resolves ◄── Executor::deliver ◄── Done ◄──┘
//! ```

pub mod buffer;
pub mod bulk;
pub mod disk;
pub mod driver;
pub mod epoll;
pub mod exec;
pub mod limits;
pub mod local;
pub mod mailbox;
pub mod net;
pub mod planted;
pub mod process;
pub mod select;
pub mod sim;
mod system;
pub mod time;
pub mod uring;
mod words;

#[cfg(test)]
mod tests;

pub use buffer::AlignedBuffer;
pub use disk::{Disk, Durability, File, FileSystemKind, OpenHow};
pub use driver::Driver;
pub use exec::{Executor, Io, LocalTask, TaskHandle};
pub use net::{Address, Detached, Listener, Peer, Stream};
pub use select::{Engine, driver as make_driver};
pub use time::{MonoTime, WallTime};
pub use words::plain;

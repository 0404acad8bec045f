//! What the drivers of the real world share.

pub(crate) mod clock;
pub(crate) mod files;
pub(crate) mod handles;
pub(crate) mod pool;
pub(crate) mod sockets;
pub(crate) mod wake;
pub(crate) mod way;

//! Hostile clients against the release binary, from outside: what each sends, what must come back,
//! and what the server may grow by meanwhile, while a quiet client goes on.

pub mod crowds;
pub mod floods;
pub mod messages;
pub mod plain;
pub mod quiet;
pub mod server;
pub mod wire;

use server::Server;

/// One attack.
pub struct Attack {
    /// Its name on the command line and in the report.
    pub name: &'static str,
    /// What bounds it.
    pub limit: &'static str,
    /// The most the server may grow by while it lasts.
    pub growth_bytes_max: u64,
    /// It fills the memory budget: quiet puts may be turned away, in etcd's words.
    pub fills_budget: bool,
    /// Does it; gives one line of what came back, or what should have.
    pub run: fn(&Server) -> Result<String, String>,
}

/// What most attacks may make the server grow by.
const SMALL_GROWTH_BYTES: u64 = 32 << 20;

impl Attack {
    /// One that the server hardly grows by and that leaves the memory budget alone.
    fn small(
        name: &'static str,
        limit: &'static str,
        run: fn(&Server) -> Result<String, String>,
    ) -> Attack {
        Attack { name, limit, growth_bytes_max: SMALL_GROWTH_BYTES, fills_budget: false, run }
    }
}

/// Every attack, in the order it is made.
#[must_use]
pub fn attacks() -> Vec<Attack> {
    [floods::attacks(), plain::attacks(), messages::attacks(), crowds::attacks()]
        .into_iter()
        .flatten()
        .collect()
}

//! Counters of one keyspace and the text of `/metrics`.

use std::rc::Rc;

use ringbolt_engine::replica::Replica;

use crate::config::Config;
use crate::config::keyspace::Keyspace;

/// Counters of one keyspace. They live on its shard.
pub struct Metrics {}

impl Metrics {
    /// Counters at zero.
    #[must_use]
    pub fn new(_: &Config, _: &Keyspace) -> Rc<Metrics> {
        Rc::new(Metrics {})
    }

    /// Takes what the replica's stage clock tells.
    pub fn observe(self: &Rc<Self>, _: &Replica) {}

    /// The whole text of `/metrics`.
    #[must_use]
    pub fn render(&self, replica: &Replica) -> String {
        let status = replica.status();
        format!(
            "# TYPE etcd_server_has_leader gauge\netcd_server_has_leader {}\n",
            u8::from(status.leader.is_some())
        )
    }

    /// Counts the outcome of `/health`.
    pub fn count_health(&self, _: bool) {}

    /// Counts one check of `/livez` or `/readyz`.
    pub fn count_check(&self, _: &'static str, _: &'static str, _: bool) {}
}

//! What the HTTP endpoints learn of a keyspace, read from its replica.

use std::cell::RefCell;
use std::rc::Rc;

use ringbolt_engine::replica::Replica;
use ringbolt_engine::watch::Hub;

use crate::connection::relay::Home;
use crate::error;
use crate::http1::probe::{Alarm, Gathering, Member, Probe, RaftFacts, Reading, Versions};
use crate::metrics::Metrics;
use crate::version::{SERVER_VERSION, STORAGE_VERSION};

/// The facts of one keyspace, on its shard.
pub struct Facts {
    replica: Rc<Replica>,
    hub: Rc<RefCell<Hub>>,
    metrics: Rc<Metrics>,
    home: Rc<Home>,
}

impl Facts {
    /// Facts read from a replica and its counters.
    #[must_use]
    pub fn new(
        replica: Rc<Replica>,
        hub: Rc<RefCell<Hub>>,
        metrics: Rc<Metrics>,
        home: Rc<Home>,
    ) -> Rc<Facts> {
        Rc::new(Facts { replica, hub, metrics, home })
    }
}

impl Probe for Facts {
    fn alarms(&self) -> Vec<Alarm> {
        let state = self.replica.state();
        let mut alarms = Vec::new();
        if state.alarms.no_space() {
            alarms.push(Alarm::NoSpace);
        }
        if state.alarms.corrupt() {
            alarms.push(Alarm::Corrupt);
        }
        alarms
    }

    fn has_leader(&self) -> bool {
        self.replica.status().leader.is_some()
    }

    fn is_learner(&self) -> bool {
        let state = self.replica.state();
        let own = state.members.get(self.replica.identity().member_id);
        own.is_some_and(|member| member.is_learner)
    }

    fn read_serializable(&self) -> Result<(), String> {
        // What is in memory can be read unless the log has failed: then nothing is believed (W7).
        match self.replica.status().failure {
            None => Ok(()),
            Some(_) => Err(error::status(&ringbolt_engine::Error::Stop).message.into_owned()),
        }
    }

    fn read_linearizable(&self) -> Reading {
        let replica = self.replica.clone();
        Box::pin(async move {
            // Receipt: the read point.
            let outcome = replica.read_barrier().await;
            outcome.map_err(|error| error::status(&error).message.into_owned())
        })
    }

    fn versions(&self) -> Versions {
        let cluster = self.replica.state().cluster_version.clone();
        Versions {
            server: SERVER_VERSION.to_owned(),
            cluster: (!cluster.is_empty()).then_some(cluster),
            storage: STORAGE_VERSION.to_owned(),
        }
    }

    fn gather(&self) -> Gathering {
        let home = self.home.clone();
        Box::pin(async move { home.gather().await })
    }

    fn metrics(&self) -> String {
        self.metrics.render(&self.replica, &self.hub.borrow())
    }

    fn raft(&self) -> RaftFacts {
        let status = self.replica.status();
        let leader = status.leader.map_or(0, |leader| leader.0);
        RaftFacts {
            id: status.member_id.0,
            term: status.term,
            // A sole voter votes for itself.
            vote: leader,
            commit: status.commit,
            leader,
            applied: status.applied,
        }
    }

    fn cluster_id(&self) -> u64 {
        self.replica.identity().cluster_id.0
    }

    fn members(&self) -> Vec<Member> {
        let state = self.replica.state();
        let row = |member: &ringbolt_engine::state::Member| Member {
            id: member.id.0,
            name: member.name.clone(),
            peer_urls: member.peer_urls.clone(),
            client_urls: member.client_urls.clone(),
            is_learner: member.is_learner,
        };
        state.members.iter().map(row).collect()
    }

    fn count_health(&self, healthy: bool) {
        self.metrics.count_health(healthy);
    }

    fn count_check(&self, kind: &'static str, name: &'static str, passed: bool) {
        self.metrics.count_check(kind, name, passed);
    }
}

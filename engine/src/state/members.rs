//! Who belongs to the cluster: one record, from which both the member list that clients see and
//! raft's configuration are read. There is no second place that could disagree.

use std::collections::{BTreeMap, BTreeSet};

use ringbolt_proto::etcdserverpb;
use sha1::{Digest, Sha1};

use crate::types::{ClusterId, MemberId};

/// One member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Its id, derived from its URLs when it was added.
    pub id: MemberId,
    /// Its number in raft's configuration. Equal to the id until a member that lost its memory
    /// comes back under another number.
    pub raft_id: u64,
    /// Its name; empty until it has started once.
    pub name: String,
    /// Where other members reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it; empty until it has started once.
    pub client_urls: Vec<String>,
    /// Whether it only listens: a learner has no vote.
    pub is_learner: bool,
}

/// All members, and the ids that may never come back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    members: BTreeMap<MemberId, Member>,
    removed: BTreeSet<MemberId>,
}

/// Raft's configuration as this record implies it: raft ids in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfState {
    /// Members with a vote.
    pub voters: Vec<u64>,
    /// Members without one.
    pub learners: Vec<u64>,
}

impl Members {
    /// A record of these members.
    #[must_use]
    pub fn of(members: impl IntoIterator<Item = Member>) -> Members {
        let members = members.into_iter().map(|member| (member.id, member)).collect();
        Members { members, removed: BTreeSet::new() }
    }

    /// Adds a member; false if its id is taken.
    pub fn insert(&mut self, member: Member) -> bool {
        let is_free = !self.members.contains_key(&member.id);
        if is_free {
            self.members.insert(member.id, member);
        }
        is_free
    }

    /// Notes that this id was a member once and never comes back.
    pub fn mark_removed(&mut self, id: MemberId) {
        self.members.remove(&id);
        self.removed.insert(id);
    }

    /// A member told its name and client URLs. Unknown members are ignored: they were removed
    /// while they told it.
    pub fn set_attributes(&mut self, id: MemberId, name: &str, client_urls: &[String]) {
        if let Some(member) = self.members.get_mut(&id) {
            name.clone_into(&mut member.name);
            client_urls.clone_into(&mut member.client_urls);
        }
    }

    /// One member.
    #[must_use]
    pub fn get(&self, id: MemberId) -> Option<&Member> {
        self.members.get(&id)
    }

    /// All members by ascending id.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Member> {
        self.members.values()
    }

    /// Ids of former members, ascending.
    pub fn removed(&self) -> impl ExactSizeIterator<Item = MemberId> {
        self.removed.iter().copied()
    }

    /// How many members there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is none: a store that has not applied its first command.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Raft's configuration.
    #[must_use]
    pub fn conf_state(&self) -> ConfState {
        let mut conf_state = ConfState::default();
        for member in self.members.values() {
            let side =
                if member.is_learner { &mut conf_state.learners } else { &mut conf_state.voters };
            side.push(member.raft_id);
        }
        conf_state.voters.sort_unstable();
        conf_state.learners.sort_unstable();
        conf_state
    }

    /// The list as clients get it, by ascending id. Source: etcd `MemberListResponse.members`.
    #[must_use]
    pub fn to_wire(&self) -> Vec<etcdserverpb::Member> {
        let member = |member: &Member| etcdserverpb::Member {
            id: member.id.0,
            name: member.name.clone(),
            peer_ur_ls: member.peer_urls.clone(),
            client_ur_ls: member.client_urls.clone(),
            is_learner: member.is_learner,
        };
        self.members.values().map(member).collect()
    }
}

/// The id of a member of a cluster's first configuration: its sorted peer URLs and the cluster's
/// token, hashed. Source: etcd, static bootstrap.
#[must_use]
pub fn bootstrap_member_id(peer_urls: &[String], cluster_token: &str) -> MemberId {
    MemberId(hash_urls(peer_urls, cluster_token))
}

/// The id of a member that is added later: its sorted peer URLs and the time, hashed.
/// `now_s` is whole seconds since the epoch. Source: etcd `MemberAdd`.
#[must_use]
pub fn added_member_id(peer_urls: &[String], now_s: u64) -> MemberId {
    MemberId(hash_urls(peer_urls, &now_s.to_string()))
}

/// The id of a cluster: the ids of its first members, ascending, hashed.
#[must_use]
pub fn cluster_id(members: &[MemberId]) -> ClusterId {
    let mut ids: Vec<_> = members.to_vec();
    ids.sort_unstable();
    let mut hash = Sha1::new();
    for id in ids {
        hash.update(id.0.to_be_bytes());
    }
    ClusterId(first_eight(hash))
}

fn hash_urls(peer_urls: &[String], suffix: &str) -> u64 {
    let mut urls: Vec<&str> = peer_urls.iter().map(String::as_str).collect();
    urls.sort_unstable();
    let mut hash = Sha1::new();
    for url in urls {
        hash.update(url.as_bytes());
    }
    hash.update(suffix.as_bytes());
    first_eight(hash)
}

fn first_eight(hash: Sha1) -> u64 {
    let digest = hash.finalize();
    let first = digest.first_chunk::<8>().expect("a digest has twenty bytes");
    u64::from_be_bytes(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    /// Rule 10.2, with the ids every default installation of etcd has.
    #[test]
    fn ids_are_etcds() {
        let member = bootstrap_member_id(&urls(&["http://localhost:2380"]), "etcd-cluster");
        assert_eq!(member.to_string(), "8e9e05c52164694d");
        assert_eq!(cluster_id(&[member]).to_string(), "cdf818194e3a8c32");
    }

    /// The order of URLs and members does not matter; token and time do.
    #[test]
    fn ids_do_not_depend_on_order() {
        let there = urls(&["http://a:1", "http://b:1"]);
        let back = urls(&["http://b:1", "http://a:1"]);
        assert_eq!(bootstrap_member_id(&there, "t"), bootstrap_member_id(&back, "t"));
        assert_ne!(bootstrap_member_id(&there, "t"), bootstrap_member_id(&there, "u"));
        assert_eq!(added_member_id(&there, 12), bootstrap_member_id(&back, "12"));
        let (one, two) = (MemberId(1), MemberId(2));
        assert_eq!(cluster_id(&[one, two]), cluster_id(&[two, one]));
    }

    /// One record gives both views, and a removed id stays known.
    #[test]
    fn both_views_come_from_one_record() {
        let member = |id, raft_id, is_learner| Member {
            id: MemberId(id),
            raft_id,
            is_learner,
            ..Member::default()
        };
        let mut members = Members::of([member(3, 3, false), member(1, 9, false)]);
        assert!(members.insert(member(2, 2, true)));
        assert!(!members.insert(member(2, 2, false)));
        let ids: Vec<_> = members.to_wire().iter().map(|member| member.id).collect();
        assert_eq!(ids, [1, 2, 3]);
        let expected = ConfState { voters: vec![3, 9], learners: vec![2] };
        assert_eq!(members.conf_state(), expected);
        members.set_attributes(MemberId(3), "c", &urls(&["http://c:2379"]));
        members.set_attributes(MemberId(77), "nobody", &[]);
        assert_eq!(members.get(MemberId(3)).map(|member| member.name.as_str()), Some("c"));
        members.mark_removed(MemberId(3));
        assert_eq!(members.get(MemberId(3)), None);
        assert_eq!(members.removed().collect::<Vec<_>>(), [MemberId(3)]);
    }
}

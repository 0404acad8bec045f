//! Each rule of the head of `lib.rs`, at the smallest size that shows it.

use super::world::{Group, Member, data, node};
use crate::{Change, ChangeKind, Entry, EntryKind, HardState, Inputs, Membership, Node, Role};
use crate::{Config, Stored};

fn campaign() -> Inputs {
    Inputs { campaign: true, ..Inputs::default() }
}

fn propose(texts: &[&str]) -> Inputs {
    Inputs { proposals: texts.iter().map(|text| data(text)).collect(), ..Inputs::default() }
}

fn read(name: u64) -> Inputs {
    Inputs { reads: vec![name], ..Inputs::default() }
}

/// A sole voter leads in the step that opens it, and C1: it commits only what is durable.
#[test]
fn sole_voter_leads_at_once_and_commits_when_durable() {
    let mut member = Member::new(1, &[1], 7);
    let (effects, _) = member.step(campaign());
    assert_eq!(member.node.status().role, Role::Leader);
    assert_eq!(effects.hard_state, Some(HardState { term: 2, vote: 1, commit: 1 }));
    assert_eq!(effects.append.len(), 1);
    assert!(effects.must_write && effects.committed.is_empty());
    let (first, _) = member.step(propose(&["a", "b"]));
    assert_eq!(first.proposed, Some(3));
    let (second, _) = member.step(propose(&["c"]));
    assert_eq!((second.proposed, second.committed.len()), (Some(5), 0));
    // The first write alone commits the term's first entry.
    let (persisted, _) = member.make_durable(1);
    let (effects, _) = member.step(Inputs { persisted, ..Inputs::default() });
    assert_eq!(effects.committed.iter().map(|entry| entry.index).collect::<Vec<_>>(), [2]);
    assert!(!effects.must_write, "a commit needs no write of its own");
    // The rest together.
    let (persisted, _) = member.make_durable(2);
    let (effects, _) = member.step(Inputs { persisted, applied: Some(2), ..Inputs::default() });
    assert_eq!(effects.committed.iter().map(|entry| entry.index).collect::<Vec<_>>(), [3, 4, 5]);
    assert_eq!(effects.committed[0].data, data("a"));
}

/// C2: a sole voter with a learner offers appends before its term is durable; they wait.
#[test]
fn leader_messages_wait_for_its_term() {
    let config = Config { id: 1, election_ticks: 10, heartbeat_ticks: 1, pre_vote: true, seed: 1 };
    let membership = Membership { learners: vec![2], ..Membership::of_voters(&[1]) };
    let stored = Stored { base: (1, 1), membership, ..Stored::default() };
    let mut node = Node::new(config, stored).expect("a right configuration");
    let effects = node.step(campaign());
    assert!(effects.send.is_empty(), "nothing leaves before the term is durable");
    assert_eq!(effects.send_after_durable.after, effects.number);
    assert!(!effects.send_after_durable.messages.is_empty());
    let first = effects.number;
    // A later step of the same, not yet durable, term waits for the same write.
    let effects = node.step(Inputs { ticks: 3, ..Inputs::default() });
    assert!(effects.send.is_empty());
    assert_eq!(effects.send_after_durable.after, first);
    // Once the term is durable the leader sends while its own entries are in flight.
    node.step(Inputs { persisted: Some(first), ..Inputs::default() });
    let effects = node.step(Inputs { ticks: 1, ..propose(&["a"]) });
    assert!(effects.must_write && !effects.send.is_empty());
}

/// C3: with a write in flight a member that does not lead neither ticks nor campaigns.
#[test]
fn no_campaign_with_a_write_in_flight() {
    let mut group = Group::new(&[1, 2, 3], 4);
    let leader = group.elect();
    let follower = if leader == 1 { 2 } else { 1 };
    group.step(leader, propose(&["a"]));
    while group.deliver_one() {}
    assert!(!group.members[&follower].writes.is_empty(), "the follower is writing");
    group.cut = vec![leader];
    group.step(follower, campaign());
    group.tick(follower, 100);
    assert_eq!(group.members[&follower].node.status().role, Role::Follower);
    // Durable: now the clock runs.
    group.durable(follower, usize::MAX);
    group.tick(follower, 25);
    assert_ne!(group.members[&follower].node.status().role, Role::Follower);
}

/// C4: a stored change above commit bars a sole voter until it is told otherwise.
#[test]
fn stored_change_bars_a_sole_voter() {
    let mut group = Group::new(&[1], 9);
    group.step(1, campaign());
    group.settle();
    let steps = vec![(ChangeKind::AddVoter, 2)];
    let change = Some(Change { steps, context: data("two") });
    let taken = group.step(1, Inputs { change, ..Inputs::default() });
    assert!(taken.change_taken);
    let member = group.members.get_mut(&1).expect("the member");
    assert_eq!(taken.append[0].kind, EntryKind::Membership);
    assert_eq!(Node::membership_context(&taken.append[0]), Ok(data("two")));
    member.make_durable(usize::MAX);
    // It is durable, perhaps member 2 already answered; this member does not know.
    member.crash(1);
    group.step(1, campaign());
    group.tick(1, 100);
    assert_eq!(group.members[&1].node.status().role, Role::Follower);
    group.members.get_mut(&1).expect("the member").node.allow_campaign();
    group.step(1, campaign());
    assert_eq!(group.members[&1].node.status().role, Role::Leader);
}

/// C5: a sole voter answers without a question, though not before its term's first commit.
#[test]
fn sole_voter_reads_wait_for_the_first_commit_only() {
    let mut member = Member::new(1, &[1], 7);
    member.step(campaign());
    member.step(read(11));
    assert!(member.reads.is_empty());
    let (persisted, _) = member.make_durable(1);
    member.step(Inputs { persisted, ..Inputs::default() });
    assert_eq!(member.reads, [(11, 2)]);
    let (effects, _) = member.step(read(12));
    assert_eq!(effects.read_ready, [(12, 2)]);
    assert!(!effects.must_write, "a read costs no write");
}

/// C5: a question that is lost is asked again under a new number, and the late answer to the
/// first one answers nobody.
#[test]
fn lost_read_question_is_asked_again() {
    let mut group = Group::new(&[1, 2, 3], 5);
    let leader = group.elect();
    let follower = if leader == 1 { 2 } else { 1 };
    group.step(follower, read(21));
    assert_eq!(group.net.len(), 1, "the question is on its way to the leader");
    group.net.clear();
    for _ in 0..12 {
        group.tick(leader, 1);
        group.settle();
        group.tick(follower, 1);
        group.settle();
    }
    assert_eq!(group.members[&follower].reads.iter().map(|read| read.0).collect::<Vec<_>>(), [21]);
}

/// A stored commit beyond the last entry is cut, a term below the last entry's is raised.
#[test]
fn stored_hard_state_is_made_to_fit() {
    let entry = |index, term| Entry { index, term, kind: EntryKind::Command, data: data("x") };
    let disk = super::world::Disk {
        entries: vec![entry(2, 2), entry(3, 4)],
        hard_state: HardState { term: 2, vote: 1, commit: 90 },
    };
    let node = node(1, &[1], 1, &disk);
    let status = node.status();
    assert_eq!((status.term, status.commit, status.last), (4, 3, 3));
}

/// Proposals to a member that does not lead are not taken, and not forwarded.
#[test]
fn followers_take_no_proposals() {
    let mut group = Group::new(&[1, 2, 3], 6);
    let leader = group.elect();
    let follower = if leader == 1 { 2 } else { 1 };
    let effects = group.step(follower, propose(&["a"]));
    assert_eq!(effects.proposed, None);
    assert!(group.net.is_empty());
}

/// Compaction keeps what is not applied; the node goes on.
#[test]
fn compaction_stops_at_applied() {
    let mut group = Group::new(&[1], 3);
    group.step(1, campaign());
    group.settle();
    for round in 0..10 {
        group.step(1, propose(&["a", "b", "c"]));
        group.settle();
        let node = &mut group.members.get_mut(&1).expect("the member").node;
        node.compact(u64::MAX);
        assert_eq!(node.status().commit, 2 + 3 * (round + 1));
    }
}

//! A follower that is too far behind: it is told of a checkpoint, and goes on from there.

use super::world::{Group, data, node};
use crate::{Effects, HardState, Inputs, SnapshotMark};

/// The leader forgets what a cut-off follower lacks. The follower is told to install the checkpoint
/// (metadata only: the bytes travel elsewhere), answers when that is durable, and gets the rest of
/// the log as entries.
#[test]
fn a_follower_far_behind_installs_a_checkpoint() {
    let mut group = Group::new(&[1, 2, 3], 8);
    let leader = group.elect();
    let behind = if leader == 1 { 2 } else { 1 };
    group.cut = vec![behind];
    for text in ["a", "b", "c"] {
        group.step(leader, Inputs { proposals: vec![data(text)], ..Inputs::default() });
        group.settle();
    }
    let at = group.members[&leader].applied_index().expect("applied");
    let source = group.members.get_mut(&leader).expect("the leader");
    let term = source.applied.last().expect("applied").term;
    let membership = source.node.membership().clone();
    source.node.set_checkpoint(SnapshotMark { index: at, term, membership: membership.clone() });
    source.node.compact(at);
    group.step(leader, Inputs { proposals: vec![data("d")], ..Inputs::default() });
    group.settle();
    group.cut.clear();

    let restore = deliver_until_restore(&mut group, leader, behind);
    let mark = restore.restore.clone().expect("a checkpoint");
    assert_eq!((mark.index, mark.term, &mark.membership), (at, term, &membership));
    assert!(restore.must_write && restore.committed.is_empty());
    assert!(restore.send.is_empty(), "it answers when the checkpoint is durable");
    // Installed: written, applied, reported.
    let member = group.members.get_mut(&behind).expect("the follower");
    member.applied.clear();
    let number = restore.number;
    let inputs = Inputs { persisted: Some(number), applied: Some(at), ..Inputs::default() };
    let effects = member.node.step(inputs);
    assert_eq!(member.node.status().commit, at);
    assert!(restore.send_after_durable.after <= number);
    let answers = restore.send_after_durable.messages.into_iter().chain(effects.send);
    let mut appended = Vec::new();
    for message in answers {
        let inputs = Inputs { messages: vec![message.data], ..Inputs::default() };
        let effects = group.step(message.to, inputs);
        assert!(effects.restore.is_none());
    }
    while let Some((_, message)) = group.net.pop_front() {
        if message.to == behind {
            let inputs = Inputs { messages: vec![message.data], ..Inputs::default() };
            let member = group.members.get_mut(&behind).expect("the follower");
            appended.extend(member.node.step(inputs).append);
        }
    }
    assert_eq!(appended.iter().map(|entry| entry.index).collect::<Vec<_>>(), [at + 1]);
    assert_eq!(appended[0].data, data("d"));
}

/// Lets time pass and messages flow until the follower is told of a checkpoint.
fn deliver_until_restore(group: &mut Group, leader: u64, behind: u64) -> Effects {
    for _ in 0..50 {
        group.tick(leader, 1);
        while let Some((_, message)) = group.net.pop_front() {
            let inputs = Inputs { messages: vec![message.data], ..Inputs::default() };
            if message.to != behind {
                group.step(message.to, inputs);
                continue;
            }
            let member = group.members.get_mut(&behind).expect("the follower");
            let effects = member.node.step(inputs);
            if effects.restore.is_some() {
                return effects;
            }
            assert!(effects.append.is_empty(), "there is nothing it could append");
            group.net.extend(effects.send.into_iter().map(|message| (behind, message)));
        }
    }
    panic!("the follower is never told");
}

/// A member that starts from a checkpoint hands out nothing at or below it.
#[test]
fn a_start_from_a_checkpoint_applies_only_what_follows() {
    let disk = super::world::Disk {
        entries: Vec::new(),
        hard_state: HardState { term: 5, vote: 1, commit: 1 },
    };
    let mut node = node(1, &[1], 3, &disk);
    let effects = node.step(Inputs { campaign: true, ..Inputs::default() });
    let persisted = Some(effects.number);
    let effects = node.step(Inputs { persisted, ..Inputs::default() });
    assert_eq!(effects.committed.iter().map(|entry| entry.index).collect::<Vec<_>>(), [2]);
    assert_eq!(effects.committed[0].term, 6);
}

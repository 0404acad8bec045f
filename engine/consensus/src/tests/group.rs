//! Three members in memory under random delivery, durability, crashes and cuts: what was committed
//! anywhere is never lost and never differs. Then everything heals and the group makes progress.

use proptest::prelude::*;

use super::world::{Group, data};
use crate::{Entry, Inputs};

#[derive(Clone, Debug)]
enum Act {
    Tick(u64, u32),
    Deliver(usize),
    Drop,
    Durable(u64, usize),
    Propose(u64),
    Read(u64),
    Crash(u64),
    Cut(u64),
    Heal,
}

fn act() -> impl Strategy<Value = Act> {
    let id = 1..=3u64;
    prop_oneof![
        4 => (id.clone(), 1..6u32).prop_map(|(id, ticks)| Act::Tick(id, ticks)),
        8 => (1..8usize).prop_map(Act::Deliver),
        1 => Just(Act::Drop),
        8 => (id.clone(), 1..3usize).prop_map(|(id, count)| Act::Durable(id, count)),
        4 => id.clone().prop_map(Act::Propose),
        2 => id.clone().prop_map(Act::Read),
        1 => id.clone().prop_map(Act::Crash),
        1 => id.prop_map(Act::Cut),
        2 => Just(Act::Heal),
    ]
}

struct Run {
    group: Group,
    /// Every entry ever handed out as committed, by index.
    committed: Vec<Entry>,
    proposed: u64,
}

impl Run {
    fn note(&mut self) {
        for member in self.group.members.values() {
            for entry in &member.applied {
                let place = usize::try_from(entry.index - 2).expect("small");
                match self.committed.get(place) {
                    Some(known) => assert_eq!(known, entry, "two truths at one index"),
                    None => self.committed.push(entry.clone()),
                }
            }
        }
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Tick(id, ticks) => self.group.tick(id, ticks),
            Act::Deliver(count) => {
                for _ in 0..count {
                    self.group.deliver_one();
                }
            }
            Act::Drop => drop(self.group.net.pop_front()),
            Act::Durable(id, count) => drop(self.group.durable(id, count)),
            Act::Propose(id) => {
                self.proposed += 1;
                let proposals = vec![data(&self.proposed.to_string())];
                self.group.step(id, Inputs { proposals, ..Inputs::default() });
            }
            Act::Read(id) => {
                self.proposed += 1;
                let reads = vec![self.proposed];
                self.group.step(id, Inputs { reads, ..Inputs::default() });
            }
            Act::Crash(id) => {
                self.group.members.get_mut(&id).expect("a member").crash(id);
            }
            Act::Cut(id) => self.group.cut = vec![id],
            Act::Heal => self.group.cut.clear(),
        }
        self.note();
        for id in 1..=3 {
            self.group.apply(id);
        }
    }
}

fn run(seed: u64, acts: &[Act]) -> Vec<Entry> {
    let mut run = Run { group: Group::new(&[1, 2, 3], seed), committed: Vec::new(), proposed: 0 };
    for act in acts {
        run.act(act);
    }
    run.group.cut.clear();
    let before = run.committed.len();
    let leader = run.group.elect();
    run.group.step(leader, Inputs { proposals: vec![data("end")], ..Inputs::default() });
    run.group.settle();
    for id in 1..=3 {
        run.group.tick(id, 1);
        run.group.settle();
    }
    run.note();
    assert!(run.committed.len() > before, "a healed group makes progress");
    for member in run.group.members.values() {
        assert_eq!(member.applied.len(), run.committed.len(), "everybody catches up");
    }
    run.committed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Safety under any order, then progress; and C6: the same run twice is the same run.
    #[test]
    fn committed_is_never_lost(seed in 0..1000u64, acts in prop::collection::vec(act(), 0..120)) {
        prop_assert_eq!(run(seed, &acts), run(seed, &acts));
    }
}

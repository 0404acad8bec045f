//! Members in memory with a disk that holds what was made durable and a net that holds messages.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::{
    Config, Effects, Entry, EntryKind, HardState, Inputs, Membership, Message, Node, Stored,
};

pub(super) struct Member {
    pub(super) node: Node,
    pub(super) voters: Vec<u64>,
    pub(super) seed: u64,
    /// What a crash leaves.
    pub(super) disk: Disk,
    /// Writes handed out, not yet durable, oldest first.
    pub(super) writes: VecDeque<Write>,
    pub(super) applied: Vec<Entry>,
    pub(super) reads: Vec<(u64, u64)>,
    held: Vec<(u64, Message)>,
}

#[derive(Clone, Default)]
pub(super) struct Disk {
    pub(super) entries: Vec<Entry>,
    pub(super) hard_state: HardState,
}

pub(super) struct Write {
    pub(super) number: u64,
    append: Vec<Entry>,
    hard_state: HardState,
}

impl Disk {
    fn write(&mut self, write: Write) {
        if let Some(first) = write.append.first() {
            self.entries.retain(|entry| entry.index < first.index);
        }
        self.entries.extend(write.append);
        self.hard_state = write.hard_state;
    }
}

pub(super) fn node(id: u64, voters: &[u64], seed: u64, disk: &Disk) -> Node {
    let config = Config { id, election_ticks: 10, heartbeat_ticks: 1, pre_vote: true, seed };
    let stored = Stored {
        base: (1, 1),
        hard_state: disk.hard_state,
        entries: disk.entries.clone(),
        membership: Membership::of_voters(voters),
    };
    Node::new(config, stored).expect("the configuration is right")
}

impl Member {
    pub(super) fn new(id: u64, voters: &[u64], seed: u64) -> Member {
        let disk = Disk::default();
        Member {
            node: node(id, voters, seed, &disk),
            voters: voters.to_vec(),
            seed,
            disk,
            writes: VecDeque::new(),
            applied: Vec::new(),
            reads: Vec::new(),
            held: Vec::new(),
        }
    }

    /// One step; what it asks for is done, but nothing becomes durable. Gives the messages to send.
    pub(super) fn step(&mut self, inputs: Inputs) -> (Effects, Vec<Message>) {
        let effects = self.node.step(inputs);
        if effects.must_write {
            let hard_state = self.node.hard_state();
            let append = effects.append.clone();
            self.writes.push_back(Write { number: effects.number, append, hard_state });
        }
        let after = effects.send_after_durable.after;
        self.held.extend(effects.send_after_durable.messages.iter().map(|m| (after, m.clone())));
        for entry in &effects.committed {
            let last = self.applied.last().map_or(1, |entry| entry.index);
            assert_eq!(entry.index, last + 1, "entries are applied in order, once");
            assert!(self.disk.entries.contains(entry), "C1: {} is not durable here", entry.index);
            if entry.kind == EntryKind::Membership {
                self.node.apply_membership(entry).expect("a change applies");
            }
            self.applied.push(entry.clone());
        }
        self.reads.extend(&effects.read_ready);
        let send = effects.send.clone();
        (effects, send)
    }

    /// Makes the oldest `count` writes durable; gives the step to report and the messages set free.
    pub(super) fn make_durable(&mut self, count: usize) -> (Option<u64>, Vec<Message>) {
        let mut number = None;
        for write in self.writes.drain(..count.min(self.writes.len())) {
            number = Some(write.number);
            self.disk.write(write);
        }
        let Some(reached) = number else { return (None, Vec::new()) };
        let free = self.held.extract_if(.., |(after, _)| *after <= reached);
        let free = free.map(|(_, message)| message).collect();
        (number, free)
    }

    /// Loses whatever was not durable and starts over.
    pub(super) fn crash(&mut self, id: u64) {
        self.seed += 1;
        self.node = node(id, &self.voters, self.seed, &self.disk);
        self.writes.clear();
        self.applied.clear();
        self.reads.clear();
        self.held.clear();
    }

    pub(super) fn applied_index(&self) -> Option<u64> {
        self.applied.last().map(|entry| entry.index)
    }
}

/// A group with a net that delivers when told to.
pub(super) struct Group {
    pub(super) members: BTreeMap<u64, Member>,
    pub(super) net: VecDeque<(u64, Message)>,
    pub(super) cut: Vec<u64>,
}

impl Group {
    pub(super) fn new(voters: &[u64], seed: u64) -> Group {
        let members =
            voters.iter().map(|id| (*id, Member::new(*id, voters, seed * 100 + id))).collect();
        Group { members, net: VecDeque::new(), cut: Vec::new() }
    }

    pub(super) fn step(&mut self, id: u64, inputs: Inputs) -> Effects {
        let member = self.members.get_mut(&id).expect("a member of this group");
        let (effects, send) = member.step(inputs);
        self.net.extend(send.into_iter().map(|message| (id, message)));
        effects
    }

    pub(super) fn durable(&mut self, id: u64, count: usize) -> Option<Effects> {
        let member = self.members.get_mut(&id).expect("a member of this group");
        let (number, free) = member.make_durable(count);
        self.net.extend(free.into_iter().map(|message| (id, message)));
        number.map(|_| self.step(id, Inputs { persisted: number, ..Inputs::default() }))
    }

    pub(super) fn apply(&mut self, id: u64) -> Effects {
        let applied = self.members[&id].applied_index();
        self.step(id, Inputs { applied, ..Inputs::default() })
    }

    /// Delivers the oldest message; false when there was none.
    pub(super) fn deliver_one(&mut self) -> bool {
        let Some((from, message)) = self.net.pop_front() else { return false };
        if !self.cut.contains(&from) && !self.cut.contains(&message.to) {
            let messages = vec![message.data];
            self.step(message.to, Inputs { messages, ..Inputs::default() });
        }
        true
    }

    /// Everything durable, everything delivered, everything applied, until nothing moves.
    pub(super) fn settle(&mut self) {
        let ids: Vec<u64> = self.members.keys().copied().collect();
        for _ in 0..10_000 {
            let mut moved = false;
            for id in &ids {
                moved |= self.durable(*id, usize::MAX).is_some();
            }
            moved |= self.deliver_one();
            if !moved {
                for id in &ids {
                    self.apply(*id);
                }
                return;
            }
        }
        panic!("the group never settles");
    }

    pub(super) fn tick(&mut self, id: u64, ticks: u32) {
        for _ in 0..ticks {
            self.step(id, Inputs { ticks: 1, ..Inputs::default() });
        }
    }

    pub(super) fn leader(&self) -> Option<u64> {
        let leads = |id: &u64| {
            let status = self.members[id].node.status();
            !self.cut.contains(id) && status.role == crate::Role::Leader
        };
        self.members
            .keys()
            .copied()
            .filter(leads)
            .max_by_key(|id| self.members[id].node.status().term)
    }

    /// Lets time pass until somebody leads and has committed in its term.
    pub(super) fn elect(&mut self) -> u64 {
        for _ in 0..200 {
            let ids: Vec<u64> = self.members.keys().copied().collect();
            for id in ids {
                if !self.cut.contains(&id) {
                    self.tick(id, 1);
                }
                self.settle();
            }
            if let Some(leader) = self.leader() {
                if self.members[&leader].node.status().commit_in_term {
                    return leader;
                }
            }
        }
        panic!("nobody was elected");
    }
}

pub(super) fn data(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

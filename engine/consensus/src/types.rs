//! What goes into a step and what comes out of it, as plain data.

use bytes::Bytes;

/// How a node is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// This member's raft id. Never 0.
    pub id: u64,
    /// Ticks without a leader before an election; the timeout is drawn between this and its double.
    pub election_ticks: usize,
    /// Ticks between two heartbeats of a leader.
    pub heartbeat_ticks: usize,
    /// Asks for votes before it raises its term.
    pub pre_vote: bool,
    /// Where the election timeouts come from.
    pub seed: u64,
}

/// What a member knows from its log and checkpoint when it starts.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// Index and term of the checkpoint the log follows; everything up to here is applied.
    pub base: (u64, u64),
    /// Term, vote and commit as last written. A commit beyond the last entry is cut to it: commit
    /// travels in later batches than the entries it speaks of.
    pub hard_state: HardState,
    /// The entries after the base, without a gap.
    pub entries: Vec<Entry>,
    /// Who votes, as of the base.
    pub membership: Membership,
}

/// What raft must never forget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The current term.
    pub term: u64,
    /// Whom this member voted for in that term; 0 is nobody.
    pub vote: u64,
    /// The highest index known to be committed. Only a hint after a restart.
    pub commit: u64,
}

/// What an entry carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// A command of the state machine; empty data is a new leader's first entry.
    Command = 0,
    /// A change of membership, to be given to `Node::apply_membership`.
    Membership = 2,
}

impl EntryKind {
    /// The kind a stored byte stands for.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<EntryKind> {
        match byte {
            0 => Some(EntryKind::Command),
            2 => Some(EntryKind::Membership),
            _ => None,
        }
    }

    /// The byte that stands for this kind in a log.
    #[must_use]
    pub fn to_byte(self) -> u8 {
        match self {
            EntryKind::Command => 0,
            EntryKind::Membership => 2,
        }
    }
}

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place, from 1.
    pub index: u64,
    /// The term of the leader that appended it.
    pub term: u64,
    /// What the data is.
    pub kind: EntryKind,
    /// The data; shared, never copied by a clone.
    pub data: Bytes,
}

/// Who votes and who only listens. Two voter lists while a joint change is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Voters, ascending.
    pub voters: Vec<u64>,
    /// Learners, ascending.
    pub learners: Vec<u64>,
    /// Voters of the outgoing half of a joint change.
    pub voters_outgoing: Vec<u64>,
    /// Voters that become learners when the joint change ends.
    pub learners_next: Vec<u64>,
    /// A joint change ends by itself.
    pub auto_leave: bool,
}

impl Membership {
    /// A group of these voters.
    #[must_use]
    pub fn of_voters(voters: &[u64]) -> Membership {
        Membership { voters: voters.to_vec(), ..Membership::default() }
    }

    /// Whether `id` is the only one whose vote counts.
    #[must_use]
    pub fn is_sole_voter(&self, id: u64) -> bool {
        self.voters == [id] && self.voters_outgoing.is_empty()
    }
}

/// A wish to change who belongs to the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What happens to whom, in this order. Several at once make a joint change.
    pub steps: Vec<(ChangeKind, u64)>,
    /// Whatever the caller wants to find in the entry again.
    pub context: Bytes,
}

/// What happens to one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It votes from now on.
    AddVoter,
    /// It listens from now on.
    AddLearner,
    /// It is gone.
    Remove,
}

/// Everything that happened since the last step.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// Ticks of the clock.
    pub ticks: u32,
    /// Messages of peers, as their nodes made them.
    pub messages: Vec<Bytes>,
    /// Commands to append. All are taken, in order, or none.
    pub proposals: Vec<Bytes>,
    /// A change of membership to append.
    pub change: Option<Change>,
    /// Everything up to the step of this `Effects::number` is durable.
    pub persisted: Option<u64>,
    /// Every entry up to this index is applied.
    pub applied: Option<u64>,
    /// Names of reads that want a read point. Names ascend.
    pub reads: Vec<u64>,
    /// Reads with names up to this one want none any more.
    pub reads_forgotten: u64,
    /// Asks for an election now.
    pub campaign: bool,
}

/// A message to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Whom it is for.
    pub to: u64,
    /// What to hand to that member's `Inputs::messages`.
    pub data: Bytes,
}

/// Messages that wait for a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The `Effects::number` that must be durable first.
    pub after: u64,
    /// The messages.
    pub messages: Vec<Message>,
}

/// A checkpoint a leader told this member to take the place of its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotMark {
    /// The last index it covers.
    pub index: u64,
    /// The term of that index.
    pub term: u64,
    /// Who belonged to the group then.
    pub membership: Membership,
}

/// What must be done because of a step.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// Names this step; numbers ascend.
    pub number: u64,
    /// Entries to append. An index at or below an earlier one replaces the log from there on.
    pub append: Vec<Entry>,
    /// The hard state, where it changed. A change of commit alone needs no write of its own.
    pub hard_state: Option<HardState>,
    /// Whether this step must become durable, to be reported by `Inputs::persisted`.
    pub must_write: bool,
    /// A checkpoint to install before anything else of this step.
    pub restore: Option<SnapshotMark>,
    /// Messages to send at once.
    pub send: Vec<Message>,
    /// Messages to send when the step they name is durable.
    pub send_after_durable: Held,
    /// Entries to apply, in index order, each exactly once.
    pub committed: Vec<Entry>,
    /// Reads that may be served once the given index is applied.
    pub read_ready: Vec<(u64, u64)>,
    /// Where the proposals of this step begin in the log; `None` when there were none or they were
    /// not taken because this member does not lead.
    pub proposed: Option<u64>,
    /// Whether the membership change of this step was taken.
    pub change_taken: bool,
    /// There is more to do: step again even without new inputs.
    pub more: bool,
}

/// What part a member plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Follows a leader or waits for one.
    Follower,
    /// Asks whether it might win.
    PreCandidate,
    /// Asks for votes.
    Candidate,
    /// Leads.
    Leader,
}

/// Where a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its part.
    pub role: Role,
    /// The current term.
    pub term: u64,
    /// The leader it knows; 0 is none.
    pub leader: u64,
    /// The highest index known to be committed.
    pub commit: u64,
    /// The last index of its log.
    pub last: u64,
    /// The last index that is durable here.
    pub persisted: u64,
    /// Whether an entry of the current term is committed.
    pub commit_in_term: bool,
}

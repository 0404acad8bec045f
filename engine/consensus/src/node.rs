//! The only file that names raft's `RawNode`.

use bytes::Bytes;
use prost_raft::Message as _;
use raft::eraftpb::{self, ConfChangeSingle, ConfChangeType, ConfChangeV2, EntryType, MessageType};
use raft::{RawNode, Ready, StateRole};

use crate::limits::{COMMITTED_BYTES_MAX, MESSAGE_BYTES_MAX, MESSAGES_IN_FLIGHT_MAX};
use crate::log::{Log, from_conf_state, from_raft};
use crate::logger;
use crate::reads::Reads;
use crate::types::{
    Change, ChangeKind, Config, Effects, Entry, EntryKind, HardState, Held, Inputs, Membership,
    Message, Role, SnapshotMark, Status, Stored,
};

/// One member's consensus. Lives on its replica's core; a step neither waits nor draws from
/// anything but its seed.
pub struct Node {
    raw: RawNode<Log>,
    config: Config,
    membership: Membership,
    random: u64,
    reads: Reads,
    /// The last step that must be written, the last one that changed term or vote, and the last
    /// one that is durable.
    written: u64,
    voted: u64,
    persisted: u64,
    /// Term and vote as last handed out to be written.
    vote: (u64, u64),
    /// C4: set while a stored membership change may have made this member one of several.
    campaign_barred: bool,
    /// Term and leader when reads were last looked at.
    seen: (u64, u64),
}

impl Node {
    /// A node over what was stored.
    ///
    /// # Errors
    /// What is wrong with the configuration. The caller refuses to start.
    pub fn new(config: Config, stored: Stored) -> Result<Node, String> {
        let last = stored.entries.last().map_or(stored.base.0, |entry| entry.index);
        let mut hard_state = stored.hard_state;
        hard_state.commit = hard_state.commit.clamp(stored.base.0, last);
        hard_state.term = hard_state.term.max(stored.base.1);
        if let Some(entry) = stored.entries.last() {
            hard_state.term = hard_state.term.max(entry.term);
        }
        let pending_change = stored
            .entries
            .iter()
            .any(|entry| entry.index > hard_state.commit && entry.kind == EntryKind::Membership);
        let sole_voter = stored.membership.is_sole_voter(config.id);
        let log = Log::new(stored.base, stored.entries, hard_state, &stored.membership);
        let raft = raft_config(&config, stored.base.0);
        let raw = RawNode::new(&raft, log, &logger::silent()).map_err(|error| error.to_string())?;
        Ok(Node {
            raw,
            random: config.seed,
            membership: stored.membership,
            config,
            reads: Reads::default(),
            written: 0,
            voted: 0,
            persisted: 0,
            vote: (hard_state.term, hard_state.vote),
            campaign_barred: sole_voter && pending_change,
            seen: (0, 0),
        })
    }

    /// Takes what happened and says what must be done. Order inside: what became durable and was
    /// applied, messages, ticks, campaign, proposals, reads.
    pub fn step(&mut self, inputs: Inputs) -> Effects {
        tracing::trace!(target: "path", "Node::step");
        let mut effects = Effects::default();
        if let Some(number) = inputs.persisted {
            self.persist(number);
        }
        if let Some(applied) = inputs.applied {
            self.raw.advance_apply_to(applied);
        }
        for message in inputs.messages {
            self.receive(&message);
        }
        for _ in 0..inputs.ticks {
            self.tick();
        }
        if inputs.campaign && self.may_campaign() {
            // An answer of `Err` only says that raft saw no reason to campaign.
            let _ = self.raw.campaign();
        }
        effects.proposed = self.propose(inputs.proposals);
        effects.change_taken = inputs.change.is_some_and(|change| self.propose_change(&change));
        self.reads.forget(inputs.reads_forgotten);
        self.reads.wait(inputs.reads);
        self.ask_for_read_point(&mut effects);
        if self.raw.has_ready() {
            let ready = self.raw.ready();
            self.take_ready(ready, &mut effects);
        }
        effects.more = self.raw.has_ready();
        effects
    }

    /// Applies a committed membership entry and gives the membership that follows from it. To be
    /// called once per entry of that kind, in order, before a later step.
    ///
    /// # Errors
    /// Why the entry cannot be applied. Every member fails alike, so the entry changes nothing.
    pub fn apply_membership(&mut self, entry: &Entry) -> Result<Membership, String> {
        assert_eq!(entry.kind, EntryKind::Membership, "only membership entries change membership");
        let change = ConfChangeV2::decode(entry.data.clone()).map_err(|error| error.to_string())?;
        let state = self.raw.apply_conf_change(&change).map_err(|error| error.to_string())?;
        self.membership = from_conf_state(&state);
        Ok(self.membership.clone())
    }

    /// The context of a membership entry.
    ///
    /// # Errors
    /// The entry does not parse.
    pub fn membership_context(entry: &Entry) -> Result<Bytes, String> {
        let change = ConfChangeV2::decode(entry.data.clone()).map_err(|error| error.to_string())?;
        Ok(Bytes::from(change.context))
    }

    /// Who belongs to the group, as applied here.
    #[must_use]
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Whether this member alone decides.
    #[must_use]
    pub fn is_sole_voter(&self) -> bool {
        self.membership.is_sole_voter(self.config.id)
    }

    /// C4: the members a stored change names have answered, or an operator decided.
    pub fn allow_campaign(&mut self) {
        self.campaign_barred = false;
    }

    /// Forgets entries up to `index`, at most what is applied. A member that is sent appends from
    /// before them gets the checkpoint instead.
    pub fn compact(&mut self, index: u64) {
        let applied = self.raw.raft.raft_log.applied;
        self.raw.mut_store().compact(index.min(applied));
    }

    /// Names the checkpoint that members too far behind are sent.
    pub fn set_checkpoint(&mut self, mark: SnapshotMark) {
        assert!(mark.index <= self.raw.raft.raft_log.applied, "a checkpoint holds what is applied");
        self.raw.mut_store().set_checkpoint(mark);
    }

    /// The term, vote and commit that the next write should carry.
    #[must_use]
    pub fn hard_state(&self) -> HardState {
        let state = self.raw.raft.hard_state();
        HardState { term: state.term, vote: state.vote, commit: state.commit }
    }

    /// Where this node stands.
    #[must_use]
    pub fn status(&self) -> Status {
        let raft = &self.raw.raft;
        let role = match raft.state {
            StateRole::Follower => Role::Follower,
            StateRole::PreCandidate => Role::PreCandidate,
            StateRole::Candidate => Role::Candidate,
            StateRole::Leader => Role::Leader,
        };
        Status {
            role,
            term: raft.term,
            leader: raft.leader_id,
            commit: raft.raft_log.committed,
            last: raft.raft_log.last_index(),
            persisted: raft.raft_log.persisted,
            commit_in_term: raft.commit_to_current_term(),
        }
    }

    fn persist(&mut self, number: u64) {
        assert!(number <= self.written, "step {number} was never written (last {})", self.written);
        assert!(number >= self.persisted, "step {number} after {}", self.persisted);
        self.persisted = number;
        self.raw.on_persist_ready(number);
    }

    fn receive(&mut self, message: &Bytes) {
        let Ok(message) = eraftpb::Message::decode(message.clone()) else {
            tracing::warn!(id = self.config.id, "a peer's message does not parse");
            return;
        };
        // A forwarded proposal has no place in the answers of this node.
        if message.get_msg_type() == MessageType::MsgPropose {
            return;
        }
        // An error means that the message is of no use here: its sender is no member, or stale.
        let _ = self.raw.step(message);
    }

    fn tick(&mut self) {
        self.reads.tick(self.config.election_ticks);
        if !self.may_tick() {
            return;
        }
        if self.raw.raft.election_elapsed == 0 {
            let ticks = self.config.election_ticks as u64;
            let timeout = ticks + self.next_random() % ticks;
            let timeout = usize::try_from(timeout).expect("an election timeout is small");
            self.raw.raft.set_randomized_election_timeout(timeout);
        }
        self.raw.tick();
    }

    /// C3: a member that is not leader and whose last entry is not durable keeps still.
    fn may_tick(&self) -> bool {
        self.raw.raft.state == StateRole::Leader || self.may_campaign()
    }

    fn may_campaign(&self) -> bool {
        let log = &self.raw.raft.raft_log;
        !self.campaign_barred && log.persisted == log.last_index()
    }

    fn propose(&mut self, proposals: Vec<Bytes>) -> Option<u64> {
        if proposals.is_empty() || self.raw.raft.state != StateRole::Leader {
            return None;
        }
        let entries = proposals
            .into_iter()
            .map(|data| eraftpb::Entry { data: Vec::from(data), ..eraftpb::Entry::default() });
        self.propose_entries(entries.collect())
    }

    fn propose_change(&mut self, change: &Change) -> bool {
        if self.raw.raft.state != StateRole::Leader || self.raw.raft.has_pending_conf() {
            return false;
        }
        let changes = change.steps.iter().map(|(kind, id)| {
            let kind = match kind {
                ChangeKind::AddVoter => ConfChangeType::AddNode,
                ChangeKind::AddLearner => ConfChangeType::AddLearnerNode,
                ChangeKind::Remove => ConfChangeType::RemoveNode,
            };
            let mut step = ConfChangeSingle { node_id: *id, ..ConfChangeSingle::default() };
            step.set_change_type(kind);
            step
        });
        let mut wire = ConfChangeV2 { changes: changes.collect(), ..ConfChangeV2::default() };
        wire.context = change.context.to_vec();
        let data = wire.encode_to_vec();
        let mut entry = eraftpb::Entry { data, ..eraftpb::Entry::default() };
        entry.set_entry_type(EntryType::EntryConfChangeV2);
        self.propose_entries(vec![entry]).is_some()
    }

    fn propose_entries(&mut self, entries: Vec<eraftpb::Entry>) -> Option<u64> {
        let first = self.raw.raft.raft_log.last_index() + 1;
        let mut message = eraftpb::Message { from: self.config.id, ..Default::default() };
        message.set_msg_type(MessageType::MsgPropose);
        message.entries = entries;
        self.raw.raft.step(message).ok().map(|()| first)
    }

    /// C5. A sole voter needs no question: nobody else can have committed anything.
    fn ask_for_read_point(&mut self, effects: &mut Effects) {
        let raft = &self.raw.raft;
        let now = (raft.term, raft.leader_id);
        if self.seen != now {
            self.seen = now;
            self.reads.forget_question();
        }
        let leads = raft.state == StateRole::Leader;
        if leads && !raft.commit_to_current_term() {
            return;
        }
        if leads && self.is_sole_voter() {
            let commit = raft.raft_log.committed;
            let reads = self.reads.take_all();
            effects.read_ready.extend(reads.into_iter().map(|read| (read, commit)));
            return;
        }
        if self.reads.wants_to_ask() && raft.leader_id != 0 {
            let number = self.reads.ask();
            self.raw.read_index(number.to_le_bytes().to_vec());
        }
    }

    fn take_ready(&mut self, mut ready: Ready, effects: &mut Effects) {
        let number = ready.number();
        effects.number = number;
        effects.hard_state = ready.hs().map(|state| HardState {
            term: state.term,
            vote: state.vote,
            commit: state.commit,
        });
        effects.must_write = ready.must_sync();
        if effects.must_write {
            self.written = number;
        }
        let before = self.vote;
        if let Some(state) = effects.hard_state {
            self.vote = (state.term, state.vote);
        }
        if self.vote != before {
            assert!(effects.must_write, "a change of term or vote is always written");
            self.voted = number;
        }
        effects.append = ready.take_entries().into_iter().map(from_raft).collect();
        let restore = ready.snapshot().clone();
        self.take_messages(&mut ready, effects);
        for state in ready.take_read_states() {
            let Ok(context) = <[u8; 8]>::try_from(state.request_ctx.as_slice()) else { continue };
            let reads = self.reads.answered(u64::from_le_bytes(context));
            effects.read_ready.extend(reads.into_iter().map(|read| (read, state.index)));
        }
        if !restore.is_empty() {
            let mark = snapshot_mark(&restore);
            self.membership = mark.membership.clone();
            self.raw.mut_store().restore(mark.clone());
            effects.restore = Some(mark);
        }
        self.raw.mut_store().append(&effects.append);
        let log = self.raw.store();
        effects.committed = ready
            .take_committed_entries()
            .iter()
            .map(|entry| log.get(entry.index).expect("a committed entry is in the log").clone())
            .collect();
        self.raw.advance_append_async(ready);
        if self.written <= self.persisted {
            // Nothing is on its way to the disk: raft need not remember this step.
            self.raw.on_persist_ready(number);
        }
    }
    /// C2: a follower's messages speak of what it wrote; a leader's may overtake its own entries,
    /// never its term.
    fn take_messages(&mut self, ready: &mut Ready, effects: &mut Effects) {
        let leads = self.raw.raft.state == StateRole::Leader;
        let messages = if leads { ready.take_messages() } else { ready.take_persisted_messages() };
        let after = if leads { self.voted } else { self.written };
        let messages: Vec<Message> = messages
            .into_iter()
            .map(|message| Message { to: message.to, data: message.encode_to_vec().into() })
            .collect();
        if after <= self.persisted {
            effects.send = messages;
        } else if !messages.is_empty() {
            effects.send_after_durable = Held { after, messages };
        }
    }

    /// `splitmix64`.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn raft_config(config: &Config, applied: u64) -> raft::Config {
    raft::Config {
        id: config.id,
        election_tick: config.election_ticks,
        heartbeat_tick: config.heartbeat_ticks,
        applied,
        max_size_per_msg: MESSAGE_BYTES_MAX,
        max_inflight_msgs: MESSAGES_IN_FLIGHT_MAX,
        check_quorum: true,
        pre_vote: config.pre_vote,
        max_committed_size_per_ready: COMMITTED_BYTES_MAX,
        ..raft::Config::default()
    }
}

fn snapshot_mark(snapshot: &eraftpb::Snapshot) -> SnapshotMark {
    let metadata = snapshot.get_metadata();
    SnapshotMark {
        index: metadata.index,
        term: metadata.term,
        membership: from_conf_state(metadata.get_conf_state()),
    }
}

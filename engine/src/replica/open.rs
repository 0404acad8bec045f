//! Open and close: from what is stored to a replica that serves, and back.

use ringbolt_io::planted::{self, Planted};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;

use ringbolt_consensus::{Config, Membership, Node, Stored};
use ringbolt_io::Io;
use ringbolt_io::local::Bell;

use super::checkpoint::{self, Checkpoints};
use super::config::{OpenError, ReplicaConfig};
use super::leases::Leases;
use super::life::Life;
use super::tasks::ahead_of;
use super::{Core, Identity, Replica, View, log};
use crate::error::Error;
use crate::lease::ttl_min_s;
use crate::limits::REVISIONS_UNKNOWN_MAX;
use crate::state::members::{bootstrap_member_id, cluster_id};
use crate::state::{Command, ConfState, Member, Members, State, StateConfig};
use crate::types::{MemberId, RaftIndex, Revision};
use crate::wal::{self, Failure, Recovered, Wal};

/// The term before the first election, as if a bootstrap had written it: the first leader is at 2,
/// as with etcd.
const FIRST_TERM: u64 = 1;

impl Replica {
    /// Opens the keyspace of `config` and starts its tasks. When it returns, this member leads (it
    /// is the sole voter), everything acknowledged before is applied, and the fence, if one is
    /// needed, too (R6).
    ///
    /// # Errors
    /// Why it cannot be opened; nothing was changed that an earlier release could not read.
    pub async fn open(io: Io, config: ReplicaConfig) -> Result<Rc<Replica>, OpenError> {
        Replica::open_shown(io, config, |_| ()).await
    }

    /// As `open`. `stored` is shown the state as the log and its checkpoint have it, before the
    /// fence and before anybody is served; what it sees is durable.
    ///
    /// # Errors
    /// As `open`.
    pub async fn open_shown(
        io: Io,
        config: ReplicaConfig,
        stored: impl FnOnce(&State),
    ) -> Result<Rc<Replica>, OpenError> {
        let (wal, recovered) = open_log(&io, &config).await?;
        let state = stored_state(&io, &config, &recovered).await?;
        let base = (state.applied().0, state.applied_term().0);
        let membership = membership(&state, recovered.identity.member_id);
        let log = log::stored(&recovered, base, membership, FIRST_TERM)?;
        let replica = Replica::join(io, config, recovered.identity, log, wal, state)?;
        replica.spawn_tasks();
        replica.bell.ring();
        if let Err(error) = replica.begin(&recovered, stored).await {
            replica.abandon();
            let entry = replica.life.bad_entry();
            return Err(entry.map_or(error, |(index, found)| {
                let corruption = recovered.corruption(index, "one that can be applied", &found);
                OpenError::Log(corruption.into())
            }));
        }
        Ok(replica)
    }

    fn join(
        io: Io,
        config: ReplicaConfig,
        identity: Identity,
        stored: Stored,
        wal: Wal,
        state: State,
    ) -> Result<Rc<Replica>, OpenError> {
        let node_config = Config {
            id: identity.member_id.0,
            election_ticks: config.election_ticks,
            heartbeat_ticks: 1,
            pre_vote: true,
            seed: io.random_u64(),
        };
        let (applied, applied_term) = stored.base;
        let node = Node::new(node_config, stored).map_err(OpenError::Config)?;
        let core = Core {
            node,
            log: Some(wal),
            writes: VecDeque::new(),
            to_apply: VecDeque::new(),
            applied,
            applied_term,
            ticks: 0,
            campaign: true,
        };
        let leases = Leases::new(config.request_timeout());
        let bell = Rc::new(Bell::default());
        if let Some(wal) = &core.log {
            wal.set_bell(bell.clone());
        }
        Ok(Rc::new(Replica {
            io,
            config,
            identity,
            bell,
            queue: RefCell::default(),
            reads: RefCell::default(),
            core: RefCell::new(core),
            state: RefCell::new(state),
            leases: RefCell::new(leases),
            hooks: RefCell::default(),
            view: Cell::new(View::default()),
            life: Life::new(),
            drained: Bell::default(),
            reserve: Bell::default(),
            compaction: super::tasks::Compaction::default(),
            checkpoints: Checkpoints::new(RaftIndex(applied)),
            handles: RefCell::default(),
        }))
    }

    /// What a member that starts says first: the fence, who it is, where clients reach it, and the
    /// version.
    async fn begin(
        &self,
        recovered: &Recovered,
        stored: impl FnOnce(&State),
    ) -> Result<(), OpenError> {
        let wal = self.core.borrow().log.clone().expect("an opening replica has its log");
        // R5: a fresh log has nothing reserved.
        wal.reserve_revisions(ahead_of(Revision::FIRST)).await.map_err(failed)?;
        // Everything stored is applied before anything is asked of the state.
        self.propose_own(Command::Nothing).await?;
        stored(&self.state.borrow());
        if recovered.may_have_lost() && !planted::is(Planted::FenceSkipped) {
            // R6. Nobody was ever given a revision above the ceiling, so the first one above it
            // tells everybody that history jumped.
            let revision = match recovered.revision_ceiling {
                // The mark that knew it is lost: beyond what any log could have given out.
                Revision(0) => {
                    Revision(self.state.borrow().mvcc.revision().0 + REVISIONS_UNKNOWN_MAX)
                }
                ceiling => ceiling.next(),
            };
            wal.reserve_revisions(ahead_of(revision)).await.map_err(failed)?;
            self.propose_own(Command::Fence { revision, compacted: revision }).await?;
            wal.fenced().await.map_err(failed)?;
            tracing::warn!(%revision, "acknowledged writes may be missing: revisions jump");
        }
        self.refuse_downgrade()?;
        for command in self.introduction() {
            self.propose_own(command).await?;
        }
        wal.keep_room(self.state.borrow().checkpoint_bytes());
        self.life.serve();
        Ok(())
    }

    /// Ends the tasks of a replica that could not begin.
    fn abandon(&self) {
        self.life.close();
        for handle in std::mem::take(&mut *self.handles.borrow_mut()) {
            handle.abort();
        }
        drop(self.core.borrow_mut().log.take());
    }

    async fn propose_own(&self, command: Command) -> Result<(), OpenError> {
        let receipt = self.submit_own(command);
        let answer = match receipt {
            Ok(receipt) => receipt.await.unwrap_or(Err(Error::Stop)),
            Err(error) => Err(error),
        };
        answer.map(|_| ()).map_err(|error| {
            let cause = self.life.failure();
            OpenError::Failed(cause.unwrap_or_else(|| match error {
                Error::Refuse(why) | Error::Retry(why) => {
                    format!("the member's first command was refused ({why:?})")
                }
                Error::Redirect(_) | Error::Stop => "the member stopped as it began".to_owned(),
            }))
        })
    }

    /// What a later release wrote is not for this one. Source: semantics 10.16.
    fn refuse_downgrade(&self) -> Result<(), OpenError> {
        let state = self.state.borrow();
        let (stored, own) = (&state.cluster_version, &self.config.version);
        if minor(stored) <= minor(own) {
            return Ok(());
        }
        Err(OpenError::Config(format!(
            "version {own} is lower than the cluster version {stored}; start that version"
        )))
    }

    fn introduction(&self) -> Vec<Command> {
        let state = self.state.borrow();
        let id = self.identity.member_id;
        let config = &self.config;
        let mut commands = Vec::new();
        if state.members.is_empty() {
            let peer_urls = config.peer_urls.clone();
            let raft_id = id.0;
            commands.push(Command::first_member(Member {
                id,
                raft_id,
                peer_urls,
                ..Member::default()
            }));
        }
        let is_known = state.members.get(id).is_some_and(|member| {
            member.name == config.name && member.client_urls == config.client_urls
        });
        if !is_known {
            let (name, client_urls) = (config.name.clone(), config.client_urls.clone());
            commands.push(Command::MemberAttributes { member: id, name, client_urls });
        }
        if state.cluster_version != config.cluster_version() {
            commands.push(Command::ClusterVersion(config.cluster_version()));
        }
        commands
    }

    /// Closes in order: no new requests, every proposal answered, the log marked clean. Waits at
    /// most the request timeout for proposals in flight.
    pub async fn close(&self) {
        self.life.close();
        let drain = async {
            while self.queue.borrow().len() > 0 && !self.life.has_failed() {
                self.drained.heard().await;
            }
        };
        let _ = self.io.timeout(self.config.request_timeout(), drain).await;
        let handles = std::mem::take(&mut *self.handles.borrow_mut());
        for handle in &handles {
            handle.abort();
        }
        let log = self.core.borrow_mut().log.take();
        if let Some(log) = log
            && let Err(failure) = log.close().await
        {
            self.life.fail(failure.to_string());
        }
        self.queue.borrow_mut().fail_all(&Error::Stop);
        self.reads.borrow_mut().fail_all(&Error::Stop);
    }
}

/// Opens a damaged log in `directory` and gives up what cannot be kept: as much as the log and the
/// checkpoint that lies beside it still tell stays. `ringbolt recover --accept-loss`.
///
/// # Errors
/// As `Wal::accept_loss`.
pub async fn accept_loss(
    io: &Io,
    directory: &Path,
    mut config: wal::WalConfig,
) -> Result<(Wal, Recovered), wal::OpenError> {
    config.check = log::check_entry;
    // A sole first member votes for itself, and names the cluster.
    let identity = |voted_for| {
        let member_id = MemberId(voted_for);
        Identity { cluster_id: cluster_id(&[member_id]), member_id }
    };
    let checkpoint = checkpoint::newest(io, directory).await;
    let known = wal::Known { identity: &identity, checkpoint };
    Wal::accept_loss(io, directory, config, &known).await
}

/// Opens the log of the keyspace, or makes it.
async fn open_log(io: &Io, config: &ReplicaConfig) -> Result<(Wal, Recovered), OpenError> {
    let (directory, wal_config) = (&config.directory, log::wal_config(config));
    if !Wal::exists(io, directory).await.map_err(OpenError::Log)? {
        let identity = first_identity(config);
        match Wal::create(io, directory, identity, wal_config.clone()).await {
            // A process that is still dying made it meanwhile.
            Err(wal::OpenError::Exists(_)) => {}
            made => return made.map_err(OpenError::Log),
        }
    }
    // The name of the log may so far live only in the system's memory.
    io.disk()
        .sync_dir(directory)
        .await
        .map_err(|source| OpenError::Log(wal::OpenError::Io { file: directory.clone(), source }))?;
    Wal::open(io, directory, wal_config).await.map_err(OpenError::Log)
}

/// The state the log goes on from: that of the checkpoint it names, or a fresh one.
async fn stored_state(
    io: &Io,
    config: &ReplicaConfig,
    recovered: &Recovered,
) -> Result<State, OpenError> {
    let (directory, fresh) = (&config.directory, state_config(config));
    let Some(named) = &recovered.checkpoint else {
        checkpoint::clean(io, directory, None).await;
        return Ok(State::new(fresh));
    };
    let state = checkpoint::load(io, directory, recovered.identity, named, fresh).await?;
    checkpoint::clean(io, directory, Some(&named.file)).await;
    Ok(state)
}

/// Who votes, as the state knows it. A fresh state knows nobody yet: it has one member.
fn membership(state: &State, own: MemberId) -> Membership {
    if state.members.is_empty() {
        return Membership::of_voters(&[own.0]);
    }
    let ConfState { voters, learners } = state.members.conf_state();
    Membership { voters, learners, ..Membership::default() }
}

fn failed(failure: Failure) -> OpenError {
    OpenError::Failed(failure.to_string())
}

/// Major and minor of a version; zeros for what is none.
fn minor(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// The ids of a fresh store. Source: etcd, semantics 10.2.
fn first_identity(config: &ReplicaConfig) -> Identity {
    let member_id: MemberId = bootstrap_member_id(&config.peer_urls, &config.cluster_token);
    Identity { cluster_id: cluster_id(&[member_id]), member_id }
}

/// A fresh state begins without members: who belongs to the cluster is its first command.
fn state_config(config: &ReplicaConfig) -> StateConfig {
    StateConfig {
        max_txn_ops: config.max_txn_ops,
        max_request_bytes: config.max_request_bytes,
        quota_bytes: config.quota_bytes,
        min_lease_ttl_s: ttl_min_s(config.election_timeout()),
        members: Members::default(),
    }
}

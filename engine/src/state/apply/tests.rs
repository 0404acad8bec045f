//! Apply as a function of the log: the same commands give the same state, hash and answers, and
//! keys and leases always agree. What each request does is told by the scripts in `testdata`.

use proptest::prelude::*;
use ringbolt_proto::etcdserverpb::request_op::Request;

use super::*;
use crate::state::tests::golden::Store;
use crate::state::tests::script;
use crate::state::{Member, Members, StateConfig};
use crate::types::MemberId;

fn command(text: &str) -> Command {
    match script::request(text) {
        Request::RequestPut(request) => Command::Put(request),
        Request::RequestDeleteRange(request) => Command::DeleteRange(request),
        Request::RequestTxn(request) => Command::Txn(request),
        Request::RequestRange(_) => panic!("a read is no command"),
    }
}

fn grant(id: i64) -> Command {
    Command::LeaseGrant(LeaseGrantRequest { ttl: 60, id })
}

fn any_command() -> impl Strategy<Value = Command> {
    let key = || prop::sample::select(vec!["a", "b", "c", "d", "e"]);
    let put = || {
        (key(), 0_i64..4, 0_u8..8).prop_map(|(key, lease, keeps)| match keeps {
            0 => format!("put {key} - ignore-value lease={lease}"),
            1 => format!("put {key} x ignore-lease"),
            _ => format!("put {key} x lease={lease}"),
        })
    };
    let delete = || (key(), key()).prop_map(|(start, end)| format!("del {start} {end}"));
    let op = || prop_oneof![put(), delete()];
    let txn = (key(), op(), op(), op()).prop_map(|(key, first, second, third)| {
        format!("txn\n  if version {key} > 1\n  then {first}\n  then {second}\n  else {third}")
    });
    let id = || 1_i64..4;
    prop_oneof![
        4 => put().prop_map(|text| command(&text)),
        2 => delete().prop_map(|text| command(&text)),
        3 => txn.prop_map(|text| command(&text)),
        2 => id().prop_map(grant),
        1 => id().prop_map(|id| Command::LeaseRevoke(LeaseRevokeRequest { id })),
        1 => (0_i64..30).prop_map(|revision| {
            Command::Compact(CompactionRequest { revision, physical: false })
        }),
    ]
}

proptest! {
    /// A1 and A2, and L2 at every step (`Store::apply` checks the whole state).
    #[test]
    fn the_same_log_gives_the_same_state(
        commands in prop::collection::vec(any_command(), 0..60),
    ) {
        let mut there = Store::new();
        let mut back = Store::new();
        for command in &commands {
            let before = (there.state.mvcc.revision(), there.state.export_rest().split_off(28));
            let reply = there.apply(command);
            if reply.is_err() {
                let after = (there.state.mvcc.revision(), there.state.export_rest().split_off(28));
                prop_assert_eq!(before, after, "A1: an error changed something");
            }
            prop_assert_eq!(&reply, &back.apply(command));
            prop_assert_eq!(there.state.rolling(), back.state.rolling());
        }
        prop_assert_eq!(there.state.export_rest(), back.state.export_rest());
    }
}

/// A refused command moves the applied index and the rolling hash, nothing else.
#[test]
fn a_refused_command_still_counts() {
    let mut store = Store::new();
    let before = store.state.rolling();
    assert_eq!(store.apply(&command("put a 1 lease=5")), Err(Reason::LeaseNotFound));
    assert_eq!(store.state.applied(), RaftIndex(1));
    assert_ne!(store.state.rolling(), before);
    assert_eq!(store.state.mvcc.revision(), Revision(1));
}

/// A delete "from key on" is not seen by the check for keys written twice; a later put that wants
/// to keep what was deleted has nothing to keep. etcd 3.7.3 stops the whole server here.
#[test]
fn a_put_cannot_keep_what_the_transaction_deleted() {
    let mut store = Store::new();
    store.apply(&command("put b 1")).expect("a plain put");
    for text in [
        "txn\n  then del a \\0\n  then put b - ignore-value",
        "txn\n  then del b \\0\n  then put b 2 ignore-lease",
        "txn\n  then txn\n    then del a \\0\n  then txn\n    then put b - ignore-value",
    ] {
        assert_eq!(store.apply(&command(text)), Err(Reason::KeyNotFound), "{text}");
    }
    let kept = "txn\n  then del c \\0\n  then put b - ignore-value";
    assert!(store.apply(&command(kept)).is_ok());
}

/// The quota is asked before a proposal: sizes at and below it, commands without cost, and the
/// alarm that follows.
#[test]
fn the_quota() {
    let mut store = Store::new();
    let put = command("put a 1");
    store.apply(&put).expect("no alarm is raised");
    let size = i64::try_from(store.state.size_bytes()).expect("small");
    store.state.config.quota_bytes = size + 258;
    assert_eq!(store.state.admit(&put), Err(Reason::NoSpace));
    assert!(store.state.exceeds_quota(&put));
    assert_eq!(store.state.admit(&command("del a")), Ok(()));
    assert_eq!(store.state.admit(&grant(1)), Ok(()));
    store.state.config.quota_bytes = size + 259;
    assert_eq!(store.state.admit(&put), Ok(()));
    store.state.config.quota_bytes = -1;
    assert_eq!(store.state.admit(&put), Ok(()));
    store.apply(&State::no_space_alarm(MemberId(1))).expect("alarms are never refused");
    assert_eq!(store.state.admit(&put), Err(Reason::NoSpace));
    assert!(!store.state.exceeds_quota(&put));
}

/// What only members send: the member record, their attributes, the version, a fence.
#[test]
fn records_and_fences() {
    let mut store = Store::new();
    let member = Member { id: MemberId(5), raft_id: 5, ..Member::default() };
    let attributes = Command::MemberAttributes {
        member: MemberId(5),
        name: "one".to_owned(),
        client_urls: vec!["http://localhost:2379".to_owned()],
    };
    for command in [
        Command::Nothing,
        Command::first_member(member),
        attributes,
        Command::ClusterVersion("3.7.0".to_owned()),
        Command::Fence { revision: Revision(100), compacted: Revision(100) },
    ] {
        assert_eq!(store.apply(&command), Ok(Reply::Done));
    }
    let member = store.state.members.get(MemberId(5)).expect("it was recorded");
    assert_eq!(member.name, "one");
    assert_eq!(store.state.cluster_version, "3.7.0");
    assert_eq!(store.state.mvcc.revision(), Revision(100));
    assert_eq!(store.state.mvcc.compacted(), Revision(100));
    assert_eq!(store.play("put a 1"), ["put at 101"]);
}

/// A fresh store has the members of its configuration until the log says otherwise.
#[test]
fn a_fresh_store_has_its_configured_members() {
    let member = Member { id: MemberId(5), raft_id: 5, ..Member::default() };
    let members = Members::of([member]);
    let config = StateConfig { members: members.clone(), ..StateConfig::default() };
    assert_eq!(State::new(config).members, members);
}

/// A3.
#[test]
#[should_panic(expected = "A3")]
fn an_index_is_applied_once() {
    let mut state = State::new(StateConfig::default());
    state.apply(RaftIndex(1), Term(1), &Command::Nothing).expect("nothing cannot fail");
    let _ = state.apply(RaftIndex(1), Term(1), &Command::Nothing);
}

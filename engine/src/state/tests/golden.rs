//! Golden scripts: each file under `testdata` is a tutorial that is also a test.
//!
//! A file is a list of blocks: lines of `#` comment, one request, a line of four dashes, the whole
//! answer, an empty line. The runner plays the requests on a fresh store and compares the answers.
//! With `RINGBOLT_GOLDEN=write` in the environment it writes them into the file instead.
//!
//! Beside the requests of `script.rs` there are:
//!
//! ```text
//!   compact REVISION          grant ID TTL           revoke ID          lease ID (its keys)
//!   alarm get|raise|clear none|space|corrupt [MEMBER]                   hash REVISION
//! ```

use std::fmt::Write as _;
use std::path::PathBuf;

use ringbolt_io::MonoTime;
use ringbolt_proto::etcdserverpb::request_op::Request;
use ringbolt_proto::etcdserverpb::{
    AlarmRequest, CompactionRequest, LeaseGrantRequest, LeaseRevokeRequest,
};

use super::script;
use crate::error::Reason;
use crate::lease::effective_ttl_s;
use crate::state::{Command, Removal, Reply, State, StateConfig, read, validate};
use crate::types::{LeaseId, RaftIndex, Term};

/// Plays one file.
fn play(name: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/state/testdata").join(name);
    let text = std::fs::read_to_string(&path).expect("the script is there");
    let mut store = Store::new();
    let mut played = String::new();
    for block in text.trim_end().split("\n\n") {
        let is_comment = |line: &&str| line.starts_with('#');
        let (comments, rest): (Vec<&str>, Vec<&str>) = block.lines().partition(is_comment);
        for comment in comments {
            writeln!(played, "{comment}").expect("a string takes everything");
        }
        let request: Vec<&str> = rest.into_iter().take_while(|line| *line != "----").collect();
        if !request.is_empty() {
            let request = request.join("\n");
            let answer = store.play(&request).join("\n");
            writeln!(played, "{request}\n----\n{answer}").expect("a string takes everything");
        }
        played.push('\n');
    }
    let played = format!("{}\n", played.trim_end());
    if std::env::var_os("RINGBOLT_GOLDEN").is_some_and(|mode| mode == "write") {
        std::fs::write(&path, played).expect("the script can be written");
    } else {
        assert!(played == text, "{name} went like this:\n{played}");
    }
}

/// A store as a server would use it: validate, admit, apply.
pub(crate) struct Store {
    pub(crate) state: State,
    index: u64,
}

impl Store {
    pub(crate) fn new() -> Store {
        Store { state: State::new(StateConfig::default()), index: 0 }
    }

    /// Applies a command as the next index.
    pub(crate) fn apply(&mut self, command: &Command) -> Result<Reply, Reason> {
        self.index += 1;
        let command = Command::decode(command.encode()).expect("what was encoded decodes");
        let reply = self.state.apply(RaftIndex(self.index), Term(1), &command);
        self.state.check();
        reply
    }

    /// Plays one request and shows its answer.
    pub(crate) fn play(&mut self, text: &str) -> Vec<String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let answer = match words[..] {
            ["compact", revision] => self.compact(number(revision)),
            ["grant", id, ttl] => self.grant(number(id), number(ttl)),
            ["revoke", id] => self.revoke(number(id)),
            ["lease", id] => Ok(self.lease(number(id))),
            ["alarm", action, alarm] => self.alarm(action, alarm, 1),
            ["alarm", action, alarm, member] => self.alarm(action, alarm, number(member)),
            ["hash", revision] => self.hash(number(revision)),
            _ => self.request(script::request(text)),
        };
        answer.unwrap_or_else(|reason| vec![format!("error {reason:?}")])
    }

    fn request(&mut self, request: Request) -> Result<Vec<String>, Reason> {
        let limits = self.state.config.limits();
        let mut out = Vec::new();
        match request {
            Request::RequestRange(request) => {
                validate::range(&request, &limits)?;
                script::show_range(&read::range(&self.state, &request)?, &mut out, "");
            }
            Request::RequestPut(request) => {
                validate::put(&request, &limits)?;
                let Reply::Put(reply) = self.apply(&Command::Put(request))? else { panic!() };
                script::show_put(&reply, &mut out, "");
            }
            Request::RequestDeleteRange(request) => {
                validate::delete_range(&request, &limits)?;
                let reply = self.apply(&Command::DeleteRange(request))?;
                let Reply::DeleteRange(reply) = reply else { panic!() };
                script::show_delete(&reply, &mut out, "");
            }
            Request::RequestTxn(request) => {
                validate::txn(&request, &limits)?;
                let reply = if validate::is_read_only(&request) {
                    read::txn(&self.state, &request)?
                } else {
                    let Reply::Txn(reply) = self.apply(&Command::Txn(request))? else { panic!() };
                    reply
                };
                script::show_txn(&reply, &mut out, "");
            }
        }
        Ok(out)
    }

    fn compact(&mut self, revision: i64) -> Result<Vec<String>, Reason> {
        let request = CompactionRequest { revision, physical: true };
        let Reply::Compact(reply) = self.apply(&Command::Compact(request))? else { panic!() };
        while self.state.compact_slice(1000, MonoTime(0)) == Removal::More {}
        Ok(vec![format!("compacted at {}", reply.header.expect("set").revision)])
    }

    fn grant(&mut self, id: i64, ttl: i64) -> Result<Vec<String>, Reason> {
        let ttl = effective_ttl_s(ttl, self.state.config.min_lease_ttl_s);
        let reply = self.apply(&Command::LeaseGrant(LeaseGrantRequest { ttl, id }))?;
        let Reply::LeaseGrant(reply) = reply else { panic!() };
        let revision = reply.header.expect("set").revision;
        Ok(vec![format!("granted at {revision} id={} ttl={}", reply.id, reply.ttl)])
    }

    fn revoke(&mut self, id: i64) -> Result<Vec<String>, Reason> {
        let reply = self.apply(&Command::LeaseRevoke(LeaseRevokeRequest { id }))?;
        let Reply::LeaseRevoke(reply) = reply else { panic!() };
        Ok(vec![format!("revoked at {}", reply.header.expect("set").revision)])
    }

    fn lease(&self, id: i64) -> Vec<String> {
        let Some(lease) = self.state.leases.get(LeaseId(id)) else {
            return vec!["no lease".to_owned()];
        };
        let keys: Vec<_> = lease.keys().map(|key| String::from_utf8_lossy(key)).collect();
        vec![format!("lease ttl={} keys=[{}]", lease.ttl_s(), keys.join(" "))]
    }

    fn alarm(&mut self, action: &str, alarm: &str, member: i64) -> Result<Vec<String>, Reason> {
        let index = |names: &[&str], name: &str| {
            let index = names.iter().position(|known| *known == name).expect("a known name");
            i32::try_from(index).expect("few names")
        };
        let kinds = ["none", "space", "corrupt"];
        let request = AlarmRequest {
            action: index(&["get", "raise", "clear"], action),
            member_id: member.cast_unsigned(),
            alarm: index(&kinds, alarm),
        };
        let Reply::Alarm(reply) = self.apply(&Command::Alarm(request))? else { panic!() };
        let mut out = vec![format!("alarms at {}", reply.header.expect("set").revision)];
        for alarm in reply.alarms {
            let kind = kinds[usize::try_from(alarm.alarm).expect("a known kind")];
            out.push(format!("  member={} {kind}", alarm.member_id));
        }
        Ok(out)
    }

    fn hash(&self, revision: i64) -> Result<Vec<String>, Reason> {
        let hash = self.state.mvcc.hash_kv(revision)?;
        let (compacted, at) = (hash.compact_revision, hash.hash_revision);
        Ok(vec![format!("hash {} compacted={compacted} at={at}", hash.hash)])
    }
}

fn number(word: &str) -> i64 {
    word.parse().expect("a number")
}

macro_rules! golden {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                play(concat!(stringify!($name), ".txt"));
            }
        )*
    };
}

golden! {
    put_and_delete
    range
    range_revisions
    txn_compare
    txn_nested
    txn_revisions
    txn_refused
    leases
    alarms
    compaction
}

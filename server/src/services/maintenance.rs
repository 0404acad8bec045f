//! The Maintenance service.

use std::rc::Rc;

use ringbolt_engine::MemberId;
use ringbolt_engine::state::{Command, Reply};
use ringbolt_proto::etcdserverpb::{
    AlarmRequest, AlarmResponse, AlarmType, DefragmentRequest, DefragmentResponse, DowngradeInfo,
    HashKvRequest, HashKvResponse, HashRequest, HashResponse, StatusRequest, StatusResponse,
};

use super::kv::propose;
use super::{Keyspace, answer, request};
use crate::connection::Call;
use crate::error;
use crate::grpc::Status;
use crate::version::{SERVER_VERSION, STORAGE_VERSION};

/// `Maintenance/Alarm`. A GET goes through consensus too, as in etcd.
pub(super) async fn alarm(keyspace: Rc<Keyspace>, mut call: Call) {
    let result = async {
        let asked: AlarmRequest = request(&mut call).await?;
        match propose(&keyspace, &call, Command::Alarm(asked)).await? {
            Reply::Alarm(mut response) => {
                keyspace.complete(&mut response.header);
                Ok::<AlarmResponse, Status>(response)
            }
            other => unreachable!("an alarm is answered as an alarm, not {other:?}"),
        }
    };
    let result = result.await;
    answer(call, result);
}

/// An alarm as `Status` names it.
fn alarm_text((alarm, member): (i32, MemberId)) -> String {
    let name = AlarmType::try_from(alarm).map_or("UNKNOWN", |alarm| alarm.as_str_name());
    format!("memberID:{} alarm:{name}", member.0)
}

/// `Maintenance/Status`: what this member knows of itself, without asking anybody.
pub(super) async fn status(keyspace: Rc<Keyspace>, mut call: Call) {
    let result = async {
        let _: StatusRequest = request(&mut call).await?;
        let status = keyspace.replica.status();
        let state = keyspace.replica.state();
        let mut errors: Vec<String> = state.alarms.iter().map(alarm_text).collect();
        if status.leader.is_none() {
            errors.insert(0, String::from("etcdserver: no leader"));
        }
        let size = i64::try_from(state.size_bytes()).unwrap_or(i64::MAX);
        Ok::<_, Status>(StatusResponse {
            header: Some(keyspace.header()),
            version: SERVER_VERSION.to_owned(),
            db_size: size,
            leader: status.leader.map_or(0, |leader| leader.0),
            raft_index: status.commit,
            raft_term: status.term,
            raft_applied_index: status.applied,
            errors,
            db_size_in_use: size,
            is_learner: false,
            storage_version: STORAGE_VERSION.to_owned(),
            db_size_quota: keyspace.settings.quota_bytes,
            downgrade_info: Some(DowngradeInfo::default()),
        })
    };
    let result = result.await;
    answer(call, result);
}

/// `Maintenance/Defragment`: there is nothing to defragment, so it answers at once. No header.
pub(super) async fn defragment(_keyspace: Rc<Keyspace>, mut call: Call) {
    let result = request::<DefragmentRequest>(&mut call).await;
    answer(call, result.map(|_| DefragmentResponse { header: None }));
}

/// `Maintenance/Hash`: the rolling hash over everything applied, equal on members that applied the
/// same. It equals no etcd's, whose value depends on its file format.
pub(super) async fn hash(keyspace: Rc<Keyspace>, mut call: Call) {
    let result = async {
        let _: HashRequest = request(&mut call).await?;
        let rolling = keyspace.replica.state().rolling().value();
        let hash = u32::try_from(rolling & u64::from(u32::MAX)).expect("32 bits are left");
        Ok::<_, Status>(HashResponse { header: Some(keyspace.header()), hash })
    };
    let result = result.await;
    answer(call, result);
}

/// `Maintenance/HashKV`
pub(super) async fn hash_kv(keyspace: Rc<Keyspace>, mut call: Call) {
    let result = async {
        let asked: HashKvRequest = request(&mut call).await?;
        let hashed = keyspace.replica.hash_kv(asked.revision).await.map_err(error::status_of)?;
        Ok::<_, Status>(HashKvResponse {
            header: Some(keyspace.header()),
            hash: hashed.hash,
            compact_revision: hashed.compact_revision,
            hash_revision: hashed.hash_revision,
        })
    };
    let result = result.await;
    answer(call, result);
}

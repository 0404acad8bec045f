//! The Cluster service, as far as one member has one.

use std::rc::Rc;

use ringbolt_proto::etcdserverpb::{MemberListRequest, MemberListResponse, ResponseHeader};

use super::kv::barrier;
use super::{Keyspace, answer, request};
use crate::connection::Call;
use crate::grpc::Status;

/// `Cluster/MemberList`. Cluster answers carry no revision in their header.
pub(super) async fn member_list(keyspace: Rc<Keyspace>, mut call: Call) {
    let result = async {
        let asked: MemberListRequest = request(&mut call).await?;
        if asked.linearizable {
            barrier(&keyspace).await?;
        }
        let header = ResponseHeader { revision: 0, ..keyspace.header() };
        let members = keyspace.replica.state().members.to_wire();
        Ok::<_, Status>(MemberListResponse { header: Some(header), members })
    };
    let result = result.await;
    answer(call, result);
}

//! The Lease service.

use std::rc::Rc;

use bytes::Bytes;
use prost::Message;
use ringbolt_engine::lease::effective_ttl_s;
use ringbolt_engine::limits::LEASE_TTL_S_MAX;
use ringbolt_engine::state::{Command, Reply, read};
use ringbolt_engine::{LeaseId, Reason};
use ringbolt_proto::etcdserverpb::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseLeasesRequest, LeaseLeasesResponse, LeaseRevokeRequest, LeaseRevokeResponse,
    LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use ringbolt_proto::method::Mode;

use super::kv::propose;
use super::{Keyspace, answer, request};
use crate::connection::Call;
use crate::error;
use crate::grpc::{Status, unmarshal};

/// `Lease/LeaseGrant`
pub(super) async fn grant(keyspace: Rc<Keyspace>, mut call: Call) {
    let result = async {
        let mut grant: LeaseGrantRequest = request(&mut call).await?;
        if grant.ttl > LEASE_TTL_S_MAX {
            return Err(error::status_of(Reason::LeaseTtlTooLarge));
        }
        grant.ttl = effective_ttl_s(grant.ttl, keyspace.settings.lease_ttl_min_s);
        if grant.id == 0 {
            grant.id = keyspace.next_lease_id().0;
        }
        match propose(&keyspace, &call, Command::LeaseGrant(grant)).await? {
            Reply::LeaseGrant(mut response) => {
                keyspace.complete(&mut response.header);
                Ok::<LeaseGrantResponse, Status>(response)
            }
            other => unreachable!("a grant is answered as a grant, not {other:?}"),
        }
    };
    let result = result.await;
    answer(call, result);
}

/// `Lease/LeaseRevoke`
pub(super) async fn revoke(keyspace: Rc<Keyspace>, mut call: Call) {
    let result = async {
        let revoke: LeaseRevokeRequest = request(&mut call).await?;
        match propose(&keyspace, &call, Command::LeaseRevoke(revoke)).await? {
            Reply::LeaseRevoke(mut response) => {
                keyspace.complete(&mut response.header);
                Ok::<LeaseRevokeResponse, Status>(response)
            }
            other => unreachable!("a revoke is answered as a revoke, not {other:?}"),
        }
    };
    let result = result.await;
    answer(call, result);
}

/// `Lease/LeaseKeepAlive`: one answer for each request; ends when the client has no more.
pub(super) async fn keep_alive(keyspace: Rc<Keyspace>, mut call: Call) {
    while let Some(message) = call.requests.next().await {
        let request = message.and_then(|bytes| unmarshal(bytes, Mode::Bidi));
        let request: LeaseKeepAliveRequest = match request {
            Ok(request) => request,
            Err(status) => return call.responder.finish(status),
        };
        // The header is taken before the renewal.
        let header = keyspace.header();
        let ttl = match keyspace.replica.lease_renew(LeaseId(request.id)).await {
            Ok(ttl) => ttl,
            Err(error) => return call.responder.finish(error::status(&error)),
        };
        let response = LeaseKeepAliveResponse { header: Some(header), id: request.id, ttl };
        if call.responder.send(Bytes::from(response.encode_to_vec())).await.is_err() {
            return;
        }
    }
    call.responder.finish(Status::OK);
}

/// `Lease/LeaseTimeToLive`
pub(super) async fn time_to_live(keyspace: Rc<Keyspace>, mut call: Call) {
    let result = async {
        let asked: LeaseTimeToLiveRequest = request(&mut call).await?;
        let (state, now) = (keyspace.replica.state(), keyspace.io.now());
        let deadlines = keyspace.replica.deadlines().map_err(|error| error::status(&error))?;
        let mut response = read::lease_time_to_live(&state, &deadlines, &asked, now);
        keyspace.complete(&mut response.header);
        Ok::<LeaseTimeToLiveResponse, Status>(response)
    };
    let result = result.await;
    answer(call, result);
}

/// `Lease/LeaseLeases`
pub(super) async fn leases(keyspace: Rc<Keyspace>, mut call: Call) {
    let result = async {
        let _: LeaseLeasesRequest = request(&mut call).await?;
        let deadlines = keyspace.replica.deadlines().map_err(|error| error::status(&error))?;
        let mut response = read::lease_leases(&keyspace.replica.state(), &deadlines);
        keyspace.complete(&mut response.header);
        Ok::<LeaseLeasesResponse, Status>(response)
    };
    let result = result.await;
    answer(call, result);
}

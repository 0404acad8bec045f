//! What clients ask about leases without changing them.

use ringbolt_io::time::MonoTime;
use ringbolt_proto::etcdserverpb::{
    LeaseLeasesResponse, LeaseStatus, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
    ResponseHeader,
};

use crate::lease::Deadlines;
use crate::state::State;
use crate::types::LeaseId;

/// Answers `LeaseTimeToLive` on a leader: whole seconds left, the granted time, and the keys if
/// wanted. An unknown lease is no error: its time to live is -1. A lease whose time has passed but
/// that is not revoked yet has 0.
///
/// Source: etcd `rpc.proto` `LeaseTimeToLiveResponse`.
#[must_use]
pub fn lease_time_to_live(
    state: &State,
    deadlines: &Deadlines,
    request: &LeaseTimeToLiveRequest,
    now: MonoTime,
) -> LeaseTimeToLiveResponse {
    let id = LeaseId(request.id);
    let mut response = LeaseTimeToLiveResponse {
        header: header(state),
        id: request.id,
        ttl: -1,
        ..LeaseTimeToLiveResponse::default()
    };
    if let (Some(lease), Some(left)) = (state.leases.get(id), deadlines.remaining(id, now)) {
        response.ttl = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
        response.granted_ttl = lease.ttl_s();
        if request.keys {
            response.keys = lease.keys().cloned().collect();
        }
    }
    response
}

/// Answers `LeaseLeases`: the ids, on a leader in the order in which the leases end, elsewhere in
/// the order of the ids.
#[must_use]
pub fn lease_leases(state: &State, deadlines: &Deadlines) -> LeaseLeasesResponse {
    let status = |id: LeaseId| LeaseStatus { id: id.0 };
    let leases = if deadlines.len() == state.leases.len() {
        deadlines.ids().map(status).collect()
    } else {
        state.leases.iter().map(|(id, _)| status(id)).collect()
    };
    LeaseLeasesResponse { header: header(state), leases }
}

fn header(state: &State) -> Option<ResponseHeader> {
    let revision = state.mvcc.revision().0;
    Some(ResponseHeader { revision, ..ResponseHeader::default() })
}

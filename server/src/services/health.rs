//! grpc.health.v1: a server that answers is serving.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use ringbolt_proto::health::{
    HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
    health_check_response::ServingStatus,
};

use super::{answer, request};
use crate::connection::Call;
use crate::grpc::{Code, Status};

fn serving(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

/// `Health/Check`
pub(super) async fn check(mut call: Call) {
    let result = match request::<HealthCheckRequest>(&mut call).await {
        Ok(asked) if asked.service.is_empty() => Ok(serving(ServingStatus::Serving)),
        Ok(_) => Err(Status::new(Code::NotFound, "unknown service")),
        Err(status) => Err(status),
    };
    answer(call, result);
}

/// `Health/Watch`: the status now, then silence until the client or the server goes.
pub(super) async fn watch(mut call: Call) {
    let status = match request::<HealthCheckRequest>(&mut call).await {
        Ok(asked) if asked.service.is_empty() => ServingStatus::Serving,
        Ok(_) => ServingStatus::ServiceUnknown,
        Err(status) => return call.responder.finish(status),
    };
    let message = Bytes::from(serving(status).encode_to_vec());
    if call.responder.send(message).await.is_ok() {
        call.responder.gone().await;
    }
}

/// `Health/List`
pub(super) async fn list(mut call: Call) {
    let result = request::<HealthListRequest>(&mut call).await.map(|_| HealthListResponse {
        statuses: BTreeMap::from([(String::new(), serving(ServingStatus::Serving))]),
    });
    answer(call, result);
}

//! The method table: every RPC of the contract, its path, how it streams and what it asks of the
//! caller when authentication is on. Nothing else in the project spells a method path.

/// How messages flow in a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One request, one response.
    Unary,
    /// One request, many responses.
    ServerStream,
    /// Many requests, many responses.
    Bidi,
}

/// What a caller must hold when authentication is on. Anything not listed is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Served without credentials.
    Open,
    /// Any authenticated user.
    User,
    /// A user that holds the role `root`.
    Admin,
    /// Permissions on the keys of the request, decided where it is applied.
    Keys,
}

/// One RPC of the contract.
#[derive(Debug)]
pub struct Method {
    /// Which RPC this is.
    pub name: Name,
    /// The `:path` of its calls.
    pub path: &'static str,
    /// The full service name, as in metrics.
    pub service: &'static str,
    /// The bare method name, as in metrics.
    pub method: &'static str,
    /// How its messages flow.
    pub mode: Mode,
    /// What it asks of the caller.
    pub access: Access,
}

/// Every RPC, in the order of [`METHODS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// `/etcdserverpb.KV/Range`
    Range,
    /// `/etcdserverpb.KV/RangeStream`
    RangeStream,
    /// `/etcdserverpb.KV/Put`
    Put,
    /// `/etcdserverpb.KV/DeleteRange`
    DeleteRange,
    /// `/etcdserverpb.KV/Txn`
    Txn,
    /// `/etcdserverpb.KV/Compact`
    Compact,
    /// `/etcdserverpb.Watch/Watch`
    Watch,
    /// `/etcdserverpb.Lease/LeaseGrant`
    LeaseGrant,
    /// `/etcdserverpb.Lease/LeaseRevoke`
    LeaseRevoke,
    /// `/etcdserverpb.Lease/LeaseKeepAlive`
    LeaseKeepAlive,
    /// `/etcdserverpb.Lease/LeaseTimeToLive`
    LeaseTimeToLive,
    /// `/etcdserverpb.Lease/LeaseLeases`
    LeaseLeases,
    /// `/etcdserverpb.Cluster/MemberAdd`
    MemberAdd,
    /// `/etcdserverpb.Cluster/MemberRemove`
    MemberRemove,
    /// `/etcdserverpb.Cluster/MemberUpdate`
    MemberUpdate,
    /// `/etcdserverpb.Cluster/MemberList`
    MemberList,
    /// `/etcdserverpb.Cluster/MemberPromote`
    MemberPromote,
    /// `/etcdserverpb.Maintenance/Alarm`
    Alarm,
    /// `/etcdserverpb.Maintenance/Status`
    Status,
    /// `/etcdserverpb.Maintenance/Defragment`
    Defragment,
    /// `/etcdserverpb.Maintenance/Hash`
    Hash,
    /// `/etcdserverpb.Maintenance/HashKV`
    HashKV,
    /// `/etcdserverpb.Maintenance/Snapshot`
    Snapshot,
    /// `/etcdserverpb.Maintenance/MoveLeader`
    MoveLeader,
    /// `/etcdserverpb.Maintenance/Downgrade`
    Downgrade,
    /// `/etcdserverpb.Auth/AuthEnable`
    AuthEnable,
    /// `/etcdserverpb.Auth/AuthDisable`
    AuthDisable,
    /// `/etcdserverpb.Auth/AuthStatus`
    AuthStatus,
    /// `/etcdserverpb.Auth/Authenticate`
    Authenticate,
    /// `/etcdserverpb.Auth/UserAdd`
    UserAdd,
    /// `/etcdserverpb.Auth/UserGet`
    UserGet,
    /// `/etcdserverpb.Auth/UserList`
    UserList,
    /// `/etcdserverpb.Auth/UserDelete`
    UserDelete,
    /// `/etcdserverpb.Auth/UserChangePassword`
    UserChangePassword,
    /// `/etcdserverpb.Auth/UserGrantRole`
    UserGrantRole,
    /// `/etcdserverpb.Auth/UserRevokeRole`
    UserRevokeRole,
    /// `/etcdserverpb.Auth/RoleAdd`
    RoleAdd,
    /// `/etcdserverpb.Auth/RoleGet`
    RoleGet,
    /// `/etcdserverpb.Auth/RoleList`
    RoleList,
    /// `/etcdserverpb.Auth/RoleDelete`
    RoleDelete,
    /// `/etcdserverpb.Auth/RoleGrantPermission`
    RoleGrantPermission,
    /// `/etcdserverpb.Auth/RoleRevokePermission`
    RoleRevokePermission,
    /// `/v3lockpb.Lock/Lock`
    Lock,
    /// `/v3lockpb.Lock/Unlock`
    Unlock,
    /// `/v3electionpb.Election/Campaign`
    ElectionCampaign,
    /// `/v3electionpb.Election/Proclaim`
    ElectionProclaim,
    /// `/v3electionpb.Election/Leader`
    ElectionLeader,
    /// `/v3electionpb.Election/Observe`
    ElectionObserve,
    /// `/v3electionpb.Election/Resign`
    ElectionResign,
    /// `/grpc.health.v1.Health/Check`
    HealthCheck,
    /// `/grpc.health.v1.Health/Watch`
    HealthWatch,
    /// `/grpc.health.v1.Health/List`
    HealthList,
}

/// The table, sorted as the contract lists it.
pub const METHODS: &[Method] = &[
    Method {
        name: Name::Range,
        path: "/etcdserverpb.KV/Range",
        service: "etcdserverpb.KV",
        method: "Range",
        mode: Mode::Unary,
        access: Access::Keys,
    },
    Method {
        name: Name::RangeStream,
        path: "/etcdserverpb.KV/RangeStream",
        service: "etcdserverpb.KV",
        method: "RangeStream",
        mode: Mode::ServerStream,
        access: Access::Keys,
    },
    Method {
        name: Name::Put,
        path: "/etcdserverpb.KV/Put",
        service: "etcdserverpb.KV",
        method: "Put",
        mode: Mode::Unary,
        access: Access::Keys,
    },
    Method {
        name: Name::DeleteRange,
        path: "/etcdserverpb.KV/DeleteRange",
        service: "etcdserverpb.KV",
        method: "DeleteRange",
        mode: Mode::Unary,
        access: Access::Keys,
    },
    Method {
        name: Name::Txn,
        path: "/etcdserverpb.KV/Txn",
        service: "etcdserverpb.KV",
        method: "Txn",
        mode: Mode::Unary,
        access: Access::Keys,
    },
    Method {
        name: Name::Compact,
        path: "/etcdserverpb.KV/Compact",
        service: "etcdserverpb.KV",
        method: "Compact",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::Watch,
        path: "/etcdserverpb.Watch/Watch",
        service: "etcdserverpb.Watch",
        method: "Watch",
        mode: Mode::Bidi,
        access: Access::Keys,
    },
    Method {
        name: Name::LeaseGrant,
        path: "/etcdserverpb.Lease/LeaseGrant",
        service: "etcdserverpb.Lease",
        method: "LeaseGrant",
        mode: Mode::Unary,
        access: Access::User,
    },
    Method {
        name: Name::LeaseRevoke,
        path: "/etcdserverpb.Lease/LeaseRevoke",
        service: "etcdserverpb.Lease",
        method: "LeaseRevoke",
        mode: Mode::Unary,
        access: Access::Keys,
    },
    Method {
        name: Name::LeaseKeepAlive,
        path: "/etcdserverpb.Lease/LeaseKeepAlive",
        service: "etcdserverpb.Lease",
        method: "LeaseKeepAlive",
        mode: Mode::Bidi,
        access: Access::Keys,
    },
    Method {
        name: Name::LeaseTimeToLive,
        path: "/etcdserverpb.Lease/LeaseTimeToLive",
        service: "etcdserverpb.Lease",
        method: "LeaseTimeToLive",
        mode: Mode::Unary,
        access: Access::Keys,
    },
    Method {
        name: Name::LeaseLeases,
        path: "/etcdserverpb.Lease/LeaseLeases",
        service: "etcdserverpb.Lease",
        method: "LeaseLeases",
        mode: Mode::Unary,
        access: Access::Keys,
    },
    Method {
        name: Name::MemberAdd,
        path: "/etcdserverpb.Cluster/MemberAdd",
        service: "etcdserverpb.Cluster",
        method: "MemberAdd",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::MemberRemove,
        path: "/etcdserverpb.Cluster/MemberRemove",
        service: "etcdserverpb.Cluster",
        method: "MemberRemove",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::MemberUpdate,
        path: "/etcdserverpb.Cluster/MemberUpdate",
        service: "etcdserverpb.Cluster",
        method: "MemberUpdate",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::MemberList,
        path: "/etcdserverpb.Cluster/MemberList",
        service: "etcdserverpb.Cluster",
        method: "MemberList",
        mode: Mode::Unary,
        access: Access::User,
    },
    Method {
        name: Name::MemberPromote,
        path: "/etcdserverpb.Cluster/MemberPromote",
        service: "etcdserverpb.Cluster",
        method: "MemberPromote",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::Alarm,
        path: "/etcdserverpb.Maintenance/Alarm",
        service: "etcdserverpb.Maintenance",
        method: "Alarm",
        mode: Mode::Unary,
        access: Access::User,
    },
    Method {
        name: Name::Status,
        path: "/etcdserverpb.Maintenance/Status",
        service: "etcdserverpb.Maintenance",
        method: "Status",
        mode: Mode::Unary,
        access: Access::User,
    },
    Method {
        name: Name::Defragment,
        path: "/etcdserverpb.Maintenance/Defragment",
        service: "etcdserverpb.Maintenance",
        method: "Defragment",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::Hash,
        path: "/etcdserverpb.Maintenance/Hash",
        service: "etcdserverpb.Maintenance",
        method: "Hash",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::HashKV,
        path: "/etcdserverpb.Maintenance/HashKV",
        service: "etcdserverpb.Maintenance",
        method: "HashKV",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::Snapshot,
        path: "/etcdserverpb.Maintenance/Snapshot",
        service: "etcdserverpb.Maintenance",
        method: "Snapshot",
        mode: Mode::ServerStream,
        access: Access::Admin,
    },
    Method {
        name: Name::MoveLeader,
        path: "/etcdserverpb.Maintenance/MoveLeader",
        service: "etcdserverpb.Maintenance",
        method: "MoveLeader",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::Downgrade,
        path: "/etcdserverpb.Maintenance/Downgrade",
        service: "etcdserverpb.Maintenance",
        method: "Downgrade",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::AuthEnable,
        path: "/etcdserverpb.Auth/AuthEnable",
        service: "etcdserverpb.Auth",
        method: "AuthEnable",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::AuthDisable,
        path: "/etcdserverpb.Auth/AuthDisable",
        service: "etcdserverpb.Auth",
        method: "AuthDisable",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::AuthStatus,
        path: "/etcdserverpb.Auth/AuthStatus",
        service: "etcdserverpb.Auth",
        method: "AuthStatus",
        mode: Mode::Unary,
        access: Access::Open,
    },
    Method {
        name: Name::Authenticate,
        path: "/etcdserverpb.Auth/Authenticate",
        service: "etcdserverpb.Auth",
        method: "Authenticate",
        mode: Mode::Unary,
        access: Access::Open,
    },
    Method {
        name: Name::UserAdd,
        path: "/etcdserverpb.Auth/UserAdd",
        service: "etcdserverpb.Auth",
        method: "UserAdd",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::UserGet,
        path: "/etcdserverpb.Auth/UserGet",
        service: "etcdserverpb.Auth",
        method: "UserGet",
        mode: Mode::Unary,
        access: Access::User,
    },
    Method {
        name: Name::UserList,
        path: "/etcdserverpb.Auth/UserList",
        service: "etcdserverpb.Auth",
        method: "UserList",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::UserDelete,
        path: "/etcdserverpb.Auth/UserDelete",
        service: "etcdserverpb.Auth",
        method: "UserDelete",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::UserChangePassword,
        path: "/etcdserverpb.Auth/UserChangePassword",
        service: "etcdserverpb.Auth",
        method: "UserChangePassword",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::UserGrantRole,
        path: "/etcdserverpb.Auth/UserGrantRole",
        service: "etcdserverpb.Auth",
        method: "UserGrantRole",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::UserRevokeRole,
        path: "/etcdserverpb.Auth/UserRevokeRole",
        service: "etcdserverpb.Auth",
        method: "UserRevokeRole",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::RoleAdd,
        path: "/etcdserverpb.Auth/RoleAdd",
        service: "etcdserverpb.Auth",
        method: "RoleAdd",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::RoleGet,
        path: "/etcdserverpb.Auth/RoleGet",
        service: "etcdserverpb.Auth",
        method: "RoleGet",
        mode: Mode::Unary,
        access: Access::User,
    },
    Method {
        name: Name::RoleList,
        path: "/etcdserverpb.Auth/RoleList",
        service: "etcdserverpb.Auth",
        method: "RoleList",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::RoleDelete,
        path: "/etcdserverpb.Auth/RoleDelete",
        service: "etcdserverpb.Auth",
        method: "RoleDelete",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::RoleGrantPermission,
        path: "/etcdserverpb.Auth/RoleGrantPermission",
        service: "etcdserverpb.Auth",
        method: "RoleGrantPermission",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::RoleRevokePermission,
        path: "/etcdserverpb.Auth/RoleRevokePermission",
        service: "etcdserverpb.Auth",
        method: "RoleRevokePermission",
        mode: Mode::Unary,
        access: Access::Admin,
    },
    Method {
        name: Name::Lock,
        path: "/v3lockpb.Lock/Lock",
        service: "v3lockpb.Lock",
        method: "Lock",
        mode: Mode::Unary,
        access: Access::Keys,
    },
    Method {
        name: Name::Unlock,
        path: "/v3lockpb.Lock/Unlock",
        service: "v3lockpb.Lock",
        method: "Unlock",
        mode: Mode::Unary,
        access: Access::Keys,
    },
    Method {
        name: Name::ElectionCampaign,
        path: "/v3electionpb.Election/Campaign",
        service: "v3electionpb.Election",
        method: "Campaign",
        mode: Mode::Unary,
        access: Access::Keys,
    },
    Method {
        name: Name::ElectionProclaim,
        path: "/v3electionpb.Election/Proclaim",
        service: "v3electionpb.Election",
        method: "Proclaim",
        mode: Mode::Unary,
        access: Access::Keys,
    },
    Method {
        name: Name::ElectionLeader,
        path: "/v3electionpb.Election/Leader",
        service: "v3electionpb.Election",
        method: "Leader",
        mode: Mode::Unary,
        access: Access::Keys,
    },
    Method {
        name: Name::ElectionObserve,
        path: "/v3electionpb.Election/Observe",
        service: "v3electionpb.Election",
        method: "Observe",
        mode: Mode::ServerStream,
        access: Access::Keys,
    },
    Method {
        name: Name::ElectionResign,
        path: "/v3electionpb.Election/Resign",
        service: "v3electionpb.Election",
        method: "Resign",
        mode: Mode::Unary,
        access: Access::Keys,
    },
    Method {
        name: Name::HealthCheck,
        path: "/grpc.health.v1.Health/Check",
        service: "grpc.health.v1.Health",
        method: "Check",
        mode: Mode::Unary,
        access: Access::Open,
    },
    Method {
        name: Name::HealthWatch,
        path: "/grpc.health.v1.Health/Watch",
        service: "grpc.health.v1.Health",
        method: "Watch",
        mode: Mode::ServerStream,
        access: Access::Open,
    },
    Method {
        name: Name::HealthList,
        path: "/grpc.health.v1.Health/List",
        service: "grpc.health.v1.Health",
        method: "List",
        mode: Mode::Unary,
        access: Access::Open,
    },
];

/// Finds the method of a `:path`.
#[must_use]
pub fn find(path: &[u8]) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.path.as_bytes() == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The enum's order and the table's order are one: a name indexes its row.
    #[test]
    fn names_index_the_table() {
        for (index, method) in METHODS.iter().enumerate() {
            assert_eq!(method.name as usize, index);
            assert_eq!(find(method.path.as_bytes()).map(|found| found.name), Some(method.name));
        }
    }
}

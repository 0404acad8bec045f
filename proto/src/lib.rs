//! The etcd v3 wire contract as prost types, and the table of its methods.
//!
//! Every `bytes` field is a [`bytes::Bytes`], so decoding from a `Bytes` buffer copies nothing:
//! a decoded key or value shares the receive buffer until somebody copies it out.

pub mod method;
pub mod schema;
pub mod wire;

/// Generated message types, one module per protobuf package.
#[allow(missing_docs, clippy::doc_markdown, clippy::large_enum_variant, clippy::enum_variant_names)]
mod generated {
    /// `mvccpb`: key-values and events.
    pub mod mvccpb {
        include!(concat!(env!("OUT_DIR"), "/mvccpb.rs"));
    }
    /// `authpb`: users, roles, permissions.
    pub mod authpb {
        include!(concat!(env!("OUT_DIR"), "/authpb.rs"));
    }
    /// `etcdserverpb`: requests and responses.
    pub mod etcdserverpb {
        include!(concat!(env!("OUT_DIR"), "/etcdserverpb.rs"));
    }
    /// `v3lockpb`: the Lock service.
    pub mod v3lockpb {
        include!(concat!(env!("OUT_DIR"), "/v3lockpb.rs"));
    }
    /// `v3electionpb`: the Election service.
    pub mod v3electionpb {
        include!(concat!(env!("OUT_DIR"), "/v3electionpb.rs"));
    }
    /// `leasepb`: leases in a snapshot.
    pub mod leasepb {
        include!(concat!(env!("OUT_DIR"), "/leasepb.rs"));
    }
    /// `grpc.health.v1`: the health service.
    pub mod health {
        include!(concat!(env!("OUT_DIR"), "/grpc.health.v1.rs"));
    }
}

pub use generated::{authpb, etcdserverpb, health, leasepb, mvccpb, v3electionpb, v3lockpb};

//! The versions this server shows.

/// The etcd version whose contract is served; clients decide features from it.
pub const SERVER_VERSION: &str = "3.7.3";
/// The cluster version.
pub const CLUSTER_VERSION: &str = "3.7.0";
/// The storage version.
pub const STORAGE_VERSION: &str = "3.7.0";

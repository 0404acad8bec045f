//! The server: listeners, HTTP/2, gRPC, the services and their configuration.

pub mod budget;
pub mod config;
pub mod connection;
pub mod error;
pub mod grpc;
pub mod http1;
pub mod http2;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod recover;
pub mod services;
pub mod start;
pub mod version;

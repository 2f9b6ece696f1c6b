//! The overlay gateway `ringside-gateway`: its control plane, and the data path on top of `ringside-gateway-core`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`proto`] | the API, made from `proto/ringside/gateway/v1` |
//! | [`object`] | what the API is about: neighbours, ports, security groups; as messages and as text |
//! | [`notice`] | what hosts are told of direct paths |
//! | [`client`] | the commands of `ringside-gateway ctl` and `ringside gateway` |
//! | `store` | what was acknowledged, on the disk |
//! | `model` | store, tables in memory and watchers, one after the other in one thread |
//! | `fleet` | the state of many gateways, in etcd |
//! | `api` | the services |
//! | `datapath` | the XDP program's caches, and workers for what it hands up |
//! | `config`, `daemon`, `metrics` | the program |
//!
//! All but the first four take the feature `daemon`.
#![forbid(unsafe_code)]

#[cfg(feature = "daemon")]
mod certificate;
pub mod client;
pub mod notice;
pub mod object;

#[cfg(feature = "daemon")]
pub mod api;
#[cfg(feature = "daemon")]
pub mod config;
#[cfg(feature = "daemon")]
pub mod daemon;
#[cfg(feature = "daemon")]
pub mod datapath;
#[cfg(feature = "daemon")]
mod ending;
#[cfg(feature = "daemon")]
pub mod fleet;
#[cfg(feature = "daemon")]
pub mod metrics;
#[cfg(feature = "daemon")]
pub mod model;
#[cfg(feature = "daemon")]
pub mod store;

/// The API, generated from `proto/ringside/gateway/v1` by `scripts/generate`.
#[allow(
    missing_docs,
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::cast_possible_truncation,
    unreachable_pub,
    rustdoc::all,
    reason = "generated"
)]
pub mod proto {
    include!("generated/ringside.gateway.v1.rs");
}

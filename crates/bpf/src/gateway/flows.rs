//! Who sends to whom, of packets that were sent on.

use std::net::IpAddr;

use super::layout::{read_address, read_network, word};
use super::ring::Ring;

/// A packet that was sent on, to a receiver without rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowSample {
    /// The host that it came from.
    pub host: IpAddr,
    /// The tenant's network.
    pub vni: u32,
    /// Who sent it.
    pub source: IpAddr,
    /// Who gets it.
    pub destination: IpAddr,
}

impl FlowSample {
    /// `struct flow` of gateway.h.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (vni, v6) = read_network(bytes)?;
        Some(Self {
            host: read_address(word(bytes, 4)? != 0, bytes.get(8..)?)?,
            vni,
            source: read_address(v6, bytes.get(24..)?)?,
            destination: read_address(v6, bytes.get(40..)?)?,
        })
    }
}

/// Reads who sends to whom, for whoever asked for it with [`GatewayConfig::one_in`](crate::gateway::GatewayConfig::one_in).
pub type Flows = Ring<FlowSample>;

//! Who sends to whom, of packets that were sent on.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use libbpf_rs::MapHandle;

use super::layout::{read_address, read_network, word};
use super::ring::Ring;
use crate::error::Result;

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
    fn read(bytes: &[u8]) -> Option<Self> {
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
/// One reader at a time: two would each get some.
#[derive(Debug)]
pub struct Flows(Ring<FlowSample>);

/// The ring's descriptor is readable when there is something.
impl AsFd for Flows {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Flows {
    pub(super) fn of(map: &MapHandle) -> Result<Self> {
        Ring::of(map, "flows", FlowSample::read).map(Self)
    }

    /// Those that are there, or that come within this time.
    ///
    /// # Errors
    ///
    /// [`Error::Map`](crate::Error::Map) if the kernel refuses the reading. A signal ends the waiting, without an error.
    pub fn read(&self, patience: Duration) -> Result<Vec<FlowSample>> {
        self.0.read(patience)
    }
}

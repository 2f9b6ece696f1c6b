//! An interface in this namespace or another one.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use ringside_netlab::{End, Lab, Namespace, VethConfig};
use ringside_nic::Interface;

/// One end of a path.
pub(super) struct Side {
    pub(super) interface: Interface,
    namespace: Option<Arc<Namespace>>,
}

/// Addresses of an end, for frames.
#[derive(Clone, Copy)]
pub(super) struct Addresses {
    pub(super) mac: [u8; 6],
    pub(super) ipv4: Option<Ipv4Addr>,
}

impl Side {
    /// `NAME`, or `NAME@NAMESPACE`.
    pub(super) fn open(name: &str) -> Result<Self> {
        let (name, namespace) = match name.split_once('@') {
            Some((name, namespace)) => (name, Some(Namespace::open(namespace)?)),
            None => (name, None),
        };
        let look = || Interface::by_name(name);
        let interface = match &namespace {
            Some(namespace) => namespace.try_run(look)??,
            None => look()?,
        };
        Ok(Self { interface, namespace })
    }

    fn of(end: &End) -> Self {
        Self {
            interface: end.interface.clone(),
            namespace: Some(Arc::clone(&end.ns)),
        }
    }

    /// A veth pair of four queues: who receives, who sends.
    pub(super) fn lab() -> Result<(Lab, Self, Self)> {
        let lab = Lab::veth(VethConfig {
            queues: 4,
            ipv6: false,
            gro: true,
            ..VethConfig::tagged("steer")
        })
        .context("building the test bed")?;
        let (to, from) = (Self::of(&lab.b), Self::of(&lab.a));
        Ok((lab, to, from))
    }

    /// Runs a closure in this side's namespace. What it opens stays there.
    pub(super) fn run<T: Send>(&self, closure: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        match &self.namespace {
            Some(namespace) => namespace.try_run(closure)?,
            None => closure(),
        }
    }

    /// Its addresses; it has to be up.
    pub(super) fn addresses(&self) -> Result<Addresses> {
        self.run(|| {
            let state = self.interface.state()?;
            let name = &self.interface;
            ensure!(
                state.admin_up && state.carrier,
                "{name} has no link: switch it on (ip link set dev {name} up), and see to the cable"
            );
            let ipv4 = self
                .interface
                .addresses()?
                .into_iter()
                .find_map(|own| match own.address {
                    IpAddr::V4(ip) => Some(ip),
                    IpAddr::V6(_) => None,
                });
            Ok(Addresses { mac: state.mac, ipv4 })
        })
    }
}

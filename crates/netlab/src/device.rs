//! Interfaces that are the kernel's alone: bridges and tunnels.

use std::net::IpAddr;
use std::sync::Arc;

use netlink_packet_route::link::{InfoBridge, InfoData, InfoGeneve, InfoKind, InfoVxlan, LinkInfo};
use ringside_nic::Interface;
use ringside_nic::netlink::NetlinkError;

use crate::lab::inside;
use crate::{Namespace, Result, configure};

/// What a VXLAN endpoint is made like.
#[derive(Debug, Clone)]
pub struct VxlanConfig {
    /// The interface's name.
    pub name: String,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Largest packet in bytes, without the Ethernet header.
    pub mtu: u32,
    /// The network's number, 24 bits.
    pub vni: u32,
    /// UDP port, here and there.
    pub port: u16,
    /// Outer address of this end.
    pub local: IpAddr,
    /// Where frames go, of the same family; None sends only where the forwarding database says.
    pub remote: Option<IpAddr>,
    /// Whether outer UDP checksums are made over IPv4, the kernel's default. Over IPv6 they always are.
    pub checksum: bool,
}

/// What a Geneve endpoint is made like: one for each network and peer.
#[derive(Debug, Clone)]
pub struct GeneveConfig {
    /// The interface's name.
    pub name: String,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Largest packet in bytes, without the Ethernet header.
    pub mtu: u32,
    /// The network's number, 24 bits.
    pub vni: u32,
    /// UDP port, here and there.
    pub port: u16,
    /// Where frames go, and the only address that they are taken from.
    pub remote: IpAddr,
    /// Whether outer UDP checksums are made over IPv4. Over IPv6 they always are.
    pub checksum: bool,
}

/// A bridge or a tunnel endpoint, which is removed when it is dropped.
///
/// Nothing is learned by a tunnel endpoint from the frames that it gets.
#[derive(Debug)]
#[non_exhaustive]
pub struct Device {
    /// The host it is in.
    pub ns: Arc<Namespace>,
    /// The interface. Its methods work inside the namespace.
    pub interface: Interface,
}

impl Device {
    /// Makes a bridge without ports, without spanning tree: a port forwards as soon as it is up. It says nothing of its own: with
    /// multicast snooping, the kernel's default, it would join 224.0.0.106 (RFC 4286), and say so in IGMP to all of its ports.
    ///
    /// # Errors
    ///
    /// [`Error::Link`](crate::Error::Link) with `EEXIST` if the name is taken, with `EOPNOTSUPP` if the kernel has no bridges.
    pub fn bridge(ns: &Arc<Namespace>, name: &str) -> Result<Self> {
        let planned = ("create a bridge", name, None, None);
        let info = vec![
            LinkInfo::Kind(InfoKind::Bridge),
            LinkInfo::Data(InfoData::Bridge(vec![InfoBridge::MulticastSnooping(false)])),
        ];
        configure::create_device(ns, ns, planned, info)?;
        Self::finish(ns, name, false)
    }

    /// Makes a VXLAN endpoint whose outer packets are those of `host`, and which is an interface of `home`: that can be the same
    /// namespace, or that of a guest of the host.
    ///
    /// # Errors
    ///
    /// As [`Device::bridge`]; also `EEXIST` if the host has an endpoint of that network and port.
    pub fn vxlan(host: &Arc<Namespace>, home: &Arc<Namespace>, config: &VxlanConfig) -> Result<Self> {
        let mut settings = vec![
            InfoVxlan::Id(config.vni),
            InfoVxlan::Port(config.port),
            InfoVxlan::Learning(false),
            InfoVxlan::UDPCsum(config.checksum),
            match config.local {
                IpAddr::V4(local) => InfoVxlan::Local(local),
                IpAddr::V6(local) => InfoVxlan::Local6(local),
            },
        ];
        settings.extend(config.remote.map(|remote| match remote {
            IpAddr::V4(remote) => InfoVxlan::Group(remote),
            IpAddr::V6(remote) => InfoVxlan::Group6(remote),
        }));
        let info = vec![
            LinkInfo::Kind(InfoKind::Vxlan),
            LinkInfo::Data(InfoData::Vxlan(settings)),
        ];
        let planned = (
            "create a VXLAN endpoint",
            config.name.as_str(),
            Some(config.mac),
            Some(config.mtu),
        );
        configure::create_device(host, home, planned, info)?;
        Self::finish(home, &config.name, true)
    }

    /// Makes a Geneve endpoint whose outer packets are those of `host`, and which is an interface of `home`.
    ///
    /// # Errors
    ///
    /// As [`Device::vxlan`]; many kernels have no Geneve (`EOPNOTSUPP`).
    pub fn geneve(host: &Arc<Namespace>, home: &Arc<Namespace>, config: &GeneveConfig) -> Result<Self> {
        let settings = vec![
            InfoGeneve::Id(config.vni),
            InfoGeneve::Port(config.port),
            InfoGeneve::UdpCsum(config.checksum),
            match config.remote {
                IpAddr::V4(remote) => InfoGeneve::Remote(remote),
                IpAddr::V6(remote) => InfoGeneve::Remote6(remote),
            },
        ];
        let info = vec![
            LinkInfo::Kind(InfoKind::Geneve),
            LinkInfo::Data(InfoData::Geneve(settings)),
        ];
        let planned = (
            "create a Geneve endpoint",
            config.name.as_str(),
            Some(config.mac),
            Some(config.mtu),
        );
        configure::create_device(host, home, planned, info)?;
        Self::finish(home, &config.name, true)
    }

    /// Takes an interface that is there, to configure it; it goes when this is dropped.
    pub(crate) fn finish(ns: &Arc<Namespace>, name: &str, ipv6: bool) -> Result<Self> {
        let device = Self {
            ns: Arc::clone(ns),
            interface: inside(ns, || Interface::by_name(name))?,
        };
        ns.try_run(|| configure::quiet_ipv6(ns, name, ipv6))??;
        inside(ns, || device.interface.set_up(true))?;
        Ok(device)
    }

    /// Makes an interface of the same namespace a port of this bridge.
    ///
    /// # Errors
    ///
    /// [`Error::Link`](crate::Error::Link), if this is no bridge for instance.
    pub fn attach(&self, port: &Interface) -> Result<()> {
        let bridge = self.interface.index();
        self.change("attach a bridge's port", || {
            configure::set_controller(port.index(), bridge)
        })
    }

    /// Sets how many packets may wait in it (`txqueuelen`). Of a TAP device that is the ring of each queue that whoever is behind
    /// it reads: 1000 unless something else is said.
    ///
    /// # Errors
    ///
    /// [`Error::Link`](crate::Error::Link).
    pub fn set_queue_len(&self, packets: u32) -> Result<()> {
        let index = self.interface.index();
        self.change("set the queue's length", || configure::set_queue_len(index, packets))
    }

    /// Gives it an address, without duplicate address detection. It can be used when this returns.
    ///
    /// # Errors
    ///
    /// [`Error::Link`](crate::Error::Link).
    pub fn add_address(&self, address: IpAddr, prefix_len: u8) -> Result<()> {
        let index = self.interface.index();
        self.change("add an address", || configure::add_address(index, address, prefix_len))
    }

    /// Tells it a neighbour that it then never asks for.
    ///
    /// # Errors
    ///
    /// [`Error::Link`](crate::Error::Link).
    pub fn add_neighbour(&self, address: IpAddr, mac: [u8; 6]) -> Result<()> {
        let index = self.interface.index();
        self.change("add a neighbour", || configure::add_neighbour(index, address, mac))
    }

    fn change(&self, what: &'static str, change: impl FnOnce() -> Result<(), NetlinkError> + Send) -> Result<()> {
        self.ns
            .try_run(change)?
            .map_err(|source| configure::failed(what, &self.ns, self.interface.name(), source))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // As with `Lab`: it is gone when this returns, not some time after the namespace.
        let _ = self.ns.try_run(|| self.interface.delete());
    }
}

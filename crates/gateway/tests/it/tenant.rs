//! A tenant behind its host: a namespace whose interface is the kernel's own tunnel, or a TAP device of a program.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::Arc;

use ringside_bpf::gateway::{GatewayProgram, Sizes};
use ringside_bpf::{Link, XdpMode};
use ringside_netlab::{Device, End, GeneveConfig, Lab, Namespace, Tap, VethConfig, VxlanConfig};
use ringside_nic::Interface;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

pub(crate) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tunnel {
    /// By the kernel's device.
    Vxlan,
    /// The same without outer checksums, over IPv4.
    VxlanUnsummed,
    /// By a program and a TAP device: VXLAN.
    UserVxlan,
    /// By a program and a TAP device: Geneve.
    Geneve,
    /// By the kernel's device: Geneve.
    KernelGeneve,
}

/// What a host's packets to the gateway look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) outer: Family,
    pub(crate) tunnel: Tunnel,
}

impl Place {
    pub(crate) const fn vxlan(outer: Family) -> Self {
        let tunnel = Tunnel::Vxlan;
        Self { outer, tunnel }
    }

    pub(crate) const fn new(outer: Family, tunnel: Tunnel) -> Self {
        Self { outer, tunnel }
    }

    /// Longest IP packet of a tenant that fits into an outer one of 1500 bytes.
    pub(crate) const fn mtu(self) -> u32 {
        match self.outer {
            Family::V4 => 1450,
            Family::V6 => 1430,
        }
    }
}

pub(crate) struct Tenant {
    link: Plug,
    pub(crate) ns: Arc<Namespace>,
    pub(crate) card: Card,
}

enum Plug {
    None,
    Kernel(Device),
    User(Arc<Tap>),
}

/// What a gateway has to know of a tenant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Card {
    pub(crate) vni: u32,
    pub(crate) mac: [u8; 6],
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
    pub(crate) host: IpAddr,
    pub(crate) tunnel: Tunnel,
}

impl Tenant {
    /// Of a network, behind the host of this number at the end of a wire, which sends to a gateway there.
    pub(crate) fn new(tag: &str, (vni, number): (u32, u8), place: Place, wire: &Lab, remote: IpAddr) -> Self {
        let mut tenant = Self {
            link: Plug::None,
            ns: Namespace::create(&format!("{tag}-{vni}-{number}")).expect("namespace"),
            card: Card {
                vni,
                mac: [2, 0, 0, 0, vni.to_le_bytes()[0], number],
                v4: Ipv4Addr::new(10, 0, 0, number),
                v6: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number.into()),
                host: outer(&wire.a, place),
                tunnel: place.tunnel,
            },
        };
        tenant.plug(wire, remote, place.mtu());
        tenant
    }

    pub(crate) fn unplug(&mut self) {
        self.link = Plug::None;
    }

    pub(crate) fn plug(&mut self, host: &Lab, remote: IpAddr, mtu: u32) {
        let (name, card) = ("tenant0", self.card);
        self.link = match card.tunnel {
            Tunnel::Vxlan | Tunnel::VxlanUnsummed => {
                let config = VxlanConfig {
                    name: name.to_owned(),
                    mac: card.mac,
                    mtu,
                    vni: card.vni,
                    port: 4789,
                    local: card.host,
                    remote: Some(remote),
                    checksum: card.tunnel == Tunnel::Vxlan,
                };
                Plug::Kernel(Device::vxlan(&host.a.ns, &self.ns, &config).expect("VXLAN"))
            }
            Tunnel::KernelGeneve => {
                let config = GeneveConfig {
                    name: name.to_owned(),
                    mac: card.mac,
                    mtu,
                    vni: card.vni,
                    port: 6081,
                    remote,
                    checksum: true,
                };
                Plug::Kernel(Device::geneve(&host.a.ns, &self.ns, &config).expect("Geneve"))
            }
            Tunnel::UserVxlan | Tunnel::Geneve => {
                Plug::User(Arc::new(Tap::create(&self.ns, name, card.mac, mtu).expect("TAP")))
            }
        };
        for (address, prefix) in [(IpAddr::V4(card.v4), 24), (IpAddr::V6(card.v6), 64)] {
            self.device().add_address(address, prefix).expect("address");
        }
    }

    /// Where its host's own program takes its packets, if there is one.
    pub(crate) fn tap(&self) -> Option<&Arc<Tap>> {
        match &self.link {
            Plug::User(tap) => Some(tap),
            Plug::Kernel(_) | Plug::None => None,
        }
    }

    pub(crate) fn device(&self) -> &Device {
        match &self.link {
            Plug::Kernel(device) => device,
            Plug::User(tap) => &tap.device,
            Plug::None => panic!("unplugged"),
        }
    }

    pub(crate) fn interface(&self) -> &Interface {
        &self.device().interface
    }

    pub(crate) fn address(&self, family: Family) -> IpAddr {
        match family {
            Family::V4 => self.card.v4.into(),
            Family::V6 => self.card.v6.into(),
        }
    }

    /// A program in the tenant's namespace.
    pub(crate) fn command(&self, words: &str) -> Command {
        let mut words = words.split_whitespace();
        let mut command = self.ns.command(words.next().expect("a program"));
        command.args(words);
        command
    }

    /// Which MAC address it knows for an address of its network.
    pub(crate) fn neighbour(&self, address: IpAddr) -> Option<[u8; 6]> {
        self.ns.run(|| self.interface().neighbour(address)).expect("neighbours")
    }
}

/// The outer address of an end for hosts of this kind.
pub(crate) fn outer(end: &End, place: Place) -> IpAddr {
    match place.outer {
        Family::V4 => end.ipv4.into(),
        Family::V6 => end.ipv6.into(),
    }
}

/// A host with an interface at the switch.
pub(crate) fn join(
    switch: &Device,
    ns: &Arc<Namespace>,
    (what, number, subnet): (&str, u8, u8),
    (summed, queues): (bool, u32),
) -> Lab {
    let name = if what == "gateway" {
        format!("eth{subnet}")
    } else {
        "eth0".to_owned()
    };
    let config = VethConfig {
        hosts: [number, 0],
        subnet,
        tx_checksum: !summed,
        queues,
        static_neighbours: false,
        ..VethConfig::named(&name, what)
    };
    let wire = Lab::join(ns, &switch.ns, config).expect("veth");
    switch.attach(&wire.b.interface).expect("a port of the switch");
    wire
}

/// A veth looks for what an XDP program has sent back (`XDP_TX`) only if its end has such a program as well: GRO alone has it take
/// these packets, and leave them until another comes. This one lets everything pass.
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/veth_xdp_flush>
pub(crate) fn wake_for_what_is_sent_back(end: &End, queues: u32) -> Link {
    let sizes = Sizes {
        neighbors: 1,
        connections: 1,
        queues,
        sample_bytes: 4096,
    };
    let index = end.interface.index();
    // The gateway's own, before it is configured.
    let attach = || GatewayProgram::load(sizes)?.attach(index, XdpMode::Native);
    end.run(attach).expect("an XDP program")
}

/// Where tenants live, as `apply` reads it.
pub(crate) fn neighbors(cards: &[Card]) -> String {
    let mut text = "neighbors:\n".to_owned();
    for card in cards {
        for ip in [IpAddr::from(card.v4), card.v6.into()] {
            let mac = ringside_wire::MacAddr(card.mac);
            let encapsulation = match card.tunnel {
                Tunnel::Geneve | Tunnel::KernelGeneve => "geneve",
                Tunnel::Vxlan | Tunnel::VxlanUnsummed | Tunnel::UserVxlan => "vxlan",
            };
            let host = format!("{{ip: \"{}\", encapsulation: {encapsulation}}}", card.host);
            let vni = card.vni;
            writeln!(text, "  - {{vni: {vni}, ip: \"{ip}\", mac: \"{mac}\", host: {host}}}").expect("text");
        }
    }
    text
}

//! Real tenants: hosts at a switch, and behind each host a tenant in either of two networks, whose addresses overlap.
//!
//! ```text
//!  tenant 42/1   tenant 43/1        tenant 42/2   tenant 43/2        namespaces; in each an interface with
//!  10.0.0.1      10.0.0.1           10.0.0.2      10.0.0.2           the kernel's VXLAN, or a TAP device
//!      └──────┬──────┘                  └──────┬──────┘
//!           host 1                           host 2                  outer packets: 10.77.0.N, fd77::N
//!             └───────────── switch ───────────┘
//!                              │ eth0
//!                           gateway                                  10.77.0.254, fd77::fe
//! ```
//! A gateway of two interfaces has a switch at each, and every second host is at the second: 10.77.1.N, fd77:0:0:1::N.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::Arc;

use ringside_bpf::gateway::{GatewayProgram, Sizes};
use ringside_bpf::{Link, XdpMode};
use ringside_netlab::{Device, End, GeneveConfig, Lab, Namespace, Tap, VethConfig, VxlanConfig};
use ringside_nic::Interface;

use crate::kernel::KernelGateway;
use crate::ringside::Ringside;
use crate::vtep::Vtep;

/// The networks that each host has a tenant in.
pub(crate) const NETWORKS: [u32; 2] = [42, 43];

/// Last byte of the gateway's outer addresses.
const GATEWAY: u8 = 254;

/// Who stands in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The kernel's own bridge and VXLAN.
    Kernel {
        /// No packet on a wire is longer than a wire's, and none is without its checksums, as behind NICs; else a veth carries
        /// what the kernel has not split.
        summed: bool,
    },
    /// The daemon.
    Ringside(Ringside),
}

impl Kind {
    fn queues(self) -> u32 {
        match self {
            Self::Kernel { .. } => 1,
            Self::Ringside(how) => how.queues,
        }
    }

    fn interfaces(self) -> u8 {
        match self {
            Self::Kernel { .. } => 1,
            Self::Ringside(how) => how.interfaces,
        }
    }

    fn is_summed(self) -> bool {
        match self {
            Self::Kernel { summed } => summed,
            Self::Ringside(how) => how.summed,
        }
    }
}

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

pub(crate) struct Bed {
    // In the order in which it is taken down.
    gateway: Middle,
    pub(crate) tenants: Vec<[Tenant; 2]>,
    pub(crate) hosts: Vec<Host>,
    /// Of each of the gateway's interfaces.
    pub(crate) uplinks: Vec<Lab>,
    switches: Vec<Device>,
    queues: u32,
    wakes: Vec<Link>,
}

enum Middle {
    None,
    Kernel { _gateway: KernelGateway },
    Ringside(Box<crate::ringside::Gateway>),
}

pub(crate) struct Host {
    vtep: Option<Vtep>,
    pub(crate) place: Place,
    pub(crate) wire: Lab,
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

impl Bed {
    /// With the gateway knowing all tenants.
    pub(crate) fn new(tag: &str, kind: Kind, places: &[Place]) -> Self {
        let bed = Self::without_gateway(tag, kind, places);
        let cards: Vec<Card> = bed.tenants().map(|tenant| tenant.card).collect();
        bed.with(kind, &cards)
    }

    pub(crate) fn without_gateway(tag: &str, kind: Kind, places: &[Place]) -> Self {
        let middle = Namespace::create(&format!("{tag}-gateway")).expect("namespace");
        let sends_back = matches!(kind, Kind::Ringside(_));
        // XDP sends packets as they are.
        let summed = kind.is_summed() && !sends_back;
        let (mut switches, mut uplinks, mut wakes) = (Vec::new(), Vec::new(), Vec::new());
        for subnet in 0..kind.interfaces() {
            let switch = Namespace::create(&format!("{tag}-switch{subnet}")).expect("namespace");
            let switch = Device::bridge(&switch, "bridge").expect("bridge");
            let uplink = join(&switch, &middle, ("gateway", GATEWAY, subnet), (summed, kind.queues()));
            if sends_back {
                wakes.push(wake_for_what_is_sent_back(&uplink.b, kind.queues()));
            }
            switches.push(switch);
            uplinks.push(uplink);
        }
        let mut bed = Self {
            gateway: Middle::None,
            tenants: Vec::new(),
            hosts: Vec::new(),
            uplinks,
            switches,
            queues: kind.queues(),
            wakes,
        };
        for (number, place) in (1..).zip(places) {
            let subnet = (number - 1) % kind.interfaces();
            let what = format!("host{number}");
            let ns = Namespace::create(&format!("{tag}-{what}")).expect("namespace");
            let switch = &bed.switches[usize::from(subnet)];
            let wire = join(switch, &ns, (&what, number, subnet), (kind.is_summed(), 1));
            let (local, remote) = (outer(&wire.a, *place), outer(&bed.uplink(number).a, *place));
            let tenants = NETWORKS.map(|vni| {
                let ns = Namespace::create(&format!("{tag}-{vni}-{number}")).expect("namespace");
                let card = Card {
                    vni,
                    mac: [2, 0, 0, 0, vni.to_le_bytes()[0], number],
                    v4: Ipv4Addr::new(10, 0, 0, number),
                    v6: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number.into()),
                    host: local,
                    tunnel: place.tunnel,
                };
                Tenant::new(ns, card, &wire, remote, place.mtu())
            });
            let taps = tenants.iter().filter_map(|tenant| match &tenant.link {
                Plug::User(tap) => Some((tenant.card.vni, Arc::clone(tap))),
                Plug::Kernel(_) | Plug::None => None,
            });
            let taps: Vec<_> = taps.collect();
            let vtep = (!taps.is_empty()).then(|| Vtep::start(&wire.a, place.tunnel, (local, remote), taps));
            bed.tenants.push(tenants);
            bed.hosts.push(Host {
                vtep,
                place: *place,
                wire,
            });
        }
        bed
    }

    /// A gateway that knows these.
    pub(crate) fn with(mut self, kind: Kind, cards: &[Card]) -> Self {
        self.gateway = match kind {
            Kind::Kernel { .. } => Middle::Kernel {
                _gateway: KernelGateway::start(&self.uplinks[0].a, self.hosts[0].place, cards),
            },
            Kind::Ringside(how) => {
                let mut gateway = crate::ringside::Gateway::start(&self.uplinks, how);
                gateway.learn(cards);
                Middle::Ringside(Box::new(gateway))
            }
        };
        self
    }

    /// Takes a tenant of network 42 to another host, whose own one there goes. Its connections stay.
    pub(crate) fn move_tenant(&mut self, from: usize, to: usize) {
        let (place, wire) = (self.hosts[to - 1].place, &self.hosts[to - 1].wire);
        let remote = outer(&self.uplink(u8::try_from(to).expect("few hosts")).a, place);
        self.tenants[to - 1][0].unplug();
        let tenant = &mut self.tenants[from - 1][0];
        tenant.unplug();
        tenant.card.host = outer(&wire.a, place);
        tenant.card.tunnel = place.tunnel;
        tenant.plug(wire, remote, place.mtu());
    }

    /// Another gateway's place at the first switch, with this last byte of its addresses.
    pub(crate) fn another_uplink(&self, tag: &str, number: u8) -> (Lab, Link) {
        let ns = Namespace::create(tag).expect("namespace");
        let what = format!("gateway{number}");
        let uplink = join(&self.switches[0], &ns, (&what, number, 0), (false, 1));
        let wake = wake_for_what_is_sent_back(&uplink.b, 1);
        (uplink, wake)
    }

    /// That of the gateway's interfaces which the host of this number, counted from 1, is at.
    pub(crate) fn uplink(&self, host: u8) -> &Lab {
        &self.uplinks[usize::from(host - 1) % self.uplinks.len()]
    }

    /// Takes one of the gateway's interfaces away.
    pub(crate) fn unplug(&mut self, number: u8) {
        self.uplinks[usize::from(number)].delete_link().expect("deleted");
    }

    /// And makes it anew.
    pub(crate) fn plug(&mut self, number: u8) {
        let place = usize::from(number);
        let ns = Arc::clone(&self.uplinks[place].a.ns);
        let uplink = join(
            &self.switches[place],
            &ns,
            ("gateway", GATEWAY, number),
            (false, self.queues),
        );
        self.wakes[place] = wake_for_what_is_sent_back(&uplink.b, self.queues);
        self.uplinks[place] = uplink;
    }

    /// The daemon, in a test that is for it only.
    pub(crate) fn ringside(&mut self) -> &mut crate::ringside::Gateway {
        match &mut self.gateway {
            Middle::Ringside(gateway) => gateway,
            _ => panic!("no daemon here"),
        }
    }

    pub(crate) fn tenants(&self) -> impl Iterator<Item = &Tenant> {
        self.tenants.iter().flatten()
    }

    /// Tenant of network 42 at the host of this number, counted from 1.
    pub(crate) fn at(&self, host: usize) -> &Tenant {
        &self.tenants[host - 1][0]
    }
}

/// A host with an interface at the switch.
fn join(
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

impl Host {
    /// What the host's own program received, if it has one.
    pub(crate) fn vtep(&self) -> &Vtep {
        self.vtep.as_ref().expect("a host with a program of its own")
    }
}

impl Tenant {
    fn new(ns: Arc<Namespace>, card: Card, host: &Lab, remote: IpAddr, mtu: u32) -> Self {
        let mut tenant = Self {
            link: Plug::None,
            ns,
            card,
        };
        tenant.plug(host, remote, mtu);
        tenant
    }

    fn unplug(&mut self) {
        self.link = Plug::None;
    }

    fn plug(&mut self, host: &Lab, remote: IpAddr, mtu: u32) {
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

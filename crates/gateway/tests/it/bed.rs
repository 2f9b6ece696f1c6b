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

use std::sync::Arc;

use ringside_bpf::Link;
use ringside_netlab::{Device, Lab, Namespace};

use crate::kernel::KernelGateway;
use crate::ringside::Ringside;
pub(crate) use crate::tenant::{Card, FAMILIES, Family, Place, Tenant, Tunnel, outer};
use crate::tenant::{join, wake_for_what_is_sent_back};
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

    /// The one of the daemon's two ways that packets take between hosts of one kind, by its name in statistics.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Ringside(Ringside {
                fast: true,
                cache: None,
                ..
            }) => "fast",
            _ => "slow",
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

impl Host {
    /// Has the kernel do something by the command `ip`.
    pub(crate) fn ip(&self, words: &str) {
        ip(&self.wire.a.ns, words);
    }

    /// Whether it answers who asks for its MAC address.
    pub(crate) fn set_silent(&self, silent: bool) {
        self.ip(&format!("link set dev eth0 arp {}", if silent { "off" } else { "on" }));
    }
}

/// See [`Host::ip`].
pub(crate) fn ip(ns: &Namespace, words: &str) {
    let status = ns.command("ip").args(words.split(' ')).status();
    assert!(status.expect("ip").success(), "{words}");
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
            let tenants = NETWORKS.map(|vni| Tenant::new(tag, (vni, number), *place, &wire, remote));
            let taps = tenants
                .iter()
                .filter_map(|tenant| Some((tenant.card.vni, Arc::clone(tenant.tap()?))));
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

    /// Nobody takes what the gateway sends back to the switches any more: see [`wake_for_what_is_sent_back`].
    pub(crate) fn sleep(&mut self) {
        self.wakes.clear();
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

impl Host {
    /// What the host's own program received, if it has one.
    pub(crate) fn vtep(&self) -> &Vtep {
        self.vtep.as_ref().expect("a host with a program of its own")
    }
}

//! The path that is compared on: a test bed of its own, or two interfaces that are there.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Once};

use anyhow::{Context as _, Result, bail};
use ringside_bpf::{IngressDrop, Link, Neighbours, ProbeMarks, Reflect, Reflector, Sink, XdpMode};
use ringside_measure::probe::DEFAULT_PORT;
use ringside_measure::schema;
use ringside_netlab::{End, Lab, Namespace, VethConfig};
use ringside_nic::{Interface, LinkState};
use ringside_wire::flow::UdpFlow;
use ringside_wire::{MacAddr, ethernet};
use ringside_xsk::{Filter, Port, PortReport};

use super::options::Bench;
use super::variant::Kind;
use crate::args::bad_value;
use crate::serve::Turns;
use crate::{output, system};

/// Between interfaces that are there, frames carry addresses that are set aside for benchmarks (RFC 2544, C.2.2).
const BENCHMARK: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)];

/// Two ends that reach each other.
pub(crate) struct Bed {
    pub(crate) a: Side,
    pub(crate) b: Side,
    /// Removed last.
    lab: Option<Lab>,
    /// Where the second end is another host.
    pub(crate) turns: Option<Turns>,
}

/// One end.
pub(crate) struct Side {
    pub(crate) interface: Interface,
    mac: MacAddr,
    ipv4: Ipv4Addr,
    namespace: Option<Arc<Namespace>>,
    /// The host is reached by it, too: nothing is touched but the packets that are measured.
    is_shared: bool,
}

/// Refuses frames that are longer than the MTU allows.
pub(super) fn refuse_longer(sizes: &[u16], state: &LinkState) -> Result<()> {
    let most = state.mtu + u32::try_from(ethernet::HEADER_LEN)?;
    if let Some(size) = sizes.iter().find(|size| u32::from(**size) > most) {
        bad_value!(
            "frames of {size} bytes: the MTU of {} is {}, which allows {most}",
            state.name,
            state.mtu
        );
    }
    Ok(())
}

impl Bed {
    /// Builds the test bed, or looks the interfaces up, for frames of these sizes.
    pub(crate) fn open(bench: &Bench, sizes: &[u16]) -> Result<Self> {
        let bed = match &bench.interface {
            None => Self::veth()?,
            Some([a, b]) => Self {
                a: Side::existing(a, BENCHMARK[0])?,
                b: Side::existing(b, BENCHMARK[1])?,
                lab: None,
                turns: None,
            },
        };
        for side in [&bed.a, &bed.b] {
            let state = side.run(|| side.interface.state())?;
            refuse_longer(sizes, &state)?;
            if let Some(error) = side.run(|| ringside_xsk::foreign_program(&side.interface)) {
                return Err(error.into());
            }
        }
        Ok(bed)
    }

    /// From an interface of this host to a `ringside serve`, whose side is as it was told.
    pub(crate) fn to_server(a: Side, b: Side, turns: Turns) -> Self {
        Self {
            a,
            b,
            lab: None,
            turns: Some(turns),
        }
    }

    /// Between two sides that reach each other; or the far end's view of the same.
    pub(crate) fn between(a: Side, b: Side) -> Self {
        Self {
            a,
            b,
            lab: None,
            turns: None,
        }
    }

    fn veth() -> Result<Self> {
        let lab = Lab::veth(VethConfig {
            // Nothing but the packets that are measured.
            ipv6: false,
            // Without it a veth takes frames from other drivers only while it has an XDP program.
            gro: true,
            ..VethConfig::tagged("compare")
        })
        .context("building the test bed")?;
        Ok(Self {
            a: Side::of(&lab.a),
            b: Side::of(&lab.b),
            lab: Some(lab),
            turns: None,
        })
    }

    /// Whether it was built here.
    pub(crate) fn is_lab(&self) -> bool {
        self.lab.is_some()
    }

    /// The path in words.
    pub(crate) fn description(&self) -> String {
        if self.is_lab() {
            return "test bed: two namespaces, veth pair, 1 queue, GRO on".into();
        }
        match &self.turns {
            Some(_) => format!("from {} to another host", self.a.interface),
            None => format!("from {} to {}", self.a.interface, self.b.interface),
        }
    }

    /// What a reader of the table has to know about the path.
    pub(crate) fn notes(&self) -> Vec<String> {
        let about = if self.is_lab() {
            "On a veth the sender's CPU also does the receiving softirq; native XDP first has to copy what a socket sent \
             into a buffer of its own, which a NIC's driver has not; and no wire is there: \"wire\" is what an Ethernet \
             link would be busy with."
        } else if self.turns.is_some() {
            "XDP and tc programs are attached to both interfaces in turn, by links that end with the processes; they touch UDP \
             packets of the comparison's port alone. The control connection shares a path that is full on purpose: for \
             turns of a second and more give it another way (a server's address on another network)."
        } else {
            "XDP and tc programs are attached to both interfaces in turn, by links that end with this process; nothing \
             else is changed. Meanwhile their other traffic is dropped, but for ARP and IPv6 neighbour discovery where \
             XDP does it."
        };
        vec![format!("Path: {}.", self.description()), about.into()]
    }

    /// Why UDP sockets cannot be compared here.
    pub(crate) fn no_udp(&self) -> Option<&'static str> {
        if self.turns.is_some() {
            return None;
        }
        let name = |side: &Side| side.namespace.as_ref().map(|namespace| namespace.name().to_owned());
        if name(&self.a) == name(&self.b) {
            return Some(
                "both interfaces are in one network namespace, where the kernel delivers UDP between its own addresses by \
                 itself, past the interfaces; put one into a namespace of its own and name it as NAME@NAMESPACE",
            );
        }
        (self.a.ipv4 == BENCHMARK[0] || self.b.ipv4 == BENCHMARK[1])
            .then_some("an interface without an IPv4 address has no UDP: give both one of the same network")
    }

    /// Returns why the generator's frames come to no receiver of this kind, with the command that
    /// changes it; `None` where they do, and where it is not known.
    ///
    /// A veth takes redirected frames only while its peer receives through NAPI: with native XDP,
    /// or with GRO on.
    pub(crate) fn no_generator(&self, kind: Kind) -> Option<String> {
        if self.is_lab() || !kind.receives_without_native_xdp() {
            return None;
        }
        let is_veth = |record: &schema::Interface| record.driver.as_deref() == Some("veth");
        let near = self.a.record(None)?;
        let peer = match &self.turns {
            Some(turns) => turns.interface()?,
            None => self.b.record(None)?,
        };
        if !is_veth(&near) || !is_veth(&peer) || *peer.offloads.get("rx-gro")? {
            return None;
        }
        if self.turns.is_none() && self.b.has_native_xdp() {
            return None;
        }
        let (near, peer) = (near.name, peer.name);
        let within = match (&self.turns, &self.b.namespace) {
            (Some(_), _) => "on the server's host: ".to_owned(),
            (None, Some(namespace)) => format!("ip netns exec {} ", namespace.name()),
            (None, None) => String::new(),
        };
        let reason = format!(
            "{peer} has GRO off, and {near}, a veth, takes the generator's frames only while its peer \
             has GRO on or native XDP: {within}ethtool -K {peer} gro on"
        );
        if self.turns.is_none() {
            return Some(reason);
        }
        // A server says nothing of XDP programs on its interface.
        static WARNED: Once = Once::new();
        WARNED.call_once(|| output::note(format_args!("{reason}, unless it has a native XDP program")));
        None
    }

    /// The flow from A to B, or back, and a frame of it.
    pub(crate) fn frame(&self, to_b: bool, frame_bytes: usize) -> Result<(UdpFlow, Vec<u8>)> {
        let address = |side: &Side| SocketAddr::from((side.ipv4, DEFAULT_PORT));
        let flow = UdpFlow {
            src_mac: self.a.mac,
            dst_mac: self.b.mac,
            src: address(&self.a),
            dst: address(&self.b),
            ttl: 64,
        };
        let flow = if to_b { flow } else { flow.reversed() };
        let mut frame = vec![0; frame_bytes];
        let payload = frame_bytes.saturating_sub(flow.header_len());
        flow.write(&mut frame, payload).context("writing a frame")?;
        Ok((flow, frame))
    }

    /// A program on a side that counts and drops everything, for as long as the link is held.
    pub(crate) fn sink(&self, side: &Side) -> Result<(Sink, Link)> {
        // Where addresses are entered by hand nothing needs to pass, and the limit is looking at nothing.
        let neighbours = if self.is_lab() {
            Neighbours::Drop
        } else {
            Neighbours::Pass
        };
        let sink = match side.is_shared {
            true => Sink::load_for_udp(DEFAULT_PORT)?,
            false => Sink::load(neighbours)?,
        };
        let link = side.run(|| sink.attach(side.interface.index(), XdpMode::Native))?;
        Ok((sink, link))
    }

    /// Keeps what packet sockets have seen from the IP stack, for as long as the link is held.
    pub(crate) fn cut_stack_off(side: &Side) -> Result<Link> {
        let drop = match side.is_shared {
            true => IngressDrop::load_for_udp(DEFAULT_PORT)?,
            false => IngressDrop::load()?,
        };
        Ok(side.run(|| drop.attach(side.interface.index()))?)
    }

    /// Sends back everything that comes to a side, with MAC addresses swapped.
    pub(crate) fn reflect(side: &Side) -> Result<Link> {
        let reflect = match side.is_shared {
            true => Reflect::MacsOfUdp(DEFAULT_PORT),
            false => Reflect::Macs,
        };
        let reflector = Reflector::load(reflect)?;
        Ok(side.run(|| reflector.attach(side.interface.index(), XdpMode::Native))?)
    }

    /// Answers the probes that come to a side.
    pub(crate) fn answer(side: &Side) -> Result<Link> {
        use ringside_measure::probe::MAGIC;
        let reflector = Reflector::load(Reflect::Probes(ProbeMarks {
            magic: u64::from(MAGIC) << 32,
            magic_len: 4,
            kind_offset: 5,
            request: 1,
            reply: 2,
        }))?;
        Ok(side.run(|| reflector.attach(side.interface.index(), XdpMode::Native))?)
    }

    /// Both interfaces for the result.
    pub(crate) fn records(&self) -> Vec<schema::Interface> {
        let record = |side: &Side| side.record(side.probe().as_ref());
        // The far end tells of its own.
        let there = self.turns.is_none().then_some(&self.b);
        std::iter::once(&self.a).chain(there).filter_map(record).collect()
    }
}

impl Side {
    /// Its address.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.ipv4
    }

    /// Its hardware address.
    pub(crate) fn mac(&self) -> MacAddr {
        self.mac
    }

    /// An end of a link on which there are other packets, too, which are not touched.
    pub(crate) fn beside_others(end: &End) -> Self {
        Self {
            is_shared: true,
            ..Self::of(end)
        }
    }

    fn of(end: &End) -> Self {
        Self {
            interface: end.interface.clone(),
            mac: MacAddr(end.mac),
            ipv4: end.ipv4,
            namespace: Some(Arc::clone(&end.ns)),
            is_shared: false,
        }
    }

    /// One of this host's network namespace that the host is reached by, too; or another host's, of which only the addresses mean
    /// anything here.
    pub(crate) fn shared(interface: Interface, mac: MacAddr, ipv4: Ipv4Addr) -> Self {
        Self {
            interface,
            mac,
            ipv4,
            namespace: None,
            is_shared: true,
        }
    }

    /// Which packets an AF_XDP socket on it takes, if not all.
    pub(crate) fn filter(&self) -> Option<Filter> {
        self.is_shared.then_some(Filter::UdpPort(DEFAULT_PORT))
    }

    /// `NAME`, or `NAME@NAMESPACE`. Without an IPv4 address frames carry `fallback`.
    fn existing(name: &str, fallback: Ipv4Addr) -> Result<Self> {
        let (name, namespace) = match name.split_once('@') {
            Some((name, namespace)) => (name, Some(Namespace::open(namespace)?)),
            None => (name, None),
        };
        let look = || -> Result<(Interface, LinkState, Option<Ipv4Addr>)> {
            let interface = Interface::by_name(name)?;
            let state = interface.state()?;
            let own = interface.addresses()?.into_iter().find_map(|own| match own.address {
                IpAddr::V4(ip) => Some(ip),
                IpAddr::V6(_) => None,
            });
            Ok((interface, state, own))
        };
        let (interface, state, own) = match &namespace {
            Some(namespace) => namespace.run(look)?,
            None => look()?,
        };
        if !state.admin_up || !state.carrier {
            bail!("{name} has no link: switch it on (ip link set dev {name} up), and see to the cable");
        }
        Ok(Self {
            mac: MacAddr(state.mac),
            interface,
            ipv4: own.unwrap_or(fallback),
            namespace,
            is_shared: false,
        })
    }

    /// The interface for the result, with what a port on it reports.
    fn record(&self, report: Option<&PortReport>) -> Option<schema::Interface> {
        self.run(|| {
            let state = self.interface.state().ok()?;
            Some(system::interface(&self.interface, &state, report))
        })
    }

    /// Returns whether the driver runs an XDP program.
    fn has_native_xdp(&self) -> bool {
        let state = self.run(|| self.interface.state().ok());
        (state.and_then(|state| state.xdp)).is_some_and(|xdp| xdp.mode == ringside_nic::XdpMode::Native)
    }

    /// The best mode that the interface offers, as opening a port finds it, and why not a better one.
    fn probe(&self) -> Option<PortReport> {
        let port = Port::builder(self.interface.clone()).filter(Filter::None);
        self.run(|| port.open().ok().map(|port| port.report().clone()))
    }

    /// Runs a closure in this side's namespace. What it opens stays there.
    pub(crate) fn run<T: Send>(&self, closure: impl FnOnce() -> T + Send) -> T {
        match &self.namespace {
            Some(namespace) => namespace.run(closure),
            None => closure(),
        }
    }
}

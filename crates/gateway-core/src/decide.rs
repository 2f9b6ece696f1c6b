//! What becomes of each packet of a burst.
//!
//! ```text
//!   read each ── look all up at once ── decide each ─┬─ send: edited, to a port
//!   (headers)    (their cache misses     (rules,     ├─ wait: its host's MAC address is not known yet
//!                 overlap)                rewrite)   ├─ drop, with a reason; perhaps an ICMP error in its place
//!                                                    └─ the kernel's
//! ```
//! A packet whose receiver or host is not known is never sent on.

mod cacheable;
mod rules;
mod settings;

use std::net::IpAddr;
use std::sync::Arc;

use ringside_wire::{MacAddr, flow};

use crate::allowance::Shares;
use crate::answer::{Trouble, complain, i_have, may_be_told};
use crate::conntrack::Place;
use crate::flow::Flow;
use crate::lane::{self, Lane};
use crate::rewrite::{Route, complete_outer, forward, headers_len, leaves_in_place, outer_len, source_port};
use crate::table::{BindingReader, Encapsulation, Host, HostId, HostReader, Neighbor, NeighborReader, address_of};
use crate::{Buffer, Class, Content, DropReason, Firewall, Packet, TenantAddress, Vni};

pub use cacheable::Cacheable;
pub use rules::Judged;
pub use settings::{PortSettings, Settings};

/// What becomes of a packet. In a register: what goes through memory behind the stores to a packet waits until the CPU has its lines for
/// itself, which costs more than the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The kernel's: it is not for the gateway.
    Kernel,
    /// Send it on, edited. [`Burst::cacheable`] says what the fast path may take over.
    Send {
        /// The port that it leaves by.
        port: u8,
    },
    /// It is an answer now: send it to the port that it came from.
    Answer,
    /// It is an ICMP error to its sender now, which goes to the port that it came from; itself it is dropped.
    Complain(DropReason),
    /// Unedited: it is to be decided about again when the host's MAC address and a port to it are
    /// known, or dropped.
    Wait(HostId),
    /// Drop it: the port to its host has no address of the host's family. Who looks for ways to
    /// hosts is to know.
    NoAddress(HostId),
    /// Drop it.
    Drop(DropReason),
}

impl Decision {
    /// True if the packet is another than it was, and is to be sent.
    #[must_use]
    pub const fn is_edited(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Answer | Self::Complain(_))
    }
}

const _: () = assert!(size_of::<Decision>() <= 8);

/// What the fast path may take over of a packet that is sent on.
#[derive(Debug, Clone, Copy)]
enum Handed {
    /// A packet of the lane, to the receiver of this key.
    Plain(u64),
    Other(Cacheable),
}

/// Decides about bursts, for one worker.
#[derive(Debug)]
pub struct Decider {
    settings: Arc<Settings>,
    neighbors: NeighborReader,
    hosts: HostReader,
    bindings: BindingReader,
    firewall: Firewall,
    /// Of ICMP errors, and those that there would have been too many of.
    errors: Shares,
    held_back: u64,
    /// The lane, if there may be packets of it.
    lane: Option<Lane>,
    /// Of each packet, in order: whether it is of the lane.
    is_plain: Vec<bool>,
    /// Whom those of the lane are for, and who that is.
    keys: Vec<u64>,
    plain: Vec<Option<Neighbor>>,
    /// Of the others.
    classes: Vec<Class>,
    /// Whether their senders are looked up, too.
    has_sender: Vec<bool>,
    /// What rules and connections are asked about, as far as there are rules.
    flows: Vec<Option<Flow>>,
    places: Vec<Place>,
    asked: Vec<TenantAddress>,
    found: Vec<Option<Neighbor>>,
    has_policy: bool,
    /// The rules that there were before anything of the burst was looked up.
    generation: u64,
    /// Of the packet that was decided about last.
    handed: Handed,
}

/// Receiver, and sender if it was looked up and is known.
type Ends = (Neighbor, Option<Neighbor>);

impl Decider {
    /// Nothing is allocated later, as long as bursts are no longer than `burst`.
    #[must_use]
    pub fn new(
        settings: Arc<Settings>,
        neighbors: NeighborReader,
        hosts: HostReader,
        bindings: BindingReader,
        firewall: Firewall,
        burst: usize,
    ) -> Self {
        Self {
            errors: Shares::new(),
            held_back: 0,
            lane: Lane::of(&settings),
            settings,
            neighbors,
            hosts,
            bindings,
            firewall,
            is_plain: Vec::with_capacity(burst),
            keys: Vec::with_capacity(burst),
            plain: vec![None; burst],
            classes: Vec::with_capacity(burst),
            has_sender: Vec::with_capacity(burst),
            flows: Vec::with_capacity(burst),
            places: Vec::with_capacity(burst),
            asked: Vec::with_capacity(2 * burst),
            found: vec![None; 2 * burst],
            has_policy: true,
            generation: 0,
            handed: Handed::Other(Cacheable::Nothing),
        }
    }

    /// Replaces the settings, from the next burst on.
    pub fn set(&mut self, settings: &Arc<Settings>) {
        if !Arc::ptr_eq(&self.settings, settings) {
            self.lane = Lane::of(settings);
            self.settings = Arc::clone(settings);
        }
    }

    /// The rules and connections.
    #[must_use]
    pub fn firewall(&self) -> &Firewall {
        &self.firewall
    }

    /// Begins a burst. `has_policy`: rules are bound to some address, so that senders matter, too.
    pub fn begin(&mut self, has_policy: bool) {
        self.is_plain.clear();
        self.keys.clear();
        self.classes.clear();
        self.has_sender.clear();
        self.flows.clear();
        self.places.clear();
        self.asked.clear();
        self.has_policy = has_policy;
        self.generation = self.firewall.generation();
    }

    /// Rules may be bound to addresses of this network: where none are, it does not matter that others have some.
    fn may_have_rules(&self, vni: Vni) -> bool {
        self.has_policy && self.bindings.is_policed(vni)
    }

    /// Reads the next packet of the burst.
    #[inline]
    pub fn read(&mut self, frame: &[u8]) {
        let key = self.lane.and_then(|lane| lane.read(frame));
        // With rules in its network senders and connections matter, too.
        let key = key.filter(|key| !self.may_have_rules(address_of(*key).vni));
        self.is_plain.push(key.is_some());
        match key {
            Some(key) => self.keys.push(key),
            None => self.read_closely(frame),
        }
    }

    fn read_closely(&mut self, frame: &[u8]) {
        let class = Packet::classify(frame, &self.settings.underlay);
        let (mut flow, mut has_sender) = (None, false);
        if let Class::Tenant(packet) = class {
            let (first, second) = match packet.content {
                Content::Ip { src, dst } => {
                    let has_rules = self.may_have_rules(packet.vni);
                    if has_rules {
                        flow = flow_of(frame, &packet);
                        let conntrack = self.firewall.conntrack();
                        (self.places).extend(flow.as_ref().and_then(|flow| conntrack.place(packet.vni, flow)));
                    }
                    has_sender = has_rules || self.settings.source_check;
                    (dst, has_sender.then_some(src))
                }
                Content::WhoHas { target, .. } => (target, None),
            };
            self.asked.push(TenantAddress::new(packet.vni, first));
            if let Some(second) = second {
                self.asked.push(TenantAddress::new(packet.vni, second));
            }
        }
        self.classes.push(class);
        self.has_sender.push(has_sender);
        self.flows.push(flow);
    }

    /// Looks up all that was read, and tells the packets of the burst apart: [`Burst::next`] for each, in their order.
    pub fn look_up(&mut self) -> Burst<'_> {
        if self.found.len() < self.asked.len() {
            self.found.resize(self.asked.len(), None);
        }
        if self.plain.len() < self.keys.len() {
            self.plain.resize(self.keys.len(), None);
        }
        self.firewall.conntrack().look_ahead(&self.places);
        self.neighbors.look_up(&self.asked, &mut self.found);
        self.neighbors.look_up_v4(&self.keys, &mut self.plain);
        Burst {
            decider: self,
            packet: 0,
            plain: 0,
            class: 0,
            found: 0,
        }
    }

    /// Decides about a single packet.
    pub fn decide(&mut self, now: u64, in_port: u8, has_policy: bool, frame: &mut impl Buffer) -> Decision {
        self.begin(has_policy);
        self.read(frame.bytes());
        self.look_up().next(now, in_port, frame)
    }

    /// What the fast path may take over, if the packet that was decided about last is sent on. A
    /// connection that [has ended](Cacheable::Ended) has, whatever the decision is.
    #[must_use]
    pub fn cacheable(&self) -> Cacheable {
        match self.handed {
            Handed::Plain(key) => Cacheable::Neighbor(address_of(key)),
            Handed::Other(cacheable) => cacheable,
        }
    }

    /// True if its sender may be told what is wrong with it, and one more is not too much.
    fn may_complain(&mut self, now: u64, frame: &[u8], packet: &Packet) -> bool {
        // First: what nobody is told of takes nothing from those who are.
        if !may_be_told(frame, packet) {
            return false;
        }
        let may = self.errors.take(packet.vni, now, self.settings.errors_per_second);
        self.held_back += u64::from(!may);
        may
    }

    /// How many ICMP errors were held back since this was asked last, because there would have been too many.
    pub fn take_held_back(&mut self) -> u64 {
        std::mem::take(&mut self.held_back)
    }

    fn answer(&mut self, frame: &mut impl Buffer, packet: &Packet, in_port: u8, who: Neighbor) -> Decision {
        let Content::WhoHas { target, .. } = packet.content else {
            return Decision::Drop(DropReason::InnerProtocol);
        };
        // It asks whether somebody else has its own address: nobody has.
        if who.mac == packet.inner_source(frame.bytes()) {
            return Decision::Drop(if target.is_ipv4() {
                DropReason::ArpNotAsked
            } else {
                DropReason::DiscoveryNotAsked
            });
        }
        let Some(route) = self.way_back(frame.bytes(), packet, in_port) else {
            return Decision::Drop(DropReason::HostUnresolved);
        };
        match i_have(frame, packet, &route, who.mac) {
            Ok(()) => Decision::Answer,
            Err(reason) => Decision::Drop(reason),
        }
    }

    /// To whoever sent a packet to the gateway.
    fn way_back(&self, frame: &[u8], packet: &Packet, in_port: u8) -> Option<Route> {
        let port = self.settings.ports.get(usize::from(in_port))?;
        let sender = frame.get(6..12)?.first_chunk().copied()?;
        Some(Route {
            from: (port.mac, packet.to),
            to: (MacAddr(sender), packet.from),
            encapsulation: packet.encapsulation,
            port: self.udp_port(packet.encapsulation),
            source_port: None,
            ttl: self.settings.ttl,
        })
    }

    fn udp_port(&self, encapsulation: Encapsulation) -> u16 {
        match encapsulation {
            Encapsulation::Vxlan => self.settings.underlay.vxlan_port,
            Encapsulation::Geneve => self.settings.underlay.geneve_port,
        }
    }

    /// Sends its sender an ICMP error, if that may be.
    fn refuse(
        &mut self,
        now: u64,
        frame: &mut impl Buffer,
        packet: &Packet,
        in_port: u8,
        why: (DropReason, Trouble),
    ) -> Decision {
        let (reason, trouble) = why;
        let route = self.way_back(frame.bytes(), packet, in_port);
        let told = route.filter(|_| self.may_complain(now, frame.bytes(), packet));
        match told.and_then(|route| complain(frame, packet, &route, trouble)) {
            Some(()) => Decision::Complain(reason),
            None => Decision::Drop(reason),
        }
    }

    fn send_on(
        &mut self,
        now: u64,
        in_port: u8,
        frame: &mut impl Buffer,
        packet: &Packet,
        flow: Option<Flow>,
        ends: Ends,
    ) -> Decision {
        match self.try_to_send_on(now, frame, packet, flow, ends) {
            Ok((decision, cacheable)) => {
                self.handed = Handed::Other(cacheable);
                decision
            }
            Err((reason, Some(trouble))) => self.refuse(now, frame, packet, in_port, (reason, trouble)),
            Err((reason, None)) => Decision::Drop(reason),
        }
    }

    /// Sends on the next packet of the lane; one whose receiver takes more than that goes the long way after all.
    #[inline]
    fn send_plain(&mut self, now: u64, in_port: u8, frame: &mut impl Buffer, number: usize) -> Decision {
        let Some(receiver) = self.plain[number] else {
            return Decision::Drop(DropReason::NoNeighbor);
        };
        if receiver.policy == 0
            && let Some(host) = self.hosts.find_plain(receiver.host)
            && let Some(by) = host.port.or((self.settings.ports.len() == 1).then_some(0))
            && let Some(port) = self.settings.ports.get(usize::from(by))
            && !host.geneve
            && lane::send(frame.bytes_mut(), receiver.mac, &host, port)
        {
            self.handed = Handed::Plain(self.keys[number]);
            return Decision::Send { port: by };
        }
        match Packet::classify(frame.bytes(), &self.settings.underlay) {
            Class::Tenant(packet) => self.send_on(now, in_port, frame, &packet, None, (receiver, None)),
            Class::NotOurs => Decision::Kernel,
            Class::Drop(reason) => Decision::Drop(reason),
        }
    }

    fn try_to_send_on(
        &mut self,
        now: u64,
        frame: &mut impl Buffer,
        packet: &Packet,
        flow: Option<Flow>,
        (receiver, sender): Ends,
    ) -> Result<(Decision, Cacheable), (DropReason, Option<Trouble>)> {
        let drop = |reason| (reason, None);
        let host = self.hosts.find(receiver.host).ok_or(drop(DropReason::NoNeighbor))?;
        if self.settings.source_check && !self.is_from_its_host(frame.bytes(), packet, sender) {
            return Err(drop(DropReason::WrongSource));
        }
        let cache = self
            .judge(now, frame.bytes(), packet, flow, (receiver, sender))
            .map_err(drop)?;
        // What has ended has ended, also if this packet is not sent on.
        let ended = cache.of_worker(false);
        self.handed = Handed::Other(ended);
        let port = self.settings.port_to(&host);
        let own = port.and_then(|port| self.settings.ports.get(usize::from(port)));
        if own.is_some_and(|own| own.address_for(host.ip).is_none()) {
            return Ok((Decision::NoAddress(receiver.host), ended));
        }
        let way = port.zip(host.mac);
        let route = way.and_then(|way| Some((way.0, self.route(packet, frame.bytes(), &host, way)?)));
        let Some((port, route)) = route else {
            return Ok((Decision::Wait(receiver.host), ended));
        };
        if let Some(most) = self.exceeds(frame.bytes(), packet, &route, (port, receiver.host)) {
            return Err((DropReason::TooBig, Some(Trouble::TooBig(most))));
        }
        let tenants = usize::from(packet.inner)..usize::from(packet.end);
        // If not the outer one was left by the sender's kernel: there is only one that it can leave. An outer checksum takes no part in
        // the inner one: it was made for what is there now (Linux: local checksum offload).
        let was_left = complete_outer(frame.bytes_mut(), packet)
            || (frame.bytes_mut().get_mut(tenants)).is_some_and(|inner| flow::complete_checksum(inner) == Ok(true));
        let is_workers = was_left || !leaves_in_place(packet, &route);
        forward(frame, packet, &route, receiver.mac).map_err(|reason| {
            let trouble = (reason == DropReason::InnerTtl).then_some(Trouble::TimeExceeded);
            (reason, trouble)
        })?;
        let cache = match is_workers {
            true => cache.of_worker(sender.is_some()),
            false => cache,
        };
        Ok((Decision::Send { port }, cache))
    }

    fn is_from_its_host(&mut self, frame: &[u8], packet: &Packet, sender: Option<Neighbor>) -> bool {
        let Some(sender) = sender else { return false };
        let host = self.hosts.find(sender.host);
        host.is_some_and(|host| host.ip == packet.from) && packet.inner_source(frame) == sender.mac
    }

    fn route(&self, packet: &Packet, frame: &[u8], host: &Host, (port, mac): (u8, MacAddr)) -> Option<Route> {
        let port = self.settings.ports.get(usize::from(port))?;
        let encapsulation = host.encapsulation.unwrap_or(packet.encapsulation);
        Some(Route {
            from: (port.mac, port.address_for(host.ip)?),
            to: (mac, host.ip),
            encapsulation,
            port: self.udp_port(encapsulation),
            source_port: self.settings.derive_source_port.then(|| source_port(packet, frame)),
            ttl: self.settings.ttl,
        })
    }

    /// The longest IP packet of a tenant that goes this way, if this one is longer.
    fn exceeds(&mut self, frame: &[u8], packet: &Packet, route: &Route, (port, host): (u8, HostId)) -> Option<u16> {
        let own = self.settings.ports.get(usize::from(port))?.mtu;
        // Which no tenant goes below, whatever it is told: what a router said does not hold it back, for somebody else may have said it.
        let least = least_of_tenant(packet);
        let way = self
            .hosts
            .mtu(host)
            .filter(|_| usize::from(packet.end - packet.network) > least);
        let way = way.map(|way| way.get()).filter(|way| *way < own);
        let mtu = way.unwrap_or(own);
        let outer = headers_len(packet, route);
        // With what a sender has put behind the datagram, if it leaves with that.
        let len = match leaves_in_place(packet, route) {
            true => outer_len(frame, packet),
            false => outer + usize::from(packet.end - packet.inner),
        };
        let most = usize::from(mtu).saturating_sub(outer + usize::from(packet.network - packet.inner));
        let most = if way.is_some() { most.max(least) } else { most };
        (len > usize::from(mtu)).then(|| u16::try_from(most).unwrap_or(u16::MAX))
    }
}

/// The longest packet of its family that a sender may go on with though it was told of less: what each link of IPv6 takes (RFC 8200 §5), and
/// what Linux goes down to (`net.ipv4.route.min_pmtu`).
const fn least_of_tenant(packet: &Packet) -> usize {
    match packet.content {
        Content::Ip { dst: IpAddr::V4(_), .. } => 552,
        _ => 1280,
    }
}

/// The tenant's IP packet.
fn tenants_packet<'a>(frame: &'a [u8], packet: &Packet) -> Option<&'a [u8]> {
    frame.get(usize::from(packet.network)..usize::from(packet.end))
}

/// What rules are asked about.
fn flow_of(frame: &[u8], packet: &Packet) -> Option<Flow> {
    Flow::parse(tenants_packet(frame, packet)?).ok()
}

/// A burst whose packets were looked up.
#[derive(Debug)]
pub struct Burst<'a> {
    decider: &'a mut Decider,
    packet: usize,
    /// Of the next one of the lane, and of the next other one.
    plain: usize,
    class: usize,
    found: usize,
}

impl Burst<'_> {
    /// Decides about the next packet, and edits it. `now` in nanoseconds, of one clock for all workers.
    ///
    /// # Panics
    /// After the last packet that was read.
    pub fn next(&mut self, now: u64, in_port: u8, frame: &mut impl Buffer) -> Decision {
        self.packet += 1;
        self.decider.handed = Handed::Other(Cacheable::Nothing);
        if self.decider.is_plain[self.packet - 1] {
            self.plain += 1;
            return self.decider.send_plain(now, in_port, frame, self.plain - 1);
        }
        let class = self.decider.classes[self.class];
        let has_sender = self.decider.has_sender[self.class];
        let flow = self.decider.flows[self.class].take();
        self.class += 1;
        let packet = match class {
            Class::NotOurs => return Decision::Kernel,
            Class::Drop(reason) => return Decision::Drop(reason),
            Class::Tenant(packet) => packet,
        };
        let first = self.take();
        match packet.content {
            Content::WhoHas { .. } => match first {
                Some(who) => self.decider.answer(frame, &packet, in_port, who),
                None => Decision::Drop(DropReason::NoNeighbor),
            },
            Content::Ip { .. } => {
                let sender = if has_sender { self.take() } else { None };
                match first {
                    Some(receiver) => self
                        .decider
                        .send_on(now, in_port, frame, &packet, flow, (receiver, sender)),
                    None => Decision::Drop(DropReason::NoNeighbor),
                }
            }
        }
    }

    /// What the fast path may take over, if the packet that was decided about last is sent on. A
    /// connection that [has ended](Cacheable::Ended) has, whatever the decision is.
    #[must_use]
    pub fn cacheable(&self) -> Cacheable {
        self.decider.cacheable()
    }

    /// The next packet, if it is a tenant's: for whoever watches. `frame` is what was read.
    #[must_use]
    pub fn peek(&self, frame: &[u8]) -> Option<Packet> {
        let class = match self.decider.is_plain.get(self.packet)? {
            true => Packet::classify(frame, &self.decider.settings.underlay),
            false => *self.decider.classes.get(self.class)?,
        };
        match class {
            Class::Tenant(packet) => Some(packet),
            _ => None,
        }
    }

    fn take(&mut self) -> Option<Neighbor> {
        let found = self.decider.found[self.found];
        self.found += 1;
        found
    }
}

//! Tables, rules and packets of a few networks, made of any bytes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ringside_wire::{MacAddr, Protocol, tcp};

use super::{Choices, underlay};
use crate::conntrack::{Conntrack, Limits};
use crate::decide::{Decider, PortSettings, Settings};
use crate::policy::{Direction, GroupId, Policy, ProfileId, Remote, Rule, RuleId, Service};
use crate::table::{Bindings, Encapsulation, Host, HostId, Neighbor};
use crate::testing::corpus::{self, KNOWN_OPTION, ROUTER, VNI, gateway, host, mac, tenant};
use crate::testing::{Sent, tagged, tenant_arp, tenant_solicitation, tenant_udp};
use crate::{Firewall, Hosts, Neighbors, TenantAddress, Vni};

/// Last bytes of tenants and hosts. What is not in the tables is a stranger.
const MOST: u8 = 6;
/// Port to which the rules of the third group allow packets.
pub(super) const OPEN_PORT: u16 = 53;

/// What is bound to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules {
    /// Everything may come and go.
    All,
    /// Nothing.
    Nothing,
    /// What goes, and UDP that comes to [`OPEN_PORT`].
    Open,
}

/// What deciders know, and what was put there.
pub(super) struct World {
    pub(super) settings: Settings,
    pub(super) has_policy: bool,
    /// What is known, besides the tables that are tried.
    pub(super) known: HashMap<TenantAddress, Neighbor>,
    pub(super) bound: HashMap<TenantAddress, Rules>,
    hosts_now: Vec<Host>,
    ids: Vec<HostId>,
    neighbors: Neighbors,
    hosts: Hosts,
    bindings: Arc<Bindings>,
    policy: Policy,
    profiles: [ProfileId; 3],
    version: u64,
}

pub(super) fn vni(number: u32) -> Vni {
    Vni::new(number).expect("24 bits")
}

fn an_address(choices: &mut Choices<'_>) -> TenantAddress {
    let v6 = choices.one_in(3);
    let last = 1 + u8::try_from(choices.below(usize::from(MOST))).expect("few");
    TenantAddress::new(vni(VNI + u32::from(choices.one_in(4))), tenant(last, v6))
}

fn settings(choices: &mut Choices<'_>) -> Settings {
    let ports = (0..=u8::from(choices.one_in(3))).map(|number| {
        let (IpAddr::V4(v4), IpAddr::V6(v6)) = (gateway(false), gateway(true)) else {
            unreachable!("one of each")
        };
        PortSettings {
            mac: MacAddr([2, 0, 0, 0, 1, 0xfe - number]),
            v4: (!choices.one_in(8)).then_some(v4),
            v6: (!choices.one_in(8)).then_some(v6),
            mtu: choices.of(&[1500, 9000, 120, 1300]),
        }
    });
    Settings {
        ports: ports.collect(),
        underlay: underlay(),
        source_check: choices.one_in(3),
        derive_source_port: choices.one_in(4),
        ttl: choices.of(&[64, 255, 2]),
        errors_per_second: choices.of(&[1000, 1, 0]),
    }
}

impl World {
    pub(super) fn new(choices: &mut Choices<'_>) -> Self {
        thread_local! {
            // It takes two megabytes: one for all runs, emptied after each.
            static BINDINGS: Arc<Bindings> = Arc::default();
        }
        let settings = settings(choices);
        let hosts = Hosts::new();
        let hosts_now: Vec<Host> = (1..=MOST).map(|last| a_host(last, choices)).collect();
        let ids = hosts_now.iter().map(|host| hosts.intern(*host)).collect();
        let policy = Policy::new();
        let profiles = profiles(&policy);
        let mut world = Self {
            settings,
            has_policy: choices.one_in(2),
            known: HashMap::new(),
            bound: HashMap::new(),
            hosts_now,
            ids,
            neighbors: Neighbors::new(),
            hosts,
            bindings: BINDINGS.with(Arc::clone),
            policy,
            profiles,
            version: 0,
        };
        // Tenants 1 to 4 live on the host of their number, so that most packets have a sender and a receiver.
        for v6 in [false, true] {
            for (last, host) in (1..=4).zip(0..) {
                world.put(TenantAddress::new(vni(VNI), tenant(last, v6)), host, mac(last));
            }
        }
        for _ in 0..choices.below(4) {
            world.change(choices);
        }
        world
    }

    /// One that knows all this, with connections of its own.
    pub(super) fn decider(&self) -> Decider {
        let limits = Limits {
            connections: 40,
            per_tenant: 30,
            ..Limits::default()
        };
        Decider::new(
            Arc::new(self.settings.clone()),
            self.neighbors.reader(),
            self.hosts.reader(),
            self.bindings.reader(),
            Firewall::new(&self.policy, Arc::new(Conntrack::new(limits))),
            8,
        )
    }

    pub(super) fn host(&self, id: HostId) -> Host {
        let place = self.ids.iter().position(|own| *own == id).expect("one of these");
        self.hosts_now[place]
    }

    /// Something is different from now on.
    pub(super) fn change(&mut self, choices: &mut Choices<'_>) {
        let address = an_address(choices);
        match choices.below(4) {
            0 => {
                let host = choices.below(usize::from(MOST));
                self.put(address, host, mac(choices.byte()));
            }
            1 => {
                self.version += 1;
                self.neighbors.write().remove(address, self.version);
                self.known.remove(&address);
            }
            2 => {
                let place = choices.below(usize::from(MOST));
                let found = (!choices.one_in(2)).then(|| (MacAddr([2, 0, 0, 0, 2, choices.byte()]), 0));
                self.hosts.resolve(self.ids[place], found);
                // What was given stays.
                let mut reader = self.hosts.reader();
                let given = reader.given(self.ids[place]).expect("one of these");
                self.hosts_now[place].mac = given.mac.or(found.map(|(mac, _)| mac));
                self.hosts_now[place].port = given.port.or(found.map(|(_, port)| port));
            }
            _ if self.has_policy => {
                let rules = choices.of(&[None, Some(Rules::Open), Some(Rules::All), Some(Rules::Nothing)]);
                self.bind(address, rules);
            }
            _ => {}
        }
    }

    fn put(&mut self, address: TenantAddress, host: usize, mac: MacAddr) {
        self.version += 1;
        let neighbor = Neighbor {
            mac,
            host: self.ids[host],
            policy: self
                .bound
                .get(&address)
                .map_or(0, |rules| self.profile(*rules).number()),
            version: self.version,
        };
        self.neighbors.write().put(address, neighbor);
        self.known.insert(address, neighbor);
    }

    fn profile(&self, rules: Rules) -> ProfileId {
        self.profiles[rules as usize]
    }

    /// As the control plane does it.
    fn bind(&mut self, address: TenantAddress, rules: Option<Rules>) {
        let profile = rules.map(|rules| self.profile(rules));
        self.bindings.set(address, profile);
        let number = profile.map_or(0, ProfileId::number);
        self.neighbors.write().set_policy(address, number);
        if let Some(known) = self.known.get_mut(&address) {
            known.policy = number;
        }
        match rules {
            Some(rules) => _ = self.bound.insert(address, rules),
            None => _ = self.bound.remove(&address),
        }
    }

    pub(super) fn is_policed(&self, vni: Vni) -> bool {
        self.bound.keys().any(|address| address.vni == vni)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for address in self.bound.keys() {
            self.bindings.set(*address, None);
        }
    }
}

fn a_host(last: u8, choices: &mut Choices<'_>) -> Host {
    Host {
        ip: host(last, choices.one_in(4)),
        mac: (!choices.one_in(4)).then_some(MacAddr([2, 0, 0, 0, 1, last])),
        port: choices.of(&[Some(0), Some(0), None, Some(1), Some(7)]),
        encapsulation: choices.of(&[None, None, Some(Encapsulation::Vxlan), Some(Encapsulation::Geneve)]),
    }
}

fn profiles(policy: &Policy) -> [ProfileId; 3] {
    let rule = |direction, service| Rule {
        id: RuleId(1),
        direction,
        family: None,
        service,
        remote: Remote::Any,
    };
    let any = |direction| rule(direction, Service::Any);
    let dns = Service::Ports(Protocol::UDP, OPEN_PORT..=OPEN_PORT);
    let mut writer = policy.write();
    let groups = [
        vec![any(Direction::Ingress), any(Direction::Egress)],
        vec![],
        vec![rule(Direction::Ingress, dns), any(Direction::Egress)],
    ];
    for (number, rules) in (1..).zip(groups) {
        writer.put_group(GroupId(number), rules).expect("sensible rules");
    }
    let profiles = [1, 2, 3].map(|number| writer.profile(&[GroupId(number)]));
    writer.publish();
    profiles
}

/// The frames that `decide` makes of its input: for tests that have other tables for them.
#[must_use]
pub fn frames(input: &[u8]) -> Vec<Vec<u8>> {
    let mut choices = Choices(input);
    let mut frames = Vec::new();
    while !choices.is_over() {
        frames.push(a_frame(&mut choices));
    }
    frames
}

/// A frame from a host to the gateway; sometimes damaged.
pub(super) fn a_frame(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut frame = a_tenants_frame(choices);
    for tag in 0..choices.of(&[0, 0, 0, 1, 2, 3]) {
        frame = tagged(&frame, tag);
    }
    let outer_v6 = choices.one_in(4);
    let from = 1 + u8::try_from(choices.below(5)).expect("few");
    let encapsulation = choices.of(&[Encapsulation::Vxlan, Encapsulation::Vxlan, Encapsulation::Geneve]);
    let network = VNI + u32::from(choices.one_in(6));
    let mut sent = Sent::new([host(from, outer_v6), gateway(outer_v6)], encapsulation, network, frame);
    sent.source_port = choices.word();
    sent.checksum ^= choices.one_in(3);
    sent.ttl = choices.of(&[64, 64, 64, 2, 1, 0, 255]);
    let ([high, low], kind) = (KNOWN_OPTION.0.to_be_bytes(), KNOWN_OPTION.1);
    sent.options = choices
        .of(&[&[][..], &[], &[high, low, kind, 1, 1, 2, 3, 4], &[1, 2, 3, 0]])
        .to_vec();
    let mut bytes = sent.bytes();
    if choices.one_in(8) {
        leave_outer_checksum(&mut bytes);
    }
    for _ in 0..choices.of(&[0, 0, 0, 0, 1, 1, 2, 5]) {
        let at = usize::from(choices.word()) % bytes.len();
        bytes[at] ^= choices.byte();
    }
    match choices.of(&[0, 0, 0, 0, 0, 1, 2]) {
        1 => bytes.truncate(14 + usize::from(choices.word()) % bytes.len()),
        2 => bytes.extend([0xcc; 23]),
        _ => {}
    }
    bytes
}

/// As Linux leaves it to a NIC.
fn leave_outer_checksum(frame: &mut [u8]) {
    let (udp, addresses) = if frame[12] == 8 { (34, 26..34) } else { (54, 22..54) };
    let len = u16::from_be_bytes([frame[udp + 4], frame[udp + 5]]);
    let sum = ringside_wire::checksum::Sum::of(&frame[addresses]).word(17).word(len);
    frame[udp + 6..udp + 8].copy_from_slice(&sum.fold().to_be_bytes());
}

fn a_tenants_frame(choices: &mut Choices<'_>) -> Vec<u8> {
    let v6 = choices.one_in(3);
    let mut last = || 1 + u8::try_from(choices.below(usize::from(MOST))).expect("few");
    let (from, to) = (last(), last());
    let (src, dst) = (tenant(from, v6), tenant(to, v6));
    let macs = [mac(from), choices.of(&[mac(to), mac(to), ROUTER])];
    let ttl = choices.of(&[64, 64, 1, 2, 0]);
    let mut ports = [choices.of(&[4000, 4001]), choices.of(&[OPEN_PORT, 80])];
    if choices.one_in(2) {
        ports.reverse();
    }
    match choices.below(9) {
        0 | 1 => {
            let len = choices.of(&[5, 0, 60, 1300, 1450]);
            tenant_udp(macs, [src, dst], ports, ttl, &vec![0x5a; len])
        }
        2 => match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => tenant_arp(mac(from), src, dst),
            (IpAddr::V6(src), IpAddr::V6(dst)) => tenant_solicitation(mac(from), src, dst),
            _ => unreachable!("one family"),
        },
        3 | 4 => {
            let flags = tcp::Flags(choices.of(&[0x02, 0x10, 0x12, 0x11, 0x04, 0x14, 0x18]));
            let mut upper = [0; tcp::Header::MOST];
            let header = tcp::Header {
                sequence: choices.byte().into(),
                acknowledgment: choices.byte().into(),
                ..tcp::Header::new(ports[0], ports[1], flags)
            };
            let len = header.emit(&mut upper).expect("room");
            in_ip(choices, macs, [src, dst], Protocol::TCP, &upper[..len], ttl)
        }
        5 => {
            let kind = choices.of(&[8, 0, 3, 128, 129, 2, 1, 13]);
            let protocol = if v6 { Protocol::ICMPV6 } else { Protocol::ICMP };
            let upper = [&[kind, 0, 0, 0, 0, choices.byte(), 0, 1][..], choices.bytes(48)].concat();
            in_ip(choices, macs, [src, dst], protocol, &upper, ttl)
        }
        6 => {
            let protocol = choices.of(&[Protocol::UDP, Protocol(47), Protocol(132), Protocol(44), Protocol(0)]);
            let upper = choices.bytes(40);
            in_ip(choices, macs, [src, dst], protocol, upper, ttl)
        }
        7 => {
            let all = fixtures();
            all[usize::from(choices.word()) % all.len()].1.clone()
        }
        _ => choices.bytes(100).to_vec(),
    }
}

/// A tenant's IP packet, perhaps a fragment.
fn in_ip(
    choices: &mut Choices<'_>,
    macs: [MacAddr; 2],
    ips: [IpAddr; 2],
    protocol: Protocol,
    upper: &[u8],
    ttl: u8,
) -> Vec<u8> {
    let fragment = choices.of(&[0, 0, 0, 0, 0x2000, 0x2010, 0x0010, 0x4000]);
    corpus::packet_of(macs, ips, protocol, upper, |ip| match ips[0] {
        IpAddr::V4(_) => {
            ip[8] = ttl;
            ip[4..6].copy_from_slice(&[0, 7]);
            ip[6..8].copy_from_slice(&u16::to_be_bytes(fragment));
        }
        IpAddr::V6(_) => ip[7] = ttl,
    })
}

fn fixtures() -> &'static [(String, Vec<u8>)] {
    static ALL: std::sync::OnceLock<Vec<(String, Vec<u8>)>> = std::sync::OnceLock::new();
    ALL.get_or_init(corpus::tenants_frames)
}

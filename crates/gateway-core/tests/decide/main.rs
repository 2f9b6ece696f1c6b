//! What becomes of packets: read back with the views of `ringside-wire`, as a host would.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::sync::Arc;

use ringside_gateway_core::conntrack::{Conntrack, Limits};
use ringside_gateway_core::decide::{Cacheable, Decider, Decision, PortSettings, Settings};
use ringside_gateway_core::policy::Policy;
use ringside_gateway_core::table::{Bindings, Encapsulation, Host, HostId, Limit, Neighbor};
use ringside_gateway_core::testing::{Sent, tagged, tenant_arp, tenant_ip, tenant_solicitation, tenant_udp};
use ringside_gateway_core::{Buffer, DropReason, Firewall, Hosts, Neighbors, Roomy, TenantAddress, Underlay, Vni};
use ringside_wire::udp::ChecksumState;
use ringside_wire::{EtherType, MacAddr, Protocol, arp, ethernet, geneve, icmp, ipv4, ipv6, udp, vlan, vxlan};

mod answers;
mod damaged;
mod forwarding;
mod handing;
mod reading;
mod rules;

const GATEWAY: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(192, 0, 2, 254),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfe),
);
const GATEWAY_MAC: MacAddr = MacAddr([2, 0, 0, 0, 1, 0xfe]);
const HOST_A_MAC: MacAddr = MacAddr([2, 0, 0, 0, 1, 1]);
const HOST_B_MAC: MacAddr = MacAddr([2, 0, 0, 0, 1, 2]);
const A: MacAddr = MacAddr([2, 0xaa, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0xbb, 0, 0, 0, 2]);
const ROUTER: MacAddr = MacAddr([2, 0xff, 0, 0, 0, 0xff]);
const VNI: u32 = 0x01_02_03;

fn vni() -> Vni {
    Vni::new(VNI).unwrap()
}

fn host(last: u8, v6: bool) -> IpAddr {
    match v6 {
        false => Ipv4Addr::new(192, 0, 2, last).into(),
        true => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()).into(),
    }
}

fn gateway(v6: bool) -> IpAddr {
    if v6 { GATEWAY.1.into() } else { GATEWAY.0.into() }
}

fn tenant(last: u8, v6: bool) -> IpAddr {
    match v6 {
        false => Ipv4Addr::new(10, 0, 0, last).into(),
        true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()).into(),
    }
}

/// Tenants 1 (with host 1) and 2 (with host 2), in both families; host 2 is reached as is said.
struct Bed {
    hosts: Hosts,
    host_b: HostId,
    decider: Decider,
    /// The tables of the decider's readers.
    neighbors: Neighbors,
    bindings: Bindings,
    policy: Policy,
}

#[derive(Clone, Copy)]
struct Way {
    v6: bool,
    mac: Option<MacAddr>,
    encapsulation: Option<Encapsulation>,
}

const BY_IPV4: Way = Way {
    v6: false,
    mac: Some(HOST_B_MAC),
    encapsulation: None,
};

fn settings() -> Settings {
    let port = PortSettings {
        mac: GATEWAY_MAC,
        v4: Some(GATEWAY.0),
        v6: Some(GATEWAY.1),
        mtu: 1500,
    };
    Settings {
        underlay: Underlay::at(&[GATEWAY.0.into(), GATEWAY.1.into()]),
        ports: vec![port],
        source_check: false,
        derive_source_port: false,
        ttl: 64,
        errors_per_second: 1000,
    }
}

fn bed(way: Way, settings: Settings) -> Bed {
    let (neighbors, hosts) = (Neighbors::new(), Hosts::new());
    let a = |v6| Host {
        ip: host(1, v6),
        mac: Some(HOST_A_MAC),
        port: None,
        encapsulation: None,
    };
    let b = Host {
        ip: host(2, way.v6),
        mac: way.mac,
        port: None,
        encapsulation: way.encapsulation,
    };
    let host_a = hosts.intern(a(false));
    let host_b = hosts.intern(b);
    for v6 in [false, true] {
        for (last, mac, host) in [(1, A, host_a), (2, B, host_b)] {
            let neighbor = Neighbor {
                mac,
                host,
                policy: 0,
                version: 1,
            };
            neighbors
                .write()
                .put(TenantAddress::new(vni(), tenant(last, v6)), neighbor);
        }
    }
    let connections = Limits {
        connections: 100,
        ..Limits::default()
    };
    let (policy, bindings) = (Policy::new(), Bindings::new());
    let firewall = Firewall::new(&policy, Arc::new(Conntrack::new(connections)));
    let decider = Decider::new(
        Arc::new(settings),
        neighbors.reader(),
        hosts.reader(),
        bindings.reader(),
        firewall,
        32,
    );
    Bed {
        hosts,
        host_b,
        decider,
        neighbors,
        bindings,
        policy,
    }
}

impl Bed {
    fn decide(&mut self, frame: &[u8]) -> (Decision, Vec<u8>) {
        let mut frame = Roomy::new(frame, 128, 256);
        let decision = self.decider.decide(1_000_000_000, 0, false, &mut frame);
        (decision, frame.bytes().to_vec())
    }

    fn dropped(&mut self, frame: &[u8], reason: DropReason) {
        let (decision, _) = self.decide(frame);
        assert_eq!(decision, Decision::Drop(reason));
    }
}

/// A frame that a host gets.
struct Got {
    macs: [MacAddr; 2],
    hosts: [IpAddr; 2],
    ttl: u8,
    tos: u8,
    ports: [u16; 2],
    checksum: ChecksumState,
    tunnel: Vec<u8>,
}

fn read(frame: &[u8]) -> Got {
    let ethernet = ethernet::Frame::parse(frame).unwrap();
    let (hosts, ttl, tos, payload): ([IpAddr; 2], _, _, _) = match ethernet.ethertype() {
        EtherType::IPV4 => {
            let ip = ipv4::Packet::parse(ethernet.payload()).unwrap();
            assert!(ip.verify_checksum(), "the outer IPv4 checksum");
            assert_eq!(ip.protocol(), Protocol::UDP);
            assert_eq!(ip.total_len(), ethernet.payload().len());
            ([ip.src().into(), ip.dst().into()], ip.ttl(), ip.tos(), ip.payload())
        }
        _ => {
            let ip = ipv6::Packet::parse(ethernet.payload()).unwrap();
            assert_eq!(ip.next_header(), Protocol::UDP);
            assert_eq!(ip.total_len(), ethernet.payload().len());
            (
                [ip.src().into(), ip.dst().into()],
                ip.hop_limit(),
                ip.traffic_class(),
                ip.payload(),
            )
        }
    };
    let datagram = udp::Datagram::parse(payload).unwrap();
    Got {
        macs: [ethernet.src(), ethernet.dst()],
        hosts,
        ttl,
        tos,
        ports: [datagram.src_port(), datagram.dst_port()],
        checksum: datagram.checksum_state(hosts[0], hosts[1]),
        tunnel: datagram.payload().to_vec(),
    }
}

impl Got {
    /// The tenant's frame and the Geneve options.
    fn inner(&self) -> (Encapsulation, u32, &[u8], &[u8]) {
        if self.ports[1] == vxlan::PORT {
            let packet = vxlan::Packet::parse(&self.tunnel).unwrap();
            (Encapsulation::Vxlan, packet.vni(), packet.frame(), &[])
        } else {
            let packet = geneve::Packet::parse(&self.tunnel).unwrap();
            assert_eq!(packet.protocol(), EtherType::TRANSPARENT_ETHERNET);
            (
                Encapsulation::Geneve,
                packet.vni(),
                packet.payload(),
                packet.options_bytes(),
            )
        }
    }
}

fn packet(v6: bool, to_mac: MacAddr, ttl: u8) -> Vec<u8> {
    let ips = [tenant(1, v6), tenant(2, v6)];
    tenant_udp(
        [A, to_mac],
        ips,
        [1000, 2000],
        ttl,
        b"some thirty-three bytes of payload",
    )
}

fn check_tenant_udp(frame: &[u8], v6: bool, macs: [MacAddr; 2], ttl: u8) {
    let ethernet = ethernet::Frame::parse(frame).unwrap();
    assert_eq!([ethernet.src(), ethernet.dst()], macs);
    let network = vlan::Network::parse(frame).unwrap();
    let bytes = &frame[network.offset..];
    let (payload, left) = if v6 {
        let ip = ipv6::Packet::parse(bytes).unwrap();
        (ip.payload(), ip.hop_limit())
    } else {
        let ip = ipv4::Packet::parse(bytes).unwrap();
        assert!(ip.verify_checksum(), "the inner IPv4 checksum");
        (ip.payload(), ip.ttl())
    };
    assert_eq!(left, ttl);
    let state = udp::checksum_state(payload, tenant(1, v6), tenant(2, v6));
    assert_eq!(state, ChecksumState::Valid, "the tenant's own");
}

fn sent(frame: Vec<u8>) -> Sent {
    Sent::new([host(1, false), gateway(false)], Encapsulation::Vxlan, VNI, frame)
}

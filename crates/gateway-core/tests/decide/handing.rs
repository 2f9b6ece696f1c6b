//! What the fast path is told to take over, and what it never could.

use ringside_gateway_core::decide::Cacheable;
use ringside_gateway_core::policy::Direction;
use ringside_wire::tcp::Flags;

use super::*;

const PORTS: [u16; 2] = [1000, 2000];
const BY_IPV6: Way = Way { v6: true, ..BY_IPV4 };

/// What a tenant sends the other, from its host, with this in place of the UDP header.
fn from(last: u8, way: Way, protocol: Protocol, upper: &[u8]) -> Vec<u8> {
    let (other, outer_v6) = if last == 1 { (2, false) } else { (1, way.v6) };
    let mac = if last == 1 { B } else { A };
    let ips = [tenant(last, false), tenant(other, false)];
    let frame = tenant_ip([A, mac], ips, protocol, upper);
    let hosts = [host(last, outer_v6), gateway(outer_v6)];
    Sent::new(hosts, Encapsulation::Vxlan, VNI, frame).bytes()
}

fn turned([source, destination]: [u16; 2], last: u8) -> [u16; 2] {
    if last == 1 {
        [source, destination]
    } else {
        [destination, source]
    }
}

fn tcp(last: u8, way: Way, flags: Flags, [sequence, acknowledgment]: [u32; 2]) -> Vec<u8> {
    let [source, destination] = turned(PORTS, last).map(u16::to_be_bytes);
    let header = [
        &source[..],
        &destination,
        &sequence.to_be_bytes(),
        &acknowledgment.to_be_bytes(),
        &[0x50, flags.0, 0x10, 0, 0, 0, 0, 0],
    ];
    from(last, way, Protocol::TCP, &header.concat())
}

impl Bed {
    /// Tenant 1 may send anything, tenant 2 may get it.
    fn allow(&mut self) {
        self.bind(1, self.allowing(Direction::Egress));
        self.bind(2, self.allowing(Direction::Ingress));
    }

    /// As a worker and who keeps the caches do it.
    fn handed(&mut self, frame: &[u8]) -> Cacheable {
        let decision = self.judge(frame);
        assert!(matches!(decision, Decision::Send { .. }), "{decision:?}");
        let cache = self.decider.cacheable();
        if let Cacheable::Connection { connection, .. } = cache {
            assert!(self.decider.firewall().conntrack().hand_over(connection).is_some());
        }
        cache
    }
}

/// Of what the fast path takes numbers are not seen, and do not count; a connection that it never takes, because its hosts are reached
/// by other families, is checked to its end.
#[test]
fn numbers_of_tcp_count_where_no_fast_path_is() {
    for (way, taken) in [(BY_IPV4, true), (BY_IPV6, false)] {
        let mut bed = bed(way, settings());
        bed.allow();
        let opening = [
            (1, Flags::SYN, [100, 0]),
            (2, Flags::SYN | Flags::ACK, [500, 101]),
            (1, Flags::ACK, [101, 501]),
        ];
        for (last, flags, numbers) in opening {
            bed.handed(&tcp(last, way, flags, numbers));
        }
        let cache = bed.handed(&tcp(1, way, Flags::ACK, [101, 501]));
        assert_eq!(matches!(cache, Cacheable::Connection { .. }), taken, "{cache:?}");
        let decision = bed.judge(&tcp(1, way, Flags::ACK, [0x8000_0000, 501]));
        match taken {
            true => assert!(matches!(decision, Decision::Send { .. }), "{decision:?}"),
            false => assert_eq!(decision, Decision::Drop(DropReason::OutOfWindow)),
        }
    }
}

#[test]
fn what_only_workers_send_on_is_told_to_nobody() {
    let ports = |last| {
        let [[a, b], [c, d]] = turned(PORTS, last).map(u16::to_be_bytes);
        vec![a, b, c, d, 0, 8, 0, 0]
    };
    let echo = |last| match last {
        1 => vec![8, 0, 0, 0, 0, 7, 0, 1],
        _ => vec![0, 0, 0, 0, 0, 7, 0, 1],
    };
    let upper = |protocol: Protocol, last| match protocol {
        Protocol::ICMP => echo(last),
        _ => ports(last),
    };
    let answered = |bed: &mut Bed, way, protocol| {
        for last in [1, 2] {
            bed.handed(&from(last, way, protocol, &upper(protocol, last)));
        }
        bed.handed(&from(1, way, protocol, &upper(protocol, 1)))
    };
    for way in [BY_IPV4, BY_IPV6] {
        // UDP; ICMP, GRE, ESP, SCTP.
        for protocol in [17, 1, 47, 50, 132].map(Protocol) {
            let mut bed = bed(way, settings());
            bed.allow();
            let cache = answered(&mut bed, way, protocol);
            let is_taken = protocol == Protocol::UDP && !way.v6;
            assert_eq!(
                matches!(cache, Cacheable::Connection { .. }),
                is_taken,
                "{protocol} {cache:?}"
            );
            assert!(is_taken || cache == Cacheable::Nothing, "{protocol} {cache:?}");
        }
    }
    // A checksum that was left to a NIC, with rules and without: the next one of its sender has it, too.
    let mut left = from(1, BY_IPV4, Protocol::UDP, &ports(1));
    let at = left.len() - 2;
    let (src, dst) = (tenant(1, false), tenant(2, false));
    left[at..].copy_from_slice(&super::forwarding::pseudo(src, dst, 8).to_be_bytes());
    let mut without = bed(BY_IPV4, settings());
    assert_eq!(without.handed(&left), Cacheable::Nothing);
    let whole = from(1, BY_IPV4, Protocol::UDP, &ports(1));
    assert_eq!(
        without.handed(&whole),
        Cacheable::Neighbor(TenantAddress::new(vni(), dst))
    );
    let mut with = bed(BY_IPV4, settings());
    with.allow();
    answered(&mut with, BY_IPV4, Protocol::UDP);
    assert_eq!(with.handed(&left), Cacheable::Nothing);
    assert!(matches!(with.handed(&whole), Cacheable::Connection { .. }));
}

/// Its answers may be the fast path's, which has to know who sends them.
#[test]
fn a_receiver_is_told_where_senders_count() {
    let checked = Settings {
        source_check: true,
        ..settings()
    };
    for (settings, told) in [(settings(), false), (checked, true)] {
        let mut bed = bed(BY_IPV6, settings);
        let cache = bed.handed(&from(1, BY_IPV6, Protocol::UDP, &[0, 1, 0, 2, 0, 8, 0, 0]));
        let receiver = TenantAddress::new(vni(), tenant(2, false));
        let expected = if told {
            Cacheable::Neighbor(receiver)
        } else {
            Cacheable::Nothing
        };
        assert_eq!(cache, expected);
    }
}

/// Also by a packet that waits for the MAC address of its host, or is dropped at last.
#[test]
fn what_has_ended_is_taken_back_whatever_the_decision_is() {
    let way = Way { mac: None, ..BY_IPV4 };
    let mut bed = bed(way, settings());
    bed.allow();
    assert!(bed.hosts.resolve(bed.host_b, Some((HOST_B_MAC, 0))));
    for (last, flags, numbers) in [
        (1, Flags::SYN, [100, 0]),
        (2, Flags::SYN | Flags::ACK, [500, 101]),
        (1, Flags::ACK, [101, 501]),
    ] {
        bed.handed(&tcp(last, way, flags, numbers));
    }
    let cache = bed.handed(&tcp(1, way, Flags::ACK, [101, 501]));
    let Cacheable::Connection { connection, .. } = cache else {
        panic!("{cache:?}");
    };
    assert!(bed.hosts.resolve(bed.host_b, None));
    let open = bed.judge(&tcp(1, way, Flags::ACK, [101, 501]));
    assert_eq!(open, Decision::Wait(bed.host_b));
    assert_eq!(bed.decider.cacheable(), Cacheable::Nothing);
    let ended = bed.judge(&tcp(1, way, Flags::FIN | Flags::ACK, [101, 501]));
    assert_eq!(ended, Decision::Wait(bed.host_b));
    assert_eq!(bed.decider.cacheable(), Cacheable::Ended(connection));
}

use ringside_gateway_core::Underlay;
use ringside_gateway_core::decide::PortSettings;
use ringside_gateway_core::table::Host;
use ringside_wire::checksum::Sum;
use ringside_wire::{MacAddr, Protocol, ipv4};

use super::*;

const OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SOON: Duration = Duration::from_secs(1);

fn ip(last: u8) -> IpAddr {
    [198, 51, 100, last].into()
}

fn settings() -> Settings {
    Settings {
        underlay: Underlay::at(&[OURS.into()]),
        ports: vec![PortSettings {
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            v4: Some(OURS),
            v6: None,
            mtu: 1500,
        }],
        source_check: false,
        derive_source_port: false,
        ttl: 64,
        errors_per_second: 1000,
    }
}

fn said(host: IpAddr, mtu: u16) -> Vec<u8> {
    let IpAddr::V4(host) = host else { panic!("IPv4") };
    let header = |from, to, protocol, payload_len| {
        let mut bytes = vec![0; 20];
        let header = ipv4::Header {
            payload_len,
            ..ipv4::Header::new(from, to, protocol)
        };
        header.emit(&mut bytes).expect("room");
        bytes
    };
    let udp = [0xc0, 0, 0x12, 0xb5, 5, 0xc0, 0, 0];
    let quoted = [header(OURS, host, Protocol::UDP, 1472), udp.to_vec()].concat();
    let mut message = [&[3, 4, 0, 0, 0, 0][..], &mtu.to_be_bytes(), &quoted].concat();
    let checksum = Sum::of(&message).finish();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let router = Ipv4Addr::new(203, 0, 113, 1);
    [header(router, OURS, Protocol::ICMP, message.len()), message].concat()
}

struct Bed {
    table: Hosts,
    counters: Arc<LimitCounters>,
    limits: Limits,
    now: Instant,
}

/// Three hosts; the last two have one address.
fn bed() -> Bed {
    let (table, counters, now) = (Hosts::new(), Arc::default(), Instant::now());
    for (last, port) in [(1, None), (2, None), (2, Some(0))] {
        table.intern(host(last, port));
    }
    let limits = Limits::new(&table, Arc::clone(&counters), now);
    Bed {
        table,
        counters,
        limits,
        now,
    }
}

fn host(last: u8, port: Option<u8>) -> Host {
    Host {
        ip: ip(last),
        mac: None,
        port,
        encapsulation: None,
    }
}

impl Bed {
    fn hear(&mut self, host: IpAddr, mtu: u16) {
        let message = said(host, mtu);
        (self.limits).hear(&self.table, (&message, true), &settings(), self.now);
    }

    fn route(&mut self, id: u32, mtu: u16) {
        self.limits.route(&self.table, HostId(id), NonZeroU16::new(mtu));
    }

    /// What the table has, 0 for nothing.
    fn all(&self) -> Vec<u16> {
        let mut hosts = self.table.reader();
        let count = u32::try_from(self.table.len()).expect("few");
        let of = |id| hosts.mtu(HostId(id)).map_or(0, NonZeroU16::get);
        (0..count).map(of).collect()
    }

    /// Those that the fast path is told of, a second later.
    fn told(&mut self) -> Vec<u32> {
        self.now += SOON;
        let mut told: Vec<u32> = self.limits.changed(self.now).into_iter().map(|id| id.0).collect();
        told.sort_unstable();
        told.dedup();
        told
    }
}

#[test]
fn what_is_heard_holds_for_a_while() {
    let mut bed = bed();
    bed.hear(ip(2), 1400);
    assert_eq!(bed.all(), [0, 1400, 1400]);
    assert_eq!((bed.told(), bed.counters.limited()), (vec![1, 2], 2));
    // Not about the host, nor less than what is known, nor than the port.
    bed.hear(ip(9), 1300);
    bed.hear(ip(2), 1400);
    bed.hear(ip(2), 1450);
    bed.hear(ip(1), 1500);
    assert_eq!((bed.all(), bed.told()), (vec![0, 1400, 1400], vec![]));
    bed.hear(ip(2), 1380);
    assert_eq!((bed.all(), bed.told()), (vec![0, 1380, 1380], vec![1, 2]));
    bed.hear(ip(2), 1350);
    assert_eq!(bed.all(), [0, 1350, 1350]);
    assert_eq!(bed.limits.changed(bed.now), [], "not twice in a second");
    assert_eq!(bed.told(), [1, 2]);
    // A neighbour comes whose host is written in another way.
    bed.table.intern(host(2, Some(1)));
    bed.limits.forget(&bed.table, bed.now);
    assert_eq!((bed.all(), bed.told()), (vec![0, 1350, 1350, 1350], vec![3]));

    bed.now += BELIEVED;
    bed.limits.forget(&bed.table, bed.now);
    assert_eq!((bed.all(), bed.told()), (vec![0; 4], vec![1, 2, 3]));
    let counted = [("heard", 7), ("taken", 3), ("forgotten", 1)];
    assert_eq!((bed.counters.events(), bed.counters.limited()), (counted.to_vec(), 0));
}

#[test]
fn the_narrower_of_route_and_router_holds() {
    let mut bed = bed();
    bed.route(1, 1400);
    assert_eq!((bed.all(), bed.counters.limited()), (vec![0, 1400, 0], 1));
    bed.hear(ip(2), 1300);
    assert_eq!((bed.all(), bed.counters.limited()), (vec![0, 1300, 1300], 2));
    bed.route(1, 1280);
    assert_eq!(bed.all(), [0, 1280, 1300]);
    bed.now += BELIEVED;
    bed.limits.forget(&bed.table, bed.now);
    assert_eq!(bed.all(), [0, 1280, 0]);
    bed.route(1, 0);
    assert_eq!((bed.all(), bed.counters.limited()), (vec![0; 3], 0));
}

#[test]
fn what_the_process_before_knew_is_believed_anew() {
    let table = Hosts::new();
    let id = table.intern(host(1, None));
    table.limit(id, NonZeroU16::new(1400));
    let now = Instant::now();
    let limits = Limits::new(&table, Arc::default(), now);
    let mut bed = Bed {
        table,
        counters: Arc::default(),
        limits,
        now,
    };
    assert_eq!((bed.all(), bed.told()), (vec![1400], vec![0]));
    bed.now += BELIEVED;
    bed.limits.forget(&bed.table, bed.now);
    assert_eq!(bed.all(), [0]);
}

//! Who reaches whom.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use ringside_netlab::wait_until;

use crate::bed::{Bed, FAMILIES, Family, Kind, Place, Tenant};
use crate::peers::{answered, listen, unanswered};
use crate::tenants::on;

use crate::process::PATIENCE;

on! {
    kernel = crate::tenants::KERNEL => tenants_answer_each_other, networks_are_apart;
    fast = crate::tenants::FAST => tenants_answer_each_other, networks_are_apart;
    slow = crate::tenants::SLOW => tenants_answer_each_other, networks_are_apart;
    unsummed = crate::tenants::UNSUMMED => tenants_answer_each_other;
    generic = crate::tenants::GENERIC => tenants_answer_each_other;
    two_ports = crate::tenants::TWO_PORTS => tenants_answer_each_other, networks_are_apart;
    two_ports_slow = crate::tenants::TWO_PORTS_SLOW => tenants_answer_each_other;
    two_ports_generic = crate::tenants::TWO_PORTS_GENERIC => tenants_answer_each_other;
    two_queues = crate::tenants::TWO_QUEUES => tenants_answer_each_other;
}

fn tenants_answer_each_other(kind: Kind) {
    for outer in FAMILIES {
        let bed = Bed::new("answer", kind, &[Place::vxlan(outer); 2]);
        for inner in FAMILIES {
            for (from, to) in [(1, 2), (2, 1)] {
                let (from, to) = (bed.at(from), bed.at(to));
                let done = answered(from, to.address(inner));
                // Between hosts of one network nobody routes.
                assert!(done.out.contains("ttl=64"), "{done:#?}");
                assert_eq!(from.neighbour(to.address(inner)), Some(to.card.mac));
            }
        }
    }
}

const PORT: u16 = 7000;

fn networks_are_apart(kind: Kind) {
    let bed = Bed::new("apart", kind, &[Place::vxlan(Family::V4); 2]);
    for inner in FAMILIES {
        for network in 0..2 {
            for (from, to) in [(0, 1), (1, 0)] {
                let (from, to) = (&bed.tenants[from][network], &bed.tenants[to][network]);
                let address = SocketAddr::new(to.address(inner), PORT);
                // Each tenant of that address listens; that of the same network answers.
                let others = [&bed.tenants[0], &bed.tenants[1]].into_iter().flatten();
                let there = others.filter(|other| other.card.v4 == to.card.v4);
                let listeners: Vec<_> = there.map(|tenant| (tenant, listen(tenant, address))).collect();
                assert_eq!(listeners.len(), 2);
                let asked = connect(from, address);
                let mut called = None;
                let look = || {
                    let accepts = |(_, listener): &&(&Tenant, TcpListener)| listener.accept().is_ok();
                    called = listeners.iter().find(accepts).map(|(tenant, _)| tenant.card.vni);
                    called.is_some()
                };
                assert!(wait_until(PATIENCE, look), "connected with nobody");
                assert_eq!(called, Some(to.card.vni));
                drop(asked);
            }
        }
    }
    // An address that only the other network has.
    let alone: [IpAddr; 2] = [
        "10.0.0.9".parse().expect("an address"),
        "fd00::9".parse().expect("an address"),
    ];
    for (address, prefix) in alone.into_iter().zip([24, 64]) {
        bed.tenants[1][1]
            .device()
            .add_address(address, prefix)
            .expect("address");
        unanswered(&bed.tenants[0][0], address);
    }
}

fn connect(from: &Tenant, address: SocketAddr) -> TcpStream {
    from.ns
        .run(|| TcpStream::connect_timeout(&address, PATIENCE))
        .expect("connects")
}

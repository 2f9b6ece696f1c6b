//! Who reaches whom.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};

use crate::bed::{Bed, FAMILIES, Family, Kind, Place, Tenant};
use crate::on;
use crate::peers::{answered, unanswered};
use crate::process::PATIENCE;

on! {
    kernel = crate::KERNEL => tenants_answer_each_other, networks_are_apart;
    fast = crate::FAST => tenants_answer_each_other, networks_are_apart;
    slow = crate::SLOW => tenants_answer_each_other, networks_are_apart;
    unsummed = crate::UNSUMMED => tenants_answer_each_other;
    generic = crate::GENERIC => tenants_answer_each_other;
    two_queues = crate::TWO_QUEUES => tenants_answer_each_other;
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

/// What a tenant says about itself to who connects.
fn name(tenant: &Tenant) -> String {
    format!("{} in {}", tenant.card.v4, tenant.card.vni)
}

fn networks_are_apart(kind: Kind) {
    let bed = Bed::new("apart", kind, &[Place::vxlan(Family::V4); 2]);
    for inner in FAMILIES {
        for network in 0..2 {
            for (from, to) in [(0, 1), (1, 0)] {
                let (from, to) = (&bed.tenants[from][network], &bed.tenants[to][network]);
                // Each tenant of that address listens; that of the same network answers.
                let others = [&bed.tenants[0], &bed.tenants[1]].into_iter().flatten();
                let there: Vec<&Tenant> = others.filter(|other| other.card.v4 == to.card.v4).collect();
                assert_eq!(there.len(), 2);
                std::thread::scope(|scope| {
                    for tenant in &there {
                        let listener = listen(tenant, to.address(inner));
                        let name = name(tenant);
                        scope.spawn(move || introduce(&listener, &name));
                    }
                    assert_eq!(ask(from, to.address(inner)), name(to));
                    for tenant in &there {
                        ask(tenant, to.address(inner));
                    }
                });
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

fn listen(tenant: &Tenant, address: IpAddr) -> TcpListener {
    tenant.ns.run(|| TcpListener::bind((address, 7000))).expect("listens")
}

/// Until the tenant itself has asked, which comes last.
fn introduce(listener: &TcpListener, name: &str) {
    let own = listener.local_addr().expect("address").ip();
    loop {
        let (mut stream, peer) = listener.accept().expect("accepts");
        stream.write_all(name.as_bytes()).expect("says its name");
        if peer.ip() == own {
            return;
        }
    }
}

fn ask(from: &Tenant, address: IpAddr) -> String {
    let mut stream = from
        .ns
        .run(|| TcpStream::connect_timeout(&(address, 7000).into(), PATIENCE))
        .expect("connects");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("hears");
    said
}

//! What happens to links and hosts: the gateway goes on when it is over.

use ringside_netlab::wait_until;

use crate::bed::{Bed, Family, Kind, Place};
use crate::peers::{answered, answered_with, chat, connect, exchange_during, ping};
use crate::process::PATIENCE;
use crate::tenants::on;

on! {
    fast = crate::tenants::FAST => a_link_goes_and_comes_back, a_host_gets_another_card, pieces_arrive;
    slow = crate::tenants::SLOW => a_link_goes_and_comes_back, pieces_arrive;
    generic = crate::tenants::GENERIC => a_link_goes_and_comes_back;
}

fn a_link_goes_and_comes_back(kind: Kind) {
    let mut bed = Bed::new("link", kind, &[Place::vxlan(Family::V4); 2]);
    let streams = connect(bed.at(1), (bed.at(2), bed.at(2).address(Family::V4)), 7000);
    chat(&streams).expect("goes");
    for end in [bed.uplinks[0].a.clone(), bed.uplinks[0].b.clone()] {
        end.set_up(false).expect("down");
        let done = ping(bed.at(1), bed.at(2).address(Family::V4), "-c 1 -W 0.5");
        assert!(done.out.contains(" 0 received"), "{done:#?}");
        end.set_up(true).expect("up");
        end.wait_ready().expect("ready");
        chat(&streams).expect("goes on");
        answered(bed.at(2), bed.at(1).address(Family::V6));
    }
    bed.ringside().wait_until(|gateway| gateway.problems().is_empty());
    bed.ringside().daemon().ok(&["health"]);
}

/// Another MAC address for the same IP address, of which it tells its neighbours.
fn a_host_gets_another_card(kind: Kind) {
    let mut bed = Bed::new("card", kind, &[Place::vxlan(Family::V4); 2]);
    let to = bed.at(2).address(Family::V4);
    answered(bed.at(1), to);
    let host = bed.hosts[1].wire.a.clone();
    let gateway = bed.uplinks[0].a.ipv4;
    host.run(|| host.interface.set_mac([2, 0, 0, 7, 7, 7]))
        .expect("MAC address");
    // It forgets what it knows, and asks for the gateway's address: that tells its own.
    for words in [
        "ip neighbour flush dev eth0".to_owned(),
        format!("ping -n -c 1 -W 10 {gateway}"),
    ] {
        let mut words = words.split(' ');
        let mut command = host.ns.command(words.next().expect("a program"));
        let output = command.args(words).output().expect("runs");
        assert!(output.status.success(), "{output:?}");
    }
    let back = || {
        let done = ping(bed.at(1), to, "-c 1 -W 0.2");
        done.out.contains(" 1 received")
    };
    assert!(wait_until(PATIENCE, back));
    answered(bed.at(1), to);
    bed.ringside().daemon().ok(&["health"]);
}

/// What a tenant has cut into pieces, of which only the first says whose they are.
fn pieces_arrive(kind: Kind) {
    let mut bed = Bed::new("pieces", kind, &[Place::vxlan(Family::V4); 2]);
    let busy = connect(bed.at(1), (bed.at(2), bed.at(2).address(Family::V4)), 7000);
    for inner in [Family::V4, Family::V6] {
        answered_with(bed.at(1), bed.at(2).address(inner), "-s 4000");
    }
    let rules = "[{id: 1, direction: egress, protocol: icmp}, {id: 2, direction: ingress, protocol: icmp}, \
                 {id: 3, direction: ingress, protocol: tcp}, {id: 4, direction: egress, protocol: tcp}]";
    let mut text = format!("groups:\n  - {{id: 1, rules: {rules}}}\nports:\n");
    for tenant in [bed.at(1), bed.at(2)] {
        for inner in [Family::V4, Family::V6] {
            text.push_str(&format!(
                "  - {{vni: 42, ip: \"{}\", groups: [1]}}\n",
                tenant.address(inner)
            ));
        }
    }
    // Rules come while packets are under way, and what they allow goes on.
    exchange_during(&busy, || bed.ringside().apply(&text));
    for inner in [Family::V4, Family::V6] {
        answered_with(bed.at(1), bed.at(2).address(inner), "-s 4000");
    }
}

//! Hosts, and routers to them, that answered and do not any more.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ringside_netlab::wait_until;

use crate::bed::{Bed, Family, Kind, Place};
use crate::peers::{answered, ping, wait_for_answer};
use crate::process::PATIENCE;
use crate::ringside::Ringside;
use crate::tenants::on;

on! {
    fast = crate::tenants::FAST => a_host_that_goes_down_is_named_and_comes_back, a_host_that_went_down_is_named_after_a_restart;
    workers = crate::tenants::WORKERS => a_host_that_goes_down_is_named_and_comes_back;
    two_ports = crate::tenants::TWO_PORTS => a_host_that_goes_down_is_named_and_comes_back;
}

/// Sends until health has a problem that begins with this text.
pub(super) fn wait_for_problem(bed: &mut Bed, to: IpAddr, text: &str) {
    let mut problems = Vec::new();
    let is_named = || {
        ping(bed.at(1), to, "-c 1 -W 0.2");
        problems = bed.ringside().problems();
        problems.iter().any(|problem| problem.starts_with(text))
    };
    assert!(wait_until(PATIENCE, is_named), "not {text:?} in {problems:#?}");
}

fn no_answer(bed: &Bed) -> String {
    let host = bed.at(2).card.host;
    format!("packets to host {host} are lost: it does not answer for its MAC address")
}

/// Not a packet is counted as sent on any more, and each that is lost is counted.
fn all_are_counted(bed: &mut Bed, to: IpAddr) {
    let (sent, lost) = (bed.ringside().sent_on(), bed.ringside().dropped("host-unresolved"));
    ping(bed.at(1), to, "-c 5 -W 0.2");
    bed.ringside()
        .wait_until(|gateway| gateway.dropped("host-unresolved") >= lost + 5);
    assert_eq!(bed.ringside().sent_on(), sent);
}

fn a_host_that_goes_down_is_named_and_comes_back(kind: Kind) {
    for family in [Family::V4, Family::V6] {
        let mut bed = Bed::new("goes-down", kind, &[Place::vxlan(family); 2]);
        let to = bed.at(2).address(Family::V4);
        answered(bed.at(1), to);
        bed.hosts[1].set_silent(true);
        // Neighbour discovery goes on without ARP.
        if family == Family::V6 {
            bed.hosts[1].ip(&format!("address del {}/64 dev eth0", bed.at(2).card.host));
        }
        let begun = Instant::now();
        let text = no_answer(&bed);
        wait_for_problem(&mut bed, to, &text);
        // Ten seconds or so, and more on a busy machine.
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        all_are_counted(&mut bed, to);
        bed.hosts[1].set_silent(false);
        if family == Family::V6 {
            bed.hosts[1].ip(&format!("address add {}/64 dev eth0 nodad", bed.at(2).card.host));
        }
        wait_for_answer(bed.at(1), to);
        answered(bed.at(1), to);
        assert_eq!(bed.ringside().problems(), [""; 0]);
    }
}

/// The fast path goes on meanwhile, and the kernel forgets.
fn a_host_that_went_down_is_named_after_a_restart(kind: Kind) {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let kind = Kind::Ringside(Ringside { pinned: true, ..how });
    let mut bed = Bed::new("went-down", kind, &[Place::vxlan(Family::V4); 2]);
    let to = bed.at(2).address(Family::V4);
    answered(bed.at(1), to);
    let folder = bed.ringside().end(false);
    bed.hosts[1].ip("link set dev eth0 down");
    crate::bed::ip(&bed.uplinks[0].a.ns, "neigh flush dev eth0");
    bed.ringside().start_in(folder);
    let text = no_answer(&bed);
    wait_for_problem(&mut bed, to, &text);
    all_are_counted(&mut bed, to);
    bed.hosts[1].ip("link set dev eth0 up");
    wait_for_answer(bed.at(1), to);
    assert_eq!(bed.ringside().problems(), [""; 0]);
}

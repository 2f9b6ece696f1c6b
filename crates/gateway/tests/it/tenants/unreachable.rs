//! Hosts that do not get what the gateway sends: what they and routers answer by ICMP is in health,
//! statistics, metrics and traces.

use std::fs::File;
use std::net::IpAddr;
use std::time::Instant;

use ringside_netlab::wait_until;
use serde_json::Value;

use crate::bed::{Bed, FAMILIES, Family, Kind, Place, Tunnel, ip, outer};
use crate::peers::{answered, ping, unanswered, wait_for_answer};
use crate::process::PATIENCE;
use crate::ringside::Ringside;
use crate::tenants::on;
use crate::tenants::scraped::{Metrics, OFFERED};

const FAST: Kind = Kind::Ringside(Ringside {
    more: OFFERED,
    ..Ringside::FAST
});

on! {
    fast = super::FAST => reports_wrong_encapsulation_until_it_is_corrected, reports_missing_tunnel_until_answers_stop,
        reports_what_routers_answer;
    workers = crate::tenants::WORKERS => reports_what_routers_answer;
    generic = crate::tenants::GENERIC => reports_what_routers_answer;
}

/// Waits for a problem with this text while a tenant sends.
fn wait_for_problem(bed: &mut Bed, to: IpAddr, text: &str) {
    let mut problems = Vec::new();
    let is_reported = || {
        ping(bed.at(1), to, "-c 1 -W 0.2");
        problems = bed.ringside().problems();
        problems.iter().any(|problem| problem.contains(text))
    };
    assert!(wait_until(PATIENCE, is_reported), "not {text:?} in {problems:#?}");
}

fn wait_for_health(bed: &mut Bed) {
    bed.ringside().wait_until(|gateway| gateway.problems().is_empty());
}

fn messages(bed: &mut Bed, cause: &str) -> u64 {
    let count = &bed.ringside().statistics()["unreachable-messages"][cause];
    count.as_u64().unwrap_or(0)
}

/// What the kernel of a host says that has no socket at Geneve's port.
fn reports_wrong_encapsulation_until_it_is_corrected(kind: Kind) {
    for family in FAMILIES {
        let place = Place::vxlan(family);
        let mut bed = Bed::new("refused", kind, &[place; 2]);
        let to = bed.at(2).address(Family::V4);
        answered(bed.at(1), to);
        assert_eq!(bed.ringside().problems(), [""; 0]);
        let right = bed.at(2).card;
        let mut wrong = right;
        wrong.tunnel = Tunnel::Geneve;
        bed.ringside().learn(&[wrong]);
        let host = right.host;
        let text = format!("packets to host {host} (Geneve, UDP port 6081) are lost: {host} answers port-unreachable");
        wait_for_problem(&mut bed, to, &text);
        unanswered(bed.at(1), to);
        let health = bed.ringside().daemon().ctl(&["health"]);
        assert!(!health.status.success(), "{health:?}");
        let hosts = bed.ringside().statistics()["unreachable-hosts"].clone();
        let Some([one]) = hosts.as_array().map(Vec::as_slice) else {
            panic!("one host: {hosts}");
        };
        let expected = [
            ("host", Value::from(host.to_string())),
            ("encapsulation", "geneve".into()),
            ("udp-port", 6081.into()),
            ("cause", "port-unreachable".into()),
        ];
        for (name, value) in expected {
            assert_eq!(one[name], value, "{one}");
        }
        assert!(messages(&mut bed, "port-unreachable") >= 1);
        let metrics = Metrics::of(&bed.uplinks[0].a.ns);
        assert!(
            metrics.get("unreachable_messages_total{cause=\"port-unreachable\"}") >= 1.0,
            "{metrics:?}"
        );
        assert!(
            metrics.get("unreachable_hosts{cause=\"port-unreachable\"}") > 0.5,
            "{metrics:?}"
        );
        trace_shows(&mut bed, to, &format!("lost there: {host} answers port-unreachable"));

        // At once, not when no answer has come for a while.
        bed.ringside().learn(&[right]);
        let corrected = Instant::now();
        wait_for_answer(bed.at(1), to);
        wait_for_health(&mut bed);
        assert!(corrected.elapsed().as_secs() < 25, "{:?}", corrected.elapsed());
        let log = bed.ringside().daemon().log();
        assert!(log.contains("no more ICMP errors about packets to a host"), "{log}");
    }
}

/// Waits until a packet to that tenant is traced with this text.
fn trace_shows(bed: &mut Bed, to: IpAddr, text: &str) {
    let daemon = bed.ringside().daemon();
    let file = daemon.folder.join("trace");
    let mut command = daemon.ctl_command(&["trace", "--vni", "42", "--ip", &to.to_string()]);
    let mut trace = command
        .stdout(File::create(&file).expect("a file"))
        .spawn()
        .expect("starts");
    let is_shown = || {
        ping(bed.at(1), to, "-c 1 -W 0.2");
        std::fs::read_to_string(&file).expect("text").contains(text)
    };
    let is_shown = wait_until(PATIENCE, is_shown);
    trace.kill().expect("ended");
    trace.wait().expect("ended");
    assert!(
        is_shown,
        "{text:?} is not in {}",
        std::fs::read_to_string(&file).expect("text")
    );
}

/// The fast path sends on what nobody at the host takes.
fn reports_missing_tunnel_until_answers_stop(kind: Kind) {
    let mut bed = Bed::new("no-tunnel", kind, &[Place::vxlan(Family::V4); 2]);
    let to = bed.at(2).address(Family::V4);
    answered(bed.at(1), to);
    let host = bed.at(2).card.host;
    // The kernel closes the port with the last device that has it.
    bed.tenants[1].iter_mut().for_each(crate::tenant::Tenant::unplug);
    let text = format!("packets to host {host} (VXLAN, UDP port 4789) are lost: {host} answers port-unreachable");
    wait_for_problem(&mut bed, to, &text);
    let before = bed.ringside().forwarded("fast");
    trace_shows(
        &mut bed,
        to,
        &format!("sent on; lost there: {host} answers port-unreachable"),
    );
    assert!(bed.ringside().forwarded("fast") > before);

    let remote = outer(&bed.uplinks[0].a, Place::vxlan(Family::V4));
    let wire = &bed.hosts[1].wire;
    bed.tenants[1][0].plug(wire, remote, Place::vxlan(Family::V4).mtu());
    wait_for_answer(bed.at(1), to);
    wait_for_health(&mut bed);
}

/// Host 2 is the router on the way to a host that it does not let anybody reach.
fn reports_what_routers_answer(kind: Kind) {
    for family in FAMILIES {
        let mut bed = Bed::new("router-says", kind, &[Place::vxlan(family); 2]);
        let to = bed.at(2).address(Family::V4);
        answered(bed.at(1), to);
        let router = bed.hosts[1].wire.a.clone();
        let (behind, network, options) = match family {
            Family::V4 => ("10.88.0.9", "10.88.0.0/24", ""),
            Family::V6 => ("fd88::9", "fd88::/64", "-6 "),
        };
        for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            let file = format!("/proc/sys/net/{setting}");
            router.run(|| std::fs::write(file, "1")).expect("a router");
        }
        let via = outer(&router, Place::vxlan(family));
        ip(&bed.uplinks[0].a.ns, &format!("{options}route add {network} via {via}"));
        let mut card = bed.at(2).card;
        card.host = behind.parse().expect("an address");
        bed.ringside().learn(&[card]);
        for (route, cause) in [("prohibit", "prohibited"), ("unreachable", "host-unreachable")] {
            // IPv6 has another code for this kind of route.
            let cause = match (family, cause) {
                (Family::V6, "host-unreachable") => "network-unreachable",
                _ => cause,
            };
            ip(&router.ns, &format!("{options}route replace {route} {network}"));
            let text = format!("packets to host {behind} (VXLAN, UDP port 4789) are lost: {via} answers {cause} (");
            wait_for_problem(&mut bed, to, &text);
            assert!(messages(&mut bed, cause) >= 1);
        }
        assert_eq!(messages(&mut bed, "port-unreachable"), 0);
        let right = bed.at(2).card;
        bed.ringside().learn(&[right]);
        wait_for_answer(bed.at(1), to);
        wait_for_health(&mut bed);
    }
}

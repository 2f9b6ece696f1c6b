//! Heavy flows go from host to host, past the gateway, if hosts listen to what it tells them.

use std::time::{Duration, Instant};

use ringside_netlab::wait_until;

use crate::bed::{Bed, Family, Kind, Place, Tenant};
use crate::common::daemon::binary;
use crate::peers::{answered, connect, exchange, exchange_during};
use crate::process::{PATIENCE, Running};
use crate::ringside::Ringside;
use crate::tenants::on;

on! {
    fast = crate::tenants::FAST => heavy_flows_pass_by, heavy_flows_pass_by_over_ipv6, no_more_is_told_than_may_be, rules_bring_them_back,
        only_who_has_the_key_is_believed;
    slow = crate::tenants::SLOW => heavy_flows_pass_by;
    workers = crate::tenants::WORKERS => heavy_flows_pass_by_over_ipv6;
}

const DIRECT: &str = "[path.direct]\npackets-per-second = 200\nlifetime-seconds = 20";

/// Two hosts, and a gateway that tells them.
fn bed(tag: &str, kind: Kind, direct: &'static str, outer: Family) -> Bed {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let kind = Kind::Ringside(Ringside { more: direct, ..how });
    Bed::new(tag, kind, &[Place::vxlan(outer); 2])
}

/// Listens on a host, for the tenant of network 42 there.
fn listen(bed: &Bed, host: usize, words: &str) -> Running {
    let mut command = bed.hosts[host - 1].wire.a.ns.command(binary().get_program());
    let netns = bed.at(host).ns.name();
    command.args(["ctl", "direct", "--netns", netns]).args(words.split(' '));
    let agent = Running::new(command);
    agent.wait_for("listening");
    agent
}

/// Whose packets a tenant's endpoint sends straight to another host.
fn straight(tenant: &Tenant) -> Vec<[u8; 6]> {
    let found = tenant.ns.run(|| tenant.interface().forwarded());
    found.expect("the forwarding database")
}

/// Both ways.
fn all_pass_by(bed: &Bed) -> bool {
    straight(bed.at(1)) == [bed.at(2).card.mac] && straight(bed.at(2)) == [bed.at(1).card.mac]
}

fn nobody_passes_by(bed: &Bed) -> bool {
    [1, 2].iter().all(|host| straight(bed.at(*host)).is_empty())
}

/// The gateway's address for hosts of a family.
fn from(outer: Family) -> &'static str {
    match outer {
        Family::V4 => "--from 10.77.0.254",
        Family::V6 => "--from fd77::fe",
    }
}

fn heavy_flows_pass_by(kind: Kind) {
    pass_by("direct", kind, Family::V4);
}

fn heavy_flows_pass_by_over_ipv6(kind: Kind) {
    pass_by("direct-v6", kind, Family::V6);
}

fn pass_by(tag: &str, kind: Kind, outer: Family) {
    let mut bed = bed(tag, kind, DIRECT, outer);
    let (to, back) = (bed.at(2).address(Family::V4), bed.at(1).address(Family::V4));
    let agents = [1, 2].map(|host| listen(&bed, host, from(outer)));
    answered(bed.at(1), to);
    assert!(nobody_passes_by(&bed), "a few packets are not many");
    let busy = connect(bed.at(1), (bed.at(2), to), 7000);
    exchange_during(&busy, || {
        assert!(wait_until(PATIENCE, || all_pass_by(&bed)));
        // Megabytes go on, and next to nothing of them by the gateway.
        let is_quiet = || {
            let before = bed.ringside().sent_on();
            std::thread::sleep(Duration::from_millis(100));
            bed.ringside().sent_on() - before < 20
        };
        assert!(wait_until(PATIENCE, is_quiet));
    });
    let direct = &bed.ringside().statistics()["direct"];
    assert!(
        direct["pairs"].as_u64() >= Some(2) && direct["sent-notices"].as_u64() >= Some(2),
        "{direct}"
    );
    // Who is gone is not sent to any more, and who listens no longer leaves nothing behind.
    let daemon = bed.ringside().daemon();
    daemon.ok(&["delete", "neighbor", "42", &to.to_string()]);
    assert!(wait_until(PATIENCE, || straight(bed.at(1)).is_empty()));
    assert_eq!(straight(bed.at(2)), [bed.at(1).card.mac], "{back} is not gone");
    for agent in agents {
        assert!(agent.interrupt().status.success());
    }
    assert!(nobody_passes_by(&bed));
}

const ONE_A_SECOND: &str = "[path.direct]\npackets-per-second = 200\nlifetime-seconds = 20\nnotices-per-second = 1";

/// Two hosts send each other much in two networks at once, which would be four notices in a moment. All are told in the end, a second apart.
fn no_more_is_told_than_may_be(kind: Kind) {
    let outer = Family::V6;
    let mut bed = bed("direct-limit", kind, ONE_A_SECOND, outer);
    let agents = [1, 2].map(|host| listen(&bed, host, from(outer)));
    let busy = [0, 1].map(|network| {
        let [from, to] = [0, 1].map(|host| &bed.tenants[host][network]);
        connect(from, (to, to.address(Family::V4)), 7000)
    });
    // The bound is that of a bucket with room for one, which is full at first.
    let began = Instant::now();
    let told = |bed: &mut Bed| {
        let direct = bed.ringside().statistics()["direct"].clone();
        let (sent, most) = (direct["sent-notices"].as_u64(), 1 + began.elapsed().as_secs());
        assert!(sent <= Some(most), "more than {most}: {direct}");
        direct
    };
    exchange_during(&busy[0], || {
        exchange_during(&busy[1], || {
            let all_are_told = || told(&mut bed)["pairs"].as_u64() >= Some(4);
            assert!(wait_until(PATIENCE, all_are_told), "{}", bed.ringside().statistics());
            // Whoever listens for the first network is told of it.
            assert!(wait_until(PATIENCE, || all_pass_by(&bed)));
        });
    });
    let direct = told(&mut bed);
    assert!(
        direct["sent-notices"].as_u64() >= Some(4) && direct["held-back-notices"].as_u64() >= Some(1),
        "{direct}"
    );
    for agent in agents {
        assert!(agent.interrupt().status.success());
    }
}

fn rules_bring_them_back(kind: Kind) {
    let mut bed = bed("direct-rules", kind, DIRECT, Family::V4);
    let to = bed.at(2).address(Family::V4);
    let _agents = [1, 2].map(|host| listen(&bed, host, from(Family::V4)));
    let heavy = |bed: &Bed, port| {
        let streams = connect(bed.at(1), (bed.at(2), to), port);
        exchange(&streams, 4 << 20);
    };
    heavy(&bed, 7000);
    assert!(wait_until(PATIENCE, || all_pass_by(&bed)));
    // Somebody in the network has rules: it is the gateway who keeps them.
    bed.ringside().apply(
        "groups:\n  - {id: 1, rules: [{id: 1, direction: ingress, protocol: icmp}]}\n\
         ports:\n  - {vni: 42, ip: 10.0.0.77, groups: [1]}\n",
    );
    assert!(wait_until(PATIENCE, || nobody_passes_by(&bed)));
    heavy(&bed, 7001);
    assert!(nobody_passes_by(&bed));
}

const KEYED: &str =
    "[path.direct]\npackets-per-second = 200\nlifetime-seconds = 2\nkey-file = \"/run/ringside-test-direct.key\"";

fn only_who_has_the_key_is_believed(kind: Kind) {
    let [right, wrong] = ["/run/ringside-test-direct.key", "/run/ringside-test-direct-wrong.key"];
    std::fs::write(right, "the one of the gateway\n").expect("a file");
    std::fs::write(wrong, "the one of somebody else\n").expect("a file");
    let bed = bed("direct-key", kind, KEYED, Family::V4);
    let agents = [(1, right), (2, wrong)].map(|(host, key)| listen(&bed, host, &format!("--key-file {key}")));
    for file in [right, wrong] {
        std::fs::remove_file(file).expect("read by now");
    }
    let to = bed.at(2).address(Family::V4);
    // While packets go: two seconds after the last one it is over.
    exchange_during(&connect(bed.at(1), (bed.at(2), to), 7000), || {
        assert!(wait_until(PATIENCE, || !straight(bed.at(1)).is_empty()));
    });
    assert_eq!(straight(bed.at(2)), [[0; 6]; 0]);
    // Its time is over, and nothing goes on there.
    assert!(wait_until(PATIENCE, || straight(bed.at(1)).is_empty()));
    let [_, other] = agents.map(Running::interrupt);
    assert!(other.out.contains("is that of another key"), "{other:#?}");
}

//! A disk that is full while packets are under way.

use crate::bed::{Bed, Family, Kind, Place};
use crate::on;
use crate::peers::{chat, connect, exchange_during};
use crate::ringside::Ringside;

on! {
    fast = crate::FAST => a_full_disk_keeps_no_packet;
}

fn a_full_disk_keeps_no_packet(kind: Kind) {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let kind = Kind::Ringside(Ringside {
        small_disk: true,
        ..how
    });
    let mut bed = Bed::new("disk", kind, &[Place::vxlan(Family::V4); 2]);
    let tcp = "{id: 1, direction: ingress, protocol: tcp}, {id: 2, direction: egress}";
    let ports = [1, 2].map(|host| format!("  - {{vni: 42, ip: 10.0.0.{host}, groups: [1]}}\n"));
    bed.ringside().apply(&format!(
        "groups:\n  - {{id: 1, rules: [{tcp}]}}\nports:\n{}",
        ports.concat()
    ));
    let to = bed.at(2).address(Family::V4);
    let busy = connect(bed.at(1), (bed.at(2), to), 7000);
    exchange_during(&busy, || {
        let daemon = bed.ringside().daemon();
        let pid = daemon.child.id();
        let filler = daemon.fill_disk();
        let many = daemon.folder.join("many.csv");
        let lines = (0..4000).map(|number| {
            let [_, _, c, d] = u32::to_be_bytes(number);
            format!("7,10.0.{c}.{d},02:00:00:00:{c:02x}:{d:02x},192.0.2.1\n")
        });
        std::fs::write(&many, format!("vni,ip,mac,host-ip\n{}", lines.collect::<String>())).expect("a file");
        let load = |version: u32| {
            let version = version.to_string();
            daemon.ctl(&["load", many.to_str().expect("UTF-8"), "--version", &version])
        };
        let refused = (1..50).map(load).find(|output| !output.status.success());
        let said = String::from_utf8(refused.expect("the disk gets full").stderr).expect("UTF-8");
        assert!(said.contains("the disk is full: make room"), "{said}");
        let problems = bed.ringside().problems();
        assert!(problems.concat().contains("the disk is full"), "{problems:?}");
        // Workers go on, too.
        chat(&connect(bed.at(2), (bed.at(1), bed.at(1).address(Family::V4)), 7001)).expect("goes");
        std::fs::remove_file(filler).expect("removed");
        bed.ringside().wait_until(|gateway| gateway.problems().is_empty());
        let put = "put neighbor 7 10.1.0.1 --mac 02:00:00:00:00:01 --host 192.0.2.1";
        let daemon = bed.ringside().daemon();
        daemon.ok(&put.split(' ').collect::<Vec<_>>());
        assert_eq!(daemon.child.id(), pid);
    });
}

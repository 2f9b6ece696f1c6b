//! A disk that is full, hangs or fails while packets are under way.

use std::process::{Child, Stdio};
use std::time::Duration;

use crate::bed::{Bed, Family, Kind, Place};
use crate::common::daemon::binary;
use crate::common::disk::{Calls, FOR_EVER};
use crate::peers::{chat, connect, exchange, exchange_during};
use crate::ringside::{Disk, Gateway, Ringside};
use crate::tenants::on;

on! {
    fast = crate::tenants::FAST => a_full_disk_keeps_no_packet, a_disk_that_hangs_or_fails_keeps_no_packet;
    slow = crate::tenants::SLOW => a_disk_that_hangs_or_fails_keeps_no_packet;
    pinned = super::PINNED => a_start_that_cannot_read_its_disk_leaves_packets_alone;
}

const PINNED: Kind = Kind::Ringside(Ringside {
    pinned: true,
    ..Ringside::FAST
});

/// Two tenants whose gateway has its store there, with rules.
fn bed(tag: &str, kind: Kind, disk: Disk) -> Bed {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let mut bed = Bed::new(
        tag,
        Kind::Ringside(Ringside { disk, ..how }),
        &[Place::vxlan(Family::V4); 2],
    );
    let tcp = "{id: 1, direction: ingress, protocol: tcp}, {id: 2, direction: egress}";
    let ports = [1, 2].map(|host| format!("  - {{vni: 42, ip: 10.0.0.{host}, groups: [1]}}\n"));
    bed.ringside().apply(&format!(
        "groups:\n  - {{id: 1, rules: [{tcp}]}}\nports:\n{}",
        ports.concat()
    ));
    bed
}

/// A connection that begins now, whose packets workers decide about.
fn new_connection_goes(bed: &Bed, port: u16) {
    chat(&connect(bed.at(2), (bed.at(1), bed.at(1).address(Family::V4)), port)).expect("goes");
}

fn a_disk_that_hangs_or_fails_keeps_no_packet(kind: Kind) {
    let mut bed = bed("hung", kind, Disk::Slow);
    let to = bed.at(2).address(Family::V4);
    // An exchange ends its connection.
    let [busy, first, second] = [7000, 7001, 7002].map(|port| connect(bed.at(1), (bed.at(2), to), port));
    let daemon = bed.ringside().daemon();
    let (pid, socket) = (daemon.child.id(), daemon.folder.join("api.sock"));
    let put = || {
        let words = "put neighbor 7 10.1.0.1 --mac 02:00:00:00:00:01 --host 192.0.2.1";
        let mut command = binary();
        command.arg("ctl").arg("--socket").arg(&socket).args(words.split(' '));
        command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs")
    };
    let said = |child: Child| {
        let output = child.wait_with_output().expect("ends");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        if output.status.success() { Ok(()) } else { Err(said) }
    };
    exchange_during(&busy, || {
        bed.ringside().disk().set_delay(FOR_EVER);
        let mut answer = put();
        let hangs = |gateway: &Gateway| gateway.problems().concat().contains("has not answered for seconds");
        let gateway: &Gateway = bed.ringside();
        gateway.wait_until(hangs);
        exchange(&first, 1 << 20);
        new_connection_goes(&bed, 7002);
        let gateway: &Gateway = bed.ringside();
        assert!(answer.try_wait().expect("runs").is_none() && hangs(gateway));
        // What hung ends with an error.
        bed.ringside().disk().fail(Calls::All, libc::EIO, 0);
        bed.ringside().disk().set_delay(Duration::ZERO);
        let refused = said(answer).unwrap_err();
        assert!(refused.contains("I/O error"), "{refused}");
        assert!(said(put()).unwrap_err().contains("I/O error"));
        let problems = bed.ringside().problems();
        assert!(problems.concat().contains("nothing can be changed now"), "{problems:?}");
        exchange(&second, 1 << 20);
        new_connection_goes(&bed, 7003);
        bed.ringside().disk().heal();
        bed.ringside().wait_until(|gateway| gateway.problems().is_empty());
        assert_eq!(said(put()), Ok(()));
        assert_eq!(bed.ringside().daemon().child.id(), pid);
    });
}

/// What a daemon has left goes on beside starts of others that fail, until one succeeds; also beside one that gets nowhere in the middle of it.
fn a_start_that_cannot_read_its_disk_leaves_packets_alone(kind: Kind) {
    let mut bed = bed("reads", kind, Disk::Slow);
    let to = bed.at(2).address(Family::V4);
    let busy = connect(bed.at(1), (bed.at(2), to), 7000);
    chat(&busy).expect("goes");
    exchange_during(&busy, || {
        let folder = bed.ringside().end(false);
        bed.ringside().disk().see_reads();
        for spare in [0, 3, 10] {
            bed.ringside().disk().fail(Calls::Reads, libc::EIO, spare);
            let said = bed.ringside().refused_in(&folder);
            assert!(said.contains("its disk cannot be read"), "{said}");
        }
        bed.ringside().disk().heal();
        bed.ringside().start_in(folder);
        let log = bed.ringside().daemon().log();
        assert!(log.contains("adopted=true"), "{log}");
        new_connection_goes(&bed, 7001);
        assert!(bed.ringside().problems().is_empty());
    });
}

fn a_full_disk_keeps_no_packet(kind: Kind) {
    let mut bed = bed("disk", kind, Disk::Small);
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
        new_connection_goes(&bed, 7001);
        std::fs::remove_file(filler).expect("removed");
        bed.ringside().wait_until(|gateway| gateway.problems().is_empty());
        let put = "put neighbor 7 10.1.0.1 --mac 02:00:00:00:00:01 --host 192.0.2.1";
        let daemon = bed.ringside().daemon();
        daemon.ok(&put.split(' ').collect::<Vec<_>>());
        assert_eq!(daemon.child.id(), pid);
    });
}

//! Facts about the kernel that no other test here is about: K10, K15 and K16.

use std::net::UdpSocket;
use std::time::Instant;

use ringside_bpf::testing::direct;
use ringside_netlab::Lab;
use ringside_wire::udp::{ChecksumState, checksum_state};
use ringside_xsk::{Path, QueueOptions};

use crate::common::PATIENCE;
use crate::common::conformance::{Case, lacks, row, row_on, usual};
use crate::common::traffic::only;
use crate::conformance::metadata::stamps_are_of_tai;

/// With the checksum offload of the other end on, UDP from its stack arrives with a checksum of the pseudo header alone;
/// without, with a whole one.
#[test]
fn k10() {
    row("K10", |case| {
        let lab = case.lab("k10");
        for (offload, expected) in [(true, ChecksumState::PseudoHeaderOnly), (false, ChecksumState::Valid)] {
            lab.a
                .run(|| lab.a.interface.set_tx_checksum(offload))
                .expect("settable");
            assert_eq!(arriving(&lab, case), expected, "offload {offload}");
        }
    });
}

fn arriving(lab: &Lab, case: Case) -> ChecksumState {
    let mut port = case.port(&lab.b, QueueOptions::new(), |port| port);
    let queue = u16::try_from(case.from()).expect("small");
    let _directed = lab
        .a
        .run(|| direct(lab.a.interface.index(), queue, 0))
        .expect("attached");
    let from = lab.a.run(|| UdpSocket::bind((lab.a.ipv4, 0))).expect("bound");
    from.send_to(&[7; 30], (lab.b.ipv4, 5000)).expect("sent");
    let start = Instant::now();
    loop {
        let mut burst = only(&mut port).recv(case.wait()).expect("recv");
        if let Some(packet) = burst.iter_mut().next() {
            return checksum_state(&packet.data()[34..], lab.a.ipv4.into(), lab.b.ipv4.into());
        }
        assert!(start.elapsed() < PATIENCE, "nothing came");
    }
}

/// A native program without frags limits the MTU of the veth's other end; with frags, or generic, it does not.
#[test]
fn k15() {
    row("K15", |case| {
        let lab = case.lab("k15");
        let usual = QueueOptions::new();
        for multi_buffer in [false, true] {
            let port = case.port(&lab.b, usual.clone().multi_buffer(multi_buffer), |port| port);
            let set = lab.a.run(|| lab.a.interface.set_mtu(9000));
            if case.path == Path::NativeCopy && !multi_buffer {
                let refused = set.expect_err("a packet of 9000 bytes is not in one page");
                assert_eq!(refused.errno(), Some(libc::EINVAL), "{refused}");
            } else {
                set.expect("nothing is in the way");
            }
            drop(port);
            lab.a.run(|| lab.a.interface.set_mtu(1500)).expect("as before");
        }
        // And the other way round: with such an MTU there, native XDP without frags is refused; the library says so.
        lab.a.run(|| lab.a.interface.set_mtu(9000)).expect("nobody minds");
        let options = case.options(QueueOptions::new()).busy_timeout(PATIENCE);
        let opened = crate::common::try_open(&lab.b, case.path, |port| port.queues([case.queue]).options(options));
        lab.a.run(|| lab.a.interface.set_mtu(1500)).expect("as before");
        match (case.path, opened) {
            (Path::NativeCopy, Err(error)) => assert!(error.to_string().contains("also the peer's"), "{error}"),
            (Path::NativeCopy, Ok(_)) => panic!("attached all the same"),
            (_, opened) => drop(opened.expect("generic XDP takes what comes")),
        }
    });
}

/// The stamp that is told when a packet has left is of CLOCK_TAI.
#[test]
fn k16() {
    row_on("K16", usual("k16"), |lab, case| {
        if case.path == Path::ZeroCopy {
            return lacks("with zero-copy the stamp is of the NIC's clock");
        }
        stamps_are_of_tai(lab, case)
    });
}

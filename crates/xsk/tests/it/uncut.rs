//! Packets that a peer with segmentation offload sends uncut.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Duration;

use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, VethConfig, wait_until};
use ringside_xsk::{Path, Wait};

use crate::common::traffic::only;
use crate::common::{PATIENCE, open};

/// Bytes of each datagram that the kernel, or the device, cuts a long one into.
static SEGMENT: libc::c_int = 1000;

/// Sends ten datagrams with one call (`UDP_SEGMENT`, Linux 4.18).
fn send_ten(lab: &Lab) {
    lab.a.run(|| {
        let socket = UdpSocket::bind((lab.a.ipv4, 0)).expect("a socket");
        // SAFETY: the value is a live number whose size is passed along.
        let set = unsafe {
            let size = u32::try_from(size_of_val(&SEGMENT)).expect("small");
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                (&raw const SEGMENT).cast(),
                size,
            )
        };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
        socket
            .send_to(&[7; 10 * SEGMENT as usize], (lab.b.ipv4, 9))
            .expect("sent");
    });
}

#[test]
fn generic_mode_on_veth_says_what_cuts_packets_at_the_peer() {
    if !is_root() {
        return;
    }
    let config = VethConfig {
        ipv6: false,
        ..VethConfig::tagged("uncut")
    };
    let lab = Lab::veth(config).expect("test bed");
    let native = open(&lab.b, Path::NativeCopy, |port| port);
    assert_eq!(native.report().warnings, [""; 0], "the driver does it by itself");
    drop(native);
    let mut port = open(&lab.b, Path::Generic, |port| port);
    let [warning] = &port.report().warnings[..] else {
        panic!("{:?}", port.report());
    };
    assert!(port.report().to_string().contains(warning));
    let (_, command) = warning.split_once("at the peer: ").expect("a command");
    let command: Vec<String> = command.split(' ').map(|word| word.replace("PEER", "veth-a")).collect();

    send_ten(&lab);
    let queue = only(&mut port);
    let is_dropped = || queue.stats().expect("readable").kernel.rx_dropped == 1;
    assert!(wait_until(PATIENCE, is_dropped), "{:?}", queue.stats());
    assert!(queue.recv(Wait::Spin).expect("usable").is_empty());

    let done = lab
        .a
        .ns
        .command(&command[0])
        .args(&command[1..])
        .output()
        .expect("ethtool: make setup installs it");
    assert!(done.status.success(), "{done:?}");
    send_ten(&lab);
    let mut received = 0;
    let all = wait_until(PATIENCE, || {
        let mut burst = queue.recv(Wait::Poll(Duration::from_millis(10))).expect("usable");
        received += burst
            .iter_mut()
            .filter(|packet| packet.data().len() == 14 + 28 + SEGMENT as usize)
            .count();
        received == 10
    });
    assert!(all, "{received} of 10: {:?}", queue.stats());
}

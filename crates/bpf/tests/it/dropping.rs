//! Sink and ingress drop on a veth.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::common::packets::*;
use crate::common::{PATIENCE, PacketSocket, Pair, privileged};
use ringside_bpf::{Error, IngressDrop, Neighbours, Reflect, Reflector, Sink, Verdict, XdpMode, dry_run};

/// Until nothing is expected to come any more.
const WAIT: Duration = Duration::from_millis(300);

fn receiver(pair: &Pair) -> UdpSocket {
    pair.right.enter(|_| UdpSocket::bind("10.77.0.2:4242").unwrap())
}

fn sender(pair: &Pair) -> UdpSocket {
    let socket = pair.left.enter(|_| UdpSocket::bind("10.77.0.1:0").unwrap());
    socket.connect("10.77.0.2:4242").unwrap();
    socket
}

fn arrives(socket: &UdpSocket, within: Duration) -> bool {
    socket.set_read_timeout(Some(within)).unwrap();
    loop {
        match socket.recv(&mut [0; 64]) {
            Ok(_) => return true,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => return false,
                // A call with a time-out is not begun anew by the kernel, whatever stopped the process for a moment.
                ErrorKind::Interrupted => {}
                _ => panic!("{error}"),
            },
        }
    }
}

#[test]
fn a_sink_drops_and_spares_neighbours_if_asked() {
    if !privileged() {
        return;
    }
    let arp = ethernet(&[], ETH_ARP, &[0; 28]);
    let data = ethernet(&[], ETH_IPV4, &ipv4(UDP, &udp(PORT, b"x")));
    for (neighbours, verdict, passed) in [
        (Neighbours::Pass, Verdict::Pass, 1),
        (Neighbours::Drop, Verdict::Drop, 0),
    ] {
        let sink = Sink::load(neighbours).unwrap();
        assert_eq!(dry_run(&sink, &arp).unwrap().0, verdict);
        assert_eq!(dry_run(&sink, &data).unwrap().0, Verdict::Drop);
        let traffic = sink.traffic().unwrap();
        assert_eq!((traffic.packets, traffic.passed), (2 - passed, passed));
    }
}

#[test]
fn a_sink_stops_udp_until_its_link_is_dropped() {
    if !privileged() {
        return;
    }
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let pair = Pair::new();
        let (from, to) = (sender(&pair), receiver(&pair));
        from.send(b"before").unwrap();
        assert!(arrives(&to, PATIENCE));

        let sink = Sink::load(Neighbours::Pass).unwrap();
        let link = pair.right.enter(|index| sink.attach(index, mode).unwrap());
        from.send(b"during").unwrap();
        assert!(!arrives(&to, WAIT), "{mode:?}");
        let traffic = sink.traffic().unwrap();
        assert_eq!((traffic.packets, traffic.bytes), (1, 14 + 20 + 8 + 6), "{mode:?}");

        // As a child process has for a moment, which any thread may be starting just now.
        let copy = link.as_fd().try_clone_to_owned().unwrap();
        drop(link);
        from.send(b"after").unwrap();
        assert!(arrives(&to, PATIENCE), "{mode:?}");
        drop(copy);
    }
}

#[test]
fn a_second_program_and_a_missing_interface_are_told() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let sink = Sink::load(Neighbours::Pass).unwrap();
    pair.right.enter(|index| {
        let _link = sink.attach(index, XdpMode::Native).unwrap();
        let error = sink.attach(index, XdpMode::Native).unwrap_err();
        assert!(matches!(error, Error::Attach { .. }));
        assert!(error.to_string().contains(" to veth0 (native XDP): "), "{error}");
        assert!(error.to_string().contains("another program is attached"), "{error}");
        let error = sink.attach(index + 1000, XdpMode::Native).unwrap_err();
        assert!(error.to_string().contains("no such interface"), "{error}");
        let error = IngressDrop::load().unwrap().attach(index + 1000).unwrap_err();
        assert!(error.to_string().contains("no such interface"), "{error}");
    });
}

#[test]
fn ingress_drop_leaves_packets_to_taps_and_keeps_them_from_the_stack() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let (from, to) = (sender(&pair), receiver(&pair));
    from.send(b"before").unwrap();
    assert!(arrives(&to, PATIENCE), "and the addresses are resolved");

    let drop_all = IngressDrop::load().unwrap();
    let link = pair.right.enter(|index| drop_all.attach(index).unwrap());
    let tap = pair.right.enter(|_| PacketSocket::new(WAIT));
    for _ in 0..10 {
        from.send(b"during").unwrap();
    }
    assert!(!arrives(&to, WAIT));
    let seen = tap.frames().iter().filter(|frame| frame.ends_with(b"during")).count();
    assert_eq!(seen, 10);
    let traffic = drop_all.traffic().unwrap();
    assert_eq!((traffic.packets, traffic.passed), (10, 0));

    let copy = link.as_fd().try_clone_to_owned().unwrap();
    drop(link);
    from.send(b"after").unwrap();
    assert!(arrives(&to, PATIENCE));
    drop(copy);
}

/// For an interface that the host is reached by, too: nothing but the packets that are measured.
#[test]
fn what_is_for_one_udp_port_leaves_all_else_alone() {
    if !privileged() {
        return;
    }
    let wanted = ethernet(&[], ETH_IPV4, &ipv4(UDP, &udp(PORT, b"x")));
    let others = [
        ethernet(&[], ETH_ARP, &[0; 28]),
        ethernet(&[], ETH_IPV4, &ipv4(UDP, &udp(PORT + 1, b"x"))),
        ethernet(&[], ETH_IPV4, &ipv4(6, &[0; 40])),
    ];
    let sink = Sink::load_for_udp(PORT).unwrap();
    let reflector = Reflector::load(Reflect::MacsOfUdp(PORT)).unwrap();
    assert_eq!(dry_run(&sink, &wanted).unwrap().0, Verdict::Drop);
    assert_eq!(dry_run(&reflector, &wanted).unwrap().0, Verdict::Tx);
    for other in &others {
        assert_eq!(dry_run(&sink, other).unwrap().0, Verdict::Pass);
        assert_eq!(dry_run(&reflector, other).unwrap().0, Verdict::Pass);
    }
    assert_eq!(sink.traffic().unwrap().passed, 3);

    let pair = Pair::new();
    let drop = IngressDrop::load_for_udp(4242).unwrap();
    let _link = pair.right.enter(|index| drop.attach(index)).unwrap();
    let (dropped, other) = (
        receiver(&pair),
        pair.right.enter(|_| UdpSocket::bind("10.77.0.2:4243").unwrap()),
    );
    let to_other = sender(&pair);
    to_other.connect("10.77.0.2:4243").unwrap();
    let to_dropped = sender(&pair);
    to_other.send(b"x").unwrap();
    assert!(arrives(&other, PATIENCE), "ARP and other ports pass");
    to_dropped.send(b"x").unwrap();
    assert!(!arrives(&dropped, WAIT));
    assert!(drop.traffic().unwrap().packets >= 1);
}

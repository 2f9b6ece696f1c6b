//! What Ringside's own XDP program lets through to the sockets, and what it leaves to the kernel.

use std::time::Duration;

use crate::common::{MODES, PATIENCE, kernel_socket, lab, leading_to, open, send_one, sender, udp};
use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, VethConfig, wait_until};
use ringside_xsk::{Filter, Port, QueueCounters, Wait};

fn total(port: &Port) -> QueueCounters {
    port.program_counters().unwrap().into_iter().sum()
}

/// Matching datagrams go to the socket, others to the kernel's, on a queue other than 0 too.
#[test]
fn a_udp_filter_takes_its_port_and_nothing_else() {
    if !is_root() {
        return;
    }
    let lab = lab("udpfilter", 4);
    for path in MODES {
        for queue in [0, 2] {
            let mut port = open(&lab.b, path, |port| port.filter(Filter::UdpPort(4789)));
            assert!(port.report().to_string().contains("filter udp:4789"));
            let (wanted, other) = (kernel_socket(&lab.b, 4789), kernel_socket(&lab.b, 4790));
            wanted.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let mut sender = sender(&lab.a);
            let tx = sender.queues_mut().nth(leading_to(queue, path)).unwrap();
            for n in 0..20 {
                send_one(tx, &udp(&lab.a, &lab.b, 4789, &[n; 40]));
                send_one(tx, &udp(&lab.a, &lab.b, 4790, &[n; 50]));
                let mut data = [0; 64];
                assert_eq!(other.recv(&mut data).unwrap(), 50, "{path}");
                assert_eq!(data[..50], [n; 50]);
                let rx = port.queues_mut().nth(queue).unwrap();
                let mut burst = rx.recv(Wait::Poll(PATIENCE)).unwrap();
                assert_eq!(burst.len(), 1, "{path} queue {queue}");
                assert_eq!(
                    burst.iter_mut().next().unwrap().data(),
                    udp(&lab.a, &lab.b, 4789, &[n; 40])
                );
            }
            assert!(wanted.recv(&mut [0; 64]).is_err(), "not both");
            let counted = port.program_counters().unwrap()[queue];
            assert_eq!((counted.redirected, counted.passed_filter), (20, 20), "{counted:?}");
        }
    }
}

/// The host stays reachable: real ping works beside a UDP filter, with real ARP.
#[test]
fn ping_works_beside_a_udp_filter() {
    if !is_root() {
        return;
    }
    for path in MODES {
        let lab = unacquainted("pingfilter");
        let port = open(&lab.b, path, |port| port.filter(Filter::UdpPort(4789)));
        let target = lab.b.ipv4.to_string();
        let pinged = lab
            .a
            .ns
            .command("ping")
            .args(["-c", "3", "-i", "0.2", "-W", "2", &target])
            .output();
        let pinged = pinged.expect("ping (iputils-ping) runs");
        let text = String::from_utf8_lossy(&pinged.stdout);
        assert!(pinged.status.success() && text.contains("3 received"), "{path}: {text}");
        let counted = total(&port);
        assert!(
            counted.passed_neighbour >= 1 && counted.passed_filter >= 3,
            "{path}: {counted:?}"
        );
        assert_eq!(counted.redirected, 0, "{path}: {counted:?}");
    }
}

/// Even when everything goes to the sockets, the kernel answers ARP.
#[test]
fn arp_is_answered_although_everything_is_taken() {
    if !is_root() {
        return;
    }
    for path in MODES {
        let lab = unacquainted("arp");
        let mut port = open(&lab.b, path, |port| port.filter(Filter::All));
        // A datagram makes the kernel of the other side ask for the address.
        let socket = kernel_socket(&lab.a, 7000);
        socket.send_to(&[1; 20], (lab.b.ipv4, 7001)).unwrap();
        let mac = lab.b.mac.map(|byte| format!("{byte:02x}")).join(":");
        let known = wait_until(PATIENCE, || {
            let shown = lab
                .a
                .ns
                .command("ip")
                .args(["neigh", "show", &lab.b.ipv4.to_string()])
                .output()
                .unwrap();
            String::from_utf8_lossy(&shown.stdout).contains(&mac)
        });
        assert!(known, "{path}: the neighbour did not answer");
        // And then the datagram comes to the socket, not to the kernel.
        let received = port.queues_mut().any(|rx| {
            let mut burst = rx.recv(Wait::Poll(Duration::from_millis(500))).unwrap();
            burst.iter_mut().any(|packet| packet.data().ends_with(&[1; 20]))
        });
        assert!(received, "{path}");
        let counted = total(&port);
        assert!(
            counted.passed_neighbour >= 1 && counted.redirected >= 1,
            "{path}: {counted:?}"
        );
    }
}

/// Packets that contradict themselves go up and are counted.
#[test]
fn malformed_packets_are_counted_and_passed() {
    if !is_root() {
        return;
    }
    let lab = lab("malformed", 4);
    for path in MODES {
        let mut port = open(&lab.b, path, |port| port.filter(Filter::UdpPort(4789)));
        let mut sender = sender(&lab.a);
        let tx = sender.queues_mut().nth(leading_to(1, path)).unwrap();
        let mut broken = udp(&lab.a, &lab.b, 4789, &[0; 40]);
        broken[14] = 0x4f; // an IPv4 header of 60 bytes, of which there are but 68 with all the rest
        broken.truncate(14 + 30);
        for _ in 0..5 {
            send_one(tx, &broken);
        }
        let counted = || port.program_counters().unwrap()[1];
        assert!(
            wait_until(PATIENCE, || counted().passed_malformed == 5),
            "{path}: {:?}",
            counted()
        );
        assert_eq!(counted().redirected, 0);
        send_one(tx, &udp(&lab.a, &lab.b, 4789, &[0; 40]));
        let rx = port.queues_mut().nth(1).unwrap();
        assert_eq!(
            rx.recv(Wait::Poll(PATIENCE)).unwrap().len(),
            1,
            "{path}: the next good one arrives"
        );
    }
}

/// A filter that takes nothing only counts.
#[test]
fn the_filter_none_leaves_all_to_the_kernel() {
    if !is_root() {
        return;
    }
    let lab = lab("nonefilter", 2);
    for path in MODES {
        let mut port = open(&lab.b, path, |port| port.filter(Filter::None));
        let socket = kernel_socket(&lab.b, 6000);
        let mut sender = sender(&lab.a);
        send_one(
            sender.queues_mut().nth(1).unwrap(),
            &udp(&lab.a, &lab.b, 6000, &[1; 30]),
        );
        assert_eq!(socket.recv(&mut [0; 64]).unwrap(), 30, "{path}");
        assert_eq!(total(&port).passed_filter, 1);
        assert!(port.queues_mut().all(|rx| rx.recv(Wait::Spin).unwrap().is_empty()));
    }
}

/// Two hosts that do not know each other's addresses yet.
fn unacquainted(tag: &str) -> Lab {
    Lab::veth(VethConfig {
        queues: 2,
        static_neighbours: false,
        ipv6: false,
        gro: true,
        ..VethConfig::tagged(tag)
    })
    .unwrap()
}

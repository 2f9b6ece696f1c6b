//! A TCP/IP stack in user space with an address of its own, or with ports of the host's: here one
//! that answers ARP, neighbour solicitations, pings and connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ringside_netlab::testing::{bound, is_root};
use ringside_netlab::{End, Lab, VethConfig, wait_until};
use ringside_wire::checksum::{Sum, pseudo_v4, pseudo_v6};
use ringside_wire::flow::reflect_icmp_echo;
use ringside_wire::icmp::{NeighborAdvertisement, NeighborSolicitation};
use ringside_wire::tcp::{self, Flags, Segment};
use ringside_wire::{EtherType, MacAddr, Protocol, arp, ethernet, ipv4, ipv6};
use ringside_xsk::{Filter, Path, Port, QueueCounters, Wait};

use crate::common::*;

const OWN_V4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);
const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 9);
const OWN: [IpAddr; 2] = [IpAddr::V4(OWN_V4), IpAddr::V6(OWN_V6)];

/// Two hosts with IPv4 and IPv6 that do not know each other's MAC addresses yet.
fn unacquainted(tag: &str) -> Lab {
    Lab::veth(VethConfig {
        queues: 2,
        static_neighbours: false,
        tx_checksum: false,
        gro: true,
        ..VethConfig::tagged(tag)
    })
    .unwrap()
}

fn open_filtered(end: &End, path: Path, filter: &str) -> Port {
    let filter: Filter = filter.parse().unwrap();
    open(end, path, |port| port.filter(filter))
}

/// Answers at the addresses `own` while `work` runs.
fn answering<T>(port: &mut Port, mac: [u8; 6], own: &[IpAddr], work: impl FnOnce() -> T) -> T {
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let stack = scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                for queue in port.queues_mut() {
                    let wait = Wait::Poll(Duration::from_millis(1));
                    let mut burst = queue.recv(wait).expect("receives");
                    let replies: Vec<Vec<u8>> = (burst.iter_mut())
                        .filter_map(|packet| reply_to(packet.data(), MacAddr(mac), own))
                        .collect();
                    drop(burst);
                    replies.iter().for_each(|reply| send_one(queue, reply));
                }
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        ends.store(true, Ordering::Relaxed);
        stack.join().expect("answers");
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn reply_to(frame: &[u8], mac: MacAddr, addresses: &[IpAddr]) -> Option<Vec<u8>> {
    let eth = ethernet::Frame::parse(frame).ok()?;
    let ours = |address: IpAddr| addresses.contains(&address);
    let headed = |ethertype| {
        let mut reply = vec![0; 14];
        let (dst, src) = (eth.src(), mac);
        ethernet::Header { dst, src, ethertype }.emit(&mut reply).unwrap();
        reply
    };
    if eth.ethertype() == EtherType::ARP {
        let request = arp::Packet::parse(eth.payload()).ok()?;
        let asks = request.operation == arp::Operation::Request && ours(request.target_ip.into());
        return asks.then(|| {
            let mut bytes = [0; arp::PACKET_LEN];
            request.reply(mac).emit(&mut bytes).unwrap();
            [headed(EtherType::ARP), bytes.to_vec()].concat()
        });
    }
    let mut echo = frame.to_vec();
    if reflect_icmp_echo(&mut echo, ours) {
        return Some(echo);
    }
    if eth.ethertype() == EtherType::IPV4 {
        let ip = ipv4::Packet::parse(eth.payload()).ok()?;
        let mut segment = reply_to_segment(ip.payload())?;
        let len = u16::try_from(segment.len()).unwrap();
        let sum = pseudo_v4(ip.dst(), ip.src(), Protocol::TCP, len);
        complete(&mut segment, sum);
        let mut header = vec![0; ipv4::HEADER_LEN];
        let reply = ipv4::Header {
            payload_len: segment.len(),
            ..ipv4::Header::new(ip.dst(), ip.src(), Protocol::TCP)
        };
        reply.emit(&mut header).unwrap();
        return ours(ip.dst().into()).then(|| [headed(EtherType::IPV4), header, segment].concat());
    }
    let ip = ipv6::Packet::parse(eth.payload()).ok()?;
    let headed = |src, next, payload: Vec<u8>| {
        let mut header = vec![0; ipv6::HEADER_LEN];
        let reply = ipv6::Header {
            payload_len: payload.len(),
            hop_limit: 255,
            ..ipv6::Header::new(src, ip.src(), next)
        };
        reply.emit(&mut header).unwrap();
        [headed(EtherType::IPV6), header, payload].concat()
    };
    if let Ok(solicitation) = NeighborSolicitation::parse(ip.payload()) {
        let mut message = vec![0; NeighborAdvertisement::LEN];
        let advertisement = NeighborAdvertisement {
            target: solicitation.target,
            target_mac: mac,
            router: false,
            solicited: true,
            override_cache: true,
        };
        (advertisement.emit(&mut message, solicitation.target, ip.src())).unwrap();
        let target = solicitation.target;
        return ours(target.into()).then(|| headed(target, Protocol::ICMPV6, message));
    }
    let mut segment = reply_to_segment(ip.payload())?;
    let sum = pseudo_v6(ip.dst(), ip.src(), Protocol::TCP, u32::try_from(segment.len()).unwrap());
    complete(&mut segment, sum);
    ours(ip.dst().into()).then(|| headed(ip.dst(), Protocol::TCP, segment))
}

/// The second segment of a connection; there are no others.
fn reply_to_segment(bytes: &[u8]) -> Option<Vec<u8>> {
    let syn = Segment::parse(bytes)
        .ok()
        .filter(|segment| segment.flags() == Flags::SYN)?;
    let header = tcp::Header {
        sequence: 1000,
        acknowledgment: syn.sequence().wrapping_add(1),
        ..tcp::Header::new(syn.dst_port(), syn.src_port(), Flags::SYN | Flags::ACK)
    };
    let mut segment = vec![0; tcp::HEADER_LEN];
    header.emit(&mut segment).unwrap();
    Some(segment)
}

fn complete(segment: &mut [u8], pseudo: Sum) {
    let check = pseudo.bytes(segment).finish();
    segment[16..18].copy_from_slice(&check.to_be_bytes());
}

/// ping(8): whether it had an answer to each of two, and what it wrote.
fn ping(from: &End, to: IpAddr) -> (bool, String) {
    let mut command = from.ns.command("ping");
    command.args(["-n", "-c", "2", "-i", "0.2", "-W", "5", &to.to_string()]);
    let done = command.output().expect("ping (iputils-ping) runs");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    (done.status.success() && text.contains("2 received"), text)
}

fn ip(end: &End, arguments: &str) {
    let done = end.ns.command("ip").args(arguments.split(' ')).status();
    assert!(done.expect("ip (iproute2) runs").success(), "ip {arguments}");
}

fn assert_pings(from: &End, to: IpAddr, why: &str) {
    let (answered, text) = ping(from, to);
    assert!(answered, "{why}: {text}");
}

fn connect(from: &End, to: impl Into<SocketAddr>) -> io::Result<TcpStream> {
    let to = to.into();
    from.run(|| TcpStream::connect_timeout(&to, Duration::from_secs(5)))
}

fn assert_connects(from: &End, to: impl Into<SocketAddr>, path: Path) {
    let to = to.into();
    if let Err(error) = connect(from, to) {
        panic!("{path}: {to}: {error}");
    }
}

/// ARP and neighbour discovery about the stack's addresses come to the sockets, and all other to
/// the kernel.
#[test]
fn a_stack_with_its_own_address_is_reached_and_so_is_the_host() {
    if !is_root() {
        return;
    }
    for path in MODES {
        let lab = unacquainted("own");
        let hosts = |end: &End| [IpAddr::V4(end.ipv4), IpAddr::V6(end.ipv6)];
        let filter = format!("dst:{OWN_V4},dst:{OWN_V6},arp");
        let mut port = open_filtered(&lab.b, path, &filter);
        let listener = lab.b.run(|| bound(|| TcpListener::bind((lab.b.ipv4, 80))));
        answering(&mut port, lab.b.mac, &OWN, || {
            for own in OWN {
                assert_pings(&lab.a, own, &format!("{path}: the stack"));
                assert_connects(&lab.a, (own, 80), path);
            }
            for host in hosts(&lab.b) {
                assert_pings(&lab.a, host, &format!("{path}: the host"));
            }
            assert_connects(&lab.a, (lab.b.ipv4, 80), path);
            listener.accept().unwrap();
            // The host finds its own neighbours anew.
            ip(&lab.b, "neigh flush all");
            for peer in hosts(&lab.a) {
                assert_pings(&lab.b, peer, &format!("{path}: from the host"));
            }
        });
        let counted = port.program_counters().unwrap();
        let sum = counted.into_iter().sum::<QueueCounters>();
        // At least a question, two pings and two segments for each address of the stack; and two
        // neighbours of the host, which it is asked for and asks for.
        assert!(sum.redirected >= 10 && sum.passed_neighbour >= 4, "{path}: {sum:?}");
    }
}

/// Answers to the stack's own questions come to it.
#[test]
fn a_stack_finds_its_neighbours() {
    if !is_root() {
        return;
    }
    for path in MODES {
        let lab = unacquainted("asks");
        let mut port = open_filtered(&lab.b, path, &format!("dst:{OWN_V4},arp"));
        let request = arp::Packet {
            operation: arp::Operation::Request,
            sender_mac: MacAddr(lab.b.mac),
            sender_ip: OWN_V4,
            target_mac: MacAddr([0; 6]),
            target_ip: lab.a.ipv4,
        };
        let mut frame = vec![0; 60];
        let header = ethernet::Header {
            dst: MacAddr([0xff; 6]),
            src: MacAddr(lab.b.mac),
            ethertype: EtherType::ARP,
        };
        header.emit(&mut frame).unwrap();
        request.emit(&mut frame[14..]).unwrap();
        send_one(port.queues_mut().next().unwrap(), &frame);
        let answered = wait_until(PATIENCE, || {
            port.queues_mut().any(|queue| {
                let mut burst = queue.recv(Wait::Spin).unwrap();
                burst.iter_mut().any(|packet| {
                    let reply = arp::Packet::parse(&packet.data()[14..]);
                    reply.is_ok_and(|reply| reply == request.reply(MacAddr(lab.a.mac)))
                })
            })
        });
        assert!(answered, "{path}: {:?}", port.program_counters());
    }
}

/// As before there was `arp`: the kernel keeps the question and does not answer it.
#[test]
fn without_arp_an_address_of_its_own_is_not_found() {
    if !is_root() {
        return;
    }
    let lab = unacquainted("noarp");
    let mut port = open_filtered(&lab.b, Path::NativeCopy, &format!("dst:{OWN_V4}"));
    let (answered, text) = answering(&mut port, lab.b.mac, &OWN, || ping(&lab.a, OWN_V4.into()));
    assert!(!answered && text.contains("Unreachable"), "{text}");
    let error = connect(&lab.a, (OWN_V4, 80)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::HostUnreachable, "{error}");
}

/// Ports of an address that the host shares with the sockets: its ARP stays with the kernel.
#[test]
fn ports_go_to_the_sockets_and_the_others_to_the_kernel() {
    if !is_root() {
        return;
    }
    for path in MODES {
        let lab = unacquainted("ports");
        let host = IpAddr::V4(lab.b.ipv4);
        let filter = format!("dst:{host},src:10.77.0.0/30,tcp:80,tcp:8000-8009,udp:53");
        let mut port = open_filtered(&lab.b, path, &filter);
        let listen = |port| lab.b.run(|| bound(|| TcpListener::bind((lab.b.ipv4, port))));
        let [tcp80, tcp81, tcp8010] = [80, 81, 8010].map(listen);
        let [udp53, udp54] = [53, 54].map(|port| kernel_socket(&lab.b, port));
        answering(&mut port, lab.b.mac, &[host], || {
            for number in [80, 8000, 8009] {
                assert_connects(&lab.a, (host, number), path);
            }
            tcp80.set_nonblocking(true).unwrap();
            let none = tcp80.accept().unwrap_err();
            assert_eq!(
                none.kind(),
                io::ErrorKind::WouldBlock,
                "{path}: the kernel has none of them"
            );
            for (number, listener) in [(81, &tcp81), (8010, &tcp8010)] {
                assert_connects(&lab.a, (host, number), path);
                listener.accept().unwrap();
            }
            let sender = kernel_socket(&lab.a, 9000);
            for number in [53, 54] {
                sender.send_to(&[1; 20], (host, number)).unwrap();
            }
            assert_eq!(udp54.recv(&mut [0; 64]).unwrap(), 20, "{path}");
            assert_pings(&lab.a, host, &format!("{path}: the host"));
            // A source that is not in the prefix.
            let interface = lab.a.interface.name();
            ip(&lab.a, &format!("addr add 10.77.0.5/24 dev {interface}"));
            let other = Ipv4Addr::new(10, 77, 0, 5);
            let sender = lab.a.run(|| bound(|| std::net::UdpSocket::bind((other, 9001))));
            sender.send_to(&[2; 30], (host, 53)).unwrap();
            assert_eq!(
                udp53.recv(&mut [0; 64]).unwrap(),
                30,
                "{path}: the first one is the other source's"
            );
        });
    }
}

/// The host is not cut off: neither from an address of the interface, nor from one of another
/// interface.
#[test]
fn arp_for_an_address_of_the_host_is_refused() {
    if !is_root() {
        return;
    }
    let lab = unacquainted("hostarp");
    ip(&lab.b, "addr add 192.0.2.7/32 dev lo");
    let attempt = |filter: &str| {
        let filter: Filter = filter.parse().unwrap();
        try_open(&lab.b, Path::NativeCopy, |port| port.filter(filter)).map(drop)
    };
    for (filter, address, holder) in [
        ("dst:10.77.0.2,arp", "10.77.0.2", "veth-b"),
        ("dst:10.77.0.0/24,tcp:80,arp", "10.77.0.2", "veth-b"),
        ("dst:10.77.0.9,dst:fd77::2,arp", "fd77::2", "veth-b"),
        ("dst:192.0.2.7,arp", "192.0.2.7", "lo"),
    ] {
        let error = attempt(filter).expect_err(filter).to_string();
        let said = format!("of this host ({holder})");
        assert!(
            error.contains(address) && error.contains(&said) && error.contains(filter),
            "{filter}: {error}"
        );
        assert_clean(&lab.b);
    }
    // Without ARP the address may be shared, and 127.0.0.1 is on no wire.
    attempt("dst:10.77.0.2,tcp:80").unwrap();
    attempt("dst:127.0.0.0/8,arp").unwrap();
}

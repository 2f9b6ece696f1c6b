//! TCP segments that somebody puts into a connection of others.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use ringside_gateway_core::testing::tenant_ip;
use ringside_netlab::wait_until;
use ringside_wire::tcp::{self, Flags};
use ringside_wire::{MacAddr, Protocol};
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::bed::{Bed, FAMILIES, Family, Kind, Place, Tunnel};
use crate::peers::{chat, connect, exchange, exchange_during, listen};
use crate::process::PATIENCE;
use crate::ringside::Ringside;
use crate::tenants::groups::{allow_all, allow_nothing};
use crate::tenants::on;
use crate::tenants::paths::chats_fast;
use crate::vtep::in_vxlan;

const UNCHECKED: Kind = Kind::Ringside(Ringside {
    more: "check-windows = false",
    ..Ringside::FAST
});

on! {
    fast = crate::tenants::FAST => segments_out_of_the_window_reach_nobody,
        what_is_in_the_window_goes,
        what_was_sent_without_rules_goes_on_with_rules, ports_of_what_was_denied_are_free_again,
        a_connection_that_was_idle_goes_on, what_is_forged_at_once_ends_nothing,
        loss_and_reordering_end_nothing;
    generic = crate::tenants::GENERIC => segments_out_of_the_window_reach_nobody;
    unchecked = super::UNCHECKED => without_the_option_nothing_is_checked;
}

const PORT: u16 = 7000;
/// Of these no two are in one window.
const SEQUENCES: [u32; 4] = [0x1000_0000, 0x5000_0000, 0x9000_0000, 0xd000_0000];
/// One of them may be in the window by chance.
const LEAST_DROPPED: u64 = SEQUENCES.len() as u64 - 1;
/// For a second workers may have sent on what the fast path has not seen, and a bit later it is
/// known.
const SETTLES: Duration = Duration::from_millis(1500);
/// Bytes of each way: more than any window.
const POURED: usize = 8 << 20;
/// The gateway drops forged segments, or forwards them, within this time.
const ARRIVES: Duration = Duration::from_secs(5);
/// Connections that are tried until one is checked. The gateway checks none that took it more than
/// 10 ms to hand over, or of which workers sent on more than a window meanwhile.
const MAX_ATTEMPTS: usize = 20;

/// Sends segments from the client's address, by somebody who does not know the numbers.
fn forge(bed: &Bed, streams: &[TcpStream; 2], flags: Flags, payload: &[u8]) {
    for sequence in SEQUENCES {
        forge_at(bed, streams, flags, payload, numbers_of(sequence));
    }
}

const fn numbers_of(sequence: u32) -> [u32; 2] {
    [sequence, !sequence]
}

/// Sends a segment from the client's address, with these sequence and acknowledgment numbers.
fn forge_at(bed: &Bed, streams: &[TcpStream; 2], flags: Flags, payload: &[u8], numbers: [u32; 2]) {
    let [sequence, acknowledgment] = numbers;
    let [from, to] = streams.each_ref().map(|stream| stream.local_addr().expect("bound"));
    let ips: [IpAddr; 2] = [from.ip(), to.ip()];
    let macs = [1, 2].map(|host| MacAddr(bed.at(host).card.mac));
    let header = tcp::Header {
        sequence,
        acknowledgment,
        window: 1000,
        ..tcp::Header::new(from.port(), to.port(), flags)
    };
    let mut segment = [0; tcp::Header::MOST];
    let len = header.emit(&mut segment).expect("room");
    let segment = [&segment[..len], payload].concat();
    let frame = tenant_ip(macs, ips, Protocol::TCP, &segment);
    bed.hosts[0].vtep().send(&in_vxlan(bed.at(1).card.vni, &frame));
}

/// Returns the sequence and acknowledgment numbers of the last segment of IPv4 that the server got,
/// of one byte or none.
fn last_numbers(bed: &Bed, client: u16) -> [u32; 2] {
    const TCP: usize = 14 + 20;
    let received = bed.hosts[1].vtep().take_received();
    let segments = received.iter().rev().map(|received| received.frame.as_slice());
    let last = segments.filter(|frame| frame.get(23) == Some(&6)).find_map(|frame| {
        let port = frame.get(TCP..)?.first_chunk()?;
        let number = |at: usize| Some(u32::from_be_bytes(*frame.get(TCP + at..)?.first_chunk()?));
        (u16::from_be_bytes(*port) == client).then_some([number(4)?, number(8)?])
    });
    last.expect("it has got one")
}

fn dropped_fast(bed: &mut Bed) -> u64 {
    bed.ringside().dropped_by("fast", "out-of-window")
}

/// Forges data with these numbers, and returns how many of the segments the fast path drops. The
/// server gets the others, and none is under way any more.
fn dropped_of(bed: &mut Bed, streams: &[TcpStream; 2], numbers: &[[u32; 2]]) -> u64 {
    const FORGED: &[u8] = b"forged";
    let before = dropped_fast(bed);
    _ = bed.hosts[1].vtep().take_received();
    for numbers in numbers {
        forge_at(bed, streams, Flags::ACK | Flags::PSH, FORGED, *numbers);
    }
    let (mut dropped, mut received) = (0, 0);
    let is_over = wait_until(ARRIVES, || {
        dropped = dropped_fast(bed) - before;
        let more = bed.hosts[1].vtep().take_received();
        received += more.iter().filter(|one| one.frame.ends_with(FORGED)).count();
        dropped + received as u64 >= numbers.len() as u64
    });
    assert!(is_over, "of {numbers:?} {dropped} were dropped, {received} received");
    dropped
}

/// Returns whether the fast path drops forged data of a connection.
fn is_checked(bed: &mut Bed, streams: &[TcpStream; 2]) -> bool {
    dropped_of(bed, streams, &SEQUENCES.map(numbers_of)) >= LEAST_DROPPED
}

/// Opens a connection that goes by the fast path.
fn open(bed: &mut Bed, family: Family) -> [TcpStream; 2] {
    let streams = connect(bed.at(1), (bed.at(2), bed.at(2).address(family)), PORT);
    assert!(wait_until(PATIENCE, || chats_fast(bed, &streams, 1)));
    std::thread::sleep(SETTLES);
    streams
}

/// Opens connections until the fast path checks one.
fn open_checked(bed: &mut Bed, family: Family) -> [TcpStream; 2] {
    for _ in 0..MAX_ATTEMPTS {
        let streams = open(bed, family);
        if is_checked(bed, &streams) {
            return streams;
        }
    }
    panic!("the fast path checks none of {MAX_ATTEMPTS} connections");
}

/// Resets and data from one end's address.
fn segments_out_of_the_window_reach_nobody(kind: Kind) {
    let mut bed = Bed::new("forged", kind, &[Place::new(Family::V4, Tunnel::UserVxlan); 2]);
    allow_all(&mut bed);
    for family in FAMILIES {
        let streams = open_checked(&mut bed, family);
        let dropped = dropped_fast(&mut bed);
        forge(&bed, &streams, Flags::RST | Flags::ACK, b"");
        let least = dropped + LEAST_DROPPED;
        assert!(wait_until(PATIENCE, || dropped_fast(&mut bed) >= least));
        assert!(wait_until(PATIENCE, || chats_fast(&mut bed, &streams, 1)));
        let states = &bed.ringside().statistics()["connections"]["states"];
        assert_eq!(states["reset-seen"].as_u64().unwrap_or(0), 0, "{states}");
    }
}

fn without_the_option_nothing_is_checked(kind: Kind) {
    let mut bed = Bed::new("unchecked", kind, &[Place::new(Family::V4, Tunnel::UserVxlan); 2]);
    allow_all(&mut bed);
    for family in FAMILIES {
        let streams = open(&mut bed, family);
        assert!(!is_checked(&mut bed, &streams));
        assert_eq!(dropped_fast(&mut bed), 0);
        chat(&streams).expect("goes");
    }
}

/// A connection whose both ends send as much as they can, with windows that grow, and whose rules change meanwhile.
fn what_is_in_the_window_goes(kind: Kind) {
    let mut bed = Bed::new("in-window", kind, &[Place::new(Family::V4, Tunnel::UserVxlan); 2]);
    allow_all(&mut bed);
    for family in FAMILIES {
        let streams = open_checked(&mut bed, family);
        let dropped = bed.ringside().dropped("out-of-window");
        exchange_during(&streams, || {
            for _ in 0..3 {
                let fast = bed.ringside().forwarded("fast");
                bed.ringside()
                    .wait_until(|gateway| gateway.forwarded("fast") >= fast + 5000);
                allow_all(&mut bed);
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        assert_eq!(bed.ringside().dropped("out-of-window"), dropped);
    }
}

fn take_rules_away(bed: &mut Bed) {
    for host in [1, 2] {
        for family in FAMILIES {
            let address = bed.at(host).address(family).to_string();
            bed.ringside().daemon().ok(&["delete", "port", "42", &address]);
        }
    }
}

/// Sends much each way, one after the other. Both ends stay open.
fn pour(streams: &[TcpStream; 2]) {
    let [client, server] = streams;
    for [mut from, mut to] in [[client, server], [server, client]] {
        std::thread::scope(|scope| {
            scope.spawn(move || from.write_all(&vec![1; POURED]).expect("goes"));
            to.read_exact(&mut vec![0; POURED]).expect("comes");
        });
    }
}

/// Nobody follows numbers while no rules are bound.
fn what_was_sent_without_rules_goes_on_with_rules(kind: Kind) {
    let mut bed = Bed::new("rules-back", kind, &[Place::new(Family::V4, Tunnel::UserVxlan); 2]);
    allow_all(&mut bed);
    for family in FAMILIES {
        let streams = open_checked(&mut bed, family);
        let dropped = bed.ringside().dropped("out-of-window");
        take_rules_away(&mut bed);
        pour(&streams);
        allow_all(&mut bed);
        pour(&streams);
        assert_eq!(bed.ringside().dropped("out-of-window"), dropped);
    }
}

/// Connects from a port of the client's.
fn connect_from(bed: &Bed, [from, to]: [SocketAddr; 2]) -> [TcpStream; 2] {
    let listener = listen(bed.at(2), to);
    let family = if to.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let client = bed.at(1).ns.run(|| {
        let socket = rustix::net::socket(family, SocketType::STREAM, None).expect("a socket");
        let sends = sockopt::Timeout::Send;
        sockopt::set_socket_timeout(&socket, sends, Some(PATIENCE)).expect("time-out");
        rustix::net::bind(&socket, &from).expect("the port is free");
        rustix::net::connect(&socket, &to).expect("connects");
        TcpStream::from(socket)
    });
    let mut accepted = None;
    let accepts = || {
        accepted = listener.accept().ok();
        accepted.is_some()
    };
    assert!(wait_until(PATIENCE, accepts), "connected with nobody");
    let streams = [client, accepted.expect("accepted").0];
    for stream in &streams {
        stream.set_read_timeout(Some(PATIENCE)).expect("time-out");
    }
    streams
}

/// A connection that was ended by rules may still be in the fast path when its ports begin another
/// one.
fn ports_of_what_was_denied_are_free_again(kind: Kind) {
    let mut bed = Bed::new("ports-again", kind, &[Place::new(Family::V4, Tunnel::UserVxlan); 2]);
    allow_all(&mut bed);
    for family in FAMILIES {
        let streams = open_checked(&mut bed, family);
        let dropped = bed.ringside().dropped("out-of-window");
        let ends = streams.each_ref().map(|stream| stream.local_addr().expect("bound"));
        allow_nothing(&mut bed);
        let established = |bed: &mut Bed| {
            let states = &bed.ringside().statistics()["connections"]["states"];
            states["established"].as_u64().unwrap_or(0)
        };
        // Each end resets it, of which the other one gets nothing.
        for stream in streams {
            sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("set");
        }
        assert!(wait_until(PATIENCE, || established(&mut bed) == 0));
        allow_all(&mut bed);
        let streams = connect_from(&bed, ends);
        exchange(&streams, 1 << 20);
        assert_eq!(bed.ringside().dropped("out-of-window"), dropped);
    }
}

/// Also one that has said a word right after its handshake, and nothing since.
fn a_connection_that_was_idle_goes_on(kind: Kind) {
    let mut bed = Bed::new("idle", kind, &[Place::new(Family::V4, Tunnel::UserVxlan); 2]);
    allow_all(&mut bed);
    let connections: Vec<_> = (PORT + 1..PORT + 21)
        .map(|port| {
            let family = FAMILIES[usize::from(port % 2)];
            let streams = connect(bed.at(1), (bed.at(2), bed.at(2).address(family)), port);
            chat(&streams).expect("goes");
            streams
        })
        .collect();
    std::thread::sleep(SETTLES);
    for streams in &connections {
        // The one that asked is silent: the other one's numbers have to be right.
        let [mut client, mut server] = streams.each_ref();
        server.write_all(b"more").expect("goes");
        client.read_exact(&mut [0; 4]).expect("comes");
        pour(streams);
    }
    assert_eq!(bed.ringside().dropped("out-of-window"), 0);
    for is_v4 in [true, false] {
        let of_family = |streams: &&[TcpStream; 2]| {
            let address = streams[0].local_addr().expect("bound");
            address.is_ipv4() == is_v4
        };
        let mut checked = connections.iter().filter(of_family);
        assert!(
            checked.any(|streams| is_checked(&mut bed, streams)),
            "none is checked, v4: {is_v4}"
        );
    }
}

/// Somebody knows the numbers of a connection that has just begun, and is ahead of its ends.
fn what_is_forged_at_once_ends_nothing(kind: Kind) {
    const AHEAD: u32 = 15 << 20;
    let mut bed = Bed::new("at-once", kind, &[Place::new(Family::V4, Tunnel::UserVxlan); 2]);
    allow_all(&mut bed);
    let to = bed.at(2).address(Family::V4);
    let mut connections = Vec::new();
    for port in PORT..PORT + 5 {
        let streams = connect(bed.at(1), (bed.at(2), to), port);
        assert!(wait_until(PATIENCE, || chats_fast(&mut bed, &streams, 1)));
        let client = streams[0].local_addr().expect("bound").port();
        let [sequence, acknowledgment] = last_numbers(&bed, client);
        let ahead = [
            [sequence.wrapping_add(AHEAD), acknowledgment],
            [sequence, acknowledgment.wrapping_add(AHEAD)],
        ];
        // On a busy machine the connection's first second may be over by now.
        let is_settled = dropped_of(&mut bed, &streams, &ahead) > 0;
        (0..10).for_each(|_| chat(&streams).expect("goes on"));
        connections.push((streams, is_settled));
    }
    std::thread::sleep(SETTLES);
    let forged = bed.ringside().dropped("out-of-window");
    for (streams, _) in &connections {
        (0..10).for_each(|_| chat(streams).expect("goes on"));
    }
    assert_eq!(bed.ringside().dropped("out-of-window"), forged);
    for (streams, is_settled) in &connections {
        assert_eq!(is_checked(&mut bed, streams), *is_settled);
    }
}

fn loss_and_reordering_end_nothing(kind: Kind) {
    let mut bed = Bed::new("rough", kind, &[Place::new(Family::V4, Tunnel::UserVxlan); 2]);
    allow_all(&mut bed);
    for family in FAMILIES {
        let streams = open_checked(&mut bed, family);
        let dropped = bed.ringside().dropped("out-of-window");
        bed.hosts.iter().for_each(|host| host.vtep().set_rough(true));
        exchange(&streams, 4 << 20);
        bed.hosts.iter().for_each(|host| host.vtep().set_rough(false));
        assert_eq!(bed.ringside().dropped("out-of-window"), dropped);
    }
}

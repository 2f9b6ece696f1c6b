//! TCP segments that somebody puts into a connection of others.

use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use ringside_gateway_core::testing::tenant_ip;
use ringside_netlab::wait_until;
use ringside_wire::tcp::{self, Flags};
use ringside_wire::{MacAddr, Protocol};

use crate::bed::{Bed, FAMILIES, Family, Kind, Place, Tunnel};
use crate::peers::{chat, connect, exchange_during};
use crate::process::PATIENCE;
use crate::ringside::Ringside;
use crate::tenants::groups::allow_all;
use crate::tenants::on;
use crate::tenants::paths::chats_fast;
use crate::vtep::in_vxlan;

const CHECKED: Kind = Kind::Ringside(Ringside {
    more: "check-windows = true",
    ..Ringside::FAST
});
const CHECKED_GENERIC: Kind = Kind::Ringside(Ringside {
    mode: "generic",
    more: "check-windows = true",
    ..Ringside::FAST
});

on! {
    fast = super::CHECKED => segments_out_of_the_window_reach_nobody, what_is_in_the_window_goes;
    generic = super::CHECKED_GENERIC => segments_out_of_the_window_reach_nobody;
    unchecked = crate::tenants::FAST => without_the_option_nothing_is_checked;
}

const PORT: u16 = 7000;
/// Of these no two are in one window.
const SEQUENCES: [u32; 4] = [0x1000_0000, 0x5000_0000, 0x9000_0000, 0xd000_0000];
/// One of them may be in the window by chance.
const LEAST_DROPPED: u64 = SEQUENCES.len() as u64 - 1;
/// For a second workers may have sent on what the fast path has not seen.
const SETTLES: Duration = Duration::from_millis(1200);
/// The gateway drops forged segments, or forwards them, within this time.
const ARRIVES: Duration = Duration::from_secs(5);
/// Connections that are tried until one is checked. The gateway checks none that took it more than
/// 10 ms to hand over.
const MAX_ATTEMPTS: usize = 20;

/// Sends segments from the client's address, by somebody who does not know the numbers.
fn forge(bed: &Bed, streams: &[TcpStream; 2], flags: Flags, payload: &[u8]) {
    let [from, to] = streams.each_ref().map(|stream| stream.local_addr().expect("bound"));
    let ips: [IpAddr; 2] = [from.ip(), to.ip()];
    let macs = [1, 2].map(|host| MacAddr(bed.at(host).card.mac));
    for sequence in SEQUENCES {
        let header = tcp::Header {
            sequence,
            acknowledgment: !sequence,
            window: 1000,
            ..tcp::Header::new(from.port(), to.port(), flags)
        };
        let mut segment = [0; tcp::Header::MOST];
        let len = header.emit(&mut segment).expect("room");
        let segment = [&segment[..len], payload].concat();
        let frame = tenant_ip(macs, ips, Protocol::TCP, &segment);
        bed.hosts[0].vtep().send(&in_vxlan(bed.at(1).card.vni, &frame));
    }
}

fn dropped_fast(bed: &mut Bed) -> u64 {
    bed.ringside().dropped_by("fast", "out-of-window")
}

/// Returns whether the fast path drops forged data of a connection.
fn is_checked(bed: &mut Bed, streams: &[TcpStream; 2]) -> bool {
    let (dropped, sent_on) = (dropped_fast(bed), bed.ringside().sent_on());
    forge(bed, streams, Flags::ACK | Flags::PSH, b"forged");
    let mut more = 0;
    let arrived = wait_until(ARRIVES, || {
        more = dropped_fast(bed) - dropped;
        more >= LEAST_DROPPED || bed.ringside().sent_on() >= sent_on + LEAST_DROPPED
    });
    assert!(arrived, "forged segments were neither dropped nor sent on");
    more >= LEAST_DROPPED
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

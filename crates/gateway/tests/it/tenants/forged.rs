//! TCP segments that somebody puts into a connection of others.

use std::net::IpAddr;
use std::time::Duration;

use ringside_gateway_core::testing::tenant_ip;
use ringside_netlab::wait_until;
use ringside_wire::tcp::{self, Flags};
use ringside_wire::{MacAddr, Protocol};

use crate::bed::{Bed, FAMILIES, Family, Kind, Place, Tunnel};
use crate::peers::{chat, connect, exchange_during};
use crate::process::PATIENCE;
use crate::tenants::groups::allow_all;
use crate::tenants::on;
use crate::tenants::paths::chats_fast;
use crate::vtep::in_vxlan;

on! {
    fast = crate::tenants::FAST => segments_out_of_the_window_reach_nobody, what_is_in_the_window_goes;
    generic = crate::tenants::GENERIC => segments_out_of_the_window_reach_nobody;
}

const PORT: u16 = 7000;
/// Of these no two are in one window.
const SEQUENCES: [u32; 4] = [0x1000_0000, 0x5000_0000, 0x9000_0000, 0xd000_0000];

/// Resets and data from one end's address, by somebody who does not know the numbers.
fn segments_out_of_the_window_reach_nobody(kind: Kind) {
    let mut bed = Bed::new("forged", kind, &[Place::new(Family::V4, Tunnel::UserVxlan); 2]);
    allow_all(&mut bed);
    let mut dropped = 0;
    for family in FAMILIES {
        let to = bed.at(2).address(family);
        let streams = connect(bed.at(1), (bed.at(2), to), PORT);
        assert!(wait_until(PATIENCE, || chats_fast(&mut bed, &streams, 1)));
        // As long as workers may have sent on what the fast path has not seen.
        std::thread::sleep(Duration::from_millis(1200));
        let own = streams[0].local_addr().expect("an address");
        let ips: [IpAddr; 2] = [own.ip(), to];
        let macs = [1, 2].map(|host| MacAddr(bed.at(host).card.mac));
        for (flags, payload) in [
            (Flags::RST | Flags::ACK, &b""[..]),
            (Flags::ACK | Flags::PSH, b"forged"),
        ] {
            for sequence in SEQUENCES {
                let header = tcp::Header {
                    sequence,
                    acknowledgment: !sequence,
                    window: 1000,
                    ..tcp::Header::new(own.port(), PORT, flags)
                };
                let mut segment = [0; tcp::Header::MOST];
                let len = header.emit(&mut segment).expect("room");
                let segment = [&segment[..len], payload].concat();
                let frame = tenant_ip(macs, ips, Protocol::TCP, &segment);
                bed.hosts[0].vtep().send(&in_vxlan(bed.at(1).card.vni, &frame));
            }
            // One of them may be in the window by chance.
            dropped += SEQUENCES.len() as u64 - 1;
            bed.ringside()
                .wait_until(|gateway| gateway.dropped_by("fast", "out-of-window") >= dropped);
        }
        assert!(wait_until(PATIENCE, || chats_fast(&mut bed, &streams, 1)));
        let states = &bed.ringside().statistics()["connections"]["states"];
        assert_eq!(states["reset-seen"].as_u64().unwrap_or(0), 0, "{states}");
    }
}

/// A connection whose both ends send as much as they can, with windows that grow, and whose rules change meanwhile.
fn what_is_in_the_window_goes(kind: Kind) {
    let mut bed = Bed::new("in-window", kind, &[Place::vxlan(Family::V4); 2]);
    allow_all(&mut bed);
    for family in FAMILIES {
        let streams = connect(bed.at(1), (bed.at(2), bed.at(2).address(family)), PORT);
        chat(&streams).expect("goes");
        exchange_during(&streams, || {
            for _ in 0..3 {
                let fast = bed.ringside().forwarded("fast");
                bed.ringside()
                    .wait_until(|gateway| gateway.forwarded("fast") >= fast + 5000);
                allow_all(&mut bed);
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        assert_eq!(bed.ringside().dropped("out-of-window"), 0);
    }
}

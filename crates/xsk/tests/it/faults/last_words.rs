//! The counters of an interface that is removed, which the kernel tells in the message of its end.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use ringside_netlab::End;
use ringside_nic::LinkStats;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketType, bind, recv, socket};

/// <https://elixir.bootlin.com/linux/v6.18/C/ident/RTMGRP_LINK>
const RTMGRP_LINK: u32 = 1;
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/RTM_DELLINK>
const RTM_DELLINK: u16 = 17;
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/IFLA_STATS64>
const IFLA_STATS64: u16 = 23;
/// `struct nlmsghdr` and `struct ifinfomsg`
const HEADERS: usize = 16 + 16;

/// Listens to the messages about the links of a namespace.
pub(crate) struct LastWords {
    socket: OwnedFd,
    index: u32,
}

impl LastWords {
    pub(crate) fn listen(end: &End) -> Self {
        let socket = end.run(|| {
            // Protocol 0: NETLINK_ROUTE.
            let socket = socket(AddressFamily::NETLINK, SocketType::RAW, None).unwrap();
            bind(&socket, &SocketAddrNetlink::new(0, RTMGRP_LINK)).unwrap();
            socket
        });
        Self {
            socket,
            index: end.interface.index(),
        }
    }

    /// The last counters of the interface, which has been removed.
    pub(crate) fn stats(&mut self) -> LinkStats {
        let mut message = vec![0; 32 << 10];
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            match recv(&self.socket, &mut message[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) => {
                    if let Some(stats) = self.read(&message[..length]) {
                        return stats;
                    }
                }
                Err(Errno::AGAIN) => std::thread::sleep(Duration::from_millis(1)),
                Err(errno) => panic!("{errno}"),
            }
        }
        panic!("the interface is still there");
    }

    fn read(&self, message: &[u8]) -> Option<LinkStats> {
        let half = |at: usize| u16::from_ne_bytes([message[at], message[at + 1]]);
        let index = u32::from_ne_bytes(message[20..24].try_into().unwrap());
        if half(4) != RTM_DELLINK || index != self.index {
            return None;
        }
        let mut at = HEADERS;
        while half(at + 2) != IFLA_STATS64 {
            at += usize::from(half(at)).next_multiple_of(4);
        }
        // In the order of https://elixir.bootlin.com/linux/v6.18/C/ident/rtnl_link_stats64
        let counter = |number: usize| {
            let at = at + 4 + number * 8;
            u64::from_ne_bytes(message[at..at + 8].try_into().unwrap())
        };
        let mut stats = LinkStats::default();
        (stats.rx_packets, stats.tx_packets) = (counter(0), counter(1));
        (stats.rx_dropped, stats.tx_dropped) = (counter(6), counter(7));
        Some(stats)
    }
}

use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::*;

/// A kernel that has nobody at a port says "unreachable", which is of the same ICMP type over IPv4, and another over IPv6.
#[test]
fn messages_of_the_type_come_and_no_others() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    for own in ["127.0.0.1", "::1"] {
        let own: IpAddr = own.parse().unwrap();
        let messages = TooBigMessages::open(own).unwrap();
        assert_eq!(messages.is_v4(), own.is_ipv4());
        let nobody = UdpSocket::bind((own, 0)).unwrap().local_addr().unwrap();
        let socket = UdpSocket::bind((own, 0)).unwrap();
        socket.send_to(b"is this so?", nobody).unwrap();
        let mut room = [0; 2048];
        let begun = Instant::now();
        // Others use the loopback interface as well: only what quotes these ports counts.
        let ports = [socket.local_addr().unwrap().port(), nobody.port()]
            .map(u16::to_be_bytes)
            .concat();
        let mut is_there = || {
            let message = messages.next(&mut room).unwrap()?;
            Some(message.windows(4).any(|part| part == ports))
        };
        let patience = Duration::from_secs(if own.is_ipv4() { 10 } else { 1 });
        let mut found = false;
        while !found && begun.elapsed() < patience {
            match is_there() {
                Some(ours) => found = ours,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        assert_eq!(found, own.is_ipv4());
    }
}

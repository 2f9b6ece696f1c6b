use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use ringside_netlab::wait_until;

use super::*;

/// A kernel without a socket at a port answers "port unreachable".
#[test]
fn receives_errors_about_own_datagrams() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    for own in ["127.0.0.1", "::1"] {
        let own: IpAddr = own.parse().unwrap();
        let errors = IcmpErrors::open(own).unwrap();
        assert_eq!(errors.is_v4(), own.is_ipv4());
        let nobody = UdpSocket::bind((own, 0)).unwrap().local_addr().unwrap();
        let socket = UdpSocket::bind((own, 0)).unwrap();
        socket.send_to(b"is this so?", nobody).unwrap();
        // Others use the loopback interface as well: only a message that quotes these ports counts.
        let ports = [socket.local_addr().unwrap().port(), nobody.port()]
            .map(u16::to_be_bytes)
            .concat();
        let mut room = [0; 2048];
        let is_there = || {
            let received = errors.next(&mut room).unwrap();
            received
                .is_some_and(|received| received.from == own && received.message.windows(4).any(|part| part == ports))
        };
        assert!(wait_until(Duration::from_secs(10), is_there), "{own}");
    }
}

/// Echo replies and neighbour discovery, of which there may be many, stay out.
#[test]
fn receives_no_other_messages() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    for own in ["127.0.0.1", "::1"] {
        let errors = IcmpErrors::open(own.parse().unwrap()).unwrap();
        let mut ping = std::process::Command::new("ping");
        assert!(ping.args(["-c", "1", own]).output().unwrap().status.success());
        let mut room = [0; 2048];
        while let Some(received) = errors.next(&mut room).unwrap() {
            let header = if errors.is_v4() { 20 } else { 0 };
            assert!([1, 2, 3, 4, 11].contains(&received.message[header]), "{received:?}");
        }
    }
}

use std::net::UdpSocket;
use std::os::fd::AsFd as _;

use super::*;

/// As on packet sockets, on a kind that needs no privilege to be made: nothing keeps to the time, so the packet comes at once.
#[test]
fn a_packet_with_a_time_arrives_and_is_not_missed() {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver
        .set_read_timeout(Some(std::time::Duration::from_secs(5)))
        .unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    // CLOCK_TAI takes CAP_NET_ADMIN.
    if let Err(error) = enable(sender.as_fd()) {
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        return ringside_netlab::testing::skip("CAP_NET_ADMIN");
    }
    assert!(send_at(sender.as_fd(), b"in an hour", Some(u64::MAX / 2)).unwrap());
    let mut buffer = [0; 64];
    assert_eq!(receiver.recv(&mut buffer).unwrap(), 10);
    assert_eq!(&buffer[..10], b"in an hour");
    assert_eq!(missed(sender.as_fd()).unwrap(), 0);
}

/// What the queueing discipline etf puts on the error queue, as the kernel lays it out.
#[test]
fn the_error_queues_messages_are_told_apart() {
    const MISSED: u8 = SO_EE_CODE_TXTIME_MISSED;
    /// etf did not take it: the send call has said so.
    const INVALID_PARAM: u8 = 1;
    for (level, kind, (origin, code), expected) in [
        (
            libc::SOL_PACKET,
            libc::PACKET_TX_TIMESTAMP,
            (SO_EE_ORIGIN_TXTIME, MISSED),
            true,
        ),
        (
            libc::SOL_PACKET,
            libc::PACKET_TX_TIMESTAMP,
            (SO_EE_ORIGIN_TXTIME, INVALID_PARAM),
            false,
        ),
        (libc::SOL_PACKET, libc::PACKET_TX_TIMESTAMP, (4, MISSED), false),
        (
            libc::SOL_SOCKET,
            libc::PACKET_TX_TIMESTAMP,
            (SO_EE_ORIGIN_TXTIME, MISSED),
            false,
        ),
    ] {
        let mut control = [0_u64; 32];
        // SAFETY: plain C structures, for which all zero is a valid value.
        let (mut header, mut error) = unsafe {
            (
                std::mem::zeroed::<libc::msghdr>(),
                std::mem::zeroed::<libc::sock_extended_err>(),
            )
        };
        (error.ee_origin, error.ee_code) = (origin, code);
        header.msg_control = control.as_mut_ptr().cast();
        // SAFETY: only computes.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(length(size_of_val(&error))) } as usize;
        // SAFETY: the buffer is longer than that, and aligned.
        unsafe {
            let message = libc::CMSG_FIRSTHDR(&raw const header);
            (*message).cmsg_level = level;
            (*message).cmsg_type = kind;
            (*message).cmsg_len = libc::CMSG_LEN(length(size_of_val(&error))) as usize;
            ptr::write_unaligned(libc::CMSG_DATA(message).cast(), error);
        }
        assert_eq!(is_missed(&header), expected, "{level} {kind} {origin} {code}");
    }
    // SAFETY: as above.
    let none: libc::msghdr = unsafe { std::mem::zeroed() };
    assert!(!is_missed(&none));
}

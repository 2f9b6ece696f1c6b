use std::net::UdpSocket;
use std::os::fd::AsFd as _;

use super::Messages;

#[test]
fn messages_arrive_in_order_with_their_lengths() {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();

    let packets: [&[u8]; 5] = [b"a", b"bc", b"", b"def", b"more than the others"];
    let mut messages = Messages::new(4);
    let sent = messages.send(sender.as_fd(), packets.iter().copied()).unwrap();
    assert_eq!((sent.offered, sent.taken), (4, 4), "as many as there are headers");

    let mut buffer = [0; 8 * 2];
    let received = messages
        .receive(receiver.as_fd(), &mut buffer, 2, libc::MSG_WAITFORONE)
        .unwrap();
    assert_eq!(received, 4);
    assert_eq!(
        [0, 1, 2, 3].map(|index| messages.bytes(index)),
        [1, 2, 0, 2],
        "cut off at the slot"
    );
    assert_eq!(&buffer[..8], b"a\0bc\0\0de");
}

#[test]
fn nothing_there_is_would_block() {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let error = Messages::new(4)
        .receive(receiver.as_fd(), &mut [0; 64], 16, libc::MSG_DONTWAIT)
        .unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

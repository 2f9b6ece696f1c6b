//! A sink's port over the loopback interface.

use std::net::TcpListener;

use super::*;

/// Two ends of a connection.
fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("its address")).expect("connected");
    (client, listener.accept().expect("accepted").0)
}

#[test]
fn a_sink_counts_what_its_sender_sends_and_nobody_elses() {
    let (mut client, server) = connected();
    std::thread::scope(|scope| {
        let sink = scope.spawn(|| take(server, || false));
        let mut port = [0; 2];
        client.read_exact(&mut port).expect("a port");
        let at = (Ipv4Addr::LOCALHOST, u16::from_be_bytes(port));
        let own = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let other = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).expect("a socket");
        for _ in 0..3 * SOME {
            own.send_to(b"x", at).expect("sent");
        }
        for _ in 0..7 {
            other.send_to(b"x", at).expect("sent");
        }
        assert_eq!(tcp::came(client).expect("told"), Some(u64::from(3 * SOME)));
        sink.join().expect("no panic").expect("a whole stream");
    });
}

#[test]
fn a_sink_that_is_ended_ends_its_ports() {
    let (mut client, server) = connected();
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sink = scope.spawn(|| take(server, || end.load(Ordering::Relaxed)));
        client.read_exact(&mut [0; 2]).expect("a port");
        end.store(true, Ordering::Relaxed);
        sink.join().expect("no panic").expect("ended");
    });
}

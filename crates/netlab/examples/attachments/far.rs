//! What runs in the guest.

use std::io::{self, Read as _};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::thread;

/// Sends UDP back.
pub(crate) const ECHO: &str = "udp-echo";
/// Takes what comes over TCP.
pub(crate) const SINK: &str = "tcp-sink";

pub(crate) const ECHO_PORT: u16 = 29620;
pub(crate) const SINK_PORT: u16 = 29621;

pub(crate) fn is_role(word: &str) -> bool {
    [ECHO, SINK].contains(&word)
}

pub(crate) fn run(role: &str) -> io::Result<()> {
    if role == ECHO { echo() } else { sink() }
}

fn echo() -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, ECHO_PORT))?;
    println!("ready");
    let mut data = [0; 2048];
    loop {
        let (length, from) = socket.recv_from(&mut data)?;
        socket.send_to(&data[..length], from)?;
    }
}

fn sink() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, SINK_PORT))?;
    println!("ready");
    loop {
        let (mut stream, _) = listener.accept()?;
        thread::spawn(move || {
            let mut data = vec![0; 256 << 10];
            while matches!(stream.read(&mut data), Ok(1..)) {}
        });
    }
}

//! A host that encapsulates by itself: frames of TAP devices in UDP datagrams. Many kernels have no Geneve device (those that have
//! meet the gateway in `geneve.rs`), and a program can also tell what came.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use ringside_netlab::testing::bound;
use ringside_netlab::{End, Tap};
use ringside_wire::{geneve, vxlan};

use crate::bed::Tunnel;

/// How long a thread waits before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
const LONGEST: usize = 2048;
/// Bytes of a frame that are kept, and how many frames: what a test looks at, not what an iperf3 sends.
const KEPT: usize = 256;
const KEPT_FRAMES: usize = 4096;
/// VXLAN's header is as long as Geneve's without options.
const HEADER: usize = 8;

/// A frame behind VXLAN's header.
pub(crate) fn in_vxlan(vni: u32, frame: &[u8]) -> Vec<u8> {
    let mut header = [0; vxlan::HEADER_LEN];
    vxlan::Header { vni }.emit(&mut header).expect("room");
    [&header[..], frame].concat()
}

pub(crate) struct Vtep {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    received: Arc<Mutex<Vec<Received>>>,
    is_rough: Arc<AtomicBool>,
    socket: Arc<UdpSocket>,
    gateway: SocketAddr,
}

/// What is kept of a packet that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) vni: u32,
    /// Geneve's.
    pub(crate) options: Vec<u8>,
    /// The tenant's frame, no more than its first [`KEPT`] bytes.
    pub(crate) frame: Vec<u8>,
}

impl Received {
    pub(crate) fn ethertype(&self) -> u16 {
        self.frame
            .get(12..14)
            .map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Returns the number in a datagram over IPv4 whose first eight bytes are one.
    pub(crate) fn number(&self) -> Option<u64> {
        let is_udp = self.ethertype() == 0x0800 && self.frame.get(23) == Some(&17);
        let number = self.frame.get(42..50).filter(|_| is_udp)?;
        Some(u64::from_be_bytes(number.try_into().expect("eight bytes")))
    }

    /// Returns whether the frame has no number, or one of at least `next`.
    pub(crate) fn is_since(&self, next: u64) -> bool {
        self.number().is_none_or(|number| number >= next)
    }
}

impl Vtep {
    pub(crate) fn start(end: &End, tunnel: Tunnel, ends: (IpAddr, IpAddr), taps: Vec<(u32, Arc<Tap>)>) -> Self {
        let (local, gateway) = ends;
        let port = if tunnel == Tunnel::Geneve { 6081 } else { 4789 };
        let socket = end.run(|| bound(|| UdpSocket::bind((local, port))));
        socket.set_read_timeout(Some(LOOK)).expect("time-out");
        let socket = Arc::new(socket);
        let stop = Arc::new(AtomicBool::new(false));
        let received = Arc::new(Mutex::new(Vec::new()));
        let is_rough = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (vni, tap) in taps.clone() {
            let (socket, is_rough) = (Arc::clone(&socket), Arc::clone(&is_rough));
            let stop = Arc::clone(&stop);
            let to = SocketAddr::from((gateway, port));
            threads.push(std::thread::spawn(move || {
                send(&tap, &socket, (tunnel, vni, to), (&stop, &is_rough))
            }));
        }
        let (stopped, seen) = (Arc::clone(&stop), Arc::clone(&received));
        let ours = Arc::clone(&socket);
        let receive = move || receive(&ours, tunnel, &taps, (&stopped, &seen));
        threads.push(std::thread::spawn(receive));
        Self {
            stop,
            threads,
            received,
            is_rough,
            socket,
            gateway: SocketAddr::from((gateway, port)),
        }
    }

    /// Sends the gateway a datagram as it is.
    pub(crate) fn send(&self, datagram: &[u8]) {
        self.socket.send_to(datagram, self.gateway).expect("sends");
    }

    /// Whether it loses one of 64 packets that it sends, and sends another one behind the next
    /// five.
    pub(crate) fn set_rough(&self, is_rough: bool) {
        self.is_rough.store(is_rough, Ordering::Relaxed);
    }

    /// What came since the last call.
    pub(crate) fn take_received(&self) -> Vec<Received> {
        std::mem::take(&mut *self.received.lock().expect("no panic"))
    }
}

impl Drop for Vtep {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic in there has made the test fail by itself: nothing gets through.
            _ = thread.join();
        }
    }
}

fn send(
    tap: &Tap,
    socket: &UdpSocket,
    (tunnel, vni, to): (Tunnel, u32, SocketAddr),
    (stop, is_rough): (&AtomicBool, &AtomicBool),
) {
    let mut packet = [0; LONGEST];
    let (mut number, mut late) = (0_u64, None);
    match tunnel {
        Tunnel::Geneve => geneve::Header { vni }.emit(&mut packet),
        _ => vxlan::Header { vni }.emit(&mut packet),
    }
    .expect("room");
    while !stop.load(Ordering::Relaxed) {
        match tap.receive(&mut packet[HEADER..], LOOK) {
            // As a wire does, it loses what the host's own network does not take.
            Ok(Some(length)) => {
                let packet = &packet[..HEADER + length];
                number += 1;
                match (is_rough.load(Ordering::Relaxed), number % 64) {
                    (true, 13) => {}
                    (true, 29) => late = Some(packet.to_vec()),
                    _ => _ = socket.send_to(packet, to),
                }
                if let Some(packet) = late.take_if(|_| number % 64 == 34) {
                    _ = socket.send_to(&packet, to);
                }
            }
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

fn receive(
    socket: &UdpSocket,
    tunnel: Tunnel,
    taps: &[(u32, Arc<Tap>)],
    (stop, seen): (&AtomicBool, &Mutex<Vec<Received>>),
) {
    let mut packet = [0; LONGEST];
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, _)) = socket.recv_from(&mut packet) else {
            continue;
        };
        let Some((vni, options, frame)) = open(&packet[..length], tunnel) else {
            continue;
        };
        let mut seen = seen.lock().expect("no panic");
        if seen.len() < KEPT_FRAMES {
            seen.push(Received {
                vni,
                options: options.to_vec(),
                frame: frame[..frame.len().min(KEPT)].to_vec(),
            });
        }
        drop(seen);
        if let Some((_, tap)) = taps.iter().find(|(own, _)| *own == vni) {
            _ = tap.send(frame);
        }
    }
}

/// Network, options and frame.
fn open(packet: &[u8], tunnel: Tunnel) -> Option<(u32, &[u8], &[u8])> {
    if tunnel == Tunnel::Geneve {
        let packet = geneve::Packet::parse(packet).ok()?;
        return Some((packet.vni(), packet.options_bytes(), packet.payload()));
    }
    let packet = vxlan::Packet::parse(packet).ok()?;
    Some((packet.vni(), &[], packet.frame()))
}

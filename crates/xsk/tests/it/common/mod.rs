//! What the kernel tests share.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(unreachable_pub, reason = "shared by test binaries, not an API")]

pub mod account;
pub mod bystander;
pub mod child;
pub mod conformance;
pub mod flow;
pub mod traffic;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringside_netlab::testing::bound;
use ringside_netlab::{End, Lab, VethConfig};
use ringside_xsk::{Direction, Mode, Path, Port, PortBuilder, Queue, QueueOptions, Wait};

/// For what comes for certain, however slow the machine is.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The modes that a veth offers.
pub const MODES: [Path; 2] = [Path::NativeCopy, Path::Generic];

/// Two namespaces and a veth pair with so many queues, quiet (no IPv6), checksums whole.
pub fn lab(tag: &str, queues: u32) -> Lab {
    let config = VethConfig {
        queues,
        tx_checksum: false,
        ipv6: false,
        gro: true,
        ..VethConfig::tagged(tag)
    };
    Lab::veth(config).expect("test bed")
}

/// Opens a port on one end with everything at its default but what `with` changes.
///
/// Waits up to [`PATIENCE`] for queues that the kernel has not given back yet: on a busy machine
/// that takes longer than the default `busy_timeout`.
pub fn open(end: &End, path: Path, with: impl Fn(PortBuilder) -> PortBuilder + Send + Sync) -> Port {
    let begin = Instant::now();
    loop {
        match try_open(end, path, &with) {
            Err(ringside_xsk::Error::QueueBusy { .. }) if begin.elapsed() < PATIENCE => {}
            opened => return opened.expect("port opens"),
        }
    }
}

/// As [`open`], for what can be given away only once. Waits unless `with` sets other options.
pub fn open_once(end: &End, path: Path, with: impl FnOnce(PortBuilder) -> PortBuilder + Send) -> Port {
    let patient = QueueOptions::new().busy_timeout(PATIENCE);
    try_open(end, path, |port| with(port.options(patient))).expect("port opens")
}

pub fn try_open(
    end: &End,
    path: Path,
    with: impl FnOnce(PortBuilder) -> PortBuilder + Send,
) -> Result<Port, ringside_xsk::Error> {
    end.run(|| with(Port::builder(end.interface.clone()).mode(Mode::Require(path))).open())
}

/// Options with a large enough UMEM that nothing is lost when nobody reads for a while.
pub fn roomy() -> QueueOptions {
    QueueOptions::new().frames(4096)
}

/// A test packet: number `n` of a sequence, of a length and with bytes that follow from `n`, from `a` to `b`.
pub fn packet(n: u64, from: [u8; 6], to: [u8; 6]) -> Vec<u8> {
    packet_of(n, length(n), from, to)
}

/// An ethertype for local experiments (IEEE 802), which no protocol of the kernel takes, and no NIC's hash: such packets come on its queue 0.
const EXPERIMENT: [u8; 2] = 0x88b5_u16.to_be_bytes();

const IPV4: [u8; 2] = 0x0800_u16.to_be_bytes();

/// Whether test packets are IPv4, which NICs hash.
static HASHED: AtomicBool = AtomicBool::new(false);

/// From now on test packets are such that a NIC's hash chooses their queue, or not. For one test at a time.
pub fn hash_packets(hashed: bool) {
    HASHED.store(hashed, Ordering::Relaxed);
}

/// As [`packet`], of this length, at least 22 bytes; 34 of those that are hashed.
pub fn packet_of(n: u64, len: usize, from: [u8; 6], to: [u8; 6]) -> Vec<u8> {
    let mut data = Vec::with_capacity(len);
    data.extend_from_slice(&to);
    data.extend_from_slice(&from);
    if HASHED.load(Ordering::Relaxed) {
        data.extend_from_slice(&IPV4);
        // Of a protocol for experiments (RFC 3692), whole, its checksum unknown; in place of both addresses the number.
        let [high, low] = u16::try_from(len - 14).expect("a packet").to_be_bytes();
        data.extend_from_slice(&[0x45, 0, high, low, 0, 0, 0x40, 0, 64, 253, 0, 0]);
    } else {
        data.extend_from_slice(&EXPERIMENT);
    }
    data.extend_from_slice(&n.to_be_bytes());
    data.extend((data.len()..len).map(|at| byte(n, at)));
    data
}

fn length(n: u64) -> usize {
    60 + usize::try_from(n * 7919 % 1455).expect("small")
}

fn byte(n: u64, at: usize) -> u8 {
    n.wrapping_mul(31).wrapping_add(at as u64).to_le_bytes()[0]
}

/// The number of a test packet, after its length and every byte of it were checked; `None` for other traffic.
pub fn check(data: &[u8]) -> Option<u64> {
    let begin = match data.get(12..14)?.try_into().expect("2 bytes") {
        EXPERIMENT => 14,
        // Behind all but the addresses.
        IPV4 if HASHED.load(Ordering::Relaxed) && data.get(23) == Some(&253) => 26,
        _ => return None,
    };
    let n = u64::from_be_bytes(data.get(begin..begin + 8)?.try_into().expect("8 bytes"));
    assert_eq!(data.len(), length(n), "length of packet {n}");
    for (at, &got) in data.iter().enumerate().skip(begin + 8) {
        assert_eq!(got, byte(n, at), "byte {at} of packet {n}");
    }
    Some(n)
}

/// Receives until `enough` of the test packets are there or nothing came for `patience`; their numbers.
pub fn collect(queue: &mut Queue, enough: usize, patience: Duration) -> Vec<u64> {
    let mut numbers = Vec::new();
    let mut last = Instant::now();
    while numbers.len() < enough && last.elapsed() < patience {
        let mut burst = queue.recv(Wait::Poll(Duration::from_millis(20))).expect("recv");
        for packet in &mut burst {
            if let Some(n) = check(packet.data()) {
                numbers.push(n);
                last = Instant::now();
            }
        }
    }
    numbers
}

/// Runs `closure`, and fails when it takes longer: a hang is a failure, not a time-out of the whole test run.
pub fn within<T: Send + 'static>(limit: Duration, closure: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = std::sync::mpsc::channel();
    let worker = std::thread::spawn(move || {
        let value = closure();
        _ = tell.send(());
        value
    });
    match told.recv_timeout(limit) {
        Ok(()) => worker.join().expect("no panic"),
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => match worker.join() {
            Ok(_) => unreachable!("it tells before it ends"),
            Err(panic) => std::panic::resume_unwind(panic),
        },
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("not done within {limit:?}"),
    }
}

/// Asserts that nothing of ours is left on an interface: no XDP program, and each queue can be bound.
pub fn assert_clean(end: &End) {
    let state = end.state().expect("interface");
    assert_eq!(state.xdp, None, "an XDP program is left on {}", end.interface.name());
    end.run(|| {
        for queue in 0..end.interface.rx_queues().expect("queues") {
            // Transmit only: whatever the MTU is.
            let options = QueueOptions::new()
                .direction(Direction::Transmit)
                .busy_timeout(PATIENCE);
            if let Err(error) = Queue::builder(&end.interface, queue).options(options).open() {
                panic!("queue {queue} was not given back: {error}");
            }
        }
    });
}

/// The receive queue of a veth's other end to which packets of transmit queue `tx` come.
///
/// In native mode it is the same. On a socket buffer, which generic XDP looks at, the field that held the transmit queue
/// is then read as "receive queue plus one, or none".
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/skb_get_rx_queue>
pub fn arrives_at(tx: usize, path: Path) -> usize {
    if path == Path::Generic {
        tx.saturating_sub(1)
    } else {
        tx
    }
}

/// A transmit queue from which packets come to receive queue `rx` of a veth's other end.
pub fn leading_to(rx: usize, path: Path) -> usize {
    (0..)
        .find(|&tx| arrives_at(tx, path) == rx)
        .expect("each can be reached")
}

/// A port that only sends, as the other side of a test.
pub fn sender(end: &End) -> Port {
    open(end, Path::NativeCopy, |port| {
        port.options(QueueOptions::new().direction(ringside_xsk::Direction::Transmit))
    })
}

/// Sends test packets from one end to the other through a queue, and waits until the kernel has them all.
pub fn send_numbers(tx: &mut Queue, numbers: std::ops::Range<u64>, from: &End, to: &End) {
    let mut next = numbers.start;
    while next < numbers.end {
        let left = u32::try_from(numbers.end - next).expect("few");
        tx.send_with(left, |slot| {
            assert!(slot.write(&packet(next, from.mac, to.mac)));
            next += 1;
        })
        .expect("sends");
    }
    tx.flush().expect("flush");
}

/// A UDP datagram over IPv4 from port 9 of one end, whole but for the UDP checksum, which is 0: none.
pub fn udp(from: &End, to: &End, port: u16, payload: &[u8]) -> Vec<u8> {
    let length = |bytes: usize| u16::try_from(bytes + payload.len()).expect("short").to_be_bytes();
    let mut ip = Vec::new();
    ip.extend_from_slice(&[0x45, 0]);
    ip.extend_from_slice(&length(20 + 8));
    ip.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
    ip.extend_from_slice(&from.ipv4.octets());
    ip.extend_from_slice(&to.ipv4.octets());
    let sum: u32 = ip
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    let check = !u16::try_from((sum & 0xffff) + (sum >> 16)).expect("one carry is enough for 20 bytes");
    ip[10..12].copy_from_slice(&check.to_be_bytes());

    let mut data = Vec::new();
    data.extend_from_slice(&to.mac);
    data.extend_from_slice(&from.mac);
    data.extend_from_slice(&[8, 0]);
    data.extend_from_slice(&ip);
    data.extend_from_slice(&9_u16.to_be_bytes());
    data.extend_from_slice(&port.to_be_bytes());
    data.extend_from_slice(&length(8));
    data.extend_from_slice(&[0, 0]);
    data.extend_from_slice(payload);
    data
}

/// Sends one packet through a queue.
pub fn send_one(tx: &mut Queue, data: &[u8]) {
    assert_eq!(tx.send_with(1, |slot| assert!(slot.write(data))).expect("sends"), 1);
    tx.flush().expect("flush");
}

/// A UDP socket of an end's kernel.
pub fn kernel_socket(end: &End, port: u16) -> std::net::UdpSocket {
    let socket = end.run(|| bound(|| std::net::UdpSocket::bind((end.ipv4, port))));
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    socket
}

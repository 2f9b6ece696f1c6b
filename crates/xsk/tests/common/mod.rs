//! What the kernel tests share.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(unreachable_pub, reason = "shared by test binaries, not an API")]

use std::time::{Duration, Instant};

use ringside_netlab::{End, Lab, VethConfig};
use ringside_xsk::{Mode, Path, Port, PortBuilder, Queue, QueueOptions, Wait};

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
pub fn open(end: &End, path: Path, with: impl FnOnce(PortBuilder) -> PortBuilder + Send) -> Port {
    try_open(end, path, with).expect("port opens")
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
    let len = length(n);
    let mut data = Vec::with_capacity(len);
    data.extend_from_slice(&to);
    data.extend_from_slice(&from);
    // An ethertype for local experiments (IEEE 802), which no protocol of the kernel takes.
    data.extend_from_slice(&0x88b5_u16.to_be_bytes());
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
    if data.len() < 22 || data[12..14] != 0x88b5_u16.to_be_bytes() {
        return None;
    }
    let n = u64::from_be_bytes(data[14..22].try_into().expect("8 bytes"));
    assert_eq!(data.len(), length(n), "length of packet {n}");
    for (at, &got) in data.iter().enumerate().skip(22) {
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

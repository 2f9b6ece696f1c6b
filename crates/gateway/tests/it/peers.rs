//! What tenants do to each other: echoes, iperf3, and connections that check every byte.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ringside_netlab::testing::bound;
use ringside_netlab::{Namespace, wait_until};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::process::{Done, PATIENCE, Running};
use crate::tenant::Tenant;

/// Sends echo requests, a few milliseconds apart. With `-c` alone ping waits for the last answers no longer than two round
/// trips, which is not long on a busy machine: `-w` has it go on until so many are answered.
pub(crate) fn ping(from: &Tenant, to: IpAddr, more: &str) -> Done {
    Running::new(from.command(&format!("ping -n -i 0.01 {more} {to}"))).end()
}

/// Every one of three is answered.
pub(crate) fn answered(from: &Tenant, to: IpAddr) -> Done {
    answered_with(from, to, "")
}

pub(crate) fn answered_with(from: &Tenant, to: IpAddr, more: &str) -> Done {
    let one = || {
        let done = ping(from, to, &format!("-c 1 -W 10 {more}"));
        assert!(done.out.contains("1 packets transmitted, 1 received"), "{done:#?}");
        done
    };
    _ = (one(), one());
    one()
}

/// Waits until an echo request is answered: the first ones may wait in vain for MAC addresses.
pub(crate) fn wait_for_answer(from: &Tenant, to: IpAddr) {
    let is_answered = || ping(from, to, "-c 1 -W 2").out.contains(" 1 received");
    assert!(wait_until(PATIENCE, is_answered), "no answer from {to}");
}

/// None is, within a time in which others are.
pub(crate) fn unanswered(from: &Tenant, to: IpAddr) -> Done {
    let done = ping(from, to, "-c 3 -W 0.5");
    assert!(done.out.contains(" 0 received"), "{done:#?}");
    done
}

/// Repeats a call of a socket with a time-out while it ends with EINTR.
///
/// The kernel does not restart such a call after a stop, or after other work of the thread.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Waits until somebody listens on a TCP port of a namespace.
fn wait_for_listener(ns: &Namespace, port: u16) {
    // Local address and port, remote ones, state: https://docs.kernel.org/networking/proc_net_tcp.html
    let listens = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().unwrap_or_default();
        local.ends_with(&format!(":{port:04X}")) && words.nth(1) == Some("0A")
    };
    let is_there = || {
        ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"]
            .iter()
            .any(|file| std::fs::read_to_string(file).is_ok_and(|table| table.lines().any(listens)))
    };
    assert!(
        ns.run(|| wait_until(PATIENCE, is_there)),
        "nobody listens on port {port}"
    );
}

/// Runs iperf3 from one tenant to another, and returns what both ends report.
pub(crate) fn iperf(from: &Tenant, (to, address): (&Tenant, IpAddr), more: &str) -> [Value; 2] {
    let server = Running::new(to.command("iperf3 --server --one-off --json"));
    wait_for_listener(&to.ns, 5201);
    let client = Running::new(from.command(&format!("iperf3 --json --client {address} {more}"))).end();
    [client, server.end()].map(|done| {
        assert!(done.status.success(), "{done:#?}");
        serde_json::from_str(&done.out).expect("JSON")
    })
}

/// Generates pseudo-random bytes from a seed.
struct Noise(u64);

impl Noise {
    const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            // A counter that is mixed: splitmix64.
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes()[..chunk.len()]);
        }
    }
}

/// Listens without waiting for who connects.
pub(crate) fn listen(tenant: &Tenant, address: SocketAddr) -> TcpListener {
    let listener = tenant.ns.run(|| bound(|| TcpListener::bind(address)));
    listener.set_nonblocking(true).expect("set");
    listener
}

/// A connection between two tenants: the end of the one that asked, and that of the one that listened.
pub(crate) fn connect(from: &Tenant, (to, address): (&Tenant, IpAddr), port: u16) -> [TcpStream; 2] {
    let listener = listen(to, (address, port).into());
    let client = from
        .ns
        .run(|| TcpStream::connect_timeout(&(address, port).into(), PATIENCE))
        .expect("connects");
    // The last packet of the handshake may be lost, and its repetitions.
    let mut accepted = None;
    let accepts = || {
        accepted = listener.accept().ok();
        accepted.is_some()
    };
    assert!(wait_until(PATIENCE, accepts), "connected with nobody");
    let (server, _) = accepted.expect("accepted");
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(PATIENCE)).expect("time-out");
        stream.set_write_timeout(Some(PATIENCE)).expect("time-out");
    }
    [client, server]
}

/// Whether nothing of a connection attempt gets through.
pub(crate) fn is_cut_off(from: &Tenant, (to, address): (&Tenant, IpAddr), port: u16) -> bool {
    let _listener = listen(to, (address, port).into());
    let tried = from
        .ns
        .run(|| TcpStream::connect_timeout(&(address, port).into(), MOMENT));
    tried.is_err_and(|error| error.kind() == ErrorKind::TimedOut)
}

/// Sends so many bytes each way at once, and asserts that what came is what was sent.
pub(crate) fn exchange(streams: &[TcpStream; 2], bytes: usize) {
    assert_eq!(exchange_until(streams, |sent| sent >= bytes), [bytes; 2]);
}

/// Sends each way until it is enough, and asserts that what came is what was sent. So much it was.
fn exchange_until(streams: &[TcpStream; 2], enough: impl Fn(usize) -> bool + Sync) -> [usize; 2] {
    std::thread::scope(|scope| {
        let (ends, enough) = ([(&streams[0], 1), (&streams[1], 2)], &enough);
        let senders = ends.map(|(stream, seed)| scope.spawn(move || send(stream, seed, enough)));
        let receivers = ends.map(|(stream, _)| scope.spawn(move || receive(stream)));
        let sent = senders.map(|sender| sender.join().expect("sends"));
        let received = receivers.map(|receiver| receiver.join().expect("receives"));
        assert_eq!(received[0], sent[1], "to the one that asked");
        assert_eq!(received[1], sent[0], "to the one that listened");
        sent.map(|(bytes, _)| bytes)
    })
}

/// Has both ends send all the time while something else is done, and asserts that every byte came, and some afterwards.
pub(crate) fn exchange_during(streams: &[TcpStream; 2], work: impl FnOnce()) {
    let over = AtomicBool::new(false);
    let sent = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            exchange_until(streams, |bytes| {
                sent.fetch_max(bytes, Ordering::Relaxed);
                // Tens of megabytes a second: the work has to have a CPU, too.
                std::thread::sleep(Duration::from_millis(1));
                over.load(Ordering::Relaxed)
            })
        });
        let at_end = AtEnd(&over);
        let goes_on = || {
            let more = sent.load(Ordering::Relaxed) + more_than_buffers();
            assert!(
                wait_until(PATIENCE, || sent.load(Ordering::Relaxed) >= more),
                "nothing goes"
            );
        };
        goes_on();
        work();
        goes_on();
        drop(at_end);
        traffic.join().expect("every byte");
    });
}

/// More bytes than a connection's two buffers have room for: when so many have been sent, some have come.
fn more_than_buffers() -> usize {
    let largest = |name: &str| {
        let sizes = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).expect("a kernel with TCP");
        let largest = sizes
            .split_whitespace()
            .last()
            .and_then(|size| size.parse::<usize>().ok());
        largest.expect("least, usual and largest")
    };
    // Buffers that may be larger do not grow so far in the moment that this takes.
    ((largest("tcp_rmem") + largest("tcp_wmem")) / 2 * 3).min(16 << 20)
}

/// Sends so many bytes one way, and asserts that they come.
pub(crate) fn deliver(from: &TcpStream, to: &TcpStream, bytes: usize) {
    std::thread::scope(|scope| {
        let sent = scope.spawn(move || send(from, 3, &|sent| sent >= bytes));
        let received = scope.spawn(move || receive(to));
        assert_eq!(received.join().expect("receives"), sent.join().expect("sends"));
    });
}

type Sum = [u8; 32];

fn send(mut stream: &TcpStream, seed: u64, enough: &dyn Fn(usize) -> bool) -> (usize, Sum) {
    let (mut noise, mut sum, mut block) = (Noise::new(seed), Sha256::new(), vec![0; 1 << 16]);
    let mut bytes = 0;
    noise.fill(&mut block);
    while !enough(bytes) {
        // The first 64 bytes make each block unique. Filling the whole block would take more CPU
        // time than sending it.
        noise.fill(&mut block[..64]);
        sum.update(&block);
        stream.write_all(&block).expect("sends");
        bytes += block.len();
    }
    stream.shutdown(Shutdown::Write).expect("ends");
    (bytes, sum.finalize().into())
}

fn receive(mut stream: &TcpStream) -> (usize, Sum) {
    let (mut sum, mut block, mut bytes) = (Sha256::new(), vec![0; 1 << 16], 0);
    loop {
        match uninterrupted(|| stream.read(&mut block)).expect("receives") {
            0 => return (bytes, sum.finalize().into()),
            length => {
                sum.update(&block[..length]);
                bytes += length;
            }
        }
    }
}

/// Says a word on a connection and waits until it is there, in both directions.
pub(crate) fn chat(streams: &[TcpStream; 2]) -> std::io::Result<()> {
    for [mut from, mut to] in [[&streams[0], &streams[1]], [&streams[1], &streams[0]]] {
        from.write_all(b"word")?;
        let mut word = [0; 4];
        to.read_exact(&mut word)?;
        assert_eq!(&word, b"word");
    }
    Ok(())
}

/// A counter of IPv4 of the namespace that this runs in, by its line and its name in `/proc/net/snmp`.
pub(crate) fn snmp(protocol: &str, name: &str) -> u64 {
    let counters = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
    let mut lines = counters
        .lines()
        .filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(':'));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    let found = both.find(|(found, _)| *found == name);
    let (_, value) = found.expect("the kernel has it");
    value.parse().expect("a number")
}

/// Packets that found no room in the queue of a CPU: all namespaces of this machine share these, so that a test which sends as fast as it
/// can takes the room of others.
/// <https://elixir.bootlin.com/linux/v6.18/source/net/core/net-procfs.c>, `softnet_seq_show`
pub(crate) fn without_room() -> u64 {
    let counters = std::fs::read_to_string("/proc/net/softnet_stat").expect("counters");
    let dropped = counters.lines().map(|cpu| cpu.split_whitespace().nth(1).expect("two"));
    dropped
        .map(|dropped| u64::from_str_radix(dropped, 16).expect("a number"))
        .sum()
}

/// How long is waited for something that must not come.
pub(crate) const MOMENT: Duration = Duration::from_millis(300);

/// Says that it is over when it is dropped: also in a test that fails, whose threads would go on otherwise.
pub(crate) struct AtEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

//! Two namespaces of netlab's joined by a veth, and what the tests do in them.

pub(crate) mod packets;

use std::fs;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::panic::resume_unwind;
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ringside_netlab::{End, Lab, Namespace, VethConfig};
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketType, recv, socket};
use rustix::thread::{CapabilitySet, CpuSet, capabilities, sched_setaffinity, set_capabilities};

/// Much longer than packets take to arrive and to be counted. A lost ARP request is repeated after
/// a second.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Both ends have this name, each in its namespace.
pub(crate) const DEVICE: &str = "veth0";

pub(crate) struct Pair {
    pub(crate) left: Side,
    pub(crate) right: Side,
    _lab: Lab,
}

/// A namespace with an end of the veth.
pub(crate) struct Side {
    namespace: Arc<Namespace>,
    index: u32,
}

impl Pair {
    /// Creates a pair with two queues. Its namespaces are without IPv6, whose router solicitations
    /// and multicast reports would be among the counted packets.
    pub(crate) fn new() -> Self {
        let lab = Lab::veth(VethConfig {
            tag: "bpf".to_owned(),
            queues: 2,
            ipv6: false,
            static_neighbours: false,
            ..VethConfig::named(DEVICE, DEVICE)
        });
        let lab = lab.expect("a veth");
        let side = |end: &End| Side {
            namespace: Arc::clone(&end.ns),
            index: end.interface.index(),
        };
        let pair = Self {
            left: side(&lab.a),
            right: side(&lab.b),
            _lab: lab,
        };
        for side in [&pair.left, &pair.right] {
            // For interfaces that tests add.
            side.enter(|_| fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap());
        }
        pair
    }
}

impl Side {
    /// Runs `work` on a thread of its own inside the namespace, with the device's index.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce(u32) -> T + Send) -> T {
        self.namespace.run(|| work(self.index))
    }

    pub(crate) fn command(&self, command: &str) {
        let mut words = command.split_whitespace();
        let mut program = self.namespace.command(words.next().unwrap());
        let done = program.args(words).stdin(Stdio::null()).output();
        let done = done.unwrap_or_else(|error| panic!("{command}: {error}"));
        assert!(done.status.success(), "{command}: {done:?}");
    }
}

/// The calling thread's CPU from now on.
pub(crate) fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).unwrap();
}

/// Without CAP_PERFMON: the verifier refuses what parses by pointer.
pub(crate) const LEAST: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::NET_ADMIN);

/// Runs `work` on a thread of its own that has no capabilities but these.
pub(crate) fn with_only<T: Send>(held: CapabilitySet, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective = held;
            set_capabilities(None, sets).unwrap();
            work()
        });
        inside.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

pub(crate) use ringside_netlab::testing::is_root as privileged;

/// A packet socket that sees all that arrives in its namespace.
pub(crate) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// `patience` is how long it waits for one more frame.
    pub(crate) fn new(patience: Duration) -> Self {
        // ETH_P_ALL, in network byte order.
        let all = Protocol::from_raw(NonZeroU32::new(u16::to_be(3).into()).unwrap());
        let socket = socket(AddressFamily::PACKET, SocketType::RAW, Some(all)).unwrap();
        set_socket_timeout(&socket, Timeout::Recv, Some(patience)).unwrap();
        set_socket_recv_buffer_size_force(&socket, 4 << 20).unwrap();
        Self(socket)
    }

    /// What arrived until nothing more came.
    pub(crate) fn frames(&self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok((length, _)) = recv(&self.0, &mut buffer, RecvFlags::empty()) {
            frames.push(buffer[..length].to_vec());
        }
        frames
    }
}

/// What `read` gives once it does not change any more: packets may be on their way.
pub(crate) fn settled<T: PartialEq>(read: impl Fn() -> T) -> T {
    let mut last = read();
    loop {
        thread::sleep(Duration::from_millis(50));
        let now = read();
        if now == last {
            return now;
        }
        last = now;
    }
}

/// Packets that the device of the calling thread's namespace could not send.
pub(crate) fn tx_dropped() -> u64 {
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = table
        .lines()
        .find_map(|line| line.trim().strip_prefix("veth0:"))
        .unwrap();
    line.split_whitespace().nth(11).unwrap().parse().unwrap()
}

//! Two network namespaces joined by a veth, gone with the guard, also on panic.

pub(crate) mod packets;

use std::fs::{self, File};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::resume_unwind;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::netdevice::name_to_index;
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketType, recv, socket};
use rustix::thread::{
    CapabilitySet, CpuSet, LinkNameSpaceType, capabilities, move_into_link_name_space, sched_setaffinity,
    set_capabilities,
};

/// Both ends have this name, each in its namespace.
pub(crate) const DEVICE: &str = "veth0";

static NEXT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Pair {
    pub(crate) left: Namespace,
    pub(crate) right: Namespace,
}

pub(crate) struct Namespace {
    name: String,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |side| format!("rsb-{}-{number}-{side}", std::process::id());
        let pair = Self {
            left: Namespace::new(name("l")),
            right: Namespace::new(name("r")),
        };
        let (left, right) = (&pair.left.name, &pair.right.name);
        run(&format!(
            "ip -n {left} link add {DEVICE} address 02:00:00:00:00:01 numrxqueues 2 numtxqueues 2 \
             type veth peer name {DEVICE} address 02:00:00:00:00:02 numrxqueues 2 numtxqueues 2 netns {right}"
        ));
        for namespace in [&pair.left, &pair.right] {
            // No router solicitations and multicast reports among the packets that tests count.
            namespace.work(|| fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap());
        }
        for (namespace, host) in [(left, 1), (right, 2)] {
            run(&format!("ip -n {namespace} address add 10.77.0.{host}/24 dev {DEVICE}"));
            run(&format!("ip -n {namespace} link set {DEVICE} up"));
        }
        pair
    }
}

impl Namespace {
    fn new(name: String) -> Self {
        run(&format!("ip netns add {name}"));
        Self { name }
    }

    /// Runs `work` on a thread of its own inside the namespace, with the device's index.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce(u32) -> T + Send) -> T {
        self.work(|| {
            let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
            work(name_to_index(&socket, DEVICE).unwrap())
        })
    }

    fn work<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let file = File::open(format!("/run/netns/{}", self.name)).unwrap();
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                work()
            });
            inside.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    pub(crate) fn command(&self, command: &str) {
        run(&format!("ip netns exec {} {command}", self.name));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let removed = Command::new("ip").args(["netns", "delete", &self.name]).status();
        if !removed.is_ok_and(|status| status.success()) {
            eprintln!("the namespace {} could not be removed", self.name);
        }
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

fn run(command: &str) {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap())
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command}: {error}"));
    assert!(
        output.status.success(),
        "{command}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

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

//! The program and a `Decider` that know the same.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ringside_bpf::gateway::{
    CachedNeighbor, ConnectionKey, GatewayConfig, GatewayPort, GatewayProgram, NeighborKey, Outcome, PolicySince,
    PolicySlot, Sample, Samples, Sampling, Sizes, Tunnel,
};
use ringside_bpf::{Verdict, dry_run};
use ringside_gateway_core::conntrack::{Conntrack, Limits};
use ringside_gateway_core::decide::{Decider, Decision, PortSettings, Settings};
use ringside_gateway_core::policy::Policy;
use ringside_gateway_core::table::{Bindings, Encapsulation, Host, Limit, Neighbor};
use ringside_gateway_core::testing::corpus::{KNOWN_OPTION, RECEIVERS, VNI, gateway, host, mac, tenant};
use ringside_gateway_core::{Buffer, Firewall, Hosts, Neighbors, Roomy, TenantAddress, Underlay, Vni};
use ringside_wire::MacAddr;
use rustix::net::{AddressFamily, SocketType, socket};

use crate::common::Pair;
use crate::gateway::rules::{GENERATION, NOW, everything};

/// The loopback interface, where `BPF_PROG_TEST_RUN` says that packets come from.
pub(crate) const LOOPBACK: u32 = 1;
/// Of the second port: what is longer than the shortest packets is too long for it.
pub(crate) const SHORT: u16 = 120;
const LONG: u16 = 9000;
/// Some of what tenant 2 gets is longer, and some is not.
const LIMIT: NonZeroU16 = NonZeroU16::new(110).unwrap();

pub(crate) const SIZES: Sizes = Sizes {
    neighbors: 64,
    connections: 1024,
    queues: 2,
    sample_bytes: 65536,
};

/// How hosts are reached, and what is checked.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted {
    /// The hosts of most tenants have addresses of this family.
    pub(crate) v6: bool,
    pub(crate) source_check: bool,
    pub(crate) derive_source_port: bool,
    /// The way to tenant 2's host takes no more than [`LIMIT`].
    pub(crate) limited: bool,
    /// Rules are bound to these tenants, which allow everything; open connections go through the fast path.
    pub(crate) bound: &'static [u8],
}

pub(crate) struct Bed {
    pub(crate) program: GatewayProgram,
    pub(crate) config: GatewayConfig,
    /// How the host of a tenant is reached.
    pub(crate) ways: HashMap<IpAddr, (bool, Option<Tunnel>)>,
    pub(crate) wanted: Wanted,
    pub(crate) core: Core,
    /// Connections that the program has.
    pub(crate) handed: HashSet<ConnectionKey>,
    samples: Samples,
    worker: OwnedFd,
}

/// What user space decides by.
pub(crate) struct Core {
    pub(crate) decider: Decider,
    pub(crate) conntrack: Arc<Conntrack>,
    // The tables of the decider's readers.
    _neighbors: Neighbors,
    _bindings: Bindings,
    _policy: Policy,
}

/// What the program did with a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    pub(crate) verdict: Verdict,
    pub(crate) bytes: Vec<u8>,
}

fn host_mac(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 1, last]
}

/// Family of the host's address, port and encapsulation of a tenant's host.
fn way(last: u8, v6: bool) -> (bool, u8, Option<Tunnel>) {
    match last {
        3 => (!v6, 0, None),
        4 => (v6, 1, None),
        5 => (v6, 0, Some(Tunnel::Geneve)),
        6 => (!v6, 1, Some(Tunnel::Vxlan)),
        _ => (v6, 0, None),
    }
}

pub(crate) fn key(last: u8, v6: bool) -> NeighborKey {
    NeighborKey {
        vni: VNI,
        ip: tenant(last, v6),
    }
}

pub(crate) fn neighbor(last: u8, v6: bool) -> CachedNeighbor {
    let (host_v6, port, tunnel) = way(last, v6);
    CachedNeighbor {
        host: host(last, host_v6),
        host_mac: host_mac(last),
        mac: mac(last).0,
        port,
        tunnel,
        policed: false,
        foreign: false,
        guarded: false,
        mtu: None,
        mtu_until: None,
        used: false,
    }
}

fn ports(second: u32) -> Vec<Option<GatewayPort>> {
    let port = |ifindex, last, mtu| {
        let (IpAddr::V4(v4), IpAddr::V6(v6)) = (gateway(false), gateway(true)) else {
            unreachable!("one of each")
        };
        Some(GatewayPort {
            ifindex,
            mac: host_mac(last),
            v4: Some(v4),
            v6: Some(v6),
            mtu,
        })
    };
    vec![port(LOOPBACK, 0xfe, LONG), port(second, 0xfd, SHORT)]
}

/// Runs `work` where there are two interfaces: the loopback, and one with this index.
pub(crate) fn in_namespace<T: Send>(work: impl FnOnce(u32) -> T + Send) -> T {
    let pair = Pair::new();
    pair.left.enter(work)
}

impl Bed {
    pub(crate) fn new(second: u32, wanted: Wanted) -> Self {
        let program = GatewayProgram::load(SIZES).unwrap();
        let (entries, ways) = entries(wanted);
        assert_eq!(program.neighbors().put(&entries), entries.len());
        let config = GatewayConfig {
            source_check: wanted.source_check,
            derive_source_port: wanted.derive_source_port,
            check_windows: true,
            vxlan_port: 4789,
            geneve_port: 6081,
            addresses: vec![gateway(false), gateway(true)],
            known_options: vec![(7, 0x80), KNOWN_OPTION],
            ttl: 64,
            ports: ports(second),
            sampling: Some(Sampling::default()),
            ..GatewayConfig::default()
        };
        program.configure(&config).unwrap();
        let worker = socket(AddressFamily::XDP, SocketType::RAW, None).unwrap();
        program.set_worker(0, 0, worker.as_fd()).unwrap();
        let samples = program.samples().unwrap();
        let core = Core::new(&config, wanted);
        let mut bed = Self {
            program,
            config,
            ways,
            wanted,
            core,
            handed: HashSet::new(),
            samples,
            worker,
        };
        if bed.has_rules() {
            let since = (PolicySlot::of(VNI), PolicySince::first(GENERATION));
            bed.program.policies().put(&[since]).unwrap();
            bed.hand_over_all();
        }
        bed
    }

    pub(crate) fn underlay(&self) -> Underlay {
        underlay(&self.config)
    }

    /// Other settings for the program.
    pub(crate) fn configure(&mut self, edit: impl FnOnce(&mut GatewayConfig)) {
        edit(&mut self.config);
        self.program.configure(&self.config).unwrap();
    }

    /// Runs the program; each packet has a sample, in which is what came.
    pub(crate) fn run(&self, frame: &[u8]) -> Ran {
        let (verdict, bytes) = dry_run(&self.program, frame).unwrap();
        let [sample] = <[Sample; 1]>::try_from(self.samples()).expect("one sample a packet");
        assert_eq!(sample.length as usize, frame.len());
        assert_eq!(sample.bytes, frame[..frame.len().min(256)], "as it came");
        Ran {
            outcome: sample.outcome,
            verdict,
            bytes,
        }
    }

    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.samples.read(Duration::ZERO).unwrap()
    }

    /// The worker's socket is gone.
    pub(crate) fn close_worker(&mut self) {
        self.worker = File::open("/dev/null").unwrap().into();
    }

    /// What user space decides about the same frame.
    pub(crate) fn decide(&mut self, frame: &[u8]) -> (Decision, Vec<u8>) {
        let mut buffer = Roomy::new(frame, 128, 256);
        let has_rules = self.has_rules();
        let decision = self.core.decider.decide(NOW, 0, has_rules, &mut buffer);
        (decision, buffer.bytes().to_vec())
    }
}

type Entries = Vec<(NeighborKey, CachedNeighbor)>;

fn entries(wanted: Wanted) -> (Entries, HashMap<IpAddr, (bool, Option<Tunnel>)>) {
    let Wanted { v6, bound, .. } = wanted;
    let mut entries = Vec::new();
    let mut ways = HashMap::new();
    for inner_v6 in [false, true] {
        for last in [1].into_iter().chain(RECEIVERS) {
            let (host_v6, _, tunnel) = way(last, v6);
            let entry = CachedNeighbor {
                policed: bound.contains(&last),
                guarded: !bound.is_empty(),
                mtu: (wanted.limited && last == 2).then_some(LIMIT),
                ..neighbor(last, v6)
            };
            entries.push((key(last, inner_v6), entry));
            ways.insert(tenant(last, inner_v6), (host_v6, tunnel));
        }
    }
    (entries, ways)
}

fn underlay(config: &GatewayConfig) -> Underlay {
    Underlay {
        known_options: config.known_options.clone(),
        ..Underlay::at(&config.addresses)
    }
}

impl Core {
    /// From the same settings and entries.
    pub(crate) fn new(config: &GatewayConfig, wanted: Wanted) -> Self {
        let port = |port: &Option<GatewayPort>| {
            let port = port.expect("both are there");
            PortSettings {
                mac: MacAddr(port.mac),
                v4: port.v4,
                v6: port.v6,
                mtu: port.mtu,
            }
        };
        let settings = Settings {
            underlay: underlay(config),
            ports: config.ports.iter().map(port).collect(),
            source_check: config.source_check,
            derive_source_port: config.derive_source_port,
            ttl: config.ttl,
            errors_per_second: 1_000_000,
        };
        let (neighbors, hosts, bindings, policy) = (Neighbors::new(), Hosts::new(), Bindings::new(), Policy::new());
        let profile = everything(&policy);
        for (NeighborKey { ip, .. }, cached) in entries(wanted).0 {
            let host = hosts.intern(Host {
                ip: cached.host,
                mac: Some(MacAddr(cached.host_mac)),
                port: Some(cached.port),
                encapsulation: cached.tunnel.map(|tunnel| match tunnel {
                    Tunnel::Vxlan => Encapsulation::Vxlan,
                    Tunnel::Geneve => Encapsulation::Geneve,
                }),
            });
            hosts.limit(host, Limit::of(cached.mtu));
            let neighbor = Neighbor {
                mac: MacAddr(cached.mac),
                host,
                policy: if cached.policed { profile.number() } else { 0 },
                version: 1,
            };
            let address = TenantAddress::new(vni(), ip);
            neighbors.write().put(address, neighbor);
            if cached.policed {
                bindings.set(address, Some(profile));
            }
        }
        let limits = Limits {
            connections: 10_000,
            ..Limits::default()
        };
        let conntrack = Arc::new(Conntrack::new(limits));
        let decider = Decider::new(
            Arc::new(settings),
            neighbors.reader(),
            hosts.reader(),
            bindings.reader(),
            Firewall::new(&policy, Arc::clone(&conntrack)),
            32,
        );
        Self {
            decider,
            conntrack,
            _neighbors: neighbors,
            _bindings: bindings,
            _policy: policy,
        }
    }
}

pub(crate) fn vni() -> Vni {
    Vni::new(VNI).expect("24 bits")
}

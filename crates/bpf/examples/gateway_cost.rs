//! What the gateway's fast path costs a packet, by how many neighbours there are: beside the least that could do the same
//! look-up and rewrite in a hash of the kernel's, and beside that with the gateway's table in its place, in turns.
//!
//! `cargo run --release -p ringside-bpf --features testing --example gateway_cost [NEIGHBOURS …]`, as root
//!
//! With 1 neighbour: what a packet of a connection costs where rules are bound, of UDP, and of TCP
//! with its numbers followed and not.
//!
//! Each packet is for another receiver, at random: with many neighbours the look-up misses the CPU's caches. What making the
//! packets costs is measured, too, and taken off.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;

use ringside_bpf::gateway::cost::{Contender, Cost};
use ringside_bpf::gateway::{
    CachedConnection, CachedNeighbor, ConnectionKey, GatewayConfig, GatewayPort, GatewayProgram, NeighborKey,
    PolicySince, PolicySlot, Sizes, TcpNumbers, TcpSide,
};
use ringside_gateway_core::table::Encapsulation;
use ringside_gateway_core::testing::{Sent, tenant_ip, tenant_udp};
use ringside_measure::compare::{Round, figure, ratio};
use ringside_wire::{MacAddr, Protocol, tcp};
use rustix::net::{AddressFamily, SocketType, socket};

const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
const VNI: u32 = 5;
/// Enough for clocks that only go on with the kernel's tick to tell nanoseconds.
const RUNS: u32 = 2_000_000;
const ROUNDS: usize = 9;
const LOOPBACK: u32 = 1;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut sizes: Vec<u32> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![1_000, 100_000, 1_000_000, 1];
    }
    println!(
        "neighbours    fast path     least    the same with the table    least / fast path (95 %)    making packets    putting them"
    );
    for neighbors in sizes {
        measure(neighbors)?;
    }
    Ok(())
}

/// Returns the cost of a connection's packet in nanoseconds.
fn measure_connections(
    program: &GatewayProgram,
    cost: &Cost<'_>,
    tenants: [IpAddr; 2],
    macs: [MacAddr; 2],
) -> Result<(), Box<dyn std::error::Error>> {
    const PORTS: [u16; 2] = [1000, 2000];
    let mut bound = entry(0, macs[1].0);
    bound.1.policed = true;
    let sender = NeighborKey {
        vni: VNI,
        ip: tenants[0],
    };
    program.neighbors().put(&[bound, (sender, entry(0, macs[0].0).1)]);
    program
        .policies()
        .put(&[(PolicySlot::of(VNI), PolicySince::first(1))])?;
    let side = TcpSide {
        end: 0,
        limit: 64_000,
        window: 64_000,
        scale: 0,
    };
    let followed = TcpNumbers {
        since: 1,
        settled: true,
        sides: [side; 2],
    };
    let mut segment = [0; tcp::Header::MOST];
    let len = tcp::Header::new(PORTS[0], PORTS[1], tcp::Flags::ACK).emit(&mut segment)?;
    let segment = [&segment[..len], &[0; 52]].concat();
    let udp = tenant_udp(macs, tenants, PORTS, 64, &[0; 64]);
    let tcp = tenant_ip(macs, tenants, Protocol::TCP, &segment);
    let contenders = [
        (Protocol::UDP, &udp, None),
        (Protocol::TCP, &tcp, None),
        (Protocol::TCP, &tcp, Some(followed)),
    ];
    let mut rounds: [Vec<Round>; 3] = Default::default();
    for round in 0..=ROUNDS {
        for turn in 0..contenders.len() {
            let which = (round + turn) % contenders.len();
            let (protocol, frame, numbers) = contenders[which];
            let ends = [0, 1].map(|end| (tenants[end], PORTS[end]));
            let (key, from_higher) = ConnectionKey::new(VNI, protocol.0, ends[0], ends[1]);
            let connection = CachedConnection {
                generation: 1,
                seen: u64::MAX / 2,
                idle_ms: u32::MAX,
                from_higher,
                one_way: false,
                name: 1,
                numbers,
            };
            program.connections().put(&[(key, connection)])?;
            let hosts = [HOST.into(), OWN.into()];
            let packet = Sent::new(hosts, Encapsulation::Vxlan, VNI, frame.clone()).bytes();
            let gateway = cost.run(Contender::Gateway, &packet, RUNS)?.as_secs_f64();
            let nothing = cost.run(Contender::Nothing, &packet, RUNS)?.as_secs_f64();
            let own = (gateway - nothing) * 1e9 / f64::from(RUNS);
            if round > 0 {
                rounds[which].push(Round { value: own, steal: 0.0 });
            }
        }
    }
    let [udp, tcp, followed] = &rounds;
    let ratio = ratio(tcp, followed)?;
    println!(
        "of a connection: UDP {:.1} ns, TCP {:.1} ns, followed {:.1} ns: {:.3} ({:.3} to {:.3}) times as much",
        figure(udp)?.median,
        figure(tcp)?.median,
        figure(followed)?.median,
        ratio.median,
        ratio.low.unwrap_or(f64::NAN),
        ratio.high.unwrap_or(f64::NAN),
    );
    Ok(())
}

fn measure(neighbors: u32) -> Result<(), Box<dyn std::error::Error>> {
    let program = GatewayProgram::load(Sizes {
        neighbors: neighbors + 1,
        connections: 8,
        queues: 1,
        sample_bytes: 4096,
    })?;
    program.configure(&GatewayConfig {
        vxlan_port: 4789,
        geneve_port: 6081,
        addresses: vec![OWN.into()],
        ttl: 64,
        check_windows: true,
        ports: vec![Some(GatewayPort {
            ifindex: LOOPBACK,
            mac: [2, 0, 0, 0, 0, 0xfe],
            v4: Some(OWN),
            v6: None,
            mtu: 1500,
        })],
        ..GatewayConfig::default()
    })?;
    // As in service: somebody is there for what is not sent on.
    let worker = socket(AddressFamily::XDP, SocketType::RAW, None)?;
    program.set_worker(0, 0, worker.as_fd())?;
    let mac = [2, 0xaa, 0, 0, 0, 1];
    let entries: Vec<_> = (0..neighbors).map(|number| entry(number, mac)).collect();
    let begin = std::time::Instant::now();
    assert_eq!(
        program.neighbors().put(&entries),
        entries.len(),
        "there is room for all"
    );
    let put = begin.elapsed();

    let cost = Cost::load(&program, OWN, FIRST, neighbors)?;
    let tenants: [IpAddr; 2] = [Ipv4Addr::new(10, 255, 0, 1).into(), FIRST.into()];
    let macs = [MacAddr([2, 0xaa, 0, 0, 0, 2]), MacAddr(mac)];
    if neighbors == 1 {
        return measure_connections(&program, &cost, tenants, macs);
    }
    let frame = tenant_udp(macs, tenants, [1000, 2000], 64, &[0; 64]);
    let packet = Sent::new([HOST.into(), OWN.into()], Encapsulation::Vxlan, VNI, frame).bytes();
    let mut rounds: [Vec<f64>; 4] = Default::default();
    for round in 0..=ROUNDS {
        let contenders = [
            Contender::Gateway,
            Contender::Least,
            Contender::LeastTable,
            Contender::Nothing,
        ];
        // Each of them is first, and last, as often as the others.
        for turn in 0..contenders.len() {
            let which = (round + turn) % contenders.len();
            let each = cost.run(contenders[which], &packet, RUNS)?.as_secs_f64() * 1e9 / f64::from(RUNS);
            // The first round fills the caches.
            if round > 0 {
                rounds[which].push(each);
            }
        }
    }
    let [gateway, least, table, nothing] = rounds;
    let off = |all: &[f64]| -> Vec<Round> {
        let own = all
            .iter()
            .zip(&nothing)
            .map(|(each, nothing)| (each - nothing).max(0.0));
        own.map(|value| Round { value, steal: 0.0 }).collect()
    };
    let (gateway, least, table) = (off(&gateway), off(&least), off(&table));
    let making: Vec<Round> = nothing.iter().map(|&value| Round { value, steal: 0.0 }).collect();
    let ratio = ratio(&gateway, &least)?;
    println!(
        "{neighbors:>10}    {:>6.1} ns    {:>6.1} ns       {:>6.1} ns                {:.3} ({:.3} to {:.3})         {:>6.1} ns      {:>6.0} ns each",
        figure(&gateway)?.median,
        figure(&least)?.median,
        figure(&table)?.median,
        ratio.median,
        ratio.low.unwrap_or(f64::NAN),
        ratio.high.unwrap_or(f64::NAN),
        figure(&making)?.median,
        put.as_secs_f64() * 1e9 / f64::from(neighbors),
    );
    Ok(())
}

fn entry(number: u32, mac: [u8; 6]) -> (NeighborKey, CachedNeighbor) {
    let key = NeighborKey {
        vni: VNI,
        ip: Ipv4Addr::from(u32::from(FIRST) + number).into(),
    };
    let [.., c, d] = number.to_be_bytes();
    let value = CachedNeighbor {
        host: Ipv4Addr::new(198, 18, c, d).into(),
        host_mac: [2, 0, 0, 0, c, d],
        mac,
        port: 0,
        tunnel: None,
        policed: false,
        foreign: false,
        guarded: false,
        mtu: None,
        mtu_until: None,
        used: true,
    };
    (key, value)
}

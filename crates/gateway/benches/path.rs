//! What the gateway's workers send on a second, beside `ringside fwd`, which only swaps MAC addresses; and its fast path, beside
//! the least XDP program that could do the same: the same bed, in turns.
//!
//! `cargo bench -p ringside-gateway --bench path [-- ROUNDS [SECONDS]] [workers] [fast] [others]`, as root, after `cargo build --release -p ringside`: all
//! three parts, or those that are named.
//!
//! The kernel's generator on CPU 0 sends VXLAN packets to receivers in an irregular order (of ten million to 8,388,608), workers run on CPU 1 (with two
//! queues both share both), and an XDP program counts what comes back. Then the same with packets that no straight lane is for: Geneve, IPv6 inside and
//! outside, and connections under rules.

mod common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::wire::{Result, Wire};
use ringside_bpf::gateway::cost::{Contender as Least, Cost};
use ringside_bpf::gateway::{CachedNeighbor, GatewayProgram, NeighborKey, Sizes};
use ringside_bpf::{GeneratorOptions, XdpMode};
use ringside_gateway::datapath::{PathOptions, XdpPath};
use ringside_gateway::model::{DataPath as _, Outcome, Tables, Unstored};
use ringside_gateway::object::{Change, Group, Port, Statement};
use ringside_gateway_core::conntrack::Limits;
use ringside_gateway_core::policy::{Direction, GroupId, Remote, Rule, RuleId, Service};
use ringside_gateway_core::table::{Encapsulation, Host, Neighbor};
use ringside_gateway_core::testing::{Sent, tenant_udp};
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_measure::compare::{Round, figure, ratio};
use ringside_wire::{MacAddr, geneve, vxlan};
use ringside_xsk::{Mode, Path};

const VNI: u32 = 5;
/// Where addresses of receivers begin; their lower bits are all there are.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
const SENDER: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
/// Ethernet, UDP and VXLAN (or Geneve), and the tenant's Ethernet: with the outer IP header the tenant's begins there.
const AROUND: usize = 14 + 8 + 8 + 14;
/// In a tenant's frame, over IPv4.
const UDP_CHECKSUM: usize = 14 + 20 + 6;
const SENDERS: MacAddr = MacAddr([2, 0xaa, 0, 0, 0, 2]);
const RECEIVER: MacAddr = MacAddr([2, 0xaa, 0, 0, 0, 1]);
/// Bits of the most addresses that packets go to, which are powers of two, and how many neighbours there are then.
const MOST: u32 = 23;
const TEN_MILLION: u32 = 10_000_000;

fn main() -> Result<()> {
    let mut numbers = common::numbers();
    let rounds = numbers.next().unwrap_or(9) as usize;
    let each = Duration::from_secs(numbers.next().unwrap_or(2).into());
    println!("packets of 128 bytes a second that are sent on, in millions; medians of {rounds} rounds of {each:?}");
    let measure = |contenders: &[(Contender, Traffic)], queues, bits| measure(contenders, queues, bits, rounds, each);
    type Part<'a> = (&'a str, fn(&Measure<'_>) -> Result<()>);
    let parts: [Part<'_>; 3] = [("workers", workers), ("fast", fast), ("others", others)];
    let is_wanted = |name: &str| std::env::args().any(|word| word == name);
    let all = !parts.iter().any(|(name, _)| is_wanted(name));
    for (_, part) in parts.iter().filter(|(name, _)| all || is_wanted(name)) {
        part(&measure)?;
    }
    Ok(())
}

/// Contenders in turns, on so many queues, with as many neighbours as addresses of so many bits.
type Measure<'a> = dyn Fn(&[(Contender, Traffic)], u32, u32) -> Result<()> + 'a;

fn workers(measure: &Measure<'_>) -> Result<()> {
    println!("\nqueues  neighbours   ringside fwd   workers   workers / fwd (95 %)");
    for queues in [1, 2] {
        for bits in [10, MOST] {
            print!("{queues:>6}  {:>10}", neighbors(bits));
            measure(&[Contender::Fwd, Contender::Workers].map(plain), queues, bits)?;
        }
    }
    Ok(())
}

fn fast(measure: &Measure<'_>) -> Result<()> {
    println!("\nneighbours   least, hash of the kernel's   least, our table   fast   fast / each of these (95 %)");
    for bits in [10, 17, 20] {
        let contenders = [
            Contender::Least(Least::Least),
            Contender::Least(Least::LeastTable),
            Contender::Fast,
        ];
        print!("{:>10}", neighbors(bits));
        measure(&contenders.map(plain), 1, bits)?;
    }
    Ok(())
}

/// What no straight lane is for.
fn others(measure: &Measure<'_>) -> Result<()> {
    println!("\nfast path, 1024 neighbours                plain   these   these / plain (95 %)");
    for traffic in OTHERS {
        print!("{:<38}", traffic.name());
        measure(&[plain(Contender::Fast), (Contender::Fast, traffic)], 1, 10)?;
    }
    println!("\nworkers, 1024 neighbours, one queue     ringside fwd   workers   workers / fwd (95 %)");
    for traffic in OTHERS {
        print!("{:<38}", traffic.name());
        measure(&[Contender::Fwd, Contender::Workers].map(|who| (who, traffic)), 1, 10)?;
    }
    Ok(())
}

fn plain(contender: Contender) -> (Contender, Traffic) {
    (contender, Traffic::Plain)
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Traffic {
    /// IPv4 in VXLAN over IPv4, in networks without rules.
    Plain,
    Geneve,
    SixInside,
    Six,
    /// As plain, of connections that rules allow and both sides have spoken on.
    Rules,
}

const OTHERS: [Traffic; 4] = [Traffic::Geneve, Traffic::SixInside, Traffic::Six, Traffic::Rules];

impl Traffic {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "IPv4 in VXLAN over IPv4",
            Self::Geneve => "IPv4 in Geneve over IPv4",
            Self::SixInside => "IPv6 in VXLAN over IPv4",
            Self::Six => "IPv6 in VXLAN over IPv6",
            Self::Rules => "connections under rules",
        }
    }

    fn encapsulation(self) -> (Encapsulation, u16) {
        match self {
            Self::Geneve => (Encapsulation::Geneve, geneve::PORT),
            _ => (Encapsulation::Vxlan, vxlan::PORT),
        }
    }

    fn is_six_inside(self) -> bool {
        matches!(self, Self::SixInside | Self::Six)
    }

    /// As it is inside.
    fn address(self, address: Ipv4Addr) -> IpAddr {
        if self.is_six_inside() {
            let number = u128::from(u32::from(address));
            IpAddr::V6(Ipv6Addr::from(0xfd00 << 112 | number))
        } else {
            IpAddr::V4(address)
        }
    }

    /// Of host and gateway.
    fn hosts(self, bed: &Wire) -> [IpAddr; 2] {
        let (a, b) = (&bed.lab.a, &bed.lab.b);
        match self {
            Self::Six => [a.ipv6.into(), b.ipv6.into()],
            _ => [a.ipv4.into(), b.ipv4.into()],
        }
    }

    /// Packets from the sender to receivers in no order, or from these to the sender.
    fn packets(self, bed: &Wire, bits: u32, replies: bool) -> (Vec<u8>, GeneratorOptions) {
        let mut macs = [SENDERS, RECEIVER];
        let (mut ips, mut ports) = ([SENDER, FIRST].map(|ip| self.address(ip)), [1000, 2000]);
        if replies {
            macs.reverse();
            ips.reverse();
            ports.reverse();
        }
        let payload = if self.is_six_inside() { 16 } else { 36 };
        let mut tenant = tenant_udp(macs, ips, ports, 64, &vec![0; payload]);
        if self == Self::Rules {
            // None, and the header's follows the address: damaged packets begin no connection.
            tenant[UDP_CHECKSUM..UDP_CHECKSUM + 2].fill(0);
        }
        let mut sent = Sent::new(self.hosts(bed), self.encapsulation().0, VNI, tenant);
        sent.macs = [MacAddr(bed.lab.a.mac), MacAddr(bed.lab.b.mac)];
        let bytes = sent.bytes();
        let inside = AROUND + if self == Self::Six { 40 } else { 20 };
        // The receivers' address is the end of what is counted there.
        let end = inside
            + match (self.is_six_inside(), replies) {
                (true, false) => 40,
                (true, true) => 24,
                (false, false) => 20,
                (false, true) => 16,
            };
        let first = bytes[end - 8..end].try_into().expect("eight bytes");
        let options = GeneratorOptions {
            sequence_offset: Some(end - 8),
            checksum_offset: (self == Self::Rules).then_some(inside + 10),
            first_sequence: u64::from_be_bytes(first),
            scattered_bits: bits,
            rewrite: 128.min(bytes.len()),
        };
        (bytes, options)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    /// `ringside fwd`, which only swaps MAC addresses.
    Fwd,
    /// The gateway, with its fast path off.
    Workers,
    /// The least XDP program that could do the same look-up and rewrite.
    Least(Least),
    /// The gateway with its fast path, which knows all.
    Fast,
}

impl Contender {
    /// What it sends on in one round, millions of packets a second.
    fn round(self, bed: &Wire, traffic: Traffic, queues: u32, bits: u32, each: Duration) -> Result<Round> {
        let neighbors = neighbors(bits);
        let interface = &bed.lab.b.interface;
        match self {
            Self::Fwd => {
                let _fwd = Fwd::start(bed, if queues == 1 { "1" } else { "1,0" })?;
                round(bed, traffic, bits, queues, each)
            }
            Self::Workers | Self::Fast => {
                let path = gateway(bed, traffic, self == Self::Fast, queues, neighbors)?;
                let round = round(bed, traffic, bits, queues, each)?;
                let counters = path.counters();
                let sent = [&counters.fast, &counters.slow].map(|path| path.forwarded_packets);
                if self == Self::Fast && sent[1] > sent[0] / 10 {
                    return Err(format!("{}: {sent:?} by the fast path and by workers", traffic.name()).into());
                }
                Ok(round)
            }
            Self::Least(least) => {
                let program = GatewayProgram::load(Sizes {
                    neighbors,
                    connections: 1,
                    queues: 1,
                    sample_bytes: 4096,
                })?;
                let value = CachedNeighbor {
                    host: bed.lab.a.ipv4.into(),
                    host_mac: bed.lab.a.mac,
                    mac: RECEIVER.0,
                    port: 0,
                    tunnel: None,
                    policed: false,
                    foreign: false,
                    guarded: false,
                    mtu: None,
                    mtu_until: None,
                    used: true,
                };
                let key = |number| NeighborKey {
                    vni: VNI,
                    ip: Ipv4Addr::from(u32::from(FIRST) + number).into(),
                };
                let entries: Vec<_> = (0..neighbors).map(|number| (key(number), value)).collect();
                if program.neighbors().put(&entries) != entries.len() {
                    return Err("there is no room for all".into());
                }
                let cost = Cost::load(&program, bed.lab.b.ipv4, FIRST, neighbors)?;
                let _link = bed
                    .lab
                    .b
                    .run(|| cost.attach(least, interface.index(), XdpMode::Native))?;
                round(bed, traffic, bits, queues, each)
            }
        }
    }
}

/// How many there are when packets go to addresses of so many bits.
fn neighbors(bits: u32) -> u32 {
    if bits == MOST { TEN_MILLION } else { 1 << bits }
}

/// A round on a wire: packets that came back, millions a second.
fn round(bed: &Wire, traffic: Traffic, bits: u32, queues: u32, each: Duration) -> Result<Round> {
    // Whoever was just started may want a moment.
    std::thread::sleep(Duration::from_millis(500));
    if traffic == Traffic::Rules {
        for replies in [false, true] {
            let (bytes, options) = traffic.packets(bed, bits, replies);
            bed.send(&bytes, options, 1, Duration::from_millis(200))?;
            // Workers come to an end with it, and hand connections over.
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    let (bytes, options) = traffic.packets(bed, bits, false);
    let sent = bed.send(&bytes, options, queues, each)?;
    Ok(Round {
        value: sent.returned as f64 / sent.seconds / 1e6,
        steal: sent.steal,
    })
}

/// `ringside fwd`, until it is dropped.
struct Fwd(Child);

impl Fwd {
    fn start(bed: &Wire, cpus: &str) -> Result<Self> {
        let program = beside("ringside")?;
        let mut command = bed.lab.b.ns.command(program);
        // Two would take the generators' CPUs for looking.
        let wait = if cpus == "1" { "spin" } else { "poll" };
        command.args(["fwd", bed.lab.b.interface.name(), "--mode", "native"]);
        command.args(["--cpus", cpus, "--wait", wait]);
        Ok(Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
    }
}

impl Drop for Fwd {
    fn drop(&mut self) {
        // Asked, it takes its files with it.
        let pid = self.0.id().to_string();
        _ = std::process::Command::new("kill").args(["-s", "TERM", &pid]).status();
        _ = self.0.wait();
    }
}

/// A program of the same build.
fn beside(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.ancestors().nth(2).ok_or("no folder of programs")?;
    let path = folder.join(name);
    if path.exists() {
        Ok(path)
    } else {
        Err(format!("{}: not there; cargo build --release -p {name}", path.display()).into())
    }
}

fn gateway(bed: &Wire, traffic: Traffic, fast: bool, queues: u32, neighbors: u32) -> Result<Arc<XdpPath>> {
    let tables = Arc::new(Tables::new(Limits {
        connections: 4096,
        ..Limits::default()
    }));
    let host = tables.hosts.intern(Host {
        ip: traffic.hosts(bed)[0],
        mac: Some(MacAddr(bed.lab.a.mac)),
        port: None,
        encapsulation: None,
    });
    let vni = Vni::new(VNI).ok_or("a number of a network")?;
    let mut writer = tables.neighbors.write();
    let receivers = (0..neighbors).map(|number| (Ipv4Addr::from(u32::from(FIRST) + number), RECEIVER));
    let tenants = receivers.chain([(SENDER, SENDERS)]);
    for (ip, mac) in tenants.clone() {
        let neighbor = Neighbor {
            mac,
            host,
            policy: 0,
            version: 1,
        };
        writer.put(TenantAddress::new(vni, traffic.address(ip)), neighbor);
    }
    drop(writer);
    let options = PathOptions {
        interfaces: vec![bed.lab.b.interface.name().to_owned()],
        mode: Mode::Require(Path::NativeCopy),
        fast,
        workers: queues as usize,
        cpus: if queues == 1 { vec![1] } else { vec![1, 0] },
        // What has nothing to do sleeps, as by default: two virtual CPUs may be two threads of one core.
        spin: queues == 1 && !fast,
        cached_neighbors: {
            let room = if fast { neighbors + 1 } else { 1 };
            room..=room
        },
        cached_connections: 8192,
        ..PathOptions::default()
    };
    let path = Arc::new(bed.lab.b.run(|| XdpPath::start(&options, &tables))?);
    if traffic == Traffic::Rules {
        let tenants = tenants.map(|(ip, _)| TenantAddress::new(vni, traffic.address(ip)));
        allow(tables, Arc::clone(&path), tenants);
    }
    Ok(path)
}

/// All of them get a security group that allows all.
fn allow(tables: Arc<Tables>, path: Arc<XdpPath>, tenants: impl Iterator<Item = TenantAddress>) {
    let rule = |number, direction| Rule {
        id: RuleId(number),
        direction,
        family: None,
        service: Service::Any,
        remote: Remote::Any,
    };
    let group = Group {
        id: GroupId(1),
        name: "all".to_owned(),
        rules: vec![rule(1, Direction::Ingress), rule(2, Direction::Egress)],
        version: 1,
    };
    let port = |address| Port {
        address,
        groups: vec![GroupId(1)],
        version: 1,
    };
    let mut changes = vec![Change::Group(Box::new(Statement::Put(group)))];
    changes.extend(tenants.map(|address| Change::Port(Statement::Put(port(address)))));
    let outcomes = Unstored::new(tables, path).apply(&changes);
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Created));
}

/// All in turns; then what the last sends on, as part of what each of the others does.
fn measure(contenders: &[(Contender, Traffic)], queues: u32, bits: u32, rounds: usize, each: Duration) -> Result<()> {
    let names = ["gwb-one", "gwb-two", "gwb-three"];
    let beds = contenders.iter().zip(1..).zip(names);
    let beds = beds.map(|((&(_, traffic), subnet), name)| Wire::of(name, queues, subnet, traffic.encapsulation().1));
    let beds = beds.collect::<Result<Vec<_>>>()?;
    let mut all = vec![Vec::new(); contenders.len()];
    // One at a time, so that nobody spins beside it; each is first as often as the others.
    for round in 0..rounds {
        for turn in 0..beds.len() {
            let which = (round + turn) % beds.len();
            let (contender, traffic) = contenders[which];
            all[which].push(contender.round(&beds[which], traffic, queues, bits, each)?);
        }
    }
    for rounds in &all {
        print!("   {:>7.3}", figure(rounds)?.median);
    }
    let (ours, others) = all.split_last().ok_or("nobody")?;
    for base in others {
        let ratio = ratio(base, ours)?;
        let [low, high] = [ratio.low, ratio.high].map(|end| end.unwrap_or(f64::NAN));
        print!("   {:.3} ({low:.3} to {high:.3})", ratio.median);
    }
    println!();
    Ok(())
}

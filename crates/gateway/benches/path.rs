//! What the gateway's workers send on a second, beside `ringside fwd`, which only swaps MAC addresses; and its fast path, beside
//! the least XDP program that could do the same: the same bed, in turns.
//!
//! `cargo bench -p ringside-gateway --bench path [-- ROUNDS [SECONDS]]`, as root, after `cargo build --release -p ringside`.
//!
//! The kernel's generator on CPU 0 sends VXLAN packets to receivers in an irregular order (of ten million to 8,388,608), workers run on CPU 1 (with two
//! queues both share both), and an XDP program counts what comes back.

mod common;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::wire::{Result, Wire};
use ringside_bpf::gateway::cost::{Contender as Least, Cost};
use ringside_bpf::gateway::{CachedNeighbor, GatewayProgram, NeighborKey, Sizes};
use ringside_bpf::{GeneratorOptions, XdpMode};
use ringside_gateway::datapath::{PathOptions, XdpPath};
use ringside_gateway::model::Tables;
use ringside_gateway_core::conntrack::Limits;
use ringside_gateway_core::table::{Encapsulation, Host, Neighbor};
use ringside_gateway_core::testing::{Sent, tenant_udp};
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_measure::compare::{Round, figure, ratio};
use ringside_wire::MacAddr;
use ringside_xsk::{Mode, Path};

const VNI: u32 = 5;
/// Where addresses of receivers begin; their lower bits are all there are.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
const SENDER: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
/// Outer Ethernet, IPv4, UDP, VXLAN, and the tenant's Ethernet: there the tenant's IP header begins, and its addresses after
/// twelve bytes.
const ADDRESSES: usize = 14 + 20 + 8 + 8 + 14 + 12;
const RECEIVER: MacAddr = MacAddr([2, 0xaa, 0, 0, 0, 1]);
/// Bits of the most addresses that packets go to, which are powers of two, and how many neighbours there are then.
const MOST: u32 = 23;
const TEN_MILLION: u32 = 10_000_000;

fn main() -> Result<()> {
    let mut words = common::numbers();
    let xdp = std::env::args().any(|word| word == "xdp");
    let rounds = words.next().unwrap_or(9) as usize;
    let each = Duration::from_secs(words.next().unwrap_or(2).into());
    println!("packets of 128 bytes a second that are sent on, in millions; medians of {rounds} rounds of {each:?}");
    println!("\nqueues  neighbours   ringside fwd   workers   workers / fwd (95 %)");
    for queues in if xdp { [].as_slice() } else { &[1, 2] } {
        for bits in [10, MOST] {
            measure(&[Contender::Fwd, Contender::Workers], *queues, bits, rounds, each)?;
        }
    }
    println!(
        "\nqueues  neighbours   least, hash of the kernel's   least, our table   fast   fast / each of these (95 %)"
    );
    for bits in [10, 17, 20] {
        let contenders = [
            Contender::Least(Least::Least),
            Contender::Least(Least::LeastTable),
            Contender::Fast,
        ];
        measure(&contenders, 1, bits, rounds, each)?;
    }
    Ok(())
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
    fn round(self, bed: &Wire, queues: u32, bits: u32, each: Duration) -> Result<Round> {
        let neighbors = neighbors(bits);
        let interface = &bed.lab.b.interface;
        match self {
            Self::Fwd => {
                let _fwd = Fwd::start(bed, if queues == 1 { "1" } else { "1,0" })?;
                round(bed, bits, queues, each)
            }
            Self::Workers | Self::Fast => {
                let _path = gateway(bed, self == Self::Fast, queues, neighbors)?;
                round(bed, bits, queues, each)
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
                round(bed, bits, queues, each)
            }
        }
    }
}

/// How many there are when packets go to addresses of so many bits.
fn neighbors(bits: u32) -> u32 {
    if bits == MOST { TEN_MILLION } else { 1 << bits }
}

/// A round on a wire: packets that came back, millions a second.
fn round(bed: &Wire, bits: u32, queues: u32, each: Duration) -> Result<Round> {
    let (a, b) = (&bed.lab.a, &bed.lab.b);
    let tenant = tenant_udp(
        [MacAddr([2, 0xaa, 0, 0, 0, 2]), RECEIVER],
        [SENDER.into(), FIRST.into()],
        [1000, 2000],
        64,
        &[0; 36],
    );
    let mut sent = Sent::new([a.ipv4.into(), b.ipv4.into()], Encapsulation::Vxlan, VNI, tenant);
    sent.macs = [MacAddr(a.mac), MacAddr(b.mac)];
    let options = GeneratorOptions {
        sequence_offset: Some(ADDRESSES),
        first_sequence: u64::from(u32::from(SENDER)) << 32 | u64::from(u32::from(FIRST)),
        scattered_bits: bits,
        rewrite: 80,
    };
    // Whoever was just started may want a moment.
    std::thread::sleep(Duration::from_millis(500));
    let sent = bed.send(&sent.bytes(), options, queues, each)?;
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

fn gateway(bed: &Wire, fast: bool, queues: u32, neighbors: u32) -> Result<XdpPath> {
    let tables = Arc::new(Tables::new(Limits {
        connections: 1000,
        ..Limits::default()
    }));
    let host = tables.hosts.intern(Host {
        ip: IpAddr::V4(bed.lab.a.ipv4),
        mac: Some(MacAddr(bed.lab.a.mac)),
        port: None,
        encapsulation: None,
    });
    let vni = Vni::new(VNI).ok_or("a number of a network")?;
    let mut writer = tables.neighbors.write();
    for number in 0..neighbors {
        let neighbor = Neighbor {
            mac: RECEIVER,
            host,
            policy: 0,
            version: 1,
        };
        writer.put(
            TenantAddress::new(vni, Ipv4Addr::from(u32::from(FIRST) + number).into()),
            neighbor,
        );
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
        cached_neighbors: if fast { neighbors } else { 1 },
        ..PathOptions::default()
    };
    Ok(bed.lab.b.run(|| XdpPath::start(&options, &tables))?)
}

/// All in turns; then what the last sends on, as part of what each of the others does.
fn measure(contenders: &[Contender], queues: u32, bits: u32, rounds: usize, each: Duration) -> Result<()> {
    let names = ["gwb-one", "gwb-two", "gwb-three"];
    let beds = (0..contenders.len()).map(|number| Wire::new(names[number], queues, u8::try_from(number + 1)?));
    let beds = beds.collect::<Result<Vec<_>>>()?;
    let mut all = vec![Vec::new(); contenders.len()];
    // One at a time, so that nobody spins beside it; each is first as often as the others.
    for round in 0..rounds {
        for turn in 0..beds.len() {
            let which = (round + turn) % beds.len();
            all[which].push(contenders[which].round(&beds[which], queues, bits, each)?);
        }
    }
    print!("{queues:>6}  {:>10}", neighbors(bits));
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

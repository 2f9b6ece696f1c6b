//! What the gateway's workers send on a second, beside `ringside fwd`, which only swaps MAC addresses; and its fast path, beside
//! the least XDP program that could do the same: the same bed, in turns.
//!
//! `cargo bench -p ringside-gateway --bench path [-- ROUNDS [SECONDS]]`, as root, after `cargo build --release -p ringside`.
//!
//! The kernel's generator on CPU 0 sends VXLAN packets to receivers in an irregular order, workers run on CPU 1 (with two
//! queues both share both), and an XDP program counts what comes back.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ringside_bpf::gateway::cost::Cost;
use ringside_bpf::gateway::{CachedNeighbor, GatewayProgram, NeighborKey, Sizes};
use ringside_bpf::{Generator, GeneratorOptions, Sink, XdpMode};
use ringside_gateway::datapath::{PathOptions, XdpPath};
use ringside_gateway::model::Tables;
use ringside_gateway_core::conntrack::Limits;
use ringside_gateway_core::table::{Encapsulation, Host, Neighbor};
use ringside_gateway_core::testing::{Sent, tenant_udp};
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_measure::compare::{Round, figure, ratio};
use ringside_netlab::{Lab, VethConfig};
use ringside_nic::host::CpuTimes;
use ringside_wire::MacAddr;
use ringside_xsk::{Mode, Path};

const VNI: u32 = 5;
const PORT: u16 = 4789;
/// Where addresses of receivers begin; their lower bits are all there are.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
const SENDER: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
/// Outer Ethernet, IPv4, UDP, VXLAN, and the tenant's Ethernet: there the tenant's IP header begins, and its addresses after
/// twelve bytes.
const ADDRESSES: usize = 14 + 20 + 8 + 8 + 14 + 12;
const RECEIVER: MacAddr = MacAddr([2, 0xaa, 0, 0, 0, 1]);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    // Cargo's own comes with them.
    let mut words = std::env::args().skip(1).filter_map(|word| word.parse::<u32>().ok());
    let rounds = words.next().unwrap_or(9) as usize;
    let each = Duration::from_secs(words.next().unwrap_or(2).into());
    println!("packets of 128 bytes a second that are sent on, in millions; medians of {rounds} rounds of {each:?}");
    println!("\nqueues  neighbours   ringside fwd   workers   workers / fwd (95 %)");
    for queues in [1, 2] {
        for bits in [10, 23] {
            measure([Contender::Fwd, Contender::Workers], queues, bits, rounds, each)?;
        }
    }
    println!("\nqueues  neighbours          least      fast   fast / least (95 %)");
    for bits in [10, 17, 20] {
        measure([Contender::Least, Contender::Fast], 1, bits, rounds, each)?;
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
    Least,
    /// The gateway with its fast path, which knows all.
    Fast,
}

impl Contender {
    /// What it sends on in one round, millions of packets a second.
    fn round(self, bed: &Bed, queues: u32, bits: u32, each: Duration) -> Result<Round> {
        let neighbors = 1 << bits;
        let interface = &bed.lab.b.interface;
        match self {
            Self::Fwd => {
                let _fwd = Fwd::start(bed, if queues == 1 { "1" } else { "1,0" })?;
                bed.round(bits, queues, each)
            }
            Self::Workers | Self::Fast => {
                let _path = gateway(bed, self == Self::Fast, queues, neighbors)?;
                bed.round(bits, queues, each)
            }
            Self::Least => {
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
                    used: true,
                };
                let key = |number| NeighborKey {
                    vni: VNI,
                    ip: Ipv4Addr::from(u32::from(FIRST) + number).into(),
                };
                let entries: Vec<_> = (0..neighbors).map(|number| (key(number), value)).collect();
                program.neighbors().put(&entries)?;
                let cost = Cost::load(&program, bed.lab.b.ipv4, FIRST, neighbors)?;
                let _link = bed
                    .lab
                    .b
                    .run(|| cost.attach_least(interface.index(), XdpMode::Native))?;
                bed.round(bits, queues, each)
            }
        }
    }
}

/// A wire with somebody who sends packets back at its other end.
struct Bed {
    lab: Lab,
    sink: Sink,
    _counting: ringside_bpf::Link,
}

impl Bed {
    fn new(tag: &str, queues: u32, subnet: u8) -> Result<Self> {
        let lab = Lab::veth(VethConfig {
            queues,
            subnet,
            ipv6: false,
            ..VethConfig::tagged(tag)
        })?;
        let sink = Sink::load_for_udp(PORT)?;
        let index = lab.a.interface.index();
        let counting = lab.a.run(|| sink.attach(index, XdpMode::Native))?;
        Ok(Self {
            lab,
            sink,
            _counting: counting,
        })
    }

    /// Packets that came back, a second.
    fn round(&self, bits: u32, queues: u32, each: Duration) -> Result<Round> {
        let (a, b) = (&self.lab.a, &self.lab.b);
        let tenant = tenant_udp(
            [MacAddr([2, 0xaa, 0, 0, 0, 2]), RECEIVER],
            [SENDER.into(), FIRST.into()],
            [1000, 2000],
            64,
            &[0; 36],
        );
        let mut sent = Sent::new([a.ipv4.into(), b.ipv4.into()], Encapsulation::Vxlan, VNI, tenant);
        sent.macs = [MacAddr(a.mac), MacAddr(b.mac)];
        let frame = sent.bytes();
        let options = GeneratorOptions {
            sequence_offset: Some(ADDRESSES),
            first_sequence: u64::from(u32::from(SENDER)) << 32 | u64::from(u32::from(FIRST)),
            scattered_bits: bits,
            rewrite: 80,
        };
        // Whoever was just started may want a moment.
        std::thread::sleep(Duration::from_millis(500));
        let before = (self.sink.traffic()?.packets, CpuTimes::read()?);
        let began = std::time::Instant::now();
        let stop = AtomicBool::new(false);
        let generate = |cpu: usize| -> std::result::Result<(), String> {
            pin(cpu);
            let mut generator =
                Generator::new(a.interface.index(), &frame, options).map_err(|error| error.to_string())?;
            generator.run_for(each, &stop).map_err(|error| error.to_string())?;
            Ok(())
        };
        a.run(|| {
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..queues as usize)
                    .map(|cpu| scope.spawn(move || generate(cpu)))
                    .collect();
                threads
                    .into_iter()
                    .try_for_each(|thread| thread.join().expect("a generator does not panic"))
            })
        })?;
        let took = began.elapsed().as_secs_f64();
        let (packets, times) = (self.sink.traffic()?.packets, CpuTimes::read()?);
        let sum = times.since(&before.1).sum();
        Ok(Round {
            value: (packets - before.0) as f64 / took / 1e6,
            steal: sum.steal as f64 / sum.total().max(1) as f64,
        })
    }
}

fn pin(cpu: usize) {
    let mut set = nix::sched::CpuSet::new();
    let pinned = set
        .set(cpu)
        .and_then(|()| nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set));
    pinned.expect("a CPU of this host");
}

/// `ringside fwd`, until it is dropped.
struct Fwd(Child);

impl Fwd {
    fn start(bed: &Bed, cpus: &str) -> Result<Self> {
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

fn gateway(bed: &Bed, fast: bool, queues: u32, neighbors: u32) -> Result<XdpPath> {
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
        spin: queues == 1,
        cached_neighbors: if fast { neighbors } else { 1 },
        ..PathOptions::default()
    };
    Ok(bed.lab.b.run(|| XdpPath::start(&options, &tables))?)
}

fn measure(contenders: [Contender; 2], queues: u32, bits: u32, rounds: usize, each: Duration) -> Result<()> {
    let beds = [Bed::new("gwb-one", queues, 1)?, Bed::new("gwb-two", queues, 2)?];
    let mut all: [Vec<Round>; 2] = Default::default();
    // One at a time, so that nobody spins beside it; each is first as often as the other.
    for round in 0..rounds {
        for turn in 0..beds.len() {
            let which = (round + turn) % beds.len();
            all[which].push(contenders[which].round(&beds[which], queues, bits, each)?);
        }
    }
    let [base, ours] = &all;
    let ratio = ratio(base, ours)?;
    println!(
        "{queues:>6}  {:>10}   {:>12.3}   {:>7.3}   {:.3} ({:.3} to {:.3})",
        1 << bits,
        figure(base)?.median,
        figure(ours)?.median,
        ratio.median,
        ratio.low.unwrap_or(f64::NAN),
        ratio.high.unwrap_or(f64::NAN),
    );
    Ok(())
}

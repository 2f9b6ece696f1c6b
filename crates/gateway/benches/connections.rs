//! Connections under security groups: how many can begin in a second, what a million of them takes in memory, how fast packets
//! of a million go, and what happens when there may be no more; and whole handshakes, and a million connections that are open.
//!
//! `cargo bench -p ringside-gateway --bench connections [-- ROUNDS] [handshakes]`, as root: a minute a round; only handshakes with that word.
//!
//! The program runs as a child with one worker, which looks for packets all the time on CPU 1. From CPU 0 the kernel's generator
//! sends it more packets than it can take, of flows between two tenants whose ports differ, in an irregular order: UDP, or TCP's
//! SYN. Nobody answers, so that all of it is the worker's.
//!
//! For handshakes a thread on CPU 0 is both tenants: it sends a SYN, answers what the gateway sends on, and has opened a connection
//! when the last of its three packets has come through the gateway. The caches are those that there are by default.

mod common;
#[path = "../tests/it/common/mod.rs"]
mod program;

use std::net::Ipv4Addr;
use std::time::Duration;

use common::handshakes::Hosts;
use common::wire::{Result, Sent, Wire};
use program::Folder;
use program::daemon::{Daemon, binary, configure};
use ringside_bpf::GeneratorOptions;
use ringside_gateway_core::table::Encapsulation;
use ringside_gateway_core::testing::{self, tenant_ip, tenant_udp};
use ringside_measure::compare::{Round, figure};
use ringside_netlab::{Lab, VethConfig};
use ringside_wire::tcp::{Flags, Header};
use ringside_wire::{MacAddr, Protocol, ethernet};
use serde_json::Value;

const VNI: u32 = 5;
/// Connections that there may be: as many as 20 bits of the two ports tell apart.
const LIMIT: u64 = 1 << BITS;
const BITS: u32 = 20;
const TENANTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
const MACS: [MacAddr; 2] = [MacAddr([2, 0xaa, 0, 0, 0, 1]), MacAddr([2, 0xaa, 0, 0, 0, 2])];
/// Outer Ethernet, IPv4, UDP and VXLAN.
const OUTER: usize = 14 + 20 + 8 + 8;
/// Where the receiver's address stands, and both ports behind it.
const RECEIVER_AND_PORTS: usize = OUTER + ethernet::HEADER_LEN + 16;

fn main() -> Result<()> {
    let rounds = common::numbers().next().unwrap_or(5);
    println!("{rounds} rounds: median (least to most)");
    let all = !std::env::args().any(|word| word == "handshakes");
    for protocol in [Protocol::UDP, Protocol::TCP].into_iter().filter(|_| all) {
        let wire = Wire::new("gwn", 1, 1)?;
        let mut seen: Vec<Seen> = Vec::new();
        for _ in 0..rounds {
            seen.push(round(&wire, protocol)?);
        }
        let what = if protocol == Protocol::UDP { "UDP" } else { "TCP, SYN" };
        println!("\n{what}");
        let show = |what: &str, of: fn(&Seen) -> Round| -> Result<()> {
            let figure = figure(&seen.iter().map(of).collect::<Vec<_>>())?;
            println!(
                "{what:<66} {:>8.3} ({:.3} to {:.3})",
                figure.median, figure.min, figure.max
            );
            Ok(())
        };
        show("connections that begin, with room, millions a second", |seen| seen.new)?;
        show("packets of a million connections sent on, millions a second", |seen| {
            seen.known
        })?;
        show("connections that begin, without room, millions a second", |seen| {
            seen.full
        })?;
        show("  in whose place an unanswered one ended, of 100", |seen| seen.evicted)?;
        show("  connections refused, of 100", |seen| seen.refused)?;
        show("memory of the program without connections, MB", |seen| seen.empty)?;
        show("the same for each of a million connections, bytes", |seen| seen.each)?;
    }
    let mut seen: Vec<Opened> = Vec::new();
    for _ in 0..rounds {
        seen.push(handshakes()?);
    }
    println!("\nTCP, {FLOWS} connections opened by both sides");
    for (what, of) in [
        (
            "handshakes through the gateway, thousands a second",
            (|seen| seen.rate) as fn(&Opened) -> f64,
        ),
        ("  of the last tenth", |seen| seen.last),
        ("  begun again for a packet that was lost, of 1000", |seen| seen.lost),
        (
            "packets on all of them, in an irregular order, millions a second",
            |seen| seen.talk,
        ),
        ("  of these by the fast path, of 100", |seen| seen.fast),
        ("memory of the program before, MB", |seen| seen.before),
        ("memory of the program with all of them, MB", |seen| seen.after),
        ("memory of the kernel's maps, MB", |seen| seen.maps),
        ("directions of connections in the fast path", |seen| seen.cached),
    ] {
        let values = seen.iter().map(|seen| Round {
            value: of(seen),
            steal: 0.0,
        });
        let figure = figure(&values.collect::<Vec<_>>())?;
        println!(
            "{what:<66} {:>8.3} ({:.3} to {:.3})",
            figure.median, figure.min, figure.max
        );
    }
    Ok(())
}

/// Connections that are opened by handshakes.
const FLOWS: u32 = 1_000_000;

/// What one round of handshakes has shown.
struct Opened {
    rate: f64,
    last: f64,
    lost: f64,
    talk: f64,
    fast: f64,
    before: f64,
    after: f64,
    maps: f64,
    cached: f64,
}

fn handshakes() -> Result<Opened> {
    let lab = Lab::veth(VethConfig {
        ipv6: false,
        ..VethConfig::tagged("gwh")
    })?;
    let daemon = start(&lab, "");
    let before = common::memory_of(&daemon.child);
    let syn_ack = Flags(Flags::SYN.0 | Flags::ACK.0);
    let packets = [
        segment(&lab, [0, 1], Flags::SYN, [1000, 0]),
        segment(&lab, [1, 0], syn_ack, [5000, 1001]),
        segment(&lab, [0, 1], Flags::ACK, [1001, 5001]),
    ];
    let mut hosts = Hosts::new(&lab, packets, RECEIVER_AND_PORTS + 4)?;
    let opened = hosts.open(FLOWS)?;
    let statistics = || -> Value { serde_json::from_str(&daemon.ok(&["stats", "--json"])).expect("JSON") };
    let established = statistics()["connections"]["states"]["established"].as_u64();
    if established != Some(FLOWS.into()) {
        return Err(format!("{established:?} of {FLOWS} connections are open").into());
    }
    let after = common::memory_of(&daemon.child);
    let forwarded = |path: &str| -> f64 {
        let all = statistics();
        let mut paths = all["paths"].as_array().expect("paths").iter();
        let path = paths.find(|one| one["path"] == path).expect("both");
        path["forwarded-packets"].as_f64().unwrap_or_default()
    };
    // What workers have handed over is in the cache by then.
    hosts.talk(FLOWS, Duration::from_secs(3))?;
    let ways = ["fast", "slow"];
    let first = ways.map(forwarded);
    let talk = hosts.talk(FLOWS, Duration::from_secs(2))?;
    let last = ways.map(forwarded);
    let [fast, slow] = [last[0] - first[0], last[1] - first[1]];
    let cached = statistics()["connection-cache"]["entries"].as_f64();
    Ok(Opened {
        rate: f64::from(FLOWS) / opened.seconds / 1e3,
        last: f64::from(FLOWS / 10) / opened.last_seconds / 1e3,
        lost: opened.lost as f64 * 1e3 / f64::from(FLOWS),
        talk: talk / 1e6,
        fast: fast * 100.0 / (fast + slow).max(1.0),
        before: before as f64 / 1e6,
        after: after as f64 / 1e6,
        maps: common::maps_of(&daemon.child) as f64 / 1e6,
        cached: cached.unwrap_or_default(),
    })
}

/// What one round has shown.
struct Seen {
    new: Round,
    known: Round,
    full: Round,
    evicted: Round,
    refused: Round,
    empty: Round,
    each: Round,
}

fn round(wire: &Wire, protocol: Protocol) -> Result<Seen> {
    let daemon = start(&wire.lab, SMALL);
    let (udp, tcp) = (first_packet(wire, Protocol::UDP), first_packet(wire, Protocol::TCP));
    let frame = if protocol == Protocol::UDP { udp } else { tcp };
    let send = |ports: u32, bits: u32, time: f64| -> Result<Sent> {
        let options = GeneratorOptions {
            sequence_offset: Some(RECEIVER_AND_PORTS),
            checksum_offset: Some(RECEIVER_AND_PORTS + 4 + checksum_at(protocol)),
            first_sequence: u64::from(u32::from(TENANTS[1])) << 32 | u64::from(ports),
            scattered_bits: bits,
            rewrite: 80,
        };
        let sent = wire.send(&frame, options, 1, Duration::from_secs_f64(time))?;
        // What is in the rings is worked through in no time.
        std::thread::sleep(Duration::from_millis(50));
        Ok(sent)
    };
    let empty = common::memory_of(&daemon.child);
    // Fewer packets than flows, so that all begin one.
    let begun = Counts::of(&daemon);
    let sent = send(1000 << 16, BITS, 0.2)?;
    let new = Counts::of(&daemon).since(&begun);
    if sent.offered > LIMIT || new.known >= LIMIT {
        return Err(format!("{} packets were too many", sent.offered).into());
    }
    let new = per_second(new.begun, &sent);
    for _ in 0..60 {
        // Some are always among those that are too many.
        if Counts::of(&daemon).known >= LIMIT / 100 * 99 {
            break;
        }
        send(1000 << 16, BITS, 1.0)?;
    }
    let full = Counts::of(&daemon);
    if full.known < LIMIT / 100 * 99 {
        return Err(format!("only {} of {LIMIT} connections have begun", full.known).into());
    }
    let memory = common::memory_of(&daemon.child);
    let sent = send(1000 << 16, BITS, 1.0)?;
    let known = per_second(sent.returned, &sent);
    // Sixteen times as many others.
    let before = Counts::of(&daemon);
    let sent = send(8192 << 16, BITS + 4, 1.0)?;
    let since = Counts::of(&daemon).since(&before);
    let percent = |count: u64, of: u64| Round {
        value: count as f64 * 100.0 / of.max(1) as f64,
        steal: sent.steal,
    };
    let quiet = |value| Round { value, steal: 0.0 };
    Ok(Seen {
        new,
        known,
        full: per_second(since.begun, &sent),
        evicted: percent(since.evicted, since.begun),
        refused: percent(since.refused, since.begun + since.refused),
        empty: quiet(empty as f64 / 1e6),
        each: quiet(memory.saturating_sub(empty) as f64 / full.known as f64),
    })
}

fn per_second(count: u64, sent: &Sent) -> Round {
    Round {
        value: count as f64 / sent.seconds / 1e6,
        steal: sent.steal,
    }
}

/// Nothing is handed over.
const SMALL: &str = "cached-neighbors = 4096\ncached-connections = 4096\n";

/// With two tenants on the host at the other end, whom rules allow to speak with each other. No connection times out meanwhile.
fn start(lab: &Lab, caches: &str) -> Daemon {
    let folder = Folder::new();
    let (host, interface) = (&lab.a, lab.b.interface.name());
    let more = format!(
        "[connections]\nlimit = {LIMIT}\nper-tenant = {LIMIT}\n\
         timeout-seconds = {{ udp-unreplied = 3600, syn-sent = 3600 }}\n[path]\ninterface = \"{interface}\"\nmode = \"native\"\n\
         workers = 1\ncpus = [1]\nspin = true\n{caches}"
    );
    let config = configure(&folder, "store.db", &more);
    let mut text =
        "groups:\n  - id: 1\n    rules: [{id: 1, direction: ingress}, {id: 2, direction: egress}]\n".to_owned();
    let (mut neighbors, mut ports) = ("neighbors:\n".to_owned(), "ports:\n".to_owned());
    for (ip, mac) in TENANTS.into_iter().zip(MACS) {
        let place = format!("{{ip: \"{}\", mac: \"{}\"}}", host.ipv4, MacAddr(host.mac));
        neighbors.push_str(&format!(
            "  - {{vni: {VNI}, ip: \"{ip}\", mac: \"{mac}\", host: {place}}}\n"
        ));
        ports.push_str(&format!("  - {{vni: {VNI}, ip: \"{ip}\", groups: [1]}}\n"));
    }
    text.push_str(&ports);
    text.push_str(&neighbors);
    let objects = folder.join("objects.yaml");
    std::fs::write(&objects, text).expect("a file");
    let mut command = lab.b.ns.command(binary().get_program());
    command.arg("--config").arg(config);
    let daemon = Daemon::spawn(folder, command);
    daemon.ok(&["apply", "-f", objects.to_str().expect("UTF-8")]);
    daemon
}

/// The first packet of a connection, in a tunnel from the host to the gateway.
fn first_packet(wire: &Wire, protocol: Protocol) -> Vec<u8> {
    if protocol == Protocol::TCP {
        return segment(&wire.lab, [0, 1], Flags::SYN, [0, 0]);
    }
    // As long as TCP's header.
    tunnelled(
        &wire.lab,
        tenant_udp(MACS, TENANTS.map(Into::into), [1000, 2000], 64, &[0; 12]),
    )
}

/// Where a protocol's checksum is, from its ports on.
fn checksum_at(protocol: Protocol) -> usize {
    if protocol == Protocol::TCP { 16 } else { 6 }
}

/// A segment without data from one tenant to the other, with these numbers: its own, and what it acknowledges.
fn segment(lab: &Lab, [from, to]: [usize; 2], flags: Flags, [sequence, acknowledgment]: [u32; 2]) -> Vec<u8> {
    let (macs, ips) = ([MACS[from], MACS[to]], [TENANTS[from], TENANTS[to]].map(Into::into));
    let header = Header {
        sequence,
        acknowledgment,
        ..Header::new(1000, 2000, flags)
    };
    let mut segment = [0; Header::MOST];
    let len = header.emit(&mut segment).expect("room");
    let frame = tenant_ip(macs, ips, Protocol::TCP, &segment[..len]);
    tunnelled(lab, frame)
}

/// From the host to the gateway.
fn tunnelled(lab: &Lab, frame: Vec<u8>) -> Vec<u8> {
    let (host, gateway) = (&lab.a, &lab.b);
    let hosts = [host.ipv4.into(), gateway.ipv4.into()];
    let mut sent = testing::Sent::new(hosts, Encapsulation::Vxlan, VNI, frame);
    sent.macs = [MacAddr(host.mac), MacAddr(gateway.mac)];
    sent.bytes()
}

/// What the program has counted of connections.
#[derive(Debug, Clone, Copy)]
struct Counts {
    known: u64,
    begun: u64,
    evicted: u64,
    refused: u64,
}

impl Counts {
    fn of(daemon: &Daemon) -> Self {
        let all: Value = serde_json::from_str(&daemon.ok(&["stats", "--json"])).expect("JSON");
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let (connections, paths) = (&all["connections"], all["paths"].as_array().expect("paths"));
        let refused = |path: &Value| {
            let reasons = ["total-connections", "tenant-connections"];
            reasons
                .iter()
                .map(|reason| number(&path["dropped-packets"][*reason]))
                .sum::<u64>()
        };
        Self {
            known: number(&connections["connections"]),
            begun: number(&connections["events"]["begun"]),
            evicted: number(&connections["events"]["evicted-unreplied"]),
            refused: paths.iter().map(refused).sum(),
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            known: self.known,
            begun: self.begun - before.begun,
            evicted: self.evicted - before.evicted,
            refused: self.refused - before.refused,
        }
    }
}

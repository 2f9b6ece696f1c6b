//! What real tenants get through the gateway: iperf3 and ping between namespaces whose interfaces are the kernel's own VXLAN,
//! over the fast path, over workers alone, and through a gateway that is the kernel's own (a bridge and VXLAN endpoints);
//! the first two with security groups as well, and once without `check-windows`; and over workers on both CPUs, and over one that looks
//! for packets all the time.
//!
//! `cargo bench -p ringside-gateway --bench tenants [-- ROUNDS [SECONDS]] [apart] [moderated] [NAME...]`, as root. Names choose some
//! of those. With `apart` what the gateway has sent is
//! received by a kernel thread, which the scheduler puts where there is room: as if it were another machine, and no part of the gateway's own
//! system call or softirq. With `moderated` hosts take what comes when the first packet of it is 50 µs old, as a NIC's interrupt
//! moderation has them do; a veth tells of each packet at once. All beds are there at once, and each
//! measures in its turn; ratios are of what was measured in the same round. On no wire is a packet longer than the wire's or
//! without its checksums, as between hosts with NICs.

#[path = "../tests/it/bed.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the tests")]
mod bed;
#[path = "../tests/it/common/mod.rs"]
mod common;
#[path = "../tests/it/kernel.rs"]
mod kernel;
#[path = "../tests/it/peers.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod peers;
#[path = "../../cli/tests/it/common/process.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests")]
mod process;
#[path = "../tests/it/ringside.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod ringside;
#[path = "../tests/it/tenant.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod tenant;
#[path = "../tests/it/vtep.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod vtep;

use std::time::Duration;

use bed::{Bed, Family, Kind, Place};
use peers::{answered, iperf, ping};
use ringside::Ringside;
use ringside_bpf::Link;
use ringside_measure::compare::{Round, figure, ratio};
use ringside_nic::host::CpuTimes;
use serde_json::Value;
use tenant::wake_for_what_is_sent_back;

/// Bytes that a TCP segment carries, time stamps taken off.
const SEGMENT: f64 = 1398.0;
/// For how long a moderated NIC keeps its first packet to itself: what drivers of servers' NICs begin with.
const MODERATION: Duration = Duration::from_micros(50);
/// Echoes of a round, a millisecond apart.
const ECHOES: usize = 1000;

struct Contender {
    name: &'static str,
    kind: Kind,
    /// Rules are bound to the tenants, so that connections are tracked.
    policed: bool,
}

const SLOW: Kind = Kind::Ringside(Ringside {
    fast: false,
    ..Ringside::FAST
});

/// On both CPUs, as the fast path is: packets of one flow are one queue's all the same.
const SLOW_ON_BOTH: Kind = Kind::Ringside(Ringside {
    queues: 2,
    fast: false,
    more: "workers = 2\ncpus = [0, 1]",
    ..Ringside::FAST
});

/// With a CPU of its own to look for packets on.
const SLOW_AWAKE: Kind = Kind::Ringside(Ringside {
    fast: false,
    more: "workers = 1\ncpus = [1]\nspin = true",
    ..Ringside::FAST
});

const UNCHECKED: Kind = Kind::Ringside(Ringside {
    more: "check-windows = false",
    ..Ringside::FAST
});

const CONTENDERS: [Contender; 8] = [
    Contender {
        name: "kernel",
        kind: Kind::Kernel { summed: true },
        policed: false,
    },
    Contender {
        name: "fast",
        kind: Kind::Ringside(Ringside::FAST),
        policed: false,
    },
    Contender {
        name: "slow",
        kind: SLOW,
        policed: false,
    },
    Contender {
        name: "fast+groups",
        kind: Kind::Ringside(Ringside::FAST),
        policed: true,
    },
    Contender {
        name: "slow+groups",
        kind: SLOW,
        policed: true,
    },
    Contender {
        name: "slow, 2 CPUs",
        kind: SLOW_ON_BOTH,
        policed: false,
    },
    Contender {
        name: "slow, awake",
        kind: SLOW_AWAKE,
        policed: false,
    },
    Contender {
        name: "unchecked",
        kind: UNCHECKED,
        policed: true,
    },
];

/// Which are printed as a ratio to which.
const PAIRS: [(usize, usize); 10] = [
    (1, 0),
    (2, 0),
    (6, 0),
    (2, 1),
    (5, 1),
    (6, 1),
    (3, 1),
    (4, 2),
    (4, 3),
    (3, 7),
];

/// What is measured, and its unit.
const FIGURES: [&str; 11] = [
    "TCP, 1 stream, Gbit/s",
    "  segments that are sent again, of 10,000",
    "TCP, 4 streams, Gbit/s",
    "  segments that are sent again, of 10,000",
    // Where something else than the way's CPU is the limit, as a link is.
    "TCP, 1 stream of at most 0.5 Gbit/s, Gbit/s",
    "TCP, 1 stream of at most 1 Gbit/s, Gbit/s",
    "UDP of 64 bytes, thousands that arrive a second",
    "  of which so many of 100 are lost",
    "ping, least, us",
    "ping, median, us",
    "ping, 99 of 100, us",
];

fn main() {
    let mut words = std::env::args().skip(1).filter_map(|word| word.parse::<u32>().ok());
    let rounds = words.next().unwrap_or(7) as usize;
    let seconds = words.next().unwrap_or(1);
    let is_named = |contender: &Contender| std::env::args().any(|word| word == contender.name);
    let is_any_named = CONTENDERS.iter().any(is_named);
    let chosen = (0..CONTENDERS.len()).filter(|&which| !is_any_named || is_named(&CONTENDERS[which]));
    let mut beds: Vec<(usize, Bed)> = chosen.map(|which| (which, CONTENDERS[which].bed(which + 1))).collect();
    let [apart, moderated] = ["apart", "moderated"].map(|word| std::env::args().any(|said| said == word));
    let _links = (apart || moderated).then(|| receive(&beds, apart, moderated));
    let mut all: Vec<[Vec<Round>; FIGURES.len()]> = CONTENDERS.iter().map(|_| Default::default()).collect();
    for round in 0..rounds {
        for turn in 0..beds.len() {
            // Each is first as often as the others.
            let turn = (round + turn) % beds.len();
            let (which, bed) = &mut beds[turn];
            CONTENDERS[*which].wake(bed, true);
            for (rounds, round) in all[*which].iter_mut().zip(measure(bed, seconds)) {
                rounds.push(round);
            }
            CONTENDERS[*which].wake(bed, false);
        }
    }
    println!("{rounds} rounds of {seconds} s and of {ECHOES} echoes: median (least to most)");
    for (at, what) in FIGURES.into_iter().enumerate() {
        println!("\n{what}");
        for (which, _) in &beds {
            let (contender, rounds) = (&CONTENDERS[*which], &all[*which]);
            match figure(&rounds[at]) {
                Ok(figure) => println!(
                    "  {:<12} {:>9.3} ({:.3} to {:.3}), {} rounds",
                    contender.name, figure.median, figure.min, figure.max, figure.rounds_used
                ),
                Err(error) => println!("  {:<12} {error}", contender.name),
            }
        }
        // Losses of a few are no ratio.
        let pairs = if what.starts_with(' ') { &[][..] } else { &PAIRS };
        for &(one, base) in pairs {
            let Ok(ratio) = ratio(&all[base][at], &all[one][at]) else {
                continue;
            };
            let names = format!("{} / {}", CONTENDERS[one].name, CONTENDERS[base].name);
            let [low, high] = [ratio.low, ratio.high].map(|end| end.unwrap_or(f64::NAN));
            println!("    {names:<26} {:.2} [{low:.2}-{high:.2}]", ratio.median);
        }
    }
}

impl Contender {
    fn bed(&self, number: usize) -> Bed {
        let mut bed = Bed::new(&format!("gwt{number}"), self.kind, &[Place::vxlan(Family::V4); 2]);
        if self.policed {
            let mut text =
                "groups:\n  - {id: 1, rules: [{id: 1, direction: egress}, {id: 2, direction: ingress}]}\nports:\n"
                    .to_owned();
            for tenant in [1, 2].map(|host| bed.at(host).card) {
                text.push_str(&format!(
                    "  - {{vni: {}, ip: \"{}\", groups: [1]}}\n",
                    tenant.vni, tenant.v4
                ));
            }
            bed.ringside().apply(&text);
        }
        // Also the first echoes find all that they need.
        answered(bed.at(1), bed.at(2).address(Family::V4));
        self.wake(&mut bed, false);
        bed
    }

    /// Who never sleeps stands still in others' turns.
    fn wake(&self, bed: &mut Bed, wake: bool) {
        if self.kind == SLOW_AWAKE {
            bed.ringside().daemon().signal(if wake { "CONT" } else { "STOP" });
        }
    }
}

/// How hosts receive what comes from a gateway: by a thread of the kernel's, with moderated interrupts, or both. A veth has a NAPI instance for
/// that where an XDP program is, as the beds of ours have one; the kernel's own gateway gets the same.
fn receive(beds: &[(usize, Bed)], apart: bool, moderated: bool) -> Vec<Link> {
    let mut links = Vec::new();
    for (which, bed) in beds {
        let contender = &CONTENDERS[*which];
        for uplink in &bed.uplinks {
            let far = &uplink.b;
            if matches!(contender.kind, Kind::Kernel { .. }) {
                links.push(wake_for_what_is_sent_back(far, 1));
            }
            let set = || {
                if moderated {
                    far.interface.set_gro_flush_timeout(MODERATION)?;
                    far.interface.set_napi_defer_hard_irqs(1)?;
                }
                far.interface.set_napi_threaded(apart)
            };
            far.run(set).expect("a NAPI instance");
        }
    }
    links
}

fn measure(bed: &Bed, seconds: u32) -> [Round; FIGURES.len()] {
    let (from, to) = (bed.at(1), bed.at(2));
    let peer = (to, to.address(Family::V4));
    let tcp = |more: &str| {
        quietly(|| {
            let [client, _] = iperf(from, peer, &format!("--time {seconds} {more}"));
            let (sent, received) = (&client["end"]["sum_sent"], &client["end"]["sum_received"]);
            let segments = number(&sent["bytes"]) / SEGMENT;
            [
                number(&received["bits_per_second"]) / 1e9,
                number(&sent["retransmits"]) * 1e4 / segments,
            ]
        })
    };
    let [one, one_again] = tcp("");
    let [four, four_again] = tcp("--parallel 4");
    let [half, _] = tcp("--fq-rate 500M");
    let [whole, _] = tcp("--fq-rate 1G");
    let [datagrams, lost] = quietly(|| {
        let [_, server] = iperf(from, peer, &format!("--time {seconds} --udp --bitrate 0 --length 64"));
        let sum = &server["end"]["sum"];
        let (sent, lost) = (number(&sum["packets"]), number(&sum["lost_packets"]));
        [(sent - lost) / number(&sum["seconds"]) / 1e3, lost * 100.0 / sent]
    });
    let [least, median, most] = quietly(|| {
        let done = ping(from, peer.1, &format!("-c {ECHOES} -i 0.001"));
        let times = done.out.lines().filter_map(|line| {
            let (_, time) = line.split_once("time=")?;
            time.split_whitespace().next()?.parse::<f64>().ok()
        });
        let mut times: Vec<f64> = times.map(|milliseconds| milliseconds * 1e3).collect();
        // Some may be late, none is lost.
        assert!(times.len() > ECHOES * 9 / 10, "{done:#?}");
        times.sort_by(f64::total_cmp);
        [0, times.len() / 2, times.len() * 99 / 100].map(|at| times[at])
    });
    [
        one, one_again, four, four_again, half, whole, datagrams, lost, least, median, most,
    ]
}

/// With what the hypervisor took meanwhile.
fn quietly<const N: usize>(work: impl FnOnce() -> [f64; N]) -> [Round; N] {
    let times = CpuTimes::read().expect("/proc/stat");
    let values = work();
    let sum = CpuTimes::read().expect("/proc/stat").since(&times).sum();
    let steal = sum.steal as f64 / sum.total().max(1) as f64;
    values.map(|value| Round { value, steal })
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

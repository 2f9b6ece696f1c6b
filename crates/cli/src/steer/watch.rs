//! Counts where packets land, and what interrupts and CPUs did meanwhile.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, Result};
use ringside_bpf::{Error, LandingClass, LandingFor, Landings, Link};
use ringside_measure::schema::{
    SteerClass, SteerCount, SteerCpu, SteerLanding, SteerQueue, SteerResult, SteerRule, SteerTo,
};
use ringside_measure::steer;
use ringside_nic::host::Interruptions;
use ringside_nic::{Interface, Knob, QueueIrq, QueueKind};

use super::settings::Installed;
use super::values::{ClassArg, told};

/// Counting, from when it is begun.
pub(crate) struct Watch {
    interface: Interface,
    classes: Vec<ClassArg>,
    counter: Landings,
    /// Why not what AF_XDP sockets take.
    xsk_not_counted: Option<String>,
    /// Detaches the program.
    _link: Link,
    before: Host,
    packets: BTreeMap<u32, u64>,
    begun: Instant,
}

/// What the host has counted.
struct Host {
    hard: Interruptions,
    soft: Interruptions,
    /// By CPU.
    by_rps: Vec<(u32, u64)>,
}

impl Watch {
    /// Begins to count on an interface of the calling thread's namespace. UDP from `own_port` is dropped when it is counted.
    pub(crate) fn begin(interface: &Interface, classes: &[ClassArg], own_port: Option<u16>) -> Result<Self> {
        let counted: Vec<LandingClass> = classes.iter().map(ClassArg::counted).collect();
        let mut counter = match own_port {
            Some(port) => Landings::load_and_drop(&counted, port),
            None => Landings::load(&counted),
        }
        .context("counting where packets land")?;
        let xsk = counter.count_xsk(ringside_bpf::namespace(), interface.index());
        let link = counter
            .attach(interface.index())
            .context("counting where packets land")?;
        Ok(Self {
            interface: interface.clone(),
            classes: classes.to_vec(),
            counter,
            xsk_not_counted: xsk.err().map(|error| refused(&error)),
            _link: link,
            before: Host::read()?,
            packets: by_driver(interface),
            begun: Instant::now(),
        })
    }

    /// Packets of all classes so far.
    pub(crate) fn arrived(&self) -> Result<u64> {
        let counts = self.counter.counts()?;
        Ok(counts
            .iter()
            .filter(|one| one.class.is_some())
            .map(|one| one.packets)
            .sum())
    }

    /// What there was, judged: to be called in the interface's namespace, with what was sent of each class, if we did, and what was
    /// set, which is still there.
    pub(crate) fn end(
        self,
        sent: Option<&[u64]>,
        sender: Option<String>,
        installed: &mut [Installed],
    ) -> Result<SteerResult> {
        let elapsed = self.begun.elapsed();
        let landed = self.counter.counts()?;
        let of = |class: Option<usize>| {
            let of = landed.iter().filter(|landing| landing.class == class);
            let all = of.map(|landing| SteerLanding {
                queue: landing.queue,
                cpu: landing.cpu,
                to: match landing.to {
                    LandingFor::Xsk => SteerTo::Xsk,
                    LandingFor::XskGeneric => SteerTo::XskGeneric,
                    _ => SteerTo::Stack,
                },
                packets: landing.packets,
            });
            all.collect::<Vec<_>>()
        };
        let host = Host::read()?;
        let classes = self.classes.iter().enumerate().map(|(number, class)| SteerClass {
            flow: told(class.flow),
            wanted_queue: class.queue,
            wanted_cpu: class.cpu,
            sent_packets: sent.and_then(|sent| sent.get(number).copied()),
            landings: of(Some(number)),
        });
        let mut result = SteerResult {
            sender,
            elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
            classes: classes.collect(),
            others: of(None),
            cpus: host.cpus_since(&self.before),
            xsk_not_counted: self.xsk_not_counted,
            ..look(&self.interface, installed)?
        };
        let packets = by_driver(&self.interface);
        for queue in &mut result.queues {
            let (now, then) = (packets.get(&queue.queue), self.packets.get(&queue.queue));
            queue.driver_packets = now.zip(then).map(|(now, then)| now.saturating_sub(*then));
            queue.interrupts = queue
                .irq
                .map(|irq| host.interrupts_since(&self.before, irq))
                .unwrap_or_default();
        }
        result.sentences = steer::judge(&result);
        Ok(result)
    }
}

/// Why the kernel does not count for AF_XDP sockets, in a line.
fn refused(error: &Error) -> String {
    match error {
        Error::Load { source, .. } => format!("the kernel refuses the program that counts them ({source})"),
        other => other.to_string(),
    }
}

/// What there is where only threads were pinned, judged.
pub(crate) fn judged(interface: &Interface, installed: &mut [Installed]) -> Result<SteerResult> {
    let mut seen = look(interface, installed)?;
    seen.sentences = steer::judge(&seen);
    Ok(seen)
}

/// How an interface of the calling thread's namespace steers what it receives, and by what that was set, without any counts.
fn look(interface: &Interface, installed: &mut [Installed]) -> Result<SteerResult> {
    let irqs = interface.queue_irqs()?;
    let rules = interface.ntuple_rules()?.map(|rules| {
        let told = rules.into_iter().map(|rule| SteerRule {
            location: rule.location,
            flow: told(rule.flow),
            queue: rule.queue,
        });
        told.collect()
    });
    let mut rss_queues = interface.rss()?.map(|rss| rss.table).unwrap_or_default();
    rss_queues.sort_unstable();
    rss_queues.dedup();
    let queues = (0..interface.rx_queues()?).map(|number| queue(interface, number, &irqs));
    Ok(SteerResult {
        interface: interface.name().to_owned(),
        driver: interface.driver().ok().map(|driver| driver.name),
        sender: None,
        elapsed_ns: 0,
        settings: installed.iter().flat_map(|one| one.told.clone()).collect(),
        rules,
        rss_queues,
        classes: Vec::new(),
        others: Vec::new(),
        queues: queues.collect(),
        cpus: Vec::new(),
        xsk_not_counted: None,
        threads: installed.iter_mut().flat_map(Installed::ran).collect(),
        sentences: Vec::new(),
    })
}

fn queue(interface: &Interface, number: u32, irqs: &[QueueIrq]) -> SteerQueue {
    let irq = irqs.iter().find(|one| one.queue == number).map(|one| &one.irq);
    let rps = interface.knob(&Knob::RpsCpus { queue: number }).unwrap_or_default();
    SteerQueue {
        queue: number,
        irq: irq.map(|irq| irq.number),
        irq_name: irq.map(|irq| irq.name.clone()),
        irq_cpus: irq.map(|irq| irq.usage().allowed).unwrap_or_default(),
        interrupts: Vec::new(),
        driver_packets: None,
        rps_cpus: match rps.as_str() {
            "" | "none" => Vec::new(),
            list => crate::args::list(list).map(|list| list.0).unwrap_or_default(),
        },
    }
}

impl Host {
    fn read() -> Result<Self> {
        Ok(Self {
            hard: Interruptions::hard()?,
            soft: Interruptions::soft()?,
            by_rps: by_rps(&std::fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default()),
        })
    }

    fn interrupts_since(&self, before: &Self, irq: u32) -> Vec<SteerCount> {
        let counts = self.hard.since(&before.hard, &irq.to_string());
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        counts
            .map(|(cpu, count)| SteerCount {
                cpu,
                count: count.into(),
            })
            .collect()
    }

    fn cpus_since(&self, before: &Self) -> Vec<SteerCpu> {
        let of = |all: &[(u32, u64)], cpu| {
            all.iter()
                .find(|(other, _)| *other == cpu)
                .map_or(0, |(_, count)| *count)
        };
        let net_rx = self.soft.since(&before.soft, "NET_RX");
        net_rx
            .into_iter()
            .map(|(cpu, net_rx)| SteerCpu {
                cpu,
                net_rx: net_rx.into(),
                received_rps: of(&self.by_rps, cpu).saturating_sub(of(&before.by_rps, cpu)),
            })
            .collect()
    }
}

/// The column `received_rps` of each line, which is a CPU's: <https://elixir.bootlin.com/linux/v6.18/C/ident/softnet_seq_show>. The
/// CPU's number is in the 13th since Linux 5.10.
fn by_rps(softnet: &str) -> Vec<(u32, u64)> {
    let of = |(line, text): (u32, &str)| {
        let fields: Vec<u64> = text
            .split_ascii_whitespace()
            .map_while(|field| u64::from_str_radix(field, 16).ok())
            .collect();
        let cpu = fields.get(12).and_then(|cpu| u32::try_from(*cpu).ok()).unwrap_or(line);
        Some((cpu, *fields.get(9)?))
    };
    (0..).zip(softnet.lines()).filter_map(of).collect()
}

/// Packets of each receive queue by the driver's own counters, which also count what an XDP program takes away.
fn by_driver(interface: &Interface) -> BTreeMap<u32, u64> {
    let is_it = |name: &str| name == "packets" || name == "xdp_packets";
    let mut all = BTreeMap::new();
    for (counter, value) in interface.queue_counters().unwrap_or_default() {
        if counter.kind == QueueKind::Rx && is_it(&counter.name) {
            let most: &mut u64 = all.entry(counter.queue).or_default();
            *most = value.max(*most);
        }
    }
    all
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;

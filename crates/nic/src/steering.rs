//! Which queue and which CPU packets come to: all that decides it, set together and put back together.
//!
//! ```text
//!  sender: XPS ─▶ TX queue ──▶ wire ──▶ rules, RSS table ─▶ RX queue ─▶ IRQ ─▶ CPU ── RPS ─▶ CPU of the stack
//!          egress-qos-map ─▶ PCP ─────────▲
//! ```

use serde::{Deserialize, Serialize};

use crate::ntuple::{self, NtupleFlow};
use crate::setting::{Access, Setting};
use crate::{Error, Interface, Irq, Knob, QueueKind, Result, cpus, process};

/// Where packets are to go. What is empty stays as it is.
///
/// [`Changes::steer`](crate::changes::Changes::steer) makes it so, and puts it back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steering {
    /// Which packets go to which receive queue, by rules of the NIC.
    pub rules: Vec<(NtupleFlow, u32)>,
    /// The receive queues over which the NIC spreads all other packets (`ethtool -X`).
    pub rss: Vec<u32>,
    /// The CPUs that handle the interrupt of a receive queue.
    pub irqs: Vec<(u32, Vec<u32>)>,
    /// The CPUs over which the kernel spreads the packets of a receive queue; none: the one that received them.
    pub rps: Vec<(u32, Vec<u32>)>,
    /// The CPUs whose packets the kernel's stack sends by a transmit queue; none: as the kernel chooses.
    pub xps: Vec<(u32, Vec<u32>)>,
    /// Of a VLAN device: the priority in the tag for a priority of packets (`SO_PRIORITY`).
    pub egress: Vec<(u32, u8)>,
    /// Threads of this host, by their numbers, and the CPUs that they run on: virtual CPUs, vhost.
    pub threads: Vec<(u32, Vec<u32>)>,
}

/// One thing that was set, as it is read back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Steered {
    /// What: "rule 15 for receive queues", "RPS CPUs of receive queue 0".
    pub what: String,
    /// What it was to be.
    pub wanted: String,
    /// What the kernel says that it is.
    pub obtained: String,
}

impl Steered {
    /// Whether the kernel has it as it was to be.
    #[must_use]
    pub fn is_as_wanted(&self) -> bool {
        self.wanted == self.obtained
    }
}

/// The interrupt of a receive queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueueIrq {
    /// The queue.
    pub queue: u32,
    /// Its interrupt, which a transmit queue may share.
    pub irq: Irq,
}

impl Steering {
    /// Whether nothing is to be set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Interface {
    /// The interrupts of the receive queues, by queue; empty for a virtual link, and where nobody tells which one is whose.
    ///
    /// By the kernel (Linux 6.8, and the driver), else by the interrupt's name, which most drivers end with the queue's number:
    /// "eth0-TxRx-1", "virtio3-input.1".
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the interface was removed.
    pub fn queue_irqs(&self) -> Result<Vec<QueueIrq>> {
        let irqs = self.irqs()?;
        let find = |number: u32| irqs.iter().find(|irq| irq.number == number).cloned();
        let told = match (self.queue_details(), self.napis()) {
            (Ok(queues), Ok(napis)) => {
                let told = queues
                    .iter()
                    .filter(|queue| queue.kind == QueueKind::Rx)
                    .filter_map(|queue| {
                        let napi = napis.iter().find(|napi| Some(napi.id) == queue.napi)?;
                        let irq = find(napi.irq?)?;
                        Some(QueueIrq { queue: queue.id, irq })
                    });
                told.collect()
            }
            _ => Vec::new(),
        };
        if !told.is_empty() {
            return Ok(told);
        }
        let named = irqs.iter().filter_map(|irq| {
            let queue = queue_of(&irq.name)?;
            let irq = irq.clone();
            Some(QueueIrq { queue, irq })
        });
        let mut named: Vec<QueueIrq> = named.collect();
        named.sort_by_key(|one| one.queue);
        Ok(named)
    }

    /// What has to be set, with its values.
    pub(crate) fn plan_steering(&self, steering: &Steering) -> Result<Vec<(Setting, String)>> {
        let mut plan = Vec::new();
        let unknown = |queue: u32, active: u32| Error::UnknownQueue {
            interface: self.name().to_owned(),
            queue,
            active,
        };
        let (rx, tx) = (self.rx_queues()?, self.tx_queues()?);
        let asked = (steering.rules.iter().map(|(_, queue)| *queue))
            .chain(steering.rss.iter().copied())
            .chain(steering.irqs.iter().chain(&steering.rps).map(|(queue, _)| *queue));
        if let Some(queue) = asked.filter(|queue| *queue >= rx).max() {
            return Err(unknown(queue, rx));
        }
        if let Some((queue, _)) = steering.xps.iter().find(|(queue, _)| *queue >= tx) {
            return Err(unknown(*queue, tx));
        }
        if !steering.rules.is_empty() {
            let locations = self.free_ntuple_locations(steering.rules.len())?;
            for ((flow, queue), location) in steering.rules.iter().zip(locations) {
                plan.push((Setting::Ntuple { location }, ntuple::wanted(*flow, *queue)));
            }
        }
        if !steering.rss.is_empty() {
            plan.push((Setting::RssTable, self.rss_table_of(&steering.rss)?));
        }
        let mut knob = |knob: Knob, cpus: &[u32]| plan.push((Setting::Knob { knob }, Knob::cpu_list(cpus)));
        if !steering.irqs.is_empty() {
            let irqs = self.queue_irqs()?;
            for (queue, cpus) in &steering.irqs {
                let of = irqs
                    .iter()
                    .find(|one| one.queue == *queue)
                    .ok_or_else(|| Error::NoIrq {
                        interface: self.name().to_owned(),
                        queue: *queue,
                    })?;
                knob(Knob::IrqCpus { irq: of.irq.number }, cpus);
            }
        }
        for (queue, cpus) in &steering.rps {
            knob(Knob::RpsCpus { queue: *queue }, cpus);
        }
        for (queue, cpus) in &steering.xps {
            knob(Knob::XpsCpus { queue: *queue }, cpus);
        }
        for (priority, pcp) in &steering.egress {
            let priority = *priority;
            plan.push((Setting::EgressQos { priority }, pcp.to_string()));
        }
        for (thread, list) in &steering.threads {
            let thread = *thread;
            let start = process::start_time(thread).ok_or_else(|| Error::Affinity {
                interface: self.name().to_owned(),
                thread,
                cpus: cpus::text(list),
                source: std::io::Error::from_raw_os_error(libc::ESRCH),
            })?;
            plan.push((Setting::Affinity { thread, start }, cpus::text(list)));
        }
        Ok(plan)
    }

    /// What of a plan is there now.
    pub(crate) fn steered(&self, plan: Vec<(Setting, String)>) -> Result<Vec<Steered>> {
        let access = Access::new(self);
        let read = |(setting, wanted): (Setting, String)| {
            Ok(Steered {
                what: setting.to_string(),
                wanted,
                obtained: access.read(&setting)?.unwrap_or_else(|| "gone".to_owned()),
            })
        };
        plan.into_iter().map(read).collect()
    }
}

/// The receive queue that an interrupt's name ends with.
fn queue_of(name: &str) -> Option<u32> {
    let digits = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let queue = name.get(digits.len()..)?.parse().ok()?;
    // One for sending only: "virtio3-output.1", "eth0-tx-1".
    let lower = digits.to_ascii_lowercase();
    let sends = lower.ends_with("output.") || (lower.ends_with("-tx-") && !lower.contains("rx"));
    // The device's own number: "eth0".
    let is_part = digits.ends_with(['-', '.', '@', ':']) || lower.ends_with("queue");
    (is_part && !sends).then_some(queue)
}

#[cfg(test)]
#[path = "steering_tests.rs"]
mod tests;

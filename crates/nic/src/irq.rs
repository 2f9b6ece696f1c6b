//! The interrupts of an interface.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde::Serialize;

use crate::{Error, Interface, Result, cpus};

/// An interrupt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Irq {
    /// Its number in `/proc/interrupts`.
    pub number: u32,
    /// Who handles it: "virtio3-input.0", "eth0-TxRx-1".
    pub name: String,
}

/// Where an interrupt is handled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct IrqUse {
    /// The CPUs that may handle it.
    pub allowed: Vec<u32>,
    /// The CPUs of these that the interrupt controller was told; empty where the kernel does not say.
    pub effective: Vec<u32>,
    /// How often each CPU has handled it since boot, without those that never did.
    pub handled: BTreeMap<u32, u64>,
}

impl Irq {
    /// Where it may be, and where it was handled. What the kernel does not tell is empty.
    #[must_use]
    #[doc(alias = "smp_affinity")]
    pub fn usage(&self) -> IrqUse {
        let cpus = |file: &str| {
            let list = fs::read_to_string(format!("/proc/irq/{}/{file}", self.number));
            list.map(|list| cpus::parse(&list)).unwrap_or_default()
        };
        IrqUse {
            allowed: cpus("smp_affinity_list"),
            effective: cpus("effective_affinity_list"),
            handled: handled(&fs::read_to_string("/proc/interrupts").unwrap_or_default(), self.number),
        }
    }
}

/// The line of an interrupt in `/proc/interrupts`, whose first line names the CPUs that are online.
fn handled(interrupts: &str, number: u32) -> BTreeMap<u32, u64> {
    let mut lines = interrupts.lines();
    let cpus = lines.next().unwrap_or_default().split_ascii_whitespace();
    let line = lines.find_map(|line| {
        let (name, rest) = line.split_once(':')?;
        (name.trim().parse() == Ok(number)).then_some(rest)
    });
    let counts = line.unwrap_or_default().split_ascii_whitespace();
    cpus.zip(counts)
        .filter_map(|(cpu, count)| Some((cpu.strip_prefix("CPU")?.parse().ok()?, count.parse().ok()?)))
        .filter(|(_, count)| *count != 0)
        .collect()
}

impl Interface {
    /// The interrupts of the interface's queues, by number; none for a virtual link.
    ///
    /// They are those of its NAPI instances where driver and kernel tell (Linux 6.8), else all that its device has and
    /// somebody handles, but for those that only tell of changes of its configuration.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the interface was removed.
    pub fn irqs(&self) -> Result<Vec<Irq>> {
        let of_napis: BTreeSet<u32> = match self.napis() {
            Err(Error::NeedsKernel { .. }) => BTreeSet::new(),
            other => other?.into_iter().filter_map(|napi| napi.irq).collect(),
        };
        let numbers = if of_napis.is_empty() {
            self.irqs_of_device()
        } else {
            of_napis
        };
        let named = numbers.into_iter().filter_map(|number| {
            let name = name(number)?;
            (!name.ends_with("config")).then_some(Irq { number, name })
        });
        Ok(named.collect())
    }

    /// The message-signalled ones of the device, or of the one that it hangs on (virtio).
    fn irqs_of_device(&self) -> BTreeSet<u32> {
        let device = format!("/sys/class/net/{}/device", self.name());
        // `/sys` may be that of another namespace, with another interface of that name.
        let own = fs::read_to_string(format!("/sys/class/net/{}/ifindex", self.name()));
        if own.ok().and_then(|text| text.trim().parse().ok()) != Some(self.index()) {
            return BTreeSet::new();
        }
        let entries = ["msi_irqs", "../msi_irqs"]
            .iter()
            .find_map(|below| fs::read_dir(format!("{device}/{below}")).ok());
        let numbers = entries.into_iter().flatten().flatten();
        numbers
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect()
    }
}

/// Who handles an interrupt; `None` if nobody does.
fn name(number: u32) -> Option<String> {
    let actions = fs::read_to_string(format!("/sys/kernel/irq/{number}/actions")).ok()?;
    Some(actions.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
#[path = "irq_tests.rs"]
mod tests;

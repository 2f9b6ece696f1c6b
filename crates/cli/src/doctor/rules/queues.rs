//! How packets are spread: channels, rings, interrupts, and the NIC's choice of queues.

use std::collections::BTreeSet;

use ringside_nic::FlowKind;

use super::super::facts::{Host, Nic};
use super::super::finding::Findings;
use super::list;

/// A receive ring below it holds less than a tenth of a millisecond of a fast link.
const FEW_DESCRIPTORS: u32 = 512;

pub(super) fn judge(nic: &Nic, host: &Host, findings: &mut Findings<'_>) {
    channels(nic, host, findings);
    rings(nic, findings);
    interrupts(nic, host, findings);
    coalescing(nic, findings);
    spreading(nic, findings);
    for told in &nic.flows {
        let id = "interface.flow";
        match (&told.queue, &told.reason) {
            (Some(queue), _) => findings.ok(id, format!("{} comes to queue {queue}", told.flow)),
            (None, reason) => {
                findings.note(
                    id,
                    format!("{}: the queue is not known", told.flow),
                    reason.clone().unwrap_or_default(),
                );
            }
        }
    }
}

fn channels(nic: &Nic, host: &Host, findings: &mut Findings<'_>) {
    let (name, queues) = (&nic.name, nic.rx_queues);
    let text = format!("{queues} receive and {} transmit queues", nic.tx_queues);
    let Some(channels) = nic.state.channels else {
        findings.ok("interface.channels", format!("{text}, which cannot be set"));
        return;
    };
    let driver = nic.driver.as_ref().map(|driver| driver.name.as_str());
    // It keeps as many for what native XDP sends back.
    if driver == Some("ena") && channels.combined > channels.max_combined / 2 {
        findings
            .warning(
                "interface.channels",
                format!("{} of {} channels are in use", channels.combined, channels.max_combined),
                "this driver has native XDP only on up to half of them",
            )
            .mend(format!(
                "ethtool -L {name} combined {}",
                (channels.max_combined / 2).max(1)
            ));
    } else if nic.rx_queues > host.system.cpus_online.max(1) {
        let now = host.system.cpus_online.max(1);
        findings
            .note(
                "interface.channels",
                format!("{text}, on {now} CPUs"),
                "a thread for each queue has no CPU of its own, and packets spread over queues that wait for one another",
            )
            .mend(match channels.combined {
                0 => format!("ethtool -L {name} rx {now}"),
                _ => format!("ethtool -L {name} combined {now}"),
            });
    } else {
        findings.ok("interface.channels", text);
    }
}

fn rings(nic: &Nic, findings: &mut Findings<'_>) {
    let Some(rings) = nic.state.rings else {
        return;
    };
    let text = format!("rings of the NIC: RX {}, TX {} descriptors", rings.rx, rings.tx);
    if rings.rx >= FEW_DESCRIPTORS.min(rings.max_rx) {
        findings.ok("interface.rings", text);
        return;
    }
    findings
        .note(
            "interface.rings",
            format!("{text}, of {} possible", rings.max_rx),
            "a burst that is longer, or comes while the CPU is elsewhere, is lost",
        )
        .mend(format!(
            "ethtool -G {} rx {}",
            nic.name,
            FEW_DESCRIPTORS.min(rings.max_rx)
        ));
}

fn interrupts(nic: &Nic, host: &Host, findings: &mut Findings<'_>) {
    if nic.irqs.is_empty() {
        findings.ok("interface.irqs", "no interrupts of its own");
        return;
    }
    // Where an interrupt goes: as the controller was told, or else as it may.
    let goes = |irq: &super::super::facts::IrqMap| match irq.usage.effective.is_empty() {
        true => irq.usage.allowed.clone(),
        false => irq.usage.effective.clone(),
    };
    let map: Vec<_> = nic
        .irqs
        .iter()
        .map(|irq| {
            let queues = match irq.queues.as_slice() {
                [] => String::new(),
                queues => format!(" ({})", queues.join(", ")),
            };
            format!("{} {}{queues} → CPU {}", irq.number, irq.name, list(&goes(irq)))
        })
        .collect();
    let used: BTreeSet<Vec<u32>> = nic.irqs.iter().map(goes).collect();
    let text = format!("interrupts: {}", map.join("; "));
    let one = used.len() == 1 && used.iter().all(|cpus| cpus.len() == 1);
    if one && nic.rx_queues > 1 && host.system.cpus_online > 1 {
        let all = list(&(0..host.system.cpus_online.min(nic.rx_queues)).collect::<Vec<_>>());
        findings
            .warning(
                "interface.irqs",
                format!("all queues interrupt the same CPU: {}", map.join("; ")),
                "that CPU alone brings the packets of all queues, so more queues do not help",
            )
            .mend(format!("ringside tune {} --irq-cpus {all}", nic.name));
        return;
    }
    findings.ok("interface.irqs", text);
}

fn coalescing(nic: &Nic, findings: &mut Findings<'_>) {
    let value = |name: &str| nic.coalescing.get(name).map(String::as_str);
    let Some(usecs) = value("rx-usecs") else {
        return;
    };
    if value("adaptive-rx") == Some("on") || usecs.parse::<u32>().is_ok_and(|usecs| usecs > 0) {
        findings
            .note(
                "interface.coalescing",
                format!(
                    "the NIC holds its interrupt back (rx-usecs {usecs}, adaptive-rx {})",
                    value("adaptive-rx").unwrap_or("not there")
                ),
                "good for many packets a second, and so much added to the latency of a single one",
            )
            .mend(format!(
                "ringside tune {} --coalesce {}",
                nic.name,
                without(value("adaptive-rx"))
            ));
    } else {
        findings.ok("interface.coalescing", "the NIC does not hold its interrupt back");
    }
}

fn without(adaptive: Option<&str>) -> &'static str {
    match adaptive {
        Some(_) => "rx-usecs=0,adaptive-rx=off",
        None => "rx-usecs=0",
    }
}

fn spreading(nic: &Nic, findings: &mut Findings<'_>) {
    let Some(rss) = &nic.rss else {
        let veth = nic.kind.as_deref() == Some("veth");
        findings.ok(
            "interface.rss",
            match veth {
                true => {
                    "no table of receive queues: on a veth a packet comes to the queue of the number that it was sent on"
                }
                false => "no table of receive queues (RSS)",
            },
        );
        return;
    };
    let queues: Vec<u32> = rss.table.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let function = rss
        .function
        .map_or("a hash that it does not tell".to_owned(), |function| {
            function.to_string()
        });
    let text = format!(
        "receive queues by {function}, {} entries: queues {}",
        rss.table.len(),
        list(&queues)
    );
    let count = u32::try_from(queues.len()).unwrap_or(u32::MAX);
    if count < nic.rx_queues {
        findings
            .note(
                "interface.rss",
                format!("{text} of {}", nic.rx_queues),
                "the others get no packets but those that rules steer there (ethtool -N)",
            )
            .mend(format!("ethtool -X {} equal {}", nic.name, nic.rx_queues));
    } else {
        findings.ok("interface.rss", text);
    }
    if nic.rx_queues < 2 {
        return;
    }
    for kind in [FlowKind::Udp4, FlowKind::Udp6] {
        if rss
            .fields
            .get(&kind)
            .is_some_and(|fields| fields.addresses && !fields.ports && !fields.others)
        {
            findings
                .note(
                    "interface.rss-ports",
                    format!("the ports of UDP are not hashed ({})", kind.name()),
                    "all UDP packets from one host to another come to the same queue, whatever their ports",
                )
                .mend(format!("ethtool -N {} rx-flow-hash {} sdfn", nic.name, kind.name()));
        }
    }
}

#[cfg(test)]
#[path = "queues_tests.rs"]
mod tests;

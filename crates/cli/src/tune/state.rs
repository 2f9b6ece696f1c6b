//! How everything is set now.

use anyhow::Result;
use ringside_nic::host::{System, WakeUpLimit};
use ringside_nic::{Coalescing, Error, Interface, Knob};

use super::plan::reason;
use super::report::Setting;

pub(super) const WAKE_UP: &str = "cpu_dma_latency";
pub(super) const THREADED: &str = "threaded NAPI";
pub(super) const NO_GOVERNOR: &str = "no cpufreq: hypervisor or firmware choose the frequency";
pub(super) const NO_IRQS: &str = "the interface has no interrupts of its own";

/// Offloads that a packet of an AF_XDP program meets, or that change its timing.
const OFFLOADS: [&str; 6] = [
    "rx-gro",
    "rx-gro-hw",
    "rx-lro",
    "tx-tcp-segmentation",
    "tx-generic-segmentation",
    "tx-checksum-ip-generic",
];

/// # Errors
/// When the interface was removed. What cannot be had is no error: it has its reason.
pub(super) fn read(interface: &Interface) -> Result<Vec<Setting>> {
    let mut all = vec![Setting::new(
        WAKE_UP,
        WakeUpLimit::now()
            .map(|micros| format!("{micros} µs"))
            .map_err(|error| error.to_string()),
    )];
    let system = System::read()?;
    if system.governors.is_empty() {
        all.push(Setting::new("governor", Err(NO_GOVERNOR.to_owned())));
    }
    for (cpu, governor) in system.governors {
        all.push(Setting::new(&Knob::Governor { cpu }.to_string(), Ok(governor)));
    }
    let irqs = interface.irqs()?;
    if irqs.is_empty() {
        all.push(Setting::new("IRQ affinity", Err(NO_IRQS.to_owned())));
    }
    for irq in irqs {
        let knob = Knob::IrqCpus { irq: irq.number };
        let value = value(None, &knob).map_err(|error| reason(&error));
        all.push(Setting::new(&format!("{knob} ({})", irq.name), value));
    }
    let threaded = interface
        .napi()
        .map(|napi| if napi.threaded { "on" } else { "off" }.to_owned());
    all.push(Setting::new(THREADED, threaded.map_err(|error| error.to_string())));
    let mut knobs: Vec<Knob> = (0..interface.rx_queues()?)
        .map(|queue| Knob::RpsCpus { queue })
        .collect();
    knobs.extend((0..interface.tx_queues()?).map(|queue| Knob::XpsCpus { queue }));
    match interface.knob(&Knob::Coalescing {
        field: Coalescing::RxUsecs,
    }) {
        Ok(_) => knobs.extend(Coalescing::ALL.map(|field| Knob::Coalescing { field })),
        Err(error) => all.push(Setting::new("coalescing", Err(reason(&error)))),
    }
    knobs.extend(OFFLOADS.map(Knob::offload));
    for knob in knobs {
        let value = value(Some(interface), &knob).map_err(|error| reason(&error));
        all.push(Setting::new(&knob.to_string(), value));
    }
    Ok(all)
}

/// The value of a knob, of the host where there is no interface.
pub(super) fn value(interface: Option<&Interface>, knob: &Knob) -> Result<String, Error> {
    match interface {
        Some(interface) => interface.knob(knob),
        None => ringside_nic::host::knob(knob),
    }
}

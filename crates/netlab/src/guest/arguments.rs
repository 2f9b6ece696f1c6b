//! QEMU's command line.

use std::os::fd::RawFd;
use std::path::Path;

use super::config::{Accelerator, GuestConfig, Model, Nic, Wire};
use super::message;

/// The files of a guest that is started.
pub(crate) struct Files<'a> {
    pub(crate) initramfs: &'a Path,
    pub(crate) console: &'a Path,
    /// The agent's connection, a socket that QEMU inherits.
    pub(crate) agent: RawFd,
    /// The queues of each NIC's TAP device, which it inherits as well.
    pub(crate) taps: Vec<Vec<RawFd>>,
}

pub(crate) fn arguments(config: &GuestConfig, accelerator: Accelerator, files: &Files<'_>) -> Vec<String> {
    let mut words = Vec::new();
    let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
    let (acceleration, cpu) = match accelerator {
        Accelerator::Kvm => ("kvm", "host"),
        Accelerator::Tcg => ("tcg,thread=multi", "max"),
    };
    // Interrupts that an IOMMU maps take an interrupt controller of QEMU's.
    let split = if config.iommu { ",kernel-irqchip=split" } else { "" };
    add("-machine", format!("q35,usb=off,vmport=off,hpet=off{split}"));
    add("-accel", acceleration.to_owned());
    // Threads have names of their own, by which they are found to be pinned.
    add("-name", "guest,debug-threads=on".to_owned());
    add("-cpu", cpu.to_owned());
    add("-smp", config.cpus_on(accelerator).to_string());
    add("-m", config.memory_mib.to_string());
    add("-kernel", comma(&config.kernel.image));
    add("-initrd", comma(files.initramfs));
    add("-append", kernel_arguments(config, accelerator).join(" "));
    add("-chardev", format!("file,id=console,path={}", comma(files.console)));
    add("-serial", "chardev:console".to_owned());
    if config.iommu {
        // In front of the devices that are behind it.
        add("-device", "intel-iommu,intremap=on,caching-mode=on".to_owned());
    }
    add("-device", "virtio-serial-pci,disable-legacy=on".to_owned());
    add("-chardev", format!("socket,id=agent,fd={}", files.agent));
    add(
        "-device",
        format!("virtserialport,chardev=agent,name={}", message::PORT),
    );
    if config.nics.iter().any(|nic| matches!(nic.wire, Wire::VhostUser { .. })) {
        // Who serves a queue has to see what is in it.
        let memory = format!("memory-backend-memfd,id=memory,size={}M,share=on", config.memory_mib);
        add("-object", memory);
        add("-machine", "memory-backend=memory".to_owned());
    }
    for (number, nic) in config.nics.iter().enumerate() {
        let taps = files.taps.get(number).map_or(&[][..], Vec::as_slice);
        if let Wire::VhostUser { socket, .. } = &nic.wire {
            add("-chardev", format!("socket,id=user{number},path={}", comma(socket)));
        }
        if let Wire::Vfio(vfio) = &nic.wire {
            let slot = slot(&config.nics[..number]);
            add("-device", format!("vfio-pci,host={},addr={slot:#x}", vfio.address()));
            continue;
        }
        add("-netdev", wire(number, nic, taps));
        let queues = match &nic.wire {
            Wire::VhostUser { queues, .. } => *queues as usize,
            _ => taps.len(),
        };
        for device in devices(number, nic, queues) {
            add("-device", device);
        }
    }
    // Nothing that was not asked for; and what resets a guest ends it.
    let plain = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"];
    words.extend(plain.map(str::to_owned));
    words
}

/// The slot of the guest's PCI bus in which a NIC of this machine is, by the NICs before it: from the last that is free downwards, for QEMU fills them from the
/// first one on.
pub(crate) fn slot(before: &[Nic]) -> usize {
    const LAST: usize = 0x1e;
    let taken = before.iter().filter(|nic| matches!(nic.wire, Wire::Vfio(_)));
    LAST.saturating_sub(taken.count())
}

fn kernel_arguments(config: &GuestConfig, accelerator: Accelerator) -> Vec<String> {
    let mut words: Vec<String> = ["console=ttyS0", "panic=-1", "oops=panic", "audit=0"]
        .map(str::to_owned)
        .to_vec();
    let more: &[&str] = match accelerator {
        // A sign of life as soon as may be: see `kvm.rs`.
        Accelerator::Kvm => &["earlyprintk=ttyS0"],
        // An emulated CPU takes long for each of these, and has no use for it.
        Accelerator::Tcg => &["quiet", "nokaslr", "mitigations=off", "no_timer_check", "tsc=reliable"],
    };
    words.extend(more.iter().map(|word| (*word).to_owned()));
    if config.iommu {
        words.push("intel_iommu=on".to_owned());
    }
    words.push(format!("rdinit={}", config.agent.program.display()));
    words.extend(config.kernel_arguments.iter().cloned());
    // The rest are arguments of the first process.
    words.push("--".to_owned());
    words.extend(config.agent.arguments.iter().cloned());
    words
}

fn wire(number: usize, nic: &Nic, taps: &[RawFd]) -> String {
    match &nic.wire {
        Wire::Hub(hub) => format!("hubport,id=net{number},hubid={hub}"),
        // It has no back end.
        Wire::Vfio(_) => String::new(),
        Wire::VhostUser { queues, .. } => format!("vhost-user,id=net{number},chardev=user{number},queues={queues}"),
        Wire::Tap(tap) => {
            let vhost = if tap.is_by_vhost() { "on" } else { "off" };
            let numbers: Vec<String> = taps.iter().map(RawFd::to_string).collect();
            let name = if numbers.len() == 1 { "fd" } else { "fds" };
            format!("tap,id=net{number},{name}={},vhost={vhost}", numbers.join(":"))
        }
    }
}

fn devices(number: usize, nic: &Nic, queues: usize) -> Vec<String> {
    let mac = nic.mac.map(|byte| format!("{byte:02x}")).join(":");
    let common = format!("netdev=net{number},mac={mac}");
    match nic.model {
        // Zero-copy takes the DMA interface, which the driver uses only where the device says so.
        // https://elixir.bootlin.com/linux/v6.18/C/ident/virtnet_xsk_pool_enable
        Model::VirtioNet => {
            // An interrupt for each direction of each queue, one for the configuration and one for the control queue.
            let several = match queues {
                0 | 1 => String::new(),
                _ => format!(",mq=on,vectors={}", 2 * queues + 2),
            };
            // Programs that serve the guest's queues do without, and QEMU refuses those that do.
            let platform = match &nic.wire {
                Wire::VhostUser { .. } => "",
                _ => ",iommu_platform=on",
            };
            vec![format!(
                "virtio-net-pci,{common}{platform},disable-legacy=on,romfile={several}"
            )]
        }
        // Its virtual functions need the numbers of a whole slot.
        Model::Igb => vec![
            format!("pcie-root-port,id=port{number},chassis={number},slot={number}"),
            format!("igb,{common},bus=port{number},romfile="),
        ],
    }
}

/// A path inside an option: a comma separates there unless it is doubled.
fn comma(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;

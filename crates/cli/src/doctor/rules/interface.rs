//! What an interface can do for AF_XDP, and what stands in the way.

use ringside_nic::{RxMetadata, XdpFeatures};
use ringside_xsk::{KernelCapabilities, Support};

use super::super::facts::{Brief, Nic};
use super::super::finding::Findings;
use crate::caps::{self, Holder};

/// Ethernet header and two VLAN tags.
const HEADERS: u32 = 22;
/// What a driver has of a page for a packet, where XDP wants it in one buffer: less 256 bytes in front of it, and 320 that
/// the kernel needs behind it. <https://elixir.bootlin.com/linux/v6.18/C/ident/veth_xdp_set>
const ONE_BUFFER: u32 = 4096 - 256 - 320;

pub(super) fn judge(nic: &Nic, kernel: &KernelCapabilities, findings: &mut Findings<'_>) {
    driver(nic, findings);
    link(nic, findings);
    in_use(nic, findings);
    modes(nic, findings);
    mtu(nic, kernel, findings);
    offloads(nic, findings);
    metadata(nic, findings);
}

/// A line each: all that is known without looking closer.
pub(super) fn judge_all(interfaces: &[Brief], findings: &mut Findings<'_>) {
    for one in interfaces {
        let modes = caps::modes(&one.device);
        let driver = one.driver.as_deref().unwrap_or("none");
        findings.ok(
            "interfaces",
            format!(
                "{}: driver {driver}, {}, {} receive queue(s), {modes}",
                one.name,
                if one.up { "up" } else { "down" },
                one.rx_queues
            ),
        );
    }
}

fn driver(nic: &Nic, findings: &mut Findings<'_>) {
    let Some(driver) = &nic.driver else {
        findings.ok("interface.driver", "no driver of its own");
        return;
    };
    let mut text = format!("driver {}", driver.name);
    for (what, value) in [
        ("version", &driver.version),
        ("firmware", &driver.firmware),
        ("at", &driver.bus),
    ] {
        if !value.is_empty() {
            text.push_str(&format!(", {what} {value}"));
        }
    }
    findings.ok("interface.driver", text);
}

fn link(nic: &Nic, findings: &mut Findings<'_>) {
    let name = &nic.name;
    match (nic.state.up, nic.state.carrier) {
        (true, true) => findings.ok("interface.link", format!("link up, MTU {}", nic.state.mtu_bytes)),
        (false, _) => findings
            .error(
                "interface.link",
                format!("{name} is down"),
                "no socket can be bound to it",
            )
            .mend(format!("ip link set dev {name} up")),
        (true, false) => {
            findings.warning(
                "interface.link",
                format!("{name} is up, but has no carrier"),
                "nothing comes, and the kernel drops what is sent: see to the cable, or to the other end (of a veth too)",
            );
        }
    }
}

fn in_use(nic: &Nic, findings: &mut Findings<'_>) {
    match &nic.state.xdp_program {
        None => findings.ok("interface.program", "no XDP program is attached"),
        Some(program) => {
            let name = program.name.as_deref().unwrap_or("of unknown name");
            let what = match program.holders.as_slice() {
                [] => format!("an XDP program is attached: {name} (id {})", program.id),
                holders => format!(
                    "an XDP program is attached: {name} (id {}), held by {}",
                    program.id,
                    processes(holders)
                ),
            };
            let why =
                "Ringside does not replace what it did not attach, so no command can receive here until it is gone";
            let finding = findings.error("interface.program", what, why);
            // What comes behind the command is for people.
            let removal = nic.state.xdp_removal.as_deref().unwrap_or_default();
            let command = removal.split([',', ';', '(']).next().unwrap_or_default().trim();
            match program.holders.first() {
                // It goes with its holder.
                Some(holder) => finding.mend(format!("kill {}", holder.pid)),
                None if command.is_empty() => {}
                None => finding.mend(command),
            }
        }
    }
    let bound: Vec<u32> = nic
        .state
        .queues
        .iter()
        .flatten()
        .filter(|queue| queue.xsk == Some(true))
        .map(|queue| queue.id)
        .collect();
    if !bound.is_empty() {
        let mut queues = bound;
        queues.sort_unstable();
        queues.dedup();
        findings.warning(
            "interface.bound",
            match nic.socket_owners.as_slice() {
                [] => format!("an AF_XDP socket is bound to {}", super::queues(&queues)),
                owners => format!(
                    "an AF_XDP socket is bound to {}; such sockets are held by {}",
                    super::queues(&queues),
                    processes(owners)
                ),
            },
            "a queue has room for one program's sockets: who binds it again gets EBUSY",
        );
    }
}

fn processes(holders: &[Holder]) -> String {
    let named = holders
        .iter()
        .map(|holder| format!("process {} ({})", holder.pid, holder.command));
    named.collect::<Vec<_>>().join(", ")
}

/// The word of `ip link` for a program's place.
fn modes(nic: &Nic, findings: &mut Findings<'_>) {
    let Some(features) = nic.device.xdp_features else {
        findings.note(
            "interface.modes",
            "which XDP modes the driver offers is not known",
            "the kernel tells since Linux 6.3; --live tries them",
        );
        return;
    };
    if !features.contains(XdpFeatures::BASIC) || !features.contains(XdpFeatures::REDIRECT) {
        let below = match nic.kind.as_deref() {
            Some(kind) => format!(" a {kind} stands above others: use the interface below it, which may have it;"),
            None => String::new(),
        };
        findings.warning(
            "interface.native",
            "no native XDP: generic mode only",
            format!(
                "each packet is made a socket buffer first, and copied after that: it works, but is not faster than other \
                 sockets;{below} a later driver or another NIC may have it"
            ),
        );
        return;
    }
    if features.contains(XdpFeatures::XSK_ZEROCOPY) {
        findings.ok("interface.modes", "driver offers native XDP and zero-copy");
        return;
    }
    findings.note(
        "interface.zero-copy",
        "native XDP, but no zero-copy",
        "the kernel copies each packet once: fine for latency, dearer for many packets a second",
    );
}

fn mtu(nic: &Nic, kernel: &KernelCapabilities, findings: &mut Findings<'_>) {
    let mtu = nic.state.mtu_bytes;
    let native = nic
        .device
        .xdp_features
        .is_none_or(|set| set.contains(XdpFeatures::BASIC));
    let packet = mtu.saturating_add(HEADERS);
    // The smallest frame with what the kernel keeps free in it.
    if packet <= 2048 - 256 || mtu == 0 {
        return;
    }
    let lower = format!("ip link set dev {} mtu 1500", nic.name);
    if packet <= 4096 - 256 && (packet <= ONE_BUFFER || !native) {
        findings
            .note(
                "interface.mtu",
                format!("MTU {mtu}: packets do not fit frames of 2048 bytes"),
                "take frames of 4096 bytes (--frame-size 4096), or lower the MTU",
            )
            .mend(lower);
        return;
    }
    let rx_sg = nic
        .device
        .xdp_features
        .is_none_or(|set| set.contains(XdpFeatures::RX_SG));
    let several = kernel.multi_buffer != Support::No;
    if several && (rx_sg || !native) {
        findings
            .note(
                "interface.mtu",
                format!("MTU {mtu}: a packet does not fit one frame"),
                "take packets in several frames (--multi-buffer --frames 4096), or lower the MTU",
            )
            .mend(lower);
        return;
    }
    findings
        .warning(
            "interface.mtu",
            format!("MTU {mtu}: too large for native XDP here"),
            match several {
                true => "the driver does not offer packets in several buffers (rx-sg), and refuses an XDP program at this MTU",
                false => "this kernel has no packets in several frames (Linux 6.6)",
            },
        )
        .mend(lower);
}

fn offloads(nic: &Nic, findings: &mut Findings<'_>) {
    if nic.driver.as_ref().is_some_and(|driver| driver.name == "veth") {
        // The peer is mostly in another namespace, where nobody looks without being asked to.
        let finding = findings.note(
            "interface.peer-segmentation",
            "a peer with segmentation offload (TSO) sends TCP uncut",
            "generic XDP drops packets that do not fit a frame, and TCP stalls; native XDP turns the \
             offload off",
        );
        finding.mend("ethtool -K PEER tso off tx-udp-segmentation off");
    }
    let on = |name| nic.offload(name).filter(|offload| offload.on);
    let by_hint = nic
        .device
        .rx_metadata
        .is_some_and(|set| set.contains(RxMetadata::VLAN_TAG));
    match on("rx-vlan-hw-parse") {
        None => findings.ok("interface.rxvlan", "VLAN tags stay in packets"),
        Some(offload) => {
            let why = "an XDP program, and so an AF_XDP socket, sees packets of all VLANs without their tags, and cannot tell \
                       them apart";
            let what = "the NIC takes VLAN tags off (rxvlan)";
            let finding = match by_hint {
                true => findings.note(
                    "interface.rxvlan",
                    what,
                    "packets come without their tags; the driver tells them to programs that ask (rx --hints shows them)",
                ),
                false => findings.warning("interface.rxvlan", what, why),
            };
            if !offload.fixed {
                finding.mend(format!("ethtool -K {} rxvlan off", nic.name));
            }
        }
    }
    for (id, name, short) in [
        ("interface.lro", "rx-lro", "lro"),
        ("interface.gro-hw", "rx-gro-hw", "rx-gro-hw"),
    ] {
        if let Some(offload) = on(name) {
            let finding = findings.warning(
                id,
                format!("the NIC puts packets together before anybody sees them ({short})"),
                match offload.fixed {
                    false => "what an XDP program gets is then no packet of the wire; most drivers refuse native XDP meanwhile",
                    true => {
                        "what an XDP program gets is then no packet of the wire; most drivers refuse native XDP meanwhile, and \
                         this one does not let it be switched off"
                    }
                },
            );
            if !offload.fixed {
                finding.mend(format!("ethtool -K {} {short} off", nic.name));
            }
        }
    }
}

fn metadata(nic: &Nic, findings: &mut Findings<'_>) {
    findings.ok(
        "interface.metadata",
        format!("metadata that the driver offers: {}", caps::metadata(&nic.device)),
    );
}

#[cfg(test)]
#[path = "interface_tests.rs"]
mod tests;

//! What an interface and the kernel can do for AF_XDP, in one value.

mod kernel;
mod private;
mod probe;

pub use kernel::{KernelCapabilities, KernelFeature, Support};

use std::fmt;

use ringside_nic::{DeviceCapabilities, Interface, RxMetadata, XdpFeatures, XskFeatures};
use serde::Serialize;

use crate::error::Error;

/// What an interface and the kernel can do for AF_XDP.
///
/// What the device can do is what its driver tells through the netdev family of generic netlink (Linux 6.3); what the
/// kernel can do is found out by trying ([`KernelCapabilities::probe`]). Nothing is bound or attached to the interface.
///
/// As text it is a line a feature, with the Linux that brought it; as JSON an object whose names stay.
///
/// ```no_run
/// use ringside_xsk::{Capabilities, Interface};
///
/// let capabilities = Capabilities::of(&Interface::by_name("eth0")?)?;
/// println!("{capabilities}");
/// if capabilities.kernel.multi_buffer.known() == Some(false) {
///     println!("no jumbo frames here");
/// }
/// # Ok::<(), ringside_xsk::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Capabilities {
    /// The interface's name.
    pub interface: String,
    /// Its driver; `None` where there is none (loopback).
    pub driver: Option<String>,
    /// What its driver tells of it, in its present state: it depends on offloads, and on veth on the peer.
    pub device: DeviceCapabilities,
    /// What the kernel can do.
    pub kernel: KernelCapabilities,
}

impl Capabilities {
    /// Asks the driver of `interface`, and probes the kernel.
    ///
    /// # Errors
    ///
    /// [`Error::Interface`] if the interface was removed, or belongs to another network namespace than the calling thread.
    pub fn of(interface: &Interface) -> Result<Self, Error> {
        Ok(Self {
            interface: interface.name().to_owned(),
            driver: interface.driver().ok().map(|driver| driver.name),
            device: interface.device_capabilities()?,
            kernel: KernelCapabilities::probe(),
        })
    }
}

/// A line a feature: its name, the answer, and the Linux since which it is told (of the device) or there (in the kernel).
impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = match &self.driver {
            Some(driver) => format!("The device {}, driver {driver}", self.interface),
            None => format!("The device {}, no driver", self.interface),
        };
        write_title(f, &title, "told since")?;
        let device = &self.device;
        let xdp = |flag| answer(device.xdp_features.map(|set| set.contains(flag)));
        let rx = |flag| answer(device.rx_metadata.map(|set| set.contains(flag)));
        let tx = |flag| answer(device.xsk_features.map(|set| set.contains(flag)));
        let segments = device.xdp_zc_max_segs.map(|segments| segments.to_string());
        let lines = [
            ("native XDP: drop, pass, send back", xdp(XdpFeatures::BASIC), "6.3"),
            ("native XDP: redirect, as to sockets", xdp(XdpFeatures::REDIRECT), "6.3"),
            ("AF_XDP with zero-copy", xdp(XdpFeatures::XSK_ZEROCOPY), "6.3"),
            ("  buffers of a packet", segments.as_deref().unwrap_or("-"), "6.6"),
            ("packets of several buffers in", xdp(XdpFeatures::RX_SG), "6.3"),
            ("frames redirected to it", xdp(XdpFeatures::NDO_XMIT), "6.3"),
            ("  of several buffers", xdp(XdpFeatures::NDO_XMIT_SG), "6.3"),
            ("programs on the NIC itself", xdp(XdpFeatures::HW_OFFLOAD), "6.3"),
            ("RX metadata: timestamp", rx(RxMetadata::TIMESTAMP), "6.7"),
            ("RX metadata: hash", rx(RxMetadata::HASH), "6.7"),
            ("RX metadata: VLAN tag", rx(RxMetadata::VLAN_TAG), "6.8"),
            ("TX metadata: timestamp", tx(XskFeatures::TX_TIMESTAMP), "6.8"),
            ("TX metadata: checksum", tx(XskFeatures::TX_CHECKSUM), "6.8"),
            ("TX metadata: launch time", tx(XskFeatures::TX_LAUNCH_TIME_FIFO), "6.15"),
        ];
        for (what, answer, since) in lines {
            write_line(f, what, answer, since)?;
        }
        write!(f, "\n\n{}", self.kernel)
    }
}

/// The word for an answer.
fn answer(known: Option<bool>) -> &'static str {
    match known {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    }
}

/// Columns: what is asked, the answer, since when.
const WHAT: usize = 50;
const ANSWER: usize = 9;

fn write_title(f: &mut fmt::Formatter<'_>, title: &str, since: &str) -> fmt::Result {
    write!(f, "{title:<0$} {since}", 2 + WHAT + ANSWER)
}

fn write_line(f: &mut fmt::Formatter<'_>, what: &str, answer: &str, since: &str) -> fmt::Result {
    write!(f, "\n  {what:<WHAT$}{answer:<ANSWER$} Linux {since}")
}

#[cfg(test)]
#[path = "capabilities/tests.rs"]
mod tests;

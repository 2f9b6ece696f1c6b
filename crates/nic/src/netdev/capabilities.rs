//! What a device can do for XDP and AF_XDP.

use std::fmt;

use serde::Serialize;

use super::Netdev;
use crate::flags::flag_set;
use crate::netlink::generic::Attributes;
use crate::{Error, Interface, Result};

// https://elixir.bootlin.com/linux/v6.18/C/ident/NETDEV_CMD_DEV_GET
const NETDEV_CMD_DEV_GET: u8 = 1;
// https://elixir.bootlin.com/linux/v6.18/C/ident/NETDEV_A_DEV_IFINDEX
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_A_DEV_XDP_ZC_MAX_SEGS: u16 = 4;
const NETDEV_A_DEV_XDP_RX_METADATA_FEATURES: u16 = 5;
const NETDEV_A_DEV_XSK_FEATURES: u16 = 6;

flag_set! {
    /// What a driver does with XDP (Linux 6.3; `enum netdev_xdp_act`).
    #[doc(alias = "netdev_xdp_act")]
    XdpFeatures {
        /// XDP_ABORTED, XDP_DROP, XDP_PASS and XDP_TX: native XDP.
        BASIC = 0, "basic";
        /// XDP_REDIRECT, which AF_XDP in native mode needs.
        REDIRECT = 1, "redirect";
        /// Frames that others redirect to it. It may come and go: a veth has it while its peer has NAPI.
        NDO_XMIT = 2, "ndo-xmit";
        /// AF_XDP in zero-copy mode.
        XSK_ZEROCOPY = 3, "xsk-zerocopy";
        /// Programs on the NIC itself.
        HW_OFFLOAD = 4, "hw-offload";
        /// Packets of several buffers on the way in.
        RX_SG = 5, "rx-sg";
        /// Packets of several buffers among the frames that others redirect to it.
        NDO_XMIT_SG = 6, "ndo-xmit-sg";
    }
}

flag_set! {
    /// What an XDP program can learn about a received packet (Linux 6.7; `enum netdev_xdp_rx_metadata`).
    #[doc(alias = "netdev_xdp_rx_metadata")]
    RxMetadata {
        /// When the NIC received it: `bpf_xdp_metadata_rx_timestamp()`.
        TIMESTAMP = 0, "timestamp";
        /// Its hash: `bpf_xdp_metadata_rx_hash()`.
        HASH = 1, "hash";
        /// The VLAN tag that the NIC took off (Linux 6.8): `bpf_xdp_metadata_rx_vlan_tag()`.
        VLAN_TAG = 2, "vlan-tag";
    }
}

flag_set! {
    /// What AF_XDP's transmit metadata can ask of the device (Linux 6.8; `enum netdev_xsk_flags`).
    ///
    /// Copy mode does without the device: there the kernel takes the timestamp and completes the checksum itself.
    #[doc(alias = "netdev_xsk_flags")]
    XskFeatures {
        /// A timestamp when the packet left.
        TX_TIMESTAMP = 0, "tx-timestamp";
        /// A checksum filled in by the NIC.
        TX_CHECKSUM = 1, "tx-checksum";
        /// A time to send the packet at, first in, first out (Linux 6.15).
        TX_LAUNCH_TIME_FIFO = 2, "tx-launch-time-fifo";
    }
}

/// What a device and its driver can do for XDP and AF_XDP, in their present state.
///
/// A field is `None` if the **kernel** does not tell it; a set that is empty or lacks a flag says that the **device**
/// does not offer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeviceCapabilities {
    /// What it does with XDP (Linux 6.3).
    pub xdp_features: Option<XdpFeatures>,
    /// How many buffers a packet may have in zero-copy mode, one where several are not supported (Linux 6.6); `None`
    /// also for a device without zero-copy.
    pub xdp_zc_max_segs: Option<u32>,
    /// What an XDP program can learn about a received packet (Linux 6.7).
    pub rx_metadata: Option<RxMetadata>,
    /// What transmit metadata can ask for (Linux 6.8).
    pub xsk_features: Option<XskFeatures>,
}

impl DeviceCapabilities {
    fn from_attributes(attributes: Attributes<'_>) -> Self {
        Self {
            xdp_features: attributes.number(NETDEV_A_DEV_XDP_FEATURES).map(XdpFeatures::from_bits),
            xdp_zc_max_segs: attributes.u32(NETDEV_A_DEV_XDP_ZC_MAX_SEGS),
            rx_metadata: attributes
                .number(NETDEV_A_DEV_XDP_RX_METADATA_FEATURES)
                .map(RxMetadata::from_bits),
            xsk_features: attributes.number(NETDEV_A_DEV_XSK_FEATURES).map(XskFeatures::from_bits),
        }
    }

    /// What a kernel before 6.3 tells.
    const UNKNOWN: Self = Self {
        xdp_features: None,
        xdp_zc_max_segs: None,
        rx_metadata: None,
        xsk_features: None,
    };
}

/// One line: `XDP: basic redirect; RX metadata: hash; TX metadata: unknown (Linux 6.8 tells)`.
impl fmt::Display for DeviceCapabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = |set: Option<String>, kernel| set.unwrap_or_else(|| format!("unknown (Linux {kernel} tells)"));
        write!(f, "XDP: {}", known(self.xdp_features.map(|set| set.to_string()), "6.3"))?;
        if let Some(segments) = self.xdp_zc_max_segs {
            let plural = if segments == 1 { "" } else { "s" };
            write!(f, " (zero-copy up to {segments} buffer{plural} a packet)")?;
        }
        let rx = known(self.rx_metadata.map(|set| set.to_string()), "6.7");
        let tx = known(self.xsk_features.map(|set| set.to_string()), "6.8");
        write!(f, "; RX metadata: {rx}; TX metadata: {tx}")
    }
}

impl Interface {
    /// What the device and its driver can do for XDP and AF_XDP.
    ///
    /// It follows the device's state: offloads, and on veth the peer's. A kernel before 6.3 tells nothing of it, and
    /// the answer says so rather than that the device can do nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with `ENODEV` if the interface was removed.
    #[doc(alias = "NETDEV_CMD_DEV_GET")]
    pub fn device_capabilities(&self) -> Result<DeviceCapabilities> {
        const OPERATION: &str = "read the device's XDP capabilities";
        let Some(mut netdev) = Netdev::open(self, OPERATION)? else {
            return Ok(DeviceCapabilities::UNKNOWN);
        };
        let question = netdev
            .message(NETDEV_CMD_DEV_GET)
            .with_u32(NETDEV_A_DEV_IFINDEX, self.index());
        let answers = netdev.ask(OPERATION, question, false)?.unwrap_or_default();
        answers
            .first()
            .map(|answer| DeviceCapabilities::from_attributes(answer.attributes()))
            .ok_or_else(|| Error::malformed(OPERATION, self.name(), "no device in it"))
    }
}

#[cfg(test)]
#[path = "capabilities_tests.rs"]
mod tests;

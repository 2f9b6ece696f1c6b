//! A TAP device and a bridge: what most virtual machines have.

use std::fs::{self, OpenOptions};
use std::sync::Arc;

use super::{AttachConfig, Uplink, VHOST_NET, Way};
use crate::{Device, Error, GuestTap, Result};

/// A guest's TAP device and the uplink, ports of a bridge. Checksums and segmentation are left to the guest and by it, so long packets
/// (TSO, GRO) go through whole.
#[derive(Debug)]
#[non_exhaustive]
pub struct TapBridge {
    /// The guest's device.
    pub tap: Arc<GuestTap>,
    /// The bridge.
    pub bridge: Device,
    /// The hardware address of the guest's NIC.
    pub mac: [u8; 6],
}

impl TapBridge {
    /// Makes one; QEMU carries packets between the guest and the TAP device.
    ///
    /// # Errors
    ///
    /// What the kernel says: no `/dev/net/tun`, no bridges, a name that is taken, an uplink that is a port already (`EBUSY`).
    pub fn attach(uplink: &Uplink<'_>, config: &AttachConfig) -> Result<Self> {
        Self::of(config.tap(uplink, true)?, uplink, config)
    }

    /// Makes one in which a thread of the kernel does, as [`Way::VhostNet`].
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] without vhost-net; the rest as [`TapBridge::attach`].
    pub fn by_vhost(uplink: &Uplink<'_>, config: &AttachConfig) -> Result<Self> {
        Self::find_vhost()?;
        Self::of(config.tap(uplink, true)?.by_vhost(), uplink, config)
    }

    /// Whether there is vhost-net.
    pub(super) fn find_vhost() -> Result<()> {
        let open = OpenOptions::new().read(true).write(true).open(VHOST_NET);
        let found = open.map_err(|error| Error::Missing {
            way: Way::VhostNet,
            what: format!("{VHOST_NET} cannot be opened: {error}"),
            advice: match fs::exists(VHOST_NET) {
                Ok(true) => "run as root, or as a member of the group that it belongs to".to_owned(),
                _ => "the kernel needs CONFIG_VHOST_NET (modprobe vhost_net); tap-bridge is the same with QEMU's own thread in its place"
                    .to_owned(),
            },
        });
        found.map(drop)
    }

    fn of(tap: GuestTap, uplink: &Uplink<'_>, config: &AttachConfig) -> Result<Self> {
        Ok(Self {
            bridge: config.bridge(uplink, &tap)?,
            tap: Arc::new(tap),
            mac: config.mac,
        })
    }
}

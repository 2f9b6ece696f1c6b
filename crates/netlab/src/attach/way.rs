//! The ways' names.

use std::fmt;
use std::str::FromStr;

/// What carries packets between an interface and a guest: see the [module](super).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Way {
    /// A TAP device and a bridge of the kernel's.
    TapBridge,
    /// The same with vhost-net.
    VhostNet,
    /// A macvtap device.
    Macvtap,
    /// Open vSwitch with the datapath in user space.
    OvsUserspace,
    /// Open vSwitch with the datapath in the kernel.
    OvsKernel,
    /// XDP programs that redirect all packets.
    Xdp,
    /// XDP programs that redirect some packets, and a bridge for the rest.
    Express,
    /// A forwarder on AF_XDP sockets.
    AfXdp,
    /// A program that shares the guest's memory.
    VhostUser,
    /// A NIC of the machine.
    Vfio,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::TapBridge,
        Self::VhostNet,
        Self::Macvtap,
        Self::OvsUserspace,
        Self::OvsKernel,
        Self::Xdp,
        Self::Express,
        Self::AfXdp,
        Self::VhostUser,
        Self::Vfio,
    ];

    /// The name, as [`Way::from_str`] takes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TapBridge => "tap-bridge",
            Self::VhostNet => "vhost-net",
            Self::Macvtap => "macvtap",
            Self::OvsUserspace => "ovs-userspace",
            Self::OvsKernel => "ovs-kernel",
            Self::Xdp => "xdp",
            Self::Express => "xdp-express",
            Self::AfXdp => "af-xdp",
            Self::VhostUser => "vhost-user",
            Self::Vfio => "vfio",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no way has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no attachment is called '{name}': {}", Way::ALL.map(Way::name).join(", "))]
pub struct ParseWayError {
    name: String,
}

impl FromStr for Way {
    type Err = ParseWayError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|way| way.name() == name);
        found.ok_or_else(|| ParseWayError { name: name.to_owned() })
    }
}

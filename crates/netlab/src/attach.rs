//! Ways to join a guest to a network: what stands between an interface of this machine and the guest's NIC.
//!
//! ```text
//!  host A ──veth── uplink │ host B │ ⇢ guest        ⇢: one of these ways
//! ```
//!
//! | way | what carries a packet between the uplink and the guest |
//! |---|---|
//! | [`Way::TapBridge`] | the kernel's bridge and a TAP device, QEMU behind it |
//! | [`Way::VhostNet`] | the same, a thread of the kernel behind it |
//! | [`Way::Macvtap`] | a macvtap device on the uplink |
//! | [`Way::OvsUserspace`] | Open vSwitch, its datapath in `ovs-vswitchd` |
//! | [`Way::OvsKernel`] | Open vSwitch, its datapath in the kernel |
//! | [`Way::Xdp`] | XDP programs that redirect between the uplink and a TAP device |
//! | [`Way::Express`] | the same for some packets, a bridge for the others |
//! | [`Way::AfXdp`] | a forwarder on AF_XDP sockets: `ringside impair` that impairs nothing |
//! | [`Way::VhostUser`] | a program that shares the guest's memory |
//! | [`Way::Vfio`] | nothing: the guest has a NIC of the machine |
//!
//! An attachment is made before the guest that is joined by it, and the guest gets its [`Nic`]. It is removed when it is dropped; its
//! programs die with this process, and its devices with the namespace that they are in.
//!
//! ```no_run
//! use ringside_netlab::attach::{AttachConfig, Attachment, Uplink, Way};
//! use ringside_netlab::guest::{Agent, Guest, GuestConfig, Kernel};
//! use ringside_netlab::{Lab, VethConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let lab = Lab::veth(VethConfig { hosts: [1, 0], ..VethConfig::tagged("path") })?;
//! let attachment = Attachment::make(Way::TapBridge, &Uplink::of(&lab), &AttachConfig::new("g0"))?;
//! let mut config = GuestConfig::new("guest", Kernel::usual()?, Agent::program("/usr/local/bin/ringside"));
//! config.nics.push(attachment.nic("eth0"));
//! let guest = Guest::start(&config)?;
//! # drop(guest); Ok(())
//! # }
//! ```
//!
//! What each way takes and does to packets is in docs/attachments.md.

mod bridge;
mod forwarder;
mod macvtap;
mod ovs;
pub(crate) mod process;
mod redirect;
pub(crate) mod vfio;
mod vhost;
mod way;

use std::path::PathBuf;
use std::sync::Arc;

use ringside_bpf::{Redirected, XdpMode};
use ringside_nic::Interface;

pub use self::bridge::TapBridge;
pub use self::forwarder::Forwarder;
pub use self::macvtap::Macvtap;
pub use self::ovs::{Datapath, Ovs};
pub use self::redirect::XdpRedirect;
pub use self::vfio::{ParsePciAddressError, PciAddress, Vfio};
pub use self::vhost::{VHOST_NET, VhostUser};
pub use self::way::{ParseWayError, Way};

use crate::guest::{Model, Nic, Wire};
use crate::lab::inside;
use crate::{Device, End, Error, GuestTap, Lab, Namespace, Result};

/// The interface that a guest is to be reached by.
#[derive(Debug, Clone, Copy)]
pub struct Uplink<'a> {
    /// The host that it is in, and that has the attachment.
    pub ns: &'a Arc<Namespace>,
    /// The interface. Its addresses, if it has any, are not reached any more on most ways.
    pub interface: &'a Interface,
    /// If it is a veth: its other end, of which some ways have to change offloads, as those of a NIC itself. They are put back when the attachment is dropped.
    pub peer: Option<&'a End>,
}

impl<'a> Uplink<'a> {
    /// End `b` of a link, with `a` for the host that is to reach the guest.
    #[must_use]
    pub fn of(lab: &'a Lab) -> Self {
        Self::at(lab, &lab.b, &lab.a)
    }

    /// An end of a link, with the other one for the host that is to reach the guest.
    #[must_use]
    pub fn at(lab: &Lab, end: &'a End, near: &'a End) -> Self {
        Self {
            ns: &end.ns,
            interface: &end.interface,
            peer: lab.is_veth().then_some(near),
        }
    }
}

/// What an attachment is made like.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AttachConfig {
    /// Part of its devices' names, of which the kernel takes 15 bytes: 10 at the most.
    pub tag: String,
    /// The hardware address of the guest's NIC.
    pub mac: [u8; 6],
    /// The queues of the guest's NIC.
    pub queues: u32,
    /// How many packets may wait for the guest, in each queue; the kernel's default is 1000. A macvtap device and vhost-user have
    /// none of their own.
    pub queue_len: Option<u32>,
    /// Of XDP: in the driver or in the stack.
    pub xdp_mode: XdpMode,
    /// Of [`Way::Express`]: which packets.
    pub express: Redirected,
    /// Of [`Way::AfXdp`]: the `ringside` that forwards. Without it one is looked for in `PATH`.
    pub ringside: PathBuf,
    /// Of [`Way::AfXdp`]: how the forwarder waits, as `ringside --wait` has it: "poll", "busy-poll", "spin".
    pub wait: String,
    /// Of [`Way::VhostUser`]: the socket of a program that somebody else has started.
    pub socket: Option<PathBuf>,
    /// Of [`Way::VhostUser`] without a socket: the program that serves the guest's queues, and its arguments, in which `{socket}` is the socket that it is to
    /// make and `{uplink}` the name of the uplink, in whose namespace it runs. Without any `dpdk-testpmd` is it.
    pub program: Vec<String>,
    /// Of [`Way::Vfio`]: the NIC.
    pub pci: Option<PciAddress>,
    /// Of [`Way::Macvtap`]: where its device is made, if that is not the uplink's namespace. It goes with this one after a kill.
    pub home: Option<Arc<Namespace>>,
}

impl AttachConfig {
    /// One queue, native XDP, VLAN priorities 4 to 7 for the express lane, and a hardware address that depends on the tag.
    #[must_use]
    pub fn new(tag: impl Into<String>) -> Self {
        let tag = tag.into();
        // FNV-1a, for no two tags of a test bed to have one address.
        let hash = tag.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        let [a, b, c, d] = hash.to_be_bytes();
        Self {
            tag,
            mac: [0x02, b'g', a, b, c, d],
            queues: 1,
            queue_len: None,
            xdp_mode: XdpMode::Native,
            express: Redirected::Priority(4),
            ringside: "ringside".into(),
            wait: "poll".to_owned(),
            socket: None,
            program: Vec::new(),
            pci: None,
            home: None,
        }
    }

    fn name(&self, kind: &str) -> String {
        format!("{kind}-{}", self.tag)
    }

    /// A TAP device by this configuration; with `offloads` it leaves checksums and segments to the guest, and the guest to it.
    fn tap(&self, uplink: &Uplink<'_>, offloads: bool) -> Result<GuestTap> {
        let tap = GuestTap::make(uplink.ns, &self.name("tap"), self.queues, offloads, false)?;
        if let Some(packets) = self.queue_len {
            tap.device.set_queue_len(packets)?;
        }
        Ok(tap)
    }

    /// A bridge by this configuration, with the uplink and a TAP device for ports.
    fn bridge(&self, uplink: &Uplink<'_>, tap: &GuestTap) -> Result<Device> {
        let bridge = Device::bridge(uplink.ns, &self.name("br"))?;
        bridge.attach(uplink.interface)?;
        bridge.attach(&tap.device.interface)?;
        Ok(bridge)
    }
}

/// What joins a guest to an uplink. Dropping it removes it, and puts back what it has changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Attachment {
    /// [`Way::TapBridge`] and [`Way::VhostNet`].
    TapBridge(TapBridge),
    /// [`Way::Macvtap`].
    Macvtap(Macvtap),
    /// [`Way::OvsUserspace`] and [`Way::OvsKernel`].
    Ovs(Ovs),
    /// [`Way::Xdp`] and [`Way::Express`].
    Xdp(XdpRedirect),
    /// [`Way::AfXdp`].
    AfXdp(Forwarder),
    /// [`Way::VhostUser`].
    VhostUser(VhostUser),
    /// [`Way::Vfio`].
    Vfio(Arc<Vfio>),
}

impl Attachment {
    /// Makes one. Packets pass as soon as the guest is up.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] if this machine lacks what the way takes; otherwise what the kernel or a program says. Nothing is
    /// left behind.
    pub fn make(way: Way, uplink: &Uplink<'_>, config: &AttachConfig) -> Result<Self> {
        match way {
            Way::TapBridge => TapBridge::attach(uplink, config).map(Self::TapBridge),
            Way::VhostNet => TapBridge::by_vhost(uplink, config).map(Self::TapBridge),
            Way::Macvtap => Macvtap::attach(uplink, config).map(Self::Macvtap),
            Way::OvsUserspace => Ovs::attach(Datapath::Userspace, uplink, config).map(Self::Ovs),
            Way::OvsKernel => Ovs::attach(Datapath::Kernel, uplink, config).map(Self::Ovs),
            Way::Xdp => XdpRedirect::attach(uplink, config).map(Self::Xdp),
            Way::Express => XdpRedirect::express(uplink, config).map(Self::Xdp),
            Way::AfXdp => Forwarder::attach(uplink, config).map(Self::AfXdp),
            Way::VhostUser => VhostUser::attach(uplink, config).map(Self::VhostUser),
            Way::Vfio => {
                let address = config.pci.ok_or_else(|| Error::Missing {
                    way,
                    what: "no PCI device is named".to_owned(),
                    advice: "name one (AttachConfig::pci); lspci -D lists them".to_owned(),
                })?;
                Ok(Self::Vfio(Arc::new(Vfio::bind(address)?)))
            }
        }
    }

    /// What this machine is seen to lack for a way before anything is made: a program, a device file, the NIC. `None` is no promise that it can be
    /// made: what the kernel has is found out by [`Attachment::make`].
    #[must_use]
    pub fn lacks(way: Way, config: &AttachConfig) -> Option<Error> {
        let found = match way {
            Way::TapBridge | Way::Macvtap | Way::Xdp | Way::Express | Way::AfXdp => Ok(()),
            Way::VhostNet => TapBridge::find_vhost(),
            Way::OvsUserspace | Way::OvsKernel => Ovs::find(way),
            Way::VhostUser => VhostUser::find(config),
            Way::Vfio => config.pci.map_or(Ok(()), Vfio::check),
        };
        found.err()
    }

    /// Which way it is.
    #[must_use]
    pub fn way(&self) -> Way {
        match self {
            Self::TapBridge(bridge) if bridge.tap.is_by_vhost() => Way::VhostNet,
            Self::TapBridge(_) => Way::TapBridge,
            Self::Macvtap(_) => Way::Macvtap,
            Self::Ovs(ovs) => match ovs.datapath() {
                Datapath::Userspace => Way::OvsUserspace,
                Datapath::Kernel => Way::OvsKernel,
            },
            Self::Xdp(xdp) if xdp.bridge().is_some() => Way::Express,
            Self::Xdp(_) => Way::Xdp,
            Self::AfXdp(_) => Way::AfXdp,
            Self::VhostUser(_) => Way::VhostUser,
            Self::Vfio(_) => Way::Vfio,
        }
    }

    /// The device of this machine that the guest's NIC is behind, if the way has one.
    #[must_use]
    pub fn tap(&self) -> Option<&Arc<GuestTap>> {
        match self {
            Self::TapBridge(TapBridge { tap, .. })
            | Self::Macvtap(Macvtap { tap, .. })
            | Self::Ovs(Ovs { tap, .. })
            | Self::Xdp(XdpRedirect { tap, .. })
            | Self::AfXdp(Forwarder { tap, .. }) => Some(tap),
            Self::VhostUser(_) | Self::Vfio(_) => None,
        }
    }

    /// The guest's NIC, to be put among those of its configuration; for one guest.
    #[must_use]
    pub fn nic(&self, name: impl Into<String>) -> Nic {
        let (mac, wire) = match self {
            Self::TapBridge(TapBridge { tap, mac, .. })
            | Self::Macvtap(Macvtap { tap, mac, .. })
            | Self::Ovs(Ovs { tap, mac, .. })
            | Self::Xdp(XdpRedirect { tap, mac, .. })
            | Self::AfXdp(Forwarder { tap, mac, .. }) => (*mac, Wire::Tap(Arc::clone(tap))),
            Self::VhostUser(user) => (user.mac, user.wire()),
            // It keeps its own.
            Self::Vfio(vfio) => (vfio.mac(), Wire::Vfio(Arc::clone(vfio))),
        };
        Nic {
            name: name.into(),
            mac,
            model: Model::VirtioNet,
            wire,
        }
    }

    /// Whether the programs that carry its packets run.
    ///
    /// # Errors
    ///
    /// [`Error::Program`] of one that has ended, with the last that it said.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Ovs(ovs) => ovs.check(),
            Self::AfXdp(forwarder) => forwarder.check(),
            Self::VhostUser(user) => user.check(),
            _ => Ok(()),
        }
    }
}

/// VLAN tags that are put into packets by the device.
const VLAN_INSERT: &str = "tx-vlan-hw-insert";
/// VLAN tags that are taken out of packets by the device.
const VLAN_PARSE: &str = "rx-vlan-hw-parse";

/// Packets that are put together where they are received.
const GRO: &str = "rx-gro";

/// An offload of an interface that was changed, and is put back when this is dropped.
#[derive(Debug)]
struct Offload {
    ns: Arc<Namespace>,
    interface: Interface,
    name: &'static str,
    before: bool,
}

impl Offload {
    /// Sets one and returns what puts it back; None if it is so already.
    fn set(ns: &Arc<Namespace>, interface: &Interface, name: &'static str, on: bool) -> Result<Option<Self>> {
        let before = inside(ns, || interface.feature(name))?.active;
        if before == on {
            return Ok(None);
        }
        inside(ns, || interface.set_feature(name, on))?;
        Ok(Some(Self {
            ns: Arc::clone(ns),
            interface: interface.clone(),
            name,
            before,
        }))
    }

    /// The same of the other end of a veth, if there is one.
    fn set_at_peer(uplink: &Uplink<'_>, name: &'static str, on: bool) -> Result<Option<Self>> {
        let set = |end: &End| Self::set(&end.ns, &end.interface, name, on);
        Ok(uplink.peer.map(set).transpose()?.flatten())
    }

    /// Has VLAN tags come in packets: the other end of a veth leaves none to its device, and a NIC takes none out.
    fn tags_in_packets(uplink: &Uplink<'_>) -> Result<Option<Self>> {
        match uplink.peer {
            Some(_) => Self::set_at_peer(uplink, VLAN_INSERT, false),
            None => Self::set(uplink.ns, uplink.interface, VLAN_PARSE, false),
        }
    }

    /// Has the other end of a veth make its checksums and segments itself, too: for a carrier that takes packets as they are. A wire has no others.
    fn whole_packets(uplink: &Uplink<'_>) -> Result<Vec<Self>> {
        let checksums = Self::set_at_peer(uplink, "tx-checksum-ip-generic", false)?;
        Ok(checksums.into_iter().chain(Self::tags_in_packets(uplink)?).collect())
    }

    /// The same for a carrier that reads packet sockets: what GRO has put together is longer than the room that it has for a packet.
    fn whole_packets_of_sockets(uplink: &Uplink<'_>) -> Result<Vec<Self>> {
        let mut all = Self::whole_packets(uplink)?;
        all.extend(Self::set(uplink.ns, uplink.interface, GRO, false)?);
        Ok(all)
    }
}

impl Drop for Offload {
    fn drop(&mut self) {
        // The interface may be gone, and all that it was with it.
        let set = || self.interface.set_feature(self.name, self.before);
        _ = self.ns.try_run(set);
    }
}

fn bpf(what: &'static str, uplink: &Uplink<'_>) -> impl FnOnce(ringside_bpf::Error) -> Error {
    let (interface, namespace) = (uplink.interface.name().to_owned(), uplink.ns.name().to_owned());
    move |source| Error::Bpf {
        operation: what,
        interface,
        namespace,
        source: Box::new(source),
    }
}

#[cfg(test)]
#[path = "attach_tests.rs"]
mod tests;

//! Sending packets on to another interface, without a socket and without the stack.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link as Attached, MapCore, MapFlags, MapHandle};
use serde::Serialize;

use crate::attach::{self, Link, XdpMode};
use crate::error::{Error, Result};
use crate::load;
use crate::skel::redirect::RedirectSkelBuilder;
use crate::skel::redirect_lost::RedirectLostSkelBuilder;
use crate::traffic::Traffic;

const ALL: &str = "ringside_redir";
const EXPRESS: &str = "ringside_expr";
const LOST: &str = "ringside_rlost";

/// The highest priority that a VLAN tag has room for (PCP, IEEE 802.1Q).
const MOST_PRIORITY: u8 = 7;

/// Which packets a [`Redirector`] sends on; the others are the kernel's as before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Redirected {
    /// All of them.
    ///
    /// The program does not cope with packets in several buffers, so a veth's other end stops to send such (TSO, GSO).
    #[default]
    All,
    /// Those with a VLAN priority (PCP) of so much or more, 1 to 7.
    Priority(u8),
    /// UDP to this port, over IPv4 and IPv6.
    Udp(u16),
}

/// An XDP program that sends what comes in on an interface out of another one, from driver to driver (Linux 5.18).
///
/// UDP and TCP checksums of senders on the same machine, who leave them to a device that there is not, are completed on the way.
/// A packet that is longer than the other interface's MTU is dropped by the kernel (`EMSGSIZE`,
/// [`XdpEvents`](crate::XdpEvents)): generic receive offload and TSO of the other end are to be off where all are sent on.
///
/// Needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or root.
#[derive(Debug)]
pub struct Redirector {
    name: &'static str,
    program: OwnedFd,
    target: MapHandle,
    counters: MapHandle,
}

impl Redirector {
    /// Loads the program. Until it is told where to, all packets pass to the kernel.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a priority or a port that no packet has, [`Error::Load`] if the kernel refuses the program.
    pub fn load(which: Redirected) -> Result<Self> {
        let name = if which == Redirected::All { ALL } else { EXPRESS };
        let (priority, port) = match which {
            Redirected::All => (0, 0),
            Redirected::Priority(least @ 1..=MOST_PRIORITY) => (least, 0),
            Redirected::Priority(other) => {
                return Err(Error::invalid(
                    name,
                    format!("a VLAN priority of {other}: 1 to 7 can be told from the rest"),
                ));
            }
            Redirected::Udp(0) => return Err(Error::invalid(name, "UDP port 0: 1 to 65535 are ports")),
            Redirected::Udp(port) => (0, port),
        };
        let mut storage = MaybeUninit::uninit();
        let skel = load::capture(name, || {
            let mut open = RedirectSkelBuilder::default().open(&mut storage)?;
            let constants = open
                .maps
                .rodata_data
                .as_deref_mut()
                .expect("redirect.bpf.c has constants");
            constants.least_priority = priority.into();
            constants.only_udp_port = port.into();
            open.progs.ringside_redir.set_autoload(name == ALL);
            open.progs.ringside_expr.set_autoload(name == EXPRESS);
            open.load()
        })?;
        let program = if name == ALL {
            &skel.progs.ringside_redir
        } else {
            &skel.progs.ringside_expr
        };
        Ok(Self {
            name,
            program: load::own(name, program)?,
            target: load::own_map(name, &skel.maps.target)?,
            counters: load::own_map(name, &skel.maps.counters)?,
        })
    }

    /// Has it send to an interface of the calling thread's network namespace, from the next packet on.
    ///
    /// Its driver has to take redirected frames: a veth does while its peer has native XDP attached or GRO on.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if there is no such interface (`EINVAL`).
    pub fn send_to(&self, ifindex: u32) -> Result<()> {
        self.target
            .update(&0u32.to_ne_bytes(), &ifindex.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::map(self.name, "target", "writing", load::os_error(&error)))
    }

    /// Attaches it to an interface of the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// [`Error::Attach`], for instance if another program is attached.
    pub fn attach(&self, ifindex: u32, mode: XdpMode) -> Result<Link> {
        attach::xdp(self.name, self.program.as_fd(), ifindex, mode)
    }

    /// What it sent on since loading, and what it let pass. Whether the other interface had room for all of it [`RedirectLosses`] tells.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the reading.
    pub fn traffic(&self) -> Result<Traffic> {
        Traffic::read(self.name, &self.counters)
    }
}

/// What the kernel drops of what XDP has redirected from an interface to other ones, from when it is started until it is dropped. Who redirects does
/// not learn of it, and a TAP device counts one packet for all of a burst that it has no room for.
///
/// Needs a kernel with BTF, and CAP_BPF and CAP_PERFMON, or root.
#[derive(Debug)]
pub struct RedirectLosses {
    counters: MapHandle,
    /// Each detaches its program when it is dropped.
    _links: [Attached; 2],
}

/// What was dropped so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct RedirectLost {
    /// Packets.
    pub packets: u64,
    /// Bursts that the other interface's driver had no room for, or not for all of it: so many of the packets a TAP device has counted itself (`tx_dropped`).
    pub bursts: u64,
}

impl RedirectLosses {
    /// Begins to count for an interface. The namespace is told by the inode of its file (`stat -L -c %i /proc/self/ns/net`).
    ///
    /// # Errors
    ///
    /// [`Error::Load`] if the kernel refuses the programs: without BTF, and without the capabilities.
    pub fn start(namespace: u32, ifindex: u32) -> Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let (skel, links) = load::capture(LOST, || {
            let mut open = RedirectLostSkelBuilder::default().open(&mut storage)?;
            let constants = open
                .maps
                .rodata_data
                .as_deref_mut()
                .expect("redirect_lost.bpf.c has constants");
            (constants.namespace, constants.ifindex) = (namespace, ifindex);
            let skel = open.load()?;
            let links = [
                skel.progs.ringside_rlost.attach_trace()?,
                skel.progs.ringside_rlost_e.attach_trace()?,
            ];
            Ok((skel, links))
        })?;
        Ok(Self {
            counters: load::own_map(LOST, &skel.maps.counters)?,
            _links: links,
        })
    }

    /// What was dropped since then.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the reading.
    pub fn lost(&self) -> Result<RedirectLost> {
        let [packets, bursts] = load::sum_per_cpu(LOST, "counters", &self.counters, 0)?;
        Ok(RedirectLost { packets, bursts })
    }
}

impl AsFd for Redirector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

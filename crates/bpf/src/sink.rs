//! Dropping what arrives: early in XDP, or late behind the packet taps.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::attach::{self, Link, XdpMode};
use crate::error::Result;
use crate::load;
use crate::skel::sink::SinkSkelBuilder;
use crate::skel::tc_drop::TcDropSkelBuilder;
use crate::traffic::Traffic;

const SINK: &str = "ringside_sink";
const DROP: &str = "ringside_drop";

/// Whether the host's own neighbour discovery is spared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Neighbours {
    /// ARP and IPv6 neighbour discovery go up to the kernel: addresses stay resolvable.
    #[default]
    Pass,
    /// Everything is dropped, and no packet looked into: the limit of what a kernel can receive.
    Drop,
}

/// An XDP program that counts packets and drops them.
///
/// Needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or root; only [`XskProgram`](crate::XskProgram) does without the last.
///
/// ```no_run
/// use ringside_bpf::{Neighbours, Sink, XdpMode};
///
/// let sink = Sink::load(Neighbours::Pass)?;
/// let link = sink.attach(7, XdpMode::Native)?;
/// println!("{} packets dropped", sink.traffic()?.packets);
/// drop(link);
/// # Ok::<(), ringside_bpf::Error>(())
/// ```
#[derive(Debug)]
pub struct Sink {
    program: OwnedFd,
    counters: MapHandle,
}

impl Sink {
    /// Loads the program.
    ///
    /// # Errors
    ///
    /// [`Error::Load`](crate::Error::Load) if the kernel refuses it.
    pub fn load(neighbours: Neighbours) -> Result<Self> {
        Self::load_with(neighbours, 0)
    }

    /// Loads one that drops and counts UDP over IPv4 and IPv6 to one port, and lets all else pass: for an interface that the host
    /// is also reached by.
    ///
    /// # Errors
    ///
    /// As [`Sink::load`].
    pub fn load_for_udp(port: u16) -> Result<Self> {
        Self::load_with(Neighbours::Pass, port)
    }

    fn load_with(neighbours: Neighbours, only_udp_port: u16) -> Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let skel = load::capture(SINK, || {
            let mut open = SinkSkelBuilder::default().open(&mut storage)?;
            let constants = open.maps.rodata_data.as_deref_mut().expect("sink.bpf.c has constants");
            constants.pass_neighbour = (neighbours == Neighbours::Pass).into();
            constants.only_udp_port = only_udp_port.into();
            open.load()
        })?;
        Ok(Self {
            program: load::own(SINK, &skel.progs.ringside_sink)?,
            counters: load::own_map(SINK, &skel.maps.counters)?,
        })
    }

    /// Attaches it to an interface of the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// [`Error::Attach`](crate::Error::Attach), for instance if another program is attached.
    pub fn attach(&self, ifindex: u32, mode: XdpMode) -> Result<Link> {
        attach::xdp(SINK, self.program.as_fd(), ifindex, mode)
    }

    /// What it dropped since loading, on all interfaces that it was attached to.
    ///
    /// # Errors
    ///
    /// [`Error::Map`](crate::Error::Map) if the kernel refuses the reading.
    pub fn traffic(&self) -> Result<Traffic> {
        Traffic::read(SINK, &self.counters)
    }
}

impl AsFd for Sink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

/// A program that drops all that arrives on an interface after AF_PACKET sockets have seen it and
/// before the IP stack would work on it: what an AF_PACKET receiver needs to be at its best.
///
/// Needs kernel 6.6 (tcx).
#[derive(Debug)]
pub struct IngressDrop {
    program: OwnedFd,
    counters: MapHandle,
}

impl IngressDrop {
    /// Loads the program.
    ///
    /// # Errors
    ///
    /// [`Error::Load`](crate::Error::Load) if the kernel refuses it.
    pub fn load() -> Result<Self> {
        Self::load_with(0)
    }

    /// Loads one that drops UDP to one port (without VLAN tags and IPv6 extension headers), and lets all else pass.
    ///
    /// # Errors
    ///
    /// As [`IngressDrop::load`].
    pub fn load_for_udp(port: u16) -> Result<Self> {
        Self::load_with(port)
    }

    fn load_with(only_udp_port: u16) -> Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let skel = load::capture(DROP, || {
            let mut open = TcDropSkelBuilder::default().open(&mut storage)?;
            let constants = open
                .maps
                .rodata_data
                .as_deref_mut()
                .expect("tc_drop.bpf.c has constants");
            constants.only_udp_port = only_udp_port.into();
            open.load()
        })?;
        Ok(Self {
            program: load::own(DROP, &skel.progs.ringside_drop)?,
            counters: load::own_map(DROP, &skel.maps.counters)?,
        })
    }

    /// Attaches it to an interface of the calling thread's network namespace.
    ///
    /// ARP is dropped with the rest: resolve addresses before, or enter them by hand.
    ///
    /// # Errors
    ///
    /// [`Error::Attach`](crate::Error::Attach) if there is no such interface or no tcx.
    pub fn attach(&self, ifindex: u32) -> Result<Link> {
        attach::tcx_ingress(DROP, self.program.as_fd(), ifindex)
    }

    /// What it dropped since loading, on all interfaces that it was attached to.
    ///
    /// # Errors
    ///
    /// [`Error::Map`](crate::Error::Map) if the kernel refuses the reading.
    pub fn traffic(&self) -> Result<Traffic> {
        Traffic::read(DROP, &self.counters)
    }
}

impl AsFd for IngressDrop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

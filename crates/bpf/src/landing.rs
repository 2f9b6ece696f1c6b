//! Where packets land: on which receive queue, and on which CPU the stack works on them, or XDP for an AF_XDP socket.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link as Attached, MapCore, MapFlags, MapHandle};

use crate::attach::{self, Link};
use crate::error::{Error, Result};
use crate::load;
use crate::skel::landing::LandingSkelBuilder;
use crate::skel::landing_xsk::LandingXskSkelBuilder;

const NAME: &str = "ringside_landing";
const NAME_XSK: &str = "ringside_landx";

/// As in landing.h.
const MOST_CLASSES: usize = 16;
const MOST_QUEUES: usize = 64;
const BY_PRIORITY: u32 = 1;
const BY_UDP_PORT: u32 = 2;

/// Which packets are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LandingClass {
    /// Those whose VLAN tag has this priority code point.
    VlanPriority(u8),
    /// UDP to this port, over IPv4 without fragments or IPv6 without extension headers.
    UdpPort(u16),
}

/// Who gets a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LandingFor {
    /// The kernel's stack.
    Stack,
    /// An AF_XDP socket, from native XDP, zero-copy or not: in the driver's poll, in front of RPS.
    Xsk,
    /// An AF_XDP socket, from generic XDP: behind RPS.
    XskGeneric,
}

/// How many packets of a class landed in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Landing {
    /// Number of the class; `None` for packets of none.
    pub class: Option<usize>,
    /// Receive queue, as the driver has recorded it; 0 where it records none. The 64th and those behind it are one.
    pub queue: u32,
    /// CPU on which the stack worked on them, behind RPS, or XDP.
    pub cpu: u32,
    /// Who gets them.
    pub to: LandingFor,
    /// How many.
    pub packets: u64,
}

/// A program that counts what arrives on an interface, by class, receive queue and CPU, and lets it pass.
///
/// It sees what goes up the kernel's stack, behind RPS and the packet taps: not what an XDP program has taken away before. What XDP gives to
/// AF_XDP sockets is counted [besides](Landings::count_xsk). Needs kernel 6.6 (tcx), CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or root.
///
/// ```no_run
/// use ringside_bpf::{LandingClass, Landings};
///
/// let landings = Landings::load(&[LandingClass::VlanPriority(5)])?;
/// let link = landings.attach(7)?;
/// for landing in landings.counts()? {
///     println!("class {:?}: {} packets on queue {}, CPU {}", landing.class, landing.packets, landing.queue, landing.cpu);
/// }
/// drop(link);
/// # Ok::<(), ringside_bpf::Error>(())
/// ```
#[derive(Debug)]
pub struct Landings {
    program: OwnedFd,
    counters: MapHandle,
    classes: Vec<LandingClass>,
    xsk: Option<Xsk>,
}

/// What counts for AF_XDP sockets.
#[derive(Debug)]
struct Xsk {
    counters: MapHandle,
    /// Detaches its program when it is dropped.
    _link: Attached,
}

impl Landings {
    /// How many classes can be told apart.
    pub const MOST_CLASSES: usize = MOST_CLASSES;

    /// Loads the program. A packet belongs to the first class that it fits; classes beyond [`Landings::MOST_CLASSES`] are not told
    /// apart from what is in none.
    ///
    /// # Errors
    ///
    /// [`Error::Load`] if the kernel refuses it.
    pub fn load(classes: &[LandingClass]) -> Result<Self> {
        Self::load_with(classes, 0)
    }

    /// Loads one that drops, behind the counting, UDP from one port: what is sent only to be counted, and is nobody's.
    ///
    /// # Errors
    ///
    /// As [`Landings::load`].
    pub fn load_and_drop(classes: &[LandingClass], own_udp_port: u16) -> Result<Self> {
        Self::load_with(classes, own_udp_port)
    }

    fn load_with(classes: &[LandingClass], own_udp_port: u16) -> Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let skel = load::capture(NAME, || {
            let mut open = LandingSkelBuilder::default().open(&mut storage)?;
            let constants = open
                .maps
                .rodata_data
                .as_deref_mut()
                .expect("landing.bpf.c has constants");
            constants.own_udp_port = own_udp_port.into();
            for (slot, class) in constants.classes.iter_mut().zip(classes) {
                (slot.kind, slot.value) = class.told();
            }
            open.load()
        })?;
        Ok(Self {
            program: load::own(NAME, &skel.progs.ringside_landing)?,
            counters: load::own_map(NAME, &skel.maps.landings)?,
            classes: classes.to_vec(),
            xsk: None,
        })
    }

    /// Attaches it to an interface of the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// [`Error::Attach`] if there is no such interface or no tcx.
    pub fn attach(&self, ifindex: u32) -> Result<Link> {
        attach::tcx_ingress(NAME, self.program.as_fd(), ifindex)
    }

    /// Counts from now on also what AF_XDP sockets get of an interface's packets, whoever's they are. What a socket has no room for is not counted, and of a
    /// packet in several frames the class is not known. The namespace is told by the inode of its file (`stat -L -c %i /proc/self/ns/net`). Each packet to an
    /// AF_XDP socket of this machine costs a little more meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Load`] if the kernel refuses the program, which it does without BTF. All else is counted on.
    pub fn count_xsk(&mut self, namespace: u32, ifindex: u32) -> Result<()> {
        let mut storage = MaybeUninit::uninit();
        let (skel, link) = load::capture(NAME_XSK, || {
            let mut open = LandingXskSkelBuilder::default().open(&mut storage)?;
            let constants = open
                .maps
                .rodata_data
                .as_deref_mut()
                .expect("landing_xsk.bpf.c has constants");
            (constants.namespace, constants.ifindex) = (namespace, ifindex);
            for (slot, class) in constants.classes.iter_mut().zip(&self.classes) {
                (slot.kind, slot.value) = class.told();
            }
            let skel = open.load()?;
            let link = skel.progs.ringside_landx.attach_trace()?;
            Ok((skel, link))
        })?;
        self.xsk = Some(Xsk {
            counters: load::own_map(NAME_XSK, &skel.maps.landings)?,
            _link: link,
        });
        Ok(())
    }

    /// What has landed since it was begun, and where; places without packets are left out.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the reading.
    pub fn counts(&self) -> Result<Vec<Landing>> {
        let mut all = self.read(&self.counters, 0, LandingFor::Stack)?;
        if let Some(xsk) = &self.xsk {
            for (way, to) in [LandingFor::Xsk, LandingFor::XskGeneric].into_iter().enumerate() {
                all.extend(self.read(&xsk.counters, way, to)?);
            }
        }
        Ok(all)
    }

    fn read(&self, counters: &MapHandle, way: usize, to: LandingFor) -> Result<Vec<Landing>> {
        let mut all = Vec::new();
        let classes = (0..self.classes.len().min(MOST_CLASSES)).chain([MOST_CLASSES]);
        for (class, queue) in classes.flat_map(|class| (0..MOST_QUEUES).map(move |queue| (class, queue))) {
            let at = (way * (MOST_CLASSES + 1) + class) * MOST_QUEUES + queue;
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            let values = counters
                .lookup_percpu(&at.to_ne_bytes(), MapFlags::ANY)
                .map_err(|error| Error::map(NAME, "landings", "reading", load::os_error(&error)))?;
            for (cpu, value) in (0..).zip(values.unwrap_or_default()) {
                let packets = value
                    .as_chunks()
                    .0
                    .first()
                    .map_or(0, |bytes| u64::from_ne_bytes(*bytes));
                if packets > 0 {
                    all.push(Landing {
                        class: (class < MOST_CLASSES).then_some(class),
                        queue: u32::try_from(queue).unwrap_or(u32::MAX),
                        cpu,
                        to,
                        packets,
                    });
                }
            }
        }
        Ok(all)
    }
}

impl LandingClass {
    /// As in landing.h.
    fn told(self) -> (u32, u32) {
        match self {
            Self::VlanPriority(pcp) => (BY_PRIORITY, pcp.into()),
            Self::UdpPort(port) => (BY_UDP_PORT, port.into()),
        }
    }
}

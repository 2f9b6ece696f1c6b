//! Where packets land: on which receive queue, and on which CPU the stack works on them.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::attach::{self, Link};
use crate::error::{Error, Result};
use crate::load;
use crate::skel::landing::LandingSkelBuilder;

const NAME: &str = "ringside_landing";

/// As in landing.bpf.c.
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

/// How many packets of a class landed in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Landing {
    /// Number of the class; `None` for packets of none.
    pub class: Option<usize>,
    /// Receive queue, as the driver has recorded it; 0 where it records none. The 64th and those behind it are one.
    pub queue: u32,
    /// CPU on which the stack worked on them: behind RPS.
    pub cpu: u32,
    /// How many.
    pub packets: u64,
}

/// A program that counts what arrives on an interface, by class, receive queue and CPU, and lets it pass.
///
/// It sees what goes up the kernel's stack, behind RPS and the packet taps: not what an XDP program has taken away before. Needs kernel
/// 6.6 (tcx), CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or root.
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
    classes: usize,
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
                (slot.kind, slot.value) = match *class {
                    LandingClass::VlanPriority(pcp) => (BY_PRIORITY, pcp.into()),
                    LandingClass::UdpPort(port) => (BY_UDP_PORT, port.into()),
                };
            }
            open.load()
        })?;
        Ok(Self {
            program: load::own(NAME, &skel.progs.ringside_landing)?,
            counters: load::own_map(NAME, &skel.maps.landings)?,
            classes: classes.len().min(MOST_CLASSES),
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

    /// What has landed since loading, and where; places without packets are left out.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the reading.
    pub fn counts(&self) -> Result<Vec<Landing>> {
        let mut all = Vec::new();
        let classes = (0..self.classes).chain([MOST_CLASSES]);
        for (class, queue) in classes.flat_map(|class| (0..MOST_QUEUES).map(move |queue| (class, queue))) {
            let at = u32::try_from(class * MOST_QUEUES + queue).unwrap_or(u32::MAX);
            let values = self
                .counters
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
                        packets,
                    });
                }
            }
        }
        Ok(all)
    }
}

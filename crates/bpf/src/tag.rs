//! VLAN priorities for packets whose sender cannot give them any.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::attach::{self, Link};
use crate::error::Result;
use crate::load;
use crate::skel::tag::TagSkelBuilder;

const NAME: &str = "ringside_tag";

/// A program that gives what leaves an interface for one UDP port (IPv4, no fragments) a VLAN tag with a priority and without a VLAN
/// (802.1p), and to queueing disciplines the same priority (`skb->priority`). All else passes as it is.
///
/// The other end's stack takes such a packet for one without a tag; it needs no VLAN device for it. What passes the stack's egress by,
/// as XDP sockets and packet sockets with `PACKET_QDISC_BYPASS`, is not seen.
///
/// Needs kernel 6.6 (tcx), CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or root.
///
/// ```no_run
/// let tag = ringside_bpf::PriorityTag::load(5, 7000)?;
/// let link = tag.attach(7)?;
/// // UDP to port 7000 has PCP 5 until the link is dropped.
/// # Ok::<(), ringside_bpf::Error>(())
/// ```
#[derive(Debug)]
pub struct PriorityTag {
    program: OwnedFd,
}

impl PriorityTag {
    /// Loads the program; of `priority` the lowest three bits count.
    ///
    /// # Errors
    ///
    /// [`Error::Load`](crate::Error::Load) if the kernel refuses it.
    pub fn load(priority: u8, udp_port: u16) -> Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let skel = load::capture(NAME, || {
            let mut open = TagSkelBuilder::default().open(&mut storage)?;
            let constants = open.maps.rodata_data.as_deref_mut().expect("tag.bpf.c has constants");
            constants.priority = u16::from(priority & 7);
            constants.udp_port = udp_port;
            open.load()
        })?;
        Ok(Self {
            program: load::own(NAME, &skel.progs.ringside_tag)?,
        })
    }

    /// Attaches it to an interface of the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// [`Error::Attach`](crate::Error::Attach) if there is no such interface or no tcx.
    pub fn attach(&self, ifindex: u32) -> Result<Link> {
        attach::tcx_egress(NAME, self.program.as_fd(), ifindex)
    }
}

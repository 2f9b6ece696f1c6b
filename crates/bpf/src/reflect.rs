//! Sending packets back where they came from, without a socket.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::attach::{self, Link, XdpMode};
use crate::error::{Error, Result};
use crate::load;
use crate::skel::reflect::ReflectSkelBuilder;
use crate::traffic::Traffic;

const NAME: &str = "ringside_tx";

/// How far into the UDP payload a probe's kind may be.
const KIND_LIMIT: u8 = 64;

/// How an echo recognises a request among UDP payloads, and turns it into a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProbeMarks {
    /// A probe's payload begins with these bytes, big endian, left-aligned: the magic `RSDP` is
    /// `0x5253_4450_0000_0000`.
    pub magic: u64,
    /// How many of the magic's bytes count, 1 to 8.
    pub magic_len: u8,
    /// Where in the payload the kind byte is, below 64.
    pub kind_offset: u8,
    /// The kind byte of a request.
    pub request: u8,
    /// The kind byte of a reply.
    pub reply: u8,
}

/// What a [`Reflector`] sends back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reflect {
    /// Every frame to a unicast address, with its MAC addresses swapped and nothing else.
    Macs,
    /// The same of UDP to this port alone.
    MacsOfUdp(u16),
    /// Probe requests in UDP over IPv4 and IPv6, as replies: MAC addresses, IP addresses and ports
    /// swapped, the checksum right. All else goes up to the kernel.
    Probes(ProbeMarks),
}

/// An XDP program that sends packets back out of the driver: the least that forwarding or answering
/// can cost on an interface.
///
/// ARP, IPv6 neighbour discovery and frames to group addresses go up to the kernel.
///
/// Needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or root.
#[derive(Debug)]
pub struct Reflector {
    program: OwnedFd,
    counters: MapHandle,
}

impl Reflector {
    /// Loads the program.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for marks that no probe can have, [`Error::Load`] if the kernel refuses
    /// the program.
    pub fn load(reflect: Reflect) -> Result<Self> {
        if let Reflect::Probes(marks) = reflect {
            check(marks)?;
        }
        let mut storage = MaybeUninit::uninit();
        let skel = load::capture(NAME, || {
            let mut open = ReflectSkelBuilder::default().open(&mut storage)?;
            let constants = open
                .maps
                .rodata_data
                .as_deref_mut()
                .expect("reflect.bpf.c has constants");
            if let Reflect::MacsOfUdp(port) = reflect {
                constants.only_udp_port = port.into();
            }
            if let Reflect::Probes(marks) = reflect {
                let mask = u64::MAX << (64 - 8 * u32::from(marks.magic_len));
                constants.echo_probes = 1;
                constants.magic = marks.magic & mask;
                constants.magic_mask = mask;
                constants.kind_offset = marks.kind_offset.into();
                constants.kind_request = marks.request.into();
                constants.kind_reply = marks.reply.into();
            }
            open.load()
        })?;
        Ok(Self {
            program: load::own(NAME, &skel.progs.ringside_tx)?,
            counters: load::own_map(NAME, &skel.maps.counters)?,
        })
    }

    /// Attaches it to an interface of the calling thread's network namespace.
    ///
    /// On a veth the peer must have an XDP program attached natively too, or GRO on, to take what
    /// is sent back.
    ///
    /// # Errors
    ///
    /// [`Error::Attach`], for instance if another program is attached.
    pub fn attach(&self, ifindex: u32, mode: XdpMode) -> Result<Link> {
        attach::xdp(NAME, self.program.as_fd(), ifindex, mode)
    }

    /// What it sent back since loading, and what it let pass. Whether the driver had room for all
    /// of it is in the interface's statistics.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the reading.
    pub fn traffic(&self) -> Result<Traffic> {
        Traffic::read(NAME, &self.counters)
    }
}

impl AsFd for Reflector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

fn check(marks: ProbeMarks) -> Result<()> {
    if !(1..=8).contains(&marks.magic_len) {
        return Err(Error::invalid(
            NAME,
            format!("a magic of {} bytes: 1 to 8 can be told apart", marks.magic_len),
        ));
    }
    if marks.kind_offset < marks.magic_len || marks.kind_offset >= KIND_LIMIT {
        return Err(Error::invalid(
            NAME,
            format!(
                "the kind byte at offset {}: it follows the magic of {} bytes, below offset {KIND_LIMIT}",
                marks.kind_offset, marks.magic_len
            ),
        ));
    }
    Ok(())
}

//! What can go wrong, told so that it can be put right.

use std::fmt;
use std::time::Duration;

use ringside_nic::LinkEvent;
use rustix::io::Errno;

use crate::mode::Path;

/// Every error of this crate.
///
/// Each says what was tried, on which interface and queue, and what to do about it. `EAGAIN`, `EBUSY` and
/// `ENOBUFS` on the data path are no errors: they are answers the library acts on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A port or queue was used in a child of `fork()`.
    #[error(
        "{interface} queue {queue} was opened by process {opened_by}, and this is its child {child}: \
         only the parent can use it; open the port after fork() or daemon()"
    )]
    Forked {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// The process that opened it.
        opened_by: u32,
        /// This process.
        child: u32,
    },

    /// A setting that the kernel would refuse or that makes no sense.
    #[error("{setting} = {value}: {reason}")]
    Setting {
        /// Name of the setting, as in the builder.
        setting: &'static str,
        /// The value that was given.
        value: String,
        /// What it must be.
        reason: String,
    },

    /// The interface does not exist, or its facts could not be read.
    #[error(transparent)]
    Interface(#[from] ringside_nic::Error),

    /// The interface is administratively down: a socket cannot be bound to it.
    #[error("{interface} is down; bring it up first: ip link set dev {interface} up")]
    InterfaceDown {
        /// The interface.
        interface: String,
    },

    /// The link is down, and does not take what is to be sent.
    #[error(
        "{interface} queue {queue}: the link is down; what is on the TX ring waits until it is up \
         again{}: ip link set dev {interface} up",
        dropped(*abandoned)
    )]
    LinkDown {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// Packets of the call that were dropped, and counted in
        /// [`OwnStats::tx_abandoned`](crate::OwnStats::tx_abandoned) of the burst's queue.
        abandoned: u32,
    },

    /// The interface was removed or moved to another network namespace while a queue was in use.
    #[error(
        "{interface} queue {queue}: the interface is gone: {event}; open it anew when there is one of that name again"
    )]
    LinkGone {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// [`LinkEvent::Removed`] or [`LinkEvent::Moved`].
        event: LinkEvent,
    },

    /// The link cannot be watched.
    #[error("{interface}: its link cannot be watched: {reason}")]
    Watch {
        /// The interface.
        interface: String,
        /// Why not.
        reason: String,
    },

    /// A queue that the interface does not have.
    #[error(
        "{interface} has no queue {queue}: it has {available} {direction} queue(s), numbered from 0; more can be had with: ethtool -L {interface} rx N tx N (or combined N)"
    )]
    NoSuchQueue {
        /// The interface.
        interface: String,
        /// The queue that was asked for.
        queue: u32,
        /// How many there are.
        available: u32,
        /// `receive` or `transmit`.
        direction: &'static str,
    },

    /// A full-sized packet would not fit a frame.
    #[error(
        "{interface} has MTU {mtu}: a packet of up to {packet} bytes does not fit a frame of {frame_size} bytes, of which {usable} are left for the packet; {advice}"
    )]
    MtuTooLarge {
        /// The interface.
        interface: String,
        /// Its MTU in bytes.
        mtu: u32,
        /// The longest packet: MTU, Ethernet header and two VLAN tags.
        packet: u32,
        /// The UMEM's frame size in bytes.
        frame_size: u32,
        /// Bytes of a frame that a packet may use.
        usable: u32,
        /// What to do.
        advice: String,
    },

    /// Frame memory and limits do not agree.
    #[error("{whose}: {required} bytes of memory are needed for frames, but {limit}; {advice}")]
    Memory {
        /// The interface and its queue, or a shared UMEM.
        whose: String,
        /// Bytes asked for.
        required: u64,
        /// Which limit refuses, with its value and what is left of it in bytes.
        limit: String,
        /// What to do.
        advice: String,
    },

    /// A capability is missing.
    #[error(
        "{action} on {interface} was refused ({errno}): it needs {needs}; run as root, or give the program all that Ringside uses: setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock{}=ep PROGRAM",
        if needs.contains("CAP_PERFMON") { ",cap_perfmon" } else { "" }
    )]
    Permission {
        /// What was tried.
        action: &'static str,
        /// The interface.
        interface: String,
        /// `EPERM` or `EACCES`.
        errno: Errno,
        /// The capabilities, for people.
        needs: &'static str,
    },

    /// This kernel has no XDP sockets, or too old ones.
    #[error("{what} is not available in this kernel ({errno}): it came with Linux {since}{config}")]
    Unsupported {
        /// What was tried.
        what: &'static str,
        /// The answer.
        errno: Errno,
        /// The kernel that brought it.
        since: &'static str,
        /// The build option it needs, as a half sentence.
        config: &'static str,
    },

    /// Another XDP program is attached to the interface.
    #[error(
        "{interface} already has an XDP program: {program} (id {id}, attached {mode}{holder}). Ringside does not replace what it did not attach. To remove it: {detach}"
    )]
    ProgramAttached {
        /// The interface.
        interface: String,
        /// The program's name.
        program: String,
        /// The program's id, as bpftool shows it.
        id: u32,
        /// How it is attached.
        mode: &'static str,
        /// The process that holds it, as a half sentence; empty when unknown.
        holder: String,
        /// The command, or the action, that removes it.
        detach: String,
    },

    /// The XDP program could not be loaded.
    #[error("the XDP program could not be loaded for {interface}: {reason}")]
    Load {
        /// The interface.
        interface: String,
        /// What the loader said.
        reason: String,
    },

    /// The XDP program could not be attached.
    #[error("the XDP program could not be attached to {interface} in {mode} mode ({errno}){advice}")]
    Attach {
        /// The interface.
        interface: String,
        /// `native` or `generic`.
        mode: &'static str,
        /// The kernel's answer.
        errno: Errno,
        /// What to do, as a half sentence; may be empty.
        advice: String,
    },

    /// Another socket holds the queue.
    #[error(
        "{interface} queue {queue} is in use by another XDP socket (EBUSY for {waited:?}){holder}; \
         end what holds it, or choose another queue"
    )]
    QueueBusy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// How long was tried.
        waited: Duration,
        /// The process that probably owns it, as a half sentence; empty when unknown.
        holder: String,
    },

    /// The mode asked for could not be had.
    #[error("{interface}: {wanted} was required and could not be had: {reason}; the mode auto takes the next best one")]
    Mode {
        /// The interface.
        interface: String,
        /// What was required.
        wanted: Path,
        /// Why it could not be had.
        reason: String,
    },

    /// A system call on a socket failed.
    #[error("{interface} queue {queue}: {call} failed ({errno}){advice}")]
    Socket {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// The call, with the option where there is one.
        call: &'static str,
        /// The kernel's answer.
        errno: Errno,
        /// What to do, as a half sentence; may be empty.
        advice: &'static str,
    },

    /// A packet cannot ask for what it asks for ([`tx_metadata`](crate::tx_metadata)); it was not sent.
    #[error("{interface} queue {queue}: {error}")]
    TxMetadata {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// Why not.
        #[source]
        error: crate::tx_metadata::AskError,
    },

    /// The kernel has not taken anything from the TX ring for the stall time.
    #[error(
        "{interface} queue {queue}: no progress for {waited:?}: {pending} packet(s) wait in the TX ring and {in_flight} are not completed (last answer of the kernel: {last}){}; the driver or the peer has stopped taking packets, look at the link and at `ip -s link show dev {interface}`",
        dropped(*abandoned)
    )]
    NoProgress {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// How long nothing moved.
        waited: Duration,
        /// Descriptors that the kernel has not taken.
        pending: u32,
        /// Frames that it has not given back.
        in_flight: u32,
        /// What the last wake-up call answered.
        last: String,
        /// As in [`Error::LinkDown`].
        abandoned: u32,
    },

    /// Shared memory held something that the protocol rules out. The queue is poisoned: no further access.
    #[error(
        "{interface} queue {queue} is poisoned: {violation}; close it and open it anew. The kernel, or another process that holds the socket, broke the ring protocol: please report it"
    )]
    Poisoned {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// What was found.
        violation: Violation,
    },
}

/// Returns what an error adds about packets of its call that were dropped.
fn dropped(packets: u32) -> String {
    match packets {
        0 => String::new(),
        packets => format!(", and {packets} packet(s) of this call were dropped (tx_abandoned)"),
    }
}

impl Error {
    /// Replaces [`Error::LinkDown`] by a default value, for loops that continue until the link is
    /// up again.
    ///
    /// ```no_run
    /// # use ringside_xsk::{Burst, Error};
    /// # fn reply(burst: Burst<'_>) -> Result<(), Error> {
    /// let sent: u32 = burst.send_back().or_else(Error::ignore_link_down)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Every other error, unchanged.
    pub fn ignore_link_down<T: Default>(self) -> Result<T, Self> {
        match self {
            Self::LinkDown { .. } => Ok(T::default()),
            error => Err(error),
        }
    }

    /// Adds packets of the failed call that were dropped.
    pub(crate) fn with_abandoned(mut self, packets: u32) -> Self {
        if let Self::LinkDown { abandoned, .. } | Self::NoProgress { abandoned, .. } = &mut self {
            *abandoned += packets;
        }
        self
    }

    /// Frame memory of `bytes` could not be mapped.
    pub(crate) fn unmapped(whose: String, bytes: usize, errno: Errno) -> Self {
        Self::Memory {
            whose,
            required: bytes as u64,
            limit: format!("mmap() answered {errno}"),
            advice: "use fewer or smaller frames, or free memory".into(),
        }
    }
}

/// Something in shared memory that the ring protocol rules out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A ring's indices are further apart than it has slots.
    RingIndex {
        /// Producer index.
        producer: u32,
        /// Consumer index.
        consumer: u32,
        /// Slots of the ring.
        size: u32,
    },
    /// An address outside the UMEM.
    Address {
        /// Which ring it came from.
        ring: &'static str,
        /// The address, an offset in the UMEM.
        addr: u64,
        /// Size of the UMEM in bytes.
        umem: u64,
    },
    /// A packet that leaves its frame.
    Length {
        /// The address, an offset in the UMEM.
        addr: u64,
        /// The packet's length in bytes.
        len: u32,
        /// The frame size in bytes.
        frame_size: u32,
    },
    /// A packet that goes on behind its end: over more frames than any kernel makes, or at all on a socket for packets in
    /// one frame.
    Chain {
        /// Frames of the packet so far.
        frames: usize,
    },
    /// The frames do not add up: more are in one place than can be there. See [`Ledger`](crate::Ledger).
    Ledger {
        /// Where they are.
        place: &'static str,
        /// How many of them.
        found: u32,
        /// How many there can be.
        most: u32,
    },
    /// A frame came back from the kernel that the kernel did not have.
    NotOwned {
        /// Which ring it came from.
        ring: &'static str,
        /// The address, an offset in the UMEM.
        addr: u64,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RingIndex {
                producer,
                consumer,
                size,
            } => write!(
                f,
                "producer index {producer} and consumer index {consumer} are further apart than the ring's {size} slots"
            ),
            Self::Address { ring, addr, umem } => {
                write!(
                    f,
                    "the {ring} ring holds address {addr:#x}, outside the UMEM of {umem} bytes"
                )
            }
            Self::Length { addr, len, frame_size } => {
                write!(
                    f,
                    "the RX ring holds {len} bytes at address {addr:#x}, which leave their frame of {frame_size} bytes"
                )
            }
            Self::Chain { frames } => {
                write!(f, "the RX ring holds a packet that goes on after {frames} frame(s)")
            }
            Self::Ledger { place, found, most } => {
                write!(f, "{found} frame(s) are {place} where {most} can be")
            }
            Self::NotOwned { ring, addr } => {
                write!(
                    f,
                    "the {ring} ring gave back the frame at address {addr:#x}, which the kernel did not own"
                )
            }
        }
    }
}

impl std::error::Error for Violation {}

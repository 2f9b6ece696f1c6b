//! The XDP program in front of the sockets: which one, how it is attached, and the map that leads to the sockets.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use ringside_nic::Interface;
use rustix::io::Errno;

#[cfg(feature = "attach")]
pub use ringside_bpf::{Filter, IpNet, MatchError, PacketMatch, ParseFilterError};

use crate::conflict;
use crate::error::Error;
use crate::hints::{Btf, BtfError};
use crate::opener::Opener;
use crate::queue::Queue;
use crate::sys;

/// Which XDP program a [`Port`](crate::Port) uses.
#[cfg_attr(
    feature = "attach",
    expect(clippy::large_enum_variant, reason = "a filter is handled once for each port")
)]
#[derive(Debug)]
#[non_exhaustive]
pub enum Program {
    /// Ringside's own: packets that match the filter go to the socket of their queue. Everything
    /// else goes up the kernel's stack, and so do ARP and IPv6 neighbour discovery, except with
    /// [`Filter::Wire`] and [`PacketMatch::arp`]. Linux 5.9 (bpf_link).
    #[cfg(feature = "attach")]
    Ringside(Filter),
    /// A loaded program of the caller's, which the port attaches, and its XSKMAP, which the port fills.
    Custom {
        /// The program.
        program: OwnedFd,
        /// Its map of type `BPF_MAP_TYPE_XSKMAP`.
        xsks_map: OwnedFd,
    },
    /// A program that the caller has attached; the port only fills its XSKMAP.
    Attached {
        /// The map of type `BPF_MAP_TYPE_XSKMAP`.
        xsks_map: OwnedFd,
    },
    /// None, for [`Direction::Transmit`](crate::Direction::Transmit).
    None,
}

impl Program {
    /// The same program and map, with descriptors of their own.
    pub(crate) fn try_clone(&self) -> std::io::Result<Self> {
        Ok(match self {
            #[cfg(feature = "attach")]
            Self::Ringside(filter) => Self::Ringside(*filter),
            Self::Custom { program, xsks_map } => Self::Custom {
                program: program.try_clone()?,
                xsks_map: xsks_map.try_clone()?,
            },
            Self::Attached { xsks_map } => Self::Attached {
                xsks_map: xsks_map.try_clone()?,
            },
            Self::None => Self::None,
        })
    }
}

/// The XDP program that somebody else has attached to an interface, with its XSKMAP: what [`Program::Attached`] takes, and the
/// types of its hints. Nothing is changed by looking. Linux 5.0; needs CAP_SYS_ADMIN.
#[derive(Debug)]
pub struct AttachedProgram {
    program: OwnedFd,
    xsks_map: OwnedFd,
    id: u32,
    name: String,
}

impl AttachedProgram {
    /// Finds it.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] when there is no program, or not exactly one of its maps is an XSKMAP; [`Error::Permission`]; what
    /// the interface answers.
    pub fn of(interface: &Interface) -> Result<Self, Error> {
        let refused = |reason: String| Error::Setting {
            setting: "program",
            value: format!("the one attached to {}", interface.name()),
            reason,
        };
        let asked = |errno: Errno| match errno {
            Errno::PERM => Error::Permission {
                action: "looking at an XDP program that another process has loaded",
                interface: interface.name().to_owned(),
                errno,
                needs: "CAP_SYS_ADMIN",
            },
            errno => refused(format!("the kernel answered {errno}")),
        };
        let Some(attached) = interface.state()?.xdp else {
            return Err(refused("there is none: attach it first, or load it from a file".into()));
        };
        let id = attached.prog_id;
        let program = sys::program_by_id(id).map_err(asked)?;
        let (_, name) = sys::program_info(program.as_fd()).map_err(asked)?;
        let mut xsks_map = None;
        for map in sys::maps_of(program.as_fd()).map_err(asked)? {
            let map = sys::map_by_id(map).map_err(asked)?;
            if sys::map_type(map.as_fd()) == Ok(sys::XSKMAP) && xsks_map.replace(map).is_some() {
                return Err(refused(format!(
                    "program {name} has several maps of type XSKMAP: which one is for the queues cannot be known"
                )));
            }
        }
        let xsks_map = xsks_map.ok_or_else(|| {
            refused(format!(
                "program {name} has no map of type XSKMAP, by which packets get to sockets"
            ))
        })?;
        Ok(Self {
            program,
            xsks_map,
            id,
            name,
        })
    }

    /// Its id, as `bpftool prog` shows it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its name in the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type information, in which its structs of hints are.
    ///
    /// # Errors
    ///
    /// As [`Btf::of_program`].
    pub fn btf(&self) -> Result<Btf, BtfError> {
        Btf::of_program(self.program.as_fd())
    }

    /// Its XSKMAP. Sockets of others may be in it; one that is put at their place takes it.
    pub fn xsks_map(&self) -> BorrowedFd<'_> {
        self.xsks_map.as_fd()
    }

    /// For [`PortBuilder::program`](crate::PortBuilder::program).
    pub fn into_program(self) -> Program {
        Program::Attached {
            xsks_map: self.xsks_map,
        }
    }
}

/// Where a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver (`XDP_FLAGS_DRV_MODE`).
    Native,
    /// After the socket buffer was made (`XDP_FLAGS_SKB_MODE`).
    Generic,
}

impl AttachMode {
    /// `native` or `generic`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// An attached XDP program. It is detached when the value is dropped, and by the kernel when the process ends,
/// however it ends. Linux 5.9.
#[doc(alias = "bpf_link")]
#[derive(Debug)]
pub struct XdpLink {
    fd: OwnedFd,
    mode: AttachMode,
    opener: Opener,
}

impl XdpLink {
    /// Attaches `program` to `interface`, never over another program.
    pub fn attach(program: BorrowedFd<'_>, interface: &Interface, mode: AttachMode) -> Result<Self, Error> {
        let flags = match mode {
            AttachMode::Native => sys::DRV_MODE,
            AttachMode::Generic => sys::SKB_MODE,
        };
        let attached = sys::link_create_xdp(program, interface.index(), flags);
        let fd = attached.map_err(|errno| attach_error(interface, mode, errno))?;
        Ok(Self {
            fd,
            mode,
            opener: Opener::this_process(),
        })
    }

    /// Where it is attached.
    pub fn mode(&self) -> AttachMode {
        self.mode
    }
}

impl Drop for XdpLink {
    fn drop(&mut self) {
        // A child process that has inherited the descriptor leaves the program to its parent.
        if self.opener.is_this_process() {
            // At once, also while a child has the descriptor. Fails only when the interface is
            // gone.
            _ = sys::link_detach(self.fd.as_fd());
        }
    }
}

impl AsFd for XdpLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn attach_error(interface: &Interface, mode: AttachMode, errno: Errno) -> Error {
    match errno {
        Errno::BUSY | Errno::EXIST => {
            if let Some(error) = conflict::foreign_program(interface) {
                return error;
            }
        }
        Errno::PERM | Errno::ACCESS => {
            return Error::Permission {
                action: "attaching an XDP program",
                interface: interface.name().to_owned(),
                errno,
                needs: "CAP_NET_ADMIN and CAP_BPF",
            };
        }
        _ => {}
    }
    let advice = match errno {
        Errno::OPNOTSUPP => "; the driver has no native XDP",
        Errno::INVAL if mode == AttachMode::Generic => {
            "; generic mode does not take a program that was loaded for one device, as those that ask its driver are"
        }
        Errno::RANGE | Errno::INVAL => {
            "; the driver refuses: an MTU that is too large for XDP (on veth also the peer's), LRO, or too many channels are the usual reasons, see the last lines of dmesg"
        }
        Errno::NOSPC | Errno::NOMEM => {
            "; the driver found no room for its XDP queues: fewer channels may help (ethtool -L)"
        }
        _ => "",
    };
    Error::Attach {
        interface: interface.name().to_owned(),
        mode: mode.name(),
        errno,
        advice: advice.into(),
    }
}

/// An XSKMAP: queue number → socket.
#[doc(alias = "BPF_MAP_TYPE_XSKMAP")]
#[doc(alias = "xsk_socket__update_xskmap")]
pub struct XskMap {
    fd: OwnedFd,
    /// Where queue 0 is.
    first: u32,
}

impl XskMap {
    /// Takes a map of type `BPF_MAP_TYPE_XSKMAP`; any other descriptor is refused.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, Error> {
        let refused = |value: String| Error::Setting {
            setting: "xsks_map",
            value,
            reason: "it must be the descriptor of a BPF map of type XSKMAP".into(),
        };
        // Not only for a good message: the kernel reads as many bytes of key and value as the map's type has, and
        // ours have 4 each.
        match sys::map_type(fd.as_fd()) {
            Ok(sys::XSKMAP) => Ok(Self { fd, first: 0 }),
            Ok(kind) => Err(refused(format!("a map of type {kind}"))),
            Err(errno) => Err(refused(format!("descriptor {} ({errno})", fd.as_raw_fd()))),
        }
    }

    /// For a program that serves several interfaces: queue 0 is at this place, the others follow. 0 unless it is said.
    #[must_use]
    pub fn starting_at(mut self, first: u32) -> Self {
        self.first = first;
        self
    }

    /// Lets the program redirect to this queue, which must have an RX ring, at the place of the queue's number. Replaces
    /// what was there.
    pub fn insert(&self, queue: &Queue) -> Result<(), Error> {
        self.insert_at(self.place_of(queue), queue)
    }

    /// Where [`insert`](Self::insert) puts a queue.
    pub fn place_of(&self, queue: &Queue) -> u32 {
        self.first.saturating_add(queue.id())
    }

    /// As [`insert`](Self::insert), at any place: for programs that choose the socket by something else than the queue. A
    /// socket only gets packets of the queue that it is bound to; a redirect from another one drops them.
    pub fn insert_at(&self, place: u32, queue: &Queue) -> Result<(), Error> {
        queue.check_process()?;
        if queue.report().rx_ring == 0 {
            // Newer kernels would take it.
            return Err(queue.wrong_direction());
        }
        self.insert_socket(&queue.report().interface, place, queue.as_fd())
    }

    /// As [`insert`](Self::insert), for a socket that another process, to which it was handed over, has set up and
    /// bound: that process needs no capability for it. The socket must have an RX ring.
    pub fn insert_socket(&self, interface: &str, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        sys::map_update(self.fd.as_fd(), queue, socket).map_err(|errno| Error::Socket {
            interface: interface.to_owned(),
            queue,
            call: "putting the socket into the XSKMAP",
            errno,
            advice: match errno {
                Errno::TOOBIG | Errno::INVAL => "; the map must have an entry for the queue",
                Errno::OPNOTSUPP => "; the socket must have an RX ring and be bound",
                Errno::PERM | Errno::ACCESS => "; filling a map needs CAP_BPF, or CAP_NET_ADMIN before Linux 5.8",
                _ => "",
            },
        })
    }

    /// Stops redirecting to the queue at this place. An entry that is not there is no error.
    pub fn remove(&self, place: u32) {
        _ = sys::map_delete(self.fd.as_fd(), place);
    }
}

impl fmt::Debug for XskMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XskMap").field("fd", &self.fd).finish()
    }
}

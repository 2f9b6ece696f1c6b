//! Who has AF_XDP sockets, whatever program that is.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::path::Path;

use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader, NetlinkSerializable};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use serde::Serialize;

use crate::netlink::generic::Attributes;
use crate::netlink::{NetlinkError, Socket};
use crate::owners::Process;
use crate::{Error, Result};

/// A process with AF_XDP sockets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SocketHolder {
    /// Process number.
    pub pid: u32,
    /// The process's command name.
    pub comm: String,
    /// Inode numbers of the sockets, ascending.
    pub sockets: Vec<u64>,
    /// Whether the process is in the calling thread's network namespace. Its sockets mostly are too.
    pub same_namespace: bool,
}

/// The processes that have mapped rings of AF_XDP sockets, by process number. No more is told of a socket where the kernel was
/// built without [`list`].
///
/// Other users' processes are only seen by root.
#[must_use]
pub fn holders() -> Vec<SocketHolder> {
    holders_in(Path::new("/proc"))
}

fn holders_in(proc: &Path) -> Vec<SocketHolder> {
    let mut found = Vec::new();
    for entry in fs::read_dir(proc).into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let directory = entry.path();
        // A kernel thread has none, and one that has ended cannot be read.
        let Ok(maps) = fs::read_to_string(directory.join("maps")) else {
            continue;
        };
        let sockets = in_maps(&maps);
        if sockets.is_empty() {
            continue;
        }
        let process = Process {
            pid,
            directory: &directory,
        };
        found.push(SocketHolder {
            pid,
            comm: process.comm(),
            sockets,
            same_namespace: process.shares_namespace(),
        });
    }
    found.sort_by_key(|holder| holder.pid);
    found
}

/// Offsets at which the rings of an AF_XDP socket are mapped, but for the RX ring's, 0, which other sockets have too. Each has
/// a fill ring or a TX ring, or lives on another's.
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/XDP_PGOFF_TX_RING>
const OFFSETS: [u64; 3] = [0x8000_0000, 0x1_0000_0000, 0x1_8000_0000];

/// Inodes of the sockets in `/proc/PID/maps`: "begin-end rw-s offset device inode socket:[inode]".
fn in_maps(maps: &str) -> Vec<u64> {
    let sockets = maps.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(2);
        let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
        let inode = fields.nth(1)?.parse().ok()?;
        (OFFSETS.contains(&offset) && fields.next()?.starts_with("socket:")).then_some(inode)
    });
    let mut sockets: Vec<u64> = sockets.collect();
    sockets.sort_unstable();
    sockets.dedup();
    sockets
}

/// An AF_XDP socket of the calling thread's network namespace, as the kernel's diagnostics tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct XdpSocket {
    /// Its inode number.
    pub inode: u64,
    /// Index of the interface that it is bound to.
    pub interface: u32,
    /// The queue that it is bound to.
    pub queue: u32,
    /// The kernel's counters of it (Linux 5.9).
    pub drops: Option<SocketDrops>,
}

/// What became of packets of a socket that did not arrive: the counters of `XDP_STATISTICS`, in packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct SocketDrops {
    /// Dropped for other reasons.
    pub rx_dropped: u64,
    /// Invalid descriptors on the fill ring.
    pub rx_invalid_descs: u64,
    /// The RX ring was full.
    pub rx_ring_full: u64,
    /// The fill ring was found empty.
    pub rx_fill_ring_empty: u64,
    /// Invalid descriptors on the TX ring.
    pub tx_invalid_descs: u64,
    /// The TX ring was found empty.
    pub tx_ring_empty: u64,
}

// https://elixir.bootlin.com/linux/v6.18/C/ident/SOCK_DIAG_BY_FAMILY
const SOCK_DIAG_BY_FAMILY: u16 = 20;
// https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/xdp_diag.h
const XDP_SHOW_INFO: u32 = 1 << 0;
const XDP_SHOW_STATS: u32 = 1 << 4;
const XDP_DIAG_INFO: u16 = 1;
const XDP_DIAG_STATS: u16 = 9;
/// `struct xdp_diag_msg`: family, type, padding, inode, cookie.
const MESSAGE_LEN: usize = 16;
const AF_XDP: u8 = 44;

/// The bound AF_XDP sockets of the calling thread's network namespace; `None` on a kernel without that
/// (`CONFIG_XDP_SOCKETS_DIAG`, Linux 5.1).
///
/// # Errors
///
/// [`Error::Kernel`] when the kernel does not answer.
#[doc(alias = "xdp_diag_req")]
pub fn list() -> Result<Option<Vec<XdpSocket>>> {
    let mut question = vec![AF_XDP, 0, 0, 0, 0, 0, 0, 0];
    question.extend((XDP_SHOW_INFO | XDP_SHOW_STATS).to_ne_bytes());
    question.extend([0; 8]);
    let asked = Socket::diag().map_err(NetlinkError::Io);
    let answers = match asked.and_then(|mut socket| socket.dump(Diag(question))) {
        // The kernel looks for a module of that family and finds none.
        Err(NetlinkError::Refused { source, .. }) if source.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        other => other.map_err(|error| Error::netlink("list the AF_XDP sockets", "*", error))?,
    };
    Ok(Some(answers.iter().filter_map(XdpSocket::from_answer).collect()))
}

impl XdpSocket {
    fn from_answer(Diag(bytes): &Diag) -> Option<Self> {
        let word = |bytes: &[u8], at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let attributes = Attributes(bytes.get(MESSAGE_LEN..)?);
        let info = attributes.find(XDP_DIAG_INFO)?;
        Some(Self {
            inode: word(bytes, 4)?.into(),
            interface: word(info, 0)?,
            queue: word(info, 4)?,
            drops: attributes.find(XDP_DIAG_STATS).and_then(SocketDrops::from_bytes),
        })
    }
}

impl SocketDrops {
    /// `struct xdp_diag_stats`
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
        let mut next = || words.next();
        Some(Self {
            rx_dropped: next()?,
            rx_invalid_descs: next()?,
            rx_ring_full: next()?,
            rx_fill_ring_empty: next()?,
            tx_invalid_descs: next()?,
            tx_ring_empty: next()?,
        })
    }
}

/// A message of the socket diagnostics, whole.
#[derive(Debug, Clone)]
struct Diag(Vec<u8>);

impl Socket<Diag> {
    fn diag() -> std::io::Result<Self> {
        Self::open(NETLINK_SOCK_DIAG)
    }
}

impl NetlinkSerializable for Diag {
    fn message_type(&self) -> u16 {
        SOCK_DIAG_BY_FAMILY
    }

    fn buffer_len(&self) -> usize {
        self.0.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.0);
    }
}

impl NetlinkDeserializable for Diag {
    type Error = Infallible;

    fn deserialize(_: &NetlinkHeader, payload: &[u8]) -> Result<Self, Infallible> {
        Ok(Self(payload.to_vec()))
    }
}

/// Who has which socket, by its inode; from what [`holders`] tells.
#[must_use]
pub fn by_inode(holders: &[SocketHolder]) -> BTreeMap<u64, &SocketHolder> {
    let each = holders
        .iter()
        .flat_map(|holder| holder.sockets.iter().map(move |inode| (*inode, holder)));
    each.collect()
}

#[cfg(test)]
#[path = "sockets_tests.rs"]
mod tests;

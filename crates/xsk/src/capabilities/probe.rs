//! What the kernel can do, found out by trying.
//!
//! A try is a call that a kernel without the feature refuses in a way that is its own. Any other refusal leaves open
//! whether the feature is there.

use std::os::fd::{AsFd, OwnedFd};

use ringside_nic::host::{Cap, Capabilities};
use rustix::io::Errno;
use rustix::net::sockopt::{set_xdp_tx_ring_size, set_xdp_umem_reg, xdp_mmap_offsets, xdp_statistics};
use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::kernel::{KernelCapabilities, Support};
use super::private;
use crate::hints::Btf;
use crate::mmap::{Mapping, Pages};
use crate::sys;
use crate::tx_metadata::METADATA_LEN;

/// What a try came to: the feature is there, or what is known instead.
pub(super) type Tried<T = ()> = Result<T, Support>;

/// A call that tells by its answer whether the kernel has a feature.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) name: &'static str,
    /// What a kernel without the feature answers.
    pub(super) without: &'static [Errno],
    /// The capabilities that the call takes.
    pub(super) needs: &'static [Cap],
}

impl Call {
    /// One that takes no capability beyond those of its socket.
    pub(super) fn plain(name: &'static str, without: &'static [Errno]) -> Self {
        let needs = &[];
        Self { name, without, needs }
    }

    /// What the kernel's answer tells.
    pub(super) fn judge<T>(&self, answer: Result<T, Errno>) -> Tried<T> {
        answer.map_err(|errno| {
            if self.without.contains(&errno) {
                return Support::No;
            }
            let missing = match errno {
                Errno::PERM | Errno::ACCESS => missing(self.needs),
                _ => Vec::new(),
            };
            Support::Unknown(match &missing[..] {
                // In a user namespace, or where a security module or a seccomp filter refuses.
                [] => format!("{} was refused: {errno}", self.name),
                _ => format!("{} needs {}", self.name, missing.join(" and ")),
            })
        })
    }
}

/// Those of the capabilities that the calling thread lacks.
fn missing(needs: &[Cap]) -> Vec<String> {
    let Ok(held) = Capabilities::effective() else {
        return Vec::new();
    };
    let has = |cap| held.has(cap) || (cap == Cap::Bpf && held.has(Cap::SysAdmin));
    needs
        .iter()
        .filter(|&&cap| !has(cap))
        .map(ToString::to_string)
        .collect()
}

pub(super) fn probe() -> KernelCapabilities {
    let umem = Umem::new();
    let umem = umem.as_ref().map_err(Support::clone);
    let with_umem = |tried: fn(&Umem) -> Tried| Support::from(umem.clone().and_then(tried));
    let flag = with_umem(tx_metadata_len_flag);
    let private = private::probe(umem.clone());
    KernelCapabilities {
        release: rustix::system::uname().release().to_string_lossy().into_owned(),
        af_xdp: socket().map(drop).into(),
        need_wakeup: need_wakeup().into(),
        unaligned_chunks: with_umem(unaligned_chunks),
        six_statistics: six_statistics().into(),
        xdp_link: private.xdp_link,
        shared_umem: private.shared_umem,
        preferred_busy_poll: preferred_busy_poll().into(),
        frags_programs: frags_programs().into(),
        device_bound_programs: private.device_bound_programs,
        multi_buffer: private.multi_buffer,
        tx_metadata: match flag {
            Support::No => with_umem(tx_metadata_without_flag),
            _ => flag.clone(),
        },
        tx_software_checksum: with_umem(tx_software_checksum),
        tx_metadata_len_flag: flag,
        tx_launch_time: tx_launch_time().into(),
        tx_budget: tx_budget().into(),
    }
}

/// A socket to try things on. `EAFNOSUPPORT`: <https://elixir.bootlin.com/linux/v6.18/C/ident/__sock_create>
pub(super) fn socket() -> Tried<OwnedFd> {
    let call = Call {
        name: "socket(AF_XDP)",
        without: &[Errno::AFNOSUPPORT],
        needs: &[Cap::NetRaw],
    };
    call.judge(socket_with(
        AddressFamily::XDP,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    ))
}

/// Older kernels tell shorter offsets, without that of the flags.
fn need_wakeup() -> Tried {
    let call = Call::plain("getsockopt(XDP_MMAP_OFFSETS)", &[]);
    let offsets = call.judge(xdp_mmap_offsets(&socket()?))?;
    offsets.rx.flags.map(drop).ok_or(Support::No)
}

/// Older kernels tell three counters.
fn six_statistics() -> Tried {
    let call = Call::plain("getsockopt(XDP_STATISTICS)", &[]);
    let statistics = call.judge(xdp_statistics(&socket()?))?;
    statistics.rx_ring_full.map(drop).ok_or(Support::No)
}

fn preferred_busy_poll() -> Tried {
    let socket = socket()?;
    sys::set_busy_poll(socket.as_fd(), 20, 64).or_else(|(name, errno)| {
        let call = Call {
            name,
            without: &[Errno::NOPROTOOPT],
            needs: &[Cap::NetAdmin],
        };
        call.judge(Err(errno))
    })
}

/// There is no call that tells without sending.
fn tx_launch_time() -> Tried {
    let unknown = |reason: String| Support::Unknown(format!("the kernel's type information does not tell: {reason}"));
    let btf = Btf::vmlinux().map_err(|error| unknown(error.to_string()))?;
    match btf.size_of("xsk_tx_metadata") {
        Some(size) if size >= METADATA_LEN => Ok(()),
        // A kernel with that information has all of its structs in it.
        _ => Err(Support::No),
    }
}

/// The smallest budget that the kernel takes, for a ring of that many slots.
fn tx_budget() -> Tried {
    const SLOTS: u32 = 32;
    let socket = socket()?;
    Call::plain("setsockopt(XDP_TX_RING)", &[]).judge(set_xdp_tx_ring_size(&socket, SLOTS))?;
    let call = Call::plain("setsockopt(XDP_MAX_TX_SKB_BUDGET)", &[Errno::NOPROTOOPT]);
    call.judge(sys::set_tx_budget(socket.as_fd(), SLOTS))
}

/// A power of two, as chunks have to be that are aligned.
const ALIGNED: u32 = 2048;

/// Only with the flag the kernel takes chunks of such a size, so one that took no notice of the flag would refuse.
fn unaligned_chunks(umem: &Umem) -> Tried {
    umem.register(3000, XdpUmemRegFlags::XDP_UMEM_UNALIGNED_CHUNK_FLAG, 0)
        .map(drop)
}

/// Bytes of `struct xsk_tx_metadata`, up to what Linux 6.8 knows; a multiple of 8 as it has to be.
const FIRST_METADATA_LEN: u32 = 16;

fn tx_metadata_len_flag(umem: &Umem) -> Tried {
    let flag = XdpUmemRegFlags::from_bits_retain(1 << 2);
    umem.register(ALIGNED, flag, FIRST_METADATA_LEN).map(drop)
}

/// Before the flag came the kernel looked at the length alone, and one that knows nothing of it takes a wrong length too.
fn tx_metadata_without_flag(umem: &Umem) -> Tried {
    match umem.register(ALIGNED, XdpUmemRegFlags::empty(), FIRST_METADATA_LEN + 1) {
        Err(Support::No) => Ok(()),
        Ok(_) => Err(Support::No),
        Err(unknown) => Err(unknown),
    }
}

fn tx_software_checksum(umem: &Umem) -> Tried {
    let flag = XdpUmemRegFlags::from_bits_retain(1 << 1);
    umem.register(ALIGNED, flag, 0).map(drop)
}

/// Memory that can be registered as a UMEM: a page of the kernel's.
pub(super) struct Umem {
    memory: Mapping,
}

impl Umem {
    /// Registers it once, plainly: from then on a refusal is about what is asked for in addition.
    fn new() -> Tried<Self> {
        // Without sockets there is no more to be said.
        socket()?;
        let page = rustix::param::page_size();
        let memory = Call::plain("mmap()", &[]).judge(Mapping::anonymous(page, Pages::Normal))?;
        let umem = Self { memory };
        match umem.plain() {
            Ok(_) => Ok(umem),
            Err(Support::No) => Err(Support::Unknown("the kernel refuses a UMEM of a page".into())),
            Err(support) => Err(support),
        }
    }

    /// A socket with this memory as its UMEM, in aligned chunks and nothing more.
    pub(super) fn plain(&self) -> Tried<OwnedFd> {
        self.register(ALIGNED, XdpUmemRegFlags::empty(), 0)
    }

    /// `EINVAL` is the answer to all that is unknown or wrong.
    /// <https://elixir.bootlin.com/linux/v6.18/C/ident/xdp_umem_reg>
    fn register(&self, chunk_size: u32, flags: XdpUmemRegFlags, tx_metadata_len: u32) -> Tried<OwnedFd> {
        let socket = socket()?;
        let registration = XdpUmemReg {
            addr: self.memory.as_ptr().as_ptr() as u64,
            len: self.memory.len() as u64,
            chunk_size,
            headroom: 0,
            flags,
            tx_metadata_len,
        };
        let call = Call::plain("setsockopt(XDP_UMEM_REG)", &[Errno::INVAL]);
        match set_xdp_umem_reg(&socket, registration) {
            Err(Errno::NOBUFS) => Err(Support::Unknown(format!(
                "a page of memory could not be locked: RLIMIT_MEMLOCK is {}, and what this user has locked counts;                  CAP_IPC_LOCK is missing",
                crate::umem::memlock_text()
            ))),
            answer => call.judge(answer).map(|()| socket),
        }
    }
}

/// Loading an XDP program, with a flag. <https://elixir.bootlin.com/linux/v6.18/C/ident/bpf_prog_load>
pub(super) const LOAD: Call = Call {
    name: "loading an XDP program",
    without: &[Errno::INVAL],
    needs: &[Cap::Bpf, Cap::NetAdmin],
};

/// A program without any flag: if it can be loaded, a refusal of another is about its flags.
pub(super) fn program() -> Tried<OwnedFd> {
    let call = Call { without: &[], ..LOAD };
    call.judge(sys::load_pass(0, 0))
}

fn frags_programs() -> Tried {
    program()?;
    LOAD.judge(sys::load_pass(sys::HAS_FRAGS, 0)).map(drop)
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;

//! The smallest XDP program that serves AF_XDP, for the crate that brings none.
//!
//! It is what libxdp attaches by default, less the reference count: look the queue up in an
//! XSKMAP, redirect there, and pass up what no socket waits for.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use anyhow::{Context as _, Result};
use libxdp_sys::{bpf_insn, bpf_link_create_opts};

/// Size of the XSKMAP: the queues that can be served.
const QUEUES: u32 = 64;
/// `XDP_FLAGS_DRV_MODE` of `linux/if_link.h`: native XDP or nothing.
const NATIVE: u32 = 1 << 2;

/// An attached program. Dropping it detaches: the attachment is a `bpf_link`.
#[derive(Debug)]
pub(crate) struct Redirect {
    map: OwnedFd,
    _link: OwnedFd,
}

impl Redirect {
    /// Loads the program and attaches it to the interface natively.
    pub(crate) fn attach(ifindex: u32) -> Result<Self> {
        let map = create_map().context("creating an XSKMAP")?;
        let program = load(map.as_raw_fd()).context("loading the redirect program")?;
        // Zeroed as a whole and then set field by field: libbpf refuses options whose unused bytes,
        // padding among them, are not zero, and a struct expression leaves padding undefined.
        // SAFETY: a plain C struct of integers, pointers and a union of those.
        let mut options: bpf_link_create_opts = unsafe { std::mem::zeroed() };
        options.sz = size_of::<bpf_link_create_opts>();
        options.flags = NATIVE;
        // SAFETY: the program's descriptor is open, and `options` is a live struct of the size
        // that its first field tells.
        let link = unsafe {
            libxdp_sys::bpf_link_create(
                program.as_raw_fd(),
                i32::try_from(ifindex)?,
                libxdp_sys::bpf_attach_type_BPF_XDP,
                &options,
            )
        };
        let link = owned(link).context("attaching native XDP")?;
        Ok(Self { map, _link: link })
    }

    /// Steers a queue into the socket.
    pub(crate) fn steer(&self, queue: u32, socket: RawFd) -> Result<()> {
        // SAFETY: key and value are four bytes each, as the map was created.
        let result = unsafe {
            libxdp_sys::bpf_map_update_elem(
                self.map.as_raw_fd(),
                (&raw const queue).cast(),
                (&raw const socket).cast(),
                0,
            )
        };
        checked(result).with_context(|| format!("putting queue {queue} into the XSKMAP"))
    }
}

fn create_map() -> io::Result<OwnedFd> {
    const NAME: &CStr = c"peer_xsks";
    // SAFETY: the name is a C string; no options are passed.
    owned(unsafe {
        libxdp_sys::bpf_map_create(
            libxdp_sys::bpf_map_type_BPF_MAP_TYPE_XSKMAP,
            NAME.as_ptr(),
            4,
            4,
            QUEUES,
            std::ptr::null(),
        )
    })
}

fn load(map: RawFd) -> io::Result<OwnedFd> {
    // Opcodes: Documentation/bpf/standardization/instruction-set.rst; 51 is bpf_redirect_map.
    let program = [
        instruction(0x61, 2, 1, 16, 0),  // r2 = ctx->rx_queue_index
        instruction(0x18, 1, 1, 0, map), // r1 = map, by its descriptor
        instruction(0, 0, 0, 0, 0),
        instruction(0xb7, 3, 0, 0, 2), // r3 = XDP_PASS, for queues without a socket
        instruction(0x85, 0, 0, 0, 51),
        instruction(0x95, 0, 0, 0, 0),
    ];
    // SAFETY: names are C strings, and the pointer and count describe `program`.
    owned(unsafe {
        libxdp_sys::bpf_prog_load(
            libxdp_sys::bpf_prog_type_BPF_PROG_TYPE_XDP,
            c"peer_redirect".as_ptr(),
            c"Dual MIT/GPL".as_ptr(),
            program.as_ptr(),
            program.len(),
            std::ptr::null_mut(),
        )
    })
}

fn instruction(code: u8, destination: u8, source: u8, off: i16, imm: i32) -> bpf_insn {
    bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: bpf_insn::new_bitfield_1(destination, source),
        off,
        imm,
    }
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    checked(fd)?;
    // SAFETY: the call that returned it made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// libbpf's low-level calls return a negative errno.
fn checked(result: i32) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok(())
}

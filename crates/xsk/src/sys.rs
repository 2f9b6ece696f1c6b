//! System calls that rustix lacks or leaves unsafe: busy-poll and newer XDP socket options, the few bpf(2) commands that
//! attach a program and fill an XSKMAP, and a network namespace of a thread's own. Values and layouts are the kernel's
//! user ABI.

mod loaded;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::thread::{UnshareFlags, unshare_unsafe};

pub(crate) use loaded::{btf_of, link_of, map_by_id, maps_of, program_by_id};

/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/asm-generic/socket.h#L119>
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/if_xdp.h#L82>
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;

fn set_option(fd: BorrowedFd<'_>, level: i32, option: i32, value: i32) -> Result<(), Errno> {
    // SAFETY: the value is read from a live `i32` whose size is passed along.
    let answer = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            libc::socklen_t::try_from(size_of::<i32>()).expect("4 fits"),
        )
    };
    if answer == 0 { Ok(()) } else { Err(last_errno()) }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Prefers busy-polling to interrupts, for `micros` at a time and `budget` packets a poll. Linux 5.11.
pub(crate) fn set_busy_poll(fd: BorrowedFd<'_>, micros: u32, budget: u32) -> Result<(), (&'static str, Errno)> {
    let int = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    let set = |name, option, value| set_option(fd, libc::SOL_SOCKET, option, value).map_err(|errno| (name, errno));
    // The one that can be refused for its value comes first: then nothing was changed.
    set("SO_BUSY_POLL_BUDGET", SO_BUSY_POLL_BUDGET, int(budget))?;
    set("SO_PREFER_BUSY_POLL", SO_PREFER_BUSY_POLL, 1)?;
    set("SO_BUSY_POLL", libc::SO_BUSY_POLL, int(micros))
}

/// Goes back to interrupts.
pub(crate) fn end_busy_poll(fd: BorrowedFd<'_>) -> Result<(), (&'static str, Errno)> {
    let off = |name, option| set_option(fd, libc::SOL_SOCKET, option, 0).map_err(|errno| (name, errno));
    off("SO_PREFER_BUSY_POLL", SO_PREFER_BUSY_POLL)?;
    off("SO_BUSY_POLL", libc::SO_BUSY_POLL)
}

/// The NAPI instance that the socket's packets come from, 0 when there is none. Linux 4.12.
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/asm-generic/socket.h#L92>
pub(crate) fn napi_id(fd: BorrowedFd<'_>) -> Result<u32, Errno> {
    const SO_INCOMING_NAPI_ID: i32 = 56;
    let mut id = 0_u32;
    let mut length = libc::socklen_t::try_from(size_of::<u32>()).expect("4 fits");
    // SAFETY: the kernel writes at most `length` bytes to a live `u32`, and the length to a live `socklen_t`.
    let answer = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_INCOMING_NAPI_ID,
            (&raw mut id).cast(),
            &raw mut length,
        )
    };
    if answer == 0 { Ok(id) } else { Err(last_errno()) }
}

/// Packets that one wake-up call sends in copy mode, 32 unless set. Linux 6.17; after the TX ring is made.
pub(crate) fn set_tx_budget(fd: BorrowedFd<'_>, packets: u32) -> Result<(), Errno> {
    set_option(
        fd,
        libc::SOL_XDP,
        XDP_MAX_TX_SKB_BUDGET,
        i32::try_from(packets).unwrap_or(i32::MAX),
    )
}

/// bpf(2) commands.
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/bpf.h#L928>
#[derive(Clone, Copy)]
#[repr(i32)]
enum Command {
    MapUpdateElem = 2,
    MapDeleteElem = 3,
    ProgLoad = 5,
    ProgGetFdById = 13,
    MapGetFdById = 14,
    ObjGetInfoByFd = 15,
    BtfGetFdById = 19,
    LinkCreate = 28,
    LinkGetFdById = 30,
    LinkGetNextId = 31,
    LinkDetach = 34,
}

/// `union bpf_attr` is zeroed beyond what a command knows; 72 bytes are as many as any command here uses.
#[repr(C, align(8))]
struct Attr([u32; 18]);

impl Attr {
    fn new<const N: usize>(words: [u32; N]) -> Self {
        let mut attr = [0; 18];
        attr[..N].copy_from_slice(&words);
        Self(attr)
    }

    /// Puts a pointer, 64 bits wide on every architecture, at word `at` (even).
    fn pointer<T>(mut self, at: usize, pointer: *const T) -> Self {
        let bytes = (pointer as usize as u64).to_ne_bytes();
        self.0[at] = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        self.0[at + 1] = u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        self
    }
}

fn word(fd: BorrowedFd<'_>) -> u32 {
    u32::try_from(fd.as_raw_fd()).expect("a file descriptor is not negative")
}

/// # Safety
/// Every pointer in `attr` must be valid for what `command` reads or writes through it.
unsafe fn bpf(command: Command, attr: &Attr) -> Result<i32, Errno> {
    // SAFETY: `attr` is live and as large as told; its pointers are the caller's promise.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command as i32, &raw const *attr, size_of::<Attr>()) };
    if answer < 0 {
        return Err(last_errno());
    }
    Ok(i32::try_from(answer).expect("bpf(2) answers an int"))
}

/// Returns the lowest id of a link above this one. Needs CAP_SYS_ADMIN. Linux 5.8.
fn next_link(id: u32) -> Result<u32, Errno> {
    let mut attr = Attr::new([id, 0]);
    // SAFETY: `attr` is live and as large as told, and has no pointers; the kernel writes to its
    // second word.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            Command::LinkGetNextId as i32,
            &raw mut attr,
            size_of::<Attr>(),
        )
    };
    if answer < 0 { Err(last_errno()) } else { Ok(attr.0[1]) }
}

/// `xskmap[queue] = socket`
pub(crate) fn map_update(map: BorrowedFd<'_>, key: u32, value: BorrowedFd<'_>) -> Result<(), Errno> {
    let value = value.as_raw_fd();
    let attr = Attr::new([word(map)])
        .pointer(2, &raw const key)
        .pointer(4, &raw const value);
    // SAFETY: an XSKMAP's keys and values are 4 bytes each, as are `key` and `value`, both alive.
    unsafe { bpf(Command::MapUpdateElem, &attr) }.map(drop)
}

/// `delete xskmap[queue]`
pub(crate) fn map_delete(map: BorrowedFd<'_>, key: u32) -> Result<(), Errno> {
    let attr = Attr::new([word(map)]).pointer(2, &raw const key);
    // SAFETY: the key is 4 bytes, alive.
    unsafe { bpf(Command::MapDeleteElem, &attr) }.map(drop)
}

/// `struct bpf_insn`, without registers beyond the first.
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/bpf_insn>
#[repr(C)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// `BPF_F_XDP_HAS_FRAGS` (Linux 5.18) and `BPF_F_XDP_DEV_BOUND_ONLY` (Linux 6.3)
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/BPF_F_XDP_HAS_FRAGS>
pub(crate) const HAS_FRAGS: u32 = 1 << 5;
pub(crate) const DEV_BOUND_ONLY: u32 = 1 << 6;

/// What bpftool calls the program below for as long as it is there.
const PROBE_NAME: &[u8; 16] = b"ringside_probe\0\0";

/// Loads an XDP program that passes every packet up, with these flags; bound to `interface` unless that is 0.
pub(crate) fn load_pass(flags: u32, interface: u32) -> Result<OwnedFd, Errno> {
    const BPF_PROG_TYPE_XDP: u32 = 6;
    const XDP_PASS: i32 = 2;
    let instruction = |code, immediate| Instruction {
        code,
        registers: 0,
        offset: 0,
        immediate,
    };
    // r0 = XDP_PASS; exit
    let program = [instruction(0xb7, XDP_PASS), instruction(0x95, 0)];
    let licence = c"Apache-2.0";
    let mut attr = Attr::new([BPF_PROG_TYPE_XDP, 2])
        .pointer(2, program.as_ptr())
        .pointer(4, licence.as_ptr());
    // prog_flags, prog_name, prog_ifindex
    attr.0[11] = flags;
    for (word, bytes) in attr.0[12..16].iter_mut().zip(PROBE_NAME.as_chunks::<4>().0) {
        *word = u32::from_ne_bytes(*bytes);
    }
    attr.0[16] = interface;
    // SAFETY: the program is two instructions long, as told, and the licence ends in NUL; both are alive and only read.
    let fd = unsafe { bpf(Command::ProgLoad, &attr) }?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Moves the calling thread, and no other, into a new network namespace, which ends when nobody is in it any more.
pub(crate) fn new_network_namespace() -> Result<(), Errno> {
    // SAFETY: what is unsafe is CLONE_FILES, after which threads no longer share their descriptors. It is not asked for.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
}

/// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE`
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/if_link.h#L1364>
pub(crate) const SKB_MODE: u32 = 1 << 1;
pub(crate) const DRV_MODE: u32 = 1 << 2;

/// Attaches an XDP program by a link that lives as long as its descriptor. Linux 5.9.
pub(crate) fn link_create_xdp(program: BorrowedFd<'_>, interface: u32, flags: u32) -> Result<OwnedFd, Errno> {
    const BPF_XDP: u32 = 37;
    let attr = Attr::new([word(program), interface, BPF_XDP, flags]);
    // SAFETY: no pointers.
    let fd = unsafe { bpf(Command::LinkCreate, &attr) }?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Detaches at once, instead of when the last descriptor is closed. Linux 5.9.
pub(crate) fn link_detach(link: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: no pointers.
    unsafe { bpf(Command::LinkDetach, &Attr::new([word(link)])) }.map(drop)
}

/// The head of `struct bpf_prog_info`, up to the name.
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/bpf.h#L6658>
#[derive(Default)]
#[repr(C, align(8))]
struct ProgInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    lengths: [u32; 2],
    pointers: [u64; 2],
    load_time: u64,
    uid: u32,
    map_count: u32,
    map_ids: u64,
    name: [u8; 16],
}

/// Id and name of a loaded program.
pub(crate) fn program_info(program: BorrowedFd<'_>) -> Result<(u32, String), Errno> {
    let mut info = ProgInfo::default();
    let size = u32::try_from(size_of::<ProgInfo>()).expect("small");
    let attr = Attr::new([word(program), size]).pointer(2, &raw mut info);
    // SAFETY: `info` is alive, writable and of the size told; the kernel writes at most that.
    unsafe { bpf(Command::ObjGetInfoByFd, &attr) }?;
    let end = info.name.iter().position(|&byte| byte == 0).unwrap_or(info.name.len());
    Ok((info.id, String::from_utf8_lossy(&info.name[..end]).into_owned()))
}

/// `BPF_MAP_TYPE_XSKMAP`
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/bpf.h#L1006>
pub(crate) const XSKMAP: u32 = 17;

/// The head of `struct bpf_map_info`.
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/bpf.h#L6699>
#[derive(Default)]
#[repr(C, align(8))]
struct MapInfo {
    kind: u32,
    id: u32,
    key_size: u32,
    value_size: u32,
}

/// Type of a BPF map; an error for what is no map.
pub(crate) fn map_type(map: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut info = MapInfo::default();
    let size = u32::try_from(size_of::<MapInfo>()).expect("small");
    let attr = Attr::new([word(map), size]).pointer(2, &raw mut info);
    // SAFETY: `info` is alive, writable and of the size told; the kernel writes at most that.
    unsafe { bpf(Command::ObjGetInfoByFd, &attr) }?;
    // A program or a link answers too, with another structure; what may look like a map among those is no map to an
    // update either.
    if (info.key_size, info.value_size) == (4, 4) {
        Ok(info.kind)
    } else {
        Err(Errno::INVAL)
    }
}

/// Name of the program with this id.
pub(crate) fn program_name(id: u32) -> Result<String, Errno> {
    let fd = program_by_id(id)?;
    program_info(fd.as_fd()).map(|(_, name)| name)
}

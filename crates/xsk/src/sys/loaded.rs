//! What the kernel knows about programs, maps and types that somebody else has loaded. Needs CAP_SYS_ADMIN.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use super::{Attr, Command, bpf, next_link, word};

/// What is asked for by id.
#[derive(Clone, Copy)]
enum Kind {
    Program,
    Map,
    Btf,
    Link,
}

fn by_id(kind: Kind, id: u32) -> Result<OwnedFd, Errno> {
    let command = match kind {
        Kind::Program => Command::ProgGetFdById,
        Kind::Map => Command::MapGetFdById,
        Kind::Btf => Command::BtfGetFdById,
        Kind::Link => Command::LinkGetFdById,
    };
    // SAFETY: no pointers.
    let fd = unsafe { bpf(command, &Attr::new([id])) }?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A descriptor of the program with this id. Linux 4.13.
pub(crate) fn program_by_id(id: u32) -> Result<OwnedFd, Errno> {
    by_id(Kind::Program, id)
}

/// A descriptor of the map with this id. Linux 4.13.
pub(crate) fn map_by_id(id: u32) -> Result<OwnedFd, Errno> {
    by_id(Kind::Map, id)
}

/// The head of `struct bpf_prog_info`, up to the id of its BTF (Linux 5.0).
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/bpf.h#L6658>
#[derive(Default)]
#[repr(C, align(8))]
struct ProgInfo {
    head: [u32; 6],
    instructions: [u64; 2],
    load_time: u64,
    uid: u32,
    map_count: u32,
    map_ids: u64,
    name: [u8; 16],
    interface: u32,
    flags: u32,
    namespace: [u64; 2],
    symbol_counts: [u32; 2],
    symbols: [u64; 2],
    btf_id: u32,
    function_size: u32,
}

const _: () = assert!(std::mem::offset_of!(ProgInfo, map_ids) == 56 && std::mem::offset_of!(ProgInfo, btf_id) == 128);

/// `struct bpf_btf_info`
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/bpf.h#L6728>
#[derive(Default)]
#[repr(C, align(8))]
struct BtfInfo {
    btf: u64,
    btf_size: u32,
    id: u32,
    name: u64,
    name_len: u32,
    kernel_btf: u32,
}

/// # Safety
/// `T` is the structure that the kernel has for what the descriptor is of, and what its pointers lead to is alive and
/// writable for as many elements as its counts say.
unsafe fn info<T>(fd: BorrowedFd<'_>, info: &mut T) -> Result<(), Errno> {
    let size = u32::try_from(size_of::<T>()).expect("small");
    let attr = Attr::new([word(fd), size]).pointer(2, std::ptr::from_mut(info));
    // SAFETY: `info` is alive, writable and of the size told, of which the kernel writes at most that; the rest is the
    // caller's promise.
    unsafe { bpf(Command::ObjGetInfoByFd, &attr) }.map(drop)
}

/// Ids of the maps that a program uses.
pub(crate) fn maps_of(program: BorrowedFd<'_>) -> Result<Vec<u32>, Errno> {
    let mut asked = ProgInfo::default();
    // SAFETY: of another object the kernel writes another structure, of plain numbers too, and no longer than this one;
    // there are no pointers.
    unsafe { info(program, &mut asked) }?;
    // A program has at most 64 maps.
    let mut ids = vec![0_u32; asked.map_count.min(64) as usize];
    let mut asked = ProgInfo {
        map_count: u32::try_from(ids.len()).expect("small"),
        map_ids: ids.as_mut_ptr() as u64,
        ..ProgInfo::default()
    };
    // SAFETY: as above, and there is room for as many ids as told.
    unsafe { info(program, &mut asked) }?;
    ids.truncate(asked.map_count as usize);
    Ok(ids)
}

/// The head of `struct bpf_link_info`.
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/bpf_link_info>
#[derive(Default)]
#[repr(C, align(8))]
struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
}

/// Returns the id of a link that holds a program with this id, whoever has it or pinned it. Linux
/// 5.8.
pub(crate) fn link_of(program: u32) -> Result<Option<u32>, Errno> {
    let mut id = 0;
    loop {
        id = match next_link(id) {
            Ok(id) => id,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let mut asked = LinkInfo::default();
        // One that has gone since is nobody's.
        let Ok(link) = by_id(Kind::Link, id) else { continue };
        // SAFETY: it is a descriptor of a link; there are no pointers in the head of its structure.
        let told = unsafe { info(link.as_fd(), &mut asked) };
        if told.is_ok() && asked.program == program {
            return Ok(Some(id));
        }
    }
}

/// Raw BTF of a program, as it was loaded with; `None` of one that was loaded without. Linux 5.0.
pub(crate) fn btf_of(program: BorrowedFd<'_>) -> Result<Option<Vec<u8>>, Errno> {
    let mut asked = ProgInfo::default();
    // SAFETY: as in `maps_of`.
    unsafe { info(program, &mut asked) }?;
    if asked.btf_id == 0 {
        return Ok(None);
    }
    let btf = by_id(Kind::Btf, asked.btf_id)?;
    let mut asked = BtfInfo::default();
    // SAFETY: it is a descriptor of BTF; there are no pointers.
    unsafe { info(btf.as_fd(), &mut asked) }?;
    let mut bytes = vec![0_u8; asked.btf_size as usize];
    let mut asked = BtfInfo {
        btf: bytes.as_mut_ptr() as u64,
        btf_size: asked.btf_size,
        ..BtfInfo::default()
    };
    // SAFETY: as before, and there is room for as many bytes as told.
    unsafe { info(btf.as_fd(), &mut asked) }?;
    Ok(Some(bytes))
}

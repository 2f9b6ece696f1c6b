//! An attached XDP program and who holds it, on a real veth.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

use ringside_netlab::{Lab, VethConfig, testing};
use ringside_nic::{XdpMode, owners};

const BPF_MAP_CREATE: u32 = 0;
const BPF_PROG_LOAD: u32 = 5;
const BPF_LINK_CREATE: u32 = 28;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// Time until the kernel frees what was closed. A child that another test forks has a copy of each
/// descriptor until it executes its own program.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The `bpf` system call with an attribute made of words; all commands used here return a descriptor.
fn bpf(command: u32, words: [u32; 32]) -> io::Result<OwnedFd> {
    // SAFETY: the attribute is 128 initialised bytes; the pointers in it (program load) point to live memory.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, words.as_ptr(), size_of_val(&words)) };
    let fd = i32::try_from(fd).unwrap();
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `return XDP_PASS`.
fn pass_program() -> OwnedFd {
    let instructions = [0x0000_0002_0000_00b7_u64, 0x95]; // r0 = 2; exit
    let license = c"GPL";
    let mut words = [0; 32];
    let mut pointer = |at: usize, address: u64| {
        words[at] = u32::try_from(address & u64::from(u32::MAX)).unwrap();
        words[at + 1] = u32::try_from(address >> 32).unwrap();
    };
    pointer(2, instructions.as_ptr().addr() as u64);
    pointer(4, license.as_ptr().addr() as u64);
    words[0] = BPF_PROG_TYPE_XDP;
    words[1] = 2;
    bpf(BPF_PROG_LOAD, words).unwrap()
}

fn fd(fd: &OwnedFd) -> u32 {
    fd.as_raw_fd().try_into().unwrap()
}

/// A field of a descriptor's fdinfo, the other way to the same facts.
fn fdinfo(of: &OwnedFd, name: &str) -> u32 {
    let info = io::read_to_string(File::open(format!("/proc/self/fdinfo/{}", fd(of))).unwrap()).unwrap();
    let value = info
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
    value.unwrap_or_else(|| panic!("no {name} in {info}")).parse().unwrap()
}

#[test]
fn an_attached_program_shows_with_its_mode_id_and_owner() {
    if !testing::is_root() {
        return;
    }
    let lab = Lab::veth(VethConfig {
        queues: 2,
        ..VethConfig::tagged("xdp")
    })
    .unwrap();
    for (flag, mode) in [
        (XDP_FLAGS_DRV_MODE, XdpMode::Native),
        (XDP_FLAGS_SKB_MODE, XdpMode::Generic),
    ] {
        assert_eq!(lab.a.state().unwrap().xdp, None);
        let (program, link) = lab.a.run(|| {
            let program = pass_program();
            let mut words = [0; 32];
            words[..4].copy_from_slice(&[fd(&program), lab.a.interface.index(), BPF_XDP, flag]);
            let link = bpf(BPF_LINK_CREATE, words).unwrap();
            (program, link)
        });
        let xdp = lab.a.state().unwrap().xdp.expect("a program is attached");
        assert_eq!((xdp.mode, xdp.prog_id), (mode, fdinfo(&program, "prog_id")));
        assert_eq!(lab.b.state().unwrap().xdp, None);

        let found = lab.a.run(|| lab.a.interface.xdp_owners());
        let link_id = fdinfo(&link, "link_id");
        let own: Vec<_> = found
            .iter()
            .filter(|owner| owner.pid == std::process::id() && owner.link_id == link_id)
            .collect();
        let [owner] = own.as_slice() else { panic!("{found:?}") };
        assert_eq!(owner.prog_id, Some(xdp.prog_id));
        assert!(!owner.comm.is_empty());
        // The process itself (its first thread) is outside: only some of its threads are in the lab.
        assert!(!owner.same_namespace);
        assert!(
            lab.a
                .interface
                .xdp_owners()
                .iter()
                .any(|seen| seen.link_id == owner.link_id && seen.same_namespace)
        );
        drop(link);
        let is_free = || lab.a.state().unwrap().xdp.is_none();
        assert!(testing::wait_until(CLOSE_TIMEOUT, is_free), "it is still attached");
    }
    assert!(
        lab.a
            .run(|| lab.a.interface.xdp_owners())
            .iter()
            .all(|owner| owner.pid != std::process::id())
    );
}

#[test]
fn the_holder_of_a_socket_map_is_found() {
    if !testing::is_root() {
        return;
    }
    let mut words = [0; 32];
    words[..4].copy_from_slice(&[BPF_MAP_TYPE_XSKMAP, 4, 4, 4]); // type, key size, value size, entries
    let map = bpf(BPF_MAP_CREATE, words).unwrap();
    let id = fdinfo(&map, "map_id");
    let holders = || {
        let owners = owners::xskmap_owners().into_iter();
        owners.filter(|owner| owner.map_id == id).collect::<Vec<_>>()
    };
    let is_own = |owner: &owners::MapOwner| owner.pid == std::process::id();
    let found = holders();
    assert_eq!(found.iter().filter(|owner| is_own(owner)).count(), 1, "{found:?}");
    drop(map);
    assert!(!holders().iter().any(is_own));
    let is_free = || holders().is_empty();
    assert!(testing::wait_until(CLOSE_TIMEOUT, is_free), "somebody still holds it");
}

#[test]
fn the_holder_of_a_socket_is_found() {
    use rustix::net::{AddressFamily, SocketType, socket};
    if !testing::is_root() {
        return;
    }
    let ours = || {
        let mut owners = owners::xdp_socket_owners().into_iter();
        owners.find(|owner| owner.pid == std::process::id())
    };
    assert_eq!(ours(), None, "a socket of another kind is none");
    let socket = socket(AddressFamily::XDP, SocketType::RAW, None).unwrap();
    assert!(ours().is_some_and(|owner| owner.same_namespace && !owner.comm.is_empty()));
    drop(socket);
    assert_eq!(ours(), None);
}

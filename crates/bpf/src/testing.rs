//! XDP programs for tests of AF_XDP sockets. Not part of the API.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, OpenProgramMut, ProgramAttachType};

use crate::attach::{self, Link, XdpMode};
use crate::error::Result;
use crate::load;
use crate::skel::testing::{TestingSkelBuilder, types};
use crate::xsk::{DEVICE_BOUND, HAS_FRAGS};

const NAME: &str = "testing";

/// An object file with three structs of hints, `test_time`, `test_mark` and `test_whole`, and a program that puts them in
/// front of packets by the packets' numbers.
pub const LAYOUTS: &[u8] = include_bytes!(concat!(env!("RINGSIDE_BPF_OBJECTS"), "/testing_layouts.o"));

/// The same as a file.
pub const LAYOUTS_FILE: &str = concat!(env!("RINGSIDE_BPF_OBJECTS"), "/testing_layouts.o");

/// `examples/hints.bpf.c` of the repository, compiled.
pub const EXAMPLE_FILE: &str = concat!(env!("RINGSIDE_BPF_OBJECTS"), "/hints.o");

/// `examples/nic.bpf.c` of the repository, compiled.
pub const NIC_EXAMPLE_FILE: &str = concat!(env!("RINGSIDE_BPF_OBJECTS"), "/nic.o");

/// Has the maps that a gateway has pinned in a folder say that they are another version's, 99.
///
/// # Errors
/// None are pinned there, or they cannot be written.
pub fn of_another_version(folder: &Path) -> io::Result<()> {
    let forge = || {
        let state = MapHandle::from_pinned_path(folder.join("state"))?;
        let mut value = state.lookup(&[0; 4], MapFlags::ANY)?.unwrap_or_default();
        if let Some(layout) = value.first_chunk_mut() {
            *layout = 99_u32.to_ne_bytes();
        }
        state.update(&[0; 4], &value, MapFlags::ANY)
    };
    forge().map_err(|error| load::os_error(&error))
}

/// Has the kernel refuse whatever is to be changed in a map that a gateway has pinned in a folder, as long as there is the map.
///
/// # Errors
/// It is not pinned there, or the kernel refuses this, too.
pub fn freeze(folder: &Path, map: &str) -> io::Result<()> {
    let map = MapHandle::from_pinned_path(folder.join(map));
    map.and_then(|map| map.freeze()).map_err(|error| load::os_error(&error))
}

/// What a [`TestProgram`] does with packets. Where it is not said otherwise they go to the socket at the place of the queue
/// that they came on.
#[derive(Clone, Copy, Debug)]
pub enum Task {
    /// Packet n of a sequence goes to the socket at place n mod so many.
    Steer(u32),
    /// Of every so many packets the last goes to the socket at place 1, all others to the one at place 0.
    Uneven(u32),
    /// Packets of more bytes go to the socket at place 1, all others to the one at place 0.
    ByLength(u32),
    /// Every second packet is dropped.
    DropHalf,
    /// In front of each packet lies how many came before it, eight bytes in the host's order.
    CountInFront,
    /// Packets are so much longer or, negative, shorter; those with which that cannot be done are dropped.
    AdjustTail(i32),
}

/// A program and the XSKMAP that it redirects through, for `Program::Custom`.
#[derive(Debug)]
pub struct TestProgram {
    /// The program, loaded.
    pub program: OwnedFd,
    /// Its XSKMAP, with 64 places.
    pub xsks_map: OwnedFd,
    /// What it tells of itself.
    pub told: Told,
}

/// The program's variables.
#[derive(Debug)]
pub struct Told(MapHandle);

impl TestProgram {
    /// Packet n of a sequence goes to the socket at place n mod `sockets`.
    ///
    /// # Errors
    ///
    /// As [`TestProgram::load`].
    pub fn steer(sockets: u32) -> Result<Self> {
        Self::load(Task::Steer(sockets), false)
    }

    /// Loads a program, for packets in several buffers too or not.
    ///
    /// # Errors
    ///
    /// [`Error::Load`](crate::Error::Load) if the kernel refuses it.
    pub fn load(task: Task, multi_buffer: bool) -> Result<Self> {
        let constants = |constants: &mut types::rodata| match task {
            Task::Steer(sockets) | Task::Uneven(sockets) => constants.sockets = sockets.max(1),
            Task::ByLength(border) => constants.border = border,
            Task::AdjustTail(by) => constants.adjust_by = by,
            Task::DropHalf | Task::CountInFront => {}
        };
        Self::load_as(task.program(), constants, |program| {
            if multi_buffer {
                program.set_flags(HAS_FRAGS);
            }
        })
    }

    /// Loads the one program of this name, with constants and as `with` wants it.
    fn load_as(
        name: &str,
        set: impl FnOnce(&mut types::rodata),
        with: impl Fn(&mut OpenProgramMut<'_>),
    ) -> Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let skel = load::capture(NAME, || {
            let mut open = TestingSkelBuilder::default().open(&mut storage)?;
            let constants = open.maps.rodata_data.as_deref_mut();
            set(constants.expect("testing.bpf.c has constants"));
            for mut program in open.open_object_mut().progs_mut() {
                program.set_autoload(program.name() == name);
                with(&mut program);
            }
            open.load()
        })?;
        let program = skel.object().progs().find(|program| program.name() == name);
        Ok(Self {
            program: load::own(NAME, program.expect("it is in testing.bpf.c"))?,
            xsks_map: load::own(NAME, &skel.maps.test_xsks)?,
            told: Told(load::own_map(NAME, &skel.maps.bss)?),
        })
    }
}

/// Attaches, generically, an XDP program that makes nothing but mistakes: `XDP_ABORTED`, or redirects to an interface that does
/// not exist.
///
/// # Errors
///
/// As [`TestProgram::load`], and [`Error::Attach`](crate::Error::Attach).
pub fn at_fault(interface: u32, redirects: bool) -> Result<Link> {
    let name = if redirects { "astray" } else { "aborts" };
    let loaded = TestProgram::load_as(name, |_| {}, |_| {})?;
    attach::xdp(NAME, loaded.program.as_fd(), interface, XdpMode::Generic)
}

/// An XDP program that lets everything pass, for a device alone (its index in the calling thread's namespace) or for any,
/// to be attached as a program is or to be put into a devmap.
///
/// # Errors
///
/// As [`TestProgram::load`].
pub fn pass(device: Option<u32>, for_devmap: bool) -> Result<OwnedFd> {
    let loaded = TestProgram::load_as(
        "pass",
        |_| {},
        |program| {
            if let Some(index) = device {
                program.set_ifindex(index);
                program.set_flags(DEVICE_BOUND);
            }
            if for_devmap {
                program.set_attach_type(ProgramAttachType::XdpDevmap);
            }
        },
    );
    Ok(loaded?.program)
}

/// Sends what leaves by an interface, except from XDP sockets, through one of its transmit queues, with a VLAN tag if one
/// is told (0: none), until the link is dropped. Linux 6.6.
///
/// # Errors
///
/// As [`TestProgram::load`], and [`Error::Attach`](crate::Error::Attach).
pub fn direct(interface: u32, queue: u16, vlan_tci: u16) -> Result<Link> {
    let constants = |constants: &mut types::rodata| {
        constants.transmit_queue = queue;
        constants.vlan_tci = vlan_tci;
    };
    let loaded = TestProgram::load_as("direct", constants, |_| {})?;
    attach::tcx_egress(NAME, loaded.program.as_fd(), interface)
}

impl Task {
    fn program(self) -> &'static str {
        match self {
            Self::Steer(_) => "steer",
            Self::Uneven(_) => "uneven",
            Self::ByLength(_) => "by_length",
            Self::DropHalf => "drop_half",
            Self::CountInFront => "count_in_front",
            Self::AdjustTail(_) => "adjust_tail",
        }
    }
}

impl Told {
    /// What `bpf_xdp_adjust_tail()` answered last: 0, or a negative error number.
    pub fn adjusted(&self) -> i64 {
        let values = self.0.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let values = values.ok().flatten().expect("a map of one value can be read");
        // `seen`, then `adjusted`: both of eight bytes.
        i64::from_ne_bytes(values[8..16].try_into().expect("eight bytes"))
    }
}

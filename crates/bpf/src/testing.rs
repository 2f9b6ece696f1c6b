//! XDP programs for tests of AF_XDP sockets. Not part of the API.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::error::Result;
use crate::load;
use crate::skel::testing::TestingSkelBuilder;
use crate::xsk::HAS_FRAGS;

const NAME: &str = "testing";

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
        let mut storage = MaybeUninit::uninit();
        let skel = load::capture(NAME, || {
            let mut open = TestingSkelBuilder::default().open(&mut storage)?;
            let constants = open
                .maps
                .rodata_data
                .as_deref_mut()
                .expect("testing.bpf.c has constants");
            match task {
                Task::Steer(sockets) | Task::Uneven(sockets) => constants.sockets = sockets.max(1),
                Task::ByLength(border) => constants.border = border,
                Task::AdjustTail(by) => constants.adjust_by = by,
                Task::DropHalf | Task::CountInFront => {}
            }
            let name = task.program();
            for mut program in open.open_object_mut().progs_mut() {
                program.set_autoload(program.name() == name);
                if multi_buffer {
                    program.set_flags(HAS_FRAGS);
                }
            }
            open.load()
        })?;
        let program = skel.object().progs().find(|program| program.name() == task.program());
        Ok(Self {
            program: load::own(NAME, program.expect("it is in testing.bpf.c"))?,
            xsks_map: load::own(NAME, &skel.maps.test_xsks)?,
            told: Told(load::own_map(NAME, &skel.maps.bss)?),
        })
    }
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

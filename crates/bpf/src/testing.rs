//! XDP programs for tests of AF_XDP sockets. Not part of the API.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::error::Result;
use crate::load;
use crate::skel::testing::TestingSkelBuilder;

const NAME: &str = "testing";

/// A program and the XSKMAP that it redirects through, for `Program::Custom`.
#[derive(Debug)]
pub struct TestProgram {
    /// The program, loaded.
    pub program: OwnedFd,
    /// Its XSKMAP, with 64 places.
    pub xsks_map: OwnedFd,
}

impl TestProgram {
    /// Packet n of a sequence goes to the socket at place n mod `sockets`.
    ///
    /// # Errors
    ///
    /// [`Error::Load`](crate::Error::Load) if the kernel refuses it.
    pub fn steer(sockets: u32) -> Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let skel = load::capture(NAME, || {
            let mut open = TestingSkelBuilder::default().open(&mut storage)?;
            let constants = open
                .maps
                .rodata_data
                .as_deref_mut()
                .expect("testing.bpf.c has constants");
            constants.sockets = sockets.max(1);
            open.load()
        })?;
        Ok(Self {
            program: load::own(NAME, &skel.progs.steer)?,
            xsks_map: load::own(NAME, &skel.maps.test_xsks)?,
        })
    }
}

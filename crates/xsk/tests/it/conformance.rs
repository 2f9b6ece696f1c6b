//! What an AF_XDP library must pass: the rows of `rows.txt`, each a test of its name. Those that put descriptors on a ring
//! that no user of the library can put there are beside the rings: `src/queue/descriptor_tests.rs`.

use crate::common;

mod basic;
mod drivers;
mod facts;
mod faults;
#[cfg(target_arch = "x86_64")]
mod guest;
mod libxdp;
mod metadata;
mod multi_buffer;
mod programs;
mod rings;
mod shared;
mod stats;
mod table;
mod wired;

/// Not a test by itself: what another process does.
#[test]
#[ignore = "other tests run it in a process of its own"]
fn child() {
    let (part, interface) = common::child::part();
    wired::play(&part, interface);
}

//! What an AF_XDP library must pass: the rows of `rows.txt`, each a test of its name. Those that put descriptors on a ring
//! that no user of the library can put there are beside the rings: `src/queue/descriptor_tests.rs`.

#[path = "../common/mod.rs"]
mod common;

mod basic;
mod drivers;
mod facts;
mod faults;
mod libxdp;
mod metadata;
mod multi_buffer;
mod programs;
mod rings;
mod shared;
mod stats;
mod table;

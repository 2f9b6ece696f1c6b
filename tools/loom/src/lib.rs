//! Every interleaving of both sides of a ring, by loom: `cargo test -p ringside-loom`.
//!
//! The rings are those of ringside-xsk: the same files, with loom's atomics in `sync`. A build of
//! the library with loom would compile all its dependencies once more.
#![cfg(test)]

mod rings;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence};
}

mod error {
    /// The variant of the library's error that its rings return.
    #[derive(Debug)]
    #[expect(dead_code, reason = "printed when a model fails")]
    pub(crate) enum Violation {
        RingIndex { producer: u32, consumer: u32, size: u32 },
    }
}

#[path = "../../../crates/xsk/src/ring"]
#[expect(dead_code, reason = "the models need a part of it")]
mod ring {
    pub(crate) mod cursor;
    pub(crate) mod guards;
    pub(crate) mod memory;
}

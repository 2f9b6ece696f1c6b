//! The atomics that the rings are built on. `tools/loom` compiles the rings with loom's.

pub(crate) use std::sync::atomic::{AtomicU32, Ordering, fence};

//! The process that opened something. A child of `fork()` has a copy of it, whose end must undo
//! nothing.

/// The process that opened a port, a queue or a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opener(u32);

impl Opener {
    pub(crate) fn this_process() -> Self {
        Self(std::process::id())
    }

    /// Returns whether this process is it, and not a child of it. A system call.
    pub(crate) fn is_this_process(self) -> bool {
        self == Self::this_process()
    }

    #[cfg(debug_assertions)]
    pub(crate) fn pid(self) -> u32 {
        self.0
    }
}

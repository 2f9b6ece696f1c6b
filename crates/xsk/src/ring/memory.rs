//! What a ring needs of the memory that it is in.

use super::cursor::Indices;

/// A value that the kernel reads from or writes to a ring slot.
///
/// # Safety
/// Every bit pattern must be a valid value: the other side of the ring writes it.
pub(crate) unsafe trait Slot: Copy {}
// SAFETY: an integer.
unsafe impl Slot for u64 {}

/// The shared words and the slots of one ring.
pub(crate) trait Memory<T>: Indices {
    type Slots<'m>: Slots<T>
    where
        Self: 'm;

    /// Number of slots, a power of two.
    fn size(&self) -> u32;

    /// The way to the slots, by value: a loop over many keeps it in registers.
    fn slots(&self) -> Self::Slots<'_>;
}

/// The slots of one ring.
pub(crate) trait Slots<T>: Copy {
    /// # Safety
    /// The slot at `index & (size - 1)` must belong to the caller's side of the ring.
    unsafe fn write(self, index: u32, value: T);

    /// # Safety
    /// The slot at `index & (size - 1)` must belong to the caller's side of the ring.
    unsafe fn read(self, index: u32) -> T;
}

//! Has memory come into the cache, and does not wait for it.
//!
//! A load that is needed soon would do the same, but the CPU cannot end what comes after it before it has come: of loads there are
//! as many under way as instructions fit between them, of prefetches as many as there is room for. Measured with ten million
//! neighbours: a look-up takes three quarters of the time.

/// Has the first cache line of a value come.
#[allow(unsafe_code, reason = "there is no safe name for the instruction")]
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it changes nothing that a program sees and faults at no address, and SSE is there on every x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

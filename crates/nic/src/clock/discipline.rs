//! Whether somebody keeps the host's clock right, and which clock two processes read.

use std::io;

use super::sys;

/// What the kernel says about how right `CLOCK_REALTIME` is.
///
/// Whoever disciplines the clock (chronyd, ntpd, phc2sys) tells the kernel how far it may be off at the most, and the kernel
/// adds 500 µs a second as long as it hears nothing new. A clock that nobody disciplines is marked as unsynchronised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "adjtimex")]
pub struct Discipline {
    /// Somebody disciplines it (`STA_UNSYNC` is not set).
    pub is_synchronised: bool,
    /// How far it may be from true time (`maxerror`), in nanoseconds. Of no use where nobody disciplines it.
    pub most_error_ns: u64,
    /// What `CLOCK_TAI` shows more than `CLOCK_REALTIME`, in seconds; 0 where nobody has told the kernel.
    pub tai_offset_s: i64,
}

impl Discipline {
    /// Asks the kernel. Takes no privilege, and changes nothing.
    ///
    /// # Errors
    ///
    /// Where a sandbox forbids the system call.
    pub fn read() -> io::Result<Self> {
        let (status, most_error_us, tai_offset_s) = sys::discipline()?;
        Ok(Self {
            is_synchronised: status & libc::STA_UNSYNC == 0,
            most_error_ns: u64::try_from(most_error_us).unwrap_or(0).saturating_mul(1_000),
            tai_offset_s: tai_offset_s.into(),
        })
    }
}

/// What two processes have in common if, and only if, they read one `CLOCK_MONOTONIC`: the boot of the kernel and the time
/// namespace. A virtual machine that was copied while it ran has that of its original.
///
/// # Errors
///
/// Where `/proc` is not there.
#[doc(alias = "boot_id")]
pub fn identity() -> io::Result<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    // Before Linux 5.6 there was one for all.
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    Ok(format!("{} {}", boot.trim(), namespace.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_both() {
        let discipline = Discipline::read().unwrap();
        assert!(discipline.most_error_ns <= 17_000_000_000, "{discipline:?}");
        let shown = super::super::Offset::<super::super::Realtime, super::super::Tai>::measure().delta_ns();
        assert!(
            (shown - discipline.tai_offset_s * 1_000_000_000).abs() < 1_000_000,
            "{shown}: {discipline:?}"
        );
        let identity = identity().unwrap();
        assert_eq!(identity, super::identity().unwrap());
        assert!(identity.len() >= 36, "{identity}");
    }
}

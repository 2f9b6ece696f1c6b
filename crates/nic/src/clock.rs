//! Clocks, told from one another by type.
//!
//! Packets are stamped by different clocks: an XDP program by CLOCK_MONOTONIC, the kernel's copy path by CLOCK_TAI, a NIC
//! by a hardware clock (PHC) of its own. A [`Timestamp`] carries its clock in its type, so that the difference of two
//! stamps of different clocks does not compile. From one clock to another leads only an [`Offset`], which was measured and
//! knows how wrong it may be.
//!
//! ```
//! use ringside_nic::clock::{Monotonic, Offset, Tai, Timestamp};
//!
//! let received: Timestamp<Monotonic> = Timestamp::now();
//! let completed: Timestamp<Tai> = Timestamp::now();
//! // received - completed does not compile.
//! let offset = Offset::<Monotonic, Tai>::measure();
//! let received = offset.convert(received).expect("far from the ends of the clock");
//! let took = completed - received.at; // nanoseconds, below zero where the second is the later one
//! assert!(took >= -i64::try_from(received.uncertainty_ns).unwrap());
//! ```
//!
//! | clock | whose stamps | source |
//! |---|---|---|
//! | [`Monotonic`] | `bpf_ktime_get_ns()`, the tool's own | [`Timestamp::now`] |
//! | [`Tai`] | launch times, TX completions of the copy path | [`Timestamp::now`] |
//! | [`Realtime`] | files, logs, other hosts | [`Timestamp::now`] |
//! | [`Boottime`] | `bpf_ktime_get_boot_ns()` | [`Timestamp::now`] |
//! | [`MonotonicRaw`] | the counter itself, which no time server corrects | [`Timestamp::now`] |
//! | [`PhcClock`] | a NIC; each device is a clock of its own | [`Phc::now`] |
//! | [`Tsc`] | a packet's way through a program: half the price of the others | [`FastClock::now`] |
//!
//! How good each is here, and what it costs: `cargo run --release -p ringside-nic --example clocks`.

mod discipline;
mod fast;
mod follow;
mod offset;
mod phc;
mod ptp;
mod ptp4l;
mod sys;
mod timestamp;

pub use discipline::{Discipline, identity};
pub use fast::{FastClock, FastSource};
pub use offset::{Converted, Offset};
pub use phc::{Method, Phc, PhcCapabilities, PhcClock, PhcDevice};
pub use ptp4l::Ptp4l;
pub use timestamp::Timestamp;

/// A clock, as a type: the parameter of [`Timestamp`].
pub trait Clock: sealed::Sealed {
    /// Its name.
    const NAME: &'static str;

    /// How far it may run away from the kernel's corrected time, in nanoseconds a second, where nothing better is known.
    const DRIFT_PPB: u32;
}

/// A clock that the kernel keeps and everybody can read.
pub trait KernelClock: Clock {
    /// What `clock_gettime()` calls it.
    #[doc(hidden)]
    const ID: libc::clockid_t;
}

mod sealed {
    pub trait Sealed {}
}

/// What the kernel corrects a clock by at the most: 500 ppm of frequency
/// (<https://elixir.bootlin.com/linux/v6.18/C/ident/MAXFREQ>) and as much of `adjtime()`
/// (<https://elixir.bootlin.com/linux/v6.18/C/ident/MAX_TICKADJ>). A clock that is not corrected with it may run away so fast.
const MOST_CORRECTION_PPB: u32 = 1_000_000;

macro_rules! kernel_clock {
    ($(#[$doc:meta])* $name:ident, $id:ident, $drift:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {}

        impl sealed::Sealed for $name {}

        impl Clock for $name {
            const NAME: &'static str = stringify!($id);
            const DRIFT_PPB: u32 = $drift;
        }

        impl KernelClock for $name {
            const ID: libc::clockid_t = libc::$id;
        }
    };
}

kernel_clock! {
    /// CLOCK_MONOTONIC: time since boot without suspends; corrected in rate, never set.
    #[doc(alias = "CLOCK_MONOTONIC")]
    Monotonic, CLOCK_MONOTONIC, 0
}
kernel_clock! {
    /// CLOCK_MONOTONIC_RAW: as [`Monotonic`], but never corrected in rate either.
    #[doc(alias = "CLOCK_MONOTONIC_RAW")]
    MonotonicRaw, CLOCK_MONOTONIC_RAW, MOST_CORRECTION_PPB
}
kernel_clock! {
    /// CLOCK_REALTIME: UTC since 1970. It can be set, and goes back at a leap second.
    #[doc(alias = "CLOCK_REALTIME")]
    Realtime, CLOCK_REALTIME, 0
}
kernel_clock! {
    /// CLOCK_BOOTTIME: time since boot with suspends.
    #[doc(alias = "CLOCK_BOOTTIME")]
    Boottime, CLOCK_BOOTTIME, 0
}
kernel_clock! {
    /// CLOCK_TAI: as [`Realtime`], but without leap seconds. Where nobody has told the kernel their number, the two are
    /// the same.
    #[doc(alias = "CLOCK_TAI")]
    Tai, CLOCK_TAI, 0
}

/// A clock of another host, as its packets and messages tell it: the two were never set by one another, so their rates differ
/// by what crystals do, some tens of parts in 10⁶, or by what the kernel corrects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Far {}

impl sealed::Sealed for Far {}

impl Clock for Far {
    const NAME: &'static str = "the far clock";
    const DRIFT_PPB: u32 = 200_000;
}

/// The CPU's time stamp counter, calibrated to follow CLOCK_MONOTONIC: what a [`FastClock`] reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tsc {}

impl sealed::Sealed for Tsc {}

impl Clock for Tsc {
    const NAME: &'static str = "TSC";
    // It is set anew all the time: what it is off by is in its bound.
    const DRIFT_PPB: u32 = 0;
}

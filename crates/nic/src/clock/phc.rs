//! The hardware clocks of NICs: `/dev/ptp0`, `/dev/ptp1`, ….

use std::fs::{self, File};
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use rustix::time::{DynamicClockId, clock_gettime_dynamic};
use serde::Serialize;

use super::offset::ROUNDS;
use super::ptp::{Caps, SysOffsetExtended, SysOffsetPrecise};
use super::timestamp::total;
use super::{Clock, MOST_CORRECTION_PPB, Offset, Realtime, Timestamp, sealed, sys};
use crate::{Error, Interface, Result};

/// A PTP hardware clock (PHC).
///
/// Its time is read and compared in a [`scope`](Self::scope), which gives it a clock of its own as a type: stamps of two
/// devices do not mix, whichever these are at run time.
///
/// ```
/// use ringside_nic::clock::{PhcDevice, Realtime, Timestamp};
///
/// # fn main() -> Result<(), ringside_nic::Error> {
/// for device in PhcDevice::all() {
///     let device = device?;
///     device.scope(|phc| {
///         let (offset, method) = phc.offset()?; // from CLOCK_REALTIME
///         let here = Timestamp::<Realtime>::now();
///         println!("{}: {offset} ({method:?})", device.path().display());
///         println!("it shows {:?}", offset.convert(here));
///         Ok::<_, ringside_nic::Error>(())
///     })?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// Two readings of one device can be subtracted, of two devices they cannot:
///
/// ```
/// use ringside_nic::clock::PhcDevice;
///
/// fn apart(a: &PhcDevice) -> ringside_nic::Result<i64> {
///     a.scope(|a| Ok(a.now()? - a.now()?))
/// }
/// ```
///
/// ```compile_fail,E0521
/// use ringside_nic::clock::PhcDevice;
///
/// fn apart(a: &PhcDevice, b: &PhcDevice) -> ringside_nic::Result<i64> {
///     a.scope(|a| b.scope(|b| Ok(a.now()? - b.now()?))) // two devices, two clocks
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "ptp_clock")]
pub struct PhcDevice {
    path: PathBuf,
    file: File,
}

/// A PHC within its [`scope`](PhcDevice::scope).
#[derive(Debug, Clone, Copy)]
pub struct Phc<'id, 'device> {
    device: &'device PhcDevice,
    id: PhantomData<fn(&'id ()) -> &'id ()>,
}

/// The clock of one PHC: `'id` is told from that of every other scope by the compiler.
#[derive(Debug, Clone, Copy)]
pub struct PhcClock<'id>(PhantomData<fn(&'id ()) -> &'id ()>);

impl sealed::Sealed for PhcClock<'_> {}

impl Clock for PhcClock<'_> {
    const NAME: &'static str = "PHC";
    // It may be left alone, while the kernel's time is corrected.
    const DRIFT_PPB: u32 = MOST_CORRECTION_PPB;
}

/// What a PHC can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[doc(alias = "ptp_clock_caps")]
pub struct PhcCapabilities {
    /// The most that its rate can be corrected by, in parts in 10⁹.
    pub max_adjustment_ppb: i32,
    /// Whether it and the system's clock can be read at one moment, in hardware.
    pub cross_timestamping: bool,
}

/// How an offset was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Method {
    /// Both clocks at one moment by hardware (PTP_SYS_OFFSET_PRECISE, Linux 4.6). The uncertainty is what readings cut off;
    /// what the hardware's "one moment" is worth no driver tells.
    Precise,
    /// The kernel read the PHC between two readings of its own clock (PTP_SYS_OFFSET_EXTENDED, Linux 5.0).
    Extended,
    /// The same from outside, with a system call in between.
    Bracketed,
}

impl PhcDevice {
    /// Opens `/dev/ptpN`.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if there is none, the caller may not use it, or it is another kind of device.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let file = File::open(&path).map_err(|source| Error::file("open", &path, source))?;
        let device = Self { path, file };
        device.capabilities()?;
        Ok(device)
    }

    /// All of this host, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Result<Self>> {
        let mut numbers: Vec<u32> = (fs::read_dir("/sys/class/ptp").into_iter().flatten().flatten())
            .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("ptp")?.parse().ok())
            .collect();
        numbers.sort_unstable();
        numbers.into_iter().map(|number| Self::open(path_of(number)))
    }

    /// That of an interface's NIC; `None` if it has none.
    ///
    /// # Errors
    ///
    /// As [`Interface::phc_index`] and [`PhcDevice::open`].
    pub fn of(interface: &Interface) -> Result<Option<Self>> {
        interface
            .phc_index()?
            .map(|number| Self::open(path_of(number)))
            .transpose()
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it can do.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if the device is gone, or no PHC.
    pub fn capabilities(&self) -> Result<PhcCapabilities> {
        let mut caps = Caps::default();
        sys::ask(self.file.as_fd(), &mut caps).map_err(|error| self.error(error))?;
        Ok(PhcCapabilities {
            max_adjustment_ppb: caps.max_adj,
            cross_timestamping: caps.cross_timestamping != 0,
        })
    }

    /// Runs a closure in which the device has a clock of its own.
    pub fn scope<T>(&self, closure: impl for<'id> FnOnce(Phc<'id, '_>) -> T) -> T {
        closure(Phc {
            device: self,
            id: PhantomData,
        })
    }

    fn read(&self) -> Result<u64> {
        clock_gettime_dynamic(DynamicClockId::Dynamic(self.file.as_fd()))
            .map(|time| total(time.tv_sec, time.tv_nsec))
            .map_err(|error| self.error(error.into()))
    }

    fn error(&self, source: io::Error) -> Error {
        Error::file("read the time of", &self.path, source)
    }
}

impl<'id> Phc<'id, '_> {
    /// Its time. A system call and a read over the bus: a microsecond or more.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if the device is gone.
    pub fn now(&self) -> Result<Timestamp<PhcClock<'id>>> {
        self.device.read().map(Timestamp::from_nanos)
    }

    /// A stamp that this PHC made: of a packet that its NIC received or sent.
    #[must_use]
    pub fn stamp(&self, ns: u64) -> Timestamp<PhcClock<'id>> {
        Timestamp::from_nanos(ns)
    }

    /// How far it is from CLOCK_REALTIME, by the best way that the device offers. With
    /// [`Offset::<Tai, Realtime>::measure`](Offset::measure) and [`Offset::then`] it is known from the others too.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if the device is gone.
    #[doc(alias = "PTP_SYS_OFFSET_PRECISE")]
    #[doc(alias = "PTP_SYS_OFFSET_EXTENDED")]
    pub fn offset(&self) -> Result<(Offset<Realtime, PhcClock<'id>>, Method)> {
        // A driver that refuses the one may do the other, whatever its reason.
        if let Some(offset) = self.precise() {
            return Ok((offset, Method::Precise));
        }
        if let Some(offset) = self.extended() {
            return Ok((offset, Method::Extended));
        }
        let mut best = None;
        for _ in 0..ROUNDS {
            let before = Timestamp::<Realtime>::now();
            let between = self.now()?;
            best = Offset::better(best, Offset::bracketed(before, between, Timestamp::now()));
        }
        let unsteady = || {
            self.device
                .error(io::Error::other("CLOCK_REALTIME is being set back all the time"))
        };
        Ok((best.ok_or_else(unsteady)?, Method::Bracketed))
    }

    fn precise(&self) -> Option<Offset<Realtime, PhcClock<'id>>> {
        let mut answer = SysOffsetPrecise::default();
        sys::ask(self.device.file.as_fd(), &mut answer).ok()?;
        let system = answer.sys_realtime.timestamp()?;
        Offset::bracketed(system, answer.device.timestamp()?, system)
    }

    fn extended(&self) -> Option<Offset<Realtime, PhcClock<'id>>> {
        let mut answer = SysOffsetExtended::new();
        sys::ask(self.device.file.as_fd(), &mut answer).ok()?;
        answer.samples().fold(None, |best, (before, device, after)| {
            Offset::better(best, Offset::bracketed(before, device, after))
        })
    }
}

fn path_of(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ptp{number}"))
}

#[cfg(test)]
#[path = "phc_tests.rs"]
mod tests;

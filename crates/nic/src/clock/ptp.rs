//! What PHC devices are asked with, as `<linux/ptp_clock.h>` has it
//! (<https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/ptp_clock.h>), and the arithmetic of the answers.

use super::Timestamp;

/// `struct ptp_clock_time`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Time {
    pub(super) sec: i64,
    pub(super) nsec: u32,
    pub(super) reserved: u32,
}

/// `struct ptp_clock_caps`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Caps {
    pub(super) max_adj: i32,
    pub(super) n_alarm: i32,
    pub(super) n_ext_ts: i32,
    pub(super) n_per_out: i32,
    pub(super) pps: i32,
    pub(super) n_pins: i32,
    pub(super) cross_timestamping: i32,
    pub(super) adjust_phase: i32,
    pub(super) max_phase_adj: i32,
    pub(super) rsv: [i32; 11],
}

/// `struct ptp_sys_offset_precise`: all at the same moment.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SysOffsetPrecise {
    pub(super) device: Time,
    pub(super) sys_realtime: Time,
    pub(super) sys_monoraw: Time,
    pub(super) rsv: [u32; 4],
}

/// PTP_MAX_SAMPLES
pub(super) const MOST_SAMPLES: usize = 25;

/// `struct ptp_sys_offset_extended`: in each sample the system's clock before, the PHC, the system's clock after.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct SysOffsetExtended {
    pub(super) n_samples: u32,
    /// The system's clock: 0 is CLOCK_REALTIME, all that there was before Linux 6.12.
    pub(super) clockid: i32,
    pub(super) rsv: [u32; 2],
    pub(super) ts: [[Time; 3]; MOST_SAMPLES],
}

impl SysOffsetExtended {
    /// A question for as many samples as one can have.
    pub(super) fn new() -> Self {
        Self {
            n_samples: u32::try_from(MOST_SAMPLES).unwrap_or_default(),
            clockid: 0,
            rsv: [0; 2],
            ts: [[Time::default(); 3]; MOST_SAMPLES],
        }
    }

    /// The samples of an answer that make sense.
    pub(super) fn samples<A, B>(&self) -> impl Iterator<Item = (Timestamp<A>, Timestamp<B>, Timestamp<A>)> {
        let count = usize::try_from(self.n_samples).unwrap_or(0).min(MOST_SAMPLES);
        self.ts[..count]
            .iter()
            .filter_map(|[before, device, after]| Some((before.timestamp()?, device.timestamp()?, after.timestamp()?)))
    }
}

impl Time {
    /// As nanoseconds; `None` before the clock's zero, or for what no driver should answer.
    pub(super) fn timestamp<C>(self) -> Option<Timestamp<C>> {
        if self.nsec >= 1_000_000_000 {
            return None;
        }
        let seconds = u64::try_from(self.sec).ok()?.checked_mul(1_000_000_000)?;
        seconds.checked_add(u64::from(self.nsec)).map(Timestamp::from_nanos)
    }
}

#[cfg(test)]
#[path = "ptp_tests.rs"]
mod tests;

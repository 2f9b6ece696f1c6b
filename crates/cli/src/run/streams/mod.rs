//! What `ringside talker` and `ringside listener` share: the schedule on the command line, the clock's gate, the figures as text.

mod arrivals;
mod gate;
mod text;

use anyhow::Result;
use clap::Args;
use ringside_measure::schedule::{Class, Schedule, nanos};
use ringside_wire::{ethernet, vlan};

pub(crate) use arrivals::Arrivals;
pub(crate) use gate::{ClockArgs, Gate, PtpArgs, clock_state, refusal, us};
pub(crate) use text::{brief, text};

use crate::args::bad_value;

/// The schedule. The same for both ends.
#[derive(Clone, Debug, Args)]
pub(crate) struct ScheduleArgs {
    /// Time of a cycle, 10us to 60s; cycles begin at its multiples on CLOCK_TAI
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = nanos)]
    pub(crate) cycle: u64,
    /// A class: its VLAN priority (PCP), when its window begins in the cycle and how long it is, bytes of a frame with its VLAN tag
    /// and without FCS, such as 512 or 1.5k [default: 128], packets a cycle [default: 1], which are
    /// due evenly over the window. Once for each class, or with commas between
    #[arg(
        long = "class",
        value_name = "PCP:OFFSET:WINDOW[:SIZE[:COUNT]]",
        required = true,
        value_delimiter = ','
    )]
    pub(crate) classes: Vec<Class>,
}

impl ScheduleArgs {
    /// Checked as a whole, and against what the interface's link carries, where that is known.
    pub(crate) fn schedule(&self, interface: &ringside_nic::Interface) -> Result<Schedule> {
        let schedule = Schedule::new(self.cycle, self.classes.clone())?;
        let mtu = interface.state()?.mtu;
        let room = mtu as usize + ethernet::HEADER_LEN + vlan::TAG_LEN;
        for class in schedule.classes() {
            if class.frame_bytes as usize > room {
                bad_value!(
                    "class {}: frames of {} bytes are too long for {interface}, whose MTU of {mtu} leaves {room}",
                    class.pcp,
                    class.frame_bytes
                );
            }
        }
        if let Some(rate) = interface.speed_bps()? {
            schedule.check_rate(rate)?;
        }
        Ok(schedule)
    }
}

//! Whether the clock is right enough for a schedule, and by whose word.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use ringside_measure::schedule::nanos;
use ringside_measure::schema::ClockState;
use ringside_nic::Interface;
use ringside_nic::clock::{Discipline, Monotonic, Offset, PhcDevice, Ptp4l, Realtime, Tai};

/// How right the clock has to be.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ClockArgs {
    /// Refuse to run when CLOCK_TAI may be further off than this, such as 1us, by ptp4l and the NIC's clock, else by what the kernel was
    /// told (phc2sys, chrony, ntpd), or when nobody knows [default: only tell]
    #[arg(long, value_name = "TIME", value_parser = nanos)]
    pub(crate) max_clock_offset: Option<u64>,
    #[command(flatten)]
    pub(crate) ptp: PtpArgs,
}

/// Which ptp4l is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct PtpArgs {
    /// Socket of the ptp4l to ask [default: /var/run/ptp4l or /var/run/ptp4lro]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) ptp4l: Option<PathBuf>,
    /// PTP domain to ask it for
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "ptp4l", value_parser = clap::value_parser!(u8).range(..=127))]
    pub(crate) ptp_domain: u8,
}

impl PtpArgs {
    /// The same on the command line of a program that this one starts.
    pub(crate) fn words(&self) -> Vec<String> {
        let of = |socket: &PathBuf| {
            let socket = socket.to_string_lossy().into_owned();
            [
                "--ptp4l".to_owned(),
                socket,
                "--ptp-domain".to_owned(),
                self.ptp_domain.to_string(),
            ]
        };
        self.ptp4l.iter().flat_map(of).collect()
    }
}

/// What is known of the clock.
pub(crate) struct Gate {
    pub(crate) state: ClockState,
}

impl Gate {
    /// Asks all who may know.
    pub(crate) fn read(args: &ClockArgs, interface: &Interface) -> Self {
        let state = ClockState {
            most_offset_ns: args.max_clock_offset,
            ..clock_state(&args.ptp, interface)
        };
        Self { state }
    }

    /// An error if the clock is worse than asked, or nobody knows.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(most) = self.state.most_offset_ns else {
            return Ok(());
        };
        match refusal(&self.state, most) {
            Some(why) => bail!("--max-clock-offset {}: {why}", us(most)),
            None => Ok(()),
        }
    }

    /// One line about it.
    pub(crate) fn note(&self) -> String {
        let state = &self.state;
        let tai = match state.tai_offset_s {
            Some(0) => "; CLOCK_TAI is CLOCK_REALTIME here, for nobody has told the kernel their difference",
            _ => "",
        };
        match (&state.offset_ns, &state.by) {
            (Some(offset), Some(by)) => format!("clock: CLOCK_TAI is at most {} off, by {by}{tai}", us(*offset)),
            _ => format!("clock: nobody knows how far CLOCK_TAI is off: times between two hosts mean nothing{tai}"),
        }
    }

    /// With what was found later: the worse of the two counts. Of CLOCK_MONOTONIC the better one does, if they do not contradict each other.
    pub(crate) fn and_then(self, later: Self) -> Self {
        let monotonic = together([&self.state, &later.state].map(monotonic));
        let worse = match (self.state.offset_ns, later.state.offset_ns) {
            (Some(now), Some(then)) => then > now,
            (Some(_), None) => true,
            (None, _) => false,
        };
        let mut whole = if worse { later } else { self };
        (
            whole.state.tai_less_monotonic_ns,
            whole.state.tai_less_monotonic_uncertainty_ns,
        ) = monotonic.unzip();
        whole
    }
}

/// What is known of the clock, by all who may know.
pub(crate) fn clock_state(args: &PtpArgs, interface: &Interface) -> ClockState {
    let (ptp, silent) = match ask(args) {
        Ok(Some(told)) if told.knows_its_offset() => (Some(told), None),
        // It tells an offset of 0 then.
        Ok(Some(_)) => (
            None,
            Some("ptp4l has no master, or has not measured the path to it yet".to_owned()),
        ),
        Ok(None) => (None, Some("there is no ptp4l".to_owned())),
        Err(error) => (None, Some(format!("ptp4l: {error}"))),
    };
    let discipline = Discipline::read().ok();
    let phc = phc(interface);
    let monotonic = Offset::<Monotonic, Tai>::measure();
    let mut state = ClockState {
        kernel_is_synchronised: discipline.map(|kernel| kernel.is_synchronised),
        kernel_most_error_ns: discipline
            .filter(|kernel| kernel.is_synchronised)
            .map(|kernel| kernel.most_error_ns),
        tai_offset_s: discipline.map(|kernel| kernel.tai_offset_s),
        tai_less_monotonic_ns: Some(monotonic.delta_ns()),
        tai_less_monotonic_uncertainty_ns: Some(monotonic.uncertainty_ns()),
        ptp4l_offset_ns: ptp.map(|told| told.offset_ns),
        ptp4l_path_delay_ns: ptp.map(|told| told.path_delay_ns),
        ptp4l_steps_removed: ptp.map(|told| told.steps_removed),
        ptp4l_silence: silent,
        phc_offset_ns: phc.map(|(offset, _)| offset),
        phc_uncertainty_ns: phc.map(|(_, uncertainty)| uncertainty),
        ..ClockState::default()
    };
    judge(&mut state);
    state
}

/// Why a clock does not do, where it may be off by so much at the most.
pub(crate) fn refusal(state: &ClockState, most_ns: u64) -> Option<String> {
    match state.offset_ns {
        Some(offset) if offset <= most_ns => None,
        Some(offset) => Some(format!(
            "CLOCK_TAI may be {} off, by {}; let it settle, or ask for less",
            us(offset),
            state.by.as_deref().unwrap_or("nobody")
        )),
        None => Some(format!(
            "nobody knows how far CLOCK_TAI is off: {}, and the kernel does not count its clock as synchronised. Run ptp4l and \
             phc2sys, or chrony",
            state.ptp4l_silence.as_deref().unwrap_or("ptp4l tells nothing")
        )),
    }
}

/// CLOCK_TAI less CLOCK_MONOTONIC, and how far that may be off.
fn monotonic(state: &ClockState) -> Option<(i64, u64)> {
    state.tai_less_monotonic_ns.zip(state.tai_less_monotonic_uncertainty_ns)
}

/// Nothing if the clock was set between the two.
fn together([before, after]: [Option<(i64, u64)>; 2]) -> Option<(i64, u64)> {
    let (before, after) = before.zip(after)?;
    let agree = before.0.abs_diff(after.0) <= before.1 + after.1;
    agree.then_some(if after.1 < before.1 { after } else { before })
}

fn ask(args: &PtpArgs) -> std::io::Result<Option<Ptp4l>> {
    match &args.ptp4l {
        Some(path) => match Ptp4l::ask_at(path, args.ptp_domain)? {
            Some(told) => Ok(Some(told)),
            None => Err(std::io::Error::other(format!("nobody answers at {}", path.display()))),
        },
        None => Ptp4l::ask(),
    }
}

/// How far CLOCK_TAI is from the NIC's clock, which ptp4l keeps on TAI.
fn phc(interface: &Interface) -> Option<(i64, u64)> {
    let device = PhcDevice::of(interface).ok()??;
    device.scope(|clock| {
        let (offset, _) = clock.offset().ok()?;
        let ours = Offset::<Tai, Realtime>::measure().then(&offset)?;
        Some((ours.delta_ns(), ours.uncertainty_ns()))
    })
}

/// How far off the clock may be, by the best word there is.
fn judge(state: &mut ClockState) {
    let phc = state.phc_offset_ns.zip(state.phc_uncertainty_ns);
    let (offset_ns, by) = match (state.ptp4l_offset_ns, phc, state.kernel_most_error_ns) {
        // What ptp4l keeps is the NIC's clock, and phc2sys hands it on: both may be off.
        (Some(ptp), Some((phc, uncertainty)), _) => {
            let sum = ptp
                .unsigned_abs()
                .saturating_add(phc.unsigned_abs())
                .saturating_add(uncertainty);
            (Some(sum), "ptp4l and the NIC's clock")
        }
        // Without one it keeps CLOCK_REALTIME itself, by software time stamps.
        (Some(ptp), None, _) => (Some(ptp.unsigned_abs()), "ptp4l"),
        (None, _, Some(most)) => (Some(most), "the kernel's bound (maxerror)"),
        (None, _, None) => (None, ""),
    };
    state.offset_ns = offset_ns;
    state.by = offset_ns.map(|_| by.to_owned());
}

#[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
pub(crate) fn us(ns: u64) -> String {
    format!("{} µs", ns as f64 / 1e3)
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;

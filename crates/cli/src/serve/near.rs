//! What a command at the near end asks of the far one, and what it makes of its answers.

use anyhow::{Result, anyhow};
use std::time::Duration;

use ringside_measure::control::{FarVia, Start, Work};
use ringside_measure::counters::{Ledger, LossCause};
use ringside_measure::schema::{self, FarEnd};
use ringside_wire::flow::UdpFlow;
use ringside_xsk::{Mode, Path};

use super::{Clocks, Far, OneWay, RemoteArgs, clocks};
use crate::args::{PingArgs, RunArgs};
use crate::output::{mode_name, note};
use crate::session::nanos;

impl PingArgs {
    /// What a ping asks the far end for; `turns` is how long it takes with load in turns.
    pub(crate) fn far(&self, flow: &UdpFlow, session: u32, frame_bytes: u32, turns: Option<Duration>) -> Start {
        Start {
            // With load beside them the probes are a part of what is sent.
            rate_pps: self.probe_rate().filter(|_| self.load.under_load.is_none()),
            duration_ns: turns.or(self.run.time).map(nanos),
            frame_bytes,
            ..self.remote.far(Work::Echo, flow, session)
        }
    }
}

impl RemoteArgs {
    /// The part that is the same for all.
    pub(crate) fn far(&self, work: Work, flow: &UdpFlow, session: u32) -> Start {
        Start {
            via: self.far_via.map(FarVia::from),
            mode: self.far_mode.and_then(mode),
            from: Some(flow.src),
            to: Some(flow.dst.ip()),
            ..Start::new(session, work)
        }
    }
}

/// A mode that has to be had; `None` for the best that there is.
fn mode(mode: Mode) -> Option<schema::Mode> {
    match mode {
        Mode::Require(Path::ZeroCopy) => Some(schema::Mode::ZeroCopy),
        Mode::Require(Path::NativeCopy) => Some(schema::Mode::NativeCopy),
        Mode::Require(Path::Generic) => Some(schema::Mode::Generic),
        _ => None,
    }
}

impl Far {
    /// One line about it.
    pub(crate) fn describe(&self) -> String {
        let far = &self.ready.far;
        let how = match self.ready.via {
            FarVia::Udp => "a UDP socket".to_owned(),
            FarVia::AfXdp => {
                let mut modes: Vec<&str> = far
                    .interfaces
                    .iter()
                    .flat_map(|interface| &interface.queues)
                    .map(|queue| mode_name(queue.mode))
                    .collect();
                modes.dedup();
                format!("XDP sockets ({})", modes.join(", "))
            }
        };
        format!(
            "  far end: Linux {}, {how}, UDP port {}, authenticated by {}",
            far.system.kernel_release, self.ready.port, far.authenticated_by
        )
    }

    /// Returns how many threads of the far end spin on this machine: none if it is another one.
    pub(crate) fn spinning_here(&self) -> u32 {
        match clocks::is_here(&self.ready.clock) {
            true => self.ready.spinning_threads,
            false => 0,
        }
    }

    /// No longer than the far end takes part.
    pub(crate) fn limit(&self, run: &mut RunArgs) {
        let most = Duration::from_nanos(self.ready.most_ns);
        if run.time.is_none() && run.count.is_none() {
            note(format_args!(
                "  the far end takes part for {} s at the most",
                most.as_secs()
            ));
            run.time = Some(most);
        }
    }
}

/// Ends the session, with the times of each direction where there are some. `reading_ns` is how well this end reads its clock.
pub(crate) fn finish(far: Far, sent_packets: u64, one_way: Option<&OneWay>, reading_ns: u64) -> FarEnd {
    // Clocks that cannot be compared any more are no reason to throw away what was measured while they could.
    let later = one_way.and_then(|_| Clocks::compare(&far).ok());
    let mut end = far.finish(sent_packets);
    if let Some(one_way) = one_way {
        let (clock, there, back) = one_way.results(later.as_ref(), reading_ns);
        (end.clock, end.there, end.back) = (Some(clock), Some(there), Some(back));
    }
    end
}

/// What was put down as "no answer" is told apart, by what the far end has counted.
pub(crate) fn tell_apart(packets: &mut Ledger, far: &FarEnd) {
    let Some(there) = &far.result else { return };
    let Some(at) = packets
        .losses
        .iter()
        .position(|loss| loss.id == LossCause::NoAnswer.id())
    else {
        return;
    };
    let mut left = packets.losses.remove(at).count;
    // What has not left this host has not come there either.
    let not_left = packets.lost_by(LossCause::TxInvalidDescs) + packets.lost_by(LossCause::LinkTxDropped);
    let there = |cause| there.packets.lost_by(cause);
    for (cause, count) in [
        (LossCause::AboveServerRate, there(LossCause::AboveServerRate)),
        (LossCause::WayThere, there(LossCause::WayThere).saturating_sub(not_left)),
        (LossCause::WayBack, u64::MAX),
    ] {
        let count = count.min(left);
        packets.lose(cause, count);
        left -= count;
    }
}

/// The run was cut short by the loss of the control connection: what it told counts as far as it goes.
pub(crate) fn lost(far: Option<&FarEnd>) -> Result<()> {
    match far.and_then(|far| far.lost.as_deref()) {
        Some(why) => Err(anyhow!(
            "{why}. The result is what was measured until then, without the far end's"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "near_tests.rs"]
mod tests;

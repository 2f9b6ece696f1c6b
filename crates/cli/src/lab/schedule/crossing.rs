//! A schedule into a guest or to another machine, or out of it: packets carry times of the talker's CLOCK_TAI and come at times of the listener's, which is another one.
//!
//! ```text
//!  host's CLOCK_TAI ── host's CLOCK_MONOTONIC ── guest's CLOCK_MONOTONIC ── guest's CLOCK_TAI
//!           measured by the program      round trips before and behind      measured by the program
//!                                        the streams; the streams' packets
//! ```
//!
//! What is known of the two clocks is known only when all packets are there ([`ringside_measure::mapping`]). So the listener writes down when each
//! came, and it is judged here. Where the clocks are not known as well as was asked for, one clock has to do: each packet's time is taken from
//! the fastest one's on. That needs their rates only, which the same line has.

use std::time::Duration;

use anyhow::{Context as _, Result};
use ringside_measure::mapping::{Bounds, Mapping};
use ringside_measure::schedule::{Listener, Received, fastest_ns};
use ringside_measure::schema::{ClockState, LabClock, LabWindows, LatencyKind, RunResult, ScheduleResult};

use crate::compare::Kind;
use crate::lab::bed::Bed;
use crate::lab::load::Running;
use crate::lab::one_way;
use crate::lab::plan::{Plan, Probe, SMALLEST_STAMPED, Schedule, Way};
use crate::lab::run;
use crate::run::streams::Arrivals;
use crate::stop::Stop;

/// Round trips before the streams, and behind them.
const TRIPS: u64 = 300;
/// How many of them a second.
const RATE: u64 = 1_000;

/// What is found out about the other end's clock.
pub(super) struct Crossing<'l> {
    plan: &'l Plan,
    bed: &'l Bed,
    schedule: &'l Schedule,
    bounds: Bounds,
}

/// What came of a schedule, by the talker's clock.
pub(super) struct Judged {
    pub(super) received: ScheduleResult,
    pub(super) windows: LabWindows,
    pub(super) clock: LabClock,
    /// How far the listener's CLOCK_TAI is ahead of the talker's, and how far that may be wrong; `None` where a clock does not run evenly.
    pub(super) apart: Option<(i64, u64)>,
}

impl<'l> Crossing<'l> {
    pub(super) fn new(plan: &'l Plan, bed: &'l Bed, schedule: &'l Schedule) -> Self {
        Self {
            plan,
            bed,
            schedule,
            bounds: Bounds::new(),
        }
    }

    /// Asks over the path itself.
    pub(super) fn ask(&mut self, session: u32, (loads, stop): (&mut Running<'_>, &Stop)) -> Result<()> {
        let probe = probe(self.schedule);
        let trips = run::turn(self.plan, self.bed, &probe, LatencyKind::OneWay, (session, loads, stop))
            .context("asking for the other end's clock")?
            .trips;
        for trip in trips {
            self.bounds.there(trip.sent_ns, trip.stamps.came_ns);
            self.bounds.back(trip.stamps.left_ns, trip.heard_ns);
        }
        Ok(())
    }

    /// What came, with all that is known now.
    pub(super) fn judge(mut self, sent: &RunResult, received: &RunResult, arrivals: &[u8]) -> Result<Judged> {
        let sent = sent.schedule.as_ref().context("a talker tells of its schedule")?;
        let received = received.schedule.as_ref().context("a listener tells of its schedule")?;
        let session = sent.session.context("a talker has a session")?;
        let packets = Arrivals::read(arrivals, session)?;
        let clocks = Clocks::of(&sent.clock_state, &received.clock_state)?;
        clocks.bound(&packets, self.schedule.is_back, &mut self.bounds);
        let mapping = self.bounds.fit().context("no answer had the other end's times")?;
        let guest = match self.schedule.way {
            Way::Guest(guest) => Some(guest),
            Way::Link { .. } | Way::Serve(_) => None,
        };
        let mut clock = one_way::clock(&mapping, self.plan, self.bed, guest);
        clock.uncertainty_ns += clocks.uncertainty_ns;
        let is_known =
            clock.contradiction_ns == 0 && u128::from(clock.uncertainty_ns) <= self.schedule.uncertainty.as_nanos();
        let packets = clocks.by_the_talkers(&packets, self.schedule.is_back, &mapping);
        let windows = match is_known {
            true => LabWindows::Clock,
            false => LabWindows::Fastest,
        };
        Ok(Judged {
            received: listened(self.schedule, session, &packets, windows),
            windows,
            apart: (clock.contradiction_ns == 0).then(|| {
                let far = if self.schedule.is_back {
                    -clock.offset_ns
                } else {
                    clock.offset_ns
                };
                (far + clocks.listener_ns - clocks.talker_ns, clock.uncertainty_ns)
            }),
            clock,
        })
    }
}

/// What the other end answers as it does to any probe.
fn probe(schedule: &Schedule) -> Probe {
    Probe {
        name: schedule.name.clone(),
        from: schedule.from,
        way: schedule.way,
        kind: Kind::UdpBlocking,
        far_kind: None,
        sleeps: true,
        rate: RATE,
        frame_bytes: u16::try_from(SMALLEST_STAMPED).unwrap_or(u16::MAX),
        pcp: None,
        priority: None,
        count: Some(TRIPS),
        measures: vec![LatencyKind::OneWay],
        is_traced: false,
        disturbers: None,
        stop_above: None,
        uncertainty: Duration::MAX,
        description: String::new(),
        steering: Vec::new(),
        loads: Vec::new(),
        is_idle: true,
        scheduled: None,
    }
}

/// What a listener finds by arrivals on the talker's clock.
fn listened(schedule: &Schedule, session: u32, packets: &[Received], windows: LabWindows) -> ScheduleResult {
    let fastest = match windows {
        LabWindows::Clock => 0,
        LabWindows::Fastest => fastest_ns(packets).unwrap_or(0),
    };
    let mut listener = Listener::new(schedule.schedule.clone(), 0, Some(session));
    for packet in packets {
        listener.record(&Received {
            at_ns: packet.at_ns.saturating_add_signed(fastest.saturating_neg()),
            ..*packet
        });
    }
    ScheduleResult::listener(&listener, ClockState::default())
}

/// CLOCK_TAI less CLOCK_MONOTONIC at both ends.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    talker_ns: i64,
    listener_ns: i64,
    /// How far they may be off, together.
    uncertainty_ns: u64,
}

impl Clocks {
    fn of(talker: &ClockState, listener: &ClockState) -> Result<Self> {
        let told = |state: &ClockState, whose: &str| {
            let both = state.tai_less_monotonic_ns.zip(state.tai_less_monotonic_uncertainty_ns);
            both.with_context(|| format!("somebody has set the {whose}'s clock meanwhile"))
        };
        let (talker, listener) = (told(talker, "talker")?, told(listener, "listener")?);
        Ok(Self {
            talker_ns: talker.0,
            listener_ns: listener.0,
            uncertainty_ns: talker.1.saturating_add(listener.1),
        })
    }

    /// No packet came before it was sent: what that says of the guest's clock.
    fn bound(self, packets: &[Received], is_back: bool, bounds: &mut Bounds) {
        for packet in packets {
            let sent = packet.probe.sent_ns.saturating_add_signed(-self.talker_ns);
            let came = packet.at_ns.saturating_add_signed(-self.listener_ns);
            // No tighter than its ends are known.
            match is_back {
                false => bounds.there(sent.saturating_sub(self.uncertainty_ns), came),
                true => bounds.back(sent, came.saturating_add(self.uncertainty_ns)),
            }
        }
    }

    /// When packets came by the talker's CLOCK_TAI.
    fn by_the_talkers(self, packets: &[Received], is_back: bool, mapping: &Mapping) -> Vec<Received> {
        let of = |packet: &Received| {
            let came = packet.at_ns.saturating_add_signed(-self.listener_ns);
            let came = match is_back {
                false => mapping.here(came),
                true => came.saturating_add_signed(mapping.offset_ns(came)),
            };
            Received {
                at_ns: came.saturating_add_signed(self.talker_ns),
                ..*packet
            }
        };
        packets.iter().map(of).collect()
    }
}

#[cfg(test)]
#[path = "crossing_tests.rs"]
mod tests;

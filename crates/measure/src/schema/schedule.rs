//! Time-triggered streams: what was sent by schedule, and what came.

use serde::{Deserialize, Serialize};

use crate::latency::{Jitter, Latency, Summary};
use crate::probe::Clock;
use crate::schedule::{Class, Listener, Schedule, Stream, WindowMisses};

/// A schedule and its classes, as the talker or the listener saw them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ScheduleResult {
    /// Clock of the schedule.
    pub clock: Clock,
    /// Time of a cycle; cycles begin at its multiples.
    pub cycle_ns: u64,
    /// Tells a talker's run from others.
    pub session: Option<u32>,
    /// What is known of the clock.
    pub clock_state: ClockState,
    /// VLAN identifier of the packets; 0 where the tag has only a priority. `None` at the listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan_id: Option<u16>,
    /// Queueing disciplines of the talker's interface while it sent, read back from the kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub qdiscs: Vec<String>,
    /// What a talker has changed and could not put back, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
    /// Who stamped packets at the listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamps: Option<ArrivalStamps>,
    /// What the path was taken to last: by so much the listener's windows are later than the talker's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_ns: Option<u64>,
    /// Packets of other sessions, left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_session_packets: Option<u64>,
    /// Packets of a class or of times that this schedule does not have, left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_schedule_packets: Option<u64>,
    /// The classes, in the order of their windows.
    pub classes: Vec<ClassResult>,
}

/// Who stamps a packet that comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ArrivalStamps {
    /// The kernel, when it took the packet from the driver.
    Kernel,
    /// The XDP program.
    Xdp,
}

/// How right the clock of the schedule is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClockState {
    /// Somebody disciplines the kernel's clock; `None` where the kernel does not tell.
    pub kernel_is_synchronised: Option<bool>,
    /// How far the kernel's clock may be off at the most, as whoever disciplines it has told the kernel.
    pub kernel_most_error_ns: Option<u64>,
    /// CLOCK_TAI less CLOCK_REALTIME, in seconds; 0 where nobody has told the kernel.
    pub tai_offset_s: Option<i64>,
    /// CLOCK_TAI less CLOCK_MONOTONIC, in nanoseconds, all the run long; `None` if somebody has set the clock meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tai_less_monotonic_ns: Option<i64>,
    /// How far that may be off, in either direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tai_less_monotonic_uncertainty_ns: Option<u64>,
    /// Offset from its master as ptp4l tells it; `None` where none answers.
    pub ptp4l_offset_ns: Option<i64>,
    /// Delay of the path to the master, by ptp4l.
    pub ptp4l_path_delay_ns: Option<i64>,
    /// Steps from the grandmaster, by ptp4l.
    pub ptp4l_steps_removed: Option<u16>,
    /// Why its word is not there, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptp4l_silence: Option<String>,
    /// How far CLOCK_TAI is from the NIC's clock (what phc2sys keeps small); `None` where the NIC has none, or it was not compared.
    pub phc_offset_ns: Option<i64>,
    /// How far that may be off.
    pub phc_uncertainty_ns: Option<u64>,
    /// How far off the clock may be, by the best of these; `None` where nobody knows.
    pub offset_ns: Option<u64>,
    /// By what: `ptp4l`, `ptp4l and PHC`, `kernel`.
    pub by: Option<String>,
    /// What was asked for.
    pub most_offset_ns: Option<u64>,
}

/// A class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClassResult {
    /// As it was to be.
    #[serde(flatten)]
    pub class: Class,
    /// What was sent of it, at the talker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<ClassSent>,
    /// What came of it, at the listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<ClassReceived>,
}

/// What was sent of a class.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClassSent {
    /// Packets that the kernel took.
    pub sent_packets: u64,
    /// Packets that were left out: their window was over before they could be sent.
    pub skipped_packets: u64,
    /// Packets that were left out on purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted_packets: Option<u64>,
    /// By so much all of them were sent later than they were due, on purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub later_ns: Option<u64>,
    /// Priority of the socket (`SO_PRIORITY`), which queueing disciplines go by; `None` on AF_XDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_priority: Option<u32>,
}

/// What came of a class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClassReceived {
    /// Packets that came, each once.
    pub received_packets: u64,
    /// Packets that were sent and did not come, by the numbers of those that did.
    pub lost_packets: u64,
    /// Packets that the talker has not sent because it was too late for them, as it says in those
    /// that came. 0 with a talker of a version that does not say so.
    #[serde(default)]
    pub skipped_packets: u64,
    /// Packets that came once more.
    pub duplicated_packets: u64,
    /// Packets that came after one with a higher number (RFC 4737).
    pub reordered_packets: u64,
    /// How far behind, in numbers.
    pub longest_reordering: u64,
    /// Packets that came so late that nobody knows whether they came before, or were sent before the first that came.
    pub too_old_packets: u64,
    /// Packets that came before their window.
    pub early_packets: u64,
    /// By how much at the most.
    pub early_most_ns: Option<u64>,
    /// By how much on average.
    pub early_mean_ns: Option<f64>,
    /// Packets that came after their window.
    pub late_packets: u64,
    /// By how much at the most.
    pub late_most_ns: Option<u64>,
    /// By how much on average.
    pub late_mean_ns: Option<f64>,
    /// Packets whose VLAN tag had another priority than they were sent with.
    pub changed_pcp_packets: u64,
    /// Packets without a VLAN tag, or whose tag nobody told.
    pub untold_pcp_packets: u64,
    /// Packets that came before they were due or sent, by the clocks: no times are taken of them.
    pub impossible_packets: u64,
    /// From the intended time to the arrival.
    pub latency: Option<Summary>,
    /// All of these as a histogram (HdrHistogram V2, compressed, base64).
    pub latency_hdr: Option<String>,
    /// From the hand-over to the kernel to the arrival.
    pub path: Option<Summary>,
    /// All of these as a histogram.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_hdr: Option<String>,
    /// From one arrival to the next: inter-packet latency.
    pub gap: Option<Summary>,
    /// All of these as a histogram.
    pub gap_hdr: Option<String>,
    /// Jitter of the latency.
    pub jitter: Option<Jitter>,
}

impl ClassReceived {
    /// Packets outside of their window.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.early_packets + self.late_packets
    }

    fn of(stream: &Stream) -> Self {
        let most = |misses: &WindowMisses| (misses.packets > 0).then_some(misses.most_ns);
        let hdr = |times: &Latency| (times.samples() > 0).then(|| times.to_hdr()).flatten();
        Self {
            received_packets: stream.received(),
            lost_packets: stream.lost(),
            skipped_packets: stream.skipped(),
            duplicated_packets: stream.duplicated,
            reordered_packets: stream.reordered,
            longest_reordering: stream.longest_reordering,
            too_old_packets: stream.too_old,
            early_packets: stream.early.packets,
            early_most_ns: most(&stream.early),
            early_mean_ns: stream.early.mean_ns(),
            late_packets: stream.late.packets,
            late_most_ns: most(&stream.late),
            late_mean_ns: stream.late.mean_ns(),
            changed_pcp_packets: stream.changed_pcp,
            untold_pcp_packets: stream.untold_pcp,
            impossible_packets: stream.impossible,
            latency: stream.latency.summary(),
            latency_hdr: hdr(&stream.latency),
            path: stream.path.summary(),
            path_hdr: hdr(&stream.path),
            gap: stream.gap.summary(),
            gap_hdr: hdr(&stream.gap),
            jitter: stream.jitter(),
        }
    }
}

impl ScheduleResult {
    /// A talker's, with what it sent of each class.
    #[must_use]
    pub fn talker(schedule: &Schedule, session: u32, clock_state: ClockState, sent: Vec<ClassSent>) -> Self {
        let classes = schedule.classes().iter().zip(sent);
        Self {
            classes: classes
                .map(|(&class, sent)| ClassResult {
                    class,
                    sent: Some(sent),
                    received: None,
                })
                .collect(),
            ..Self::new(schedule, Some(session), clock_state)
        }
    }

    /// A listener's.
    #[must_use]
    pub fn listener(listener: &Listener, clock_state: ClockState) -> Self {
        let classes = listener.schedule().classes().iter().zip(listener.streams());
        Self {
            classes: classes
                .map(|(&class, stream)| ClassResult {
                    class,
                    sent: None,
                    received: Some(ClassReceived::of(stream)),
                })
                .collect(),
            other_session_packets: Some(listener.other_session()),
            other_schedule_packets: Some(listener.other_schedule()),
            ..Self::new(listener.schedule(), listener.session(), clock_state)
        }
    }

    fn new(schedule: &Schedule, session: Option<u32>, clock_state: ClockState) -> Self {
        Self {
            clock: Clock::Tai,
            cycle_ns: schedule.cycle_ns(),
            session,
            clock_state,
            vlan_id: None,
            qdiscs: Vec::new(),
            left: Vec::new(),
            stamps: None,
            path_ns: None,
            other_session_packets: None,
            other_schedule_packets: None,
            classes: Vec::new(),
        }
    }
}

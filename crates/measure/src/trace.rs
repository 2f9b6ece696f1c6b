//! Where the time of packets goes: from the time that a probe was to be sent to the application that has it, point by point.
//!
//! Whoever watches (tracing programs in the kernel, the application itself) tells when a probe passed a [`Point`]. A
//! [`Correlator`] brings together what belongs to one packet, a [`Breakdown`] makes distributions of it. What goes on from a
//! point to the next one is the [`Stage`] of that point.
//!
//! ```text
//!  sender   Intended ── Call ── Queue ── Transmit ─┐
//!                                                  │ wire                           (a hop)
//!  kernel   ┌──────────────────────────────────────┘
//!           └ Raised ── SoftIrq ─┬─ Driver ── Backlog ── Stack ─┬─ Ready ── Waking ── Running ── Copy ─┐
//!                                └─ Xdp ───── Socket (ring) ────┘                                     │
//!  receiver                                                                             Application ──┘
//! ```
//!
//! A packet that is sent again after it was received (forwarded, answered) has several hops; what was done with it in between
//! is a stage of its own, [`Stage::Relay`]. The stages of a packet add up to its whole time. Where a point is missing that
//! nearly all packets have, the time around it is in no stage that one could name: [`Stage::Remainder`].
//!
//! A packet on its way through a guest is watched by two kernels, whose clocks are brought together by what must have been before what:
//! [`Across`], [`crate::mapping`].
//!
//! ```
//! use ringside_measure::trace::{Breakdown, Correlator, Event, Heard, Id, Place, Point};
//!
//! let (mut correlator, mut breakdown) = (Correlator::new(), Breakdown::new());
//! for sequence in 0..100 {
//!     let id = Id { session: 7, sequence };
//!     let at = sequence * 1_000_000;
//!     let place = Place { cpu: 0, interface: 2, namespace: 1, is_guest: false };
//!     for (point, ns) in [(Point::Queue, 1_500), (Point::Transmit, 1_700), (Point::Stack, 4_000), (Point::Copy, 6_000)] {
//!         correlator.passed(&Event { id, point, ns: at + ns, place, before: [None; 2], socket: None, task: None });
//!     }
//!     let heard = Heard { intended_ns: at, call_ns: at + 1_000, heard_ns: at + 6_500, cpu: 1, xdp: None };
//!     breakdown.record(&correlator.heard(id, heard));
//! }
//! let stages = breakdown.stages();
//! // Nothing remains here: that one has no times.
//! let sum: f64 = stages.iter().filter_map(|stage| Some(stage.latency.summary()?.mean_ns)).sum();
//! assert_eq!(sum, breakdown.whole().summary().unwrap().mean_ns);
//! assert_eq!(stages[3].stage.name(), "driver and wire");
//! assert_eq!(stages[3].latency.summary().unwrap().max_ns, 2_300);
//! ```

use serde::{Deserialize, Serialize};

mod across;
mod breakdown;
mod correlate;
mod disturb;
mod queue;
mod vcpu;

pub use across::Across;
pub use breakdown::{Breakdown, Measured, StageTimes};
pub use correlate::{Correlator, Heard, Packet, Stamp};
pub use disturb::{Culprit, Disturber, DisturberKind, SlowPacket, Slowest, Stolen, Timeline};
pub use vcpu::{Scheduled, Vcpus};

/// A place on a packet's way where somebody looks at the clock, in the order in which packets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// When it was to be sent, by schedule.
    Intended,
    /// The sender calls the kernel.
    Call,
    /// The packet is made and given to the interface's queueing discipline, if it has one (`net:net_dev_queue`).
    Queue,
    /// It is given to the driver (`net:net_dev_start_xmit`).
    Transmit,
    /// The soft interrupt for receiving was asked for (`irq:softirq_raise`): by the driver's interrupt, or by who sends into a veth.
    Raised,
    /// The soft interrupt began (`irq:softirq_entry`).
    SoftIrq,
    /// The XDP program saw it.
    Xdp,
    /// The driver's poll handed it to the kernel (`net:napi_gro_receive_entry`).
    Driver,
    /// It was put on the backlog of a CPU (`net:netif_rx`; by RPS `net:netif_receive_skb_entry` and [`Driver`](Self::Driver)'s), whose soft interrupt
    /// takes it from there: that belongs to this wait, so it has no [`Raised`](Self::Raised) and no [`SoftIrq`](Self::SoftIrq) of its own.
    Backlog,
    /// The stack took it (`net:netif_receive_skb`).
    Stack,
    /// It was put on the ring of an XDP socket (`xdp:xdp_redirect`), or into the queue of another one.
    Socket,
    /// The socket told that there is something (`sock:sk_data_ready`).
    Ready,
    /// Its reader slept and was woken up (`sched:sched_waking`).
    Waking,
    /// The reader got a CPU (`sched:sched_switch`).
    Running,
    /// The packet was copied to the reader (`skb:skb_copy_datagram_iovec`, `sock:sock_recv_length`), or the reader of a TAP device asked for it (`raw_syscalls:sys_enter`).
    Copy,
    /// The application has it.
    Application,
    /// Before a guest: the virtual CPU that is to see it runs already, so nobody wakes it up ([`Vcpus`]).
    Awake,
    /// Before a guest: the virtual CPU that is to see it slept, and was woken up.
    Kick,
    /// Before a guest: that virtual CPU got a CPU of the host.
    Entered,
    /// It was put in the ring of a TAP device, and its reader told of it (`sock:sk_data_ready`): QEMU takes it from there.
    Ring,
}

impl Point {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::Intended,
        Self::Call,
        Self::Queue,
        Self::Transmit,
        Self::Raised,
        Self::SoftIrq,
        Self::Xdp,
        Self::Driver,
        Self::Backlog,
        Self::Stack,
        Self::Socket,
        Self::Ready,
        Self::Waking,
        Self::Running,
        Self::Copy,
        Self::Application,
        Self::Awake,
        Self::Kick,
        Self::Entered,
        Self::Ring,
    ];

    /// Before the wire.
    #[must_use]
    pub fn is_sending(self) -> bool {
        self <= Self::Transmit
    }

    /// Whether a packet passes it depends on what else goes on: a reader or a virtual CPU that is awake is not woken up, and a soft interrupt
    /// that runs already is not asked for. The time of such a stage belongs to the one before when the point is missing.
    #[must_use]
    pub fn is_optional(self) -> bool {
        matches!(
            self,
            Self::Raised
                | Self::SoftIrq
                | Self::Ready
                | Self::Waking
                | Self::Running
                | Self::Awake
                | Self::Kick
                | Self::Entered
                | Self::Ring
        )
    }

    /// What the virtual CPU does that is to see a packet in a guest.
    #[must_use]
    pub fn is_of_vcpu(self) -> bool {
        matches!(self, Self::Awake | Self::Kick | Self::Entered)
    }

    /// What a socket's reader needs to know of a packet. One that is awake takes it before that is told.
    #[must_use]
    pub fn is_of_reader(self) -> bool {
        matches!(self, Self::Ready | Self::Waking | Self::Running | Self::Ring)
    }

    /// A short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Intended => "intended",
            Self::Call => "send call",
            Self::Queue => "qdisc",
            Self::Transmit => "driver transmit",
            Self::Raised => "interrupt",
            Self::SoftIrq => "soft interrupt",
            Self::Xdp => "XDP program",
            Self::Driver => "driver receive",
            Self::Backlog => "backlog",
            Self::Stack => "stack",
            Self::Socket => "socket",
            Self::Ready => "ready",
            Self::Waking => "wake-up",
            Self::Running => "running",
            Self::Copy => "copy",
            Self::Application => "application",
            Self::Awake => "vCPU awake",
            Self::Kick => "vCPU kick",
            Self::Entered => "vCPU running",
            Self::Ring => "TAP ring",
        }
    }
}

/// What goes on from one point of a packet's way to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// What begins at a point.
    From(Point),
    /// From the last point of receiving to the first of sending again: who forwards or answers has it.
    Relay,
    /// From the host's last point before a guest to the kick of the virtual CPU that is to be interrupted: QEMU or vhost. Where that is not known, to the
    /// guest's first point; where the virtual CPU is awake there is [`Point::Awake`] instead.
    IntoGuest,
    /// From a guest's last point to the host's first one after it.
    OutOfGuest,
    /// Around points that nearly all packets have and this one has not.
    Remainder,
}

impl Stage {
    /// What is done in it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::From(point) => match point {
                Point::Intended => "sender late",
                Point::Call => "send call",
                Point::Queue => "qdisc",
                Point::Transmit => "driver and wire",
                Point::Raised => "interrupt to soft interrupt",
                Point::SoftIrq => "NAPI poll",
                Point::Xdp => "XDP",
                Point::Driver => "driver to stack",
                Point::Backlog => "backlog",
                Point::Stack => "stack",
                Point::Socket => "to the socket",
                Point::Ready => "in the socket",
                Point::Waking => "wake-up",
                Point::Running => "back in the system call",
                Point::Copy => "return to the application",
                Point::Application => "application",
                Point::Awake => "QEMU, with the vCPU awake",
                Point::Kick => "vCPU wake-up",
                Point::Entered => "vCPU to guest interrupt",
                Point::Ring => "TAP ring",
            },
            Self::Relay => "relay",
            Self::IntoGuest => "QEMU and vCPU kick",
            Self::OutOfGuest => "out of the guest",
            Self::Remainder => "remainder",
        }
    }
}

/// Which packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// Of its probe.
    pub session: u32,
    /// Of its probe.
    pub sequence: u64,
}

/// Where a point was passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// The CPU.
    pub cpu: u32,
    /// The interface's index in its network namespace; 0 where it is not known.
    pub interface: u32,
    /// The inode of the interface's network namespace; 0 where it is not known.
    pub namespace: u32,
    /// In a guest, whose CPUs, interfaces and namespaces these are.
    pub is_guest: bool,
}

/// A packet passed a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Which packet.
    pub id: Id,
    /// Which point.
    pub point: Point,
    /// When, in nanoseconds of CLOCK_MONOTONIC.
    pub ns: u64,
    /// Where.
    pub place: Place,
    /// What was known then of before: of a point of sending [`Point::Intended`] and [`Point::Call`], of one of receiving
    /// [`Point::Raised`] and [`Point::SoftIrq`].
    pub before: [Option<u64>; 2],
    /// Of [`Point::Ready`]: the socket, by a number that is its own.
    pub socket: Option<u64>,
    /// Of [`Point::Waking`] and [`Point::Running`]: the reader, by its number.
    pub task: Option<u32>,
}

//! Whether busy-polling does what was asked for.

use std::fmt;
use std::os::fd::AsFd;

use serde::Serialize;

use crate::queue::Queue;
use crate::sys;

/// Turns of busy-polling without a packet, while packets came otherwise, after which it is called idle.
const ENOUGH: u64 = 1000;

/// What became of busy-polling on a queue ([`QueueOptions::busy_poll`](crate::QueueOptions::busy_poll)).
///
/// The kernel accepts the socket options in any case. Whether a turn then really polls the driver depends on the driver, on
/// the mode, and on whether interrupts are deferred: without [`PortBuilder::deferral`](crate::PortBuilder::deferral) the
/// software interrupt is usually faster. Since Linux 6.14 only a zero-copy socket learns its NAPI instance, when it is
/// bound, from drivers that tell which one serves the queue; on a copy path a turn does nothing, and what is left of the
/// gain is that of the deferral, which works with [`Wait::Spin`](crate::Wait::Spin) as well.
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/__sk_mark_napi_id_once>
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "busy_polling", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum BusyPolling {
    /// It was not asked for, or no turn was taken.
    Off,
    /// No packet came so far: the kernel tells the NAPI instance with the first one.
    Waiting,
    /// The socket has no NAPI instance that could be polled: generic XDP, a copy path since Linux 6.14, or a driver
    /// without.
    NoNapi,
    /// No turn brought a packet; all came by interrupt.
    Idle {
        /// Turns of busy-polling.
        polls: u64,
    },
    /// Turns bring packets.
    Driving {
        /// Turns of busy-polling.
        polls: u64,
        /// Those after which there were packets.
        fruitful: u64,
    },
}

impl BusyPolling {
    /// What is wrong, and what to do; `None` if nothing is, or nothing is known yet.
    pub fn warning(&self) -> Option<&'static str> {
        match self {
            Self::NoNapi => Some(
                "busy-polling does nothing: the kernel knows no NAPI instance for the socket, as with generic XDP, and since \
                 Linux 6.14 on every copy path; spin instead, which gains as much from deferred interrupts",
            ),
            Self::Idle { .. } => Some(
                "busy-polling brings no packets, all come by interrupt: defer the interrupts of the interface \
                 (napi_defer_hard_irqs and gro_flush_timeout), or use another wait policy",
            ),
            _ => None,
        }
    }
}

impl fmt::Display for BusyPolling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("no busy-polling"),
            Self::Waiting => f.write_str("busy-polling, no packet so far"),
            Self::NoNapi => f.write_str("busy-polling without a NAPI instance"),
            Self::Idle { polls } => write!(f, "{polls} turns of busy-polling, none with a packet"),
            Self::Driving { polls, fruitful } => {
                write!(f, "{polls} turns of busy-polling, {fruitful} with packets")
            }
        }
    }
}

impl Queue {
    /// Whether busy-polling really drives the queue's NAPI instance. One `getsockopt()`. Linux 5.11.
    #[doc(alias = "SO_INCOMING_NAPI_ID")]
    pub fn busy_polling(&self) -> BusyPolling {
        let counters = self.counters();
        let (polls, fruitful) = (counters.busy_polls, counters.busy_polls_fruitful);
        if self.report().busy_poll.is_none() || polls == 0 {
            BusyPolling::Off
        } else if counters.rx_packets == 0 {
            BusyPolling::Waiting
        } else if sys::napi_id(self.as_fd()).unwrap_or(0) == 0 {
            BusyPolling::NoNapi
        } else if fruitful != 0 {
            BusyPolling::Driving { polls, fruitful }
        } else if polls >= ENOUGH {
            BusyPolling::Idle { polls }
        } else {
            BusyPolling::Waiting
        }
    }
}

//! What can happen to a link.

use std::fmt;

use serde::Serialize;

use crate::{LinkState, OperState};

/// Whether a link can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkStatus {
    /// Switched off by an administrator.
    Down,
    /// Switched on, but nothing gets through yet: no carrier, or the kernel has not activated the queues.
    NoCarrier,
    /// Packets pass.
    Up,
}

impl LinkStatus {
    pub(super) fn of(state: &LinkState) -> Self {
        // Loopback and a few drivers never tell more than "unknown".
        let operational = matches!(state.operstate, OperState::Up | OperState::Unknown);
        match (state.admin_up, state.carrier && operational) {
            (false, _) => Self::Down,
            (true, false) => Self::NoCarrier,
            (true, true) => Self::Up,
        }
    }
}

/// A change of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum LinkEvent {
    /// An administrator switched it off.
    Down,
    /// It is switched on but has no carrier; for veth, the peer is down.
    NoCarrier,
    /// It is switched on and packets pass.
    Up,
    /// It was removed.
    #[doc(alias = "RTM_DELLINK")]
    Removed,
    /// It went to another network namespace. Before Linux 4.15, and after lost messages, that shows as
    /// [`LinkEvent::Removed`].
    #[doc(alias = "IFLA_NEW_NETNSID")]
    Moved {
        /// The id that this namespace has for the other one (`ip netns list-id`); `None` if it has none.
        namespace: Option<u32>,
        /// The index there; `None` before Linux 5.0.
        index: Option<u32>,
    },
    /// An interface of the name is there, after there was none.
    ///
    /// It may be a new one or the same one come back: whoever held the old one opens it anew. It counts as down, so that
    /// [`LinkEvent::Up`] or [`LinkEvent::NoCarrier`] follows once it is not.
    Appeared {
        /// Its index, usually another one than before.
        index: u32,
    },
    /// The numbers of active queues changed (Linux 5.7; never on drivers without channels to configure).
    #[doc(alias = "ETHTOOL_MSG_CHANNELS_NTF")]
    QueuesChanged {
        /// Active receive queues.
        rx: u32,
        /// Active transmit queues.
        tx: u32,
    },
    /// It has another MTU.
    #[doc(alias = "IFLA_MTU")]
    MtuChanged {
        /// Bytes behind the Ethernet header.
        mtu: u32,
    },
    /// It has another name.
    Renamed {
        /// The new one.
        name: String,
    },
}

impl From<LinkStatus> for LinkEvent {
    fn from(status: LinkStatus) -> Self {
        match status {
            LinkStatus::Down => Self::Down,
            LinkStatus::NoCarrier => Self::NoCarrier,
            LinkStatus::Up => Self::Up,
        }
    }
}

impl fmt::Display for LinkStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        LinkEvent::from(*self).fmt(f)
    }
}

impl fmt::Display for LinkEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down => f.write_str("down"),
            Self::NoCarrier => f.write_str("no carrier"),
            Self::Up => f.write_str("up"),
            Self::Removed => f.write_str("removed"),
            Self::Moved { .. } => f.write_str("moved to another network namespace"),
            Self::Appeared { index } => write!(f, "appeared with index {index}"),
            Self::QueuesChanged { rx, tx } => write!(f, "now {rx} receive and {tx} transmit queues"),
            Self::MtuChanged { mtu } => write!(f, "MTU {mtu}"),
            Self::Renamed { name } => write!(f, "renamed to '{name}'"),
        }
    }
}

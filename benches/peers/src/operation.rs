//! What is measured, and from which side of the path.

use clap::ValueEnum;
use serde::Serialize;

/// An operation that every variant may be measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    /// Receive and drop, loaded by packets made in the kernel.
    Rx,
    /// Transmit into a sink.
    Tx,
    /// Swap MAC addresses and send back, loaded as `rx` and counted in a sink.
    Fwd,
    /// One packet in flight between two instances that spin.
    Ping,
}

/// Where the load comes from: one CPU for whoever sends, the other for whoever receives.
pub(crate) const SENDER_CPU: usize = 0;
/// See [`SENDER_CPU`].
pub(crate) const RECEIVER_CPU: usize = 1;

impl Operation {
    /// All of them, in the order in which they are measured.
    pub(crate) const ALL: [Self; 4] = [Self::Rx, Self::Tx, Self::Fwd, Self::Ping];

    /// The CPU of the process under measurement; in ping-pong that of the answering side.
    pub(crate) fn cpu(self) -> usize {
        match self {
            Self::Tx => SENDER_CPU,
            Self::Rx | Self::Fwd | Self::Ping => RECEIVER_CPU,
        }
    }

    /// Whether packets made in the kernel arrive at the process under measurement.
    pub(crate) fn is_loaded(self) -> bool {
        matches!(self, Self::Rx | Self::Fwd)
    }

    /// Whether the far end counts and drops what the process under measurement sends.
    pub(crate) fn has_sink(self) -> bool {
        matches!(self, Self::Tx | Self::Fwd)
    }

    /// What a value of this operation is.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Rx | Self::Tx | Self::Fwd => "packets/s",
            Self::Ping => "nanoseconds, median round trip",
        }
    }

    /// As the table names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rx => "receive",
            Self::Tx => "transmit",
            Self::Fwd => "forward",
            Self::Ping => "ping-pong",
        }
    }

    /// One line of explanation.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Rx => "receive and drop, 64 bytes, packets made in the kernel",
            Self::Tx => "transmit, 64 bytes, into an XDP_DROP sink",
            Self::Fwd => "forward with swapped MACs, 64 bytes, packets made in the kernel",
            Self::Ping => "one packet of 82 bytes in flight, both sides spin on their own CPU",
        }
    }
}

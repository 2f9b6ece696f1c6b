//! What is compared: operations, and the ways to do them.

use std::fmt;

use clap::ValueEnum;
use ringside_measure::schema;
use ringside_xsk::Path;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// Receive and drop, under more load than any socket takes
    Rx,
    /// Transmit as fast as possible
    Tx,
    /// Send back everything that comes, under the same load
    #[value(alias = "echo")]
    Fwd,
    /// One packet to and fro
    Ping,
}

impl Operation {
    pub(crate) fn schema(self) -> schema::Operation {
        match self {
            Self::Rx => schema::Operation::Rx,
            Self::Tx => schema::Operation::Tx,
            Self::Fwd => schema::Operation::Fwd,
            Self::Ping => schema::Operation::Ping,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rx => "rx",
            Self::Tx => "tx",
            Self::Fwd => "fwd",
            Self::Ping => "ping",
        })
    }
}

/// A way to do it. The names are a promise: they stand in results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// UDP socket, sleeping in the system call
    UdpBlocking,
    /// UDP socket, asked again and again
    UdpSpin,
    /// UDP socket, many packets per call
    UdpSendmmsg,
    /// UDP socket, many packets as one that the kernel cuts
    UdpGso,
    /// Packet socket, mapped ring
    AfPacket,
    /// AF_XDP, generic XDP
    AfXdpGeneric,
    /// AF_XDP, native XDP, copy
    AfXdpNative,
    /// AF_XDP, transmitting with a copy: no XDP takes part, so that it is neither generic nor native
    AfXdpCopy,
    /// AF_XDP, zero-copy
    AfXdpZeroCopy,
    /// The kernel's own limit, without any socket
    XdpLimit,
}

impl Kind {
    /// Those that an operation has, in the order of the table. A test bed of veth has no zero-copy to try.
    pub(crate) fn of(operation: Operation, zero_copy: bool) -> Vec<Self> {
        let mut kinds = match operation {
            Operation::Tx => vec![
                Self::UdpBlocking,
                Self::UdpSendmmsg,
                Self::UdpGso,
                Self::AfPacket,
                Self::AfXdpCopy,
            ],
            Operation::Rx | Operation::Fwd | Operation::Ping => vec![
                Self::UdpBlocking,
                Self::UdpSpin,
                Self::AfPacket,
                Self::AfXdpGeneric,
                Self::AfXdpNative,
            ],
        };
        if zero_copy {
            kinds.push(Self::AfXdpZeroCopy);
        }
        kinds.push(Self::XdpLimit);
        kinds
    }

    /// Whether a choice of variants has this one in it.
    pub(crate) fn is_chosen(self, chosen: &[Self]) -> bool {
        let stands_for: &[Self] = match self {
            Self::AfXdpCopy => &[Self::AfXdpCopy, Self::AfXdpGeneric, Self::AfXdpNative],
            _ => &[self],
        };
        chosen.is_empty() || stands_for.iter().any(|kind| chosen.contains(kind))
    }

    /// A UDP socket that sends what arrives: others are measured against the best of these.
    pub(crate) fn is_plain_udp(self) -> bool {
        matches!(self, Self::UdpBlocking | Self::UdpSpin | Self::UdpSendmmsg)
    }

    /// Needs addresses, and a stack that takes what is sent to them from outside.
    pub(crate) fn is_udp(self) -> bool {
        matches!(
            self,
            Self::UdpBlocking | Self::UdpSpin | Self::UdpSendmmsg | Self::UdpGso
        )
    }

    /// Returns whether a receiver takes packets from the kernel's stack or by generic XDP: without
    /// a native XDP program.
    pub(crate) fn receives_without_native_xdp(self) -> bool {
        self.is_udp() || matches!(self, Self::AfPacket | Self::AfXdpGeneric)
    }

    /// The path of an AF_XDP socket.
    pub(crate) fn path(self) -> Option<Path> {
        match self {
            Self::AfXdpGeneric => Some(Path::Generic),
            Self::AfXdpNative => Some(Path::NativeCopy),
            Self::AfXdpCopy => Some(Path::Copy),
            Self::AfXdpZeroCopy => Some(Path::ZeroCopy),
            _ => None,
        }
    }

    /// The mode for the result.
    pub(crate) fn mode(self) -> Option<schema::Mode> {
        self.path().map(crate::system::mode)
    }

    /// The set-up that was found best, in words.
    pub(crate) fn set_up(self, operation: Operation) -> &'static str {
        use Operation::{Fwd, Ping, Rx, Tx};
        match (self, operation) {
            (Self::UdpBlocking, Rx) => "connected, SO_RCVBUF 4 MiB, recvmmsg of 64, sleeps",
            (Self::UdpSpin, Rx) => "connected, SO_RCVBUF 4 MiB, recvmmsg of 64, never sleeps",
            (Self::UdpBlocking, Tx) => "connected, send() for each packet",
            (Self::UdpSendmmsg, Tx) => "connected, sendmmsg of 64",
            (Self::UdpGso, Tx) => "connected, UDP_SEGMENT, up to 64 packets per send()",
            (Self::UdpBlocking, Fwd) => "connected, recvmmsg and sendmmsg of 64, sleeps",
            (Self::UdpSpin, Fwd) => "connected, recvmmsg and sendmmsg of 64, never sleeps",
            (Self::UdpBlocking, Ping) => "connected, recv and send, both sides sleep",
            (Self::UdpSpin, Ping) => "connected, recv and send, both sides spin",
            (Self::AfPacket, Rx) => "TPACKET_V3, 16 blocks of 128 KiB, spins; tc drops behind the tap",
            (Self::AfPacket, Tx) => "sendmmsg of 64, PACKET_QDISC_BYPASS",
            (Self::AfPacket, Fwd) => {
                "TPACKET_V3, sendmmsg of 64 out of the ring, PACKET_QDISC_BYPASS; tc drops behind the tap"
            }
            (Self::AfPacket, Ping) => "TPACKET_V2 (V3 waits for full blocks), both sides spin; tc drops behind the tap",
            // A NIC that writes into frames has them as large as it needs, and two more for each slot of its ring.
            (Self::AfXdpZeroCopy, Rx) => "frames for the NIC's ring and 4096 more, as large as the NIC needs, spins",
            (Self::AfXdpZeroCopy, Fwd) => {
                "frames for the NIC's ring and 4096 more, as large as the NIC needs, batches of 256, spins"
            }
            (Self::AfXdpZeroCopy, Ping) => {
                "frames for the NIC's ring and 4096 more, as large as the NIC needs, both sides spin"
            }
            (_, Rx) if self.path().is_some() => "4096 frames of 2 KiB, spins",
            (_, Tx) if self.path().is_some() => "256 frames of 2 KiB, batches of 64, transmit budget 256",
            (_, Fwd) if self.path().is_some() => "4096 frames of 2 KiB, batches of 256, transmit budget 256, spins",
            (_, Ping) if self.path().is_some() => "4096 frames of 2 KiB, both sides spin",
            (Self::XdpLimit, Rx) => "XDP_DROP, native",
            (Self::XdpLimit, Tx) => "live frames of BPF_PROG_TEST_RUN",
            (Self::XdpLimit, Fwd) => "XDP_TX, native",
            (Self::XdpLimit, Ping) => "AF_XDP native spins on one side, XDP_TX answers on the other",
            _ => "",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UdpBlocking => "udp-blocking",
            Self::UdpSpin => "udp-spin",
            Self::UdpSendmmsg => "udp-sendmmsg",
            Self::UdpGso => "udp-gso",
            Self::AfPacket => "af-packet",
            Self::AfXdpGeneric => "af-xdp-generic",
            Self::AfXdpNative => "af-xdp-native",
            Self::AfXdpCopy => "af-xdp-copy",
            Self::AfXdpZeroCopy => "af-xdp-zero-copy",
            Self::XdpLimit => "xdp-limit",
        })
    }
}

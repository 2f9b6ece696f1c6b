//! The state of a link as `RTM_GETLINK` tells it.

use std::fmt;

use netlink_packet_route::link::{
    LinkAttribute, LinkFlags, LinkInfo, LinkMessage, LinkXdp, State, Stats64, XdpAttached,
};
use serde::Serialize;

/// A link at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LinkState {
    /// Name, which may have changed since the look-up.
    pub name: String,
    /// Index in its network namespace.
    pub index: u32,
    /// Hardware address; all zero on a link that has none of six bytes.
    pub mac: [u8; 6],
    /// Hardware type (`ARPHRD_*`): 1 for Ethernet, 772 for loopback. Packets of most others have no
    /// Ethernet header.
    pub hardware_type: u16,
    /// Largest packet in bytes, without the Ethernet header.
    pub mtu: u32,
    /// Whether an administrator switched it on.
    pub admin_up: bool,
    /// Whether the lower layer sees a carrier (for veth: whether the peer is up too).
    ///
    /// The kernel lets packets out a moment later, when it also sets `operstate` to [`OperState::Up`].
    pub carrier: bool,
    /// State after RFC 2863. Loopback and a few drivers always say [`OperState::Unknown`].
    pub operstate: OperState,
    /// Kind of a virtual link ("veth", "bridge", …); `None` for hardware.
    pub kind: Option<String>,
    /// Receive queues the link was created with: an upper bound of the active ones.
    pub num_rx_queues: u32,
    /// Transmit queues the link was created with: an upper bound of the active ones.
    pub num_tx_queues: u32,
    /// The attached XDP program, if there is one.
    pub xdp: Option<XdpAttachment>,
    /// Counters since the link was created.
    pub stats: LinkStats,
}

/// State of a link after RFC 2863.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OperState {
    /// The driver does not tell.
    Unknown,
    /// The hardware is missing.
    NotPresent,
    /// Down.
    Down,
    /// A layer below is down.
    LowerLayerDown,
    /// In a test mode.
    Testing,
    /// Waits for an event, for instance authentication.
    Dormant,
    /// Up.
    Up,
}

impl fmt::Display for OperState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::NotPresent => "not present",
            Self::Down => "down",
            Self::LowerLayerDown => "lower layer down",
            Self::Testing => "testing",
            Self::Dormant => "dormant",
            Self::Up => "up",
        })
    }
}

/// An XDP program on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct XdpAttachment {
    /// Where in the receive path it runs.
    pub mode: XdpMode,
    /// The program's id, as `bpftool prog show id` takes it. With [`XdpMode::Multi`] the native one, if there is one.
    pub prog_id: u32,
}

/// Where an XDP program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum XdpMode {
    /// In the driver, before a socket buffer exists.
    #[doc(alias = "XDP_ATTACHED_DRV")]
    Native,
    /// In the network stack, on a socket buffer.
    #[doc(alias = "XDP_ATTACHED_SKB")]
    Generic,
    /// On the NIC.
    #[doc(alias = "XDP_ATTACHED_HW")]
    Offloaded,
    /// Several at once.
    #[doc(alias = "XDP_ATTACHED_MULTI")]
    Multi,
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Offloaded => "offloaded",
            Self::Multi => "multi",
        })
    }
}

/// Counters of a link (`rtnl_link_stats64`).
///
/// What a driver counts under which name differs: the kernel's documentation is
/// <https://docs.kernel.org/networking/statistics.html>.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LinkStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received, without the frame check sequence.
    pub rx_bytes: u64,
    /// Bytes sent, without the frame check sequence.
    pub tx_bytes: u64,
    /// Receive errors of all kinds.
    pub rx_errors: u64,
    /// Transmit errors of all kinds.
    pub tx_errors: u64,
    /// Received but dropped for lack of room or by choice of the kernel.
    pub rx_dropped: u64,
    /// Dropped on the way out. A veth whose peer is down counts here.
    pub tx_dropped: u64,
    /// Multicast packets received.
    pub multicast: u64,
    /// Missed by the NIC because its ring was full.
    pub rx_missed_errors: u64,
    /// Lost in the receive FIFO.
    pub rx_fifo_errors: u64,
    /// Received with a wrong check sequence.
    pub rx_crc_errors: u64,
    /// Received with a wrong length.
    pub rx_length_errors: u64,
    /// Dropped because nobody wanted them on an inactive link.
    pub rx_nohandler: u64,
    /// Transmissions that failed for lack of a carrier.
    pub tx_carrier_errors: u64,
}

impl LinkState {
    /// Reads the message; `None` if it has no name, which the kernel never leaves out.
    pub(crate) fn from_message(message: LinkMessage) -> Option<Self> {
        let flags = message.header.flags;
        let mut name = None;
        let mut state = Self {
            name: String::new(),
            index: message.header.index,
            mac: [0; 6],
            hardware_type: message.header.link_layer_type.into(),
            mtu: 0,
            admin_up: flags.contains(LinkFlags::Up),
            carrier: flags.contains(LinkFlags::LowerUp),
            operstate: OperState::Unknown,
            kind: None,
            num_rx_queues: 1,
            num_tx_queues: 1,
            xdp: None,
            stats: LinkStats::default(),
        };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(value) => name = Some(value),
                LinkAttribute::Address(bytes) => state.mac = bytes.try_into().unwrap_or_default(),
                LinkAttribute::Mtu(value) => state.mtu = value,
                LinkAttribute::Carrier(value) => state.carrier = value != 0,
                LinkAttribute::OperState(value) => state.operstate = value.into(),
                LinkAttribute::NumRxQueues(value) => state.num_rx_queues = value,
                LinkAttribute::NumTxQueues(value) => state.num_tx_queues = value,
                LinkAttribute::Stats64(value) => state.stats = value.into(),
                LinkAttribute::Xdp(attributes) => state.xdp = attachment(&attributes),
                LinkAttribute::LinkInfo(infos) => {
                    state.kind = infos.iter().find_map(|info| match info {
                        LinkInfo::Kind(kind) => Some(kind.to_string()),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        state.name = name?;
        Some(state)
    }
}

/// The kernel gives `IFLA_XDP_PROG_ID` only if a single program is attached, and the per-mode ids always:
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/rtnl_xdp_report_one>
fn attachment(attributes: &[LinkXdp]) -> Option<XdpAttachment> {
    let mode = attributes.iter().find_map(|attribute| match attribute {
        LinkXdp::Attached(XdpAttached::Driver) => Some(XdpMode::Native),
        LinkXdp::Attached(XdpAttached::SocketBuffer) => Some(XdpMode::Generic),
        LinkXdp::Attached(XdpAttached::Hardware) => Some(XdpMode::Offloaded),
        LinkXdp::Attached(XdpAttached::Multiple) => Some(XdpMode::Multi),
        _ => None,
    })?;
    let id = |wanted: fn(&LinkXdp) -> Option<u32>| attributes.iter().find_map(wanted);
    let prog_id = id(|a| if let LinkXdp::ProgId(id) = a { Some(*id) } else { None })
        .or_else(|| {
            id(|a| {
                if let LinkXdp::DrvProgId(id) = a {
                    Some(*id)
                } else {
                    None
                }
            })
        })
        .or_else(|| {
            id(|a| {
                if let LinkXdp::SkbProgId(id) = a {
                    Some(*id)
                } else {
                    None
                }
            })
        })
        .or_else(|| id(|a| if let LinkXdp::HwProgId(id) = a { Some(*id) } else { None }))?;
    Some(XdpAttachment { mode, prog_id })
}

impl From<State> for OperState {
    fn from(state: State) -> Self {
        match state {
            State::NotPresent => Self::NotPresent,
            State::Down => Self::Down,
            State::LowerLayerDown => Self::LowerLayerDown,
            State::Testing => Self::Testing,
            State::Dormant => Self::Dormant,
            State::Up => Self::Up,
            _ => Self::Unknown,
        }
    }
}

impl From<Stats64> for LinkStats {
    fn from(stats: Stats64) -> Self {
        Self {
            rx_packets: stats.rx_packets,
            tx_packets: stats.tx_packets,
            rx_bytes: stats.rx_bytes,
            tx_bytes: stats.tx_bytes,
            rx_errors: stats.rx_errors,
            tx_errors: stats.tx_errors,
            rx_dropped: stats.rx_dropped,
            tx_dropped: stats.tx_dropped,
            multicast: stats.multicast,
            rx_missed_errors: stats.rx_missed_errors,
            rx_fifo_errors: stats.rx_fifo_errors,
            rx_crc_errors: stats.rx_crc_errors,
            rx_length_errors: stats.rx_length_errors,
            rx_nohandler: stats.rx_nohandler,
            tx_carrier_errors: stats.tx_carrier_errors,
        }
    }
}

//! What IPv4 and IPv6 share: the number of the protocol above.

use core::fmt;

/// An IP protocol number: IPv4's `Protocol`, IPv6's `Next Header`.
///
/// ```
/// use ringside_wire::Protocol;
/// assert_eq!(Protocol::UDP.0, 17);
/// assert_eq!(Protocol::UDP.to_string(), "UDP");
/// assert_eq!(Protocol(89).to_string(), "protocol 89");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Protocol(pub u8);

impl Protocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP for IPv4.
    pub const ICMP: Self = Self(1);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// Datagram congestion control.
    pub const DCCP: Self = Self(33);
    /// IPv6 routing header.
    pub const ROUTING: Self = Self(43);
    /// IPv6 fragment header.
    pub const FRAGMENT: Self = Self(44);
    /// ICMP for IPv6.
    pub const ICMPV6: Self = Self(58);
    /// IPv6: nothing follows.
    pub const NO_NEXT_HEADER: Self = Self(59);
    /// IPv6 destination options.
    pub const DESTINATION_OPTIONS: Self = Self(60);
    /// Stream control transmission.
    pub const SCTP: Self = Self(132);
    /// UDP that may leave data out of its checksum.
    pub const UDP_LITE: Self = Self(136);

    /// True for those whose headers begin with the port of the source and that of the destination.
    #[must_use]
    pub const fn has_ports(self) -> bool {
        matches!(self, Self::TCP | Self::UDP | Self::DCCP | Self::SCTP | Self::UDP_LITE)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::HOP_BY_HOP => "hop-by-hop options",
            Self::ICMP => "ICMP",
            Self::TCP => "TCP",
            Self::UDP => "UDP",
            Self::DCCP => "DCCP",
            Self::SCTP => "SCTP",
            Self::UDP_LITE => "UDP-Lite",
            Self::ROUTING => "routing header",
            Self::FRAGMENT => "fragment header",
            Self::ICMPV6 => "ICMPv6",
            Self::NO_NEXT_HEADER => "no next header",
            Self::DESTINATION_OPTIONS => "destination options",
            Self(number) => return write!(f, "protocol {number}"),
        };
        f.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    /// Those whose headers begin with two ports: RFC 768, 9293, 4340 §5.1, 9260 §3.1, 3828 §3.
    #[test]
    fn ports_are_where_the_rfcs_have_them() {
        let with_ports: std::vec::Vec<u8> = (0..=255).filter(|&number| Protocol(number).has_ports()).collect();
        assert_eq!(with_ports, [6, 17, 33, 132, 136]);
    }

    #[test]
    fn protocols_have_names_or_numbers() {
        for (protocol, name) in [
            (Protocol::TCP, "TCP"),
            (Protocol::UDP_LITE, "UDP-Lite"),
            (Protocol::ICMPV6, "ICMPv6"),
            (Protocol(253), "protocol 253"),
        ] {
            assert_eq!(protocol.to_string(), name);
        }
    }
}

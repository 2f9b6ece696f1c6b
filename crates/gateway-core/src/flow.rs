//! What rules and connection tracking have to know of a tenant's packet, read from its bytes once.

use std::net::IpAddr;

use ringside_wire::icmp::{self, ErrorMessage, v4, v6};
use ringside_wire::tcp::{self, Flags};
use ringside_wire::{Error, Protocol, ipv4, ipv6, udp};

mod checksum;

pub(crate) use checksum::is_intact;

const LAYER: &str = "tenant's packet";

/// A tenant's IP packet, as far as it decides about its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it goes. Of the same family.
    pub destination: IpAddr,
    /// What it carries, behind IPv6's extension headers.
    pub protocol: Protocol,
    /// Hops that are left.
    pub hops: u8,
    /// None: it is whole.
    pub fragment: Option<Piece>,
    /// What it carries, as far as it matters.
    pub upper: Upper,
}

/// A fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// What ties fragments together; 16 bits in IPv4.
    pub identification: u32,
    /// It has the header of what it carries. The others cannot be told by themselves.
    pub first: bool,
}

/// What a packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upper {
    /// TCP.
    Tcp(Segment),
    /// Source and destination port of UDP, UDP-Lite, DCCP and SCTP.
    Ports([u16; 2]),
    /// ICMP that asks, or answers.
    Query(Query),
    /// ICMP that says what became of a packet.
    Error(About),
    /// Other ICMP.
    Icmp {
        /// The message's type.
        message_type: u8,
        /// The message's code.
        code: u8,
    },
    /// Some other protocol.
    Other,
    /// Not known: a later fragment.
    Later,
}

/// What connection tracking has to know of a TCP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Source and destination port.
    pub ports: [u16; 2],
    /// The number of its first byte or SYN.
    pub sequence: u32,
    /// How many numbers it takes: bytes, SYN, FIN.
    pub len: u32,
    /// The number that is expected next, if ACK is set.
    pub acknowledgment: u32,
    /// Control bits.
    pub flags: Flags,
    /// What its sender will take, not shifted.
    pub window: u16,
    /// The shift that a SYN offers.
    pub scale: Option<u8>,
}

/// ICMP that asks, or answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// What it asks for.
    pub kind: QueryKind,
    /// Which process asks.
    pub identifier: u16,
    /// It is the question.
    pub asks: bool,
}

/// What a query asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryKind {
    /// What was sent (ping).
    Echo,
    /// The time; ICMP for IPv4 only.
    Time,
}

/// What an ICMP error says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// The message's type.
    pub message_type: u8,
    /// The message's code.
    pub code: u8,
    /// The packet that it is about; None if that cannot be made out.
    pub packet: Option<Quoted>,
}

/// The packet that an ICMP error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quoted {
    /// Where it came from.
    pub source: IpAddr,
    /// Where it was to go.
    pub destination: IpAddr,
    /// What it carried.
    pub protocol: Protocol,
    /// Which of the two's conversations it belongs to.
    pub ends: Ends,
    /// Its sequence number, of TCP.
    pub sequence: Option<u32>,
}

/// What tells conversations of two addresses in one protocol apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Source and destination port.
    Ports([u16; 2]),
    /// Question or answer.
    Query(Query),
    /// Nothing.
    None,
}

impl Flow {
    /// Reads an IP packet, of either version. What follows its length is left out, and checksums are
    /// not verified.
    ///
    /// # Errors
    /// Those of the views of [`ringside_wire`], and [`Error::Malformed`] for what only somebody sends who wants to get
    /// around rules: a source that is multicast, IPv4 addresses written as IPv6, a TCP fragment that begins inside the
    /// header (RFC 3128). [`Error::Unsupported`] for IPv6 packets with other stops before their destination (RFC 5095).
    pub fn parse(packet: &[u8]) -> Result<Self, Error> {
        match packet.first().map(|byte| byte >> 4) {
            Some(6) => parse_v6(packet),
            _ => parse_v4(packet),
        }
    }

    /// What rules match: the destination's port, or type and code of ICMP in one number; 0 for what has neither. None
    /// for a later fragment.
    #[must_use]
    pub fn service(&self) -> Option<u16> {
        Some(match self.upper {
            Upper::Tcp(Segment { ports, .. }) | Upper::Ports(ports) => ports[1],
            Upper::Query(query) => u16::from_be_bytes([query.message_type(self.protocol), 0]),
            Upper::Error(About { message_type, code, .. }) | Upper::Icmp { message_type, code } => {
                u16::from_be_bytes([message_type, code])
            }
            Upper::Other => 0,
            Upper::Later => return None,
        })
    }

    /// What rules match of the packet that this answers, if it answers one. None for what answers nothing.
    #[must_use]
    pub fn answered_service(&self) -> Option<u16> {
        Some(match self.upper {
            Upper::Tcp(Segment { ports, .. }) | Upper::Ports(ports) => ports[0],
            Upper::Query(query @ Query { asks: false, .. }) => {
                u16::from_be_bytes([Query { asks: true, ..query }.message_type(self.protocol), 0])
            }
            Upper::Other => 0,
            Upper::Query(_) | Upper::Error(_) | Upper::Icmp { .. } | Upper::Later => return None,
        })
    }

    /// Which of the two addresses' conversations it belongs to. None for ICMP that belongs to none, and for later
    /// fragments.
    #[must_use]
    pub fn ends(&self) -> Option<Ends> {
        match self.upper {
            Upper::Tcp(Segment { ports, .. }) | Upper::Ports(ports) => Some(Ends::Ports(ports)),
            Upper::Query(query) => Some(Ends::Query(query)),
            Upper::Other => Some(Ends::None),
            Upper::Error(_) | Upper::Icmp { .. } | Upper::Later => None,
        }
    }
}

impl Query {
    /// The message's type in ICMP or ICMPv6.
    #[must_use]
    pub fn message_type(&self, protocol: Protocol) -> u8 {
        match (self.kind, self.asks, protocol) {
            (QueryKind::Echo, true, Protocol::ICMPV6) => v6::ECHO_REQUEST,
            (QueryKind::Echo, false, Protocol::ICMPV6) => v6::ECHO_REPLY,
            (QueryKind::Echo, true, _) => v4::ECHO_REQUEST,
            (QueryKind::Echo, false, _) => v4::ECHO_REPLY,
            (QueryKind::Time, true, _) => v4::TIMESTAMP_REQUEST,
            (QueryKind::Time, false, _) => v4::TIMESTAMP_REPLY,
        }
    }
}

fn malformed(field: &'static str, value: u32) -> Error {
    Error::Malformed {
        layer: LAYER,
        field,
        value,
    }
}

fn parse_v4(bytes: &[u8]) -> Result<Flow, Error> {
    let packet = ipv4::Packet::parse(bytes)?;
    if packet.src().is_multicast() || packet.src().is_broadcast() {
        return Err(malformed("source", packet.src().into()));
    }
    let fragment = packet.is_fragment().then(|| Piece {
        identification: u32::from(packet.identification()),
        first: packet.fragment_offset() == 0,
    });
    Ok(Flow {
        source: packet.src().into(),
        destination: packet.dst().into(),
        protocol: packet.protocol(),
        hops: packet.ttl(),
        fragment,
        upper: upper(packet.protocol(), packet.fragment_offset(), fragment, packet.payload())?,
    })
}

fn parse_v6(bytes: &[u8]) -> Result<Flow, Error> {
    let packet = ipv6::Packet::parse(bytes)?;
    let (source, destination) = (packet.src(), packet.dst());
    let written_as_v6 = [source, destination].iter().any(|ip| ip.to_ipv4_mapped().is_some());
    if source.is_multicast() || written_as_v6 {
        let [.., a, b, c, d] = source.octets();
        return Err(malformed("source or destination", u32::from_be_bytes([a, b, c, d])));
    }
    let found = packet.upper_layer()?;
    if found.has_stops_left {
        return Err(Error::Unsupported {
            layer: LAYER,
            field: "routing header with stops left",
            value: 1,
        });
    }
    let piece = found.fragment.filter(|fragment| !fragment.is_atomic());
    let fragment = piece.map(|piece| Piece {
        identification: piece.identification,
        first: piece.offset == 0,
    });
    let offset = piece.map_or(0, |piece| piece.offset);
    Ok(Flow {
        source: source.into(),
        destination: destination.into(),
        protocol: found.protocol,
        hops: packet.hop_limit(),
        fragment,
        upper: upper(found.protocol, offset, fragment, found.bytes)?,
    })
}

fn upper(protocol: Protocol, offset: usize, fragment: Option<Piece>, bytes: &[u8]) -> Result<Upper, Error> {
    if fragment.is_some_and(|piece| !piece.first) {
        // It would put other flags or ports where the first fragment had those that were judged.
        if protocol == Protocol::TCP && offset < tcp::HEADER_LEN {
            return Err(malformed("fragment offset", u32::try_from(offset).unwrap_or(u32::MAX)));
        }
        return Ok(Upper::Later);
    }
    Ok(match protocol {
        Protocol::TCP => {
            let segment = tcp::Segment::parse(bytes)?;
            let flags = segment.flags();
            let opens = flags.has(Flags::SYN);
            Upper::Tcp(Segment {
                ports: [segment.src_port(), segment.dst_port()],
                sequence: segment.sequence(),
                len: segment.sequence_len(),
                acknowledgment: segment.acknowledgment(),
                flags,
                window: segment.window(),
                scale: if opens { segment.options().window_scale } else { None },
            })
        }
        Protocol::UDP if fragment.is_none() => {
            let datagram = udp::Datagram::parse(bytes)?;
            Upper::Ports([datagram.src_port(), datagram.dst_port()])
        }
        _ if protocol.has_ports() => {
            let &[a, b, c, d, ..] = head(bytes)?;
            Upper::Ports([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])])
        }
        Protocol::ICMP | Protocol::ICMPV6 => icmp(protocol, bytes)?,
        _ => Upper::Other,
    })
}

/// The first eight bytes, which all upper layers have that are read here.
fn head(bytes: &[u8]) -> Result<&[u8; 8], Error> {
    bytes.first_chunk().ok_or(Error::Truncated {
        layer: LAYER,
        need: 8,
        have: bytes.len(),
    })
}

fn icmp(protocol: Protocol, bytes: &[u8]) -> Result<Upper, Error> {
    let &[message_type, code, ..] = head(bytes)?;
    if let Some(query) = query(protocol, bytes) {
        return Ok(Upper::Query(query));
    }
    let v4 = protocol == Protocol::ICMP;
    let error = if v4 {
        ErrorMessage::parse_v4(bytes)
    } else {
        ErrorMessage::parse_v6(bytes)
    };
    let Ok(ErrorMessage { quote, .. }) = error else {
        return Ok(Upper::Icmp { message_type, code });
    };
    let quoted = if v4 {
        icmp::Quoted::parse_v4(quote)
    } else {
        icmp::Quoted::parse_v6(quote)
    };
    Ok(Upper::Error(About {
        message_type,
        code,
        packet: quoted.ok().and_then(about),
    }))
}

fn query(protocol: Protocol, bytes: &[u8]) -> Option<Query> {
    let &[message_type, code, _, _, high, low, _, _] = bytes.first_chunk()?;
    let (kind, asks) = match (protocol, message_type, code) {
        (Protocol::ICMP, v4::ECHO_REQUEST, 0) | (Protocol::ICMPV6, v6::ECHO_REQUEST, 0) => (QueryKind::Echo, true),
        (Protocol::ICMP, v4::ECHO_REPLY, 0) | (Protocol::ICMPV6, v6::ECHO_REPLY, 0) => (QueryKind::Echo, false),
        (Protocol::ICMP, v4::TIMESTAMP_REQUEST, 0) => (QueryKind::Time, true),
        (Protocol::ICMP, v4::TIMESTAMP_REPLY, 0) => (QueryKind::Time, false),
        _ => return None,
    };
    Some(Query {
        kind,
        identifier: u16::from_be_bytes([high, low]),
        asks,
    })
}

/// None for what cannot be assigned: later fragments, errors about errors, and quotes without the eight bytes that
/// RFC 792 promises.
fn about(quoted: icmp::Quoted<'_>) -> Option<Quoted> {
    if quoted.fragment_offset > 0 {
        return None;
    }
    let ports = |&[a, b, c, d, ..]: &[u8; 8]| [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
    let (ends, sequence) = match quoted.protocol {
        Protocol::TCP => {
            let head = quoted.upper.first_chunk::<8>()?;
            let [_, _, _, _, sequence @ ..] = *head;
            (Ends::Ports(ports(head)), Some(u32::from_be_bytes(sequence)))
        }
        protocol if protocol.has_ports() => (Ends::Ports(ports(quoted.upper.first_chunk()?)), None),
        protocol @ (Protocol::ICMP | Protocol::ICMPV6) => (Ends::Query(query(protocol, quoted.upper)?), None),
        _ => (Ends::None, None),
    };
    Some(Quoted {
        source: quoted.src,
        destination: quoted.dst,
        protocol: quoted.protocol,
        ends,
        sequence,
    })
}

#[cfg(test)]
mod tests;

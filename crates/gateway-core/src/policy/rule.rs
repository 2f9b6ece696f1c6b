//! Rules as the control plane gives them.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use ringside_wire::Protocol;

/// A rule's number, given by the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u64);

/// A group's number, given by the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(pub u32);

/// The number of a set of groups: what is bound to an address (`Neighbor::policy`). It names the same set for as long as
/// the policy lives, and is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProfileId(NonZeroU32);

impl ProfileId {
    /// None for 0, which stands for "no groups".
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// As a number, never 0.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0.get()
    }
}

/// Seen from the address that the rule is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// To it.
    Ingress,
    /// From it.
    Egress,
}

/// The version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "ether type")]
pub enum Family {
    /// Ether type 0x0800.
    V4,
    /// Ether type 0x86dd.
    V6,
}

impl Family {
    /// That of an address.
    #[must_use]
    pub const fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The protocol that is ICMP in it.
    #[must_use]
    pub const fn icmp(self) -> Protocol {
        match self {
            Self::V4 => Protocol::ICMP,
            Self::V6 => Protocol::ICMPV6,
        }
    }
}

/// What is allowed: protocol, and ports or types.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Service {
    /// Anything.
    Any,
    /// All of a protocol. For ICMP see [`Service::Icmp`], which knows the families apart.
    Protocol(Protocol),
    /// To these ports, of a protocol that has some.
    Ports(Protocol, RangeInclusive<u16>),
    /// ICMP over IPv4, ICMPv6 over IPv6: all, one type, or one type and code.
    Icmp(Option<(u8, Option<u8>)>),
}

/// The other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Remote {
    /// Anybody.
    Any,
    /// Addresses of a prefix. Bits behind its length do not count.
    Prefix(IpNet),
    /// Addresses with a profile that has this group.
    Group(GroupId),
}

/// Something that is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    /// By which it is named in a trace.
    pub id: RuleId,
    /// From the address, or to it.
    pub direction: Direction,
    /// None: both.
    pub family: Option<Family>,
    /// Protocol, and ports or types.
    pub service: Service,
    /// The other side.
    pub remote: Remote,
}

/// Why a rule was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleError {
    /// A prefix of one family in a rule for the other.
    Family {
        /// The rule.
        rule: RuleId,
        /// Its prefix.
        prefix: IpNet,
    },
    /// A range of ports that ends before it begins.
    EmptyPorts {
        /// The rule.
        rule: RuleId,
        /// The range.
        ports: RangeInclusive<u16>,
    },
    /// Ports of a protocol that has none.
    NoPorts {
        /// The rule.
        rule: RuleId,
        /// The protocol.
        protocol: Protocol,
    },
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Family { rule, prefix } => write!(
                f,
                "rule {}: the prefix {prefix} is not of the rule's ether type; change one of them",
                rule.0
            ),
            Self::EmptyPorts { rule, ports } => write!(
                f,
                "rule {}: the ports {} to {} are none; give the lower one first",
                rule.0,
                ports.start(),
                ports.end()
            ),
            Self::NoPorts { rule, protocol } => write!(
                f,
                "rule {}: {protocol} has no ports; leave them out, or name TCP, UDP, UDP-Lite, SCTP or DCCP",
                rule.0
            ),
        }
    }
}

impl std::error::Error for RuleError {}

impl Rule {
    /// Tells whether the rule makes sense.
    ///
    /// # Errors
    /// Those of [`RuleError`].
    pub fn check(&self) -> Result<(), RuleError> {
        let rule = self.id;
        if let (Some(family), Remote::Prefix(prefix)) = (self.family, self.remote)
            && family != Family::of(prefix.addr())
        {
            return Err(RuleError::Family { rule, prefix });
        }
        match &self.service {
            Service::Ports(protocol, _) if !protocol.has_ports() => Err(RuleError::NoPorts {
                rule,
                protocol: *protocol,
            }),
            Service::Ports(_, ports) if ports.is_empty() => Err(RuleError::EmptyPorts {
                rule,
                ports: ports.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// True if it is for packets of this family.
    pub(super) fn is_for(&self, direction: Direction, family: Family) -> bool {
        let of_prefix = match self.remote {
            Remote::Prefix(prefix) => Family::of(prefix.addr()) == family,
            Remote::Any | Remote::Group(_) => true,
        };
        self.direction == direction && self.family.is_none_or(|own| own == family) && of_prefix
    }
}

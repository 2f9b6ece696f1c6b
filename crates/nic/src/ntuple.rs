//! Rules by which a NIC chooses the receive queue of some packets, whatever their hash says (`ethtool -N`, "ntuple").
//!
//! ```text
//!  packet ── rules, the lowest location first ──▶ matches: the rule's queue
//!               └─ none ──▶ hash ──▶ table of queues (see `rss`) ──▶ queue
//! ```
//!
//! By `SIOCETHTOOL`: ethtool's netlink has no messages for them
//! (<https://docs.kernel.org/networking/ethtool-netlink.html#request-translation>).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::sys::CommandBuffer;
use crate::{Error, Interface, Result};

// Commands: https://elixir.bootlin.com/linux/v6.18/C/ident/ETHTOOL_SRXCLSRLINS
const ETHTOOL_GRXCLSRLCNT: u32 = 0x2e;
const ETHTOOL_GRXCLSRULE: u32 = 0x2f;
const ETHTOOL_GRXCLSRLALL: u32 = 0x30;
const ETHTOOL_SRXCLSRLDEL: u32 = 0x31;
const ETHTOOL_SRXCLSRLINS: u32 = 0x32;

// Kinds of flows: https://elixir.bootlin.com/linux/v6.18/C/ident/ETHER_FLOW
const UDP_V4_FLOW: u32 = 0x02;
const ETHER_FLOW: u32 = 0x12;
/// Fields of `ethtool_flow_ext` count, too.
const FLOW_EXT: u32 = 0x8000_0000;

// Where things are in `struct ethtool_rxnfc`: https://elixir.bootlin.com/linux/v6.18/C/ident/ethtool_rxnfc
const LEN: usize = 192;
const DATA: usize = 8;
/// `fs.flow_type`, where the rule begins.
const TYPE: usize = 16;
/// What has to be there: `fs.h_u`, and in it a UDP flow's ports (source, destination).
const FIELDS: usize = 20;
const PORTS: usize = 8;
/// Which bits of it: `fs.m_u`.
const MASKS: usize = 92;
/// `vlan_etype` and `vlan_tci` of `fs.h_ext`, and of `fs.m_ext`.
const VLAN: usize = 80;
const VLAN_MASK: usize = 152;
const QUEUE: usize = 168;
const LOCATION: usize = 176;
const COUNT: usize = 184;
const LOCATIONS: usize = 188;

/// The three bits of a tag's control information that are its priority.
const PRIORITY: u16 = 0xe000;

const READ: &str = "read the rules for receive queues";
const INSERT: &str = "insert a rule for a receive queue";
const DELETE: &str = "delete a rule for a receive queue";

/// Setting's value of a location without a rule.
const NONE: &str = "none";

/// Which packets a rule is about.
///
/// ```
/// use ringside_nic::NtupleFlow;
///
/// assert_eq!("pcp:5".parse(), Ok(NtupleFlow::VlanPriority(5)));
/// assert_eq!("udp:7000".parse(), Ok(NtupleFlow::UdpPort(7000)));
/// assert!("pcp:8".parse::<NtupleFlow>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NtupleFlow {
    /// Packets whose VLAN tag has this priority code point (PCP), 0 to 7.
    VlanPriority(u8),
    /// UDP over IPv4 to this port.
    UdpPort(u16),
    /// Packets that this crate has no words for: somebody else's rule.
    Other,
}

/// A rule of a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NtupleRule {
    /// Where it stands: of two rules that match, that with the lower one counts.
    pub location: u32,
    /// Which packets it is about.
    pub flow: NtupleFlow,
    /// The receive queue that they go to; `None` where they are thrown away, or go to a virtual function.
    pub queue: Option<u32>,
}

impl NtupleFlow {
    /// What `ethtool -N` takes for it: "flow-type ether vlan 0xa000 vlan-mask 0x1fff".
    #[must_use]
    pub fn ethtool(self) -> String {
        match self {
            // ethtool's masks are of the bits that do not count.
            Self::VlanPriority(pcp) => {
                let tci = u16::from(pcp) << 13;
                format!("flow-type ether vlan {tci:#06x} vlan-mask 0x1fff")
            }
            Self::UdpPort(port) => format!("flow-type udp4 dst-port {port}"),
            Self::Other => "(a rule of another kind)".to_owned(),
        }
    }
}

impl FromStr for NtupleFlow {
    type Err = String;

    /// `pcp:N` or `udp:PORT`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || format!("{text:?} is no kind of packets; write pcp:N for a VLAN priority (0 to 7), or udp:PORT");
        let (kind, number) = text.split_once(':').ok_or_else(wrong)?;
        match (kind, number.parse::<u16>()) {
            ("pcp", Ok(pcp @ 0..=7)) => Ok(Self::VlanPriority(u8::try_from(pcp).unwrap_or(7))),
            ("udp", Ok(port @ 1..)) => Ok(Self::UdpPort(port)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for NtupleFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VlanPriority(pcp) => write!(f, "PCP {pcp}"),
            Self::UdpPort(port) => write!(f, "UDP port {port}"),
            Self::Other => f.write_str("other packets"),
        }
    }
}

impl fmt::Display for NtupleRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.queue {
            Some(queue) => write!(f, "{} to queue {queue}", self.flow),
            None => write!(f, "{} to no queue", self.flow),
        }
    }
}

impl Interface {
    /// The NIC's rules, by their locations; `None` where the driver has none (veth, virtio-net on most hosts).
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the interface was removed.
    #[doc(alias = "ETHTOOL_GRXCLSRLALL")]
    pub fn ntuple_rules(&self) -> Result<Option<Vec<NtupleRule>>> {
        let Some((_, locations)) = self.ntuple_locations()? else {
            return Ok(None);
        };
        let mut rules = Vec::new();
        for location in locations {
            let answer = self.ethtool(READ, ETHTOOL_GRXCLSRULE, LEN, |buffer| {
                buffer.set_u32(LOCATION, location)
            });
            // One that was deleted meanwhile.
            if let Ok(answer) = answer {
                rules.push(parse(&answer));
            }
        }
        Ok(Some(rules))
    }

    /// Locations that no rule has, the last first: where so many rules go.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with `EOPNOTSUPP` where the driver has no rules, with `ENOSPC` where there is no room for as many.
    pub(crate) fn free_ntuple_locations(&self, count: usize) -> Result<Vec<u32>> {
        let failed = |errno| Error::kernel(INSERT, self.name(), std::io::Error::from_raw_os_error(errno));
        let (size, taken) = self.ntuple_locations()?.ok_or_else(|| failed(libc::EOPNOTSUPP))?;
        let free: Vec<u32> = (0..size).rev().filter(|at| !taken.contains(at)).take(count).collect();
        match free.len() == count {
            true => Ok(free),
            false => Err(failed(libc::ENOSPC)),
        }
    }

    /// How many locations there are, and those that have a rule.
    fn ntuple_locations(&self) -> Result<Option<(u32, Vec<u32>)>> {
        let unsupported = |error: &Error| matches!(error.errno(), Some(libc::EOPNOTSUPP | libc::EINVAL));
        let count = match self.ethtool(READ, ETHTOOL_GRXCLSRLCNT, LEN, |_| {}) {
            Err(error) if unsupported(&error) => return Ok(None),
            other => other?.u32_at(COUNT),
        };
        let room = usize::try_from(count).unwrap_or(0);
        let answer = self.ethtool(READ, ETHTOOL_GRXCLSRLALL, LOCATIONS + room * 4 + 8, |buffer| {
            buffer.set_u32(COUNT, count);
        });
        let answer = match answer {
            Err(error) if unsupported(&error) => return Ok(None),
            other => other?,
        };
        let count = usize::try_from(answer.u32_at(COUNT)).unwrap_or(0).min(room);
        let size = u32::try_from(answer.u64_at(DATA)).unwrap_or(0);
        let mut locations: Vec<u32> = (0..count).map(|at| answer.u32_at(LOCATIONS + at * 4)).collect();
        locations.sort_unstable();
        Ok(Some((size, locations)))
    }

    /// The rule of a location as a setting's value.
    pub(crate) fn ntuple_at(&self, location: u32) -> Result<String> {
        let rules = self.ntuple_rules()?.unwrap_or_default();
        let rule = rules.iter().find(|rule| rule.location == location);
        Ok(rule.map_or(NONE.to_owned(), value))
    }

    /// Puts a setting's value at a location.
    pub(crate) fn set_ntuple(&self, location: u32, wanted: &str) -> Result<()> {
        if wanted == NONE {
            let delete = |buffer: &mut CommandBuffer| buffer.set_u32(LOCATION, location);
            return self.ethtool(DELETE, ETHTOOL_SRXCLSRLDEL, LEN, delete).map(drop);
        }
        let rule = wanted
            .split_once(' ')
            .and_then(|(flow, queue)| Some((flow.parse().ok()?, queue.parse().ok()?)));
        let (flow, queue) =
            rule.ok_or_else(|| Error::malformed(INSERT, self.name(), format!("the rule '{wanted}'")))?;
        self.ethtool(INSERT, ETHTOOL_SRXCLSRLINS, LEN, |buffer| {
            fill(buffer, location, flow, queue)
        })
        .map(drop)
    }
}

/// A rule as a setting's value; what is somebody else's cannot be written again.
fn value(rule: &NtupleRule) -> String {
    match (rule.flow, rule.queue) {
        (NtupleFlow::VlanPriority(pcp), Some(queue)) => format!("pcp:{pcp} {queue}"),
        (NtupleFlow::UdpPort(port), Some(queue)) => format!("udp:{port} {queue}"),
        _ => rule.to_string(),
    }
}

/// The value of a rule to come.
pub(crate) fn wanted(flow: NtupleFlow, queue: u32) -> String {
    value(&NtupleRule {
        location: 0,
        flow,
        queue: Some(queue),
    })
}

/// Two numbers of 16 bits in the order of the network, as one word of the buffer.
fn pair(first: u16, second: u16) -> u32 {
    let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
    u32::from_ne_bytes([a, b, c, d])
}

/// The second of such a pair.
fn second(word: u32) -> u16 {
    let [_, _, c, d] = word.to_ne_bytes();
    u16::from_be_bytes([c, d])
}

fn fill(buffer: &mut CommandBuffer, location: u32, flow: NtupleFlow, queue: u32) {
    match flow {
        NtupleFlow::VlanPriority(pcp) => {
            buffer.set_u32(TYPE, ETHER_FLOW | FLOW_EXT);
            buffer.set_u32(VLAN, pair(0, u16::from(pcp) << 13));
            buffer.set_u32(VLAN_MASK, pair(0, PRIORITY));
        }
        NtupleFlow::UdpPort(port) => {
            buffer.set_u32(TYPE, UDP_V4_FLOW);
            buffer.set_u32(FIELDS + PORTS, pair(0, port));
            buffer.set_u32(MASKS + PORTS, pair(0, u16::MAX));
        }
        NtupleFlow::Other => {}
    }
    buffer.set_u64(QUEUE, queue.into());
    buffer.set_u32(LOCATION, location);
}

fn parse(rule: &CommandBuffer) -> NtupleRule {
    let kind = rule.u32_at(TYPE);
    let is_zero = |mut range: std::ops::Range<usize>| range.all(|at| rule.bytes().get(at) == Some(&0));
    let vlan_mask = second(rule.u32_at(VLAN_MASK));
    let flow = match kind & !FLOW_EXT {
        ETHER_FLOW if kind & FLOW_EXT != 0 && vlan_mask == PRIORITY && is_zero(MASKS..MASKS + 52) => {
            NtupleFlow::VlanPriority(u8::try_from(second(rule.u32_at(VLAN)) >> 13).unwrap_or(0))
        }
        UDP_V4_FLOW
            if rule.u32_at(MASKS + PORTS) == pair(0, u16::MAX)
                && is_zero(MASKS..MASKS + PORTS)
                && (kind & FLOW_EXT == 0 || vlan_mask == 0) =>
        {
            NtupleFlow::UdpPort(second(rule.u32_at(FIELDS + PORTS)))
        }
        _ => NtupleFlow::Other,
    };
    NtupleRule {
        location: rule.u32_at(LOCATION),
        flow,
        // Above 32 bits: a virtual function, or one of the special values.
        queue: u32::try_from(rule.u64_at(QUEUE)).ok(),
    }
}

#[cfg(test)]
#[path = "ntuple_tests.rs"]
mod tests;

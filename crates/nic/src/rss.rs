//! Receive-side scaling: how a NIC chooses the queue of a packet.
//!
//! ```text
//!  addresses, ports ──▶ hash (with a key) ──▶ its last bits ──▶ table of queues ──▶ queue
//! ```
//!
//! <https://docs.kernel.org/networking/scaling.html#rss-receive-side-scaling>

mod toeplitz;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use serde::{Serialize, Serializer};

use crate::{Error, Interface, Result};
pub use toeplitz::toeplitz;

// Commands: https://elixir.bootlin.com/linux/v6.18/C/ident/ETHTOOL_GRSSH
const ETHTOOL_GRXFH: u32 = 0x29;
const ETHTOOL_GRSSH: u32 = 0x46;
const ETHTOOL_SRSSH: u32 = 0x47;

/// Where the table begins in `struct ethtool_rxfh`: <https://elixir.bootlin.com/linux/v6.18/C/ident/ethtool_rxfh>
const CONFIG: usize = 24;

/// How a NIC chooses the receive queue of a packet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Rss {
    /// The hash function; `None` where the driver does not tell.
    pub function: Option<HashFunction>,
    /// What is done to addresses and ports before they are hashed, so that both directions of a flow have one hash.
    pub symmetry: Option<Symmetry>,
    /// The hash's key; empty where the driver does not tell it.
    #[serde(serialize_with = "key_text")]
    pub key: Vec<u8>,
    /// The queues, by the last bits of the hash.
    pub table: Vec<u32>,
    /// What of a packet is hashed, by kind of flow; without those of which the driver does not tell.
    pub fields: BTreeMap<FlowKind, HashedFields>,
}

/// What makes a number of the fields of a packet (`ETH_RSS_HASH_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HashFunction {
    /// Toeplitz, the one that nearly all NICs have.
    Toeplitz,
    /// Exclusive or.
    Xor,
    /// CRC-32.
    Crc32,
    /// One that this crate does not know.
    Other,
}

/// How a hash is made the same for both directions of a flow (`RXH_XFRM_*`, Linux 6.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Symmetry {
    /// Source and destination are combined by exclusive or, and that stands in both places.
    Xor,
    /// By or in the one place, by exclusive or in the other.
    OrXor,
    /// In a way that this crate does not know.
    Other,
}

/// A kind of flow for which the NIC is told what to hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FlowKind {
    /// TCP over IPv4.
    Tcp4,
    /// UDP over IPv4.
    Udp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv6.
    Udp6,
}

impl FlowKind {
    /// All of them, with their numbers: <https://elixir.bootlin.com/linux/v6.18/C/ident/TCP_V4_FLOW>
    const ALL: [(Self, u32); 4] = [(Self::Tcp4, 1), (Self::Udp4, 2), (Self::Tcp6, 5), (Self::Udp6, 6)];

    /// `ethtool`'s name: "udp4".
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp4 => "tcp4",
            Self::Udp4 => "udp4",
            Self::Tcp6 => "tcp6",
            Self::Udp6 => "udp6",
        }
    }
}

/// Which fields of a packet its hash is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HashedFields {
    /// The IP addresses.
    pub addresses: bool,
    /// The ports.
    pub ports: bool,
    /// Something beside them, or only one side: what comes out is not known then.
    pub others: bool,
}

impl HashedFields {
    /// <https://elixir.bootlin.com/linux/v6.18/C/ident/RXH_IP_SRC>
    fn from_bits(bits: u64) -> Self {
        const ADDRESSES: u64 = 0x30;
        const PORTS: u64 = 0xc0;
        let (addresses, ports) = (bits & ADDRESSES, bits & PORTS);
        Self {
            addresses: addresses == ADDRESSES,
            ports: ports == PORTS,
            others: bits & !(ADDRESSES | PORTS) != 0
                || ![0, ADDRESSES].contains(&addresses)
                || ![0, PORTS].contains(&ports),
        }
    }
}

/// A flow of packets, as the interface receives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Who sends.
    pub src: SocketAddr,
    /// Who receives.
    pub dst: SocketAddr,
    /// Whether it is TCP, otherwise UDP.
    pub tcp: bool,
}

impl Flow {
    /// Its kind; `None` if the addresses are of different families.
    #[must_use]
    pub fn kind(&self) -> Option<FlowKind> {
        match (self.src, self.dst, self.tcp) {
            (SocketAddr::V4(_), SocketAddr::V4(_), true) => Some(FlowKind::Tcp4),
            (SocketAddr::V4(_), SocketAddr::V4(_), false) => Some(FlowKind::Udp4),
            (SocketAddr::V6(_), SocketAddr::V6(_), true) => Some(FlowKind::Tcp6),
            (SocketAddr::V6(_), SocketAddr::V6(_), false) => Some(FlowKind::Udp6),
            _ => None,
        }
    }
}

impl Rss {
    /// The queue that packets of a flow come to, after the NIC's key and table.
    ///
    /// # Errors
    ///
    /// Why it cannot be told: another function than Toeplitz, fields that are not told, no key.
    pub fn queue(&self, flow: &Flow) -> Result<u32, &'static str> {
        let kind = flow.kind().ok_or("both addresses of a flow are of one family")?;
        match self.function {
            Some(HashFunction::Toeplitz) => {}
            None => return Err("the driver does not tell its hash function"),
            Some(_) => return Err("its hash function is not Toeplitz"),
        }
        let fields = self.fields.get(&kind);
        let fields = fields.ok_or("the driver does not tell which fields of such packets are hashed")?;
        if fields.others {
            return Err("it hashes more of such packets than addresses and ports, or one side only");
        }
        let mut input = toeplitz::Input::default();
        if fields.addresses {
            input.addresses(flow, self.symmetry)?;
        }
        if fields.ports {
            input.ports(flow, self.symmetry)?;
        }
        if self.key.len() < input.bytes().len() + 4 {
            return Err("the driver does not tell its key");
        }
        let hash = usize::try_from(toeplitz(&self.key, input.bytes())).unwrap_or(0);
        // Tables have as many entries as some power of two, so that this takes the last bits.
        let entry = hash.checked_rem(self.table.len());
        entry
            .and_then(|entry| self.table.get(entry))
            .copied()
            .ok_or("it has no table of queues")
    }
}

impl Interface {
    /// How the NIC chooses receive queues; `None` where it has no choice or the driver does not tell (veth).
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`](crate::Error::Kernel) if the interface was removed.
    #[doc(alias = "ETHTOOL_GRSSH")]
    #[doc(alias = "indirection table")]
    pub fn rss(&self) -> Result<Option<Rss>> {
        let operation = "read the table of receive queues";
        let sizes = match self.ethtool(operation, ETHTOOL_GRSSH, CONFIG, |_| {}) {
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => return Ok(None),
            other => other?,
        };
        let (entries, key) = (sizes.u32_at(8), sizes.u32_at(12));
        if entries == 0 {
            return Ok(None);
        }
        let bytes = |number: u32| usize::try_from(number).unwrap_or(0);
        let length = CONFIG + bytes(entries) * 4 + bytes(key);
        let answer = self.ethtool(operation, ETHTOOL_GRSSH, length, |buffer| {
            buffer.set_u32(8, entries);
            buffer.set_u32(12, key);
        })?;
        let mut rss = parse(answer.bytes(), bytes(entries), bytes(key));
        for (kind, number) in FlowKind::ALL {
            // struct ethtool_rxnfc: cmd, flow_type, data; of this command no more is read or written.
            let fields = self.ethtool("read which fields are hashed", ETHTOOL_GRXFH, 16, |buffer| {
                buffer.set_u32(4, number);
            });
            if let Ok(fields) = fields
                && fields.u64_at(8) != 0
            {
                rss.fields.insert(kind, HashedFields::from_bits(fields.u64_at(8)));
            }
        }
        Ok(Some(rss))
    }

    /// The table as a setting's value: `0*64 1*64`.
    pub(crate) fn rss_table(&self) -> Result<String> {
        let rss = self.rss()?.ok_or_else(|| self.no_table())?;
        Ok(table_text(&rss.table))
    }

    /// A table of the same length that has these queues in turn, as a setting's value.
    pub(crate) fn rss_table_of(&self, queues: &[u32]) -> Result<String> {
        let rss = self.rss()?.ok_or_else(|| self.no_table())?;
        let table: Vec<u32> = queues.iter().copied().cycle().take(rss.table.len()).collect();
        Ok(table_text(&table))
    }

    /// Puts a setting's value there. Hash function, key and symmetry stay what they are.
    pub(crate) fn set_rss_table(&self, value: &str) -> Result<()> {
        const OPERATION: &str = "set the table of receive queues";
        let table = parse_table(value).ok_or_else(|| Error::malformed(OPERATION, self.name(), value))?;
        let now = self.ethtool(OPERATION, ETHTOOL_GRSSH, CONFIG, |_| {})?;
        let symmetry = now.bytes().get(17).copied().unwrap_or(0);
        let length = CONFIG + table.len() * 4;
        self.ethtool(OPERATION, ETHTOOL_SRSSH, length, |buffer| {
            buffer.set_u32(8, u32::try_from(table.len()).unwrap_or(0));
            // Function 0 and no key: as they are.
            buffer.set_u32(16, u32::from_ne_bytes([0, symmetry, 0, 0]));
            for (at, queue) in table.iter().enumerate() {
                buffer.set_u32(CONFIG + at * 4, *queue);
            }
        })
        .map(drop)
    }

    fn no_table(&self) -> Error {
        let source = std::io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        Error::kernel("read the table of receive queues", self.name(), source)
    }
}

/// Queue and how often it stands there in a row.
fn table_text(table: &[u32]) -> String {
    let runs = table.chunk_by(|a, b| a == b);
    let runs: Vec<String> = runs
        .filter_map(|run| Some(format!("{}*{}", run.first()?, run.len())))
        .collect();
    runs.join(" ")
}

/// The opposite.
fn parse_table(text: &str) -> Option<Vec<u32>> {
    /// More than any NIC has.
    const MOST: usize = 1 << 16;
    let mut table = Vec::new();
    for run in text.split_ascii_whitespace() {
        let (queue, count) = run.split_once('*')?;
        let count = count.parse::<usize>().ok().filter(|count| *count <= MOST)?;
        table.extend(std::iter::repeat_n(queue.parse::<u32>().ok()?, count));
    }
    (!table.is_empty()).then_some(table)
}

/// An answer to `ETHTOOL_GRSSH` with so many entries and bytes of a key.
fn parse(answer: &[u8], entries: usize, key: usize) -> Rss {
    let word = |at: usize| answer.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let table = (0..entries).map_while(|entry| word(CONFIG + entry * 4)).collect();
    let key_at = CONFIG + entries * 4;
    let key = answer.get(key_at..key_at + key).unwrap_or_default().to_vec();
    Rss {
        function: match answer.get(16) {
            None | Some(0) => None,
            Some(1) => Some(HashFunction::Toeplitz),
            Some(2) => Some(HashFunction::Xor),
            Some(4) => Some(HashFunction::Crc32),
            Some(_) => Some(HashFunction::Other),
        },
        symmetry: match answer.get(17) {
            // https://elixir.bootlin.com/linux/v6.18/C/ident/RXH_XFRM_SYM_XOR
            None | Some(0) => None,
            Some(1) => Some(Symmetry::Xor),
            Some(2) => Some(Symmetry::OrXor),
            Some(_) => Some(Symmetry::Other),
        },
        key,
        table,
        fields: BTreeMap::new(),
    }
}

/// As `ethtool -x` prints it.
impl fmt::Display for HashFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Toeplitz => "toeplitz",
            Self::Xor => "xor",
            Self::Crc32 => "crc32",
            Self::Other => "one of its own",
        })
    }
}

/// "6d:5a:56:da", as `ethtool` takes it.
fn key_text<S: Serializer>(key: &[u8], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    let bytes: Vec<_> = key.iter().map(|byte| format!("{byte:02x}")).collect();
    serializer.serialize_str(&bytes.join(":"))
}

#[cfg(test)]
#[path = "rss_tests.rs"]
mod tests;

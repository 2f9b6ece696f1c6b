//! Hints of the XDP program in front of the packets of a run.

use serde::{Deserialize, Serialize};

/// What the packets' hints were, struct by struct.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HintsResult {
    /// The structs that the program can write, by id; those that no packet had, too.
    pub layouts: Vec<LayoutHints>,
    /// Packets without hints: the id in front of them was 0.
    pub absent_packets: u64,
    /// Packets with an id that no struct of the program has.
    pub unknown_packets: u64,
    /// Packets whose front could not be trusted, for the packet does not start where packets start.
    pub stale_packets: u64,
    /// Who stamped the packets, and what the NIC told about them; left out where the XDP program is not ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<NicHints>,
}

/// Who stamped the packets, and what the NIC's driver told about them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NicHints {
    /// The XDP program was loaded for the device and asked its driver.
    pub device_bound: bool,
    /// Why it did not.
    pub why_not: Option<String>,
    /// What the driver can tell, by the kernel's names; `None` where the kernel does not say.
    pub offers: Option<Vec<String>>,
    /// The three sources of stamps, the best first; each packet counts for the best that it has.
    pub stamps: Vec<StampCount>,
    /// Packets for which the driver said that it had a stamp, and the stamp was 0: these count for the next source.
    pub zero_hardware_stamps: u64,
    /// Hashes of flows.
    pub hash: HashHints,
    /// VLAN tags that the NIC took off.
    pub vlan: VlanHints,
}

/// Stamps of one source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StampCount {
    /// `hardware`, `xdp` or `application`.
    pub source: String,
    /// Whose time it is: `CLOCK_MONOTONIC`, or the NIC's clock such as `PHC /dev/ptp0`.
    pub clock: String,
    /// Packets that have no better one.
    pub packets: u64,
    /// The same in percent of all.
    pub percent: f64,
    /// The last one, in nanoseconds of that clock.
    pub last_ns: Option<u64>,
}

/// Hashes of flows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HashHints {
    /// Packets that had one.
    pub packets: u64,
    /// The same in percent of all.
    pub percent: f64,
    /// What was hashed, in the order of appearance.
    pub types: Vec<HashTypeCount>,
    /// The last hash.
    pub last: Option<u32>,
}

/// One kind of hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HashTypeCount {
    /// Such as `L4 IPv4 UDP`.
    pub name: String,
    /// As the kernel has it (`enum xdp_rss_hash_type`).
    pub bits: u32,
    /// Packets.
    pub packets: u64,
}

/// VLAN tags that the NIC took off.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VlanHints {
    /// Packets that had one.
    pub packets: u64,
    /// The same in percent of all.
    pub percent: f64,
    /// The tags, in the order of appearance: the first 64.
    pub tags: Vec<VlanCount>,
}

/// One VLAN tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VlanCount {
    /// Ethernet type of the tag: 33024 is 802.1Q, 34984 is 802.1ad.
    pub protocol: u16,
    /// The VLAN.
    pub id: u16,
    /// 0 to 7.
    pub priority: u16,
    /// To be dropped before others.
    pub drop_eligible: bool,
    /// Packets.
    pub packets: u64,
}

/// One struct.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LayoutHints {
    /// Its name.
    pub name: String,
    /// Its id in the program's BTF, which the packets carry.
    pub id: u32,
    /// Its bytes.
    pub size_bytes: u32,
    /// Packets that had it.
    pub packets: u64,
    /// Its fields but the id.
    pub fields: Vec<FieldHints>,
}

/// One field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FieldHints {
    /// Its name, with those of the structs around it.
    pub name: String,
    /// Bytes from the start of the struct.
    pub offset_bytes: u32,
    /// Bytes of the integer, or of an element.
    pub size_bytes: u32,
    /// Whether it has a sign.
    pub signed: bool,
    /// The least value; `None` before the first packet.
    pub min: Option<Number>,
    /// The greatest value.
    pub max: Option<Number>,
    /// The value of the last packet; of an array all elements.
    pub last: Vec<Number>,
}

/// An integer, with a sign or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Number {
    /// Without.
    Unsigned(u64),
    /// With; of one field all are of the same kind, so that they can be compared.
    Signed(i64),
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unsigned(value) => value.fmt(f),
            Self::Signed(value) => value.fmt(f),
        }
    }
}

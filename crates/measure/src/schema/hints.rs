//! Hints of the XDP program in front of the packets of a run.

use serde::{Deserialize, Serialize};

/// What the packets' hints were, struct by struct.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HintsResult {
    /// The structs that the program can write, by id; those that no packet had, too.
    pub layouts: Vec<LayoutHints>,
    /// Packets without hints: the id in front of them was 0.
    pub absent_packets: u64,
    /// Packets with an id that no struct of the program has.
    pub unknown_packets: u64,
    /// Packets whose front could not be trusted, for the packet does not start where packets start.
    pub stale_packets: u64,
}

/// One struct.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

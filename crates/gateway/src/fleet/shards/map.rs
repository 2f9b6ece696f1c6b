//! Who owns which shard: the value of `v1/shards/map`.
//!
//! ```text
//! 0        1             9          11               11 + 8n              2059 + 8n
//! ┌────────┬─────────────┬──────────┬────────────────┬────────────────────┬─────────┐
//! │ 1      │ generation  │ n        │ names of n     │ owner of each of   │ CRC-32  │
//! │ format │ 64 bits     │ 16 bits  │ members        │ 1024 shards        │ of all  │
//! └────────┴─────────────┴──────────┴────────────────┴────────────────────┴─────────┘
//! ```
//! Big-endian. An owner is a place among the names, 0xffff nobody. One key, so that it changes as a whole: 2 KB, and 8 bytes for each
//! member that owns something.

use std::collections::BTreeMap;

use ringside_gateway_core::shard::{MemberId, SHARDS, Shard};

const FORMAT: u8 = 1;
const NOBODY: u16 = u16::MAX;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// How often it has changed.
    pub generation: u64,
    owners: Vec<Option<MemberId>>,
}

impl Default for Map {
    fn default() -> Self {
        Self {
            generation: 0,
            owners: vec![None; SHARDS as usize],
        }
    }
}

impl Map {
    /// Who owns a shard.
    #[must_use]
    pub fn owner(&self, shard: Shard) -> Option<MemberId> {
        self.owners.get(shard.number() as usize).copied().flatten()
    }

    /// Gives a shard to somebody.
    pub fn set(&mut self, shard: Shard, owner: MemberId) {
        if let Some(place) = self.owners.get_mut(shard.number() as usize) {
            *place = Some(owner);
        }
    }

    /// All shards, with their owners.
    pub fn iter(&self) -> impl Iterator<Item = (Shard, Option<MemberId>)> {
        Shard::all().zip(self.owners.iter().copied())
    }

    /// How many shards somebody owns.
    #[must_use]
    pub fn count(&self, member: MemberId) -> usize {
        self.owners.iter().filter(|owner| **owner == Some(member)).count()
    }

    /// As its key holds it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut places: BTreeMap<MemberId, u16> = self.owners.iter().flatten().map(|id| (*id, 0)).collect();
        for (number, place) in (0..).zip(places.values_mut()) {
            *place = number;
        }
        let mut bytes = vec![FORMAT];
        bytes.extend(self.generation.to_be_bytes());
        bytes.extend(u16::try_from(places.len()).unwrap_or(NOBODY).to_be_bytes());
        bytes.extend(places.keys().flat_map(|id| id.0.to_be_bytes()));
        let place = |owner: &Option<MemberId>| owner.and_then(|id| places.get(&id)).copied().unwrap_or(NOBODY);
        bytes.extend(self.owners.iter().flat_map(|owner| place(owner).to_be_bytes()));
        bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
        bytes
    }

    /// From what a key holds.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let short = || format!("a shard map of {} bytes", bytes.len());
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(short)?;
        if crc32fast::hash(body) != u32::from_be_bytes(*sum) {
            return Err("a shard map that does not match its checksum".to_owned());
        }
        let (format, rest) = body.split_first().ok_or_else(short)?;
        if *format != FORMAT {
            return Err(format!(
                "a shard map of format {format}, which this program does not know"
            ));
        }
        let (generation, rest) = rest.split_first_chunk::<8>().ok_or_else(short)?;
        let (count, rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
        let (names, places) = rest
            .split_at_checked(8 * usize::from(u16::from_be_bytes(*count)))
            .ok_or_else(short)?;
        let names: Vec<MemberId> = (names.as_chunks::<8>().0.iter())
            .map(|name| MemberId(u64::from_be_bytes(*name)))
            .collect();
        let (places, odd) = places.as_chunks::<2>();
        if places.len() != SHARDS as usize || !odd.is_empty() {
            return Err(short());
        }
        let owner = |place: &[u8; 2]| match u16::from_be_bytes(*place) {
            NOBODY => Ok(None),
            place => (names.get(usize::from(place)).copied().map(Some))
                .ok_or_else(|| format!("a shard map that names member {place} of {}", names.len())),
        };
        Ok(Self {
            generation: u64::from_be_bytes(*generation),
            owners: places.iter().map(owner).collect::<Result<_, _>>()?,
        })
    }
}

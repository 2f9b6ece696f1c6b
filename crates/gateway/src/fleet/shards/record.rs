//! What a member says of itself: the value of `v1/gateways/ID`, JSON, for operators look there.

use std::net::IpAddr;

use ringside_gateway_core::shard::{Member, MemberId};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What it is called, and by what it is known after a restart.
    pub name: String,
    /// A number of this run of the program: of two that have one name the one that came last is believed.
    pub run: u64,
    /// Its share, beside the others'.
    pub weight: u32,
    /// Where hosts send to: one of each family at the most.
    pub addresses: Vec<IpAddr>,
    /// Where other members reach its API, `https://HOST:PORT`; None if it is on no network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// It knows all that the fleet knew when it came.
    pub synced: bool,
    /// It is to be taken out of service.
    pub draining: bool,
}

impl Record {
    /// The number that its name stands for.
    #[must_use]
    pub fn id(&self) -> MemberId {
        id(&self.name)
    }

    /// As the planner sees it.
    #[must_use]
    pub fn member(&self) -> Member {
        Member {
            id: self.id(),
            weight: self.weight,
            is_synced: self.synced,
            is_draining: self.draining,
        }
    }

    /// What its key holds.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // Text, numbers and lists: it has nothing that JSON has not.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// From what a key holds.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(value: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(value).map_err(|error| error.to_string())
    }
}

/// The number that a name stands for: the first 64 bits of its SHA-256.
#[must_use]
pub fn id(name: &str) -> MemberId {
    let digest = Sha256::digest(name.as_bytes());
    let first = digest.iter().take(8);
    MemberId(first.fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

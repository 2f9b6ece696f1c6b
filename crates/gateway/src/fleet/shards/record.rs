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
    /// Its shards go to others: it is to be taken out of service, or [`Record::cut_off`].
    pub draining: bool,
    /// No packet reaches it: none of its interfaces has a link.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut_off: bool,
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

    /// What hosts cannot do that use an IP family of which other members have an address and this one has none.
    #[must_use]
    pub fn lacks_family<'a>(&self, others: impl Iterator<Item = &'a Self>) -> Option<String> {
        let has = |record: &Self, is_v4: bool| record.addresses.iter().any(|ip| ip.is_ipv4() == is_v4);
        let others: Vec<&Self> = others.collect();
        let lacks = [(true, "IPv4"), (false, "IPv6")]
            .into_iter()
            .find_map(|(is_v4, family)| {
                let other = others.iter().find(|other| has(other, is_v4) && !has(self, is_v4))?;
                Some((family, &other.name))
            });
        lacks.map(|(family, other)| {
            format!(
                "this gateway has no {family} address in fleet.addresses, and {other} has one: hosts that use {family} cannot send to this one when \
                 a network is its own; give it one"
            )
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str, addresses: &[&str]) -> Record {
        Record {
            name: name.to_owned(),
            run: 1,
            weight: 100,
            addresses: addresses.iter().map(|ip| ip.parse().expect("an address")).collect(),
            api: None,
            synced: true,
            draining: false,
            cut_off: false,
        }
    }

    #[test]
    fn who_lacks_a_family_that_others_have_says_so() {
        let (both, v4, v6) = (
            at("both", &["192.0.2.1", "2001:db8::1"]),
            at("four", &["192.0.2.2"]),
            at("six", &["2001:db8::2"]),
        );
        assert_eq!(v4.lacks_family([&v4, &v4].into_iter()), None, "nobody has another");
        assert_eq!(both.lacks_family([&both, &v4, &v6].into_iter()), None);
        let said = v4.lacks_family([&v4, &both].into_iter()).expect("it lacks one");
        assert!(
            said.contains("no IPv6 address") && said.contains("both has one"),
            "{said}"
        );
        let said = v6.lacks_family([&v4].into_iter()).expect("it lacks one");
        assert!(
            said.contains("no IPv4 address") && said.contains("four has one"),
            "{said}"
        );
    }

    #[test]
    fn what_an_older_program_wrote_is_read_and_what_is_written_is_read_by_it() {
        let old = r#"{"name":"a","run":1,"weight":100,"addresses":["192.0.2.1"],"synced":true,"draining":false}"#;
        let record = Record::decode(old.as_bytes()).expect("a record");
        assert_eq!(record, at("a", &["192.0.2.1"]));
        assert_eq!(record.encode(), old.as_bytes());
    }
}

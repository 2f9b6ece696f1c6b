//! What is asked of etcd past all gateways, and done to it.

use std::collections::BTreeMap;
use std::fs::File;

use ringside_gateway::fleet::shards::Map;
use ringside_netlab::wait_until;

use super::cluster::{Cluster, PATIENCE};
use super::history::{Key, State};
use super::objects::in_etcd;
use super::ownership::Owners;

/// What all keys begin with.
pub(crate) const PREFIX: &str = "/ringside/gateway/";

impl Cluster {
    /// A key of a kind: `neighbors`, `ports`, `groups`.
    fn some_key(&self, kind: &str) -> String {
        let prefix = format!("{PREFIX}v1/{kind}/");
        let words = ["get", "--prefix", &prefix, "--keys-only", "--limit", "1"];
        let key = || self.members[0].ctl(&words).expect("it answers").trim().to_owned();
        assert!(wait_until(PATIENCE, || key().starts_with(&prefix)), "no key of {kind}");
        key()
    }

    /// Removes a key, past all rules. Which one that was.
    pub(crate) fn remove(&self, kind: &str) -> String {
        let key = self.some_key(kind);
        assert_eq!(self.members[0].ctl(&["del", &key]).as_deref(), Some("1\n"));
        key
    }

    /// All that etcd holds of objects, by a read of its own.
    pub(crate) fn objects(&self) -> BTreeMap<Key, State> {
        let words = ["get", "--prefix", &format!("{PREFIX}v1/"), "--hex"];
        let said = self.members[0].ctl(&words).expect("it answers");
        let bytes = |line: &str| -> Vec<u8> {
            let digits = line.split("\\x").skip(1);
            digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect()
        };
        let lines: Vec<Vec<u8>> = said.lines().map(bytes).collect();
        let pairs = lines.as_chunks::<2>().0.iter();
        pairs
            .flat_map(|[key, value]| in_etcd(key.strip_prefix(PREFIX.as_bytes()).unwrap(), value))
            .collect()
    }

    /// Puts what a key of a kind held a while ago in the place of what it holds now. Which key that was.
    pub(crate) fn put_back(&self, kind: &str) -> String {
        let key = self.some_key(kind);
        let before = self.value(&key);
        let is_other = || self.value(&key) != before;
        assert!(wait_until(PATIENCE, is_other), "nobody writes {key}");
        self.put_value(&key, &before);
        key
    }

    /// What a key holds.
    pub(crate) fn value(&self, key: &str) -> Vec<u8> {
        let mut get = self.members[0].command(&["get", key, "--print-value-only"]);
        let mut value = get.output().unwrap().stdout;
        assert_eq!(value.pop(), Some(b'\n'), "a line, says etcdctl");
        value
    }

    /// Puts something in the place of what a key holds, past all rules.
    pub(crate) fn put_value(&self, key: &str, value: &[u8]) {
        let member = &self.members[0];
        let copy = member.folder.join("copy");
        std::fs::write(&copy, value).unwrap();
        let mut put = member.command(&["put", key]);
        let done = put.stdin(File::open(&copy).unwrap()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Who owns what, by the key that says so; and how often that has changed.
    pub(crate) fn shard_map(&self) -> (u64, Owners) {
        let map = Map::decode(&self.value(&format!("{PREFIX}v1/shards/map"))).unwrap();
        let owners = map.iter().map(|(_, owner)| owner.map_or(0, |owner| owner.0));
        (map.generation, owners.collect())
    }
}

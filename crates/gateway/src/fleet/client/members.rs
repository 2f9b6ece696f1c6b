//! What a member of a fleet asks: leases, its own key, the others', and who owns what.

use std::time::Duration;

use etcd_client::{
    Compare, CompareOp, Error, EventType, GetOptions, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse, WatchOptions,
    WatchRequestSender, WatchResponse, WatchResponseStream,
};
use ringside_gateway_core::shard::MemberId;

use super::{Etcd, failed, number, revision_of, why};
use crate::fleet::key::{GATEWAYS, SHARD_MAP};
use crate::fleet::shards::{Changed, Entry, Listed, MapEntry, Outcome, Proposal, Registration};

/// The key of a member.
fn gateway(id: MemberId) -> String {
    format!("{GATEWAYS}{:016x}", id.0)
}

fn number_of(key: &[u8]) -> Option<MemberId> {
    let text = std::str::from_utf8(key).ok()?;
    let digits = text.rsplit('/').next().filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok().map(MemberId)
}

fn entry(pair: &KeyValue, is_put: bool) -> Option<Entry> {
    Some(Entry {
        id: number_of(pair.key())?,
        value: is_put.then(|| pair.value().to_vec()),
        revision: number(pair.mod_revision()),
        lease: pair.lease(),
    })
}

fn map(pair: &KeyValue, is_put: bool) -> MapEntry {
    MapEntry {
        value: is_put.then(|| pair.value().to_vec()),
        revision: number(pair.mod_revision()),
    }
}

impl Etcd {
    /// A lease for so long, in whole seconds; and how long etcd made it.
    pub(crate) async fn grant(&self, time: Duration) -> Result<(i64, Duration), String> {
        let mut lease = self.lease.clone();
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let granted = self.within(lease.grant(seconds, None)).await.map_err(why)?;
        Ok((granted.id(), Duration::from_secs(number(granted.ttl()))))
    }

    /// False if the lease is over.
    pub(crate) async fn keep(&self, id: i64) -> Result<bool, String> {
        let mut lease = self.lease.clone();
        match lease.keep_alive(id).await {
            Ok(_) => Ok(true),
            Err(Error::LeaseKeepAliveError(said)) if said.contains("not found") => Ok(false),
            Err(error) => Err(why(failed(&error))),
        }
    }

    /// It is over now, and the keys that go with it are gone.
    pub(crate) async fn revoke(&self, id: i64) -> Result<(), String> {
        let mut lease = self.lease.clone();
        self.within(lease.revoke(id)).await.map(drop).map_err(why)
    }

    /// How long a lease lives on, if nobody says anything; None if it is over.
    pub(crate) async fn left(&self, id: i64) -> Result<Option<Duration>, String> {
        let mut lease = self.lease.clone();
        let told = self.within(lease.time_to_live(id, None)).await.map_err(why)?;
        Ok((told.ttl() >= 0).then(|| Duration::from_secs(number(told.ttl()))))
    }

    /// Writes the own key; None if it is other than expected.
    pub(crate) async fn register(&self, registration: &Registration) -> Result<Option<u64>, String> {
        let name = self.name(gateway(registration.id));
        let is = |revision: u64| Compare::mod_revision(&*name, CompareOp::Equal, revision.cast_signed());
        let compares: Vec<Compare> = registration.expected.map(is).into_iter().collect();
        let put = PutOptions::new().with_lease(registration.lease);
        let transaction = Txn::new()
            .when(compares)
            .and_then([TxnOp::put(&*name, &*registration.value, Some(put))]);
        let answer = self.transact(transaction).await.map_err(super::Refused::why)?;
        Ok(answer.succeeded().then(|| revision_of(answer.header())))
    }

    /// All members and the map, as a quorum knows them.
    pub(crate) async fn list_members(&self) -> Result<Listed, String> {
        let members = GetOptions::new().with_prefix();
        let all = Txn::new().and_then([
            TxnOp::get(self.name(GATEWAYS), Some(members)),
            TxnOp::get(self.name(SHARD_MAP), None),
        ]);
        let answer = self.transact(all).await.map_err(super::Refused::why)?;
        let mut listed = Listed {
            revision: revision_of(answer.header()),
            members: Vec::new(),
            map: None,
        };
        let mut answers = answer.op_responses().into_iter();
        if let Some(TxnOpResponse::Get(members)) = answers.next() {
            listed.members = members.kvs().iter().filter_map(|pair| entry(pair, true)).collect();
        }
        if let Some(TxnOpResponse::Get(found)) = answers.next() {
            listed.map = found.kvs().first().map(|pair| map(pair, true));
        }
        Ok(listed)
    }

    /// What changes of them from a revision on.
    pub(crate) async fn watch_members(&self, from: u64) -> Result<(WatchRequestSender, WatchResponseStream), String> {
        let options = || WatchOptions::new().with_start_revision(from.cast_signed());
        let mut watch = self.watch.clone();
        let members = watch.watch(self.name(GATEWAYS), Some(options().with_prefix()));
        let stream = self.within(members).await.map_err(why)?;
        let (mut requests, answers) = stream.split();
        let map = requests.watch(self.name(SHARD_MAP), Some(options()));
        self.within(map).await.map_err(why)?;
        Ok((requests, answers))
    }

    /// What such a watch has told, or why it is over.
    pub(crate) fn heard_of_members(&self, answer: &WatchResponse) -> Result<Vec<Changed>, String> {
        if answer.canceled() {
            return Err(format!("etcd has ended the watch: {}", answer.cancel_reason()));
        }
        let the_map = self.name(SHARD_MAP).into_bytes();
        let changed = answer.events().iter().filter_map(|event| {
            let is_put = event.event_type() == EventType::Put;
            let pair = event.kv()?;
            if pair.key() == the_map {
                return Some(Changed::Map(map(pair, is_put)));
            }
            entry(pair, is_put).map(Changed::Member)
        });
        Ok(changed.collect())
    }

    /// Another map, if everything is so.
    pub(crate) async fn propose(&self, proposal: &Proposal) -> Result<Outcome, String> {
        let name = self.name(SHARD_MAP);
        let is = |key: String, revision: u64| Compare::mod_revision(key, CompareOp::Equal, revision.cast_signed());
        let present = proposal.present.iter().map(|(id, revision)| (*id, *revision));
        let absent = proposal.absent.iter().copied();
        let members = present
            .chain(absent)
            .map(|(id, revision)| is(self.name(gateway(id)), revision));
        let compares: Vec<Compare> = std::iter::once(is(name.clone(), proposal.revision))
            .chain(members)
            .collect();
        let transaction = Txn::new()
            .when(compares)
            .and_then([TxnOp::put(&*name, &*proposal.map, None)])
            .or_else([TxnOp::get(&*name, None)]);
        let answer = self.transact(transaction).await.map_err(super::Refused::why)?;
        if answer.succeeded() {
            return Ok(Outcome::Made(revision_of(answer.header())));
        }
        let found = answer.op_responses().into_iter().find_map(|answer| match answer {
            TxnOpResponse::Get(found) => found.kvs().first().map(|pair| map(pair, true)),
            _ => None,
        });
        Ok(Outcome::Otherwise(found))
    }
}

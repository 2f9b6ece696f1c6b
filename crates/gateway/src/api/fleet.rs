//! Who takes part in a fleet, and who owns what.

use std::collections::BTreeMap;

use ringside_gateway_core::Vni;
use ringside_gateway_core::shard::{MemberId, Shard};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{Answers, Api, invalid};
use crate::fleet::baggage::take;
use crate::fleet::shards::{Map, Membership, Peer};
use crate::fleet::{Known, Member};
use crate::object::wire;
use crate::proto;
use crate::proto::fleet_service_server::FleetService;

/// Changes that may wait for who watches; those after them are put together.
const WAITING: usize = 4;
/// Members whose leases are asked for at a time: each is a question to etcd.
const MOST_LEASES: usize = 64;

fn gateway(id: MemberId, peer: Option<&Peer>, map: &Map) -> proto::Gateway {
    let mut message = proto::Gateway {
        id: id.0,
        shards: u32::try_from(map.count(id)).unwrap_or(u32::MAX),
        ..Default::default()
    };
    if let Some(Peer { record, .. }) = peer {
        message.name.clone_from(&record.name);
        message.addresses = record
            .addresses
            .iter()
            .map(|ip| wire::host_ip_bytes(Some(*ip)))
            .collect();
        message.api = record.api.clone().unwrap_or_default();
        message.weight = record.weight;
        message.synced = record.synced;
        message.draining = record.draining;
        message.cut_off = record.cut_off;
    }
    message
}

fn membership(membership: &Membership) -> (proto::Membership, String) {
    match membership {
        Membership::Joining(why) => (proto::Membership::Joining, why.clone().unwrap_or_default()),
        Membership::Member => (proto::Membership::Member, String::new()),
        Membership::Lapsed(why) => (proto::Membership::Lapsed, why.clone()),
        Membership::Replaced(why) => (proto::Membership::Replaced, why.clone()),
    }
}

fn gateways(known: &Known) -> Vec<proto::Gateway> {
    let peers = known.peers.iter();
    peers.map(|(id, peer)| gateway(*id, Some(peer), &known.map)).collect()
}

/// All that there is, or what differs from what was told before.
fn told(before: Option<&Known>, now: &Known) -> Option<proto::WatchShardsResponse> {
    let is_new = |shard: Shard, owner| before.is_none_or(|before| before.map.owner(shard) != owner);
    let owners: Vec<_> = (now.map.iter())
        .filter(|(shard, owner)| is_new(*shard, *owner))
        .map(|(shard, owner)| proto::ShardOwner {
            shard: shard.number(),
            gateway: owner.map_or(0, |owner| owner.0),
        })
        .collect();
    let records = |known: &Known| -> BTreeMap<_, _> {
        known
            .peers
            .iter()
            .map(|(id, peer)| (*id, peer.record.clone()))
            .collect()
    };
    let has_new_peers = before.is_none_or(|before| records(before) != records(now));
    // A map that has changed and is what it was before is another one, for who compares numbers.
    let state = |known: &Known| (known.is_followed(), known.map.generation);
    let is_same = before.is_some_and(|before| state(before) == state(now));
    if is_same && owners.is_empty() && !has_new_peers {
        return None;
    }
    Some(proto::WatchShardsResponse {
        generation: now.map.generation,
        whole: before.is_none(),
        owners,
        gateways: if has_new_peers { gateways(now) } else { Vec::new() },
        current: now.is_followed(),
    })
}

impl Api {
    fn member(&self) -> Result<&Member, Status> {
        let none = || {
            Status::failed_precondition("this gateway takes part in no fleet: it has no [fleet] in its configuration")
        };
        self.member.as_ref().ok_or_else(none)
    }
}

#[tonic::async_trait]
impl FleetService for Api {
    async fn get_fleet(
        &self,
        request: Request<proto::GetFleetRequest>,
    ) -> Result<Response<proto::GetFleetResponse>, Status> {
        let member = self.member()?;
        let known = member.known();
        let leases: Vec<i64> = known.peers.values().map(|peer| peer.lease).take(MOST_LEASES).collect();
        let left = match request.into_inner().leases && known.is_followed() {
            true => member.leases_left(&leases).await,
            false => BTreeMap::new(),
        };
        let (membership, reason) = membership(&known.membership);
        let is_orphaned = |owner: Option<MemberId>| owner.is_none_or(|owner| !known.peers.contains_key(&owner));
        let orphaned = known.map.iter().filter(|(_, owner)| is_orphaned(*owner)).count();
        let of = |(id, peer): (&MemberId, &Peer)| proto::FleetMember {
            gateway: Some(gateway(*id, Some(peer), &known.map)),
            lease_seconds: left.get(&peer.lease).map(std::time::Duration::as_secs),
        };
        Ok(Response::new(proto::GetFleetResponse {
            membership: membership.into(),
            reason,
            id: known.me.0,
            lease_milliseconds: member
                .lease_left()
                .map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            generation: known.map.generation,
            members: known.peers.iter().map(of).collect(),
            orphaned_shards: u32::try_from(orphaned).unwrap_or(u32::MAX),
            drained: known.is_drained,
            foreign_packets: member.foreign_packets(),
        }))
    }

    async fn get_gateway(
        &self,
        request: Request<proto::GetGatewayRequest>,
    ) -> Result<Response<proto::GetGatewayResponse>, Status> {
        let known = self.member()?.known();
        let number = request.into_inner().vni;
        let vni = Vni::new(number).ok_or_else(|| invalid(format!("vni: {number} has more than 24 bits")))?;
        let owner = known.owner(vni);
        Ok(Response::new(proto::GetGatewayResponse {
            shard: Shard::of(vni).number(),
            gateway: owner.map(|(id, peer)| gateway(id, peer, &known.map)),
            generation: known.map.generation,
            current: known.is_followed(),
        }))
    }

    type WatchShardsStream = Answers<proto::WatchShardsResponse>;

    async fn watch_shards(
        &self,
        _: Request<proto::WatchShardsRequest>,
    ) -> Result<Response<Self::WatchShardsStream>, Status> {
        let mut watch = self.member()?.watch();
        let (to, answers) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            let mut before: Option<Known> = None;
            loop {
                let now = watch.borrow_and_update().clone();
                if let Some(message) = told(before.as_ref(), &now)
                    && to.send(Ok(message)).await.is_err()
                {
                    return;
                }
                before = Some(now);
                tokio::select! {
                    changed = watch.changed() => if changed.is_err() {
                        return;
                    },
                    () = to.closed() => return,
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn take_connections(
        &self,
        request: Request<Streaming<proto::TakeConnectionsRequest>>,
    ) -> Result<Response<proto::TakeConnectionsResponse>, Status> {
        self.member()?;
        let mut stream = request.into_inner();
        let mut answer = proto::TakeConnectionsResponse::default();
        while let Some(message) = stream.message().await? {
            for connection in &message.connections {
                match take(self.model.tables(), connection).map_err(invalid)? {
                    true => answer.taken += 1,
                    false => answer.left += 1,
                }
            }
            // Others want to be answered, too.
            tokio::task::yield_now().await;
        }
        Ok(Response::new(answer))
    }
}

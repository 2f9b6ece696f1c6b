//! Objects of all kinds by number, as writers write them, gateways tell them and etcd holds them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use ringside_gateway::fleet::item::Item;
use ringside_gateway::fleet::key;
use ringside_gateway::fleet::value::Entry;
use ringside_gateway::object::{Object, Statement};
use ringside_gateway::proto;
use ringside_gateway::proto::neighbor_service_client::NeighborServiceClient;
use ringside_gateway::proto::port_service_client::PortServiceClient;
use ringside_gateway::proto::security_group_service_client::SecurityGroupServiceClient;
use ringside_gateway_core::TenantAddress;
use tokio_stream::StreamExt as _;
use tonic::transport::{Channel, Endpoint};

use super::common::{list_all, neighbor};
use super::history::{Answer, Key, State};
use super::movers::Told;

/// Networks and groups from here on are tenants': they stay as they are, and nothing of them is looked at here.
pub(crate) const NETWORKS: u32 = 40;
pub(crate) const GROUPS: u32 = 1000;

/// None if nobody is there just now.
pub(crate) async fn connect(socket: &Path) -> Option<Clients> {
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
    let channel = endpoint.connect().await.ok()?;
    Some(Clients {
        neighbors: NeighborServiceClient::new(channel.clone()),
        ports: PortServiceClient::new(channel.clone()),
        groups: SecurityGroupServiceClient::new(channel),
    })
}

/// A gateway's API.
#[derive(Clone)]
pub(crate) struct Clients {
    pub(crate) neighbors: NeighborServiceClient<Channel>,
    ports: PortServiceClient<Channel>,
    groups: SecurityGroupServiceClient<Channel>,
}

/// Everything of one kind: an answer says all of it, or a page.
const PAGE: u32 = 10_000;

fn address(number: u32) -> proto::TenantAddress {
    neighbor(number, 1).address.unwrap()
}

/// None of tenants'.
fn number_at(address: Option<&proto::TenantAddress>) -> Option<u32> {
    let address = address.expect("an address");
    let ip = &address.ip;
    (address.vni < NETWORKS).then(|| u32::from_be_bytes([0, ip[1], ip[2], ip[3]]))
}

fn port(number: u32, version: u64) -> proto::Port {
    proto::Port {
        address: Some(address(number)),
        groups: vec![1, 2 + u32::try_from(version % 5).unwrap()],
        version,
    }
}

fn group(number: u32, version: u64) -> proto::SecurityGroup {
    let rule = |id: u64| proto::Rule {
        id,
        direction: proto::Direction::Ingress.into(),
        protocol: Some(6),
        ..Default::default()
    };
    proto::SecurityGroup {
        id: number + 1,
        name: format!("version {version}"),
        rules: (1..2 + version % 20).map(rule).collect(),
        version,
    }
}

/// None: the connection is gone, and it is not known what came of it.
fn answer<T>(said: Result<tonic::Response<T>, tonic::Status>, outcome: impl Fn(T) -> proto::Outcome) -> Option<Answer> {
    use proto::Outcome::{Created, Deleted, NotFound, Older, Replaced, Unchanged};
    match said {
        Ok(said) => match outcome(said.into_inner()) {
            // A try whose answer was lost has made it.
            Created | Replaced | Unchanged | Deleted | NotFound => Some(Answer::Made),
            Older => Some(Answer::Older),
            other => panic!("{other:?}"),
        },
        Err(status) if status.message().contains("not known whether") => Some(Answer::Unknown),
        Err(status) if status.message().contains("nothing can be changed") => Some(Answer::Refused),
        Err(status) => {
            use tonic::Code::{Cancelled, Internal, Unavailable, Unknown};
            let is_connection = matches!(status.code(), Cancelled | Internal | Unavailable | Unknown);
            assert!(is_connection, "{status}");
            None
        }
    }
}

/// A statement, by one call of its service.
macro_rules! say {
    ($client:expr, $call:ident, $request:ident, $field:ident, $object:expr) => {{
        #[allow(clippy::needless_update, reason = "requests to delete have more fields")]
        let request = proto::$request {
            $field: vec![$object],
            ..Default::default()
        };
        answer($client.$call(request).await, |said| {
            said.outcomes().next().expect("one")
        })
    }};
}

impl Clients {
    /// Puts an object, or deletes it.
    pub(crate) async fn write(&mut self, key: Key, state: State) -> Option<Answer> {
        let State { version, is_there } = state;
        let gone = |number| proto::AddressVersion {
            address: Some(address(number)),
            version,
        };
        match (key, is_there) {
            (Key::Neighbor(number), true) => {
                say!(
                    self.neighbors,
                    put_neighbors,
                    PutNeighborsRequest,
                    neighbors,
                    neighbor(number, version)
                )
            }
            (Key::Neighbor(number), false) => {
                say!(
                    self.neighbors,
                    delete_neighbors,
                    DeleteNeighborsRequest,
                    neighbors,
                    gone(number)
                )
            }
            (Key::Port(number), true) => say!(self.ports, put_ports, PutPortsRequest, ports, port(number, version)),
            (Key::Port(number), false) => say!(self.ports, delete_ports, DeletePortsRequest, ports, gone(number)),
            (Key::Group(number), true) => {
                say!(
                    self.groups,
                    put_security_groups,
                    PutSecurityGroupsRequest,
                    groups,
                    group(number, version)
                )
            }
            (Key::Group(number), false) => {
                let gone = proto::SecurityGroupVersion {
                    id: number + 1,
                    version,
                };
                say!(
                    self.groups,
                    delete_security_groups,
                    DeleteSecurityGroupsRequest,
                    groups,
                    gone
                )
            }
        }
    }

    /// Says something of what moves.
    pub(crate) async fn tell(&mut self, told: Told) -> Option<Answer> {
        match told {
            Told::Neighbor(put) => say!(self.neighbors, put_neighbors, PutNeighborsRequest, neighbors, put),
            Told::NoNeighbor(gone) => say!(
                self.neighbors,
                delete_neighbors,
                DeleteNeighborsRequest,
                neighbors,
                gone
            ),
            Told::Port(put) => say!(self.ports, put_ports, PutPortsRequest, ports, put),
            Told::NoPort(gone) => say!(self.ports, delete_ports, DeletePortsRequest, ports, gone),
            Told::Group(put) => say!(self.groups, put_security_groups, PutSecurityGroupsRequest, groups, put),
        }
    }

    /// Puts neighbours in batches. How many of these were answered.
    pub(crate) async fn load(&mut self, batches: &[Vec<(Key, u64)>]) -> usize {
        let request = |batch: &Vec<(Key, u64)>| proto::LoadNeighborsRequest {
            neighbors: batch
                .iter()
                .map(|(key, version)| match key {
                    Key::Neighbor(number) => neighbor(*number, *version),
                    other => panic!("{other:?} is no neighbour"),
                })
                .collect(),
            next_version: false,
        };
        let requests: Vec<_> = batches.iter().map(request).collect();
        let Ok(answers) = self.neighbors.load_neighbors(tokio_stream::iter(requests)).await else {
            return 0;
        };
        let (mut answers, mut done) = (answers.into_inner(), 0);
        while let Some(Ok(told)) = answers.next().await {
            done = usize::try_from(told.batches).unwrap();
        }
        done
    }

    /// What a gateway holds, by what it lists; and what it remembers of those of these that are gone.
    pub(crate) async fn held(&mut self, written: impl IntoIterator<Item = Key>) -> BTreeMap<Key, State> {
        let mut held: BTreeMap<Key, State> = self.neighbors().await;
        let page = Some(proto::PageRequest {
            size: PAGE,
            token: Vec::new(),
        });
        let request = proto::ListPortsRequest {
            page: page.clone(),
            filter: None,
        };
        let ports = self.ports.list_ports(request).await.unwrap().into_inner().ports;
        held.extend(ports.iter().filter_map(told_port));
        let request = proto::ListSecurityGroupsRequest { page };
        let groups = self
            .groups
            .list_security_groups(request)
            .await
            .unwrap()
            .into_inner()
            .groups;
        held.extend(groups.iter().filter_map(told_group));
        for key in written {
            if !held.contains_key(&key)
                && let Some(version) = self.deleted(key).await
            {
                held.insert(key, State::gone(version));
            }
        }
        held
    }

    /// Neighbours that a gateway lists.
    pub(crate) async fn neighbors(&mut self) -> BTreeMap<Key, State> {
        let all = list_all(&mut self.neighbors, PAGE).await;
        all.iter().filter_map(told_neighbor).collect()
    }

    /// In which version it was deleted, if that is so and remembered.
    async fn deleted(&mut self, key: Key) -> Option<u64> {
        let deleted = true;
        let found = match key {
            Key::Neighbor(number) => {
                let request = proto::GetNeighborRequest {
                    address: Some(address(number)),
                    deleted,
                };
                let found = self.neighbors.get_neighbor(request).await;
                found.map(|found| found.into_inner().deleted_version)
            }
            Key::Port(number) => {
                let request = proto::GetPortRequest {
                    address: Some(address(number)),
                    deleted,
                };
                let found = self.ports.get_port(request).await;
                found.map(|found| found.into_inner().deleted_version)
            }
            Key::Group(number) => {
                let request = proto::GetSecurityGroupRequest {
                    id: number + 1,
                    deleted,
                };
                let found = self.groups.get_security_group(request).await;
                found.map(|found| found.into_inner().deleted_version)
            }
        };
        match found {
            Ok(version) => version,
            Err(status) if status.code() == tonic::Code::NotFound => None,
            Err(status) => panic!("{status}"),
        }
    }

    /// Tells what the watches of a gateway tell, once all of them have begun, until one of them ends.
    pub(crate) async fn watch(&mut self, begun: impl FnOnce(), mut told: impl FnMut(Vec<(Key, State)>)) -> Option<()> {
        let neighbors = self
            .neighbors
            .watch_neighbors(proto::WatchNeighborsRequest::default())
            .await;
        let mut neighbors = neighbors.ok()?.into_inner();
        let mut ports = self
            .ports
            .watch_ports(proto::WatchPortsRequest::default())
            .await
            .ok()?
            .into_inner();
        let groups = self
            .groups
            .watch_security_groups(proto::WatchSecurityGroupsRequest::default())
            .await;
        let mut groups = groups.ok()?.into_inner();
        begun();
        loop {
            told(tokio::select! {
                said = neighbors.message() => said.ok()??.events.iter().filter_map(|event| match event.event.as_ref()? {
                    proto::neighbor_event::Event::Put(put) => told_neighbor(put),
                    proto::neighbor_event::Event::Deleted(gone) => {
                        Some((Key::Neighbor(number_at(gone.address.as_ref())?), State::gone(gone.version)))
                    }
                }).collect(),
                said = ports.message() => said.ok()??.events.iter().filter_map(|event| match event.event.as_ref()? {
                    proto::port_event::Event::Put(put) => told_port(put),
                    proto::port_event::Event::Deleted(gone) => {
                        Some((Key::Port(number_at(gone.address.as_ref())?), State::gone(gone.version)))
                    }
                }).collect(),
                said = groups.message() => said.ok()??.events.iter().filter_map(|event| match event.event.as_ref()? {
                    proto::security_group_event::Event::Put(put) => told_group(put),
                    proto::security_group_event::Event::Deleted(gone) => Some((Key::Group(gone.id - 1), State::gone(gone.version))),
                }).collect(),
            });
        }
    }
}

/// What it says has to be what was written in that version.
fn told_neighbor(told: &proto::Neighbor) -> Option<(Key, State)> {
    let number = number_at(told.address.as_ref())?;
    assert_eq!(*told, neighbor(number, told.version), "nobody wrote it so");
    Some((Key::Neighbor(number), State::there(told.version)))
}

fn told_port(told: &proto::Port) -> Option<(Key, State)> {
    let number = number_at(told.address.as_ref())?;
    assert_eq!(*told, port(number, told.version), "nobody wrote it so");
    Some((Key::Port(number), State::there(told.version)))
}

fn told_group(told: &proto::SecurityGroup) -> Option<(Key, State)> {
    if told.id >= GROUPS {
        return None;
    }
    assert_eq!(*told, group(told.id - 1, told.version), "nobody wrote it so");
    Some((Key::Group(told.id - 1), State::there(told.version)))
}

/// What a key of etcd and its value say, by the program's own reading of them. Nothing of keys that are no objects'.
pub(crate) fn in_etcd(name: &[u8], value: &[u8]) -> Vec<(Key, State)> {
    fn all<O: Object>(entries: &[Entry<O>], key: impl Fn(O::Key) -> Option<Key>) -> Vec<(Key, State)> {
        let state = |entry: &Entry<O>| State {
            version: entry.statement.version(),
            is_there: matches!(entry.statement, Statement::Put(_)),
        };
        entries
            .iter()
            .filter_map(|entry| Some((key(entry.statement.key())?, state(entry))))
            .collect()
    }
    let number = |address: TenantAddress| match address.ip {
        _ if address.vni.number() >= NETWORKS => None,
        IpAddr::V4(ip) => Some(ip.to_bits() & 0xff_ffff),
        IpAddr::V6(ip) => panic!("{ip} was not written"),
    };
    let Some(key) = key::Key::parse(name) else {
        return Vec::new();
    };
    match Item::read(key, Some(value)).expect("etcd holds what was written") {
        Item::Group(_, entry) => all(entry.as_slice(), |id| (id.0.0 < GROUPS).then(|| Key::Group(id.0.0 - 1))),
        Item::Ports(_, entries) => all(&entries, |at| number(at).map(Key::Port)),
        Item::Neighbors(_, entries) => all(&entries, |at| number(at).map(Key::Neighbor)),
        Item::DamagedPorts(block) => panic!("{block:?}"),
    }
}

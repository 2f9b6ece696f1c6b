//! The calls that all kinds of objects have.

use anyhow::{Context as _, Result};
use tokio_stream::StreamExt as _;
use tonic::Code;
use tonic::transport::Channel;

use super::connect::refused;
use crate::object::wire::{self, Wire};
use crate::object::{Group, Neighbor, Object, Port, Statement};
use crate::proto;

/// Which objects are meant.
#[derive(Debug, Clone, Default)]
pub(super) struct Meant {
    pub(super) filter: Option<proto::AddressFilter>,
    pub(super) host_ip: Vec<u8>,
}

/// The longest answer: a page of security groups with all the rules that they may have.
const LONGEST: usize = 64 << 20;

/// Objects that are over there.
#[allow(async_fn_in_trait, reason = "used in this module only, on one thread")]
pub(super) trait Remote: Wire {
    /// What is known: that it is so, that it is gone; None if nothing is.
    async fn find(channel: &Channel, key: Self::Key) -> Result<Option<Statement<Self>>>;
    async fn put(channel: &Channel, objects: &[Self]) -> Result<Vec<proto::Outcome>>;
    /// `any_version`: their versions do not count.
    async fn delete(
        channel: &Channel,
        // With versions.
        keys: &[(Self::Key, u64)],
        any_version: bool,
    ) -> Result<Vec<proto::Outcome>>;
    /// A part, and the token of the next one.
    async fn list(channel: &Channel, meant: &Meant, token: Vec<u8>) -> Result<(Vec<Self>, Vec<u8>)>;
    /// Until the gateway ends it, or `each` fails. `each` gets changes, and whether all that was there has been told.
    async fn watch(
        channel: &Channel,
        meant: Meant,
        existing: bool,
        each: &mut dyn FnMut(Vec<Statement<Self>>, bool) -> Result<()>,
    ) -> Result<()>;
}

/// Reads what the gateway sent.
fn read<O: Wire>(messages: Vec<O::Message>) -> Result<Vec<O>> {
    let objects = messages.into_iter().map(O::from_wire);
    let objects: Result<_, String> = objects.collect();
    objects.map_err(|error| anyhow::anyhow!("the gateway sent a {} that makes no sense: {error}", O::NAME))
}

fn outcomes(numbers: Vec<i32>) -> Vec<proto::Outcome> {
    let known = |number| proto::Outcome::try_from(number).unwrap_or_default();
    numbers.into_iter().map(known).collect()
}

fn address_key(message: proto::AddressVersion) -> Result<(ringside_gateway_core::TenantAddress, u64)> {
    let key = wire::address(message.address.as_ref()).map_err(anyhow::Error::msg)?;
    Ok((key, message.version))
}

fn address_message((key, version): (ringside_gateway_core::TenantAddress, u64)) -> proto::AddressVersion {
    proto::AddressVersion {
        address: Some(wire::address_message(key)),
        version,
    }
}

fn group_key(message: proto::SecurityGroupVersion) -> Result<(crate::object::GroupKey, u64)> {
    Ok((wire::group_key(message.id), message.version))
}

fn group_message((key, version): (crate::object::GroupKey, u64)) -> proto::SecurityGroupVersion {
    proto::SecurityGroupVersion { id: key.0.0, version }
}

/// The three services have the same calls with other names.
macro_rules! remote {
    (
        $object:ident, $client:path, $one:ident, $many:ident,
        get $get:ident($get_request:ident { $key_field:ident: $key:expr }),
        put $put:ident($put_request:ident), delete $delete:ident($delete_request:ident),
        list $list:ident($list_request:ident { $($meant:ident),* }),
        watch $watch:ident($watch_request:ident { $($watched:ident),* }), $event:path,
        keys $from_key:ident $to_key:ident
    ) => {
        impl Remote for $object {
            async fn find(channel: &Channel, key: Self::Key) -> Result<Option<Statement<Self>>> {
                use $client as Client;
                let request = proto::$get_request { $key_field: $key(key), deleted: true };
                let answer = match Client::new(channel.clone()).max_decoding_message_size(LONGEST).$get(request).await {
                    Ok(answer) => answer.into_inner(),
                    Err(status) if status.code() == Code::NotFound => return Ok(None),
                    Err(status) => return Err(refused(&status)),
                };
                if let Some(version) = answer.deleted_version {
                    return Ok(Some(Statement::Delete(key, version)));
                }
                let message = answer.$one.context("the gateway sent an answer without an object")?;
                Ok(read::<Self>(vec![message])?.pop().map(Statement::Put))
            }

            async fn put(channel: &Channel, objects: &[Self]) -> Result<Vec<proto::Outcome>> {
                use $client as Client;
                let request = proto::$put_request { $many: objects.iter().map(Wire::to_wire).collect() };
                let answer = Client::new(channel.clone()).max_decoding_message_size(LONGEST).$put(request).await;
                Ok(outcomes(answer.map_err(|status| refused(&status))?.into_inner().outcomes))
            }

            async fn delete(
                channel: &Channel,
                keys: &[(Self::Key, u64)],
                any_version: bool,
            ) -> Result<Vec<proto::Outcome>> {
                use $client as Client;
                let $many = keys.iter().copied().map($to_key).collect();
                let request = proto::$delete_request { $many, any_version };
                let answer = Client::new(channel.clone()).max_decoding_message_size(LONGEST).$delete(request).await;
                Ok(outcomes(answer.map_err(|status| refused(&status))?.into_inner().outcomes))
            }

            #[allow(unused_variables, reason = "not every kind can be filtered")]
            async fn list(channel: &Channel, meant: &Meant, token: Vec<u8>) -> Result<(Vec<Self>, Vec<u8>)> {
                use $client as Client;
                let page = Some(proto::PageRequest { size: Self::AT_ONCE, token });
                let request = proto::$list_request { page, $($meant: meant.$meant.clone(),)* };
                let answer = Client::new(channel.clone()).max_decoding_message_size(LONGEST).$list(request).await;
                let answer = answer.map_err(|status| refused(&status))?.into_inner();
                Ok((read(answer.$many)?, answer.next_page_token))
            }

            #[allow(unused_variables, reason = "not every kind can be filtered")]
            async fn watch(
                channel: &Channel,
                meant: Meant,
                existing: bool,
                each: &mut dyn FnMut(Vec<Statement<Self>>, bool) -> Result<()>,
            ) -> Result<()> {
                use $client as Client;
                use $event as Event;
                let start = Some(proto::WatchStart { existing });
                let request = proto::$watch_request { start, $($watched: meant.$watched,)* };
                let stream = Client::new(channel.clone()).max_decoding_message_size(LONGEST).$watch(request).await;
                let mut stream = stream.map_err(|status| refused(&status))?.into_inner();
                while let Some(answer) = stream.next().await {
                    let answer = answer.map_err(|status| refused(&status))?;
                    let events = answer.events.into_iter().filter_map(|event| event.event);
                    let statements = events.map(|event| match event {
                        Event::Put(message) => {
                            let object = read::<Self>(vec![message])?.pop();
                            Ok(Statement::Put(object.context("one for each message")?))
                        }
                        Event::Deleted(message) => {
                            $from_key(message).map(|(key, version)| Statement::Delete(key, version))
                        }
                    });
                    each(statements.collect::<Result<_>>()?, answer.synced)?;
                }
                Ok(())
            }
        }
    };
}

fn some_address(key: <Neighbor as Object>::Key) -> Option<proto::TenantAddress> {
    Some(wire::address_message(key))
}

fn number(key: <Group as Object>::Key) -> u32 {
    key.0.0
}

remote!(
    Neighbor, proto::neighbor_service_client::NeighborServiceClient, neighbor, neighbors,
    get get_neighbor(GetNeighborRequest { address: some_address }),
    put put_neighbors(PutNeighborsRequest), delete delete_neighbors(DeleteNeighborsRequest),
    list list_neighbors(ListNeighborsRequest { filter, host_ip }),
    watch watch_neighbors(WatchNeighborsRequest { filter }), proto::neighbor_event::Event,
    keys address_key address_message
);
remote!(
    Port, proto::port_service_client::PortServiceClient, port, ports,
    get get_port(GetPortRequest { address: some_address }),
    put put_ports(PutPortsRequest), delete delete_ports(DeletePortsRequest),
    list list_ports(ListPortsRequest { filter }),
    watch watch_ports(WatchPortsRequest { filter }), proto::port_event::Event,
    keys address_key address_message
);
remote!(
    Group, proto::security_group_service_client::SecurityGroupServiceClient, group, groups,
    get get_security_group(GetSecurityGroupRequest { id: number }),
    put put_security_groups(PutSecurityGroupsRequest), delete delete_security_groups(DeleteSecurityGroupsRequest),
    list list_security_groups(ListSecurityGroupsRequest {}),
    watch watch_security_groups(WatchSecurityGroupsRequest {}), proto::security_group_event::Event,
    keys group_key group_message
);

//! The services of `proto/ringside/gateway/v1`, on the [`Model`].

use std::pin::Pin;

use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

mod fleet;
mod hosts;
mod kind;
mod load;
mod operation;
mod serve;
mod tls;

pub(crate) use serve::with_sources;
pub use serve::{Listeners, ServeError, TcpListener, UnixSocket};
pub use tls::{Keys, Tls};

use crate::fleet::Member;
use crate::model::Model;
use crate::object::{Group, Neighbor, Port, Statement, wire};
use crate::proto;
use crate::proto::neighbor_service_server::NeighborService;
use crate::proto::port_service_server::PortService;
use crate::proto::security_group_service_server::SecurityGroupService;
use crate::store::Filter;
use kind::{Found, Watched};

/// The most neighbours or ports of a request.
const MOST_ADDRESSES: usize = 65_536;
/// The most security groups of a request.
const MOST_GROUPS: usize = 1024;

/// All services.
#[derive(Debug, Clone)]
pub struct Api {
    model: Model,
    member: Option<Member>,
}

impl Api {
    /// On this model.
    #[must_use]
    pub const fn new(model: Model) -> Self {
        Self { model, member: None }
    }

    /// Of a gateway that takes part in a fleet.
    #[must_use]
    pub fn of(self, member: Option<Member>) -> Self {
        Self { member, ..self }
    }
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

fn invalid(text: String) -> Status {
    Status::invalid_argument(text)
}

fn filter(message: Option<&proto::AddressFilter>, host_ip: &[u8]) -> Result<Filter, Status> {
    let host = wire::host_ip(host_ip).map_err(invalid)?;
    let Some(message) = message else {
        return Ok(Filter {
            host,
            ..Filter::default()
        });
    };
    let wrong = |error| invalid(format!("filter.{error}"));
    Ok(Filter {
        vni: message.vni.map(wire::vni).transpose().map_err(wrong)?,
        prefix: message.prefix.as_deref().map(wire::prefix).transpose().map_err(wrong)?,
        host,
    })
}

fn address_version(statement_key: ringside_gateway_core::TenantAddress, version: u64) -> proto::AddressVersion {
    proto::AddressVersion {
        address: Some(wire::address_message(statement_key)),
        version,
    }
}

fn address_versions(
    field: &str,
    messages: Vec<proto::AddressVersion>,
    any_version: bool,
) -> Result<Vec<(ringside_gateway_core::TenantAddress, u64)>, Status> {
    let read = |(at, message): (usize, proto::AddressVersion)| {
        let key = wire::address(message.address.as_ref());
        let version = || wire::delete_version(message.version, any_version);
        key.and_then(|key| Ok((key, version()?)))
            .map_err(|error| invalid(format!("{field}[{at}].{error}")))
    };
    messages.into_iter().enumerate().map(read).collect()
}

#[tonic::async_trait]
impl NeighborService for Api {
    async fn put_neighbors(
        &self,
        request: Request<proto::PutNeighborsRequest>,
    ) -> Result<Response<proto::PutNeighborsResponse>, Status> {
        let neighbors = request.into_inner().neighbors;
        let outcomes = kind::put::<Neighbor>(&self.model, "neighbors", neighbors, MOST_ADDRESSES).await?;
        Ok(Response::new(proto::PutNeighborsResponse { outcomes }))
    }

    async fn delete_neighbors(
        &self,
        request: Request<proto::DeleteNeighborsRequest>,
    ) -> Result<Response<proto::DeleteNeighborsResponse>, Status> {
        let request = request.into_inner();
        let keys = address_versions("neighbors", request.neighbors, request.any_version)?;
        let outcomes = kind::delete::<Neighbor>(&self.model, "neighbors", keys, MOST_ADDRESSES).await?;
        Ok(Response::new(proto::DeleteNeighborsResponse { outcomes }))
    }

    async fn get_neighbor(
        &self,
        request: Request<proto::GetNeighborRequest>,
    ) -> Result<Response<proto::GetNeighborResponse>, Status> {
        let request = request.into_inner();
        let key = wire::address(request.address.as_ref()).map_err(invalid)?;
        let Found {
            message: neighbor,
            deleted_version,
        } = kind::find::<Neighbor>(&self.model, key, request.deleted).await?;
        Ok(Response::new(proto::GetNeighborResponse {
            neighbor,
            deleted_version,
        }))
    }

    async fn list_neighbors(
        &self,
        request: Request<proto::ListNeighborsRequest>,
    ) -> Result<Response<proto::ListNeighborsResponse>, Status> {
        let request = request.into_inner();
        let filter = filter(request.filter.as_ref(), &request.host_ip)?;
        let (neighbors, next_page_token) = kind::list::<Neighbor>(&self.model, filter, request.page).await?;
        Ok(Response::new(proto::ListNeighborsResponse {
            neighbors,
            next_page_token,
        }))
    }

    type WatchNeighborsStream = Answers<proto::WatchNeighborsResponse>;

    async fn watch_neighbors(
        &self,
        request: Request<proto::WatchNeighborsRequest>,
    ) -> Result<Response<Self::WatchNeighborsStream>, Status> {
        let request = request.into_inner();
        let filter = filter(request.filter.as_ref(), &[])?;
        Ok(Response::new(kind::watch::<Neighbor, _>(
            &self.model,
            request.start,
            filter,
        )))
    }

    type LoadNeighborsStream = Answers<proto::LoadNeighborsResponse>;

    async fn load_neighbors(
        &self,
        request: Request<Streaming<proto::LoadNeighborsRequest>>,
    ) -> Result<Response<Self::LoadNeighborsStream>, Status> {
        Ok(Response::new(load::load(self.model.clone(), request.into_inner())))
    }
}

impl Watched<Neighbor> for proto::WatchNeighborsResponse {
    fn with(statements: Vec<Statement<Neighbor>>, synced: bool) -> Self {
        use proto::neighbor_event::Event;
        let event = |statement: Statement<Neighbor>| match statement {
            Statement::Put(neighbor) => Event::Put(wire::Wire::to_wire(&neighbor)),
            Statement::Delete(key, version) => Event::Deleted(address_version(key, version)),
        };
        let event = |statement| proto::NeighborEvent {
            event: Some(event(statement)),
        };
        Self {
            events: statements.into_iter().map(event).collect(),
            synced,
        }
    }
}

#[tonic::async_trait]
impl PortService for Api {
    async fn put_ports(
        &self,
        request: Request<proto::PutPortsRequest>,
    ) -> Result<Response<proto::PutPortsResponse>, Status> {
        let ports = request.into_inner().ports;
        let outcomes = kind::put::<Port>(&self.model, "ports", ports, MOST_ADDRESSES).await?;
        Ok(Response::new(proto::PutPortsResponse { outcomes }))
    }

    async fn delete_ports(
        &self,
        request: Request<proto::DeletePortsRequest>,
    ) -> Result<Response<proto::DeletePortsResponse>, Status> {
        let request = request.into_inner();
        let keys = address_versions("ports", request.ports, request.any_version)?;
        let outcomes = kind::delete::<Port>(&self.model, "ports", keys, MOST_ADDRESSES).await?;
        Ok(Response::new(proto::DeletePortsResponse { outcomes }))
    }

    async fn get_port(
        &self,
        request: Request<proto::GetPortRequest>,
    ) -> Result<Response<proto::GetPortResponse>, Status> {
        let request = request.into_inner();
        let key = wire::address(request.address.as_ref()).map_err(invalid)?;
        let Found {
            message: port,
            deleted_version,
        } = kind::find::<Port>(&self.model, key, request.deleted).await?;
        Ok(Response::new(proto::GetPortResponse { port, deleted_version }))
    }

    async fn list_ports(
        &self,
        request: Request<proto::ListPortsRequest>,
    ) -> Result<Response<proto::ListPortsResponse>, Status> {
        let request = request.into_inner();
        let filter = filter(request.filter.as_ref(), &[])?;
        let (ports, next_page_token) = kind::list::<Port>(&self.model, filter, request.page).await?;
        Ok(Response::new(proto::ListPortsResponse { ports, next_page_token }))
    }

    type WatchPortsStream = Answers<proto::WatchPortsResponse>;

    async fn watch_ports(
        &self,
        request: Request<proto::WatchPortsRequest>,
    ) -> Result<Response<Self::WatchPortsStream>, Status> {
        let request = request.into_inner();
        let filter = filter(request.filter.as_ref(), &[])?;
        Ok(Response::new(kind::watch::<Port, _>(
            &self.model,
            request.start,
            filter,
        )))
    }
}

impl Watched<Port> for proto::WatchPortsResponse {
    fn with(statements: Vec<Statement<Port>>, synced: bool) -> Self {
        use proto::port_event::Event;
        let event = |statement: Statement<Port>| match statement {
            Statement::Put(port) => Event::Put(wire::Wire::to_wire(&port)),
            Statement::Delete(key, version) => Event::Deleted(address_version(key, version)),
        };
        let event = |statement| proto::PortEvent {
            event: Some(event(statement)),
        };
        Self {
            events: statements.into_iter().map(event).collect(),
            synced,
        }
    }
}

#[tonic::async_trait]
impl SecurityGroupService for Api {
    async fn put_security_groups(
        &self,
        request: Request<proto::PutSecurityGroupsRequest>,
    ) -> Result<Response<proto::PutSecurityGroupsResponse>, Status> {
        let groups = request.into_inner().groups;
        let outcomes = kind::put::<Group>(&self.model, "groups", groups, MOST_GROUPS).await?;
        Ok(Response::new(proto::PutSecurityGroupsResponse { outcomes }))
    }

    async fn delete_security_groups(
        &self,
        request: Request<proto::DeleteSecurityGroupsRequest>,
    ) -> Result<Response<proto::DeleteSecurityGroupsResponse>, Status> {
        let proto::DeleteSecurityGroupsRequest { groups, any_version } = request.into_inner();
        let read = |(at, message): (usize, proto::SecurityGroupVersion)| {
            let version = wire::delete_version(message.version, any_version)
                .map_err(|error| invalid(format!("groups[{at}].{error}")));
            version.map(|version| (wire::group_key(message.id), version))
        };
        let keys = groups.into_iter().enumerate().map(read);
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        let outcomes = kind::delete::<Group>(&self.model, "groups", keys, MOST_GROUPS).await?;
        Ok(Response::new(proto::DeleteSecurityGroupsResponse { outcomes }))
    }

    async fn get_security_group(
        &self,
        request: Request<proto::GetSecurityGroupRequest>,
    ) -> Result<Response<proto::GetSecurityGroupResponse>, Status> {
        let request = request.into_inner();
        let Found {
            message: group,
            deleted_version,
        } = kind::find::<Group>(&self.model, wire::group_key(request.id), request.deleted).await?;
        Ok(Response::new(proto::GetSecurityGroupResponse {
            group,
            deleted_version,
        }))
    }

    async fn list_security_groups(
        &self,
        request: Request<proto::ListSecurityGroupsRequest>,
    ) -> Result<Response<proto::ListSecurityGroupsResponse>, Status> {
        let page = request.into_inner().page;
        let (groups, next_page_token) = kind::list::<Group>(&self.model, Filter::default(), page).await?;
        Ok(Response::new(proto::ListSecurityGroupsResponse {
            groups,
            next_page_token,
        }))
    }

    type WatchSecurityGroupsStream = Answers<proto::WatchSecurityGroupsResponse>;

    async fn watch_security_groups(
        &self,
        request: Request<proto::WatchSecurityGroupsRequest>,
    ) -> Result<Response<Self::WatchSecurityGroupsStream>, Status> {
        let start = request.into_inner().start;
        Ok(Response::new(kind::watch::<Group, _>(
            &self.model,
            start,
            Filter::default(),
        )))
    }
}

impl Watched<Group> for proto::WatchSecurityGroupsResponse {
    fn with(statements: Vec<Statement<Group>>, synced: bool) -> Self {
        use proto::security_group_event::Event;
        let event = |statement: Statement<Group>| match statement {
            Statement::Put(group) => Event::Put(wire::Wire::to_wire(&group)),
            Statement::Delete(key, version) => Event::Deleted(proto::SecurityGroupVersion { id: key.0.0, version }),
        };
        let event = |statement| proto::SecurityGroupEvent {
            event: Some(event(statement)),
        };
        Self {
            events: statements.into_iter().map(event).collect(),
            synced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client whose variable is empty means one prefix, not all addresses.
    #[test]
    fn rejects_filter_with_empty_prefix() {
        let filter_of = |prefix: Option<&str>| {
            let prefix = prefix.map(str::to_owned);
            filter(Some(&proto::AddressFilter { vni: None, prefix }), &[])
        };
        let refused = filter_of(Some("")).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        assert!(
            refused.message().starts_with("filter.prefix: \"\" is none"),
            "{refused}"
        );
        assert!(filter_of(None).unwrap().prefix.is_none());
        assert!(filter_of(Some("10.0.0.0/8")).unwrap().prefix.is_some());
    }
}

//! What compute hosts may ask: where a network's packets go to.

use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

use super::Api;
use crate::proto;
use crate::proto::fleet_service_server::{FleetService, FleetServiceServer};
use crate::proto::neighbor_service_server::NeighborServiceServer;
use crate::proto::operation_service_server::OperationServiceServer;
use crate::proto::port_service_server::PortServiceServer;
use crate::proto::security_group_service_server::SecurityGroupServiceServer;

/// See the module.
struct Hosts(Api);

fn refused() -> Status {
    Status::permission_denied(
        "the certificate is of api.tcp.host-ca: a host may ask which gateway serves which network, and nothing else",
    )
}

fn refuse(_: Request<()>) -> Result<Request<()>, Status> {
    Err(refused())
}

pub(super) fn routes(api: Api) -> Routes {
    Routes::new(FleetServiceServer::new(Hosts(api.clone())))
        .add_service(NeighborServiceServer::with_interceptor(api.clone(), refuse))
        .add_service(PortServiceServer::with_interceptor(api.clone(), refuse))
        .add_service(SecurityGroupServiceServer::with_interceptor(api.clone(), refuse))
        .add_service(OperationServiceServer::with_interceptor(api, refuse))
}

#[tonic::async_trait]
impl FleetService for Hosts {
    async fn get_fleet(&self, _: Request<proto::GetFleetRequest>) -> Result<Response<proto::GetFleetResponse>, Status> {
        Err(refused())
    }

    async fn get_gateway(
        &self,
        request: Request<proto::GetGatewayRequest>,
    ) -> Result<Response<proto::GetGatewayResponse>, Status> {
        self.0.get_gateway(request).await
    }

    type WatchShardsStream = <Api as FleetService>::WatchShardsStream;

    async fn watch_shards(
        &self,
        request: Request<proto::WatchShardsRequest>,
    ) -> Result<Response<Self::WatchShardsStream>, Status> {
        self.0.watch_shards(request).await
    }

    async fn take_connections(
        &self,
        _: Request<Streaming<proto::TakeConnectionsRequest>>,
    ) -> Result<Response<proto::TakeConnectionsResponse>, Status> {
        Err(refused())
    }
}

//! What goes along with shards that are given away: the connections of their networks.
//!
//! They are sent to the new owner's API before the map says that it is the owner. There the next packet of each is judged by the rules as
//! its first was (`Conntrack::restore`), so that nobody is let in by what is handed over; numbers of TCP are not checked, for they go on
//! changing meanwhile.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringside_gateway_core::conntrack::{Connection, ConnectionId, Conntrack, State};
use ringside_gateway_core::policy::ProfileId;
use ringside_gateway_core::shard::Shard;
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_wire::Protocol;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::api::{Tls, with_sources};
use crate::datapath::now;
use crate::model::{Foreign, Tables};
use crate::object::wire;
use crate::proto::fleet_service_client::FleetServiceClient;
use crate::proto::{TakeConnectionsRequest, TrackedConnection};

/// Connections of a message.
const AT_ONCE: usize = 1024;
/// Messages on their way.
const WAITING: usize = 4;
/// How long a connection to another gateway may take.
const CONNECT: Duration = Duration::from_secs(2);
/// How long all of it may take.
const LONGEST: Duration = Duration::from_secs(10);

/// So long after a network has changed hands, by the map that both owners know, some host may still send to the one before. In nanoseconds.
const HOSTS_FOLLOW: u64 = 10_000_000_000;

/// Until when a network that changes hands now has answers pass of which the other owner knows the question.
pub(crate) fn moved_until() -> u64 {
    now().saturating_add(HOSTS_FOLLOW)
}

/// See the module. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Baggage {
    conntrack: Arc<Conntrack>,
    foreign: Arc<Foreign>,
    /// Who this gateway is to others, and whom it believes: what it offers its own API by.
    tls: Arc<Mutex<Option<Tls>>>,
}

impl Baggage {
    /// Of these tables' connections; without keys and certificates nothing can be given.
    #[must_use]
    pub fn new(tables: &Tables, tls: Option<Tls>) -> Self {
        Self {
            conntrack: Arc::clone(&tables.conntrack),
            foreign: Arc::clone(&tables.foreign),
            tls: Arc::new(Mutex::new(tls)),
        }
    }

    /// Which networks are this gateway's, for whoever counts the others', and for connections that both owners see a part of.
    pub(super) fn own(&self, is_owned: impl Fn(Shard) -> bool) {
        let until = moved_until();
        for shard in self.foreign.set(is_owned) {
            self.conntrack.changes_hands(shard, until);
        }
    }

    /// Packets of others' networks that came here: what the fast path has counted is a second old.
    pub(super) fn foreign_packets(&self) -> u64 {
        self.foreign.packets()
    }

    pub(super) fn set_tls(&self, tls: Tls) {
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = Some(tls);
    }

    /// Gives the connections of these shards to the gateway whose API this is. False if there is no way to it.
    pub(super) async fn give(&self, api: Option<String>, shards: &[Shard]) -> Result<bool, String> {
        let until = moved_until();
        shards
            .iter()
            .for_each(|shard| self.conntrack.changes_hands(*shard, until));
        let shards: HashSet<Shard> = shards.iter().copied().collect();
        let now = now();
        let mut all = Vec::new();
        self.conntrack.for_each(|connection| {
            if shards.contains(&Shard::of(connection.vni)) {
                all.push(message(connection, now));
            }
        });
        let count = all.len();
        if count == 0 {
            return Ok(true);
        }
        let tls = self.tls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (Some(api), Some(tls)) = (api, tls) else {
            tracing::warn!(
                count,
                "connections cannot be handed over: both gateways need api.tcp and fleet.api"
            );
            return Ok(false);
        };
        let sent = tokio::time::timeout(LONGEST, send(&api, &tls, all)).await;
        let (taken, left) = sent.map_err(|_| format!("handing connections over to {api}: no answer in time"))??;
        tracing::info!(taken, left, api, "connections were handed over");
        Ok(true)
    }
}

async fn send(api: &str, tls: &Tls, connections: Vec<TrackedConnection>) -> Result<(u64, u64), String> {
    let failed = |error: &dyn std::error::Error| format!("handing connections over to {api}: {}", with_sources(error));
    let config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&tls.client_ca))
        .identity(Identity::from_pem(&tls.certificate, &tls.key));
    let endpoint = Endpoint::from_shared(api.to_owned()).map_err(|error| failed(&error))?;
    let endpoint = endpoint.connect_timeout(CONNECT).tls_config(config);
    let endpoint = endpoint.map_err(|error| failed(&error))?;
    let channel = endpoint.connect().await.map_err(|error| failed(&error))?;
    let (to, stream) = mpsc::channel(WAITING);
    let sender = tokio::spawn(async move {
        for some in connections.chunks(AT_ONCE) {
            let connections = some.to_vec();
            if to.send(TakeConnectionsRequest { connections }).await.is_err() {
                break;
            }
        }
    });
    let answer = FleetServiceClient::new(channel)
        .take_connections(ReceiverStream::new(stream))
        .await;
    sender.abort();
    let answer = answer.map_err(|status| format!("handing connections over to {api}: {}", status.message()))?;
    let answer = answer.into_inner();
    Ok((answer.taken, answer.left))
}

fn message(connection: &Connection, now: u64) -> TrackedConnection {
    let [source_port, destination_port] = connection.ports.map(u32::from);
    TrackedConnection {
        vni: connection.vni.number(),
        source: wire::host_ip_bytes(Some(connection.source)),
        destination: wire::host_ip_bytes(Some(connection.destination)),
        protocol: u32::from(connection.protocol.0),
        source_port,
        destination_port,
        state: connection.state.name().to_owned(),
        idle_milliseconds: now.saturating_sub(connection.seen) / 1_000_000,
    }
}

/// Takes a connection that another gateway had. False if it is not taken.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn take(tables: &Tables, message: &TrackedConnection) -> Result<bool, String> {
    let now = now();
    let ip = |field: &'static str, bytes: &[u8]| {
        wire::optional_ip(field, bytes)?.ok_or_else(|| format!("{field}: is missing"))
    };
    let port = |field: &str, port: u32| u16::try_from(port).map_err(|_| format!("{field}: {port} is none"));
    let vni = Vni::new(message.vni).ok_or_else(|| format!("vni: {} has more than 24 bits", message.vni))?;
    let (source, destination) = (ip("source", &message.source)?, ip("destination", &message.destination)?);
    let protocol = u8::try_from(message.protocol).map_err(|_| format!("protocol: {} is none", message.protocol))?;
    let Some(state) = State::ALL.iter().find(|state| state.name() == message.state) else {
        // One of a newer program's.
        return Ok(false);
    };
    let mut neighbors = tables.neighbors.reader();
    let mut profile = |ip| {
        let neighbor = neighbors.find(TenantAddress::new(vni, ip));
        neighbor.and_then(|neighbor| ProfileId::new(neighbor.policy))
    };
    let connection = Connection {
        vni,
        source,
        destination,
        protocol: Protocol(protocol),
        ports: [
            port("source_port", message.source_port)?,
            port("destination_port", message.destination_port)?,
        ],
        state: *state,
        seen: now.saturating_sub(message.idle_milliseconds.saturating_mul(1_000_000)),
        profiles: [profile(source), profile(destination)],
        generation: 0,
        handed_over: false,
        id: ConnectionId::from_bits(0),
    };
    // The map says it soon.
    tables.conntrack.changes_hands(Shard::of(vni), moved_until());
    Ok(tables.conntrack.restore(now, &connection))
}

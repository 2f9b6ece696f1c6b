//! Health, statistics, drain, and that nothing is missing.

use ringside_gateway_core::conntrack::State;
use ringside_gateway_core::{DropReason, Vni};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::kind::refused;
use super::{Answers, Api, invalid};
use crate::datapath::now;
use crate::fleet::Member;
use crate::model::{CannotTrace, DirectCounters, Drops, PathCounters, TraceFilter, UnreachableHost};
use crate::object::wire;
use crate::proto;
use crate::proto::operation_service_server::OperationService;

fn count(name: &str, value: impl Into<u64>) -> proto::Count {
    proto::Count {
        name: name.to_owned(),
        value: value.into(),
    }
}

fn direct(counters: DirectCounters) -> proto::DirectPathStatistics {
    proto::DirectPathStatistics {
        pairs: counters.pairs,
        sent_notices: counters.sent,
        failed_notices: counters.failed,
        held_back_notices: counters.held_back,
    }
}

fn unreachable_host(host: &UnreachableHost) -> proto::UnreachableHost {
    proto::UnreachableHost {
        host: wire::ip_bytes(host.host),
        encapsulation: wire::encapsulation_message(Some(host.encapsulation)).into(),
        udp_port: host.udp_port.into(),
        cause: host.cause.to_owned(),
        from: wire::ip_bytes(host.from),
        messages: host.messages,
    }
}

fn path(name: &str, counters: &PathCounters) -> proto::PathStatistics {
    let dropped = counters.dropped_packets.iter().filter(|(_, packets)| *packets > 0);
    proto::PathStatistics {
        path: name.to_owned(),
        received_packets: counters.received_packets,
        received_bytes: counters.received_bytes,
        forwarded_packets: counters.forwarded_packets,
        forwarded_bytes: counters.forwarded_bytes,
        answered_packets: counters.answered_packets,
        passed_packets: counters.passed_packets,
        dropped_packets: dropped
            .map(|(reason, packets)| count(reason.name(), *packets))
            .collect(),
        dropped_bytes: counters.dropped_bytes,
    }
}

/// Which packets that are dropped are asked for.
fn dropped(drops: bool, reason: &str) -> Result<Option<Drops>, String> {
    match (drops, reason) {
        (false, "") => Ok(None),
        (false, _) => Err("reason: it goes with `drops`".to_owned()),
        (true, "") => Ok(Some(Drops::Any)),
        (true, reason) => {
            let known = DropReason::ALL.iter().find(|known| known.name() == reason);
            let known = known.ok_or_else(|| {
                let names: Vec<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
                format!("reason: {reason:?} is none of {}", names.join(", "))
            })?;
            Ok(Some(Drops::For(*known)))
        }
    }
}

/// Nanoseconds since 1970.
fn realtime() -> u64 {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

fn size(number: usize) -> u64 {
    number as u64
}

#[tonic::async_trait]
impl OperationService for Api {
    async fn get_health(
        &self,
        _: Request<proto::GetHealthRequest>,
    ) -> Result<Response<proto::GetHealthResponse>, Status> {
        let health = self.model.health();
        let problems = self.model.problems();
        let leaves = self.member.as_ref().is_some_and(Member::is_draining);
        let status = match (leaves || self.model.tables().is_draining(), problems.is_empty()) {
            (true, _) => proto::Status::Draining,
            (false, true) => proto::Status::Ok,
            (false, false) => proto::Status::Degraded,
        };
        Ok(Response::new(proto::GetHealthResponse {
            status: status.into(),
            problems,
            read_only: health.read_only().is_some(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: health.uptime().as_secs(),
        }))
    }

    async fn get_statistics(
        &self,
        _: Request<proto::GetStatisticsRequest>,
    ) -> Result<Response<proto::GetStatisticsResponse>, Status> {
        let (tables, health, counters) = (self.model.tables(), self.model.health(), self.model.counters());
        let connections = tables.conntrack.counts();
        let states = State::ALL
            .iter()
            .map(|state| count(state.name(), connections.of(*state)));
        let [unreplied, closing, established] = connections.evicted;
        let worker = |worker: crate::model::WorkerLoad| proto::WorkerStatistics {
            name: worker.name,
            load_permille: worker.permille.into(),
        };
        Ok(Response::new(proto::GetStatisticsResponse {
            neighbors: size(tables.neighbors.len()),
            neighbor_memory_bytes: size(tables.neighbors.memory()),
            hosts: size(tables.hosts.len()),
            ports: size(tables.ports()),
            security_groups: size(tables.groups()),
            policy_memory_bytes: size(tables.policy.memory()),
            policy_generation: tables.policy.generation(),
            tombstones: size(tables.tombstones()),
            revision: health.revision(),
            store_bytes: health.store_bytes(),
            watchers: size(self.model.watchers()),
            paths: vec![path("fast", &counters.fast), path("slow", &counters.slow)],
            cache_entries: counters.cache_entries,
            cache_capacity: counters.cache_capacity,
            cache_evicted: counters.cache_evicted,
            cache_refused: counters.cache_refused,
            connection_cache: Some(proto::CacheStatistics {
                entries: counters.connection_cache.entries,
                capacity: counters.connection_cache.capacity,
                evicted: counters.connection_cache.evicted,
                refused: counters.connection_cache.refused,
                failed: counters.connection_cache.failed,
            }),
            handed_up: (counters.handed_up.iter())
                .map(|(cause, packets)| count(cause, *packets))
                .collect(),
            interface_events: (counters.interface_events.iter())
                .map(|(event, times)| count(event, *times))
                .collect(),
            path_mtu: (counters.path_mtu.iter())
                .map(|(what, times)| count(what, *times))
                .collect(),
            limited_hosts: counters.limited_hosts,
            unreachable_messages: (counters.unreachable_messages.iter())
                .map(|(cause, messages)| count(cause, *messages))
                .collect(),
            unreachable_hosts: (counters.unreachable_hosts.iter()).map(unreachable_host).collect(),
            icmp_errors: (counters.icmp_errors.iter())
                .map(|(what, errors)| count(what, *errors))
                .collect(),
            queue_full: (counters.queue_full.iter())
                .map(|(queue, times)| count(queue, *times))
                .collect(),
            workers: counters.workers.into_iter().map(worker).collect(),
            direct: counters.direct.map(direct),
            connections: Some(proto::ConnectionStatistics {
                connections: connections.total(),
                limit: tables.connection_limit().into(),
                states: states.collect(),
                events: vec![
                    count("begun", connections.begun),
                    count("timed-out", connections.timed_out),
                    count("no-longer-allowed", connections.no_longer_allowed),
                    count("replaced", connections.replaced),
                    count("evicted-unreplied", unreplied),
                    count("evicted-closing", closing),
                    count("evicted-established", established),
                ],
                memory_bytes: size(tables.conntrack.memory()),
            }),
        }))
    }

    type TraceStream = Answers<proto::TraceResponse>;

    async fn trace(&self, request: Request<proto::TraceRequest>) -> Result<Response<Self::TraceStream>, Status> {
        let proto::TraceRequest { vni, ip, drops, reason } = request.into_inner();
        let unknown = |vni| invalid(format!("vni: {vni} has more than 24 bits"));
        let filter = TraceFilter {
            vni: vni.map(|vni| Vni::new(vni).ok_or_else(|| unknown(vni))).transpose()?,
            ip: wire::optional_ip("ip", &ip).map_err(invalid)?,
            drops: dropped(drops, &reason).map_err(invalid)?,
        };
        let traced = self.model.trace(filter).map_err(|error| match error {
            CannotTrace::NoPath => Status::failed_precondition(error.to_string()),
            CannotTrace::Busy => Status::resource_exhausted(error.to_string()),
            _ => Status::internal(error.to_string()),
        })?;
        // Not which: that would be an address of a tenant's.
        tracing::info!("packets are traced");
        let offset = i128::from(realtime()) - i128::from(now());
        let stream = ReceiverStream::new(traced).map(move |traced| {
            Ok(proto::TraceResponse {
                time_unix_nanos: i64::try_from(i128::from(traced.time) + offset).unwrap_or(0),
                stage: if traced.is_fast { "fast" } else { "slow" }.to_owned(),
                interface: traced.interface.to_string(),
                queue: traced.queue,
                vni: traced.vni,
                decision: traced.decision,
                length: traced.length,
                packet: traced.bytes,
                lost: traced.lost,
            })
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn set_drain(
        &self,
        request: Request<proto::SetDrainRequest>,
    ) -> Result<Response<proto::SetDrainResponse>, Status> {
        let drain = request.into_inner().drain;
        tracing::info!(drain, "asked to drain, or not any more");
        match &self.member {
            // Its shards go to others; meanwhile it does what it always did.
            Some(member) => member.drain(drain),
            None => self.model.drain(drain),
        }
        Ok(Response::new(proto::SetDrainResponse {}))
    }

    async fn set_repaired(
        &self,
        _: Request<proto::SetRepairedRequest>,
    ) -> Result<Response<proto::SetRepairedResponse>, Status> {
        let repaired = self.model.repaired().await.map_err(|error| refused(&error))?;
        Ok(Response::new(proto::SetRepairedResponse {
            missing: repaired.missing,
            opened: size(repaired.opened),
            keys_written: size(repaired.keys_written),
        }))
    }
}

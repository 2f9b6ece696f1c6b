//! health, stats, drain, repaired.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use ringside_measure::units::budget;
use serde_json::{Value, json};
use tonic::transport::Channel;

use super::connect::refused;
use super::show;
use crate::object::wire;
use crate::proto;
use crate::proto::operation_service_client::OperationServiceClient;

/// `drain`
#[derive(Debug, Args)]
pub(super) struct DrainArgs {
    /// Back into service
    #[arg(long)]
    off: bool,
    /// Time to wait until other gateways of the fleet have its networks, in seconds or with a unit,
    /// such as 500ms or 2min
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = budget)]
    #[arg(conflicts_with = "off")]
    wait: Duration,
}

pub(super) async fn drain(channel: Channel, args: &DrainArgs, json: bool) -> Result<()> {
    let request = proto::SetDrainRequest { drain: !args.off };
    let answer = OperationServiceClient::new(channel.clone()).set_drain(request).await;
    answer.map_err(|status| refused(&status))?;
    let is_drained = !args.off && super::fleet::wait_until_drained(&channel, args.wait).await?;
    if json {
        let value = json!({ "draining": !args.off, "drained": is_drained });
        return show::json(&value, false);
    }
    show::print(match (args.off, is_drained) {
        (true, _) => "in service again",
        (false, true) => "drained: other gateways have its networks; what still comes is sent on",
        (false, false) => "draining, until `drain --off` or a restart",
    })
}

pub(super) async fn repaired(channel: Channel, json: bool) -> Result<()> {
    let request = proto::SetRepairedRequest {};
    let answer = OperationServiceClient::new(channel).set_repaired(request).await;
    let answer = answer.map_err(|status| refused(&status))?.into_inner();
    let proto::SetRepairedResponse {
        missing,
        opened,
        keys_written,
    } = answer;
    if json {
        let answer = json!({ "missing": missing, "opened": opened, "keys-written": keys_written });
        return show::json(&answer, false);
    }
    show::print(&match missing.is_empty() {
        true => "nothing was missing".to_owned(),
        false => format!(
            "noted; addresses without a port, which may do anything from now on: {opened}; \
             keys of etcd that are written again: {keys_written}"
        ),
    })
}

pub(super) async fn health(channel: Channel, json: bool) -> Result<ExitCode> {
    let answer = OperationServiceClient::new(channel)
        .get_health(proto::GetHealthRequest {})
        .await;
    let health = answer.map_err(|status| refused(&status))?.into_inner();
    let status = match health.status() {
        proto::Status::Ok => "ok",
        proto::Status::Degraded => "degraded",
        proto::Status::Draining => "draining",
        proto::Status::Unspecified => "unknown",
    };
    if json {
        show::json(
            &json!({
                "status": status,
                "read-only": health.read_only,
                "problems": health.problems,
                "version": health.version,
                "uptime-seconds": health.uptime_seconds,
            }),
            false,
        )?;
    } else {
        let hours = health.uptime_seconds / 3600;
        let (minutes, seconds) = (health.uptime_seconds / 60 % 60, health.uptime_seconds % 60);
        let mut text = format!(
            "{status}; version {}, up for {hours}:{minutes:02}:{seconds:02}",
            health.version
        );
        for problem in &health.problems {
            text.push_str("\n- ");
            text.push_str(problem);
        }
        show::print(&text)?;
    }
    Ok(match health.status() {
        proto::Status::Ok => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn counts(counts: &[proto::Count]) -> Value {
    let pairs = counts.iter().map(|count| (count.name.clone(), count.value.into()));
    Value::Object(pairs.collect())
}

pub(super) async fn stats(channel: Channel, json: bool) -> Result<()> {
    let request = proto::GetStatisticsRequest {};
    let answer = OperationServiceClient::new(channel).get_statistics(request).await;
    let all = answer.map_err(|status| refused(&status))?.into_inner();
    let connections = all.connections.clone().unwrap_or_default();
    let connection_cache = all.connection_cache.unwrap_or_default();
    let path = |path: &proto::PathStatistics| {
        json!({
            "path": path.path,
            "received-packets": path.received_packets,
            "received-bytes": path.received_bytes,
            "forwarded-packets": path.forwarded_packets,
            "forwarded-bytes": path.forwarded_bytes,
            "answered-packets": path.answered_packets,
            "passed-packets": path.passed_packets,
            "dropped-packets": counts(&path.dropped_packets),
            "dropped-bytes": path.dropped_bytes,
        })
    };
    let worker =
        |worker: &proto::WorkerStatistics| json!({ "name": worker.name, "load-permille": worker.load_permille });
    let unreachable = |host: &proto::UnreachableHost| {
        let ip = |bytes: &[u8]| wire::optional_ip("host", bytes).ok().flatten().map(|ip| ip.to_string());
        let encapsulation = host.encapsulation().as_str_name().trim_start_matches("ENCAPSULATION_");
        json!({
            "name": format!("{} {}", ip(&host.host).unwrap_or_default(), encapsulation.to_lowercase()),
            "host": ip(&host.host),
            "encapsulation": encapsulation.to_lowercase(),
            "udp-port": host.udp_port,
            "cause": host.cause,
            "from": ip(&host.from),
            "messages": host.messages,
        })
    };
    let value = json!({
        "neighbors": all.neighbors,
        "neighbor-memory-bytes": all.neighbor_memory_bytes,
        "hosts": all.hosts,
        "ports": all.ports,
        "security-groups": all.security_groups,
        "policy-memory-bytes": all.policy_memory_bytes,
        "policy-generation": all.policy_generation,
        "tombstones": all.tombstones,
        "revision": all.revision,
        "store-bytes": all.store_bytes,
        "watchers": all.watchers,
        "paths": all.paths.iter().map(path).collect::<Vec<_>>(),
        "cache-entries": all.cache_entries,
        "cache-capacity": all.cache_capacity,
        "cache-evicted": all.cache_evicted,
        "cache-refused": all.cache_refused,
        "connection-cache": {
            "entries": connection_cache.entries,
            "capacity": connection_cache.capacity,
            "evicted": connection_cache.evicted,
            "refused": connection_cache.refused,
            "failed": connection_cache.failed,
        },
        "handed-up-packets": counts(&all.handed_up),
        "interface-events": counts(&all.interface_events),
        "path-mtu": counts(&all.path_mtu),
        "limited-hosts": all.limited_hosts,
        "unreachable-messages": counts(&all.unreachable_messages),
        "unreachable-hosts": all.unreachable_hosts.iter().map(unreachable).collect::<Vec<_>>(),
        "icmp-errors": counts(&all.icmp_errors),
        "queue-full": counts(&all.queue_full),
        "workers": all.workers.iter().map(worker).collect::<Vec<_>>(),
        "direct": all.direct.map(|direct| json!({
            "pairs": direct.pairs,
            "sent-notices": direct.sent_notices,
            "failed-notices": direct.failed_notices,
            "held-back-notices": direct.held_back_notices,
        })),
        "connections": {
            "connections": connections.connections,
            "limit": connections.limit,
            "states": counts(&connections.states),
            "events": counts(&connections.events),
            "memory-bytes": connections.memory_bytes,
        },
    });
    if json {
        return show::json(&value, false);
    }
    let mut lines = Vec::new();
    flatten("", &value, &mut lines);
    show::print(&show::table(&["what", "value"], lines.into_iter(), &[1]))
}

/// Nested values as lines; zeros of nested counters are left out.
fn flatten(prefix: &str, value: &Value, lines: &mut Vec<Vec<String>>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let name = if prefix.is_empty() {
                    name.clone()
                } else {
                    format!("{prefix} {name}")
                };
                flatten(&name, value, lines);
            }
        }
        Value::Array(items) => {
            for item in items {
                let name = item.get("path").or_else(|| item.get("name")).and_then(Value::as_str);
                flatten(&format!("{prefix} {}", name.unwrap_or_default()), item, lines);
            }
        }
        Value::Number(number) if prefix.contains(' ') && number.as_u64() == Some(0) => {}
        Value::Number(number) => lines.push(vec![prefix.replace('-', " "), number.to_string()]),
        // The name of what is nested, which stands in the prefix.
        _ => {}
    }
}

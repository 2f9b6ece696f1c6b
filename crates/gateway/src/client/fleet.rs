//! fleet: who takes part, who owns what; drain in a fleet.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use tonic::Code;
use tonic::transport::Channel;

use super::connect::refused;
use super::{show, vni};
use crate::object::wire;
use crate::proto;
use crate::proto::fleet_service_client::FleetServiceClient;

/// `fleet`
#[derive(Debug, Args)]
pub(super) struct FleetArgs {
    /// Which gateway the hosts of this network are to send to
    #[arg(long, value_name = "N", value_parser = vni)]
    vni: Option<u32>,
}

/// Between two looks whether a gateway is drained.
const LOOK: Duration = Duration::from_millis(50);

fn word(membership: proto::Membership) -> &'static str {
    match membership {
        proto::Membership::Joining => "joining",
        proto::Membership::Member => "member",
        proto::Membership::Lapsed => "lapsed",
        proto::Membership::Replaced => "replaced",
        proto::Membership::Unspecified => "unknown",
    }
}

fn state(gateway: &proto::Gateway) -> &'static str {
    match (gateway.draining, gateway.synced) {
        (true, _) if gateway.cut_off => "no-link",
        (true, _) => "draining",
        (false, true) => "synced",
        (false, false) => "joining",
    }
}

fn addresses(gateway: &proto::Gateway) -> Vec<String> {
    let read = gateway.addresses.iter().filter_map(|bytes| wire::host_ip(bytes).ok()?);
    read.map(|ip| ip.to_string()).collect()
}

async fn ask(channel: &Channel, leases: bool) -> Result<proto::GetFleetResponse, tonic::Status> {
    let request = proto::GetFleetRequest { leases };
    let answer = FleetServiceClient::new(channel.clone()).get_fleet(request).await?;
    Ok(answer.into_inner())
}

/// The exit status is 1 if the gateway does not take part at the moment.
pub(super) async fn run(channel: Channel, args: &FleetArgs, json: bool) -> Result<ExitCode> {
    if let Some(vni) = args.vni {
        return of_network(channel, vni, json).await;
    }
    let fleet = ask(&channel, true).await.map_err(|status| refused(&status))?;
    let membership = word(fleet.membership());
    if json {
        let member = |member: &proto::FleetMember| {
            let gateway = member.gateway.clone().unwrap_or_default();
            json!({
                "id": format!("{:016x}", gateway.id),
                "name": gateway.name,
                "is-self": gateway.id == fleet.id,
                "state": state(&gateway),
                "weight": gateway.weight,
                "addresses": addresses(&gateway),
                "api": gateway.api,
                "shards": gateway.shards,
                "lease-seconds": member.lease_seconds,
            })
        };
        let value = json!({
            "membership": membership,
            "reason": fleet.reason,
            "lease-milliseconds": fleet.lease_milliseconds,
            "generation": fleet.generation,
            "orphaned-shards": fleet.orphaned_shards,
            "drained": fleet.drained,
            "foreign-packets": fleet.foreign_packets,
            "members": fleet.members.iter().map(member).collect::<Vec<_>>(),
        });
        show::json(&value, false)?;
    } else {
        let lines = fleet.members.iter().map(|member| {
            let gateway = member.gateway.clone().unwrap_or_default();
            let own = if gateway.id == fleet.id { " *" } else { "" };
            vec![
                format!("{}{own}", gateway.name),
                state(&gateway).to_owned(),
                gateway.weight.to_string(),
                gateway.shards.to_string(),
                addresses(&gateway).join(" "),
                member
                    .lease_seconds
                    .map_or_else(|| "-".to_owned(), |left| format!("{left} s")),
            ]
        });
        let header = ["name", "state", "weight", "shards", "addresses", "lease left"];
        let mut text = show::table(&header, lines, &[2, 3, 5]);
        text.push_str(&format!(
            "\n\ngeneration {}; this gateway (*): {membership}",
            fleet.generation
        ));
        if !fleet.reason.is_empty() {
            text.push_str(&format!(" ({})", fleet.reason));
        }
        if fleet.orphaned_shards > 0 {
            text.push_str(&format!("; {} shards without a gateway", fleet.orphaned_shards));
        }
        show::print(&text)?;
    }
    Ok(match fleet.membership() {
        proto::Membership::Member => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

async fn of_network(channel: Channel, vni: u32, json: bool) -> Result<ExitCode> {
    let request = proto::GetGatewayRequest { vni };
    let answer = FleetServiceClient::new(channel).get_gateway(request).await;
    let answer = answer.map_err(|status| refused(&status))?.into_inner();
    let gateway = answer.gateway.clone().unwrap_or_default();
    if json {
        let value = json!({
            "vni": vni,
            "shard": answer.shard,
            "gateway": answer.gateway.as_ref().map(|gateway| gateway.name.clone()),
            "addresses": addresses(&gateway),
            "generation": answer.generation,
            "current": answer.current,
        });
        show::json(&value, false)?;
    } else {
        let who = match (&answer.gateway, &*gateway.name) {
            (None, _) => "nobody's".to_owned(),
            (Some(_), "") => format!("that of {:016x}, which is gone", gateway.id),
            (Some(_), name) => format!("that of {name} at {}", addresses(&gateway).join(" ")),
        };
        let doubt = if answer.current {
            ""
        } else {
            "; the gateway that was asked may not know the newest"
        };
        show::print(&format!(
            "network {vni}: shard {}, {who}, generation {}{doubt}",
            answer.shard, answer.generation
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits until all shards of a gateway that drains are others'. False if it takes part in no fleet.
pub(super) async fn wait_until_drained(channel: &Channel, time: Duration) -> Result<bool> {
    let began = Instant::now();
    loop {
        let fleet = match ask(channel, false).await {
            Ok(fleet) => fleet,
            Err(status) if matches!(status.code(), Code::FailedPrecondition | Code::Unimplemented) => return Ok(false),
            Err(status) => return Err(refused(&status)),
        };
        if fleet.drained {
            return Ok(true);
        }
        if began.elapsed() >= time {
            let own = fleet.members.iter().filter_map(|member| member.gateway.as_ref());
            let left = own
                .filter(|gateway| gateway.id == fleet.id)
                .map(|gateway| gateway.shards)
                .sum::<u32>();
            bail!(
                "{left} shards are this gateway's still, after {} s: is there another one that is synced and does not drain (`ringside gateway \
                 fleet`)? It goes on draining",
                time.as_secs()
            );
        }
        tokio::time::sleep(LOOK).await;
    }
}

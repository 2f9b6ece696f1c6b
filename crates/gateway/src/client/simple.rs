//! get, list, put, delete, watch.

use std::net::IpAddr;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use ringside_gateway_core::TenantAddress;
use ringside_gateway_core::policy::GroupId;
use ringside_gateway_core::table::{Encapsulation, Host};
use ringside_measure::{BadValue, bad_value};
use ringside_wire::MacAddr;
use serde_json::json;
use tonic::transport::Channel;

use super::remote::{Meant, Remote};
use super::show::{self, Shown};
use super::{FilterArgs, Kind, ListArgs, WatchArgs, named, vni};
use crate::object::{Group, Neighbor, Object, Port, Statement, text, wire};
use crate::proto;

/// `put`
#[derive(Debug, Args)]
pub(super) struct PutArgs {
    #[command(subcommand)]
    what: PutCommand,
}

#[derive(Debug, Subcommand)]
enum PutCommand {
    /// Where an address lives
    #[command(after_help = "\
Examples:
  ringside gateway put neighbor 42 10.0.0.7 --mac 02:00:00:00:00:07 --host 192.0.2.1")]
    Neighbor(PutNeighborArgs),
    /// Which security groups are bound to an address
    #[command(after_help = "\
Examples:
  ringside gateway put port 42 10.0.0.7 --groups 1,2")]
    Port(PutPortArgs),
}

#[derive(Debug, Args)]
struct AddressArgs {
    /// The network
    #[arg(value_parser = vni)]
    vni: u32,
    /// The address in it
    ip: IpAddr,
    /// The version of what is said; what is known in a higher one stays [default: one more than what is known]
    #[arg(long, value_parser = super::version)]
    version: Option<u64>,
}

#[derive(Debug, Args)]
struct PutNeighborArgs {
    #[command(flatten)]
    address: AddressArgs,
    /// Its MAC address in its own network
    #[arg(long)]
    mac: MacAddr,
    /// The address of the host where it lives
    #[arg(long, value_name = "IP")]
    host: IpAddr,
    /// That host's MAC address, or that of the router on the way to it [default: the gateway finds it out]
    #[arg(long, value_name = "MAC")]
    host_mac: Option<MacAddr>,
    /// The number of the gateway's interface on the way to it, from 0 [default: as the kernel routes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(..=254))]
    port: Option<u8>,
    /// What the host speaks [default: what packets come in]
    #[arg(long)]
    encapsulation: Option<EncapsulationArg>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum EncapsulationArg {
    /// RFC 7348
    Vxlan,
    /// RFC 8926
    Geneve,
}

#[derive(Debug, Args)]
struct PutPortArgs {
    #[command(flatten)]
    address: AddressArgs,
    /// Numbers of security groups
    #[arg(long, value_name = "N,N", value_delimiter = ',', required = true)]
    groups: Vec<u32>,
}

pub(super) async fn get<O: Remote + Shown>(channel: Channel, key: O::Key, json: bool) -> Result<()> {
    match O::find(&channel, key).await? {
        Some(Statement::Put(object)) => {
            // Rules have no place in a table of one line.
            if json || O::NAME == Group::NAME {
                return show::json(&object.to_text(), false);
            }
            show::print(&show::table(O::HEADER, std::iter::once(object.line()), &[]))
        }
        Some(Statement::Delete(_, version)) => bail!("{} was deleted, in version {version}", named::<O>(key)),
        None => bail!("there is no {}", named::<O>(key)),
    }
}

pub(super) fn meant(filter: &FilterArgs, host: Option<IpAddr>) -> Meant {
    let given = filter.vni.is_some() || filter.prefix.is_some();
    Meant {
        filter: given.then(|| proto::AddressFilter {
            vni: filter.vni,
            prefix: filter.prefix.map(|prefix| prefix.to_string()),
        }),
        host_ip: wire::host_ip_bytes(host),
    }
}

/// Checks that a filter is of these objects.
pub(super) fn check_filter(kind: Kind, filter: &FilterArgs, host: Option<IpAddr>) -> Result<()> {
    if kind == Kind::Group && (filter.vni.is_some() || filter.prefix.is_some()) {
        bad_value!("security groups belong to no network: leave --vni and --prefix out");
    }
    if kind != Kind::Neighbor && host.is_some() {
        bad_value!("--host goes with neighbors only");
    }
    Ok(())
}

pub(super) async fn list<O: Remote + Shown>(channel: Channel, args: &ListArgs, json: bool) -> Result<()> {
    let meant = meant(&args.filter, args.host);
    let most = usize::try_from(args.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let (mut token, mut lines, mut count) = (Vec::new(), Vec::new(), 0);
    loop {
        let (objects, next) = O::list(&channel, &meant, token).await?;
        for object in objects.into_iter().take(most - count) {
            count += 1;
            match json {
                true => show::json(&object.to_text(), true)?,
                false => lines.push(object.line()),
            }
        }
        token = next;
        if token.is_empty() || count == most {
            break;
        }
    }
    if json {
        return Ok(());
    }
    let versions = O::HEADER.len() - 1;
    show::print(&show::table(O::HEADER, lines.into_iter(), &[versions]))
}

/// What is known of something, as a version to say something else in.
pub(super) fn next_version<O: Object>(known: Option<&Statement<O>>) -> u64 {
    known.map_or(1, |known| known.version() + 1)
}

impl AddressArgs {
    fn address(&self) -> Result<TenantAddress, BadValue> {
        text::address(self.vni, self.ip).map_err(BadValue)
    }
}

impl PutPortArgs {
    fn groups(&self) -> Result<Vec<GroupId>, BadValue> {
        wire::groups(self.groups.iter().copied()).map_err(BadValue)
    }
}

/// Checks the object that is put.
pub(super) fn check_put(args: &PutArgs) -> Result<()> {
    match &args.what {
        PutCommand::Neighbor(args) => {
            args.address.address()?;
        }
        PutCommand::Port(args) => {
            args.address.address()?;
            args.groups()?;
        }
    }
    Ok(())
}

pub(super) async fn put(channel: Channel, args: &PutArgs, json: bool) -> Result<()> {
    match &args.what {
        PutCommand::Neighbor(args) => {
            let address = args.address.address()?;
            let known = Neighbor::find(&channel, address).await?;
            let neighbor = Neighbor {
                address,
                mac: args.mac,
                host: Host {
                    ip: args.host,
                    mac: args.host_mac,
                    port: args.port,
                    encapsulation: args.encapsulation.map(|encapsulation| match encapsulation {
                        EncapsulationArg::Vxlan => Encapsulation::Vxlan,
                        EncapsulationArg::Geneve => Encapsulation::Geneve,
                    }),
                },
                version: args.address.version.unwrap_or_else(|| next_version(known.as_ref())),
            };
            put_one(&channel, neighbor, json).await
        }
        PutCommand::Port(args) => {
            let address = args.address.address()?;
            let known = Port::find(&channel, address).await?;
            let port = Port {
                address,
                groups: args.groups()?,
                version: args.address.version.unwrap_or_else(|| next_version(known.as_ref())),
            };
            put_one(&channel, port, json).await
        }
    }
}

async fn put_one<O: Remote>(channel: &Channel, object: O, json: bool) -> Result<()> {
    let (key, version) = (object.key(), object.version());
    let outcome = O::put(channel, &[object]).await?;
    told::<O>(key, version, outcome.first().copied(), json)
}

/// What became of one object.
pub(super) fn told<O: Object>(
    key: O::Key,
    version: u64,
    // Of one object.
    outcome: Option<proto::Outcome>,
    json: bool,
) -> Result<()> {
    let outcome = outcome.context("the gateway sent no outcome")?;
    let name = named::<O>(key);
    let done = match outcome {
        proto::Outcome::Created => "is new",
        proto::Outcome::Replaced => "is changed",
        proto::Outcome::Deleted => "is deleted",
        proto::Outcome::Unchanged => "was so already",
        proto::Outcome::NotFound => "was not there",
        proto::Outcome::Older => {
            bail!("{name}: something newer than version {version} is known; give a higher --version")
        }
        proto::Outcome::Conflict => {
            bail!("{name}: something else is known in the same version {version}; give a higher --version")
        }
        proto::Outcome::Unspecified => bail!("{name}: the gateway sent an outcome that this program does not know"),
    };
    match json {
        true => show::json(&json!({ "outcome": word(outcome), "version": version }), false),
        false => show::print(&format!("{name} {done} (version {version})")),
    }
}

/// As in JSON.
pub(super) fn word(outcome: proto::Outcome) -> String {
    let name = outcome.as_str_name().trim_start_matches("OUTCOME_");
    name.to_ascii_lowercase().replace('_', "-")
}

pub(super) async fn watch<O: Remote + Shown>(channel: Channel, args: &WatchArgs, json: bool) -> Result<()> {
    let mut each = |statements: Vec<Statement<O>>, synced: bool| {
        for statement in &statements {
            match (json, statement) {
                (true, Statement::Put(object)) => show::json(&json!({ "put": object.to_text() }), true)?,
                (true, Statement::Delete(key, version)) => {
                    show::json(&json!({ "deleted": key.to_string(), "version": version }), true)?;
                }
                (false, Statement::Put(object)) => {
                    let pairs = O::HEADER.iter().zip(object.line());
                    let pairs: Vec<String> = pairs.map(|(name, value)| format!("{name} {value}")).collect();
                    show::print(&format!("+ {}", pairs.join(", ")))?;
                }
                (false, Statement::Delete(key, version)) => show::print(&format!("- {key} (version {version})"))?,
            }
        }
        if synced {
            match json {
                true => show::json(&json!({ "synced": true }), true)?,
                false => show::print("= that was there; changes follow")?,
            }
        }
        Ok(())
    };
    O::watch(&channel, meant(&args.filter, None), args.existing, &mut each).await?;
    bail!("the gateway has ended")
}

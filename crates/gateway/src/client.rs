//! The commands of `ringside-gateway ctl` and of `ringside gateway`: a client of the API.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand, ValueEnum};
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_measure::units::count;
use ringside_measure::{BadValue, bad_value};

use crate::object::wire::group_key;
use crate::object::{Group, GroupKey, Neighbor, Object, Port, text};

mod agent;
mod apply;
mod connect;
mod credentials;
mod delete;
mod direct;
mod fleet;
mod load;
mod migrate;
mod operate;
mod remote;
mod show;
mod simple;
mod tls;
mod trace;

/// Where the gateway's socket is, unless its configuration says otherwise.
pub const SOCKET: &str = "/run/ringside-gateway/api.sock";

/// Which gateway, and what to do.
#[derive(Debug, Args)]
pub struct ClientArgs {
    #[command(flatten)]
    at: At,
    /// Answer as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

/// Which gateway.
#[derive(Debug, Clone, Args)]
struct At {
    /// The gateway's unix socket
    #[arg(long, global = true, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
    /// A gateway elsewhere, over TLS: https://HOST:PORT; takes --ca, --certificate and --key
    #[arg(long, global = true, value_name = "URL")]
    address: Option<String>,
    /// The authority of the gateway's certificate (PEM)
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Your certificate (PEM)
    #[arg(long, global = true, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long = "key", global = true, value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show one neighbour, port or security group
    #[command(after_help = "\
Examples:
  ringside gateway get neighbor 42 10.0.0.7     where that address of network 42 lives
  ringside gateway get port 42 10.0.0.7         the security groups that are bound to it
  ringside gateway get group 1 --json           a security group with its rules")]
    Get(KeyArgs),
    /// List neighbours, ports or security groups
    #[command(after_help = "\
Examples:
  ringside gateway list neighbors --vni 42
  ringside gateway list neighbors --host 192.0.2.1 --json
  ringside gateway list ports --prefix 10.0.0.0/8
  ringside gateway list groups")]
    List(ListArgs),
    /// Put one neighbour or port; security groups are put by `apply`
    #[command(after_help = "\
Examples:
  ringside gateway put neighbor 42 10.0.0.7 --mac 02:00:00:00:00:07 --host 192.0.2.1
  ringside gateway put port 42 10.0.0.7 --groups 1,2")]
    Put(simple::PutArgs),
    /// Delete one neighbour, port or security group; or all neighbours or ports of a file, a
    /// network or a host
    #[command(after_help = "\
Examples:
  ringside gateway delete neighbor 42 10.0.0.7
  ringside gateway delete group 1 --version 9       unless something newer than version 9 is known
  ringside gateway delete neighbors --vni 42        all of a network, with --prefix a part of it
  ringside gateway delete ports --vni 42
  ringside gateway delete neighbors --host 192.0.2.1
  ringside gateway delete neighbors --file gone.csv

The first line of a file names the columns: vni, ip, and if wanted version. Others do not count: a
file for `load` will do.")]
    Delete(delete::DeleteArgs),
    /// Make everything be as a YAML file says, and show what differs
    #[command(after_help = "\
Examples:
  ringside gateway apply -f tenants.yaml --dry-run   only show what would change
  ringside gateway apply -f tenants.yaml
  ringside gateway apply -f tenants.yaml --prune     delete what the file's networks have besides")]
    Apply(apply::ApplyArgs),
    /// Put neighbours from a CSV file, as many as there are
    #[command(after_help = "\
Examples:
  ringside gateway load neighbors.csv
  ringside gateway load neighbors.csv --version 7    for lines without a version

The first line names the columns: vni, ip, mac, host-ip, and if wanted host-mac, port,
encapsulation, version. Without a version the gateway gives what differs from what is known the next
one.")]
    Load(load::LoadArgs),
    /// Show every change from now on, until Ctrl-C
    #[command(after_help = "\
Examples:
  ringside gateway watch neighbors --vni 42
  ringside gateway watch groups --existing --json    what is there first, then what changes")]
    Watch(WatchArgs),
    /// Show counters and sizes
    #[command(after_help = "\
Examples:
  ringside gateway stats
  ringside gateway stats --json")]
    Stats,
    /// Show whether everything works; the exit status is 1 if something does not
    #[command(after_help = "\
Examples:
  ringside gateway health")]
    Health,
    /// Show packets and what was decided about them, by the XDP program and by workers, until Ctrl-C
    #[command(after_help = "\
Examples:
  ringside gateway trace --vni 42 --ip 10.0.0.7
  ringside gateway trace --drops                        what is dropped, and why
  ringside gateway trace --drops ingress-denied         for one reason
  ringside gateway trace --vni 42 --count 1000 --pcapng packets.pcapng   for Wireshark")]
    Trace(trace::TraceArgs),
    /// On a compute host: send straight to other hosts what the gateway says, until Ctrl-C
    #[command(after_help = "\
Examples:
  ringside gateway direct --key-file /etc/ringside-gateway/direct.key
  ringside gateway direct --from 192.0.2.1 --device vxlan42

The gateway says so of flows that are worth it, if path.direct is configured. The kernel's VXLAN endpoints have to be made with
nolearning. What was said is over after its time, when the gateway takes it back, and when this ends.")]
    Direct(direct::DirectArgs),
    /// On a compute host: send to the gateway that owns the network, by what gateways of a fleet say, until Ctrl-C
    #[command(after_help = "\
Examples:
  ringside gateway agent --endpoint https://gw1:7443 --ca ca.pem --certificate c.pem --key c.key
  ringside gateway agent --endpoint unix:/run/gw1.sock,unix:/run/gw2.sock --device vxlan42

Of several it asks the next gateway when one is gone or may not know the newest. When it ends, VXLAN endpoints stay as they are.
The certificate is of the gateways' api.tcp.host-ca. Files are read again for each connection; SIGHUP has it connect anew.")]
    Agent(agent::AgentArgs),
    /// Show which gateways share networks out among them, and how this one fares
    #[command(after_help = "\
Examples:
  ringside gateway fleet
  ringside gateway fleet --vni 42     which of them network 42 is to be sent to
  ringside gateway fleet --json")]
    Fleet(fleet::FleetArgs),
    /// Take the gateway out of service, or back into it; in a fleet others take its networks first
    #[command(after_help = "\
Examples:
  ringside gateway drain
  ringside gateway drain --off")]
    Drain(operate::DrainArgs),
    /// Say that all of what a damaged store has lost was put anew: addresses without a port may do anything again
    #[command(after_help = "\
Examples:
  ringside gateway repaired

`health` says what was lost. Put it anew first (apply, load), groups and ports above all: an address that has no port by then may do
anything from then on. With etcd this writes keys anew that cannot be read, with what this gateway
knows of their objects.")]
    Repaired,
    /// Bring what a stopped gateway of this host knows from its file to etcd, or back
    #[command(after_help = "\
Examples:
  ringside gateway migrate --to etcd
  ringside gateway migrate --to sqlite --config /etc/ringside-gateway.toml

Stop the gateway before, and change store.kind afterwards. It is compared on both sides. Interrupted, run it again.")]
    Migrate(migrate::MigrateArgs),
}

/// What there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Where tenants' addresses live
    #[value(alias = "neighbors", alias = "neighbour", alias = "neighbours")]
    Neighbor,
    /// Which security groups are bound to tenants' addresses
    #[value(alias = "ports")]
    Port,
    /// What security groups allow
    #[value(alias = "groups", alias = "security-group", alias = "security-groups")]
    Group,
}

#[derive(Debug, Args)]
struct KeyArgs {
    /// neighbor, port or group
    kind: Kind,
    /// Network and address of a neighbour or port, number of a group
    #[arg(required = true, num_args = 1..=2, value_name = "KEY")]
    key: Vec<String>,
}

/// Reads a network's number, of 24 bits.
fn vni(text: &str) -> Result<u32, String> {
    let vni = text.parse().ok().and_then(Vni::new);
    let wrong = || format!("{text:?} is not the number of a network: 0 to {}", Vni::MAX);
    vni.map(Vni::number).ok_or_else(wrong)
}

/// Parses the version of an object.
fn version(text: &str) -> Result<u64, String> {
    let number = text.parse().map_err(|_| format!("{text:?} is no version"))?;
    crate::object::wire::version(number)
}

#[derive(Debug, Args)]
struct FilterArgs {
    /// Only in this network
    #[arg(long, value_parser = vni)]
    vni: Option<u32>,
    /// Only addresses in it, such as 10.0.0.0/8
    #[arg(long, value_parser = crate::object::wire::prefix)]
    prefix: Option<ipnet::IpNet>,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// neighbors, ports or groups
    kind: Kind,
    #[command(flatten)]
    filter: FilterArgs,
    /// Only neighbours on the host with this address
    #[arg(long, value_name = "IP")]
    host: Option<IpAddr>,
    /// Show at most this number of objects, such as 100 or 10k
    #[arg(long, value_name = "N", value_parser = count)]
    limit: Option<u64>,
}

#[derive(Debug, Args)]
struct WatchArgs {
    /// neighbors, ports or groups
    kind: Kind,
    #[command(flatten)]
    filter: FilterArgs,
    /// Show what is there first
    #[arg(long)]
    existing: bool,
}

/// Does what was asked.
///
/// # Errors
/// What is wrong with the request, or what the gateway says to it.
pub fn run(args: &ClientArgs) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the client")?;
    match runtime.block_on(command(args)) {
        // Who reads no more of the answer has seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        result => result,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<std::io::Error>();
    cause.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

async fn command(args: &ClientArgs) -> Result<ExitCode> {
    let json = args.json;
    // It asks the gateway nothing.
    if let Command::Direct(direct) = &args.command {
        direct::run(direct, json).await?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Command::Migrate(args) = &args.command {
        return migrate::run(args);
    }
    if let Command::Agent(agent) = &args.command {
        agent::run(&args.at, agent, json).await?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Command::Apply(apply) = &args.command {
        apply::run(&args.at, apply, json).await?;
        return Ok(ExitCode::SUCCESS);
    }
    check(&args.command)?;
    let channel = connect::connect(&args.at).await?;
    match &args.command {
        Command::Get(get) => match get.kind {
            Kind::Neighbor => simple::get::<Neighbor>(channel, address(&get.key)?, json).await?,
            Kind::Port => simple::get::<Port>(channel, address(&get.key)?, json).await?,
            Kind::Group => simple::get::<Group>(channel, group(&get.key)?, json).await?,
        },
        Command::List(list) => match list.kind {
            Kind::Neighbor => simple::list::<Neighbor>(channel, list, json).await?,
            Kind::Port => simple::list::<Port>(channel, list, json).await?,
            Kind::Group => simple::list::<Group>(channel, list, json).await?,
        },
        Command::Put(put) => simple::put(channel, put, json).await?,
        Command::Delete(delete) => delete::run(channel, delete, json).await?,
        Command::Load(load) => load::run(channel, load, json).await?,
        Command::Watch(watch) => match watch.kind {
            Kind::Neighbor => simple::watch::<Neighbor>(channel, watch, json).await?,
            Kind::Port => simple::watch::<Port>(channel, watch, json).await?,
            Kind::Group => simple::watch::<Group>(channel, watch, json).await?,
        },
        Command::Stats => operate::stats(channel, json).await?,
        Command::Health => return operate::health(channel, json).await,
        Command::Trace(trace) => trace::run(channel, trace, json).await?,
        Command::Repaired => operate::repaired(channel, json).await?,
        Command::Drain(drain) => operate::drain(channel, drain, json).await?,
        Command::Fleet(fleet) => return fleet::run(channel, fleet, json).await,
        Command::Agent(_) | Command::Apply(_) | Command::Direct(_) | Command::Migrate(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks values that the parser cannot judge, before a gateway is asked.
fn check(command: &Command) -> Result<()> {
    match command {
        Command::Get(get) => check_key(get.kind, &get.key),
        Command::Delete(delete) => delete::check(delete),
        Command::List(list) => simple::check_filter(list.kind, &list.filter, list.host),
        Command::Watch(watch) => simple::check_filter(watch.kind, &watch.filter, None),
        Command::Put(put) => simple::check_put(put),
        _ => Ok(()),
    }
}

/// Checks that words are a key of this kind.
fn check_key(kind: Kind, words: &[String]) -> Result<()> {
    match kind {
        Kind::Neighbor | Kind::Port => address(words).map(drop),
        Kind::Group => group(words).map(drop),
    }
}

/// Network and address.
fn address(words: &[String]) -> Result<TenantAddress> {
    let [number, ip] = words else {
        bad_value!("network and address are needed, such as: 42 10.0.0.7");
    };
    let number = vni(number).map_err(BadValue)?;
    let wrong = |_| BadValue(format!("{ip:?} is not an IP address"));
    let ip = ip.parse().map_err(wrong)?;
    Ok(text::address(number, ip).map_err(BadValue)?)
}

/// The number of a group.
fn group(words: &[String]) -> Result<GroupKey> {
    let [number] = words else {
        bad_value!("one number of a security group is needed, such as: 1");
    };
    let number = number
        .parse()
        .map_err(|_| BadValue(format!("{number:?} is not the number of a security group")))?;
    Ok(group_key(number))
}

/// `neighbor 10.0.0.7 in network 42`
fn named<O: Object>(key: O::Key) -> String {
    format!("{} {key}", O::NAME)
}

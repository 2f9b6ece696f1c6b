//! agent: on a compute host, has the kernel's VXLAN endpoints send to the gateway that owns their network.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use ringside_gateway_core::Vni;
use ringside_gateway_core::shard::{SHARDS, Shard};
use ringside_measure::bad_value;
use ringside_nic::{Interface, Vxlan};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::connect::Way;
use super::credentials::Credentials;
use super::{At, connect, show};
use crate::object::wire;
use crate::proto;
use crate::proto::fleet_service_client::FleetServiceClient;

/// `agent`
#[derive(Debug, Args)]
pub(super) struct AgentArgs {
    /// Gateways that tell who owns what: https://HOST:PORT or unix:/PATH; the next one is asked when one is gone
    #[arg(long = "endpoint", value_name = "URL", value_delimiter = ',', required = true)]
    endpoints: Vec<String>,
    /// The VXLAN endpoints that this is for [default: all that send to a host]
    #[arg(long = "device", value_name = "NAME")]
    devices: Vec<String>,
    /// The network namespaces that they are in, by their names or paths [default: this one]
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    netns: Vec<PathBuf>,
    /// Say the numbers of networks, too: what the agent says may be in a log, which is not to have them
    #[arg(long)]
    verbose: bool,
}

/// A gateway that says nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(1);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(1);
/// Before it is tried again, when no gateway answers.
const PAUSE: Duration = Duration::from_millis(200);
/// With a gateway that may not know the newest, before the next one is asked.
const DOUBT: Duration = Duration::from_secs(1);
/// Endpoints that were made meanwhile, or were changed by others, are looked for so often.
const LOOK: Duration = Duration::from_secs(1);

/// Who owns what, as it was heard.
#[derive(Debug, Clone)]
struct Owners {
    generation: u64,
    /// By shard; 0: nobody.
    owners: Vec<u64>,
    gateways: BTreeMap<u64, proto::Gateway>,
}

impl Owners {
    fn new() -> Self {
        Self {
            generation: 0,
            owners: vec![0; SHARDS as usize],
            gateways: BTreeMap::new(),
        }
    }

    /// Takes what a gateway says. False if it knows less than what is known already, and is not to be believed.
    fn take(&mut self, message: proto::WatchShardsResponse) -> bool {
        if message.generation < self.generation && !message.current {
            return false;
        }
        self.generation = message.generation;
        if message.whole {
            self.owners.fill(0);
        }
        for owner in message.owners {
            if let Some(place) = self.owners.get_mut(owner.shard as usize) {
                *place = owner.gateway;
            }
        }
        if !message.gateways.is_empty() {
            let gateways = message.gateways.into_iter();
            self.gateways = gateways.map(|gateway| (gateway.id, gateway)).collect();
        }
        true
    }

    /// Which gateway a network's packets go to, and its address of the family of this one; None for the address: it has none of that
    /// family.
    fn target(&self, vni: u32, like: IpAddr) -> Option<(Option<IpAddr>, &str)> {
        let shard = Shard::of(Vni::new(vni)?);
        let owner = self.owners.get(shard.number() as usize)?;
        let gateway = self.gateways.get(owner)?;
        let addresses = gateway.addresses.iter().filter_map(|bytes| wire::host_ip(bytes).ok()?);
        let mut of_family = addresses.filter(|ip| ip.is_ipv4() == like.is_ipv4());
        Some((of_family.next(), &gateway.name))
    }
}

pub(super) async fn run(at: &At, args: &AgentArgs, json: bool) -> Result<()> {
    let mut endpoints = (args.endpoints.iter())
        .map(|text| {
            let way = connect::way(at, text).with_context(|| format!("--endpoint {text}"))?;
            Ok(way.with(|endpoint| {
                endpoint
                    .connect_timeout(CONNECT)
                    .http2_keep_alive_interval(SILENCE)
                    .keep_alive_timeout(SILENCE)
                    .keep_alive_while_idle(true)
            }))
        })
        .collect::<Result<Vec<_>>>()?;
    // All of them show the same.
    let greeter = endpoints.iter().find_map(Way::greeter).cloned();
    let mut credentials = greeter.map(|greeter| Credentials::new(at, greeter));
    let wait_for = |kind| signal(kind).context("waiting for signals");
    let mut interrupt = wait_for(SignalKind::interrupt())?;
    let mut terminate = wait_for(SignalKind::terminate())?;
    let mut hangup = wait_for(SignalKind::hangup())?;
    let (owners, heard) = mpsc::channel();
    // A thread is in one namespace at a time, and gateways are reached from this one.
    let namespaces = match args.netns.is_empty() {
        true => vec![None],
        false => args.netns.iter().cloned().map(Some).collect(),
    };
    let mut tellers = Vec::new();
    let mut threads = Vec::new();
    for namespace in namespaces {
        let (to, own) = mpsc::channel::<Owners>();
        tellers.push(to);
        let mut kept = Keeper {
            devices: args.devices.clone(),
            json,
            is_verbose: args.verbose,
            told: BTreeMap::new(),
        };
        let thread = std::thread::Builder::new().name("endpoints".to_owned());
        threads.push(thread.spawn(move || {
            if let Some(namespace) = namespace {
                super::direct::enter(&namespace)?;
            }
            kept.run(&own)
        })?);
    }
    std::thread::spawn(move || {
        for owners in heard {
            tellers
                .iter()
                .for_each(|to: &mpsc::Sender<Owners>| _ = to.send(Owners::clone(&owners)));
        }
    });
    let names = args.endpoints.clone();
    let followed = tokio::spawn(async move {
        let credentials = credentials.as_mut();
        follow(&mut endpoints, &names, credentials, &mut hangup, &owners).await;
    });
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            _ = look.tick() => if let Some(ended) = threads.iter().position(std::thread::JoinHandle::is_finished) {
                let ended = threads.swap_remove(ended).join();
                return ended.unwrap_or_else(|_| bail!("the thread of the endpoints has panicked"));
            },
        }
    }
    followed.abort();
    Ok(())
}

/// Hears of owners from one gateway after the other, and anew from the same one at each hangup.
async fn follow(
    endpoints: &mut [Way],
    names: &[String],
    mut credentials: Option<&mut Credentials>,
    hangup: &mut Signal,
    to: &mpsc::Sender<Owners>,
) {
    let mut owners = Owners::new();
    let mut failures = 0;
    // What each was told of last: it is tried again several times a second, and says it once.
    let mut told = vec![String::new(); names.len()];
    let mut number = 0;
    loop {
        let (endpoint, name) = (&mut endpoints[number], &names[number]);
        if endpoint.greeter().is_some()
            && let Some(credentials) = &mut credentials
        {
            endpoint.greet_with(credentials.newest(tell));
        }
        match listen(endpoint, name, &mut owners, hangup, to).await {
            Ok(end) => {
                told[number].clear();
                failures = 0;
                if end == End::Hangup {
                    continue;
                }
            }
            Err(error) => {
                let why = format!("{name}: {error:#}");
                if told[number] != why {
                    tell(&why);
                    told[number] = why;
                }
                failures += 1;
            }
        }
        number = (number + 1) % endpoints.len();
        // Every one was asked.
        if failures >= endpoints.len() {
            failures = 0;
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Why nothing is heard from a gateway any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Gone,
    Hangup,
}

/// Until the gateway is gone, or has been in doubt for a while, or SIGHUP came. An error if it said nothing.
async fn listen(
    endpoint: &Way,
    name: &str,
    owners: &mut Owners,
    hangup: &mut Signal,
    to: &mpsc::Sender<Owners>,
) -> Result<End> {
    let channel = endpoint.connect().await;
    let channel = channel.map_err(|error| anyhow!("connecting: {}", connect::causes(&error)))?;
    let mut client = FleetServiceClient::new(channel);
    let asked = client.watch_shards(proto::WatchShardsRequest {});
    let asked = tokio::time::timeout(2 * SILENCE, asked).await.context("no answer")?;
    let mut stream = asked.map_err(|status| connect::refused(&status))?.into_inner();
    let mut is_current = false;
    let mut has_spoken = false;
    loop {
        let heard = async {
            if is_current {
                return Ok(stream.message().await);
            }
            tokio::time::timeout(DOUBT, stream.message()).await
        };
        let message = tokio::select! {
            heard = heard => heard.map_err(|_| anyhow!("it cannot reach etcd, and may not know the newest"))?,
            // Also one that came before the gateway was asked, for files may be read before they are changed.
            _ = hangup.recv() => return Ok(End::Hangup),
        };
        match message {
            Ok(Some(message)) => {
                is_current = message.current;
                if owners.take(message) {
                    if !std::mem::replace(&mut has_spoken, true) {
                        tell(&format!("{name}: generation {} of the map", owners.generation));
                    }
                    _ = to.send(owners.clone());
                }
            }
            Ok(None) => return Ok(End::Gone),
            Err(status) if has_spoken => {
                tell(&format!("{name}: {}", connect::refused(&status)));
                return Ok(End::Gone);
            }
            Err(status) => return Err(connect::refused(&status)),
        }
    }
}

fn tell(words: &str) {
    eprintln!("{words}");
}

/// Keeps the endpoints of a namespace.
struct Keeper {
    devices: Vec<String>,
    json: bool,
    /// Numbers of networks are said.
    is_verbose: bool,
    /// What was said of a device that cannot be pointed anywhere: it is looked at every second, and said once.
    told: BTreeMap<String, String>,
}

impl Keeper {
    /// Until nobody tells anything any more.
    fn run(&mut self, heard: &mpsc::Receiver<Owners>) -> Result<()> {
        for name in &self.devices {
            let device = Interface::by_name(name).context("--device")?;
            if device.vxlan()?.is_none() {
                bad_value!("--device: {name} is no VXLAN endpoint");
            }
        }
        let mut owners: Option<Owners> = None;
        loop {
            match heard.recv_timeout(LOOK) {
                Ok(newer) => owners = Some(heard.try_iter().last().unwrap_or(newer)),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if let Some(owners) = &owners {
                self.keep(owners)?;
            }
        }
    }

    fn keep(&mut self, owners: &Owners) -> Result<()> {
        for device in Interface::all()? {
            let is_meant = self.devices.is_empty() || self.devices.iter().any(|name| name == device.name());
            // One that goes meanwhile is none.
            if is_meant && let Ok(Some(made)) = device.vxlan() {
                self.point(&device, &made, owners)?;
            }
        }
        Ok(())
    }

    /// The number of a network, if that is to be said.
    fn network(&self, vni: u32) -> String {
        match self.is_verbose {
            true => format!(" {vni}"),
            false => String::new(),
        }
    }

    /// Says once that the owner has no address that this endpoint could send to.
    fn lacks(&mut self, device: &Interface, made: &Vxlan, name: &str) {
        let (device, network) = (device.name(), self.network(made.vni));
        let family = match made.remote.or(made.local) {
            Some(IpAddr::V6(_)) => "IPv6",
            _ => "IPv4",
        };
        let stays = made.remote.map(|remote| format!("; it goes on sending to {remote}"));
        let words = format!(
            "{device}: its network{network} is {name}'s, which has no {family} address that hosts can send to: give it one (fleet.addresses){}",
            stays.unwrap_or_default()
        );
        if self.told.get(device) != Some(&words) {
            tell(&words);
            self.told.insert(device.to_owned(), words);
        }
    }

    fn point(&mut self, device: &Interface, made: &Vxlan, owners: &Owners) -> Result<()> {
        // One that sends to nobody yet is somebody else's matter, unless it is named.
        let like = made.remote.or(made.local.filter(|_| !self.devices.is_empty()));
        let Some((to, name)) = like.and_then(|like| owners.target(made.vni, like)) else {
            return Ok(());
        };
        let Some(to) = to else {
            self.lacks(device, made, name);
            return Ok(());
        };
        self.told.remove(device.name());
        if made.remote == Some(to) {
            return Ok(());
        }
        if let Err(error) = device.set_vxlan_remote(to) {
            tell(&error.to_string());
            return Ok(());
        }
        if self.json {
            let mut value = json!({
                "device": device.name(),
                "gateway": name,
                "address": to,
                "before": made.remote,
                "generation": owners.generation,
            });
            if self.is_verbose {
                value["vni"] = made.vni.into();
            }
            return show::json(&value, true);
        }
        show::print(&format!(
            "{}: its network{} to {name} at {to}, generation {}",
            device.name(),
            self.network(made.vni),
            owners.generation
        ))
    }
}

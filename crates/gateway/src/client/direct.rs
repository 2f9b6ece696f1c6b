//! direct: on a compute host, has the kernel send straight to other hosts what a gateway says.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use ringside_gateway_core::TenantAddress;
use ringside_gateway_core::table::Encapsulation;
use ringside_measure::bad_value;
use ringside_measure::units::count_in;
use ringside_nic::{Interface, Vxlan};
use serde_json::json;
use tokio::net::UdpSocket;
use tokio::signal::unix::{SignalKind, signal};

use super::show;
use crate::notice::{self, Key, Notice, Way};

/// `direct`
#[derive(Debug, Args)]
#[group(id = "believed", args = ["key_file", "from"], required = true, multiple = true)]
pub(super) struct DirectArgs {
    /// The VXLAN endpoints that this is for [default: all]
    #[arg(long = "device", value_name = "NAME")]
    devices: Vec<String>,
    /// Where the gateway's notices come to
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from(([0_u16; 8], notice::PORT)))]
    listen: SocketAddr,
    /// What notices have to be sealed with: the gateway's path.direct.key-file
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The addresses that notices have to come from
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    from: Vec<IpAddr>,
    /// Maximum number of receivers, such as 4096 or 100k
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = count_in(1..=usize::MAX))]
    most: usize,
    /// The network namespace that the endpoints are in, by its name or path [default: this one]
    #[arg(long, value_name = "NAMESPACE")]
    netns: Option<PathBuf>,
}

/// A sealed notice that is older is somebody's who has kept it.
const OLDEST: Duration = Duration::from_secs(60);
/// What is over is looked for so often.
const LOOK: Duration = Duration::from_millis(500);
/// Longer ones are no notices.
const LONGEST: usize = 1024;

/// Where a receiver's packets go at the moment.
struct Straight {
    device: Interface,
    mac: [u8; 6],
    until: Instant,
}

struct Agent<'a> {
    args: &'a DirectArgs,
    key: Option<Key>,
    json: bool,
    now: HashMap<TenantAddress, Straight>,
    /// When the newest notice about a receiver was said.
    said: HashMap<TenantAddress, Duration>,
}

pub(super) async fn run(args: &DirectArgs, json: bool) -> Result<()> {
    let key = args.key_file.as_deref().map(Key::read).transpose();
    let key = key.map_err(anyhow::Error::msg).context("--key-file")?;
    // Here, before the endpoints' namespace is entered.
    let socket = UdpSocket::bind(args.listen).await.with_context(|| {
        format!(
            "listening for notices at {}; choose another place with --listen",
            args.listen
        )
    })?;
    if let Some(namespace) = &args.netns {
        enter(namespace)?;
    }
    let mut agent = Agent {
        args,
        key,
        json,
        now: HashMap::new(),
        said: HashMap::new(),
    };
    agent.begin()?;
    let mut ends = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let [interrupt, terminate] = &mut ends;
    let failed = |error: &mut std::io::Error| anyhow::anyhow!("waiting for signals: {error}");
    let (interrupt, terminate) = (interrupt.as_mut().map_err(failed)?, terminate.as_mut().map_err(failed)?);
    eprintln!("listening for notices at {}", args.listen);
    let mut look = tokio::time::interval(LOOK);
    let mut datagram = [0; LONGEST];
    let ended = loop {
        tokio::select! {
            _ = interrupt.recv() => break Ok(()),
            _ = terminate.recv() => break Ok(()),
            _ = look.tick() => if let Err(error) = agent.look() {
                break Err(error);
            },
            received = socket.recv_from(&mut datagram) => match received {
                Ok((len, from)) => if let Err(error) = agent.told(&datagram[..len], from.ip().to_canonical()) {
                    break Err(error);
                },
                Err(error) => break Err(error).context("receiving notices"),
            },
        }
    };
    agent.end();
    ended
}

/// Everything that is asked of the kernel from now on is asked there.
pub(super) fn enter(namespace: &Path) -> Result<()> {
    let path = match namespace.is_absolute() {
        true => namespace.to_owned(),
        false => Path::new("/run/netns").join(namespace),
    };
    let entered = std::fs::File::open(&path)
        .map_err(anyhow::Error::from)
        .and_then(|file| Ok(nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET)?));
    entered.with_context(|| format!("--netns: entering {}", path.display()))
}

impl Agent<'_> {
    /// Checks the endpoints, and takes back what a process before has left.
    fn begin(&self) -> Result<()> {
        for name in &self.args.devices {
            let device = Interface::by_name(name).context("--device")?;
            if device.vxlan()?.is_none() {
                bad_value!("--device: {name} is no VXLAN endpoint");
            }
        }
        for (device, made) in self.endpoints()? {
            if made.learns && self.args.devices.iter().any(|name| name == device.name()) {
                bail!(
                    "--device: {0} learns hosts from what it receives, and would drop what comes by the gateway meanwhile; make it \
                     with nolearning (ip link set dev {0} type vxlan nolearning)",
                    device.name()
                );
            }
            // Where nothing is learned nobody else makes such entries.
            for mac in device.forwarded()? {
                if !made.learns {
                    device.stop_forwarding(mac)?;
                }
            }
        }
        Ok(())
    }

    /// Those that this is for.
    fn endpoints(&self) -> Result<Vec<(Interface, Vxlan)>> {
        let mut endpoints = Vec::new();
        for device in Interface::all()? {
            let is_meant = self.args.devices.is_empty() || self.args.devices.iter().any(|name| name == device.name());
            // One that goes meanwhile is none.
            if is_meant && let Ok(Some(made)) = device.vxlan() {
                endpoints.push((device, made));
            }
        }
        Ok(endpoints)
    }

    fn told(&mut self, datagram: &[u8], from: IpAddr) -> Result<()> {
        if !self.args.from.is_empty() && !self.args.from.contains(&from) {
            return self.say(
                None,
                &format!("a notice from {from}, which is none of --from, is not believed"),
            );
        }
        let notice = match Notice::open(datagram, self.key.as_ref()) {
            Ok(notice) => notice,
            Err(error) => return self.say(None, &format!("a notice from {from} is not believed: {error}")),
        };
        let age = notice::time().saturating_sub(notice.time);
        if self.key.is_some() && age > OLDEST {
            let words = format!(
                "a notice from {from} is {} s old, and not believed: do the clocks agree?",
                age.as_secs()
            );
            return self.say(Some(&notice), &words);
        }
        if self.said.get(&notice.address).is_some_and(|said| *said >= notice.time) {
            return Ok(());
        }
        if self.said.len() >= self.args.most && !self.said.contains_key(&notice.address) {
            return self.say(Some(&notice), "too many receivers: see --most");
        }
        self.said.insert(notice.address, notice.time);
        match notice.way {
            None => self.take_back(notice.address, "by the gateway again"),
            Some(way) => self.send_straight(&notice, &way),
        }
    }

    fn send_straight(&mut self, notice: &Notice, way: &Way) -> Result<()> {
        let vni = notice.address.vni.number();
        let endpoints = self.endpoints()?;
        let its = |(_, made): &&(Interface, Vxlan)| made.vni == vni && made.port == way.udp_port && !made.learns;
        let Some((device, _)) = endpoints
            .iter()
            .find(its)
            .filter(|_| way.encapsulation != Some(Encapsulation::Geneve))
        else {
            return self.take_back(notice.address, "no endpoint of this network here that does not learn");
        };
        let mac = way.mac.0;
        if let Some(before) = self.now.get(&notice.address)
            && (before.mac != mac || before.device != *device)
        {
            self.take_back(notice.address, "another MAC address")?;
        }
        if let Err(error) = device.forward(mac, way.host) {
            return self.say(Some(notice), &error.to_string());
        }
        let straight = Straight {
            device: device.clone(),
            mac,
            until: Instant::now() + way.lifetime,
        };
        self.now.insert(notice.address, straight);
        let words = format!("straight to {} for {} s", way.host, way.lifetime.as_secs_f32());
        self.say(Some(notice), &words)
    }

    fn take_back(&mut self, address: TenantAddress, why: &str) -> Result<()> {
        let Some(Straight { device, mac, .. }) = self.now.remove(&address) else {
            return Ok(());
        };
        // Its other address may have the same.
        let is_shared = self
            .now
            .values()
            .any(|other| other.mac == mac && other.device == device);
        if !is_shared {
            // An endpoint that is gone has taken its entries along.
            _ = device.stop_forwarding(mac);
        }
        let notice = Notice {
            address,
            way: None,
            time: Duration::ZERO,
        };
        self.say(Some(&notice), why)
    }

    /// Takes back what is over.
    fn look(&mut self) -> Result<()> {
        let now = Instant::now();
        let over = self.now.iter().filter(|(_, straight)| straight.until <= now);
        let over: Vec<TenantAddress> = over.map(|(address, _)| *address).collect();
        for address in over {
            self.take_back(address, "its time is over")?;
        }
        let oldest = notice::time().saturating_sub(2 * OLDEST);
        let kept = &self.now;
        self.said
            .retain(|address, said| *said >= oldest || kept.contains_key(address));
        Ok(())
    }

    /// Leaves nothing behind.
    fn end(&mut self) {
        for (_, Straight { device, mac, .. }) in self.now.drain() {
            _ = device.stop_forwarding(mac);
        }
    }

    fn say(&self, notice: Option<&Notice>, words: &str) -> Result<()> {
        let address = notice.map(|notice| notice.address);
        if self.json {
            let value = json!({
                "vni": address.map(|address| address.vni.number()),
                "ip": address.map(|address| address.ip),
                "what": words,
            });
            return show::json(&value, true);
        }
        match address {
            Some(address) => show::print(&format!("{address}: {words}")),
            None => show::print(words),
        }
    }
}

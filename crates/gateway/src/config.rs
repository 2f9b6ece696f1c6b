//! The configuration file: TOML, checked whole before anything is done by it.
//!
//! ```toml
//! [store]
//! path = "/var/lib/ringside-gateway/store.db"
//! tombstone-seconds = 604800   # how long versions of deleted objects are remembered
//! kind = "sqlite"              # or "etcd": then the truth is there, for many gateways, and the file is a copy
//!
//! [store.etcd]                 # for kind = "etcd", and for `ringside-gateway migrate`
//! endpoints = ["https://192.0.2.10:2379", "https://192.0.2.11:2379"]  # http:// only on this host
//! prefix = "/ringside/gateway/"  # what all keys begin with
//! ca = "/etc/ringside-gateway/etcd-ca.pem"
//! certificate = "/etc/ringside-gateway/etcd-client.pem"  # and its key, if etcd asks for one
//! key = "/etc/ringside-gateway/etcd-client.key"
//! user = "gateway"             # and its password, if the certificate does not say who asks
//! password-file = "/etc/ringside-gateway/etcd-password"
//! connect-ms = 2000            # how long a connection may take
//! request-ms = 5000            # how long an answer may take
//! silence-ms = 5000            # without a sign of life for so long etcd is cut off
//! compare-seconds = 600        # between two comparisons with all that etcd holds
//! forward-stale-seconds = 0    # so long without etcd, and tenants' packets are dropped; 0: they go on for ever
//!
//! [fleet]                      # for kind = "etcd": takes part in sharing out networks; off if there is none
//! name = "gateway-1"           # by default the host's
//! weight = 100                 # its share, beside the others'
//! addresses = ["192.0.2.1"]    # where hosts send to, one of each family at the most
//! api = "https://192.0.2.1:7443"  # where the others reach api.tcp
//! lease-seconds = 5            # silent for so long it loses its networks to the others; no less than silence-ms
//! without-link-ms = 1000       # no link on any interface for so long, and it gives them up; 0: it keeps them
//!
//! [api]
//! socket = "/run/ringside-gateway/api.sock"
//! owner = "root:netops"        # who may use the socket; "USER", "USER:GROUP" or ":GROUP"
//! mode = "0660"
//!
//! [api.tcp]                    # only with TLS in both directions
//! listen = "192.0.2.1:7443"
//! certificate = "/etc/ringside-gateway/server.pem"
//! key = "/etc/ringside-gateway/server.key"
//! client-ca = "/etc/ringside-gateway/clients.pem"
//! host-ca = "/etc/ringside-gateway/hosts.pem"  # who has a certificate of it may only ask where networks' packets go
//!
//! [metrics]
//! listen = "127.0.0.1:9465"
//!
//! [log]
//! level = "info"               # error, warn, info, debug, trace
//! format = "text"              # or "json"
//!
//! [connections]
//! limit = 1000000
//! per-tenant = 500000
//! tenants = { 42 = 10000 }       # networks that may have more of them, or fewer
//! idle-seconds = 120
//! pick-up = true
//! timeout-seconds = { established = 432000 }
//!
//! [path]
//! interface = "eth1"           # that hosts are reached by, or several: ["eth1", "eth2"]; without it nothing is forwarded
//! mode = "auto"                # zero-copy, native, generic
//! fast = true                  # false: workers decide about every packet
//! workers = 2                  # threads; the queues are shared out among them
//! cpus = [2, 3]                # of the workers; by default the last half; []: not pinned
//! spin = false                 # they never sleep
//! pins = "/sys/fs/bpf/ringside-gateway"  # the fast path goes on while the daemon is started anew
//! unowned-seconds = 60         # for so long
//! vxlan-port = 4789
//! geneve-port = 6081
//! geneve-options = ["0102:80"] # class and type, hexadecimal, of options that may be critical
//! source-check = false         # drop what does not come from where its sender lives
//! check-windows = true         # the fast path checks numbers of TCP; not with kind = "etcd"
//! derive-source-port = false   # the outer UDP source port follows from the tenant's flow
//! errors-per-second = 100      # ICMP errors, of each worker to each network
//! cached-neighbors = 1000000   # in the fast path; by default what 1/64 of the memory holds
//! cached-connections = 1000000
//! patience-ms = 2500           # how long packets wait for their host's MAC address, 60000 at most
//!
//! [path.direct]                # hosts that send much are told where it goes; off if there is none
//! port = 4797                  # UDP port that they listen at, none of the two above
//! packets-per-second = 10000   # to one receiver, from which on a host is told
//! notices-per-second = 100     # all in all
//! lifetime-seconds = 60        # how long what they are told holds, 86400 at most
//! key-file = "/etc/ringside-gateway/direct.key"  # what notices are sealed with; unsealed if there is none
//! ```
//! Everything has a default but `[api.tcp]`, which is off without it, and `path.interface`.

mod fleet;
mod path;
mod paths;
mod reload;
mod store;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Gid, Group, Uid, User};
use ringside_gateway_core::Vni;
use ringside_gateway_core::conntrack::{Conntrack, Limits, State, Timeouts};
use serde::Deserialize;

use crate::api::{TcpListener, Tls, UnixSocket};
use crate::datapath::{CARRIED, PathOptions, SHORTEST};
use crate::fleet::{EtcdOptions, MemberOptions};

/// Maximum time for which versions of deleted objects are remembered: a hundred years.
const MAX_TOMBSTONES: Duration = Duration::from_secs(100 * 365 * 86_400);

/// What is wrong with a configuration: everything that is, with its place.
#[derive(Debug, thiserror::Error)]
#[error("the configuration {path}: {}", problems.join("; "))]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub problems: Vec<String>,
}

/// A configuration that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The store's file.
    pub store: PathBuf,
    /// Where the truth is, if not in that file.
    pub etcd: Option<EtcdOptions>,
    /// The part that it takes in its fleet.
    pub fleet: Option<MemberOptions>,
    /// There is a fleet, and the truth is not in etcd.
    pub ignores_fleet: bool,
    /// How long versions of deleted objects are remembered.
    pub tombstones: Duration,
    /// The API's unix socket.
    pub socket: UnixSocket,
    /// The API's TCP port.
    pub tcp: Option<TcpListener>,
    /// Where metrics are offered.
    pub metrics: Option<SocketAddr>,
    /// What is logged.
    pub level: Level,
    /// How.
    pub format: Format,
    /// Connections.
    pub limits: Limits,
    /// Connections of networks that may have others than the rest.
    pub tenants: BTreeMap<Vni, u32>,
    /// The data path, if there is an interface for it.
    pub path: Option<PathOptions>,
}

/// What is logged: this, and what is more important.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the words of the trade")]
pub enum Level {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// How it is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct File {
    store: store::StorePart,
    fleet: Option<fleet::FleetPart>,
    api: ApiPart,
    metrics: MetricsPart,
    log: LogPart,
    connections: ConnectionsPart,
    path: path::PathPart,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct ApiPart {
    socket: PathBuf,
    owner: String,
    mode: String,
    tcp: Option<TcpPart>,
}

impl Default for ApiPart {
    fn default() -> Self {
        Self {
            socket: crate::client::SOCKET.into(),
            owner: String::new(),
            mode: "0600".to_owned(),
            tcp: None,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TcpPart {
    listen: SocketAddr,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    host_ca: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct MetricsPart {
    enabled: bool,
    listen: SocketAddr,
}

impl Default for MetricsPart {
    fn default() -> Self {
        Self {
            enabled: true,
            listen: SocketAddr::from(([127, 0, 0, 1], 9465)),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct LogPart {
    level: Level,
    format: Format,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct ConnectionsPart {
    limit: u32,
    per_tenant: u32,
    tenants: BTreeMap<String, u32>,
    idle_seconds: u64,
    pick_up: bool,
    timeout_seconds: BTreeMap<String, u64>,
}

impl Default for ConnectionsPart {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            limit: limits.connections,
            per_tenant: limits.per_tenant,
            tenants: BTreeMap::new(),
            idle_seconds: limits.idle.as_secs(),
            pick_up: limits.pick_up,
            timeout_seconds: BTreeMap::new(),
        }
    }
}

impl Config {
    /// Returns what of it has no effect, and which of its certificates are not valid now. Packets
    /// go on without etcd and the API, so neither is a reason not to start.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.invalid_certificates();
        if self.ignores_fleet {
            let text = "[fleet] has no effect: store.kind is not \"etcd\", where the members of a \
                        fleet find each other";
            warnings.push(text.to_owned());
        }
        warnings
    }

    /// Reads a file, and everything that it names.
    ///
    /// # Errors
    /// [`ConfigError`], with everything that is wrong.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::read_for(path, false)
    }

    /// As [`Config::read`], with etcd whatever `store.kind` says: for who brings the truth there, or back.
    ///
    /// # Errors
    /// [`ConfigError`], with everything that is wrong.
    pub fn read_to_migrate(path: &Path) -> Result<Self, ConfigError> {
        let config = Self::read_for(path, true)?;
        match config.etcd {
            Some(_) => Ok(config),
            None => Err(ConfigError {
                path: path.to_owned(),
                problems: vec!["store.etcd: is missing; it says where etcd is".to_owned()],
            }),
        }
    }

    fn read_for(path: &Path, migrates: bool) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| vec![error.to_string()]);
        let read = text.and_then(|text| Self::parse(&text, path, migrates));
        read.map_err(|problems| ConfigError {
            path: path.to_owned(),
            problems,
        })
    }

    /// `from`: the file that the text is from.
    fn parse(text: &str, from: &Path, migrates: bool) -> Result<Self, Vec<String>> {
        let file: File = toml::from_str(text).map_err(|error| vec![explain(text, &error)])?;
        let mut problems = Vec::new();
        let mut check = Check(&mut problems);
        let (owner, group) = check.keep("api.owner", owner(&file.api.owner)).unwrap_or_default();
        let mode = check.keep("api.mode", mode(&file.api.mode)).unwrap_or_default();
        for (name, path) in [("store.path", &file.store.path), ("api.socket", &file.api.socket)] {
            check.that(path.is_absolute(), || {
                format!("{name}: {} does not begin with /", path.display())
            });
        }
        // `sun_path` of unix(7) has 108 bytes, the last of them 0; it is made under a longer name.
        let longest = 60;
        check.that(file.api.socket.as_os_str().len() <= longest, || {
            format!("api.socket: the path is longer than {longest} bytes")
        });
        check.keep("api.socket", UnixSocket::check(&file.api.socket));
        check.paths(&file, from);
        check.at_most(
            "store.tombstone-seconds",
            file.store.tombstone_seconds,
            MAX_TOMBSTONES.as_secs(),
        );
        let (tcp, metrics) = (file.api.tcp.as_ref().map(|tcp| tcp.listen), &file.metrics);
        let is_fixed = metrics.enabled && metrics.listen.port() != 0;
        check.that(!is_fixed || tcp != Some(metrics.listen), || {
            format!(
                "metrics.listen: {} is api.tcp.listen; give another port",
                metrics.listen
            )
        });
        let tcp = file.api.tcp.and_then(|tcp| check.tcp(&tcp));
        let limits = check.limits(&file.connections);
        let tenants = check.tenants(&file.connections.tenants);
        let etcd = file.store.etcd(&mut check, migrates);
        let is_shared = file.store.kind == store::Kind::Etcd;
        let asks_for_checks = file.path.check_windows == Some(true);
        check.that(!(is_shared && asks_for_checks), || {
            "path.check-windows: true is not possible with store.kind = \"etcd\": other gateways \
             may forward some packets of a connection, and its next packets would be dropped \
             here; set it to false"
                .to_owned()
        });
        let checks_windows = file.path.check_windows.unwrap_or(!is_shared);
        let path = file.path.checked(&mut check, limits.connections);
        let stays = path.as_ref().is_some_and(|path| path.pins.is_some());
        let silence = file.store.silence_ms();
        // As [store.etcd], it may be there before the truth is.
        let fleet = (file.fleet).and_then(|part| part.checked(&mut check, silence, stays));
        let ignores_fleet = fleet.is_some() && !is_shared;
        let fleet = fleet.filter(|_| is_shared);
        let path = path.map(|path| PathOptions {
            fleet_addresses: fleet.as_ref().map(|fleet| fleet.addresses.clone()).unwrap_or_default(),
            check_windows: checks_windows,
            ..path
        });
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            store: file.store.path,
            etcd,
            fleet,
            ignores_fleet,
            tombstones: Duration::from_secs(file.store.tombstone_seconds),
            socket: UnixSocket {
                path: file.api.socket,
                owner,
                group,
                mode,
            },
            tcp,
            metrics: file.metrics.enabled.then_some(file.metrics.listen),
            level: file.log.level,
            format: file.log.format,
            limits,
            tenants,
            path,
        })
    }
}

/// Collects what is wrong.
struct Check<'a>(&'a mut Vec<String>);

impl Check<'_> {
    fn that(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            self.0.push(problem());
        }
    }

    fn at_most(&mut self, name: &str, value: u64, most: u64) {
        self.that(value <= most, || format!("{name}: {value} is above {most}"));
    }

    /// A list that names something twice is wrong: most likely another one was meant.
    fn no_repeats<T: PartialEq + fmt::Debug>(&mut self, name: &str, list: &[T]) {
        for (place, one) in list.iter().enumerate() {
            self.that(!list[..place].contains(one), || {
                format!("{name}: {one:?} is there twice")
            });
        }
    }

    fn keep<T>(&mut self, name: &str, result: Result<T, String>) -> Option<T> {
        result.map_err(|error| self.0.push(format!("{name}: {error}"))).ok()
    }

    fn tcp(&mut self, part: &TcpPart) -> Option<TcpListener> {
        let files = [
            ("certificate", &part.certificate),
            ("key", &part.key),
            ("client-ca", &part.client_ca),
        ];
        let missing: Vec<&str> = files
            .iter()
            .filter_map(|(name, path)| path.is_none().then_some(*name))
            .collect();
        if !missing.is_empty() {
            self.0.push(format!(
                "api.tcp: {} missing: the API is offered over TCP only with TLS in both directions, for whoever reaches \
                 it may change everything; give certificate, key and client-ca, or use api.socket",
                missing.join(", ")
            ));
            return None;
        }
        let mut read = |name: &str, path: &Option<PathBuf>| {
            let path = path.as_ref()?;
            let file = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
            self.keep(&format!("api.tcp.{name}"), file)
        };
        let [certificate, key, client_ca] = files.map(|(name, path)| read(name, path));
        let host_ca = read("host-ca", &part.host_ca);
        if host_ca.is_none() && part.host_ca.is_some() {
            return None;
        }
        let tls = Tls {
            certificate: certificate?,
            key: key?,
            client_ca: client_ca?,
            host_ca,
        };
        self.keep("api.tcp", tls.check())?;
        Some(TcpListener {
            address: part.listen,
            tls,
        })
    }

    /// What the fast path sends on is known a little later: a shorter time would end connections that live.
    fn is_heard_of(&mut self, name: &str, time: Duration) {
        self.that(time >= SHORTEST, || {
            let (time, shortest) = (time.as_secs(), SHORTEST.as_secs());
            format!("{name}: {time} is less than {shortest}, within which is known what the fast path has sent on")
        });
    }

    fn tenants(&mut self, limits: &BTreeMap<String, u32>) -> BTreeMap<Vni, u32> {
        let mut tenants = BTreeMap::new();
        for (name, limit) in limits {
            match name.parse().ok().and_then(Vni::new) {
                Some(vni) => _ = tenants.insert(vni, *limit),
                None => (self.0).push(format!(
                    "connections.tenants: {name} is no number of a network, 0 to {}",
                    Vni::MAX.number()
                )),
            }
        }
        tenants
    }

    fn limits(&mut self, part: &ConnectionsPart) -> Limits {
        let mut timeouts = Timeouts::default();
        for (name, seconds) in &part.timeout_seconds {
            let Some(state) = State::ALL.iter().find(|state| state.name() == name) else {
                let known = State::ALL.iter().map(|state| state.name());
                self.0.push(format!(
                    "connections.timeout-seconds: {name} is no state{}",
                    nearest(name, known)
                ));
                continue;
            };
            let time = Duration::from_secs(*seconds);
            self.that((1..=Timeouts::MOST.as_secs()).contains(seconds), || {
                format!(
                    "connections.timeout-seconds.{name}: {seconds} is not within 1 to {}",
                    Timeouts::MOST.as_secs()
                )
            });
            if CARRIED.contains(state) {
                self.is_heard_of(&format!("connections.timeout-seconds.{name}"), time);
            }
            timeouts.set(*state, time);
        }
        self.is_heard_of("connections.idle-seconds", Duration::from_secs(part.idle_seconds));
        self.at_most("connections.idle-seconds", part.idle_seconds, Timeouts::MOST.as_secs());
        self.that(part.limit > 0, || {
            "connections.limit: 0 connections are none".to_owned()
        });
        // And a tenth more.
        self.has_room("connections.limit", part.limit, Conntrack::BYTES as u64 * 11 / 10);
        Limits {
            connections: part.limit,
            per_tenant: part.per_tenant,
            idle: Duration::from_secs(part.idle_seconds),
            pick_up: part.pick_up,
            timeouts,
        }
    }
}

fn owner(text: &str) -> Result<(Option<Uid>, Option<Gid>), String> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    let unknown = |what, name: &str| format!("there is no {what} {name:?} on this host");
    let uid = match user {
        "" => None,
        name => Some(match User::from_name(name) {
            Ok(Some(user)) => user.uid,
            _ => name.parse().map(Uid::from_raw).map_err(|_| unknown("user", name))?,
        }),
    };
    let gid = match group {
        "" => None,
        name => Some(match Group::from_name(name) {
            Ok(Some(group)) => group.gid,
            _ => name.parse().map(Gid::from_raw).map_err(|_| unknown("group", name))?,
        }),
    };
    Ok((uid, gid))
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    let mode = mode.ok_or_else(|| format!("{text:?} is none; write \"0600\" or \"0660\""))?;
    if mode & 0o007 != 0 {
        return Err(format!(
            "{text:?} lets everybody on this host change everything; use a group"
        ));
    }
    Ok(mode)
}

/// An error of the parser, with its line, and for a key that is not known the one that was probably meant.
fn explain(text: &str, error: &toml::de::Error) -> String {
    let mut explained = String::new();
    if let Some(span) = error.span() {
        let line = 1 + text.bytes().take(span.start).filter(|byte| *byte == b'\n').count();
        explained = format!("line {line}: ");
    }
    let message = error.message();
    explained.push_str(message);
    // "unknown field `a`, expected one of `b`, `c`": what stands in quotes.
    let mut quoted = message.split('`').skip(1).step_by(2);
    if message.starts_with("unknown ")
        && let Some(key) = quoted.next()
    {
        explained.push_str(&nearest(key, quoted));
    }
    explained
}

/// A question whether something known was meant, if something is near.
fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let near = known
        .map(|known| (strsim::jaro_winkler(word, known), known))
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    match near {
        Some((likeness, known)) if likeness > 0.75 => format!(" (did you mean `{known}`?)"),
        _ => String::new(),
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        })
    }
}

#[cfg(test)]
mod tests;

//! `[path]`: the data path.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use nix::unistd::Pid;
use ringside_bpf::gateway::{MOST_INTERFACES, MOST_OPTIONS};
use serde::Deserialize;

use super::Check;
use crate::datapath::{DirectOptions, PathOptions};
use crate::model::PathSettings;
use crate::notice::Key;

/// Bytes that the fast path's caches take for a neighbour and for a connection.
const NEIGHBOR_BYTES: u64 = 90;
const CONNECTION_BYTES: u64 = 208;
/// Of the host's memory, for each of the two caches at most, if nothing is said.
const PART_OF_MEMORY: u64 = 64;
/// Of the host's memory, for the cache of neighbours if few are known.
const IDLE_PART_OF_MEMORY: u64 = 1024;
/// No more than this part for one of them: the kernel takes all of it at once.
const MOST_OF_MEMORY: u64 = 2;
/// Each needs a queue of each interface, of which no NIC has more.
const MOST_WORKERS: usize = 1024;
/// `IFNAMSIZ` of `linux/if.h`, without the last byte.
const LONGEST_NAME: usize = 15;
/// How long packets wait for their host's MAC address at most. A sender that has had no answer for
/// so long has given up, and others need the frames.
const MAX_PATIENCE: Duration = Duration::from_secs(60);
/// How long what hosts are told holds at most: if the gateway dies, nobody takes it back.
const MAX_LIFETIME: Duration = Duration::from_secs(86_400);
/// Smaller ones save nothing.
const LEAST_CACHE: u64 = 4096;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct PathPart {
    interface: Option<Names>,
    mode: String,
    fast: bool,
    workers: Option<usize>,
    cpus: Option<Vec<usize>>,
    spin: bool,
    pins: Option<PathBuf>,
    unowned_seconds: u64,
    vxlan_port: u16,
    geneve_port: u16,
    geneve_options: Vec<String>,
    source_check: bool,
    /// By default where no other gateway may forward some packets of a connection.
    pub(super) check_windows: Option<bool>,
    derive_source_port: bool,
    errors_per_second: u32,
    cached_neighbors: Option<u32>,
    cached_connections: Option<u32>,
    patience_ms: u64,
    direct: Option<DirectPart>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct DirectPart {
    port: u16,
    packets_per_second: u32,
    notices_per_second: u32,
    lifetime_seconds: u32,
    key_file: Option<PathBuf>,
}

impl Default for DirectPart {
    fn default() -> Self {
        let options = DirectOptions::default();
        Self {
            port: options.port,
            packets_per_second: options.packets_per_second,
            notices_per_second: options.notices_per_second,
            lifetime_seconds: u32::try_from(options.lifetime.as_secs()).unwrap_or(u32::MAX),
            key_file: None,
        }
    }
}

impl DirectPart {
    /// `tunnels`: keys and values of the ports that hosts' tunnels have, where none of them listens
    /// for notices.
    fn checked(self, check: &mut Check<'_>, source_check: bool, tunnels: [(&str, u16); 2]) -> DirectOptions {
        for (name, value) in [
            ("port", u32::from(self.port)),
            ("packets-per-second", self.packets_per_second),
            ("notices-per-second", self.notices_per_second),
            ("lifetime-seconds", self.lifetime_seconds),
        ] {
            check.that(value > 0, || {
                format!("path.direct.{name}: 0 is none; leave path.direct out for none")
            });
        }
        for (name, port) in tunnels {
            check.that(self.port != port, || {
                format!(
                    "path.direct.port: {port} is path.{name}, where hosts get tenants' packets; \
                     give another one"
                )
            });
        }
        let lifetime = Duration::from_secs(self.lifetime_seconds.into());
        check.at_most(
            "path.direct.lifetime-seconds",
            lifetime.as_secs(),
            MAX_LIFETIME.as_secs(),
        );
        check.that(!source_check, || {
            "path.direct: what goes from host to host is not checked as path.source-check asks; leave out one of them".to_owned()
        });
        let key = self
            .key_file
            .map(|file| check.keep("path.direct.key-file", Key::read(&file)));
        DirectOptions {
            port: self.port,
            packets_per_second: self.packets_per_second,
            notices_per_second: self.notices_per_second,
            lifetime,
            key: key.flatten(),
        }
    }
}

/// One, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "the name of an interface, or a list of names")]
enum Names {
    One(String),
    Several(Vec<String>),
}

impl Names {
    fn checked(self, check: &mut Check<'_>) -> Vec<String> {
        let names = match self {
            Self::One(name) => vec![name],
            Self::Several(names) => names,
        };
        check.that(!names.is_empty(), || {
            "path.interface: an empty list; leave it out to forward nothing".to_owned()
        });
        check.that(names.len() <= MOST_INTERFACES, || {
            format!("path.interface: {} are more than {MOST_INTERFACES}", names.len())
        });
        for name in &names {
            // As `dev_valid_name` of the kernel.
            let is_odd = |character: char| character.is_whitespace() || character == '/' || character == ':';
            let is_name = (1..=LONGEST_NAME).contains(&name.len()) && !matches!(&**name, "." | "..");
            check.that(is_name && !name.contains(is_odd), || {
                format!("path.interface: {name:?} cannot be the name of an interface")
            });
        }
        check.no_repeats("path.interface", &names);
        names
    }
}

impl Default for PathPart {
    fn default() -> Self {
        let options = PathOptions::default();
        let settings = &options.settings;
        Self {
            interface: None,
            mode: "auto".to_owned(),
            fast: options.fast,
            workers: None,
            cpus: None,
            spin: options.spin,
            pins: None,
            unowned_seconds: settings.unowned.as_secs(),
            vxlan_port: options.vxlan_port,
            geneve_port: options.geneve_port,
            geneve_options: Vec::new(),
            source_check: settings.source_check,
            check_windows: None,
            derive_source_port: settings.derive_source_port,
            errors_per_second: settings.errors_per_second,
            cached_neighbors: None,
            cached_connections: None,
            patience_ms: u64::try_from(settings.patience.as_millis()).unwrap_or(u64::MAX),
            direct: None,
        }
    }
}

impl PathPart {
    /// Returns the folder of pins.
    pub(super) fn pins(&self) -> Option<&Path> {
        self.pins.as_deref()
    }

    /// Returns the file that the key of notices is read from.
    pub(super) fn key_file(&self) -> Option<&Path> {
        self.direct.as_ref()?.key_file.as_deref()
    }

    /// None without an interface.
    pub(super) fn checked(self, check: &mut Check<'_>, connections: u32) -> Option<PathOptions> {
        let allowed = allowed_cpus();
        let cpus = self.cpus.unwrap_or_else(|| default_cpus(&allowed));
        for cpu in &cpus {
            check.that(allowed.contains(cpu), || {
                format!("path.cpus: {cpu} is none that this process may use; those are {allowed:?}")
            });
        }
        check.no_repeats("path.cpus", &cpus);
        let milliseconds = u64::try_from(MAX_PATIENCE.as_millis()).unwrap_or(u64::MAX);
        check.at_most("path.patience-ms", self.patience_ms, milliseconds);
        let workers = self.workers.unwrap_or_else(|| cpus.len().max(1));
        check.that(workers > 0, || "path.workers: 0 workers are none".to_owned());
        check.that(workers <= MOST_WORKERS, || {
            format!("path.workers: {workers} are more than {MOST_WORKERS}; each needs a queue of each interface")
        });
        check.that(self.vxlan_port != self.geneve_port, || {
            format!("path.geneve-port: {} is that of VXLAN", self.geneve_port)
        });
        let tunnels = [("vxlan-port", self.vxlan_port), ("geneve-port", self.geneve_port)];
        for (name, port) in tunnels {
            check.that(port != 0, || format!("path.{name}: 0 is no port"));
        }
        if let Some(pins) = &self.pins {
            check.that(pins.is_absolute(), || {
                format!("path.pins: {} does not begin with /", pins.display())
            });
            check.that(!is_dotted(pins), || {
                format!(
                    "path.pins: {}: a BPF file system takes no names with dots",
                    pins.display()
                )
            });
            check.that(!is_mounted(pins), || {
                format!(
                    "path.pins: {} is a whole file system; name a folder of its own there",
                    pins.display()
                )
            });
            check.that(is_in_bpffs(pins), || {
                format!(
                    "path.pins: {} is not in a BPF file system; mount one: mount -t bpf none /sys/fs/bpf",
                    pins.display()
                )
            });
        }
        let mut known_options = Vec::new();
        for text in &self.geneve_options {
            let expected = "write CLASS:TYPE in hexadecimal, as \"0102:80\"";
            let option = option(text).ok_or_else(|| format!("{text:?} is none; {expected}"));
            let option = check.keep("path.geneve-options", option);
            known_options.extend(option.filter(|option| !known_options.contains(option)));
        }
        let options = known_options.len();
        check.that(options <= MOST_OPTIONS, || {
            format!("path.geneve-options: {options} are more than {MOST_OPTIONS}")
        });
        for (name, value, bytes) in [
            ("cached-neighbors", self.cached_neighbors, NEIGHBOR_BYTES),
            ("cached-connections", self.cached_connections, CONNECTION_BYTES),
        ] {
            check.that(value != Some(0), || format!("path.{name}: there has to be room for 1"));
            if let Some(value) = value {
                check.has_room(&format!("path.{name}"), value, bytes);
            }
        }
        let mode = check.keep("path.mode", self.mode.parse())?;
        Some(PathOptions {
            interfaces: self.interface?.checked(check),
            mode,
            fast: self.fast,
            workers,
            cpus,
            spin: self.spin,
            // Known with [fleet].
            fleet_addresses: Vec::new(),
            pins: self.pins,
            vxlan_port: self.vxlan_port,
            geneve_port: self.geneve_port,
            cached_neighbors: match self.cached_neighbors {
                Some(room) => room..=room,
                None => entries_in(IDLE_PART_OF_MEMORY, NEIGHBOR_BYTES)..=entries_in(PART_OF_MEMORY, NEIGHBOR_BYTES),
            },
            cached_connections: self
                .cached_connections
                .unwrap_or_else(|| entries_in(PART_OF_MEMORY, CONNECTION_BYTES).min(connections.max(1))),
            // Known with [store].
            check_windows: false,
            settings: PathSettings {
                unowned: Duration::from_secs(self.unowned_seconds),
                known_options,
                source_check: self.source_check,
                derive_source_port: self.derive_source_port,
                errors_per_second: self.errors_per_second,
                patience: Duration::from_millis(self.patience_ms),
            },
            direct: self
                .direct
                .map(|direct| direct.checked(check, self.source_check, tunnels)),
        })
    }
}

impl Check<'_> {
    /// All of it is taken at once, and a part of this host's memory at the most.
    pub(super) fn has_room(&mut self, name: &str, value: u32, bytes: u64) {
        let most = memory() / MOST_OF_MEMORY / bytes;
        self.that(u64::from(value) <= most.max(LEAST_CACHE), || {
            format!("{name}: half of this host's memory holds {most}, {bytes} bytes each")
        });
    }
}

/// "0102:80": class and type.
fn option(text: &str) -> Option<(u16, u8)> {
    let (class, kind) = text.split_once(':')?;
    Some((u16::from_str_radix(class, 16).ok()?, u8::from_str_radix(kind, 16).ok()?))
}

/// What is still to be made of it has a dot in its name.
fn is_dotted(pins: &Path) -> bool {
    let mut made = pins.ancestors().take_while(|path| !path.exists());
    made.any(|path| {
        path.file_name()
            .is_some_and(|name| name.as_encoded_bytes().contains(&b'.'))
    })
}

/// A file system begins there: what is in it may be anybody's.
fn is_mounted(pins: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|found| found.dev()).ok();
    let above = pins.parent().and_then(device);
    device(pins).is_some_and(|device| above.is_some_and(|above| above != device))
}

/// So is a folder that is still to be made there.
fn is_in_bpffs(pins: &Path) -> bool {
    let there = pins.ancestors().find(|path| path.exists());
    there
        .and_then(|path| statfs(path).ok())
        .is_some_and(|found| found.filesystem_type() == BPF_FS_MAGIC)
}

fn allowed_cpus() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count())
        .filter(|cpu| set.is_set(*cpu).unwrap_or(false))
        .collect()
}

/// The last half of them: others go on with the first.
fn default_cpus(allowed: &[usize]) -> Vec<usize> {
    let workers = (allowed.len() / 2).max(1);
    allowed.iter().rev().take(workers).copied().collect()
}

/// Returns how many entries of so many bytes this part of the host's memory holds.
fn entries_in(part: u64, bytes: u64) -> u32 {
    let entries = (memory() / part / bytes).max(LEAST_CACHE);
    u32::try_from(entries).unwrap_or(u32::MAX)
}

/// Of the host, in bytes.
fn memory() -> u64 {
    nix::sys::sysinfo::sysinfo().map_or(0, |info| info.ram_total())
}

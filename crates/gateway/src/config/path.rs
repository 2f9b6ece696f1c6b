//! `[path]`: the data path.

use std::path::PathBuf;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use serde::Deserialize;

use super::Check;
use crate::datapath::PathOptions;

/// Bytes that the fast path's caches take for a neighbour and for one direction of a connection.
const NEIGHBOR_BYTES: u64 = 100;
const CONNECTION_BYTES: u64 = 140;
/// Of the host's memory, for each of the two caches, if nothing is said.
const PART_OF_MEMORY: u64 = 64;
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
    derive_source_port: bool,
    errors_per_second: u32,
    cached_neighbors: Option<u32>,
    cached_connections: Option<u32>,
    patience_ms: u64,
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
        for (place, name) in names.iter().enumerate() {
            check.that(!names[..place].contains(name), || {
                format!("path.interface: {name} is there twice")
            });
        }
        names
    }
}

impl Default for PathPart {
    fn default() -> Self {
        let options = PathOptions::default();
        Self {
            interface: None,
            mode: "auto".to_owned(),
            fast: options.fast,
            workers: None,
            cpus: None,
            spin: options.spin,
            pins: None,
            unowned_seconds: options.unowned.as_secs(),
            vxlan_port: options.vxlan_port,
            geneve_port: options.geneve_port,
            geneve_options: Vec::new(),
            source_check: options.source_check,
            derive_source_port: options.derive_source_port,
            errors_per_second: options.errors_per_second,
            cached_neighbors: None,
            cached_connections: None,
            patience_ms: u64::try_from(options.patience.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl PathPart {
    /// None without an interface.
    pub(super) fn checked(self, check: &mut Check<'_>, connections: u32) -> Option<PathOptions> {
        let allowed = allowed_cpus();
        let cpus = self.cpus.unwrap_or_else(|| default_cpus(&allowed));
        for cpu in &cpus {
            check.that(allowed.contains(cpu), || {
                format!("path.cpus: {cpu} is none that this process may use; those are {allowed:?}")
            });
        }
        let workers = self.workers.unwrap_or_else(|| cpus.len().max(1));
        check.that(workers > 0, || "path.workers: 0 workers are none".to_owned());
        check.that(self.vxlan_port != self.geneve_port, || {
            format!("path.geneve-port: {} is that of VXLAN", self.geneve_port)
        });
        if let Some(pins) = &self.pins {
            check.that(pins.is_absolute(), || {
                format!("path.pins: {} does not begin with /", pins.display())
            });
        }
        let known_options = self.geneve_options.iter().map(|text| {
            check.keep(
                "path.geneve-options",
                option(text)
                    .ok_or_else(|| format!("{text:?} is none; write CLASS:TYPE in hexadecimal, as \"0102:80\"")),
            )
        });
        let known_options: Vec<_> = known_options.collect();
        for (name, value) in [
            ("cached-neighbors", self.cached_neighbors),
            ("cached-connections", self.cached_connections),
        ] {
            check.that(value != Some(0), || format!("path.{name}: there has to be room for 1"));
        }
        let mode = check.keep("path.mode", self.mode.parse())?;
        Some(PathOptions {
            interfaces: self.interface?.checked(check),
            mode,
            fast: self.fast,
            workers,
            cpus,
            spin: self.spin,
            pins: self.pins,
            unowned: Duration::from_secs(self.unowned_seconds),
            vxlan_port: self.vxlan_port,
            geneve_port: self.geneve_port,
            known_options: known_options.into_iter().flatten().collect(),
            source_check: self.source_check,
            derive_source_port: self.derive_source_port,
            errors_per_second: self.errors_per_second,
            cached_neighbors: self
                .cached_neighbors
                .unwrap_or_else(|| cache_for(NEIGHBOR_BYTES, u32::MAX)),
            cached_connections: (self.cached_connections)
                .unwrap_or_else(|| cache_for(CONNECTION_BYTES, connections.saturating_mul(2))),
            patience: Duration::from_millis(self.patience_ms),
        })
    }
}

/// "0102:80": class and type.
fn option(text: &str) -> Option<(u16, u8)> {
    let (class, kind) = text.split_once(':')?;
    Some((u16::from_str_radix(class, 16).ok()?, u8::from_str_radix(kind, 16).ok()?))
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

/// As many entries as a part of the host's memory holds, and no more than there can be.
fn cache_for(bytes: u64, most: u32) -> u32 {
    let memory = nix::sys::sysinfo::sysinfo().map_or(0, |info| info.ram_total());
    let entries = (memory / PART_OF_MEMORY / bytes).max(LEAST_CACHE);
    u32::try_from(entries).unwrap_or(u32::MAX).min(most.max(1))
}

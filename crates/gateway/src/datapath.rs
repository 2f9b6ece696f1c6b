//! The data path: the XDP program's cache kept as the tables are, and workers for what it hands up.
//!
//! ```text
//!             ┌ XDP program ── hit ──▶ out                 changed(), policy_changed()  ◀── control plane
//!  packets ──▶│                                                       │
//!             └ miss ──▶ XSKMAP ──▶ worker ── decides ──▶ out         ▼
//!                                     │   └─ cacheable ──▶ sync ── cache of neighbours and connections
//!                                     └─ unresolved ──▶ resolver ── kernel's neighbour table
//! ```
//! One thread and one socket for each queue; a thread for the cache, one for MAC addresses of hosts.

mod cache;
mod counters;
mod waiting;
mod worker;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use arc_swap::ArcSwap;
use crossbeam_queue::ArrayQueue;
use ringside_bpf::gateway::{GatewayConfig, GatewayPort, GatewayProgram, Outcome, Sizes};
use ringside_gateway_core::decide::{Decider, PortSettings, Settings};
use ringside_gateway_core::table::Neighbor;
use ringside_gateway_core::{DropReason, Firewall, TenantAddress, Underlay};
use ringside_nic::Interface;
use ringside_wire::MacAddr;
use ringside_xsk::{Mode, Port, Program, QueueOptions};

use self::cache::Cache;
use self::counters::WorkerCounters;
use self::worker::{Shared, Worker};
use crate::model::{Counters, DataPath, PathCounters, Tables, WorkerLoad};

/// Packets of a burst.
const BURST: usize = 64;
/// A worker that has not come round for so long is stuck.
const STUCK: Duration = Duration::from_secs(10);
/// How long the kernel is given to find out a MAC address.
const RESOLVE: Duration = Duration::from_millis(800);

/// What the data path is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathOptions {
    /// The interface that hosts are reached by.
    pub interface: String,
    /// How its packets are had.
    pub mode: Mode,
    /// CPUs that the workers are pinned to, one after the other; none: wherever the kernel puts them.
    pub cpus: Vec<u32>,
    /// Workers never sleep.
    pub spin: bool,
    /// UDP port of VXLAN.
    pub vxlan_port: u16,
    /// UDP port of Geneve.
    pub geneve_port: u16,
    /// Geneve options (class, type) that may be critical.
    pub known_options: Vec<(u16, u8)>,
    /// Drop what does not come from where its sender lives.
    pub source_check: bool,
    /// Choose the outer UDP source port by the tenant's flow.
    pub derive_source_port: bool,
    /// ICMP errors a second, of one worker, at the most.
    pub errors_per_second: u32,
    /// Neighbours in the cache.
    pub cached_neighbors: u32,
    /// Connections in the cache, one direction each.
    pub cached_connections: u32,
    /// How long a packet waits for its host's MAC address.
    pub patience: Duration,
}

/// A data path that runs, until it is dropped.
#[derive(Debug)]
pub struct XdpPath {
    tables: Arc<Tables>,
    shared: Arc<Shared>,
    cache: Arc<Mutex<Cache>>,
    workers: Vec<Told>,
    threads: Vec<JoinHandle<()>>,
}

/// What a worker tells.
#[derive(Debug)]
struct Told {
    name: String,
    counters: Arc<WorkerCounters>,
    /// When it came round last, in nanoseconds since the start.
    seen: Arc<AtomicU64>,
}

impl XdpPath {
    /// Starts it: from now on packets are forwarded by these tables.
    ///
    /// # Errors
    /// What cannot be had, and of which interface.
    pub fn start(options: &PathOptions, tables: &Arc<Tables>) -> Result<Self> {
        let interface = Interface::by_name(&options.interface)?;
        let state = interface.state()?;
        let addresses: Vec<IpAddr> = interface.addresses()?.iter().map(|own| own.address).collect();
        if addresses.is_empty() {
            bail!("{}: it has no address that hosts could send to: give it one", interface.name());
        }
        let port = own_port(&interface, &state, &addresses);
        let program = GatewayProgram::load(Sizes {
            neighbors: options.cached_neighbors,
            connections: options.cached_connections,
            queues: interface.rx_queues()?,
            sample_bytes: 1 << 20,
        })?;
        let config = GatewayConfig {
            generation: tables.policy.generation(),
            has_policy: tables.has_policy(),
            source_check: options.source_check,
            derive_source_port: options.derive_source_port,
            vxlan_port: options.vxlan_port,
            geneve_port: options.geneve_port,
            addresses: addresses.clone(),
            known_options: options.known_options.clone(),
            ttl: 64,
            ports: vec![Some(GatewayPort {
                ifindex: interface.index(),
                mac: port.mac.0,
                v4: port.v4,
                v6: port.v6,
                mtu: port.mtu,
            })],
            sampling: None,
        };
        let settings = Settings {
            underlay: Underlay {
                addresses,
                vxlan_port: options.vxlan_port,
                geneve_port: options.geneve_port,
                known_options: options.known_options.clone(),
            },
            ports: vec![port],
            source_check: options.source_check,
            derive_source_port: options.derive_source_port,
            ttl: 64,
            errors_per_second: options.errors_per_second,
        };
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            has_policy: AtomicBool::new(config.has_policy),
            settings: ArcSwap::from_pointee(settings),
            unresolved: ArrayQueue::new(1024),
            cacheable: ArrayQueue::new(4096),
            begun: Instant::now(),
        });
        // The cache is full before the first packet comes, so that a restart is no storm of misses.
        let cache = Cache::new(program, config, tables)?;
        let open = Port::builder(interface.clone())
            .mode(options.mode)
            .options(QueueOptions::default().multi_buffer(true))
            .program(Program::Custom {
                program: cache.program().program().try_clone_to_owned()?,
                xsks_map: cache.program().workers().try_clone_to_owned()?,
            })
            .open()
            .with_context(|| format!("opening {}", interface.name()))?;
        tracing::info!(report = %open.report(), "the interface is open");
        let cache = Arc::new(Mutex::new(cache));
        let workers: Vec<Told> = (open.queues().iter())
            .map(|queue| Told {
                name: format!("{} queue {}", interface.name(), queue.id()),
                counters: Arc::default(),
                seen: Arc::default(),
            })
            .collect();
        let mut path = Self {
            tables: Arc::clone(tables),
            shared: Arc::clone(&shared),
            cache: Arc::clone(&cache),
            workers,
            threads: Vec::new(),
        };
        path.start_workers(open, options)?;
        path.start_helpers(interface)?;
        Ok(path)
    }

    fn start_workers(&mut self, mut port: Port, options: &PathOptions) -> Result<()> {
        let (tables, shared) = (Arc::clone(&self.tables), Arc::clone(&self.shared));
        let told: Vec<_> = (self.workers.iter())
            .map(|told| (told.name.clone(), Arc::clone(&told.counters), Arc::clone(&told.seen)))
            .collect();
        let (cpus, spin, patience) = (options.cpus.clone(), options.spin, options.patience);
        let run = move || {
            std::thread::scope(|scope| {
                for (number, (queue, (name, counters, seen))) in port.queues_mut().zip(told).enumerate() {
                    let (tables, shared) = (&tables, &shared);
                    let cpu = (!cpus.is_empty()).then(|| cpus[number % cpus.len()]);
                    scope.spawn(move || {
                        if let Some(cpu) = cpu
                            && let Err(error) = pin(cpu)
                        {
                            tracing::warn!(worker = name, cpu, %error, "cannot be pinned");
                        }
                        let settings = shared.settings.load_full();
                        let firewall = Firewall::new(&tables.policy, Arc::clone(&tables.conntrack));
                        let worker = Worker {
                            queue,
                            port: 0,
                            decider: Decider::new(
                                settings,
                                tables.neighbors.reader(),
                                tables.hosts.reader(),
                                firewall,
                                BURST,
                            ),
                            hosts: tables.hosts.reader(),
                            shared,
                            counters: &counters,
                            seen: &seen,
                            spin,
                            patience,
                        };
                        if let Err(error) = worker.run() {
                            tracing::error!(worker = name, %error, "a worker has ended");
                        }
                    });
                }
            });
        };
        let thread = std::thread::Builder::new().name("workers".into()).spawn(run);
        self.threads.push(thread.context("starting the workers' thread")?);
        Ok(())
    }

    /// The threads for the cache and for MAC addresses.
    fn start_helpers(&mut self, interface: Interface) -> Result<()> {
        let (shared, cache, tables) = (
            Arc::clone(&self.shared),
            Arc::clone(&self.cache),
            Arc::clone(&self.tables),
        );
        let (resolved, news) = mpsc::channel();
        let sync = std::thread::Builder::new().name("cache".into()).spawn({
            let (shared, tables) = (Arc::clone(&shared), Arc::clone(&tables));
            move || cache::keep(&shared, &cache, &tables, &news)
        });
        self.threads.push(sync.context("starting the cache's thread")?);
        let resolver = std::thread::Builder::new().name("resolver".into()).spawn(move || {
            let mut hosts = tables.hosts.reader();
            while !shared.stop.load(Ordering::Relaxed) {
                let Some(id) = shared.unresolved.pop() else {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                let Some(host) = hosts.find(id).filter(|host| host.mac.is_none()) else {
                    continue;
                };
                match interface.resolve(host.ip, RESOLVE) {
                    Ok(Some(mac)) => {
                        tables.hosts.resolve(id, Some(MacAddr(mac)));
                        _ = resolved.send(id);
                    }
                    Ok(None) => tracing::debug!(host = %host.ip, "does not answer ARP or neighbour discovery"),
                    Err(error) => tracing::warn!(host = %host.ip, %error, "its MAC address cannot be asked for"),
                }
            }
        });
        self.threads.push(resolver.context("starting the resolver's thread")?);
        Ok(())
    }
}

impl Drop for XdpPath {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}

impl DataPath for XdpPath {
    fn changed(&self, neighbors: &[(TenantAddress, Option<Neighbor>)]) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = cache.apply(neighbors) {
            tracing::error!(%error, "the fast path's cache cannot be changed");
        }
    }

    fn policy_changed(&self, generation: u64) {
        let has_policy = self.tables.has_policy();
        self.shared.has_policy.store(has_policy, Ordering::Relaxed);
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = cache.policy(generation, has_policy) {
            tracing::error!(%error, "the fast path cannot be told about new rules");
        }
    }

    fn drain(&self, _: bool) {}

    fn is_alive(&self) -> bool {
        let now = u64::try_from(self.shared.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let stuck = u64::try_from(STUCK.as_nanos()).unwrap_or(u64::MAX);
        self.workers
            .iter()
            .all(|worker| now.saturating_sub(worker.seen.load(Ordering::Relaxed)) < stuck)
    }

    fn counters(&self) -> Counters {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let mut slow = PathCounters::default();
        for worker in &self.workers {
            let counts = worker.counters.read();
            slow.forwarded_packets += counts.sent;
            slow.forwarded_bytes += counts.sent_bytes;
            slow.answered_packets += counts.answered + counts.complained;
            for (reason, count) in counts.dropped {
                match slow.dropped_packets.iter_mut().find(|(other, _)| *other == reason) {
                    Some((_, sum)) => *sum += count,
                    None => slow.dropped_packets.push((reason, count)),
                }
            }
        }
        Counters {
            fast: fast(cache.program()),
            slow,
            cache_entries: cache.entries(),
            cache_capacity: cache.program().sizes().neighbors.into(),
            workers: self
                .workers
                .iter()
                .map(|worker| WorkerLoad {
                    name: worker.name.clone(),
                    permille: 0,
                })
                .collect(),
        }
    }
}

/// What the program has counted. A counter that cannot be read is left out, as it would be a moment later.
fn fast(program: &GatewayProgram) -> PathCounters {
    let mut counts = PathCounters::default();
    for outcome in Outcome::all() {
        let Ok(counter) = program.count(outcome) else { continue };
        match outcome {
            Outcome::Forwarded | Outcome::Redirected => {
                counts.forwarded_packets += counter.packets;
                counts.forwarded_bytes += counter.bytes;
            }
            Outcome::Answered => counts.answered_packets += counter.packets,
            Outcome::Passed => counts.passed_packets += counter.packets,
            Outcome::Dropped(reason) if counter.packets != 0 => {
                let reason = DropReason::ALL.iter().find(|known| known.number() == reason);
                counts.dropped_packets.extend(reason.map(|&reason| (reason, counter.packets)));
            }
            _ => {}
        }
    }
    counts
}

fn own_port(interface: &Interface, state: &ringside_nic::LinkState, addresses: &[IpAddr]) -> PortSettings {
    let v4 = addresses.iter().find_map(|ip| match ip {
        IpAddr::V4(ip) => Some(*ip),
        IpAddr::V6(_) => None,
    });
    // Hosts that are not on this link do not know addresses that are this link's alone.
    let v6 = addresses.iter().find_map(|ip| match ip {
        IpAddr::V6(ip) if !ip.is_unicast_link_local() => Some(*ip),
        _ => None,
    });
    _ = interface;
    PortSettings {
        mac: MacAddr(state.mac),
        v4,
        v6,
        mtu: u16::try_from(state.mtu).unwrap_or(u16::MAX),
    }
}

fn pin(cpu: u32) -> std::io::Result<()> {
    use nix::sched::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    set.set(cpu as usize)?;
    Ok(sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)?)
}

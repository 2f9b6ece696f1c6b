//! The data path: the XDP program's caches kept as the tables are, and workers for what it hands up.
//!
//! ```text
//!             ┌ XDP program ── hit ──▶ out                 changed(), policy_changed()  ◀── control plane
//!  packets ──▶│                                                       │
//!             └ miss ──▶ XSKMAP ──▶ worker ── decides ──▶ out         ▼
//!                                     │   └─ cacheable ──▶ keeper ── caches of neighbours and connections
//!                                     └─ unresolved ──▶ resolver ── the kernel's neighbour table
//! ```
//! A socket for each queue of each interface, shared out among the workers; a thread for the caches, one for ways to hosts, one
//! that looks after the interfaces and the workers on them.
//!
//! # What the fast path has of connections
//! An epoch begins with each change of rules or of what is bound to an address, and is the last one in which something has changed
//! for the networks that it concerns. What the fast path has of a connection is true if its network has not changed since. A worker
//! says with what it hands over in which epoch it began to look; if its network has changed since, the next packet says it again.
//!
//! # Which packets go straight
//! Those to a neighbour in whose network no rules are bound to any address: others' entries in the cache are marked. The first rules
//! of a network close the straight lane for all until every entry of it has its mark, which is a look through the cache, unless it
//! has no entries: so no packet goes past the rules from the answer on, and no answer waits for a million entries.

mod attach;
mod cache;
mod check;
mod connections;
mod counters;
mod direct;
mod edit;
mod epochs;
mod growth;
mod held;
mod icmp;
mod keeper;
mod kernel_table;
mod limits;
mod memory;
mod notices;
mod options;
mod pace;
mod ports;
mod resolver;
mod settling;
mod sockets;
mod supervisor;
mod trace;
mod unreachable;
mod unresolved;
mod veth;
mod waiting;
mod ways;
mod worker;
mod worker_status;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use arc_swap::{ArcSwap, ArcSwapOption};
use ringside_bpf::gateway::{GatewayConfig, GatewayProgram, Lease, Losses};
use ringside_gateway_core::conntrack::Timeouts;
use ringside_gateway_core::decide::Settings;
use ringside_gateway_core::table::HostId;
use ringside_gateway_core::{TenantAddress, Underlay, Vni};
use tokio::sync::mpsc;

use self::attach::Obtained;
pub use self::attach::unpin;
use self::cache::{Cache, Room};
use self::counters::{Full, of_program};
use self::direct::Telling;
use self::epochs::Epochs;
use self::growth::Growth;
pub use self::held::Held;
use self::keeper::Keeper;
use self::limits::LimitCounters;
use self::notices::Notices;
pub use self::options::{DirectOptions, PathOptions};
pub(crate) use self::pace::{CARRIED, SHORTEST};
use self::ports::{Ports, State, has_address, no_address};
use self::resolver::Resolver;
use self::sockets::Share;
use self::supervisor::{Attached, Supervisor};
use self::unreachable::UnreachableHosts;
use self::unresolved::UnresolvedHosts;
pub(crate) use self::worker::now;
use self::worker::{Shared, Tell};
use self::worker_status::{STUCK, WorkerStatus};
use crate::model::{
    CannotTrace, Counters, DataPath, PathCounters, PathSettings, Tables, TraceFilter, Traced, WorkerLoad,
};

/// Packets of a burst.
const BURST: u32 = 64;
/// What a process has left goes on for no more than that times `unowned-seconds` after it, while others start.
const STARTS: u64 = 10;
/// Time to live of what is sent with new outer headers.
const TTL: u8 = 64;
/// Timeout for binding busy queues at start-up. A busy kernel takes seconds to free the queues of a
/// process that has exited.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// A data path that runs, until it is dropped.
#[derive(Debug)]
pub struct XdpPath {
    tables: Arc<Tables>,
    shared: Arc<Shared>,
    cache: Arc<Mutex<Cache>>,
    workers: Arc<[WorkerStatus]>,
    limits: Arc<LimitCounters>,
    /// Who tells hosts of direct paths.
    telling: Option<Arc<Telling>>,
    threads: Vec<JoinHandle<()>>,
    attached: Arc<Attached>,
    /// What the kernel drops after the verdict is counted; by programs that end with this, or are pinned.
    _losses: Option<Losses>,
    /// Keeps others off the pins.
    _pins: Option<std::fs::File>,
}

impl XdpPath {
    /// Starts it: from now on packets are forwarded by these tables.
    ///
    /// # Errors
    /// What cannot be had, and of which interface.
    pub fn start(options: &PathOptions, tables: &Arc<Tables>) -> Result<Self> {
        let begun = Instant::now();
        let ports = Ports::by_name(&options.interfaces)?;
        let state = ports.look()?;
        // One that is down has lost those of IPv6.
        for (number, interface) in ports.up()?.iter() {
            let port = &state.ports[usize::from(number)];
            ensure!(has_address(port), no_address(interface.name()));
        }
        let (sizes, kept) = memory::sizes(options, tables.neighbors.len(), &ports)?;
        let pins = options.pins.as_deref();
        let lock = pins.map(attach::lock).transpose()?;
        let held = Held::of(options);
        let goes_on_meanwhile = || held.as_ref().map(Held::renew);
        let Obtained {
            program,
            adopted,
            before,
        } = attach::obtain(pins, sizes, &kept, &ports)?;
        goes_on_meanwhile();
        let program = Arc::new(program);
        // Ours goes on for as long as what it takes the place of, whatever version that is of.
        let left = held.as_ref().map(Held::left).transpose()?.unwrap_or_default();
        // Later than that of any process before, which had the same clock.
        let epoch = now();
        let (config, settings) = configure(options, &ports, state, epoch);
        let mut cache = Cache::new(Arc::clone(&program), config, tables, options.fast);
        cache.handed.check_windows = options.check_windows;
        cache.handed.first_epoch = epoch;
        tables.conntrack.follow_numbers(options.check_windows);
        let mut restored = 0;
        let resolved = if adopted {
            restored = connections::restore(&program, tables, true, epoch)?;
            connections::forget_numbers(&program, options.check_windows)?;
            cache.adopt(tables)?
        } else if held.is_some() {
            resolver::resolve_known(tables, &ports)
        } else {
            // Nothing goes on that could miss them.
            Vec::new()
        };
        if let Some(before) = before {
            // That goes on until ours takes its place. Who is open is handed over anew with its next packet.
            restored = connections::restore(&before, tables, false, epoch)?;
        }
        goes_on_meanwhile();
        cache.police_all()?;
        // The cache is full before the first packet comes, so that a restart is no storm of misses.
        cache.fill(tables);
        if !adopted {
            cache.configure()?;
        }
        // No more than who starts may say: that somebody runs is said by the keeper.
        program.lease(held::prolonged(left, options.settings.unowned))?;
        let goes_on = pins.is_some_and(|pins| attach::goes_on(pins, &ports));
        let opened = attach::name(&program, adopted, &ports, pins).and_then(|()| {
            // Before the first packet.
            let losses = attach::count_losses(&program, pins);
            // What goes on has ours take its place when there are sockets for what is not cached yet: hosts have to be found anew.
            let before = pins.and_then(|pins| attach::modes_before(pins, &ports, options.mode));
            let open = |modes: &[_]| sockets::open(options, &ports, modes, &program, Some(BUSY_TIMEOUT));
            let opened = before.as_deref().map(open).transpose()?;
            let attached = attach::attach_all(&program, &ports, options.mode, pins)?;
            let shares = match opened {
                Some(opened) => opened,
                None => open(&attach::modes(&attached))?,
            };
            ensure!(
                !shares.is_empty(),
                "{}: none is up; ip link set dev NAME up",
                ports.names()
            );
            Ok((shares, attached, losses))
        });
        let (shares, attached, losses) = opened.inspect_err(|_| {
            // What did not go on before shall not do so because a start failed. That is what there is to say, not this.
            if let Some(pins) = pins.filter(|_| !goes_on) {
                _ = attach::remove(pins);
            }
        })?;
        if adopted {
            // Connections have to be judged again from now on, and now there is who does it.
            cache.configure()?;
        }
        for (_, port) in shares.iter().flatten() {
            tracing::info!(interface = port.interface().name(), report = %port.report(), "opened");
        }
        tracing::info!(
            interfaces = ports.names(),
            neighbors = cache.entries(),
            adopted,
            restored,
            milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            "packets are forwarded"
        );
        memory::log(&program, tables, &shares);
        let workers = options.workers.clamp(1, sizes.queues.max(1) as usize);
        let mut path = Self {
            tables: Arc::clone(tables),
            shared: Arc::new(Shared {
                stop: AtomicBool::new(false),
                has_policy: AtomicBool::new(tables.has_policy()),
                settings: ArcSwap::from_pointee(settings),
                patience: nanoseconds(options.settings.patience).into(),
                unowned: nanoseconds(options.settings.unowned).into(),
                longest: left.longest.into(),
                epochs: Epochs::new(epoch),
                trace: ArcSwapOption::empty(),
                ports: ArcSwap::from_pointee(ports),
                notices: Notices::default(),
                attaching: Mutex::default(),
                unreachable: UnreachableHosts::default(),
                unresolved: UnresolvedHosts::default(),
                foreign: Arc::clone(&tables.foreign),
            }),
            cache: Arc::new(Mutex::new(cache)),
            workers: (0..workers).map(|_| WorkerStatus::new()).collect(),
            limits: Arc::default(),
            telling: (options.direct.as_ref())
                .map(|direct| Telling::new(options, direct, tables).map(Arc::new))
                .transpose()?,
            threads: Vec::new(),
            attached: Arc::new(Mutex::new(attached)),
            _losses: losses,
            _pins: lock,
        };
        path.start_threads(options, shares, resolved)?;
        renew(&path.cache().program, &path.shared)?;
        Ok(path)
    }

    fn start_threads(&mut self, options: &PathOptions, shares: Vec<Share>, resolved: Vec<HostId>) -> Result<()> {
        let (unresolved, wanted) = crossbeam_channel::bounded(1024);
        let (cacheable, to_cache) = crossbeam_channel::bounded(4096);
        let (found, hosts) = crossbeam_channel::unbounded();
        let resolver = Resolver {
            tables: Arc::clone(&self.tables),
            shared: Arc::clone(&self.shared),
            resolved,
            wanted,
            found,
            limits: Arc::clone(&self.limits),
        };
        let keeper = Keeper {
            tables: Arc::clone(&self.tables),
            shared: Arc::clone(&self.shared),
            cache: Arc::clone(&self.cache),
            workers: Arc::clone(&self.workers),
            cacheable: to_cache,
            hosts,
            growth: Arc::new(Growth::of(self, options)),
        };
        self.thread("resolver", move || resolver.run())?;
        self.thread("caches", move || keeper.run())?;
        let (flows, seen) = crossbeam_channel::bounded(1024);
        if let Some(telling) = &self.telling {
            let (telling, shared) = (Arc::clone(telling), Arc::clone(&self.shared));
            let program = Arc::clone(&self.cache().program);
            self.thread("direct paths", move || {
                if let Err(error) = telling.run(program, &seen, &shared) {
                    tracing::error!(%error, "hosts are told of no direct paths any more");
                }
            })?;
        }
        let tell = Tell {
            unresolved,
            cacheable,
            fast: options.fast,
            one_in: options.direct.as_ref().map_or(0, direct::one_in),
            flows,
        };
        let supervisor = Supervisor {
            options: options.clone(),
            tables: Arc::clone(&self.tables),
            shared: Arc::clone(&self.shared),
            cache: Arc::clone(&self.cache),
            workers: Arc::clone(&self.workers),
            tell,
            attached: Arc::clone(&self.attached),
        };
        self.thread("workers", move || supervisor.run(shares))
    }

    fn thread(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread = thread.with_context(|| format!("starting the thread \"{name}\""))?;
        self.threads.push(thread);
        Ok(())
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the program and the workers go by.
fn configure(options: &PathOptions, ports: &Ports, state: State, generation: u64) -> (GatewayConfig, Settings) {
    let wanted = &options.settings;
    let config = GatewayConfig {
        generation,
        marking: false,
        source_check: wanted.source_check,
        stale: false,
        derive_source_port: wanted.derive_source_port,
        check_windows: options.check_windows,
        vxlan_port: options.vxlan_port,
        geneve_port: options.geneve_port,
        addresses: state.addresses.clone(),
        known_options: wanted.known_options.clone(),
        ttl: TTL,
        one_in: options.direct.as_ref().map_or(0, direct::one_in),
        ports: ports.for_program(&state.ports),
        sampling: None,
    };
    let settings = Settings {
        underlay: Underlay {
            addresses: state.addresses,
            vxlan_port: options.vxlan_port,
            geneve_port: options.geneve_port,
            known_options: wanted.known_options.clone(),
        },
        ports: state.ports,
        source_check: wanted.source_check,
        derive_source_port: wanted.derive_source_port,
        ttl: TTL,
        errors_per_second: wanted.errors_per_second,
    };
    (config, settings)
}

/// The fast path goes on without us from now on for so long.
fn renew(program: &GatewayProgram, shared: &Shared) -> Result<()> {
    Ok(program.lease(Lease {
        until: now().saturating_add(shared.unowned.load(Ordering::Relaxed)),
        longest: shared.longest.load(Ordering::Relaxed),
    })?)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Drop for XdpPath {
    fn drop(&mut self) {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        // First, so that nothing is handed up any more.
        attached.clear();
        // Under the lock, so that no program is replaced afterwards.
        self.shared.stop.store(true, Ordering::Relaxed);
        drop(attached);
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}

impl DataPath for XdpPath {
    fn changed(&self, addresses: &[TenantAddress]) {
        self.cache().refresh(addresses, Room::Kept);
        if let Some(telling) = &self.telling {
            telling.changed(addresses.iter().copied());
        }
    }

    fn policy_changed(&self, networks: &[Vni]) {
        let mut cache = self.cache();
        let has_policy = self.tables.has_policy();
        self.shared.has_policy.store(has_policy, Ordering::Relaxed);
        if let Err(error) = cache.police(networks, &self.shared.epochs) {
            tracing::error!(%error, "the fast path cannot be told about new rules");
        }
        drop(cache);
        if let Some(telling) = &self.telling {
            telling.policy_changed();
        }
    }

    fn set(&self, wanted: &PathSettings, timeouts: &Timeouts) -> Result<()> {
        let conntrack = &self.tables.conntrack;
        let has_other_timeouts = conntrack.timeouts() != *timeouts;
        // What may fail is first, and the last of that is taken back: after it nothing does.
        if has_other_timeouts {
            // Connections that the fast path carries do not end because nobody has told them of their packets.
            let program = Arc::clone(&self.cache().program);
            connections::synchronise(&program, conntrack, &self.shared.epochs)?;
        }
        let mut cache = self.cache();
        let before = cache.config.clone();
        cache.config.source_check = wanted.source_check;
        cache.config.derive_source_port = wanted.derive_source_port;
        cache.config.known_options.clone_from(&wanted.known_options);
        if cache.config != before
            && let Err(error) = cache.configure()
        {
            cache.config = before;
            return Err(error);
        }
        // Under the lock, as whatever else changes them.
        let mut settings = Settings::clone(&self.shared.settings.load());
        settings.underlay.known_options.clone_from(&wanted.known_options);
        settings.source_check = wanted.source_check;
        settings.derive_source_port = wanted.derive_source_port;
        settings.errors_per_second = wanted.errors_per_second;
        if settings != **self.shared.settings.load() {
            self.shared.settings.store(Arc::new(settings));
        }
        drop(cache);
        for (to, duration) in [
            (&self.shared.patience, wanted.patience),
            (&self.shared.unowned, wanted.unowned),
        ] {
            to.store(nanoseconds(duration), Ordering::Relaxed);
        }
        if has_other_timeouts {
            conntrack.set_timeouts(timeouts);
        }
        Ok(())
    }

    fn drain(&self, drain: bool) {
        self.tables.conntrack.drain(drain);
    }

    fn set_stale(&self, is_stale: bool, longest: Option<Duration>) {
        if let Some(longest) = longest {
            let most = self.shared.unowned.load(Ordering::Relaxed).saturating_mul(STARTS);
            let longest = now().saturating_add(nanoseconds(longest).min(most));
            self.shared.longest.store(longest, Ordering::Relaxed);
        }
        if let Err(error) = self.cache().set_stale(is_stale) {
            tracing::error!(%error, is_stale, "the fast path cannot be told how old the gateway's state is; it is told again");
        }
    }

    fn is_alive(&self) -> bool {
        !self.workers.iter().any(WorkerStatus::is_stuck)
    }

    fn has_link(&self) -> bool {
        let ports = self.shared.ports.load();
        ports.all().any(|(number, ..)| !self.shared.notices.is_out(number))
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = self.shared.notices.problems();
        let underlay = &self.shared.settings.load().underlay;
        problems.extend(self.shared.unreachable.problems(underlay, now()));
        problems.extend(self.shared.unresolved.problems());
        let stuck = self.workers.iter().filter(|worker| worker.is_stuck());
        problems.extend(stuck.map(|worker| {
            format!(
                "the worker of {} has not come round for {} seconds or more: only a restart helps",
                worker.name.load(),
                STUCK.as_secs()
            )
        }));
        problems
    }

    fn trace(&self, filter: TraceFilter, to: mpsc::Sender<Traced>) -> Result<(), CannotTrace> {
        let sent = unreachable::Sent::new(&self.tables);
        trace::start((&self.shared, &self.cache), &self.shared.ports.load(), filter, sent, to)
    }

    fn counters(&self) -> Counters {
        let (mut slow, mut full, mut errors) = (PathCounters::default(), [0; Full::ALL.len()], [0; 2]);
        for worker in &*self.workers {
            let counts = worker.counters.read();
            slow.received_packets += counts.received;
            slow.received_bytes += counts.received_bytes;
            slow.dropped_bytes += counts.dropped_bytes;
            slow.forwarded_packets += counts.sent;
            slow.forwarded_bytes += counts.sent_bytes;
            slow.answered_packets += counts.answered;
            errors = [errors[0] + counts.complained, errors[1] + counts.held_back];
            for (reason, count) in counts.dropped {
                match slow.dropped_packets.iter_mut().find(|(other, _)| *other == reason) {
                    Some((_, sum)) => *sum += count,
                    None => slow.dropped_packets.push((reason, count)),
                }
            }
            for (sum, more) in full.iter_mut().zip(counts.full) {
                *sum += more;
            }
        }
        let workers = self.workers.iter().map(|worker| WorkerLoad {
            name: worker.name.load().to_string(),
            permille: worker.permille.load(Ordering::Relaxed),
        });
        let mut cache = self.cache();
        let program = Arc::clone(&cache.program);
        let connection_cache = cache.handed.counters(&program);
        let (fast, handed_up) = of_program(&cache.program);
        Counters {
            fast,
            slow,
            handed_up,
            cache_entries: cache.entries(),
            cache_capacity: cache.program.sizes().neighbors.into(),
            cache_evicted: cache.evicted,
            cache_refused: cache.refused,
            cache_diverged: cache.diverged,
            connection_cache,
            workers: workers.filter(|worker| !worker.name.is_empty()).collect(),
            interface_events: self.shared.notices.events(),
            path_mtu: self.limits.events(),
            limited_hosts: self.limits.limited(),
            unreachable_messages: self.shared.unreachable.messages(),
            unreachable_hosts: self.shared.unreachable.hosts(&self.shared.settings.load().underlay),
            icmp_errors: ["sent", "held-back"].into_iter().zip(errors).collect(),
            queue_full: Full::ALL.map(Full::name).into_iter().zip(full).collect(),
            direct: self.telling.as_ref().map(|telling| telling.counters()),
        }
    }
}

#[cfg(test)]
#[path = "datapath/set_tests.rs"]
mod tests;

//! Looking at running commands and at the kernel.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ringside_bpf::{XdpEvent, XdpEvents};
use ringside_measure::live::Snapshot;
use ringside_nic::host::{CpuTimes, Interruptions};
use ringside_nic::sockets::{self, SocketHolder, XdpSocket};
use ringside_nic::{Interface, LinkState, QueueKind, QueueStatistics};

use super::observation::{InterfaceNow, Observation, QueueNow};
use crate::caps::{Attached, Holder};
use crate::clock::now_ns;
use crate::live::{Client, directory};
use crate::session::fault_in_words as in_words;

/// What is looked at, again and again.
pub(super) struct Observer {
    /// This interface alone.
    only: Option<Interface>,
    clients: BTreeMap<PathBuf, Client>,
    events: Result<XdpEvents, String>,
    namespace: u64,
}

impl Observer {
    pub(super) fn new(only: Option<Interface>) -> Self {
        let namespace = rustix::fs::stat("/proc/thread-self/ns/net");
        // Its explanation has many lines, of which the first says it.
        let first_line = |error: ringside_bpf::Error| error.to_string().lines().next().unwrap_or_default().to_owned();
        Self {
            only,
            clients: BTreeMap::new(),
            events: XdpEvents::start().map_err(first_line),
            namespace: namespace.map_or(0, |stat| stat.st_ino),
        }
    }

    /// One look. What cannot be seen is noted, and the rest told.
    pub(super) fn observe(&mut self) -> Observation {
        let mut notes = Vec::new();
        let mut processes = self.processes(&mut notes);
        let before = processes.len();
        processes.retain(|process| process.network_namespace == self.namespace);
        let elsewhere = before - processes.len();
        if let Some(only) = &self.only {
            let uses = |process: &Snapshot| {
                process
                    .queues
                    .iter()
                    .any(|queue| queue.counters.interface == only.name())
            };
            processes.retain(uses);
        }
        let holders = sockets::holders();
        let diagnosed = sockets::list().ok().flatten();
        let events = self.events(&mut notes);
        let interfaces = self
            .interfaces(&processes, &holders, &mut notes)
            .into_iter()
            .map(|(interface, state)| now(&interface, state, &events, diagnosed.as_deref(), &holders))
            .collect();
        if diagnosed.is_none() && holders.iter().any(|holder| holder.same_namespace) {
            notes.push(
                "this kernel does not list AF_XDP sockets (CONFIG_XDP_SOCKETS_DIAG): whose a queue is, and what a foreign \
                 socket drops, it does not tell"
                    .to_owned(),
            );
        }
        Observation {
            at: Duration::from_nanos(now_ns()),
            elsewhere,
            interfaces,
            sockets: in_use(&holders),
            cpus: noted(CpuTimes::read(), &mut notes),
            hard: noted(Interruptions::hard(), &mut notes),
            soft: noted(Interruptions::soft(), &mut notes),
            processes,
            notes,
        }
    }

    fn processes(&mut self, notes: &mut Vec<String>) -> Vec<Snapshot> {
        let entries = match directory::all() {
            Ok(entries) => entries,
            Err(error) => {
                notes.push(format!("running commands cannot be looked for: {error}"));
                return Vec::new();
            }
        };
        self.clients
            .retain(|path, _| entries.iter().any(|entry| entry.path == *path));
        let mut snapshots = Vec::new();
        for entry in entries {
            if !self.clients.contains_key(&entry.path) {
                match Client::connect(&entry.path) {
                    Ok(client) => _ = self.clients.insert(entry.path.clone(), client),
                    // It has just ended.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                    Err(error) => {
                        notes.push(format!(
                            "process {} is not asked: {error}; its user and root may",
                            entry.pid
                        ));
                        continue;
                    }
                }
            }
            let Some(client) = self.clients.get_mut(&entry.path) else {
                continue;
            };
            match client.ask() {
                Ok(snapshot) => snapshots.push(snapshot),
                Err(error) => {
                    self.clients.remove(&entry.path);
                    if entry.path.exists() {
                        notes.push(format!("process {} does not answer: {error:#}", entry.pid));
                    }
                }
            }
        }
        snapshots
    }

    /// What has gone wrong with XDP so far on each interface of this namespace.
    fn events(&self, notes: &mut Vec<String>) -> Vec<XdpEvent> {
        let counts = match &self.events {
            Ok(events) => events.counts().map_err(|error| error.to_string()),
            Err(reason) => Err(reason.clone()),
        };
        let mut counts = counts.unwrap_or_else(|reason| {
            notes.push(format!("failed redirects and XDP exceptions are not counted: {reason}"));
            Vec::new()
        });
        counts.retain(|event| u64::from(event.namespace) == self.namespace);
        counts
    }

    /// The one that was asked for; or those that matter; or all that are up.
    fn interfaces(
        &self,
        processes: &[Snapshot],
        holders: &[SocketHolder],
        notes: &mut Vec<String>,
    ) -> Vec<(Interface, LinkState)> {
        if let Some(only) = &self.only {
            return match only.state() {
                Ok(state) => vec![(only.clone(), state)],
                Err(error) => {
                    notes.push(error.to_string());
                    Vec::new()
                }
            };
        }
        let all = noted(Interface::all(), notes).unwrap_or_default();
        // One that was removed since is none.
        let all = all
            .into_iter()
            .filter_map(|interface| Some((interface.state().ok()?, interface)));
        let all: Vec<(Interface, LinkState)> = all.map(|(state, interface)| (interface, state)).collect();
        let has_socket = |interface: &Interface| {
            let queues = interface.queue_details().unwrap_or_default();
            !holders.is_empty() && queues.iter().any(|queue| queue.xsk == Some(true))
        };
        let is_used = |(interface, state): &&(Interface, LinkState)| {
            let mut queues = processes.iter().flat_map(|process| &process.queues);
            state.xdp.is_some()
                || queues.any(|queue| queue.counters.interface == interface.name())
                || has_socket(interface)
        };
        let used: Vec<_> = all.iter().filter(is_used).cloned().collect();
        if !used.is_empty() {
            return used;
        }
        all.into_iter()
            .filter(|(interface, state)| state.admin_up && interface.name() != "lo")
            .collect()
    }
}

/// What could be read; the rest is noted.
fn noted<T>(read: ringside_nic::Result<T>, notes: &mut Vec<String>) -> Option<T> {
    read.map_err(|error| notes.push(error.to_string())).ok()
}

/// Processes of this namespace with AF_XDP sockets.
fn in_use(holders: &[SocketHolder]) -> Vec<(Holder, usize)> {
    let here = holders.iter().filter(|holder| holder.same_namespace);
    here.map(|holder| (named(holder), holder.sockets.len())).collect()
}

fn named(holder: &SocketHolder) -> Holder {
    Holder {
        pid: holder.pid,
        command: holder.comm.clone(),
    }
}

fn now(
    interface: &Interface,
    state: LinkState,
    events: &[XdpEvent],
    diagnosed: Option<&[XdpSocket]>,
    holders: &[SocketHolder],
) -> InterfaceNow {
    let its = events.iter().filter(|event| event.interface == interface.index());
    let mut events: Vec<(String, u64)> = its.map(|event| (in_words(event.kind), event.count)).collect();
    events.sort();
    InterfaceNow {
        index: interface.index(),
        driver: interface.driver().ok().map(|driver| driver.name),
        up: state.admin_up,
        carrier: state.carrier,
        mtu_bytes: state.mtu,
        xdp: state.xdp.map(|xdp| Attached::of(interface, xdp)),
        stats: state.stats,
        queues: queues(interface, diagnosed, holders),
        irqs: (interface.irqs().unwrap_or_default().into_iter())
            .map(|irq| (irq.number, irq.name))
            .collect(),
        events,
        name: state.name,
    }
}

/// The queues with all that anybody tells of them. What the interface does not have, or the kernel does not tell, is left out.
fn queues(interface: &Interface, diagnosed: Option<&[XdpSocket]>, holders: &[SocketHolder]) -> Vec<QueueNow> {
    let mut queues: BTreeMap<(bool, u32), QueueNow> = BTreeMap::new();
    let mut queue = |kind: QueueKind, id: u32, add: &mut dyn FnMut(&mut QueueNow)| {
        let queue = queues.entry((kind == QueueKind::Tx, id)).or_insert_with(|| QueueNow {
            kind,
            id,
            ..QueueNow::default()
        });
        add(queue);
    };
    for detail in interface.queue_details().unwrap_or_default() {
        queue(detail.kind, detail.id, &mut |queue| {
            (queue.napi, queue.xsk) = (detail.napi, detail.xsk)
        });
    }
    for told in interface.queue_statistics().unwrap_or_default() {
        queue(told.kind, told.id, &mut |queue| queue.counters.extend(by_name(&told)));
    }
    for (counter, value) in interface.queue_counters().unwrap_or_default() {
        queue(counter.kind, counter.queue, &mut |queue| {
            // What netdev netlink has told counts the same, under the same name.
            if queue.counters.iter().all(|(known, _)| *known != counter.name) {
                queue.counters.push((counter.name.clone(), value));
            }
        });
    }
    let owners = sockets::by_inode(holders);
    for socket in diagnosed.unwrap_or_default() {
        if socket.interface == interface.index() {
            queue(QueueKind::Rx, socket.queue, &mut |queue| {
                queue.xsk = Some(true);
                queue.holder = owners.get(&socket.inode).map(|holder| named(holder));
                if let Some(drops) = socket.drops {
                    queue.counters.push(("socket rx_dropped".to_owned(), drops.rx_dropped));
                    queue
                        .counters
                        .push(("socket rx_ring_full".to_owned(), drops.rx_ring_full));
                    queue
                        .counters
                        .push(("socket tx_invalid_descs".to_owned(), drops.tx_invalid_descs));
                }
            });
        }
    }
    queues.into_values().collect()
}

fn by_name(told: &QueueStatistics) -> impl Iterator<Item = (String, u64)> {
    let all = [
        ("packets", told.packets),
        ("bytes", told.bytes),
        ("alloc_fail", told.alloc_failures),
        ("hw_drops", told.hw_drops),
        ("hw_drop_overruns", told.hw_drops_overrun),
    ];
    all.into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
}

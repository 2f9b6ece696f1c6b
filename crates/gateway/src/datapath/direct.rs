//! Hosts that send much to a receiver are told where it lives.
//!
//! ```text
//!   XDP program ── one packet of many ──┐
//!   workers ────── one packet of many ──┴─▶ who sends how much ── too much ──▶ a datagram to the host
//!                                              ▲
//!   control plane ── a receiver has changed ───┘ ── another datagram
//! ```
//! Only where nobody has rules, for then it is the gateway who keeps them: in a network in which no port is bound.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use crossbeam_channel::Receiver;
use ringside_bpf::gateway::{FlowSample, GatewayProgram};
use ringside_gateway_core::direct::{DirectLimits, DirectPair, Directs};
use ringside_gateway_core::table::Encapsulation;
use ringside_gateway_core::{TenantAddress, Vni};

use super::options::{DirectOptions, PathOptions};
use super::worker::{Shared, now};
use crate::model::{DirectCounters, Tables};
use crate::notice::{Notice, Way, time};

/// What the program has to tell is asked for so often, at least.
const ROUND: Duration = Duration::from_millis(100);
const FORGET: Duration = Duration::from_secs(1);
/// Samples within a second from whoever sends so much that it is told: enough not to be chance.
const SAMPLES: u32 = 16;
/// Hosts and receivers that are remembered.
const PAIRS: usize = 65536;

/// Of so many packets one is looked at. A power of two.
pub(super) fn one_in(options: &DirectOptions) -> u32 {
    let most = (options.packets_per_second / SAMPLES).clamp(1, 1 << 16);
    1 << most.ilog2()
}

/// Tells hosts.
#[derive(Debug)]
pub(super) struct Telling {
    options: DirectOptions,
    ports: [u16; 2],
    tables: Arc<Tables>,
    directs: Mutex<Directs>,
    /// Of IPv4 and IPv6, as far as this host has them.
    sockets: [Option<UdpSocket>; 2],
    sent: AtomicU64,
    failed: AtomicU64,
}

impl Telling {
    pub(super) fn new(path: &PathOptions, options: &DirectOptions, tables: &Arc<Tables>) -> Result<Self> {
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let sockets = any.map(|any| {
            let socket = UdpSocket::bind((any, 0)).ok()?;
            socket.set_nonblocking(true).ok()?;
            Some(socket)
        });
        let limits = DirectLimits {
            packets: options.packets_per_second,
            notices: options.notices_per_second,
            lifetime: u64::try_from(options.lifetime.as_nanos()).unwrap_or(u64::MAX),
            pairs: PAIRS,
        };
        sockets
            .iter()
            .flatten()
            .next()
            .context("opening a socket for notices")?;
        Ok(Self {
            options: options.clone(),
            ports: [path.vxlan_port, path.geneve_port],
            tables: Arc::clone(tables),
            directs: Mutex::new(Directs::new(limits)),
            sockets,
            sent: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// Until the data path ends.
    pub(super) fn run(&self, program: Arc<GatewayProgram>, slow: &Receiver<FlowSample>, shared: &Shared) -> Result<()> {
        let flows = program.flows()?;
        // Another one may take its place, and its table goes then.
        drop(program);
        // What somebody before has left.
        flows.read(Duration::ZERO)?;
        let mut forgot = Instant::now();
        let stands_for = one_in(&self.options);
        while !shared.stop.load(Ordering::Relaxed) {
            for flow in flows.read(ROUND)?.into_iter().chain(slow.try_iter()) {
                self.seen(&flow, stands_for);
            }
            if forgot.elapsed() >= FORGET {
                forgot = Instant::now();
                self.directs().forget(now());
            }
        }
        Ok(())
    }

    fn directs(&self) -> std::sync::MutexGuard<'_, Directs> {
        self.directs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self, flow: &FlowSample, stands_for: u32) {
        let Some(vni) = Vni::new(flow.vni) else { return };
        let receiver = TenantAddress::new(vni, flow.destination);
        let Some(way) = self.way(receiver) else { return };
        // Not who lives on the same host, nor where the sender's host may have no address of the family.
        if way.host == flow.host || way.host.is_ipv4() != flow.host.is_ipv4() {
            return;
        }
        let pair = DirectPair {
            host: flow.host,
            receiver,
        };
        // Under the lock, so that a change is told after this.
        let mut directs = self.directs();
        if directs.sampled(now(), pair, stands_for) {
            self.send(flow.host, receiver, self.way(receiver));
        }
    }

    /// As it is now; None if nobody may send there past the gateway.
    fn way(&self, receiver: TenantAddress) -> Option<Way> {
        let neighbor = self.tables.neighbors.reader().find(receiver)?;
        let host = self.tables.hosts.reader().find(neighbor.host)?;
        let [vxlan, geneve] = self.ports;
        let way = Way {
            mac: neighbor.mac,
            host: host.ip,
            encapsulation: host.encapsulation,
            udp_port: match host.encapsulation {
                Some(Encapsulation::Geneve) => geneve,
                Some(Encapsulation::Vxlan) | None => vxlan,
            },
            lifetime: self.options.lifetime,
        };
        (!self.tables.is_policed(receiver.vni)).then_some(way)
    }

    fn send(&self, to: IpAddr, address: TenantAddress, way: Option<Way>) {
        let notice = Notice {
            address,
            way,
            time: time(),
        };
        let datagram = notice.seal(self.options.key.as_ref());
        let socket = &self.sockets[usize::from(to.is_ipv6())];
        let sent = socket
            .as_ref()
            .map(|socket| socket.send_to(&datagram, (to, self.options.port)));
        match sent {
            Some(Ok(_)) => self.sent.fetch_add(1, Ordering::Relaxed),
            // It is a favour, and will be said again.
            Some(Err(_)) | None => self.failed.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// These may be elsewhere now, or gone.
    pub(super) fn changed(&self, receivers: impl IntoIterator<Item = TenantAddress>) {
        let mut directs = self.directs();
        if directs.counts().0 == 0 {
            return;
        }
        for receiver in receivers {
            self.tell_again(&mut directs, receiver);
        }
    }

    /// Rules may have come.
    pub(super) fn policy_changed(&self) {
        let mut directs = self.directs();
        let receivers: Vec<TenantAddress> = directs.receivers().collect();
        for receiver in receivers {
            if self.tables.is_policed(receiver.vni) {
                self.tell_again(&mut directs, receiver);
            }
        }
    }

    /// Those that go by it are told what holds now.
    fn tell_again(&self, directs: &mut Directs, receiver: TenantAddress) {
        let now = now();
        let way = self.way(receiver);
        for host in directs.changed(now, receiver, way.is_none()) {
            let left = directs.holds_for(now, &DirectPair { host, receiver });
            let way = way.zip(left).filter(|(way, _)| way.host.is_ipv4() == host.is_ipv4());
            let way = way.map(|(way, left)| Way {
                lifetime: Duration::from_nanos(left),
                ..way
            });
            self.send(host, receiver, way);
        }
    }

    pub(super) fn counters(&self) -> DirectCounters {
        let (pairs, held_back) = self.directs().counts();
        DirectCounters {
            pairs: pairs as u64,
            sent: self.sent.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            held_back,
        }
    }
}

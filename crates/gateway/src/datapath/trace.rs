//! Packets that somebody wants to see, and what was decided about them.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use crossbeam_channel::{Receiver, Sender};
use ringside_bpf::gateway::{Drops as OfProgram, Outcome, Sample, Sampling};
use ringside_gateway_core::decide::{Cacheable, Decision, Judged};
use ringside_gateway_core::policy::{Denied, RuleId};
use ringside_gateway_core::{Content, DropReason, Packet, Vni};
use ringside_wire::icmp::{ErrorKind, ErrorMessage};
use ringside_wire::{ipv4, ipv6, vlan};
use tokio::sync::mpsc;

use super::cache::Cache;
use super::counters::reason;
use super::ports::Ports;
use super::unreachable::Sent;
use super::worker::Shared;
use crate::model::{CannotTrace, Drops, TraceFilter, Traced};

/// Bytes of a packet that are shown: as many as the XDP program shows.
const SHOWN: usize = 256;
/// Packets of workers that wait.
const WAITING: usize = 1024;
/// Both stages are looked at so often, and what they have shown is put into order.
const ROUND: Duration = Duration::from_millis(50);

/// How the decision about a packet that goes on begins.
const SENT: &str = "sent on";

/// What workers are to show.
#[derive(Debug)]
pub(super) struct Wanted {
    filter: TraceFilter,
    tell: Sender<Traced>,
    ports: Ports,
    /// True if the fast path is enabled.
    is_fast: bool,
    lost: AtomicU64,
}

/// A packet as it came.
#[derive(Debug)]
pub(super) struct Shown {
    vni: Option<Vni>,
    length: usize,
    bytes: Vec<u8>,
    /// Which rules it meets.
    pub(super) rules: Judged,
    /// What the fast path takes over, once that is decided.
    pub(super) cacheable: Cacheable,
}

impl Wanted {
    /// The packet as it is now, if it is wanted.
    pub(super) fn take(&self, tenant: Option<&Packet>, bytes: &[u8], length: usize) -> Option<Shown> {
        let TraceFilter { vni, ip, .. } = self.filter;
        let concerns = |ip: IpAddr| match tenant.map(|packet| packet.content) {
            Some(Content::Ip { src, dst }) => src == ip || dst == ip,
            Some(Content::WhoHas { asker, target }) => asker == ip || target == ip,
            None => false,
        };
        let its = tenant.map(|packet| packet.vni);
        let wanted = vni.is_none_or(|vni| its == Some(vni)) && ip.is_none_or(concerns);
        wanted.then(|| Shown {
            vni: its,
            length,
            bytes: bytes[..bytes.len().min(SHOWN)].to_vec(),
            rules: [None; 2],
            cacheable: Cacheable::Nothing,
        })
    }

    /// Whether what was decided is asked for: what is not takes no room from what is.
    fn wants(&self, decision: Decision) -> bool {
        match self.filter.drops {
            None => true,
            Some(Drops::Any) => reason(decision).is_some(),
            Some(Drops::For(wanted)) => reason(decision) == Some(wanted),
        }
    }

    /// Tells what became of it, if that is wanted. `after`: as it is sent, if it is.
    pub(super) fn tell(&self, shown: &Shown, time: u64, (port, queue): (u8, u32), decision: Decision, after: &[u8]) {
        if !self.wants(decision) {
            return;
        }
        let cacheable = match self.is_fast {
            true => shown.cacheable,
            false => Cacheable::Nothing,
        };
        let traced = Traced {
            time,
            is_fast: false,
            interface: self.ports.name(port),
            queue,
            vni: shown.vni.map(Vni::number),
            decision: by_worker(decision, cacheable, after) + &by_rules(decision, shown.rules),
            length: u32::try_from(shown.length).unwrap_or(u32::MAX),
            bytes: shown.bytes.clone(),
            lost: 0,
        };
        if self.tell.try_send(traced).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn dropped(reason: DropReason) -> String {
    format!("dropped: {}", reason.name())
}

fn by_worker(decision: Decision, cacheable: Cacheable, after: &[u8]) -> String {
    match decision {
        Decision::Kernel => dropped(DropReason::NotOurs),
        Decision::Send { .. } => {
            let cached = match cacheable {
                Cacheable::Nothing => "",
                Cacheable::Neighbor(_) => "; the next are the fast path's",
                Cacheable::Connection { .. } => "; the next of its connection are the fast path's",
                Cacheable::Ended(_) => "; its connection ends, and is no longer the fast path's",
            };
            match receiver(after) {
                Some(host) => format!("{SENT} to {host}{cached}"),
                None => format!("{SENT}{cached}"),
            }
        }
        Decision::Answer => "answered".to_owned(),
        Decision::Complain(reason) => {
            let most = told_mtu(after).map(|mtu| format!(": no more than {mtu} bytes go there"));
            let most = most.unwrap_or_default();
            format!("dropped: {}; its sender is told by ICMP{most}", reason.name())
        }
        Decision::Wait(_) => "waits for the MAC address of its host".to_owned(),
        Decision::NoAddress(_) => dropped(DropReason::HostUnresolved),
        Decision::Drop(reason) => dropped(reason),
    }
}

/// Why a packet that is sent on may be, where something is bound to one of its addresses.
fn by_rules(decision: Decision, rules: Judged) -> String {
    let [egress, ingress] = rules;
    let both = [("egress", egress), ("ingress", ingress)];
    let name = |(way, rule): (&str, Option<Result<RuleId, Denied>>)| Some(format!("{way} rule {}", rule?.ok()?.0));
    match decision {
        Decision::Send { .. } | Decision::Wait(_) | Decision::Complain(_) if rules != [None; 2] => {
            let names: Vec<String> = both.into_iter().filter_map(name).collect();
            if rules.iter().flatten().any(Result::is_err) {
                "; its connection is allowed".to_owned()
            } else {
                format!(
                    "; {} allow{} it",
                    names.join(" and "),
                    if names.len() == 1 { "s" } else { "" }
                )
            }
        }
        _ => String::new(),
    }
}

/// Whom a frame without VLAN tags is addressed to.
fn receiver(frame: &[u8]) -> Option<IpAddr> {
    match frame.get(12..14)? {
        [0x08, 0x00] => Some(IpAddr::from(*frame.get(30..)?.first_chunk::<4>()?)),
        [0x86, 0xdd] => Some(IpAddr::from(*frame.get(38..)?.first_chunk::<16>()?)),
        _ => None,
    }
}

/// How long a packet may be that goes there, if that is what an ICMP error in a tunnel says.
fn told_mtu(frame: &[u8]) -> Option<u32> {
    let udp = match frame.get(12..14)? {
        [0x08, 0x00] => 34,
        _ => 54,
    };
    let tunnel = frame.get(udp + 8..)?;
    // Geneve says what is in it, where VXLAN has nothing.
    let header = match tunnel.first_chunk()? {
        [options, _, 0x65, 0x58] => 8 + 4 * usize::from(options & 0x3f),
        _ => 8,
    };
    let inner = tunnel.get(header..)?;
    let ip = inner.get(vlan::Network::parse(inner).ok()?.offset..)?;
    let error = match ip.first()? >> 4 {
        4 => ErrorMessage::parse_v4(ipv4::Packet::parse(ip).ok()?.payload()),
        _ => ErrorMessage::parse_v6(ipv6::Packet::parse(ip).ok()?.payload()),
    };
    match error.ok()?.kind {
        ErrorKind::TooBig { mtu } => Some(mtu),
        _ => None,
    }
}

fn by_program(outcome: Outcome) -> String {
    match outcome {
        Outcome::Dropped(number) => {
            let reason = DropReason::ALL.iter().find(|reason| reason.number() == number);
            format!("dropped: {}", reason.map_or("unknown", |reason| reason.name()))
        }
        Outcome::Passed => "the kernel's".to_owned(),
        Outcome::Forwarded => SENT.to_owned(),
        Outcome::Redirected => format!("{SENT} by another interface"),
        Outcome::Answered => "answered".to_owned(),
        Outcome::Slow(cause) => format!("handed to a worker: {}", cause.name()),
    }
}

/// Shows packets from now on, until nobody listens.
pub(super) fn start(
    (shared, cache): (&Arc<Shared>, &Arc<Mutex<Cache>>),
    ports: &Ports,
    filter: TraceFilter,
    mut sent: Sent,
    to: mpsc::Sender<Traced>,
) -> Result<(), CannotTrace> {
    let failed = |error: anyhow::Error| CannotTrace::Failed(format!("{error:#}").into());
    let mut locked = lock(cache);
    if locked.config.sampling.is_some() {
        return Err(CannotTrace::Busy);
    }
    let (tell, told) = crossbeam_channel::bounded(WAITING);
    let wanted = Arc::new(Wanted {
        filter,
        tell,
        ports: ports.clone(),
        is_fast: locked.is_used,
        lost: AtomicU64::new(0),
    });
    locked
        .sample(Some(Sampling {
            vni: filter.vni.map(Vni::number),
            ip: filter.ip,
            drops: filter.drops.map(|drops| match drops {
                Drops::Any => OfProgram::Any,
                Drops::For(reason) => OfProgram::For(reason.number()),
            }),
        }))
        .map_err(failed)?;
    drop(locked);
    shared.trace.store(Some(Arc::clone(&wanted)));
    let (shared, cache) = (Arc::clone(shared), Arc::clone(cache));
    let run = move || {
        if let Err(error) = show((&shared, &cache), &wanted, &told, &mut sent, &to) {
            tracing::warn!(%error, "packets cannot be shown any more");
        }
        shared.trace.store(None);
        if let Err(error) = lock(&cache).sample(None) {
            tracing::warn!(%error, "the fast path goes on showing packets");
        }
    };
    let started = std::thread::Builder::new().name("trace".into()).spawn(run);
    started.map(drop).map_err(|error| failed(error.into()))
}

fn lock(cache: &Mutex<Cache>) -> MutexGuard<'_, Cache> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

fn show(
    (shared, cache): (&Shared, &Mutex<Cache>),
    wanted: &Wanted,
    told: &Receiver<Traced>,
    sent: &mut Sent,
    to: &mpsc::Sender<Traced>,
) -> Result<()> {
    let program = Arc::clone(&lock(cache).program);
    let samples = program.samples()?;
    // What somebody before has left.
    samples.read(Duration::ZERO)?;
    let mut lost_before = program.samples_lost()?;
    while !shared.stop.load(Ordering::Relaxed) && !to.is_closed() {
        let mut round: Vec<Traced> = (samples.read(ROUND)?.into_iter())
            .map(|sample| of_program(sample, &wanted.ports))
            .collect();
        round.extend(told.try_iter());
        round.sort_by_key(|traced| traced.time);
        let lost = program.samples_lost()?;
        let more = lost - lost_before + wanted.lost.swap(0, Ordering::Relaxed);
        lost_before = lost;
        if let Some(first) = round.first_mut() {
            first.lost = more;
        }
        for mut traced in round {
            let underlay = &shared.settings.load().underlay;
            if traced.decision.starts_with(SENT) {
                let note = sent.note(&shared.unreachable, &traced.bytes, underlay);
                traced.decision.extend(note);
            } else if traced.decision == dropped(DropReason::HostUnresolved) {
                let host = sent.host(&traced.bytes, underlay);
                traced.decision.extend(host.map(|host| shared.unresolved.note(host)));
            }
            if to.blocking_send(traced).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn of_program(sample: Sample, ports: &Ports) -> Traced {
    Traced {
        time: sample.time,
        is_fast: true,
        interface: (ports.number(sample.ifindex)).map_or_else(Arc::default, |port| ports.name(port)),
        queue: sample.queue,
        vni: sample.vni,
        decision: by_program(sample.outcome),
        length: sample.length,
        bytes: sample.bytes,
        lost: 0,
    }
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;

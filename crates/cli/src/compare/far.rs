//! A comparison whose receiving end is another host: what each end of a turn opens, and what the far one counts.
//!
//! ```text
//!   here                                     a `ringside serve` there
//!   ────                                     ────────────────────────
//!   rx     generator ──────────────────────▶ the variant receives and counts
//!   tx     the variant sends ──────────────▶ sink in XDP counts
//!   fwd    generator ──▶ … sink here ◀────── the variant sends back
//!   ping   the variant asks ◀──────────────▶ the variant answers
//! ```

use std::net::IpAddr;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::ValueEnum as _;
use ringside_bpf::{Link, Sink};
use ringside_measure::control::{ContestStart, Start, Work};
use ringside_measure::schema::CpuUse;
use ringside_nic::host::CpuTime;
use ringside_wire::MacAddr;

use super::bed::{Bed, Side, refuse_longer};
use super::contender::Contender;
use super::options::{Args, Bench};
use super::slot::{Count, Load, Place, Reading, Slot, Worker};
use super::under::Beside;
use super::variant::{Kind, Operation};
use crate::args::bad_value;
use crate::pin::check_online;
use crate::serve::{Dialled, RemoteArgs, Turns};
use crate::session::nanos;
use crate::stop::Stop;

/// What the far end of a turn holds open.
pub(crate) struct FarPart {
    /// What works there, if anything does.
    pub(crate) worker: Option<Worker>,
    /// What counts, where that is not the worker.
    pub(crate) sink: Option<Sink>,
    /// What is attached meanwhile.
    pub(crate) links: Vec<Link>,
}

impl FarPart {
    /// Opens what is asked for, on the far end's side of the path.
    pub(crate) fn open(contest: &ContestStart, frame_bytes: u32, near: Side, own: Side) -> Result<Self> {
        let unknown = |what: &str| anyhow!("{what} is not known here: use one version of ringside on both sides");
        let operation = Operation::from_str(&contest.operation, true).map_err(|_| unknown(&contest.operation))?;
        let kind = Kind::from_str(&contest.variant, true).map_err(|_| unknown(&contest.variant))?;
        let frame_bytes = u16::try_from(frame_bytes).context("a frame of that size")?;
        let bench = Bench::far(contest.cpu);
        let bed = Bed::between(near, own);
        Contender::new(&bed, &bench, operation, kind, frame_bytes)
            .sleeping(contest.sleeps)
            .far_part()
    }
}

impl Contender<'_> {
    /// The far end of its turn.
    fn far_part(&self) -> Result<FarPart> {
        let side = &self.bed.b;
        let linked = |link: Link| FarPart {
            worker: None,
            sink: None,
            links: vec![link],
        };
        let counted = || -> Result<FarPart> {
            let (sink, link) = self.bed.sink(side)?;
            Ok(FarPart {
                sink: Some(sink),
                ..linked(link)
            })
        };
        let worked = |work| -> Result<FarPart> {
            Ok(FarPart {
                links: self.cut(side)?.into_iter().collect(),
                worker: Some(self.worker(work)?),
                sink: None,
            })
        };
        match (self.operation, self.kind) {
            (Operation::Tx, _) | (Operation::Rx, Kind::XdpLimit) => counted(),
            (Operation::Fwd, Kind::XdpLimit) => Ok(linked(Bed::reflect(side)?)),
            (Operation::Ping, Kind::XdpLimit) => Ok(linked(Bed::answer(side)?)),
            (Operation::Rx, _) => worked(|peer| peer.receive()),
            (Operation::Fwd, _) => worked(|peer| peer.send_back()),
            (Operation::Ping, _) => worked(|peer| peer.answer().map(|()| 0)),
        }
    }

    /// A turn with the far end's part over there.
    pub(super) fn far_turn(&self, turns: &Turns, slot: &Slot<'_>, load: Option<&mut Load>) -> Result<Reading> {
        turns.begin(self.start()?)?;
        let near = self.near_part(slot, load);
        // Whatever came of it here: the far end's part is closed, and its own words say more.
        let far = turns.end()?;
        if let Some(why) = far.lost {
            bail!("at the far end: {why}");
        }
        let (mut reading, offered) = near?;
        let told = far.result.context("the far end has told nothing")?;
        if let Some(offered) = offered {
            let rates = told.received.with_context(|| {
                format!(
                    "{} packets came to the far end: too few, or too late, to count",
                    told.packets.delivered()
                )
            })?;
            reading.pps = rates.packets_pps;
            reading.loss = (offered != 0).then(|| (1.0 - told.packets.delivered() as f64 / offered as f64).max(0.0));
        }
        // Servers of earlier versions report more than all of the time.
        reading.far_waiting = far.cpu_wait_percent.map(|percent| (percent / 100.0).min(1.0));
        reading.cpus[1] = cpu(&told.cpus, self.bench.receiver_cpu());
        Ok(reading)
    }

    /// What the far end is asked for.
    pub(crate) fn start(&self) -> Result<Start> {
        let turns = self.bed.turns.as_ref().context("a far end")?;
        let (flow, _) = self.bed.frame(true, self.frame_bytes)?;
        Ok(Start {
            frame_bytes: u32::try_from(self.frame_bytes)?,
            contest: Some(ContestStart {
                operation: self.operation.to_string(),
                variant: self.far_kind.unwrap_or(self.kind).to_string(),
                cpu: self.bench.receiver_cpu(),
                settle_ns: nanos(self.bench.settle()),
                slot_ns: nanos(self.bench.slot),
                sleeps: self.sleeps,
                trace: None,
            }),
            ..turns.remote.far(Work::Contest, &flow, Dialled::session()?)
        })
    }

    /// This end's part; what was offered, where the far end counts.
    fn near_part(&self, slot: &Slot<'_>, load: Option<&mut Load>) -> Result<(Reading, Option<u64>)> {
        let near = &self.bed.a;
        // Since the far end is ready, it is known what its interface is.
        if load.is_some()
            && let Some(reason) = self.bed.no_generator(self.kind)
        {
            bail!(reason);
        }
        let offered = |(reading, offered)| (reading, Some(offered));
        match self.operation {
            Operation::Rx => {
                // Many NICs send redirected frames only while they have a program themselves.
                let _enabling = self.bed.sink(near)?;
                slot.offer(None, load).map(offered)
            }
            Operation::Tx => {
                let _enabling = load.is_some().then(|| self.bed.sink(near)).transpose()?;
                let worker = match self.kind {
                    Kind::XdpLimit => None,
                    _ => Some(Worker {
                        peer: self.open(near)?,
                        place: Place::on(self.bench.sender_cpu()),
                        work: |peer| peer.transmit(),
                    }),
                };
                slot.offer(worker, load).map(offered)
            }
            Operation::Fwd => {
                let (sink, _link) = self.bed.sink(near)?;
                Ok((slot.rate(None, load, Count::Sink(&sink))?, None))
            }
            Operation::Ping => {
                let (flow, frame) = self.bed.frame(true, self.frame_bytes)?;
                let payload_len = frame.len() - flow.header_len();
                let _cut = self.cut(near)?;
                let client = match self.kind {
                    Kind::XdpLimit => self.open_as(near, Kind::AfXdpNative)?,
                    _ => self.open(near)?,
                };
                let place = Place::on(self.bench.sender_cpu());
                let beside = Beside::open(self.under, self.bed, place)?;
                Ok((slot.ping(client, place, None, payload_len, beside)?, None))
            }
        }
    }
}

impl Args {
    /// CPUs that are not there are told before anything is built; those of the far end are its own business.
    pub(super) fn check_cpus(&self) -> Result<()> {
        match self.server() {
            None => self.bench.check_cpus(),
            Some(_) => check_online("--cpus S,R", &[self.bench.sender_cpu()]),
        }
    }

    fn server(&self) -> Option<&String> {
        self.host.as_ref().or(self.remote.server.as_ref())
    }

    /// The path to a server, if there is one.
    pub(super) fn dial(&self, stop: &Stop) -> Result<Option<Bed>> {
        let remote = RemoteArgs {
            server: self.server().cloned(),
            ..self.remote.clone()
        };
        let way = remote.way()?;
        let Some(dialled) = remote.dial()? else { return Ok(None) };
        let way = way.context("a server has an address")?;
        let (IpAddr::V4(to), Some(IpAddr::V4(from))) = (way.to, way.from) else {
            bad_value!("comparisons take IPv4: name the server by its IPv4 address");
        };
        let state = way.interface.state()?;
        refuse_longer(&self.sizes, &state)?;
        if let Some(error) = ringside_xsk::foreign_program(&way.interface) {
            return Err(error.into());
        }
        let near = Side::shared(way.interface.clone(), MacAddr(state.mac), from);
        let far = Side::shared(way.interface, way.mac, to);
        Ok(Some(Bed::to_server(near, far, dialled.turns(remote, stop)?)))
    }
}

/// What a CPU of the far end did in the turn, in parts of a ten-thousandth.
fn cpu(told: &[CpuUse], number: u32) -> CpuTime {
    let found = told.iter().find(|cpu| cpu.cpu == number);
    // What did nothing is not listed.
    found.map(parts).unwrap_or_else(|| {
        let mut idle = CpuTime::default();
        idle.idle = WHOLE;
        idle
    })
}

const WHOLE: u64 = 10_000;

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "percentages"
)]
fn parts(used: &CpuUse) -> CpuTime {
    let part = |percent: f64| (percent.clamp(0.0, 100.0) * WHOLE as f64 / 100.0) as u64;
    let mut time = CpuTime::default();
    time.user = part(used.user_percent);
    time.system = part(used.system_percent);
    time.softirq = part(used.softirq_percent);
    time.steal = part(used.steal_percent);
    time.idle = WHOLE.saturating_sub(time.user + time.system + time.softirq + time.steal);
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_cpu_are_those_that_were_told() {
        let used = CpuUse {
            cpu: 1,
            user_percent: 12.5,
            system_percent: 50.0,
            softirq_percent: 25.0,
            steal_percent: 0.0,
        };
        let time = parts(&used);
        assert_eq!(time.fraction(time.user), Some(0.125));
        assert_eq!(time.fraction(time.busy()), Some(0.875));
    }
}

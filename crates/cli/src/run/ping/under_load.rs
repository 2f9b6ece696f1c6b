//! `ringside ping --under-load`: the same probes without load and with it, in turn.
//!
//! ```text
//!   round 1    idle ── self-induced ── foreign
//!   round 2    foreign ── self-induced ── idle       (nobody always comes after the same neighbour)
//!
//!   turn       load on ── settle ── probes ── load off ── late answers
//! ```

use std::time::{Duration, Instant};

use anyhow::Result;
use ringside_measure::compare::{self, Round};
use ringside_measure::latency::Latency;
use ringside_measure::schema::{LoadCondition, LoadKind, Responsiveness, UnderLoadResult};
use ringside_nic::host::CpuTimes;
use ringside_nic::{Interface, LinkState};
use ringside_wire::flow::UdpFlow;
use ringside_xsk::{Queue, Wait};

use super::load::{Foreign, Running, pace};
use super::pinger::Pinger;
use crate::args::{Peer, PingArgs, bad_value};
use crate::compare::order;
use crate::report::units::plural;
use crate::session::Worker;

/// How long a load is on before its first probe.
const SETTLE: Duration = Duration::from_millis(100);

/// Turns and what they gave.
pub(super) struct UnderLoad {
    kinds: Vec<LoadKind>,
    rounds: u32,
    turn: Duration,
    interface: Interface,
    foreign: Option<Foreign>,
    own: String,
    turns: Vec<Turn>,
}

/// What a turn gave, apart from the probes themselves.
struct Turn {
    /// Index of the condition.
    of: usize,
    round: u32,
    p50_ns: Option<u64>,
    steal: f64,
    duration: Duration,
    /// Packets and bits, sent and received.
    link: Option<[u64; 4]>,
    sent: Option<u64>,
    received: Option<u64>,
}

impl UnderLoad {
    /// What the command line asks for; `None` where that is no load.
    pub(super) fn new(args: &PingArgs, interface: &Interface, flow: &UdpFlow) -> Result<Option<Self>> {
        let Some(asked) = &args.load.under_load else {
            return Ok(None);
        };
        let mut kinds = vec![LoadKind::Idle];
        for kind in asked.iter().map(|kind| kind.schema()) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let (size, rate) = (args.load.load_size, args.load.load_rate);
        let foreign = kinds
            .contains(&LoadKind::Foreign)
            .then(|| foreign(args, flow))
            .transpose()?;
        let turns = args.load.rounds * u32::try_from(kinds.len()).unwrap_or(u32::MAX);
        let turn = args.run.time.map_or(Duration::from_secs(1), |time| time / turns);
        if turn < SETTLE {
            bad_value!(
                "--time {}: that is {} ms for each of {turns} turns ({} conditions, --rounds {}), and one takes {} ms at least",
                args.run.time.unwrap_or_default().as_secs_f64(),
                turn.as_millis(),
                kinds.len(),
                args.load.rounds,
                SETTLE.as_millis()
            );
        }
        Ok(Some(Self {
            kinds,
            rounds: args.load.rounds,
            turn,
            interface: interface.clone(),
            foreign,
            own: format!(
                "packets of {size} bytes in the flow of the probes, which are answered too, {}",
                pace(rate)
            ),
            turns: Vec::new(),
        }))
    }

    pub(super) fn conditions(&self) -> usize {
        self.kinds.len()
    }

    /// Whether packets of the probes' own flow are wanted.
    pub(super) fn loads_itself(&self) -> bool {
        self.kinds.contains(&LoadKind::SelfInduced)
    }

    /// How long all turns take at the most, if each has to wait for a last answer.
    pub(super) fn longest(&self, timeout: Duration) -> Duration {
        let turns = self.rounds * u32::try_from(self.kinds.len()).unwrap_or(u32::MAX);
        // What beginning and ending a turn takes on a busy machine.
        (self.turn + timeout + 2 * SETTLE) * turns
    }

    /// Packets of the load in the probes' own flow, so far: they go where the probes go.
    pub(super) fn own_sent(&self) -> u64 {
        let own = |turn: &&Turn| self.kinds[turn.of] == LoadKind::SelfInduced;
        self.turns.iter().filter(own).filter_map(|turn| turn.sent).sum()
    }

    /// One line about what is to come.
    pub(super) fn plan(&self) -> String {
        format!(
            "  {} in turn, {}, {:.1} s each",
            plural(self.kinds.len(), "condition"),
            plural(self.rounds, "round"),
            self.turn.as_secs_f64()
        )
    }

    /// All turns, until the last or until the worker is to stop.
    pub(super) fn run(
        &mut self,
        pinger: &mut Pinger,
        queues: &mut [&mut Queue],
        worker: &Worker<'_>,
        wait: Wait,
    ) -> Result<()> {
        for round in 0..self.rounds {
            for of in order(self.kinds.len(), round) {
                if worker.stop.is_set() {
                    return Ok(());
                }
                let turn = self.one(of, round, pinger, queues, worker, wait)?;
                self.turns.push(turn);
            }
        }
        worker.stop.set();
        Ok(())
    }

    fn one(
        &self,
        of: usize,
        round: u32,
        pinger: &mut Pinger,
        queues: &mut [&mut Queue],
        worker: &Worker<'_>,
        wait: Wait,
    ) -> Result<Turn> {
        let kind = self.kinds[of];
        let foreign = self.foreign.as_ref().filter(|_| kind == LoadKind::Foreign);
        let running = foreign.map(Foreign::start).transpose()?;
        if foreign.is_some() {
            std::thread::sleep(SETTLE);
        }
        let (mark, began) = (Mark::now(&self.interface), Instant::now());
        let settling = running.as_ref().and_then(Running::sent);
        let start_ns = pinger.clock.now_ns();
        let own = pinger.load.as_ref().map_or((0, 0), |load| load.counts());
        if kind == LoadKind::SelfInduced
            && let Some(load) = &mut pinger.load
        {
            load.start(start_ns)?;
        }
        let end_ns = start_ns + crate::session::nanos(self.turn);
        let asked = pinger.turn(of, queues, worker, wait, end_ns);
        if let Some(load) = &mut pinger.load {
            load.stop();
        }
        let duration = began.elapsed();
        let (link, steal) = mark.passed(&self.interface);
        let sent = running.as_ref().and_then(Running::sent);
        let sent = sent.zip(settling).map(|(sent, settling)| sent - settling);
        running.map(Running::end).transpose()?;
        asked?;
        pinger.late(queues, worker, wait)?;
        let turn: Latency = std::mem::take(&mut pinger.sessions[of].turn);
        let own = pinger
            .load
            .as_ref()
            .filter(|_| kind == LoadKind::SelfInduced)
            .map(|load| (load.counts().0 - own.0, load.counts().1 - own.1));
        Ok(Turn {
            of,
            round,
            p50_ns: turn.summary().and_then(|summary| summary.p50_ns),
            steal,
            duration,
            link,
            sent: sent.or(own.map(|(sent, _)| sent)),
            received: own.map(|(_, received)| received),
        })
    }

    /// Everything side by side.
    pub(super) fn result(&self, pinger: &Pinger) -> UnderLoadResult {
        let conditions = (0..self.kinds.len()).map(|of| self.condition(of, pinger)).collect();
        UnderLoadResult {
            rounds: self.turns.iter().map(|turn| turn.round + 1).max().unwrap_or(0),
            turn_ns: crate::session::nanos(self.turn),
            conditions,
        }
    }

    fn condition(&self, of: usize, pinger: &Pinger) -> LoadCondition {
        let (kind, session) = (self.kinds[of], &pinger.sessions[of]);
        let turns: Vec<&Turn> = self.turns.iter().filter(|turn| turn.of == of).collect();
        let seconds = turns.iter().map(|turn| turn.duration.as_secs_f64()).sum::<f64>();
        let links: Option<Vec<[u64; 4]>> = turns.iter().map(|turn| turn.link).collect();
        #[allow(clippy::cast_precision_loss, reason = "a rate has three digits")]
        let rate = |at: usize| {
            let sum = links.as_ref()?.iter().map(|link| link[at]).sum::<u64>();
            (seconds > 0.0).then(|| sum as f64 / seconds)
        };
        let sum = |count: fn(&Turn) -> Option<u64>| -> Option<u64> {
            let counts: Vec<u64> = turns.iter().filter_map(|turn| count(turn)).collect();
            (!counts.is_empty()).then(|| counts.iter().sum())
        };
        LoadCondition {
            kind,
            load: match kind {
                LoadKind::Idle => None,
                LoadKind::SelfInduced => Some(self.own.clone()),
                LoadKind::Foreign => self.foreign.as_ref().map(Foreign::describe),
            },
            load_sent_packets: sum(|turn| turn.sent),
            load_received_packets: sum(|turn| turn.received),
            link_tx_pps: rate(0),
            link_tx_bps: rate(1),
            link_rx_pps: rate(2),
            link_rx_bps: rate(3),
            probes: session.tracker.counts(),
            latency: pinger.latency(session),
            responsiveness: Responsiveness::of(session.rtt.corrected()),
            rounds: turns.iter().filter_map(|turn| turn.median()).collect(),
            ratio_to_idle: (of != 0).then(|| self.to_idle(of)).flatten(),
        }
    }

    /// Medians of the turns in proportion to those without load in the same rounds.
    fn to_idle(&self, of: usize) -> Option<compare::Ratio> {
        let of_round = |of: usize, round: u32| {
            let turn = self.turns.iter().find(|turn| turn.of == of && turn.round == round)?;
            turn.median()
        };
        let pairs = (0..self.rounds).filter_map(|round| Some((of_round(0, round)?, of_round(of, round)?)));
        let (idle, loaded): (Vec<Round>, Vec<Round>) = pairs.unzip();
        compare::ratio(&idle, &loaded).ok()
    }
}

impl Turn {
    #[allow(clippy::cast_precision_loss, reason = "times of less than 2^53 ns, three months")]
    fn median(&self) -> Option<Round> {
        Some(Round {
            value: self.p50_ns? as f64,
            steal: self.steal,
        })
    }
}

/// Another flow to the same host.
fn foreign(args: &PingArgs, flow: &UdpFlow) -> Result<Foreign> {
    if let Some(command) = &args.load.load_command {
        return Ok(Foreign::Command(command.clone()));
    }
    let mut to = flow.dst;
    if !matches!(args.flow.to, Some(Peer::Ip(_))) {
        bad_value!(
            "--under-load=foreign: a socket of the kernel needs an IP address to send to, and --to gives none: give one, or \
             load the path by a program with --load-command"
        );
    }
    to.set_port(args.load.load_port);
    let headers = flow.header_len();
    Ok(Foreign::Udp {
        from: flow.src.ip(),
        to,
        payload: (args.load.load_size as usize).saturating_sub(headers).max(1),
        rate: args.load.load_rate,
    })
}

/// Counters at the begin of a turn.
struct Mark {
    link: Option<LinkState>,
    cpus: Option<CpuTimes>,
}

impl Mark {
    fn now(interface: &Interface) -> Self {
        Self {
            link: interface.state().ok(),
            cpus: CpuTimes::read().ok(),
        }
    }

    /// Packets and bits of the link, sent and received; share of all CPUs that the hypervisor took.
    fn passed(&self, interface: &Interface) -> (Option<[u64; 4]>, f64) {
        let after = Self::now(interface);
        let link = self.link.as_ref().zip(after.link).map(|(before, after)| {
            let (before, after) = (&before.stats, &after.stats);
            [
                after.tx_packets.wrapping_sub(before.tx_packets),
                after.tx_bytes.wrapping_sub(before.tx_bytes) * 8,
                after.rx_packets.wrapping_sub(before.rx_packets),
                after.rx_bytes.wrapping_sub(before.rx_bytes) * 8,
            ]
        });
        let steal = self.cpus.as_ref().zip(after.cpus).and_then(|(before, after)| {
            let passed = after.since(before).sum();
            passed.fraction(passed.steal)
        });
        (link, steal.unwrap_or(0.0))
    }
}

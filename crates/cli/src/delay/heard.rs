//! Where packets of others come.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use ringside_xsk::hints::{Reader, RingsideRx};
use ringside_xsk::{self as xsk, Port};

use super::args::Args;
use crate::stop::Stop;

/// How long to wait for packets of others, to find out where they come.
const LISTEN: Duration = Duration::from_secs(3);
/// Packets that are enough for it.
const ENOUGH: u64 = 200;

/// Which queues packets of others came to, and on which CPUs.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// By queue and CPU.
    packets: BTreeMap<(u32, u32), u64>,
    first_ns: Option<u64>,
    last_ns: u64,
}

impl Heard {
    /// Listens until there are enough, or the time is over.
    pub(super) fn listen(port: &mut Port, reader: Reader<RingsideRx>, args: &Args, stop: &Stop) -> Result<Self> {
        let mut heard = Self::default();
        let over = Instant::now() + LISTEN;
        while heard.total() < ENOUGH && Instant::now() < over && !stop.is_set() {
            let before = heard.total();
            for queue in port.queues_mut() {
                let mut burst = queue.recv(xsk::Wait::Spin)?;
                for (_, hints) in burst.with_hints(reader) {
                    if let Some(hints) = hints {
                        heard.note(hints);
                    }
                }
            }
            if heard.total() == before {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if heard.total() == 0 {
            ensure!(!stop.is_set(), "interrupted before anything was sampled");
            let counters = port.program_counters()?;
            let seen: u64 = counters.iter().map(xsk::QueueCounters::packets).sum();
            let elsewhere: u64 = counters.iter().map(|queue| queue.passed_unbound).sum();
            let why = match (seen, elsewhere) {
                (0, _) => format!(
                    "none at all came: is another host sending? ringside tx INTERFACE --to … --rate 1000 there, to {}",
                    port.interface()
                ),
                (_, 1..) => format!("{elsewhere} came to another queue: leave --queue out, or name theirs"),
                _ => format!("{seen} others did and went up the stack: see --filter"),
            };
            bail!(
                "nothing was sampled: no packet for filter {} came to {} within {} s; {why}",
                args.filter(),
                port.interface(),
                LISTEN.as_secs()
            );
        }
        Ok(heard)
    }

    fn note(&mut self, hints: RingsideRx) {
        *self.packets.entry((hints.rx_queue, hints.rx_cpu)).or_default() += 1;
        self.first_ns.get_or_insert(hints.rx_ktime);
        self.last_ns = self.last_ns.max(hints.rx_ktime);
    }

    fn total(&self) -> u64 {
        self.packets.values().sum()
    }

    /// The queue that most came to, and where its NAPI mostly ran.
    pub(super) fn most(&self) -> (u32, u32) {
        let of = |queue: u32| -> u64 {
            let theirs = self.packets.iter().filter(|((other, _), _)| *other == queue);
            theirs.map(|(_, packets)| packets).sum()
        };
        let most = self
            .packets
            .iter()
            .max_by_key(|((queue, _), packets)| (of(*queue), **packets));
        most.map_or((0, 0), |((queue, cpu), _)| (*queue, *cpu))
    }

    pub(super) fn cpus_of(&self, queue: u32) -> Vec<u32> {
        let theirs = self.packets.keys().filter(|(other, _)| *other == queue);
        theirs.map(|(_, cpu)| *cpu).collect()
    }

    /// The mean gap; none of a single packet.
    pub(super) fn interval(&self) -> Option<Duration> {
        let span = self.last_ns.checked_sub(self.first_ns?)?;
        let gap = span.checked_div(self.total() - 1)?;
        Some(Duration::from_nanos(gap))
    }
}

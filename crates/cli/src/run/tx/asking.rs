//! What `ringside tx` asks the driver for: checksums, launch times, and the times at which packets left.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use ringside_measure::latency::Latency;
use ringside_measure::probe::Clock;
use ringside_measure::schema::{self, RunResult, TxStampsResult};
use ringside_nic::Interface;
use ringside_nic::clock::{Offset, PhcDevice, Realtime, Tai, Timestamp};
use ringside_wire::checksum::{pseudo_v4, pseudo_v6};
use ringside_wire::flow::UdpFlow;
use ringside_wire::{Protocol, udp};
use ringside_xsk::tx_metadata::{
    ChecksumBy, LaunchBy, LaunchTime, StampCounters, StampSampling, StampTime, TxMeta, TxMetadata, TxMetadataReport,
    TxStamp,
};
use ringside_xsk::{Error, Port, Queue};

use crate::args::{count_in, period};
use crate::session::{Worker, nanos};

/// What packets ask for.
#[derive(Debug, clap::Args)]
pub(crate) struct AskArgs {
    /// Ask for the time at which packets left, each of them or one in N, such as 16 or 1k, and show
    /// what passed since they were handed over (Linux 6.11)
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true,
          default_missing_value = "1", value_parser = count_in(1_u32..=u32::MAX))]
    pub(crate) tx_stamps: Option<u32>,
    /// Highest number of stamps awaited at a time, such as 4 or 1k, for NICs with few registers
    /// for them [default: no limit]
    #[arg(long, value_name = "N", requires = "tx_stamps",
          value_parser = count_in(1_u32..=u32::MAX))]
    pub(crate) tx_stamps_outstanding: Option<u32>,
    /// Leave the UDP checksum to the device, or to the kernel where the device does not do it; =kernel: to the kernel in any
    /// case, on copy paths (Linux 6.11)
    #[arg(long, value_enum, value_name = "BY", num_args = 0..=1, require_equals = true, default_missing_value = "device")]
    pub(crate) checksum_offload: Option<ChecksumArg>,
    /// Hand each packet over at its deadline and have it leave so much later, such as 200us, by the NIC's clock (Linux 6.15),
    /// or with --via af-packet by the queueing discipline etf
    #[arg(long, value_name = "LEAD", requires = "cycle", value_parser = period)]
    pub(crate) launch_time: Option<Duration>,
    /// End with an error where the device does not tell that it keeps to launch times
    #[arg(long, requires = "launch_time")]
    pub(crate) launch_time_required: bool,
}

/// `--checksum-offload`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChecksumArg {
    /// The device, or the kernel where the device has no such offload
    Device,
    /// The kernel, before it hands the packet to the driver
    Kernel,
}

impl AskArgs {
    /// As the library has it.
    pub(super) fn wanted(&self) -> TxMetadata {
        let mut wanted = TxMetadata::new();
        if let Some(one_in) = self.tx_stamps {
            let mut sampling = StampSampling::one_in(one_in);
            if let Some(most) = self.tx_stamps_outstanding {
                sampling = sampling.outstanding(most);
            }
            wanted = wanted.timestamps(sampling);
        }
        match self.checksum_offload {
            None => {}
            Some(ChecksumArg::Device) => wanted = wanted.checksum(),
            Some(ChecksumArg::Kernel) => wanted = wanted.software_checksum(),
        }
        match (self.launch_time, self.launch_time_required) {
            (None, _) => wanted,
            (Some(_), true) => wanted.launch_time(LaunchTime::Required),
            (Some(_), false) => wanted.launch_time(LaunchTime::IfAvailable),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tx_stamps.is_none() && self.checksum_offload.is_none() && self.launch_time.is_none()
    }
}

/// What each packet asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking {
    meta: TxMeta,
    stamps: bool,
    lead: Option<Duration>,
}

impl Asking {
    /// For packets of this flow; a checksum that is left to others is taken out of `packet`.
    pub(super) fn new(args: &AskArgs, flow: &UdpFlow, packet: &mut [u8]) -> Result<Self> {
        let mut meta = TxMeta::new();
        if args.checksum_offload.is_some() {
            let start = flow.header_len() - udp::HEADER_LEN;
            let sum = match (flow.src.ip(), flow.dst.ip()) {
                (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) => {
                    pseudo_v4(src, dst, Protocol::UDP, u16::try_from(packet.len() - start)?)
                }
                (std::net::IpAddr::V6(src), std::net::IpAddr::V6(dst)) => {
                    pseudo_v6(src, dst, Protocol::UDP, u32::try_from(packet.len() - start)?)
                }
                _ => bail!("a flow between two families of addresses"),
            };
            packet[start + 6..][..2].copy_from_slice(&sum.fold().to_be_bytes());
            meta = meta.checksum(u16::try_from(start)?, 6);
        }
        Ok(Self {
            meta,
            stamps: args.tx_stamps.is_some(),
            lead: args.launch_time,
        })
    }

    /// Sends up to `most` copies of a packet, handed over now, and to be launched by `deadline_ns` of CLOCK_TAI and the lead.
    /// Where nothing is asked for it is the way without.
    #[inline]
    pub(super) fn send(&self, queue: &mut Queue, most: u32, packet: &[u8], deadline_ns: u64) -> Result<u32, Error> {
        let mut meta = self.meta;
        if self.stamps {
            // The token is the time of the hand-over: nothing else has to be remembered.
            meta = meta.timestamp(Timestamp::<Tai>::now().as_nanos());
        }
        if let Some(lead) = self.lead {
            meta = meta.launch_time(Timestamp::<Tai>::from_nanos(deadline_ns) + lead);
        }
        if meta.is_empty() {
            return queue.send_with(most, |slot| {
                let fits = slot.write(packet);
                debug_assert!(fits, "the size was checked against the room");
            });
        }
        queue.send_asking_with(most, |slot| {
            let fits = slot.write(packet);
            debug_assert!(fits, "the size was checked against the room");
            meta
        })
    }

    /// A record of the stamps of one queue; none where none are asked for.
    pub(super) fn departures(&self, interface: &Interface, queue: &Queue) -> Result<Option<Departures>> {
        if !self.stamps {
            return Ok(None);
        }
        let stamps = queue.report().tx_metadata.and_then(|report| report.stamps);
        let hardware = stamps.is_some_and(|stamps| stamps.source == "hardware");
        let clock = match hardware {
            true => Some(PhcDevice::of(interface)?.with_context(|| {
                format!("{interface} stamps packets by a clock of its own that cannot be read: without it the stamps tell nothing")
            })?),
            false => None,
        };
        Ok(Some(Departures {
            clock,
            times: Latency::new(),
            impossible: 0,
            uncertainty_ns: None,
            last: Instant::now(),
        }))
    }
}

/// Times from hand-over to departure.
pub(super) struct Departures {
    /// The NIC's clock, where stamps are by it.
    clock: Option<PhcDevice>,
    times: Latency,
    impossible: u64,
    uncertainty_ns: Option<u64>,
    last: Instant,
}

/// How often two clocks are compared; stamps wait until then.
const COMPARE: Duration = Duration::from_millis(10);

impl Departures {
    /// Takes the stamps that arrived.
    pub(super) fn collect(&mut self, queue: &mut Queue) -> Result<()> {
        match self.clock {
            None => {
                for TxStamp { token, time, .. } in queue.tx_stamps()? {
                    self.note(token, time.as_nanos());
                }
                Ok(())
            }
            Some(_) if self.last.elapsed() < COMPARE => Ok(()),
            Some(_) => self.compare(queue),
        }
    }

    /// As [`collect`](Self::collect), of the NIC's clock, whose distance from ours is measured anew.
    fn compare(&mut self, queue: &mut Queue) -> Result<()> {
        self.last = Instant::now();
        let Some(device) = self.clock.take() else { return Ok(()) };
        let done = device.scope(|clock| {
            let (offset, _) = clock.offset().context("reading the NIC's clock")?;
            let ours = Offset::<Tai, Realtime>::measure().then(&offset);
            let ours = ours.and_then(|ours| ours.inverse());
            let ours = ours.context("the NIC's clock shows a time that cannot be")?;
            for TxStamp { token, time, .. } in queue.tx_stamps()? {
                let at = match time {
                    StampTime::Hardware(at) => ours.convert(at.of(&clock)),
                    _ => None,
                };
                match at {
                    Some(at) => {
                        let worst = self.uncertainty_ns.unwrap_or(0).max(at.uncertainty_ns);
                        self.uncertainty_ns = Some(worst);
                        self.note(token, at.at.as_nanos());
                    }
                    None => self.impossible += 1,
                }
            }
            Ok(())
        });
        self.clock = Some(device);
        done
    }

    fn note(&mut self, handed_over: u64, left: u64) {
        match left.checked_sub(handed_over) {
            Some(took) => self.times.record(took),
            None => self.impossible += 1,
        }
    }

    /// What is still to come after the last packet; for a moment.
    pub(super) fn finish(mut self, queue: &mut Queue, worker: &Worker<'_>, to: &Collected) -> Result<()> {
        worker.drain(queue)?;
        self.last = Instant::now() - COMPARE;
        let done = self.collect(queue);
        let mut all = to.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *all {
            None => *all = Some(self),
            Some(all) => {
                all.times.merge(&self.times);
                all.impossible += self.impossible;
                all.uncertainty_ns = all.uncertainty_ns.max(self.uncertainty_ns);
            }
        }
        done
    }
}

/// The departures of all queues.
#[derive(Default)]
pub(super) struct Collected(Mutex<Option<Departures>>);

impl Collected {
    /// Into the result, with what was obtained and counted.
    pub(super) fn tell(self, port: &Port, result: &mut RunResult) {
        let Some(obtained) = port.queues().first().and_then(|queue| queue.report().tx_metadata) else {
            return;
        };
        result.checksum_offload = obtained.checksum.map(checksum_by);
        if let (Some(launch), Some(cycle)) = (&obtained.launch_time, &mut result.cycle)
            && let Some(told) = &mut cycle.launch
        {
            told.kept_by = launch_by(*launch);
        }
        let departures = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(departures) = departures {
            result.tx_stamps = stamps(&obtained, &departures, port);
        }
    }
}

fn stamps(obtained: &TxMetadataReport, departures: &Departures, port: &Port) -> Option<TxStampsResult> {
    let obtained = obtained.stamps?;
    let mut counted = StampCounters::default();
    for queue in port.queues() {
        counted += queue.stamp_counters();
    }
    let result = TxStampsResult {
        clock: if obtained.source == "hardware" {
            Clock::Phc
        } else {
            Clock::Tai
        },
        source: obtained.source.into(),
        sampled_one_in_packets: obtained.one_in,
        wanted_packets: counted.wanted,
        asked_packets: counted.asked,
        stamped_packets: counted.stamped,
        unstamped_packets: counted.unstamped,
        outstanding_packets: counted.outstanding(),
        unread_packets: counted.unread,
        impossible_packets: departures.impossible,
        coverage_percent: counted.coverage().map(|part| part * 100.0),
        hand_over: None,
        hand_over_hdr: None,
        uncertainty_ns: departures.uncertainty_ns,
    };
    Some(result.with_times(&departures.times))
}

fn checksum_by(by: ChecksumBy) -> schema::ChecksumBy {
    match by {
        ChecksumBy::Device => schema::ChecksumBy::Device,
        ChecksumBy::Kernel => schema::ChecksumBy::Kernel,
        _ => schema::ChecksumBy::DeviceOrKernel,
    }
}

fn launch_by(by: LaunchBy) -> schema::LaunchBy {
    match by {
        LaunchBy::Device => schema::LaunchBy::Device,
        LaunchBy::Nobody => schema::LaunchBy::Nobody,
        _ => schema::LaunchBy::Unknown,
    }
}

/// Launch times as the result begins with them.
pub(super) fn launch(lead: Duration, kept_by: schema::LaunchBy) -> schema::LaunchResult {
    schema::LaunchResult {
        lead_ns: nanos(lead),
        kept_by,
        missed_packets: None,
    }
}

#[cfg(test)]
#[path = "asking_tests.rs"]
mod tests;

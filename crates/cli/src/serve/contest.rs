//! The far end of one turn of a comparison: what was opened for it, the thread that works, and what it has counted.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ringside_bpf::{Link, Sink};
use ringside_measure::control::Start;
use ringside_measure::rate::Rates;
use ringside_measure::schema::{CpuUse, Operation, RunResult};
use ringside_nic::Interface;
use ringside_nic::host::CpuTimes;
use ringside_wire::MacAddr;

use crate::compare::{FarPart, Side, Worker};
use crate::cpu_wait::CpuWait;
use crate::session::nanos;
use crate::system;

/// How often to look whether it is over.
const LOOK: Duration = Duration::from_millis(1);

/// A turn.
pub(super) struct Turn {
    counter: Arc<Counter>,
    _links: Vec<Link>,
    end: Arc<AtomicBool>,
    worker: Option<JoinHandle<Result<()>>>,
    slot: Option<JoinHandle<Option<Slot>>>,
    begun: Option<CpuTimes>,
    wait: CpuWait,
}

/// What counts.
struct Counter {
    sink: Option<Sink>,
    done: AtomicU64,
}

impl Counter {
    fn read(&self) -> u64 {
        match &self.sink {
            Some(sink) => sink.traffic().map_or(0, |traffic| traffic.packets),
            None => self.done.load(Ordering::Acquire),
        }
    }
}

/// What was counted in the slot.
struct Slot {
    packets: u64,
    time: Duration,
    cpus: Vec<CpuUse>,
}

impl Turn {
    /// Opens it on the interface, for packets from the client.
    pub(super) fn open(start: &Start, interface: &str, own_mac: MacAddr, to: IpAddr) -> Result<Self> {
        let contest = start.contest.as_ref().context("a comparison without a variant")?;
        let v4 = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => Ok(ip),
            IpAddr::V6(_) => bail!("comparisons take IPv4: name the server by its IPv4 address"),
        };
        let near: Ipv4Addr = v4(start.from.context("a comparison without an address")?.ip())?;
        let interface = Interface::by_name(interface)?;
        // Nothing is opened on the near side from here, and what is sent goes back to where it came from.
        let near = Side::shared(interface.clone(), MacAddr([0; 6]), near);
        let own = Side::shared(interface, own_mac, v4(to)?);
        let part = FarPart::open(contest, start.frame_bytes, near, own)?;
        let end = Arc::new(AtomicBool::new(false));
        let counter = Arc::new(Counter {
            sink: part.sink,
            done: AtomicU64::new(0),
        });
        let worker = part
            .worker
            .map(|worker| work(worker, Arc::clone(&counter), Arc::clone(&end)))
            .transpose()?;
        let (counted, over) = (Arc::clone(&counter), Arc::clone(&end));
        let [settle, longest] = [contest.settle_ns, contest.slot_ns].map(Duration::from_nanos);
        let slot = std::thread::Builder::new().name("slot".into());
        let slot = slot.spawn(move || slot_of(&counted, settle, longest, &over));
        Ok(Self {
            counter,
            _links: part.links,
            end,
            worker,
            slot: Some(slot.context("starting a thread")?),
            begun: CpuTimes::read().ok(),
            wait: CpuWait::of_this_process(),
        })
    }

    /// Packets so far.
    pub(super) fn count(&self) -> u64 {
        self.counter.read()
    }

    /// Returns for how long the thread that waited most had no CPU, in percent of the time since.
    pub(super) fn cpu_wait_percent(&self) -> Option<f64> {
        self.wait.share().map(|share| share * 100.0)
    }

    /// Ends it: what was counted, and what went wrong if anything did.
    pub(super) fn finish(mut self, frame_bytes: u64) -> (RunResult, Option<String>) {
        let joined = self.join();
        let mut result = RunResult::new(Operation::Rx);
        result.packets.received = Some(self.count());
        result.frame_bytes = Some(frame_bytes);
        match joined {
            Ok(Some(slot)) => {
                result.duration_ns = nanos(slot.time);
                result.received = Rates::new(
                    slot.packets,
                    frame_bytes,
                    frame_bytes.saturating_sub(42),
                    result.duration_ns,
                );
                result.cpus = slot.cpus;
                (result, None)
            }
            Ok(None) => {
                // Counted by the near end, or too short: what the CPUs did in all of it.
                result.cpus = cpus_since(self.begun.as_ref());
                (result, None)
            }
            Err(error) => (result, Some(format!("{error:#}"))),
        }
    }

    fn join(&mut self) -> Result<Option<Slot>> {
        self.end.store(true, Ordering::Release);
        let worked = match self.worker.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(done)) => done,
            Some(Err(_)) => bail!("a thread panicked"),
        };
        let slot = self.slot.take().and_then(|slot| slot.join().ok()).flatten();
        worked.map(|()| slot)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        _ = self.join();
    }
}

/// Waits for the first packet, settles, and counts for the length of a slot; `None` if it was over before.
fn slot_of(counter: &Counter, settle: Duration, longest: Duration, over: &AtomicBool) -> Option<Slot> {
    let until = |end: Instant| {
        while Instant::now() < end && !over.load(Ordering::Relaxed) {
            std::thread::sleep(end.saturating_duration_since(Instant::now()).min(LOOK));
        }
        !over.load(Ordering::Relaxed)
    };
    while counter.read() == 0 {
        until(Instant::now() + LOOK).then_some(())?;
    }
    until(Instant::now() + settle).then_some(())?;
    let before = CpuTimes::read().ok();
    let (first, begun) = (counter.read(), Instant::now());
    until(begun + longest).then_some(())?;
    let (last, time) = (counter.read(), begun.elapsed());
    Some(Slot {
        packets: last - first,
        time,
        cpus: cpus_since(before.as_ref()),
    })
}

fn cpus_since(before: Option<&CpuTimes>) -> Vec<CpuUse> {
    match (before, CpuTimes::read().ok()) {
        (Some(before), Some(after)) => system::cpu_use(before, &after),
        _ => Vec::new(),
    }
}

/// Has the worker work, once it is in its place.
fn work(worker: Worker, counter: Arc<Counter>, end: Arc<AtomicBool>) -> Result<JoinHandle<Result<()>>> {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::Builder::new().name("contest".into());
    let thread = thread
        .spawn(move || {
            let placed = worker.place.take();
            let is_placed = placed.is_ok();
            _ = tell.send(placed);
            match is_placed {
                true => worker.work(&counter.done, &end),
                false => Ok(()),
            }
        })
        .context("starting a thread")?;
    told.recv().context("the thread ended")??;
    Ok(thread)
}

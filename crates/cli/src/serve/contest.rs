//! The far end of one turn of a comparison: what was opened for it, the thread that works, and what it has counted.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, bail};
use ringside_bpf::{Link, Sink};
use ringside_measure::control::Start;
use ringside_nic::Interface;
use ringside_nic::host::CpuTimes;
use ringside_wire::MacAddr;

use crate::compare::{FarPart, Side, Worker};

/// A turn.
pub(super) struct Turn {
    sink: Option<Sink>,
    _links: Vec<Link>,
    done: Arc<AtomicU64>,
    end: Arc<AtomicBool>,
    worker: Option<JoinHandle<Result<()>>>,
    cpus: Option<CpuTimes>,
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
        let (done, end) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let worker = part
            .worker
            .map(|worker| work(worker, Arc::clone(&done), Arc::clone(&end)))
            .transpose()?;
        Ok(Self {
            sink: part.sink,
            _links: part.links,
            done,
            end,
            worker,
            cpus: CpuTimes::read().ok(),
        })
    }

    /// Packets so far.
    pub(super) fn count(&self) -> u64 {
        match &self.sink {
            Some(sink) => sink.traffic().map_or(0, |traffic| traffic.packets),
            None => self.done.load(Ordering::Acquire),
        }
    }

    /// Ends it: packets, what the CPUs did, and what went wrong if anything did.
    pub(super) fn finish(mut self) -> (u64, Option<CpuTimes>, Option<String>) {
        let failure = self.join().err().map(|error| format!("{error:#}"));
        (self.count(), self.cpus.take(), failure)
    }

    fn join(&mut self) -> Result<()> {
        self.end.store(true, Ordering::Release);
        match self.worker.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(done)) => done,
            Some(Err(_)) => bail!("a thread panicked"),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        _ = self.join();
    }
}

/// Has the worker work, once it is in its place.
fn work(worker: Worker, done: Arc<AtomicU64>, end: Arc<AtomicBool>) -> Result<JoinHandle<Result<()>>> {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::Builder::new().name("contest".into());
    let thread = thread
        .spawn(move || {
            let placed = worker.place.take();
            let is_placed = placed.is_ok();
            _ = tell.send(placed);
            match is_placed {
                true => worker.work(&done, &end),
                false => Ok(()),
            }
        })
        .context("starting a thread")?;
    told.recv().context("the thread ended")??;
    Ok(thread)
}

//! Instructions of user code per received packet, by callgrind.
//!
//! Each receiver runs twice, for a short load and a long one; the figure is the difference of instructions over that of
//! packets, so that what is done once cancels. All sleep when no packet is there, so that looking at an empty ring does
//! not count, and under callgrind each is slower than the load, so that its bursts are full. Packets are counted by the
//! veth.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::children::{Invocation, Process};
use crate::counters::Counter;
use crate::lab::{self, Lab, NEAR};
use crate::load::{Load, Source};
use crate::operation::Operation;
use crate::ours;
use crate::peers::Peers;

/// How long a program may take under callgrind until its first packet, and to end.
const PATIENCE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_millis(2300);

/// `peers instructions`.
pub(crate) fn run() -> Result<()> {
    lab::remove_stale()?;
    let folder = PathBuf::from("out/bench-logs");
    let mut receivers = Peers::find()?.sleeping_receivers();
    let mut ours = ours::variant(Operation::Rx).map_err(|missing| anyhow::anyhow!(missing.why))?;
    ours.near.words.extend(["--wait", "poll"].map(str::to_owned));
    receivers.push((ours.name, ours.near));
    println!("instructions of user code per received packet of 64 bytes, bursts of 64");
    for (name, near) in receivers {
        let [short, long] = [SHORT, LONG].map(|load| Counted::over(load, &near, &folder, &name));
        match short.and_then(|short| Ok(long?.since(&short))) {
            Ok((per_packet, packets)) => println!("  {name:<12} {per_packet:>6.1}   ({packets} packets)"),
            Err(error) => println!("  {name:<12}      –   {error:#}"),
        }
    }
    Ok(())
}

/// What a run cost, set-up included.
struct Counted {
    instructions: u64,
    packets: u64,
}

impl Counted {
    fn over(load: Duration, near: &Invocation, folder: &Path, name: &str) -> Result<Self> {
        let lab = Lab::new()?;
        let counter = Counter::find(lab.near(), NEAR, "rx_queue_0_xdp_redirect")?;
        let profile = folder.join(format!("callgrind-{name}"));
        let callgrind = [
            "valgrind".to_owned(),
            "--tool=callgrind".to_owned(),
            format!("--callgrind-out-file={}", std::path::absolute(&profile)?.display()),
        ];
        let log = folder.join(format!("callgrind-{name}.log"));
        let mut process = Process::start(&near.clone().under(&callgrind), lab.near(), Operation::Rx.cpu(), &log)?;
        // Until it is ready nothing takes the packets.
        let end = Instant::now() + PATIENCE;
        while counter.read()? == 0 {
            process.check()?;
            ensure!(Instant::now() < end, "{name} received nothing in {PATIENCE:?}");
            // The generator has words of its own for an interface that nobody listens on yet.
            _ = offer(&lab, Duration::from_millis(20));
            std::thread::sleep(Duration::from_millis(50));
        }
        offer(&lab, load)?;
        // What waits in its ring is received yet.
        std::thread::sleep(Duration::from_millis(300));
        let packets = counter.read()?;
        process.end(PATIENCE)?;
        Ok(Self {
            instructions: instructions(&profile)?,
            packets,
        })
    }

    /// Instructions per packet, and packets, between two runs.
    #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn since(&self, short: &Self) -> (f64, u64) {
        let packets = self.packets.saturating_sub(short.packets);
        let instructions = self.instructions.saturating_sub(short.instructions);
        (instructions as f64 / packets as f64, packets)
    }
}

fn offer(lab: &Lab, duration: Duration) -> Result<()> {
    let load = Load::start(lab, Duration::from_secs(60), Source::Generator);
    while !load.is_ready() && !load.has_ended() {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(duration);
    load.finish()
}

/// The sum that callgrind ends its file with.
fn instructions(profile: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(profile).with_context(|| format!("reading {}", profile.display()))?;
    let totals = text.lines().rev().find_map(|line| line.strip_prefix("totals: "));
    totals
        .and_then(|sum| sum.trim().parse().ok())
        .with_context(|| format!("{} has no totals", profile.display()))
}

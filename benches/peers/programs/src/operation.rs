//! The loops that are the same for every crate, and what they report.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::frame;
use crate::options::{Operation, Options};

/// One bound queue as a crate offers it. Each step handles at most one burst and never sleeps.
pub(crate) trait Queue {
    /// Receives a burst and gives the frames back to the kernel; returns how many.
    fn receive_and_drop(&mut self) -> Result<usize>;
    /// Queues a burst for transmission and reclaims sent frames; returns how many were queued.
    fn transmit(&mut self) -> Result<usize>;
    /// Receives a burst, swaps the MAC addresses and sends it back; returns how many.
    fn forward(&mut self) -> Result<usize>;
    /// Sends one packet at once.
    fn send(&mut self, packet: &[u8]) -> Result<()>;
    /// Looks once for received packets and shows each of them; returns how many.
    fn receive(&mut self, look: &mut dyn FnMut(&[u8])) -> Result<usize>;
    /// Sleeps until a packet is there, or for a moment.
    fn sleep(&mut self) -> Result<()>;
}

/// The longest sleep: so often the end is looked for.
pub(crate) const MOMENT: Duration = Duration::from_millis(100);

/// What an operation did.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Packets received, queued for transmission, forwarded, or answered.
    packets: u64,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_ns: Option<RoundTrips>,
    /// Ping only: packets without an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<u64>,
}

/// Round-trip times in nanoseconds.
#[derive(Debug, Serialize)]
struct RoundTrips {
    min: u64,
    p50: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

/// Runs the operation until the time is over or a signal asks for the end.
pub(crate) fn run(options: &Options, mut queue: impl Queue) -> Result<Report> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("installing a signal handler")?;
    }
    // A thread keeps the time so that the loop under measurement reads no clock.
    if let Some(duration) = options.seconds {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            std::thread::sleep(duration);
            stop.store(true, Ordering::Relaxed);
        });
    }
    let begin = Instant::now();
    let mut report = match options.operation {
        Operation::Rxdrop if options.poll => repeat(&stop, || {
            let packets = queue.receive_and_drop()?;
            if packets == 0 {
                queue.sleep()?;
            }
            Ok(packets)
        })?,
        Operation::Rxdrop => repeat(&stop, || queue.receive_and_drop())?,
        Operation::Txonly => repeat(&stop, || queue.transmit())?,
        Operation::L2fwd => repeat(&stop, || queue.forward())?,
        Operation::Ping => ping(&stop, &mut queue, frame::udp(options.packet_size))?,
    };
    report.seconds = begin.elapsed().as_secs_f64();
    Ok(report)
}

fn repeat(stop: &AtomicBool, mut step: impl FnMut() -> Result<usize>) -> Result<Report> {
    let mut packets = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        packets += step()? as u64;
    }
    Ok(Report {
        packets,
        seconds: 0.0,
        rtt_ns: None,
        lost: None,
    })
}

/// One packet in flight. The first answers are left out: they pay for cold caches.
fn ping(stop: &AtomicBool, queue: &mut impl Queue, mut packet: Vec<u8>) -> Result<Report> {
    const WARM_UP: u64 = 1000;
    const PATIENCE: Duration = Duration::from_millis(100);
    let mut times = Histogram::<u64>::new_with_bounds(1, 10_000_000_000, 3)?;
    let (mut answered, mut lost) = (0_u64, 0_u64);
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        frame::set_sequence(&mut packet, number);
        let sent = Instant::now();
        queue.send(&packet)?;
        let answer = loop {
            let mut mine = false;
            queue.receive(&mut |bytes| mine |= frame::sequence(bytes) == Some(number))?;
            if mine {
                break Some(sent.elapsed());
            }
            if sent.elapsed() > PATIENCE {
                break None;
            }
        };
        match answer {
            None => lost += 1,
            Some(_) if number <= WARM_UP => {}
            Some(time) => {
                answered += 1;
                times.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            }
        }
    }
    anyhow::ensure!(answered > 0, "no packet was answered; {lost} were sent in vain");
    Ok(Report {
        packets: answered,
        seconds: 0.0,
        rtt_ns: Some(RoundTrips {
            min: times.min(),
            p50: times.value_at_quantile(0.50),
            p99: times.value_at_quantile(0.99),
            p999: times.value_at_quantile(0.999),
            max: times.max(),
        }),
        lost: Some(lost),
    })
}

//! Receives on all queues of an interface, a thread each, drops everything, and tells once a second how much it was.
//!
//! ```text
//! cargo run --release -p ringside-xsk --example rxdrop -- eth0 udp:4789 10
//! ```
//!
//! The second argument is what to take from the interface: `all`, `udp:PORT` or any other filter
//! (see the README); the kernel keeps the others. The third is for how many seconds.

use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringside_xsk::{Direction, Filter, Interface, Port, QueueOptions, Wait};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rxdrop: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("usage: rxdrop INTERFACE [FILTER [SECONDS]]")?;
    let filter: Filter = arguments.next().as_deref().unwrap_or("all").parse()?;
    let seconds: u64 = arguments.next().as_deref().unwrap_or("10").parse()?;

    let mut port = Port::builder(Interface::by_name(&name)?)
        .filter(filter)
        .options(QueueOptions::new().direction(Direction::Receive))
        .open()?;
    eprintln!("{}", port.report());

    let (packets, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let workers: Vec<_> = port
            .queues_mut()
            .map(|queue| {
                scope.spawn(|| -> Result<(), ringside_xsk::Error> {
                    while !stop.load(Ordering::Relaxed) {
                        let burst = queue.recv(Wait::Poll(Duration::from_millis(100)))?;
                        packets.fetch_add(burst.len() as u64, Ordering::Relaxed);
                        // Nothing said about a packet means: dropped, its frame goes back to the kernel.
                    }
                    Ok(())
                })
            })
            .collect();
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut before = 0;
        while Instant::now() < end && !workers.iter().any(|worker| worker.is_finished()) {
            std::thread::sleep(Duration::from_secs(1).min(end.saturating_duration_since(Instant::now())));
            let now = packets.load(Ordering::Relaxed);
            println!("{} packets/s", now - before);
            before = now;
        }
        stop.store(true, Ordering::Relaxed);
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("no panic"))
    })?;

    let stats = port.stats()?;
    println!(
        "{} packets, {} bytes; dropped by the kernel: {} for want of a frame, {} for want of room",
        stats.own.rx_packets, stats.own.rx_bytes, stats.kernel.rx_fill_ring_empty, stats.kernel.rx_ring_full
    );
    Ok(())
}
